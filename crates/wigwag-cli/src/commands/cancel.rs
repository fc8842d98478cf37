//! `wigwag cancel`: a run is to end.

use wigwag::RunHandle;

use super::{client, find, show_asked};
use crate::args::StoreArgs;
use crate::error::Failed;

pub(super) async fn run(args: &StoreArgs, id: &str, reason: Option<String>, json: bool) -> Result<(), Failed> {
    let (handle, _) = find(&client(args).await?, id).await?;
    cancel(&handle, reason, json).await
}

pub(super) async fn cancel(handle: &RunHandle, reason: Option<String>, json: bool) -> Result<(), Failed> {
    let call = handle.cancel();
    let call = if let Some(reason) = reason { call.reason(reason) } else { call };
    show_asked(handle, "cancel", call.await?, json)
}
