//! Turns requests of users' code and elapsed timers into events.

use std::sync::Arc;
use std::time::Duration;

use wigwag_core::turn::step::{AfterFailure, Attempt, Begin, FailedAttempt, Owner, Policy};
use wigwag_core::{
    ChildStarted, Children, Closing, Data, Ending, Fault, Parent, Path, PauseCause, Payload, PointDropped, PointKind,
    RunPaused, RunRef, SleepFired, SleepStarted, StepCompleted, StepStarted, Time, limits,
};

use super::inbox::is_open_wait;
use super::{OpenSlot, Release, Turn, step_policy};
use crate::error::Error;
use crate::failure::{Failure, permanent};
use crate::log::CommitError as Lost;
use crate::mailbox::{BodyId, Reply, Request, Returned, Slot, Spec};

/// A deliberate bug.
fn is_early(at: Time, now: Time) -> bool {
    use wigwag_core::deliberate_bug;
    deliberate_bug!(SleepsEndEarly) && at <= now.after(Duration::from_secs(1))
}

impl Turn {
    pub(super) async fn take_mail(&mut self) -> Result<(), Lost> {
        self.mail.queue.extend(self.mail.mailbox.take());
        while !self.log.is_full()
            && let Some(request) = self.mail.queue.pop_front()
        {
            match request {
                Request::Open { body, path, spec, slot } => self.take_open(body, path, spec, slot).await?,
                Request::Outcome { path, attempt, outcome, at } => self.take_outcome(&path, attempt, outcome, at)?,
                Request::Dropped { path, slot } => self.take_dropped(&path, &slot)?,
                Request::Heard { path, slot } => self.take_heard(&path, &slot).await?,
                Request::Abandoned { body, path } => {
                    if self.code.bodies.contains_key(&body) && !self.phase.is_ending() {
                        self.close_wait(&path, Closing::Lost)?;
                    }
                }
                Request::Trouble(error) => return Err(Lost::Store(error)),
                Request::Returned { body, outcome, at } => self.take_returned(&body, outcome, at)?,
            }
        }
        Ok(())
    }

    /// Records that the code dropped a step before its end: a replay must not see the outcome either.
    fn take_dropped(&mut self, path: &Path, slot: &Arc<Slot>) -> Result<(), Lost> {
        if !self.steps.slots.get(path).is_some_and(|open| Arc::ptr_eq(&open.slot, slot)) {
            return Ok(());
        }
        self.steps.slots.remove(path);
        self.offers.remove(path);
        self.mail
            .held
            .retain(|request| !matches!(request, Request::Open { slot: held, .. } if Arc::ptr_eq(held, slot)));
        let open = self.log.run.points.get(path).is_some_and(|point| !point.status.is_settled());
        if is_open_wait(&self.log.run, path) && !self.phase.is_ending() {
            return self.close_wait(path, Closing::Lost);
        }
        match open && !self.phase.is_ending() {
            true => self.log.stage(PointDropped { point: path.clone(), at: self.now }, self.now),
            false => Ok(()),
        }
    }

    async fn take_open(&mut self, body: BodyId, path: Path, spec: Spec, slot: Arc<Slot>) -> Result<(), Lost> {
        if !self.code.bodies.contains_key(&body) {
            return Ok(());
        }
        if self.is_held_up() {
            let resumed = self.log.run.points.get(&path).is_some_and(|point| !point.status.is_settled());
            let waits = !self.phase.is_ending() && resumed && !matches!(spec, Spec::Step { .. });
            if !waits {
                self.steps.slots.insert(
                    path.clone(),
                    OpenSlot { slot: Arc::clone(&slot), body: body.clone(), spec: spec.clone(), running: None },
                );
                self.mail.held.push(Request::Open { body, path, spec, slot });
                return Ok(());
            }
        }
        if self.log.run.points.len() >= limits::current().points_max && !self.log.run.points.contains_key(&path) {
            let failure = permanent(format!("a run has at most {} points", limits::current().points_max)).at(&path);
            _ = slot.reply(Reply::Failed { failure, at: self.now });
            return Ok(());
        }
        let mut open = OpenSlot { slot, body, spec, running: None };
        let begin = match open.spec {
            Spec::Step { .. } => Begin::of(self.log.run.points.get(&path), self.now, false, false),
            _ => match self.log.run.points.get(&path) {
                None => Begin::New,
                Some(point) if point.status.is_settled() => Begin::Settled,
                Some(_) => Begin::Wait,
            },
        };
        match begin {
            Begin::New => self.open_new(&path, &mut open).await?,
            Begin::Start { attempt } => self.start_attempt(&path, attempt, &mut open)?,
            Begin::Rerun { attempt } => self.run_step(attempt, &mut open),
            Begin::Lost { attempt, workers } => {
                self.steps.slots.insert(path.clone(), open);
                return self.fail_step(&path, attempt, &Failure::lost(workers), self.now);
            }
            Begin::Settled => return self.answer_settled(&path, &open).await,
            Begin::RetryAt(_) | Begin::Wait => {}
        }
        // A step that was answered at once needs no slot.
        if self.log.run.points.get(&path).is_some_and(|point| !point.status.is_settled()) {
            self.steps.slots.insert(path, open);
        }
        Ok(())
    }

