//! `wigwag resume`: resumes a paused run.

use super::{ask, command, find, target};
use crate::args::StoreArgs;
use crate::error::Failed;
use crate::target::Ask;

pub(super) async fn run(args: &StoreArgs, id: &str, anyway: bool, json: bool) -> Result<(), Failed> {
    let target = target(args).await?;
    let run = find(&*target, id).await?.run;
    let hint = || format!("see how it is with `{}`", command(args, &format!("status {id}")));
    ask(&*target, &run, &Ask::Resume { anyway }, json).await.map_err(|failed| failed.or_hint(hint))
}
