//! What people ask of a run: cancel, pause, resume, restart, migrate.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wigwag::{Asked, RunHandle};

use crate::auth::Caller;
use crate::extract::{Json, Of};
use crate::problem::Result;
use crate::wire::{self, Raw};
use crate::words;

/// Nothing more need be said.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// What became of asking: it is recorded, and done soon.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Acknowledged {
    id: String,
    /// `cancel`, `pause`, `resume`, `restart` or `migrate`.
    asked: String,
    /// The request is recorded. `false` if it had been made before, or has no effect (see `compensating`).
    new: bool,
    /// The run failed and is being compensated, so that a cancel has no effect; absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    compensating: bool,
}

pub(crate) fn asked(handle: &RunHandle, what: &str, asked: Asked) -> Result<Raw> {
    let (new, compensating) = (asked == Asked::Now, asked == Asked::Compensating);
    wire::json(202, &Acknowledged { id: handle.id().to_string(), asked: what.to_owned(), new, compensating })
}

/// The run, with the caller's name for its log.
fn named(handle: RunHandle, caller: &Caller) -> RunHandle {
    match caller.name() {
        Some(name) => handle.on_behalf_of(name),
        None => handle,
    }
}

/// How a run is cancelled.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cancel {
    /// Why; it is kept and shown.
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

/// How a run is resumed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resume {
    /// Leave it to the workers whether the code fits.
    #[serde(default)]
    anyway: bool,
}

pub(crate) async fn resume(caller: Caller, Of(handle): Of, Json(wanted): Json<Resume>) -> Result<Raw> {
    let handle = named(handle, &caller);
    let call = handle.resume();
    let call = if wanted.anyway { call.anyway() } else { call };
    asked(&handle, "resume", call.await?)
}

/// How a run is restarted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Restart {
    /// Back to this step; from the start if absent.
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

/// How a run is brought to changed code.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Migrate {
    /// Steps that have another name now: old to new.
    #[serde(default)]
    #[schemars(with = "words::Renamed")]
    rename: BTreeMap<String, String>,
    /// Steps that are passed over.
    #[serde(default)]
    #[schemars(with = "words::Skipped")]
    skip: Vec<String>,
    /// The hash of the definition; that of the server's engine or the newest if absent.
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