    /// The record answers a point that was settled after the code that asks for it was started.
    async fn answer_settled(&mut self, path: &Path, open: &OpenSlot) -> Result<(), Lost> {
        let Some(point) = self.log.run.points.get(path).cloned() else { return Ok(()) };
        let at = point.ended_at.unwrap_or(self.now);
        let reply = match (&point.result, &point.error) {
            (Some(data), _) => Reply::Closed { result: self.payload(Some(path), data).await?, at },
            (None, Some(fault)) => Reply::Failed { failure: Failure::recorded(fault.clone()), at },
            (None, None) => Reply::Closed { result: Payload::null(), at },
        };
        _ = open.slot.reply(reply);
        Ok(())
    }

    async fn open_new(&mut self, path: &Path, open: &mut OpenSlot) -> Result<(), Lost> {
        match open.spec.clone() {
            Spec::Step { .. } => self.start_attempt(path, 1, open),
            Spec::Wait { .. } => self.start_wait(path, open),
            Spec::SleepFor(span) => self.start_sleep(path, self.now.after(span.min(limits::SPAN_MAX)), true),
            Spec::SleepUntil(moment) => self.start_sleep(path, moment, false),
            Spec::Mark => {
                let result = Data::Inline(Payload::null());
                let done = StepCompleted { point: path.clone(), at: self.now, result, patch: None, mark: true };
                self.log.stage(done, self.now)?;
                let reply = Reply::Closed { result: Payload::null(), at: self.now };
                self.plan.releases.push(Release::Reply(Arc::clone(&open.slot), reply));
                Ok(())
            }
            Spec::Child { of, input } => {
                // The child may read this run, so its entries must be durable before the child exists.
                self.commit().await?;
                let child = RunRef::workflow(self.log.run.id().child(path, self.log.run.restarts));
                let parent = Parent { run: self.run_ref().clone(), point: path.clone() };
                match crate::client::start_child(&self.inner, child.clone(), of, input, parent).await {
                    Ok(()) => self.stage_children(path, Children::One(child), None),
                    Err(error) if self.has_reported(&child.id, &error).await? => {
                        self.stage_children(path, Children::One(child), None)
                    }
                    Err(error) => self.refuse_child(path, open, &error),
                }
            }
            Spec::Tasks { ids, .. }
                if ids.iter().map(|id| id.as_str().len() + 3).sum::<usize>() > limits::current().task_ids_bytes_max =>
            {
                let failure = permanent("too many tasks for one wait; use `fan_out`, or wait for some at a time");
                _ = open.slot.reply(Reply::Failed { failure: failure.at(path), at: self.now });
                Ok(())
            }
            Spec::Tasks { ids, timeout } => {
                let deadline = timeout.map(|span| self.now.after(span.min(limits::SPAN_MAX)));
                self.stage_children(path, Children::Tasks(ids), deadline)
            }
            Spec::FanOut { of, inputs, options, timeout } => {
                let deadline = timeout.map(|span| self.now.after(span.min(limits::SPAN_MAX)));
                let count = u32::try_from(inputs.len()).unwrap_or(u32::MAX);
                self.commit().await?;
                match self.start_tasks(path, of, inputs, options).await? {
                    Ok(()) => {
                        let restarts = self.log.run.restarts;
                        self.stage_children(path, Children::Numbered { count, restarts }, deadline)
                    }
                    Err(error) => self.refuse_child(path, open, &error),
                }
            }
        }
    }

