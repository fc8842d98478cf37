//! Maintenance of the store: prune and sweep.
//!
//! Both can stop after any write without harm, so a request that times out may drop them.

use std::sync::{Mutex, PoisonError};

use axum::Extension;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wigwag::{PruneOptions, Status};

use crate::app::App;
use crate::audit::Subject;
use crate::auth::{Caller, Need};
use crate::extract::Json;
use crate::limits::WAIT_MAX;
use crate::problem::{Code, Problem, Result};
use crate::wire::{self, Raw, Span};

/// Parameters of a prune.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prune {
    /// Delete runs that ended longer ago than this.
    older_than: Span,
    /// Only runs with this status: `completed`, `failed` or `cancelled`.
    #[schemars(with = "Option<super::shape::Status>")]
    status: Option<Status>,
    /// Only report what would be deleted.
    #[serde(default)]
    dry_run: bool,
}

/// Result of a prune.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Pruned {
    #[schemars(with = "super::shape::Pruned")]
    #[serde(flatten)]
    pruned: wigwag::Pruned,
    /// Whether the request timed out before everything was deleted: repeat it for the rest.
    more: bool,
}

/// Counts runs; tasks too if the caller may see them.
pub(crate) async fn counts(State(app): State<App>, caller: Caller) -> Result<Raw> {
    let mut counts = app.client.counts().await?;
    if caller.may(Need::Tasks).is_err() {
        counts.types.retain(|of, _| !of.starts_with("task:"));
    }
    wire::json(200, &counts)
}

pub(crate) async fn prune(State(app): State<App>, Json(wanted): Json<Prune>) -> Result<(Extension<Subject>, Raw)> {
    let mut options = PruneOptions::older_than(wanted.older_than.0);
    options.status = wanted.status;
    options.dry_run = wanted.dry_run;
    let so_far = Mutex::new(wigwag::Pruned::default());
    let note = |pruned: &wigwag::Pruned| {
        so_far.lock().unwrap_or_else(PoisonError::into_inner).clone_from(pruned);
    };
    let done = app.poll(WAIT_MAX, app.client.prune_with(&options, note)).await?;
    let (pruned, more) = match done {
        Some(pruned) => (pruned?, false),
        None => (so_far.into_inner().unwrap_or_else(PoisonError::into_inner), true),
    };
    let wigwag::Pruned { runs, objects, .. } = pruned;
    let (span, dry_run) = (wanted.older_than.0, wanted.dry_run);
    let what = format!("older_than={span:?} dry_run={dry_run} runs={runs} objects={objects}");
    Ok((Extension(Subject { who: None, what }), wire::json(200, &Pruned { pruned, more })?))
}

/// Parameters of a sweep.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sweep {
    /// Only report what would be repaired.
    #[serde(default)]
    dry_run: bool,
}

pub(crate) async fn sweep(State(app): State<App>, Json(wanted): Json<Sweep>) -> Result<Raw> {
    let swept = app.poll(WAIT_MAX, app.client.sweep(wanted.dry_run)).await?;
    let late = || {
        let what = format!("the sweep was not completed within {WAIT_MAX:?}");
        Problem::new(Code::TimedOut, what).hint("leave it to the workers, or run `wigwag sweep` on the store itself")
    };
    wire::json(200, &swept.ok_or_else(late)??)
}
