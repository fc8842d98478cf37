//! Starts the steps of a graph when their dependencies have ended.

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use wigwag_core::turn::step::Begin;
use wigwag_core::{
    Key, Node, NodeKind, Parent, Path, Payload, Run, RunId, RunRef, StepSkipped, StepStarted, Time, TypeName, limits,
};

use super::{Release, Turn};
use crate::client::TaskOptions;
use crate::error::{Error, ErrorKind};
use crate::failure::{Failure, permanent};
use crate::log::CommitError as Lost;
use crate::mailbox::BodyId;
use crate::panics;
use crate::scope::Caught;
use crate::workflow::{data_payload, default_queue};

/// How long a task of a step may wait for a worker unless the graph says otherwise.
const TAKEN_WITHIN: std::time::Duration = std::time::Duration::from_secs(24 * 3_600);

impl Turn {
    /// Stages the beginning of all steps that are ready.
    pub(super) async fn advance(&mut self) -> Result<(), Lost> {
        if self.steps.frontier.is_none() || self.is_held_up() {
            return Ok(());
        }
        // Skipping one step may make others ready.
        loop {
            let Some(frontier) = &self.steps.frontier else { return Ok(()) };
            let ready: Vec<Path> = frontier.ready(&self.workflow.definition).map(|node| node.name.clone()).collect();
            let mut passed = false;
            for path in ready {
                if self.log.is_full() || self.is_held_up() {
                    return Ok(());
                }
                passed |= self.enter(&path).await?;
            }
            if !passed {
                return Ok(());
            }
        }
    }

    /// Starts or continues a step; returns whether it was skipped.
    async fn enter(&mut self, path: &Path) -> Result<bool, Lost> {
        let Some(node) = self.workflow.node(path, &self.log.run) else { return Ok(false) };
        let is_dispatched = self.workflow.is_dispatched(&node);
        match Begin::of(self.log.run.points.get(path), self.now, self.runs(path), is_dispatched) {
            Begin::New => return self.enter_new(&node).await,
            Begin::Start { attempt } => self.start_node(&node, attempt).await?,
            Begin::Rerun { attempt } => self.release_step(path, attempt),
            Begin::Lost { attempt, workers } => self.fail_step(path, attempt, &Failure::lost(workers), self.now)?,
            Begin::RetryAt(at) => _ = self.steps.timers.insert((at, path.clone())),
            Begin::Wait | Begin::Settled => {}
        }
        Ok(false)
    }

    fn runs(&self, path: &Path) -> bool {
        let body = self.code.bodies.keys().any(|id| matches!(id, BodyId::Step(of, _) if of == path));
        body || self.plan.releases.iter().any(|release| matches!(release, Release::Step(of, _) if of == path))
    }

    async fn enter_new(&mut self, node: &Node) -> Result<bool, Lost> {
        let max = limits::current().points_max;
        if self.log.run.points.len() >= max {
            let failure = permanent(format!("a run has at most {max} points")).at(&node.name);
            self.phase.end(wigwag_core::Ending::Failed(failure.fault().clone()));
            return Ok(false);
        }
        if let Some(delay) = node.delay {
            match self.log.run.points.get(&node.name.delay()) {
                None => {
                    self.start_sleep(&node.name.delay(), self.now.after(delay), true)?;
                    return Ok(false);
                }
                Some(point) if !point.status.is_settled() => return Ok(false),
                Some(_) => {}
            }
        }
        if let Some(expires) = self.log.run.task.as_ref().and_then(|task| task.expires_at)
            && expires < self.now
        {
            self.stage_start(node, 1, None, None)?;
            let failure =
                Failure::recorded(wigwag_core::Fault::new("Expired", format!("no worker took the task by {expires}")));
            self.fail_step(&node.name, 1, &failure, self.now)?;
            return Ok(false);
        }
        let asks = self.workflow.node_code(&node.name).is_some_and(|code| code.when.is_some());
        self.own_before_calling(asks).await?;
        match self.condition(node).await {
            Ok(true) if node.kind == NodeKind::Signal => self.enter_signal(node).map(|()| false),
            Ok(true) => self.start_node(node, 1).await.map(|()| false),
            Ok(false) => {
                self.log.stage(StepSkipped { point: node.name.clone() }, self.now)?;
                if let Some(frontier) = &mut self.steps.frontier {
                    frontier.passed(&node.name);
                }
                Ok(true)
            }
            Err(failure) => {
                self.stage_start(node, 1, None, None)?;
                self.fail_step(&node.name, 1, &failure, self.now)?;
                Ok(false)
            }
        }
    }

    /// Calls the condition of a step; a panic in it is a failure without retry.
    async fn condition(&self, node: &Node) -> Result<bool, Failure> {
        let Some(when) = self.workflow.node_code(&node.name).and_then(|code| code.when.clone()) else {
            return Ok(true);
        };
        let data = data_payload(&self.data(), &self.code.input);
        let asked = match panics::catch(|| when(data)) {
            Ok(asked) => Caught(asked).await,
            Err(panic) => Err(Failure::panic(&*panic)),
        };
        asked.map_err(|failure| Failure::recorded(failure.fault().clone()))
    }

