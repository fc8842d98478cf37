//! `wigwag start`: a new run.

use std::io::Write as _;
use std::time::Duration;

use serde_json::json;
use wigwag::{ErrorKind, RunHandle};

use super::{client_of_new, command, show_payload};
use crate::args::{Start, StoreArgs};
use crate::error::Failed;
use crate::input;
use crate::output::Progress;

pub(super) async fn run(args: &StoreArgs, wanted: Start, json: bool) -> Result<(), Failed> {
    let payload = input::json(&wanted.input)?;
    let client = client_of_new(args).await?;
    let mut call = client.start(&wanted.of, &payload);
    if let Some(id) = wanted.id {
        call = call.id(id);
    }
    if let Some(at) = wanted.when.at {
        call = call.at(at);
    }
    if let Some(delay) = wanted.when.delay {
        call = call.delay(delay);
    }
    let handle =
        call.await.map_err(|error| refused(error, "TYPE is the name of a workflow, `--id` one of your own"))?;
    match wanted.wait {
        true => wait(args, &handle, wanted.timeout).await,
        false => show_id(&handle, json),
    }
}

/// A refusal of the call as written says the rule; where it applies is said here.
pub(super) fn refused(error: wigwag::Error, hint: &str) -> Failed {
    let hint = match error.kind() {
        ErrorKind::Invalid => hint,
        ErrorKind::Gone => "choose another id",
        _ => return error.into(),
    };
    Failed::from(error).or_hint(|| hint.to_owned())
}

pub(super) fn show_id(handle: &RunHandle, json: bool) -> Result<(), Failed> {
    let mut stdout = std::io::stdout().lock();
    match json {
        true => writeln!(stdout, "{}", json!({"id": handle.id().as_str()}))?,
        false => writeln!(stdout, "{}", handle.id())?,
    }
    Ok(())
}

/// Waits for the end, and prints the result.
pub(super) async fn wait(args: &StoreArgs, handle: &RunHandle, timeout: Option<Duration>) -> Result<(), Failed> {
    let id = handle.id();
    let progress = Progress::new();
    progress.say(&format!("`{id}` is under way"));
    let look = |what: &str, hint: &str| format!("{hint} with `{}`", command(args, &format!("{what} {id}")));
    handle.wait_for(timeout).await.map_err(|error| Failed::from(error).or_hint(|| look("status", "look at it")))?;
    let result = handle.result_payload().await;
    drop(progress);
    show_payload(&result.map_err(|error| Failed::from(error).or_hint(|| look("steps", "see what was done")))?)
}
