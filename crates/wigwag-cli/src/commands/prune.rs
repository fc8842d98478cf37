//! `wigwag prune`: removes finished runs.

use std::io::Write as _;

use serde_json::json;
use wigwag::{PruneOptions, Pruned};

use super::target;
use crate::args::{Prune, StoreArgs};
use crate::error::Failed;
use crate::output::{Progress, count};

pub(super) async fn run(args: &StoreArgs, wanted: &Prune, json: bool) -> Result<(), Failed> {
    let target = target(args).await?;
    let mut options = PruneOptions::older_than(wanted.older_than);
    options.status = wanted.status;
    options.dry_run = wanted.dry_run;
    let progress = Progress::new();
    let pruned = target.prune(&options, &mut |pruned| progress.say(&count(pruned.runs, "run"))).await?;
    drop(progress);
    let mut stdout = std::io::stdout().lock();
    let Pruned { runs, objects, freed, .. } = pruned;
    if json {
        let shown = json!({"dry_run": wanted.dry_run, "runs": runs, "objects": objects, "freed": freed});
        writeln!(stdout, "{shown}")?;
    } else if wanted.dry_run {
        writeln!(stdout, "would remove {}", count(runs, "run"))?;
    } else {
        let (runs, objects, freed) = (count(runs, "run"), count(objects, "object"), count(freed, "id"));
        writeln!(stdout, "removed {runs}, {objects} in all; {freed} can be used again")?;
    }
    Ok(())
}
