//! How a run ends: its completion, or the compensation of its completed steps. The writes of the end are in `ended.rs`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use wigwag_core::turn::ending::{UndoMove, final_event, is_held_by_pause};
use wigwag_core::turn::phase::Phase;
use wigwag_core::turn::step::{Attempt, retry_at_after};
use wigwag_core::{
    Closing, CompensationCompleted, CompensationFailed, CompensationStarted, Ending, Fault, Path, PauseCause, Payload,
    PointStatus, RunCompleted, RunPaused, Time,
};

use super::{Body, Release, Turn};
use crate::context::StepInfo;
use crate::error::Result;
use crate::failure::Failure;
use crate::log::CommitError as Lost;
use crate::mailbox::{BodyId, Request, Returned};
use crate::scope::{self, Scope};
use crate::workflow::in_scope;

impl Turn {
    /// The function returned.
    pub(super) fn take_root(&mut self, outcome: Result<Returned, Failure>, scope: &Arc<Scope>) -> Result<(), Lost> {
        if self.phase.is_ending() {
            return Ok(());
        }
        let mismatches = scope.mismatches();
        if !mismatches.is_empty() {
            return self.pause_for_version(mismatches);
        }
        match outcome {
            Ok(Returned { result, .. }) => self.phase.complete(result),
            Err(failure) => self.phase.end(Ending::Failed(failure.fault().clone())),
        }
        Ok(())
    }

    /// Pauses the run because its code differs from the code that recorded it.
    pub(super) fn pause_for_version(&mut self, misfits: Vec<String>) -> Result<(), Lost> {
        self.abort_bodies();
        self.mail.held.clear();
        self.code.root = None;
        let (expected, found) = (&self.log.run.definition_hash, &self.workflow.definition.hash);
        let error = Some(Fault::version_mismatch(expected, found, misfits));
        let paused =
            RunPaused { why: PauseCause::Version, error, reason: None, control: None, refused: None, by: None };
        self.log.stage(paused, self.now)
    }

    /// Follows a cancel request: running steps are notified, and dropped after the grace time.
    pub(super) fn follow_cancel(&mut self) {
        let Some(cancel) = &self.log.run.cancel else { return };
        let boot = self.inner.clock.boot();
        let grace_ends = boot + self.inner.settings.grace;
        if self.log.run.chain.is_none() && self.phase.cancel(cancel.reason.clone(), grace_ends) {
            self.code.cancel.send_replace(true);
        }
        if self.phase.ends_grace(boot) {
            let steps: Vec<BodyId> =
                self.code.bodies.keys().filter(|id| !matches!(id, BodyId::Undo(..))).cloned().collect();
            for id in steps {
                self.drop_body(&id);
            }
        }
    }

    fn drop_body(&mut self, id: &BodyId) {
        if let Some(body) = self.code.bodies.remove(id) {
            body.task.abort();
        }
        self.steps.slots.retain(|_, open| open.body != *id);
        self.forget_offers();
        self.mail.held.retain(|request| !matches!(request, Request::Open { body, .. } if body == id));
    }

    /// Stages the end if the run is done, or the next compensation.
    pub(super) async fn follow_end(&mut self) -> Result<(), Lost> {
        if self.log.run.status.is_final() || self.log.is_full() || self.phase.is_releasing() {
            return Ok(());
        }
        if is_held_by_pause(&self.log.run) {
            // A paused run does not end. A function that returned during the pause is replayed after the resume.
            if self.phase.take_result().is_some() {
                self.code.root = None;
            }
            return Ok(());
        }
        if self.phase.is_ending() {
            return self.follow_undo().await;
        }
        if let Some(result) = self.phase.take_result() {
            if !self.close_waits(Closing::Finished)? {
                self.phase.complete(result);
                return Ok(());
            }
            let result = self.log.data(None, &result);
            return self.log.stage(RunCompleted { result }, self.now);
        }
        let done = self.steps.frontier.as_ref().is_some_and(wigwag_core::Frontier::is_done);
        if done && self.code.bodies.is_empty() {
            if !self.close_waits(Closing::Finished)? {
                return Ok(());
            }
            return match self.graph_result().await? {
                Ok(result) => {
                    let result = self.log.data(None, &result);
                    self.log.stage(RunCompleted { result }, self.now)
                }
                Err(fault) => {
                    self.phase.end(Ending::Failed(fault));
                    self.follow_undo().await
                }
            };
        }
        Ok(())
    }

