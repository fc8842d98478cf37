//! Upkeep of the store: removing what is over, and looking for what was lost.
//!
//! Both are made of writes that do no harm when they stop half-way, so that a request whose time is over may drop them.

use std::sync::{Mutex, PoisonError};

use axum::Extension;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wigwag::{PruneOptions, Status};

use crate::app::App;
use crate::audit::Subject;
use crate::extract::Json;
use crate::limits::WAIT_MAX;
use crate::problem::{Code, Problem, Result};
use crate::wire::{self, Raw, Span};

/// What is removed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prune {
    /// Those that ended longer ago than this.
    older_than: Span,
    /// Only those that ended so: `completed`, `failed` or `cancelled`.
    #[schemars(with = "Option<super::shape::Status>")]
    status: Option<Status>,
    /// Only say what would be removed.
    #[serde(default)]
    dry_run: bool,
}

/// What was removed.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Pruned {
    #[schemars(with = "super::shape::Pruned")]
    #[serde(flatten)]
    pruned: wigwag::Pruned,
    /// The time was over before all was done: ask again for the rest.
    more: bool,
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

/// How it is looked for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sweep {
    /// Only say what would be repaired.
    #[serde(default)]
    dry_run: bool,
}

pub(crate) async fn sweep(State(app): State<App>, Json(wanted): Json<Sweep>) -> Result<Raw> {
    let swept = app.poll(WAIT_MAX, app.client.sweep(wanted.dry_run)).await?;
    let late = || {
        let what = format!("the pass over all unfinished runs was not done within {WAIT_MAX:?}");
        Problem::new(Code::TimedOut, what).hint("leave it to the workers, or run `wigwag sweep` on the store itself")
    };
    wire::json(200, &swept.ok_or_else(late)??)
}
