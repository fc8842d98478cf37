//! What users' code asked for, and times that came, become events.

use std::sync::Arc;
use std::time::Duration;

use wigwag_core::{
    ChildStarted, Children, Closing, Data, Outcome, Parent, Path, Payload, PointDropped, PointKind, PointStatus,
    RunRef, SleepFired, SleepStarted, StepCompleted, StepFailed, StepStarted, Then, Time, after_failure, limits,
};

use super::inbox::is_open_wait;
use super::{OpenSlot, Release, Turn, is_retrying, step_policy};
use crate::error::Error;
use crate::failure::{Failure, permanent};
use crate::log::Lost;
use crate::mailbox::{BodyId, Reply, Request, Returned, Slot, Spec};

/// A deliberate bug.
fn is_early(at: Time, now: Time) -> bool {
    use wigwag_core::mutation::{Mutation, is_mutated};
    is_mutated(Mutation::SleepsEndEarly) && at <= now.after(Duration::from_secs(1))
}

impl Turn {
    pub(super) async fn take_mail(&mut self) -> Result<(), Lost> {
        self.mail.extend(self.mailbox.take());
        while !self.log.is_full()
            && let Some(request) = self.mail.pop_front()
        {
            match request {
                Request::Open { body, path, spec, slot } => self.take_open(body, path, spec, slot).await?,
                Request::Outcome { path, attempt, outcome, at } => self.take_outcome(&path, attempt, outcome, at)?,
                Request::Dropped { path, slot } => self.take_dropped(&path, &slot)?,
                Request::Heard { path, slot } => self.take_heard(&path, &slot)?,
                Request::Abandoned { body, path } => {
                    if self.bodies.contains_key(&body) && self.ending.is_none() {
                        self.close_wait(&path, Closing::Lost)?;
                    }
                }
                Request::Trouble(error) => return Err(Lost::Store(error)),
                Request::Returned { body, outcome, at } => self.take_returned(&body, outcome, at)?,
            }
        }
        Ok(())
    }

    /// A point is no longer waited for. That is recorded: run again, the code must not learn how it came out.
    fn take_dropped(&mut self, path: &Path, slot: &Arc<Slot>) -> Result<(), Lost> {
        if !self.slots.get(path).is_some_and(|open| Arc::ptr_eq(&open.slot, slot)) {
            return Ok(());
        }
        self.slots.remove(path);
        self.offers.remove(path);
        self.held.retain(|request| !matches!(request, Request::Open { slot: held, .. } if Arc::ptr_eq(held, slot)));
        let open = self.log.run.points.get(path).is_some_and(|point| !point.status.is_settled());
        if is_open_wait(&self.log.run, path) && self.ending.is_none() {
            return self.close_wait(path, Closing::Lost);
        }
        match open && self.ending.is_none() {
            true => self.log.stage(PointDropped { point: path.clone(), at: self.now }, self.now),
            false => Ok(()),
        }
    }

    async fn take_open(&mut self, body: BodyId, path: Path, spec: Spec, slot: Arc<Slot>) -> Result<(), Lost> {
        if !self.bodies.contains_key(&body) {
            return Ok(());
        }
        if self.is_held_up() {
            let resumed = self.log.run.points.get(&path).is_some_and(|point| !point.status.is_settled());
            let waits = self.ending.is_none() && resumed && !matches!(spec, Spec::Step { .. });
            if !waits {
                self.slots.insert(
                    path.clone(),
                    OpenSlot { slot: Arc::clone(&slot), body: body.clone(), spec: spec.clone(), running: None },
                );
                self.held.push(Request::Open { body, path, spec, slot });
                return Ok(());
            }
        }
        if self.log.run.points.len() >= limits::current().points_max && !self.log.run.points.contains_key(&path) {
            let failure = permanent(format!("a run has at most {} points", limits::current().points_max)).at(&path);
            slot.reply(Reply::Failed { failure, at: self.now });
            return Ok(());
        }
        let mut open = OpenSlot { slot, body, spec, running: None };
        match self.log.run.points.get(&path).cloned() {
            Some(point) if point.status.is_settled() => return self.answer_settled(&path, &point, &open).await,
            Some(point) if point.kind == PointKind::Step && point.status == PointStatus::Running => {
                // It was running when its worker died or gave up the turn: the same attempt again.
                if point.interrupted >= limits::current().interruptions_max {
                    self.slots.insert(path.clone(), open);
                    return self.take_failure(&path, point.attempt, &Failure::lost(point.interrupted), self.now);
                }
                self.run_step(point.attempt, &mut open);
            }
            Some(point) if is_retrying(&point) && point.until.is_none_or(|at| at <= self.now) => {
                self.start_attempt(&path, point.attempt.saturating_add(1), &mut open)?;
            }
            Some(_) => {}
            None => self.open_new(&path, &mut open).await?,
        }
        // One that was answered at once is not waited for.
        if self.log.run.points.get(&path).is_some_and(|point| !point.status.is_settled()) {
            self.slots.insert(path, open);
        }
        Ok(())
    }