    async fn start_node(&mut self, node: &Node, attempt: u32) -> Result<(), Lost> {
        if self.workflow.is_dispatched(node) {
            return self.dispatch(node, attempt).await;
        }
        self.stage_start(node, attempt, None, None)?;
        self.release_step(&node.name, attempt);
        Ok(())
    }

    fn stage_start(
        &mut self,
        node: &Node,
        attempt: u32,
        task: Option<RunId>,
        deadline: Option<Time>,
    ) -> Result<(), Lost> {
        let point = node.name.clone();
        let compensate = node.compensate;
        self.log.stage(StepStarted { point, attempt, compensate, task, deadline }, self.now)
    }

    fn release_step(&mut self, path: &Path, attempt: u32) {
        if self.log.is_staged() {
            self.plan.releases.push(Release::Step(path.clone(), attempt));
        } else {
            self.spawn_step(path, attempt);
        }
    }

    /// Hands a step to workers that serve its queue. The task is made first: its id follows from the run and the
    /// step, so that after a crash the same one is found.
    async fn dispatch(&mut self, node: &Node, attempt: u32) -> Result<(), Lost> {
        // The worker that takes the task reads this run: all staged events must be durable before.
        self.commit().await?;
        let of = TypeName::of_step(&self.log.run.of, &node.name)?;
        let id = task_of_step(&self.log.run, &node.name, attempt);
        let deadline = self.now.after(TAKEN_WITHIN);
        let options = TaskOptions {
            queue: Some(node.queue.clone().unwrap_or_else(default_queue)),
            retry: Some(node.retry.clone()),
            timeout: Some(node.timeout),
            expires_at: Some(deadline),
            ..TaskOptions::default()
        };
        let parent = Parent { run: self.run_ref().clone(), point: node.name.clone() };
        let input = Payload::of(&serde_json::json!({"run": self.run_ref(), "point": node.name}))?;
        let submitted = crate::client::submit_child(&self.inner, id.clone(), of, input, options, parent).await;
        if let Err(error) = submitted
            && !self.has_reported(&id, &error).await?
        {
            return Err(error.into());
        }
        // The task fails by itself if no worker takes it in time; a little later the run checks for that.
        let tries = node.timeout.saturating_mul(node.retry.attempts_max());
        let pauses = node.retry.cap.saturating_mul(node.retry.retries);
        let look = deadline.after(tries).after(pauses).after(std::time::Duration::from_secs(60));
        self.stage_start(node, attempt, Some(id), Some(look))?;
        self.steps.timers.insert((look, node.name.clone()));
        _ = self.handle.poke(None);
        Ok(())
    }

    /// Whether a child that cannot be started again has ended and reported: a worker started it and died before it recorded
    /// that, and retention has removed it since. Its report is what the run waits for.
    pub(super) async fn has_reported(&self, child: &RunId, error: &Error) -> Result<bool, Lost> {
        let key = Key::Child { run: self.run_ref().clone(), child: child.clone() }.to_string();
        Ok(error.kind() == ErrorKind::Gone && self.inner.store.get(&key).await?.is_some())
    }

    pub(super) fn fail_overdue_task(&mut self, path: &Path, attempt: u32) -> Result<(), Lost> {
        let queue =
            self.workflow.definition.step(path).and_then(|node| node.queue.clone()).unwrap_or_else(default_queue);
        let failure = permanent(format!("no worker of queue `{queue}` took it")).at(path);
        self.fail_step(path, attempt, &failure, self.now)
    }

    /// Submits the tasks of a fan-out; their ids follow from the point, so that after a crash the same ones are found.
    pub(super) async fn start_tasks(
        &mut self,
        path: &Path,
        of: TypeName,
        inputs: Vec<Payload>,
        options: TaskOptions,
    ) -> Result<Result<(), Error>, Lost> {
        for (slice, inputs) in inputs.chunks(512).enumerate() {
            if self.inner.clock.boot() >= self.lease.renew_at {
                self.stage_renewal().await?;
                self.commit().await?;
            }
            let mut numbered = Vec::with_capacity(inputs.len());
            for (place, input) in inputs.iter().enumerate() {
                let id = numbered_child(self.run_ref(), path, slice * 512 + place, self.log.run.restarts);
                let parent = Parent { run: self.run_ref().clone(), point: path.clone() };
                let (of, options) = (of.clone(), options.clone());
                numbered.push(crate::client::submit_child(&self.inner, id, of, input.clone(), options, parent));
            }
            let submitted: Result<Vec<()>, Error> = stream::iter(numbered).buffer_unordered(64).try_collect().await;
            if let Err(error) = submitted {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }
}

/// Returns the id of the task that runs an attempt of a dispatched step.
pub(crate) fn task_of_step(run: &Run, step: &Path, attempt: u32) -> RunId {
    match attempt {
        1 => run.id().child(step, run.restarts),
        // A task that failed has ended; another attempt is another task.
        _ => {
            let (restarts, attempt) = (run.restarts.to_string(), attempt.to_string());
            RunId::hashed(&[run.id().as_str(), step.as_str(), &restarts, &attempt])
        }
    }
}

/// The id of the nth task of a fan-out.
pub(super) fn numbered_child(run: &RunRef, path: &Path, number: usize, restarts: u32) -> RunId {
    let below = path.join(&number.to_string()).unwrap_or_else(|_| path.clone());
    run.id.child(&below, restarts)
}
