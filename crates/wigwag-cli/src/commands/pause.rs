//! `wigwag pause`: no further step begins.

use super::{client, command, find, show_asked};
use crate::args::StoreArgs;
use crate::error::Failed;

pub(super) async fn run(args: &StoreArgs, id: &str, json: bool) -> Result<(), Failed> {
    let (handle, _) = find(&client(args).await?, id).await?;
    let hint = || format!("see how it is with `{}`", command(args, &format!("status {id}")));
    let asked = handle.pause().await.map_err(|error| Failed::from(error).or_hint(hint))?;
    show_asked(&handle, "pause", asked, json)
}