    /// Waits for running steps, then compensates the completed steps one by one, then ends the run.
    async fn follow_undo(&mut self) -> Result<(), Lost> {
        let cancelling = self.phase.is_cancelling();
        if self.code.bodies.contains_key(&BodyId::Root) {
            let steps_run = self.steps.slots.values().any(|open| open.running.is_some());
            let waits = self.code.root.as_ref().is_some_and(|root| root.link.is_idle())
                && !steps_run
                && self.mail.queue.is_empty();
            // A failed function has returned. A cancelled function, or a function that is replayed only to register its
            // compensations, is dropped as soon as it waits.
            if waits && !self.mailbox_has_requests() && (cancelling || self.log.run.chain.is_some()) {
                self.drop_body(&BodyId::Root);
            }
        }
        // Steps that only wait for something are not waited for.
        let waiting: Vec<BodyId> =
            self.code.bodies.iter().filter(|(id, body)| self.is_parkable(id, body)).map(|(id, _)| id.clone()).collect();
        for id in waiting.iter().filter(|id| **id != BodyId::Root) {
            self.drop_body(id);
        }
        // Steps that start with the staged entry count as running: a wait may time out in the same entry.
        let begins = self.plan.releases.iter().any(|release| matches!(release, Release::Step(..)));
        let running = self.code.bodies.keys().any(|id| !matches!(id, BodyId::Undo(..)));
        if running || begins {
            return Ok(());
        }
        if !self.close_waits(if cancelling { Closing::Cancelled } else { Closing::Finished })? {
            return Ok(());
        }
        let Phase::Ending(closure) = &mut self.phase else { return Ok(()) };
        let order = closure.undo.take().unwrap_or_else(|| self.log.run.undo_order());
        let next = UndoMove::of(&self.log.run, &order, self.now, |path| self.undoes(path));
        if let Phase::Ending(closure) = &mut self.phase {
            closure.undo = Some(order);
        }
        match next {
            UndoMove::End => self.stage_end(),
            UndoMove::Start { step, attempt } => self.stage_undo(step, attempt),
            UndoMove::Rerun { step, attempt } if self.log.is_staged() => {
                self.plan.releases.push(Release::Undo(step, attempt));
                Ok(())
            }
            UndoMove::Rerun { step, attempt } => self.spawn_undo(&step, attempt).await,
            UndoMove::Wait => Ok(()),
        }
    }

    fn undoes(&self, path: &Path) -> bool {
        let body = self.code.bodies.keys().any(|id| matches!(id, BodyId::Undo(of, _) if of == path));
        body || self.plan.releases.iter().any(|release| matches!(release, Release::Undo(of, _) if of == path))
    }

    fn stage_undo(&mut self, point: Path, attempt: u32) -> Result<(), Lost> {
        let cause = self.phase.ending().filter(|_| self.log.run.chain.is_none()).cloned();
        self.log.stage(CompensationStarted { point: point.clone(), attempt, cause }, self.now)?;
        self.plan.releases.push(Release::Undo(point, attempt));
        Ok(())
    }

    fn stage_end(&mut self) -> Result<(), Lost> {
        match self.phase.ending().cloned() {
            Some(ending) => self.log.stage(final_event(ending), self.now),
            None => Ok(()),
        }
    }