    /// Fails a step whose child cannot be started; an error of the store ends the turn instead.
    fn refuse_child(&mut self, path: &Path, open: &OpenSlot, error: &Error) -> Result<(), Lost> {
        use crate::ErrorKind;
        if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Damaged | ErrorKind::Stopped) {
            return Err(Lost::Store(error.clone()));
        }
        let failure = permanent(error).at(path);
        _ = open.slot.reply(Reply::Failed { failure, at: self.now });
        Ok(())
    }

    fn stage_children(&mut self, path: &Path, children: Children, deadline: Option<Time>) -> Result<(), Lost> {
        self.log.stage(ChildStarted { point: path.clone(), children, deadline }, self.now)?;
        self.steps.timers.extend(deadline.map(|at| (at, path.clone())));
        // A child may have ended before the turn looks for it the next time.
        _ = self.handle.poke(None);
        Ok(())
    }

    pub(super) fn start_sleep(&mut self, path: &Path, until: Time, relative: bool) -> Result<(), Lost> {
        self.log.stage(SleepStarted { point: path.clone(), until, relative }, self.now)?;
        self.steps.timers.insert((until, path.clone()));
        Ok(())
    }

    fn start_attempt(&mut self, path: &Path, attempt: u32, open: &mut OpenSlot) -> Result<(), Lost> {
        let (_, _, compensate) = step_policy(&open.spec);
        let started = StepStarted { point: path.clone(), attempt, compensate, task: None, deadline: None };
        self.log.stage(started, self.now)?;
        self.run_step(attempt, open);
        Ok(())
    }

    /// Lets a step of a function run once the entry is durable.
    fn run_step(&mut self, attempt: u32, open: &mut OpenSlot) {
        let (_, timeout, _) = step_policy(&open.spec);
        let running = Attempt::new(attempt, self.now, timeout);
        open.running = Some(running);
        let reply = Reply::Run { attempt, deadline: running.deadline };
        self.plan.releases.push(Release::Reply(Arc::clone(&open.slot), reply));
        // Without an entry to wait for, it may run at once.
        if !self.log.is_staged() {
            let now: Vec<Release> = self.plan.releases.drain(..).collect();
            for release in now {
                match release {
                    Release::Reply(slot, reply) => _ = slot.reply(reply),
                    other => self.plan.releases.push(other),
                }
            }
        }
    }

    fn take_outcome(
        &mut self,
        path: &Path,
        attempt: u32,
        outcome: Result<Payload, Failure>,
        at: Time,
    ) -> Result<(), Lost> {
        let running = self.steps.slots.get(path).and_then(|open| open.running);
        let Some(running) = running.filter(|running| running.number == attempt) else { return Ok(()) };
        match (running.accept(at), outcome) {
            (Ok(at), Ok(payload)) => {
                self.steps.slots.remove(path);
                self.complete_step(path, &payload, at, None)
            }
            (Ok(at), Err(failure)) => self.fail_step(path, attempt, &failure, at),
            (Err(deadline), _) => self.fail_step(path, attempt, &Failure::timeout(running.timeout), deadline),
        }
    }

    pub(super) fn complete_step(
        &mut self,
        path: &Path,
        payload: &Payload,
        at: Time,
        patch: Option<serde_json::Map<String, serde_json::Value>>,
    ) -> Result<(), Lost> {
        let result = self.log.data(Some(path), payload);
        self.plan.releases.push(Release::Output(path.clone(), result.clone()));
        let at = at.max(self.log.run.created_at);
        self.log.stage(StepCompleted { point: path.clone(), at, result, patch, mark: false }, self.now)?;
        metrics::counter!("wigwag_steps_total", "outcome" => "completed").increment(1);
        self.pass(path);
        Ok(())
    }

    /// Records a failed attempt of a step and its consequence: a retry, or the failure policy of its owner.
    pub(super) fn fail_step(&mut self, path: &Path, attempt: u32, failure: &Failure, at: Time) -> Result<(), Lost> {
        let Some(policy) = self.failure_policy(path) else { return Ok(()) };
        let (outcome, error) = (failure.outcome(), failure.fault().clone());
        let failed = FailedAttempt { step: path.clone(), attempt, at, outcome, error, after: failure.after() };
        let (event, then) = failed.settle(&policy, fastrand::f64());
        let slot = self.steps.slots.get_mut(path).map(|open| {
            open.running = None;
            Arc::clone(&open.slot)
        });
        if let (AfterFailure::ReplyToCode, Some(slot)) = (&then, &slot)
            && self.mail.queue.iter().any(|request| request.drops(slot))
        {
            // The code dropped the step in the same poll: it does not learn of the failure.
            return self.take_dropped(path, slot);
        }
        let error = event.error.clone();
        self.log.stage(event, self.now)?;
        metrics::counter!("wigwag_steps_total", "outcome" => "failed").increment(1);
        match then {
            AfterFailure::RetryAt(again) => _ = self.steps.timers.insert((again, path.clone())),
            AfterFailure::ReplyToCode => {
                self.steps.slots.remove(path);
                let reply = Reply::Failed { failure: Failure::recorded(error), at };
                self.plan.releases.extend(slot.map(|slot| Release::Reply(slot, reply)));
            }
            AfterFailure::Pause => self.pause_for_failure(error)?,
            AfterFailure::Continue => self.pass(path),
            AfterFailure::EndRun(error) => self.phase.end(Ending::Failed(error)),
            AfterFailure::Nothing => {}
        }
        Ok(())
    }

    /// Returns how a step is retried and what its failure means; `None` if nothing waits for it.
    fn failure_policy(&self, path: &Path) -> Option<Policy> {
        let run_ends = self.phase.is_ending();
        if let Some(open) = self.steps.slots.get(path) {
            return Some(Policy { retry: Some(step_policy(&open.spec).0), owner: Owner::Code, run_ends });
        }
        let node = self.workflow.node(path, &self.log.run)?;
        let is_dispatched = self.log.run.points.get(path).is_some_and(|point| point.children.is_some());
        let retry = (!is_dispatched).then_some(node.retry);
        Some(Policy { retry, owner: Owner::Graph(node.on_failure), run_ends })
    }

    pub(super) fn pause_for_failure(&mut self, error: Fault) -> Result<(), Lost> {
        let (why, error) = (PauseCause::Failure, Some(error));
        self.log.stage(RunPaused { why, error, reason: None, control: None, refused: None, by: None }, self.now)
    }

    /// Lets the graph steps that depend on this one start.
    pub(super) fn pass(&mut self, path: &Path) {
        if let Some(frontier) = &mut self.steps.frontier {
            frontier.passed(path);
        }
    }

    fn take_returned(&mut self, body: &BodyId, outcome: Result<Returned, Failure>, at: Time) -> Result<(), Lost> {
        let Some(finished) = self.code.bodies.remove(body) else { return Ok(()) };
        self.steps.slots.retain(|_, open| open.body != *body);
        self.forget_offers();
        self.mail.held.retain(|request| !matches!(request, Request::Open { body: of, .. } if of == body));
        let number = finished.attempt.map_or(1, |attempt| attempt.number);
        let (at, outcome) = match finished.attempt.map(|attempt| (attempt.accept(at), attempt.timeout)) {
            Some((Err(deadline), timeout)) => (deadline, Err(Failure::timeout(timeout))),
            _ => (at, outcome),
        };
        match body {
            BodyId::Root => self.take_root(outcome, &finished.scope)?,
            BodyId::Step(path, _) => {
                let outcome = outcome.and_then(|returned| self.check_data(returned));
                match outcome {
                    Ok(Returned { result, patch }) => self.complete_step(path, &result, at, patch)?,
                    Err(failure) => self.fail_step(path, number, &failure, at)?,
                }
            }
            BodyId::Undo(path, _) => self.take_undone(path, number, outcome.map(drop), at)?,
        }
        Ok(())
    }

    /// Checks the size of the run's data, which is part of every snapshot, and that a snapshot can hold it.
    pub(super) fn check_data(&self, returned: Returned) -> Result<Returned, Failure> {
        let Some(patch) = &returned.patch else { return Ok(returned) };
        let added = Payload::of(patch).map_err(|refusal| permanent(format!("the run's data: {refusal}")))?;
        let size = serde_json::to_string(&self.log.run.data).map_or(0, |text| text.len()) + added.text().len();
        match size > limits::DATA_BYTES_MAX {
            true => Err(permanent(format!(
                "a run's data has at most {} bytes; put more into a step's result: {size}",
                limits::DATA_BYTES_MAX
            ))),
            false => Ok(returned),
        }
    }

    /// Fires elapsed timers: ends sleeps, retries steps, closes overdue waits for children.
    pub(super) fn fire_timers(&mut self) -> Result<(), Lost> {
        if self.is_held_up() {
            return Ok(());
        }
        // The code polls an open offer first, so that no timer settles another of its steps before that.
        while !self.log.is_full()
            && self.offers.is_empty()
            && let Some((at, path)) = self.steps.timers.first().cloned()
            && (at <= self.now || is_early(at, self.now))
        {
            self.steps.timers.pop_first();
            let Some(point) = self.log.run.points.get(&path).cloned() else { continue };
            if point.until != Some(at) {
                continue;
            }
            match point.kind {
                PointKind::Sleep => self.fire_sleep(&path)?,
                PointKind::Child => self.close_overdue(&path, &point)?,
                PointKind::Step if point.children.is_some() => self.fail_overdue_task(&path, point.attempt)?,
                PointKind::Step => {
                    if let Some(mut open) = self.steps.slots.remove(&path) {
                        self.start_attempt(&path, point.attempt.saturating_add(1), &mut open)?;
                        self.steps.slots.insert(path, open);
                    }
                    // Steps of a graph are started again by `advance`; a function starts the attempt when it requests the step.
                }
                PointKind::Wait | PointKind::Mark => {}
            }
        }
        Ok(())
    }

    fn fire_sleep(&mut self, path: &Path) -> Result<(), Lost> {
        self.log.stage(SleepFired { point: path.clone(), at: self.now }, self.now)?;
        if let Some(open) = self.steps.slots.remove(path) {
            let reply = Reply::Closed { result: Payload::null(), at: self.now };
            self.plan.releases.push(Release::Reply(open.slot, reply));
        }
        Ok(())
    }

    /// Stops steps that exceeded their timeout, and ignores their later outcomes.
    pub(super) fn stop_the_late(&mut self) -> Result<(), Lost> {
        let now = self.now;
        let is_overdue = |attempt: &Option<Attempt>| attempt.is_some_and(|attempt| attempt.is_overdue(now));
        let late = self.code.bodies.iter().filter(|(_, body)| is_overdue(&body.attempt));
        let late: Vec<BodyId> = late.map(|(id, _)| id.clone()).collect();
        for id in late {
            if self.log.is_full() {
                return Ok(());
            }
            let Some(body) = self.code.bodies.remove(&id) else { continue };
            body.task.abort();
            self.steps.slots.retain(|_, open| open.body != id);
            self.forget_offers();
            let Some(attempt) = body.attempt else { continue };
            let failure = Failure::timeout(attempt.timeout);
            match &id {
                BodyId::Step(path, _) => self.fail_step(path, attempt.number, &failure, now)?,
                BodyId::Undo(path, _) => self.take_undone(path, attempt.number, Err(failure), now)?,
                BodyId::Root => {}
            }
        }
        let late = self.steps.slots.iter().filter(|(_, open)| is_overdue(&open.running));
        let late: Vec<(Path, Attempt)> = late.filter_map(|(path, open)| Some((path.clone(), open.running?))).collect();
        for (path, attempt) in late {
            if self.log.is_full() {
                return Ok(());
            }
            match self.steps.slots.get(&path) {
                // The step has just ended, and its outcome is about to arrive.
                Some(open) if !open.slot.decide(attempt.number) => continue,
                Some(open) => _ = open.slot.reply(Reply::Stop),
                None => continue,
            }
            self.fail_step(&path, attempt.number, &Failure::timeout(attempt.timeout), now)?;
        }
        Ok(())
    }
}
