//! Control requests to a run: cancel, pause, resume, restart, migrate.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wigwag::{Asked, RunHandle};

use crate::auth::Caller;
use crate::extract::{Json, Of};
use crate::problem::Result;
use crate::wire::{self, Raw};
use crate::words;

/// An empty body.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// The recorded control request, which a worker will carry out.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Acknowledged {
    id: String,
    /// `cancel`, `pause`, `resume`, `restart` or `migrate`.
    asked: String,
    /// Whether the request was recorded. `false` for a duplicate, or if it has no effect (see `compensating`).
    new: bool,
    /// Whether the run is already compensating after a failure, so that a cancel has no effect; absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    compensating: bool,
}

pub(crate) fn asked(handle: &RunHandle, what: &str, asked: Asked) -> Result<Raw> {
    let (new, compensating) = (asked == Asked::Now, asked == Asked::Compensating);
    wire::json(202, &Acknowledged { id: handle.id().to_string(), asked: what.to_owned(), new, compensating })
}

/// Adds the caller's name, which the run's log records.
fn named(handle: RunHandle, caller: &Caller) -> RunHandle {
    match caller.name() {
        Some(name) => handle.on_behalf_of(name),
        None => handle,
    }
}

/// Parameters of a cancel.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cancel {
    /// Reason, which is stored and shown.
    #[schemars(with = "Option<words::Reason>")]
    reason: Option<String>,
}

pub(crate) async fn cancel(caller: Caller, Of(handle): Of, Json(wanted): Json<Cancel>) -> Result<Raw> {
    let handle = named(handle, &caller);
    let call = handle.cancel();
    let call = match wanted.reason {
        Some(reason) => call.reason(reason),
        None => call,
    };
    asked(&handle, "cancel", call.await?)
}

pub(crate) async fn pause(caller: Caller, Of(handle): Of, _: Json<Nothing>) -> Result<Raw> {
    let handle = named(handle, &caller);
    asked(&handle, "pause", handle.pause().await?)
}

/// Parameters of a resume.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resume {
    /// Skip the check of the registered code and let workers decide whether their code matches.
    #[serde(default)]
    anyway: bool,
}

pub(crate) async fn resume(caller: Caller, Of(handle): Of, Json(wanted): Json<Resume>) -> Result<Raw> {
    let handle = named(handle, &caller);
    let call = handle.resume();
    let call = if wanted.anyway { call.anyway() } else { call };
    asked(&handle, "resume", call.await?)
}

/// Parameters of a restart.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Restart {
    /// Restart from this step; from the start if absent.
    #[schemars(with = "Option<words::Point>")]
    from: Option<String>,
}

pub(crate) async fn restart(caller: Caller, Of(handle): Of, Json(wanted): Json<Restart>) -> Result<Raw> {
    let handle = named(handle, &caller);
    let call = handle.restart();
    let call = match wanted.from {
        Some(step) => call.from(step),
        None => call,
    };
    asked(&handle, "restart", call.await?)
}

/// Parameters of a migration to changed code.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Migrate {
    /// Renamed steps: old name to new name.
    #[serde(default)]
    #[schemars(with = "words::Renamed")]
    rename: BTreeMap<String, String>,
    /// Steps to skip.
    #[serde(default)]
    #[schemars(with = "words::Skipped")]
    skip: Vec<String>,
    /// Hash of the definition; if absent, the one of the server's engine, or else the newest.
    #[schemars(with = "Option<words::Hash>")]
    to: Option<String>,
}

pub(crate) async fn migrate(caller: Caller, Of(handle): Of, Json(wanted): Json<Migrate>) -> Result<Raw> {
    let handle = named(handle, &caller);
    let renamed = wanted.rename.iter().fold(handle.migrate(), |call, (old, new)| call.rename(old, new));
    let call = wanted.skip.iter().fold(renamed, |call, step| call.skip(step));
    let call = match wanted.to {
        Some(hash) => call.to(hash),
        None => call,
    };
    asked(&handle, "migrate", call.await?)
}