    pub(super) async fn spawn_undo(&mut self, path: &Path, attempt: u32) -> Result<(), Lost> {
        let result = match self.log.run.points.get(path) {
            Some(point) if point.status == PointStatus::Completed => point.result.clone(),
            _ => None,
        };
        let result = match result {
            Some(data) => Some(self.inner.payload(self.run_ref(), Some(path), &data).await?),
            None => None,
        };
        self.code.spawned += 1;
        let id = BodyId::Undo(path.clone(), self.code.spawned);
        let made = self.made(id.clone(), attempt, std::collections::BTreeMap::new());
        let scope = Scope::new(Arc::clone(&self.inner), made);
        let graph = self.workflow.node_code(path).and_then(|code| code.undo.clone());
        let function = self.code.root.as_ref().and_then(|root| root.undo(path));
        let running = match (graph, function) {
            (Some(code), _) => {
                let ctx = in_scope(&scope);
                Box::pin(async move { code.call(ctx, result).await }) as BoxFuture<'static, _>
            }
            (None, Some(code)) => {
                let info = StepInfo::new(&scope, path, attempt);
                Box::pin(async move { code(result, info).await })
            }
            (None, None) => {
                let missing = crate::permanent("the code has nothing that undoes it");
                Box::pin(std::future::ready(Err(missing)))
            }
        };
        let code = Box::pin(async move { running.await.map(|()| Payload::null()) });
        let task = scope::spawn(&scope, code);
        let timeout = self.undo_policy(path).1;
        let attempt = Some(Attempt::new(attempt, self.now, timeout));
        self.code.bodies.insert(id, Body { scope, task, attempt });
        Ok(())
    }

    fn undo_policy(&self, path: &Path) -> (wigwag_core::Retry, Duration) {
        let node = self.workflow.node(path, &self.log.run);
        node.map_or_else(
            || (wigwag_core::Retry::default(), wigwag_core::STEP_TIMEOUT),
            |node| (node.retry, node.timeout),
        )
    }

    /// A step was undone, or could not be.
    pub(super) fn take_undone(
        &mut self,
        path: &Path,
        attempt: u32,
        outcome: Result<(), Failure>,
        at: Time,
    ) -> Result<(), Lost> {
        let Err(failure) = outcome else {
            return self.log.stage(CompensationCompleted { point: path.clone() }, self.now);
        };
        let (retry, _) = self.undo_policy(path);
        let retry_at = retry_at_after(failure.outcome(), attempt, &retry, at, fastrand::f64());
        let error = failure.fault().clone();
        self.log.stage(CompensationFailed { point: path.clone(), attempt, error, retry_at }, self.now)
    }

    /// Returns the result of the last step; of several last steps an object by their names. Together they may be larger than
    /// a payload may be: then the run fails.
    async fn graph_result(&self) -> Result<Result<Payload, Fault>, Lost> {
        let steps = &self.workflow.definition.steps;
        let lasts: Vec<&Path> = steps
            .iter()
            .map(|node| &node.name)
            .filter(|name| !steps.iter().any(|node| node.after.contains(name)))
            .collect();
        let mut results = Vec::new();
        for name in &lasts {
            let data = self.log.run.points.get(*name).and_then(|point| point.result.clone());
            results.push(match data {
                Some(data) => self.payload(Some(name), &data).await?,
                None => Payload::null(),
            });
        }
        if let [only] = &results[..] {
            return Ok(Ok(only.clone()));
        }
        let named: std::collections::BTreeMap<&str, &Payload> =
            lasts.iter().map(|name| name.as_str()).zip(&results).collect();
        Ok(Payload::of(&named).map_err(|refusal| {
            let what = format!("the results of the last {} steps cannot be combined: {refusal}", lasts.len());
            Fault::new("TooLarge", what)
        }))
    }

    pub(super) fn mailbox_has_requests(&self) -> bool {
        self.mail.mailbox.has_requests()
    }
}
