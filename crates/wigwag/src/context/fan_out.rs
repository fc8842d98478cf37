//! Fan-outs: tasks that a run submits for many items, and their joined outcomes.

use std::future::IntoFuture;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use wigwag_core::{Fault, Path, Payload, PointKind, Refusal, RunId, TypeName};

use super::Ctx;
use crate::client::TaskOptions;
use crate::failure::{Failure, permanent};
use crate::mailbox::Spec;

/// Tasks about to be submitted and awaited.
#[derive(Debug)]
#[must_use = "tasks are submitted when this is awaited"]
pub struct FanOut {
    pub(super) ctx: Ctx,
    pub(super) path: Result<Path, Refusal>,
    pub(super) of: Result<TypeName, Refusal>,
    pub(super) inputs: Result<Vec<Payload>, Refusal>,
    pub(super) options: TaskOptions,
    pub(super) timeout: Option<Duration>,
}

impl FanOut {
    /// Sets the options of the tasks: queue, retries, expiry.
    pub fn options(self, options: TaskOptions) -> Self {
        Self { options, ..self }
    }

    /// Sets the timeout of the tasks; the result then lists the tasks that have ended.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }
}

impl IntoFuture for FanOut {
    type Output = Result<Joined, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let Self { ctx, path, of, inputs, options, timeout } = self;
            let (path, spec) = (path?, Spec::FanOut { of: of?, inputs: inputs?, options, timeout });
            Ok(ctx.point(&path, PointKind::Child, spec).await?.read()?)
        }
        .boxed()
    }
}

/// Outcomes of the tasks that a run waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Joined {
    /// Outcomes of the tasks, in their order.
    pub tasks: Vec<TaskEnd>,
}

/// Outcome of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskEnd {
    /// The task completed with this result.
    Completed(Payload),
    /// The task failed or was cancelled.
    Failed(Fault),
    /// The task did not finish within the timeout.
    Missing(RunId),
}

impl Joined {
    /// Number of tasks that completed.
    #[must_use]
    pub fn completed(&self) -> usize {
        self.tasks.iter().filter(|task| matches!(task, TaskEnd::Completed(_))).count()
    }

    /// Returns all results in order, or the first failure.
    pub fn results<T: DeserializeOwned>(&self) -> Result<Vec<T>, Failure> {
        let read = |task: &TaskEnd| match task {
            TaskEnd::Completed(payload) => Ok(payload.read()?),
            TaskEnd::Failed(fault) => Err(Failure::recorded(fault.clone())),
            TaskEnd::Missing(id) => Err(permanent(format!("task `{id}` did not finish in time"))),
        };
        self.tasks.iter().map(read).collect()
    }
}
