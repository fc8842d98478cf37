//! `wigwag restart`: restarts a finished or paused run.

use wigwag_server::Code;

use super::{ask, command, find, target};
use crate::args::StoreArgs;
use crate::error::Failed;
use crate::target::Ask;

pub(super) async fn run(args: &StoreArgs, id: &str, from: Option<String>, json: bool) -> Result<(), Failed> {
    let target = target(args).await?;
    let run = find(&*target, id).await?.run;
    ask(&*target, &run, &Ask::Restart { from }, json).await.map_err(|failed| {
        let hint = match failed.code() {
            Some(Code::NotRunning) => format!("cancel it first with `{}`", command(args, &format!("cancel {id}"))),
            _ => format!("list its steps with `{}`", command(args, &format!("steps {id}"))),
        };
        failed.or_hint(|| hint)
    })
}
