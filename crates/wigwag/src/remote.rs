//! A step of a graph that runs as a task, for a run that another worker drives.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use wigwag_core::{Children, Path, Payload, PointStatus, Run, RunRef};

use crate::context::StepCtx;
use crate::engine_core::lock;
use crate::failure::{Failure, permanent};
use crate::log;
use crate::turn::task_of_step;
use crate::workflow::{Workflow, in_scope};

/// Input of such a task.
#[derive(Debug, Deserialize)]
struct Wanted {
    run: RunRef,
}

/// Result of such a task.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) result: Payload,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) patch: Option<Map<String, Value>>,
}

/// Runs the step with the context that it would have in its run.
pub(crate) async fn run_step(workflow: Arc<Workflow>, step: Path, ctx: StepCtx<Value>) -> Result<Payload, Failure> {
    let task = Arc::clone(&ctx.scope);
    let wanted: Wanted = task.input.read()?;
    let loaded = task.tally.counts(log::read_whole(&*task.inner.store, &wanted.run)).await?;
    let run = loaded.ok_or_else(|| crate::retryable(format!("run not found: `{}`", wanted.run)))?.run;
    if let Some(reason) = rejects(&run, &step, &task.run) {
        return Err(permanent(format!("`{}` does not wait for this task: {reason}", run.run)));
    }
    let code = workflow.node_code(&step).and_then(|code| code.run.clone());
    let code = code.ok_or_else(|| permanent(format!("this worker has no code for `{step}`")))?;
    let input = task.tally.counts(task.inner.payload(&run.run, None, &run.input)).await?;
    let scope = task.standing_in(&run, &step, input);
    let before = lock(&scope.data).clone();
    let result = code.call(in_scope(&scope)).await?;
    let done = Done { result, patch: scope.patch(&before) };
    Payload::of(&done).map_err(permanent)
}

/// Returns why a run does not wait for this task, if it does not.
///
/// The task is submitted before the run records it. If the worker dies in between, the next one may have the step's code
/// and run it: then the task must not run it again.
fn rejects(run: &Run, step: &Path, task: &RunRef) -> Option<&'static str> {
    let is_attempt = |attempt| task_of_step(run, step, attempt) == task.id;
    match run.points.get(step) {
        _ if run.status.is_final() => Some("it has ended"),
        // The run is about to record the task.
        None if is_attempt(1) => None,
        Some(point) if point.status == PointStatus::Retrying => {
            let next = is_attempt(1) || is_attempt(point.attempt.saturating_add(1));
            (!next).then_some("another attempt of the step follows")
        }
        None => Some("it was restarted"),
        Some(point) if point.status.is_settled() => Some("the step has ended"),
        Some(point) => match &point.children {
            Some(Children::One(other)) if other == task => None,
            _ => Some("the step runs elsewhere"),
        },
    }
}
