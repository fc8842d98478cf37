//! `wigwag resume`: a paused run goes on.

use super::{client, command, find, show_asked};
use crate::args::StoreArgs;
use crate::error::Failed;

pub(super) async fn run(args: &StoreArgs, id: &str, anyway: bool, json: bool) -> Result<(), Failed> {
    let (handle, _) = find(&client(args).await?, id).await?;
    let call = handle.resume();
    let call = if anyway { call.anyway() } else { call };
    let hint = || format!("see how it is with `{}`", command(args, &format!("status {id}")));
    let asked = call.await.map_err(|error| Failed::from(error).or_hint(hint))?;
    show_asked(&handle, "resume", asked, json)
}