    /// The record answers a point that was settled after the code that asks for it was started.
    async fn answer_settled(&mut self, path: &Path, point: &wigwag_core::Point, open: &OpenSlot) -> Result<(), Lost> {
        let at = point.ended_at.unwrap_or(self.now);
        let reply = match (&point.result, &point.error) {
            (Some(data), _) => Reply::Closed { result: self.payload(Some(path), data).await?, at },
            (None, Some(fault)) => Reply::Failed { failure: Failure::recorded(fault.clone()), at },
            (None, None) => Reply::Closed { result: Payload::null(), at },
        };
        open.slot.reply(reply);
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
                self.releases.push(Release::Reply(Arc::clone(&open.slot), reply));
                Ok(())
            }
            Spec::Child { of, input } => {
                // What the child may look at must be durable before it is there.
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
                open.slot.reply(Reply::Failed { failure: failure.at(path), at: self.now });
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

    /// What cannot be started at all is a failure of the point; the store's trouble is trouble of the turn.
    fn refuse_child(&mut self, path: &Path, open: &OpenSlot, error: &Error) -> Result<(), Lost> {
        use crate::ErrorKind;
        if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Damaged | ErrorKind::Stopped) {
            return Err(Lost::Store(error.clone()));
        }
        let failure = permanent(error).at(path);
        open.slot.reply(Reply::Failed { failure, at: self.now });
        Ok(())
    }

    fn stage_children(&mut self, path: &Path, children: Children, deadline: Option<Time>) -> Result<(), Lost> {
        self.log.stage(ChildStarted { point: path.clone(), children, deadline }, self.now)?;
        self.timers.extend(deadline.map(|at| (at, path.clone())));
        // A child may have ended before the turn looks for it the next time.
        _ = self.handle.poke(None);
        Ok(())
    }

