//! `wigwag restart`: a run begins again.

use wigwag::ErrorKind;

use super::{client, command, find, show_asked};
use crate::args::StoreArgs;
use crate::error::Failed;

pub(super) async fn run(args: &StoreArgs, id: &str, from: Option<String>, json: bool) -> Result<(), Failed> {
    let (handle, _) = find(&client(args).await?, id).await?;
    let call = handle.restart();
    let call = if let Some(from) = from { call.from(from) } else { call };
    let asked = call.await.map_err(|error| {
        let hint = match error.kind() {
            ErrorKind::NotRunning => format!("end it first with `{}`", command(args, &format!("cancel {id}"))),
            _ => format!("see its steps with `{}`", command(args, &format!("steps {id}"))),
        };
        Failed::from(error).or_hint(|| hint)
    })?;
    show_asked(&handle, "restart", asked, json)
}
