//! What the engine does, as spans of `tracing`: `turn`, `function`, `step`, `undo`, `signal`.
//!
//! Holds: ids, types, points and numbers stand in them, and nothing of what users' code gets or gives. Where nobody
//! collects spans, making one is a look at a flag.
//!
//! A turn's span is the child of what started it: of the request that started the run, if it was driven at once. A log
//! has no place for a trace, so that the turns that follow, perhaps elsewhere and much later, begin traces of their own.

use tracing::field::Empty;
use tracing::{Instrument as _, Span, info_span};
use wigwag_core::{Path, Run, RunRef};

use crate::mailbox::BodyId;

/// One worker's claim on a run.
pub(crate) fn turn(run: &Run) -> Span {
    info_span!("turn", otel.name = format!("turn {}", run.of), run.id = %run.run.id, "run.type" = %run.of)
}

/// Users' code that runs in a task of its own.
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

/// One try of a step.
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

/// What a span's code came to. Why it failed stands in the log, and may be nobody's business here.
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
