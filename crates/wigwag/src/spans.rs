//! Spans of the engine for `tracing`: `turn`, `function`, `step`, `undo`, `signal`.
//!
//! Holds: spans contain ids, types, step paths and numbers, and no data of users' code. Without a subscriber, creating a
//! span costs one check of a flag.
//!
//! A turn's span is the child of its cause: of the request that started the run, if it was driven at once. A log
//! contains no trace ids, so that later turns, perhaps on other workers, start separate traces.

use tracing::field::Empty;
use tracing::{Instrument as _, Span, info_span};
use wigwag_core::{Path, Run, RunRef};

use crate::mailbox::BodyId;

/// The span of one worker's turn of a run.
pub(crate) fn turn(run: &Run) -> Span {
    info_span!("turn", otel.name = format!("turn {}", run.of), run.id = %run.run.id, "run.type" = %run.of)
}

/// The span of users' code in a separate task.
pub(crate) fn body(run: &RunRef, body: &BodyId, attempt: u32) -> Span {
    match body {
        BodyId::Root => info_span!("function", run.id = %run.id, otel.status_code = Empty),
        BodyId::Step(path, _) => step(run, path, attempt),
        BodyId::Undo(path, _) => {
            info_span!(
                "undo", otel.name = format!("undo {path}"), run.id = %run.id, point = %path, attempt,
                otel.status_code = Empty
            )
        }
    }
}

/// The span of one attempt of a step.
pub(crate) fn step(run: &RunRef, path: &Path, attempt: u32) -> Span {
    info_span!(
        "step", otel.name = format!("step {path}"), run.id = %run.id, point = %path, attempt, otel.status_code = Empty
    )
}

/// Code inside its span.
pub(crate) async fn watched<T, E>(span: Span, code: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let outcome = code.instrument(span.clone()).await;
    ended(&span, outcome.is_err());
    outcome
}

/// Records the outcome of a span's code. The error itself is in the log and may be confidential.
pub(crate) fn ended(span: &Span, failed: bool) {
    if failed {
        span.record("otel.status_code", "ERROR");
    }
}

/// A signal on its way.
pub(crate) fn signal(run: Option<&RunRef>, name: &str) -> Span {
    let name: String = name.chars().take(64).collect();
    info_span!("signal", signal.name = name, run.id = run.map(|run| run.id.as_str()), otel.status_code = Empty)
}