    pub(super) fn start_sleep(&mut self, path: &Path, until: Time, relative: bool) -> Result<(), Lost> {
        self.log.stage(SleepStarted { point: path.clone(), until, relative }, self.now)?;
        self.timers.insert((until, path.clone()));
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
        let deadline = self.now.after(timeout);
        open.running = Some((attempt, deadline));
        self.releases.push(Release::Reply(Arc::clone(&open.slot), Reply::Run { attempt, deadline }));
        // Without an entry to wait for, it may run at once.
        if !self.log.is_staged() {
            let now: Vec<Release> = self.releases.drain(..).collect();
            for release in now {
                match release {
                    Release::Reply(slot, reply) => slot.reply(reply),
                    other => self.releases.push(other),
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
        let running = self.slots.get(path).and_then(|open| open.running.map(|running| (running, &open.spec)));
        let Some(((_, deadline), spec)) = running.filter(|((running, _), _)| *running == attempt) else {
            return Ok(());
        };
        if at > deadline {
            // It came too late, whether or not this turn had a thread to notice.
            let timeout = Failure::timeout(step_policy(spec).1);
            return self.take_failure(path, attempt, &timeout, deadline);
        }
        match outcome {
            Ok(payload) => {
                self.slots.remove(path);
                self.complete_step(path, &payload, at, None)
            }
            Err(failure) => self.take_failure(path, attempt, &failure, at),
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
        self.releases.push(Release::Output(path.clone(), result.clone()));
        let at = at.max(self.log.run.created_at);
        self.log.stage(StepCompleted { point: path.clone(), at, result, patch, mark: false }, self.now)?;
        metrics::counter!("wigwag_steps_total", "outcome" => "completed").increment(1);
        if let Some(frontier) = &mut self.frontier {
            frontier.passed(path);
        }
        Ok(())
    }

    /// A step of a function failed: it is tried again, or the function learns of it.
    fn take_failure(&mut self, path: &Path, attempt: u32, failure: &Failure, at: Time) -> Result<(), Lost> {
        let Some(open) = self.slots.get_mut(path) else { return Ok(()) };
        open.running = None;
        let (retry, ..) = step_policy(&open.spec);
        let slot = Arc::clone(&open.slot);
        let retry_at = self.retry_at(failure, attempt, &retry, at);
        let is_drop = |request: &Request| matches!(request, Request::Dropped { slot: dropped, .. } if Arc::ptr_eq(dropped, &slot));
        if retry_at.is_none() && self.mail.iter().any(is_drop) {
            // In the same breath the code turned to something else: how it came out was not heard.
            return self.take_dropped(path, &slot);
        }
        let error = failure.clone().at(path).fault().clone();
        let failed = StepFailed { point: path.clone(), attempt, at, error: error.clone(), retry_at, held: false };
        self.log.stage(failed, self.now)?;
        metrics::counter!("wigwag_steps_total", "outcome" => "failed").increment(1);
        match retry_at {
            Some(again) => _ = self.timers.insert((again, path.clone())),
            None => {
                self.slots.remove(path);
                self.releases.push(Release::Reply(slot, Reply::Failed { failure: Failure::recorded(error), at }));
            }
        }
        Ok(())
    }

    /// When a failed step is tried again; a run that ends tries nothing again.
    pub(super) fn retry_at(
        &self,
        failure: &Failure,
        attempt: u32,
        retry: &wigwag_core::Retry,
        at: Time,
    ) -> Option<Time> {
        let outcome = if self.ending.is_some() { Outcome::Permanent } else { failure.outcome() };
        match after_failure(outcome, attempt, retry, false, fastrand::f64()) {
            Then::Retry(delay) => Some(at.after(delay)),
            _ => None,
        }
    }

    fn take_returned(&mut self, body: &BodyId, outcome: Result<Returned, Failure>, at: Time) -> Result<(), Lost> {
        let Some(finished) = self.bodies.remove(body) else { return Ok(()) };
        self.slots.retain(|_, open| open.body != *body);
        self.forget_offers();
        self.held.retain(|request| !matches!(request, Request::Open { body: of, .. } if of == body));
        let late = finished.deadline.filter(|deadline| at > *deadline);
        let outcome = if late.is_some() { Err(Failure::timeout(finished.timeout)) } else { outcome };
        let at = late.unwrap_or(at);
        match body {
            BodyId::Root => self.take_root(outcome, &finished.scope)?,
            BodyId::Step(path, _) => {
                let outcome = outcome.and_then(|returned| self.check_data(returned));
                match outcome {
                    Ok(Returned { result, patch }) => self.complete_step(path, &result, at, patch)?,
                    Err(failure) => self.fail_node(path, finished.attempt, &failure, at)?,
                }
            }
            BodyId::Undo(path, _) => self.take_undone(path, finished.attempt, outcome.map(drop), at)?,
        }
        Ok(())
    }

    /// A run's data is part of every snapshot, and so has a limit; and it must be read again from there.
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

    /// Times that came: sleeps are over, steps are tried again, what was waited for did not come.
    pub(super) fn fire_timers(&mut self) -> Result<(), Lost> {
        if self.is_held_up() {
            return Ok(());
        }
        // What a wait was told is heard first, so that nothing else that its code waits for is settled meanwhile.
        while !self.log.is_full()
            && self.offers.is_empty()
            && let Some((at, path)) = self.timers.first().cloned()
            && (at <= self.now || is_early(at, self.now))
        {
            self.timers.pop_first();
            let Some(point) = self.log.run.points.get(&path).cloned() else { continue };
            if point.until != Some(at) {
                continue;
            }
            match point.kind {
                PointKind::Sleep => self.fire_sleep(&path)?,
                PointKind::Child => self.close_overdue(&path, &point)?,
                PointKind::Step if point.children.is_some() => self.fail_overdue_task(&path, point.attempt)?,
                PointKind::Step => {
                    if let Some(mut open) = self.slots.remove(&path) {
                        self.start_attempt(&path, point.attempt.saturating_add(1), &mut open)?;
                        self.slots.insert(path, open);
                    }
                    // Steps of a graph are started again by `advance`; a function that was not asked yet comes to it.
                }
                PointKind::Wait | PointKind::Mark => {}
            }
        }
        Ok(())
    }

    fn fire_sleep(&mut self, path: &Path) -> Result<(), Lost> {
        self.log.stage(SleepFired { point: path.clone(), at: self.now }, self.now)?;
        if let Some(open) = self.slots.remove(path) {
            let reply = Reply::Closed { result: Payload::null(), at: self.now };
            self.releases.push(Release::Reply(open.slot, reply));
        }
        Ok(())
    }

    /// Steps that took too long are stopped; what they would still say is not heard.
    pub(super) fn stop_the_late(&mut self) -> Result<(), Lost> {
        let now = self.now;
        let late: Vec<BodyId> = self
            .bodies
            .iter()
            .filter(|(_, body)| body.deadline.is_some_and(|at| at <= now))
            .map(|(id, _)| id.clone())
            .collect();
        for id in late {
            if self.log.is_full() {
                return Ok(());
            }
            let Some(body) = self.bodies.remove(&id) else { continue };
            body.task.abort();
            self.slots.retain(|_, open| open.body != id);
            self.forget_offers();
            let failure = Failure::timeout(body.timeout);
            match &id {
                BodyId::Step(path, _) => self.fail_node(path, body.attempt, &failure, now)?,
                BodyId::Undo(path, _) => self.take_undone(path, body.attempt, Err(failure), now)?,
                BodyId::Root => {}
            }
        }
        let late: Vec<(Path, u32, Duration)> = self
            .slots
            .iter()
            .filter_map(|(path, open)| {
                let (attempt, deadline) = open.running?;
                (deadline <= now).then(|| (path.clone(), attempt, step_policy(&open.spec).1))
            })
            .collect();
        for (path, attempt, timeout) in late {
            if self.log.is_full() {
                return Ok(());
            }
            match self.slots.get(&path) {
                // It has just come out, and says so in a moment.
                Some(open) if !open.slot.decide() => continue,
                Some(open) => open.slot.reply(Reply::Stop),
                None => continue,
            }
            self.take_failure(&path, attempt, &Failure::timeout(timeout), now)?;
        }
        Ok(())
    }
}
