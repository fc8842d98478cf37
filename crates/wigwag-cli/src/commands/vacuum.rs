//! `wigwag vacuum`: returns the free space of an embedded store to the disk.

use std::io::Write as _;

use serde_json::json;
use wigwag_store::Vacuumed;

use super::open;
use crate::args::StoreArgs;
use crate::error::Failed;
use crate::output::{Progress, megabytes};

pub(super) async fn run(args: &StoreArgs, json: bool) -> Result<(), Failed> {
    let opened = open(args)?;
    let Some(embedded) = &opened.embedded else {
        let what = format!("only an embedded store has free space to return, got store: `{}`", args.store);
        return Err(Failed::wrong(what).hint("a bucket frees the space of an object when it is deleted"));
    };
    let progress = Progress::new();
    progress.say("returning free space to the disk");
    let Vacuumed { bytes_before, bytes_after, is_rebuilt, .. } = embedded.vacuum().await?;
    drop(progress);
    let mut stdout = std::io::stdout().lock();
    if json {
        let shown = json!({"bytes_before": bytes_before, "bytes_after": bytes_after, "rebuilt": is_rebuilt});
        writeln!(stdout, "{shown}")?;
        return Ok(());
    }
    let rebuilt = if is_rebuilt { "; rebuilt, so that it returns free space by itself from now on" } else { "" };
    writeln!(stdout, "{} before, {} after{rebuilt}", megabytes(bytes_before), megabytes(bytes_after))?;
    Ok(())
}
