//! `wigwag cancel`: cancels a run.

use super::{ask, find, target};
use crate::args::StoreArgs;
use crate::error::Failed;
use crate::target::Ask;

pub(super) async fn run(args: &StoreArgs, id: &str, reason: Option<String>, json: bool) -> Result<(), Failed> {
    let target = target(args).await?;
    let run = find(&*target, id).await?.run;
    ask(&*target, &run, &Ask::Cancel { reason }, json).await
}
