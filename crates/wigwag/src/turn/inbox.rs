//! Waits take signals from their inboxes, or are timed out.
//!
//! The order: the turn lists an inbox, then a wait consumes a listed signal and the entry that records it is written; or
//! the wait is recorded, and the inbox is listed **again** after that entry. A sender puts its signal, then reads the run,
//! and puts a wake-up if a wait is open. Either the turn sees the signal, or the sender sees the wait.
//!
//! What if we die here? Until the entry is stored no signal is consumed, and the next owner finds the same signals. After
//! it, the record decides. Code is offered a signal only at waits that it polls in this turn: a wait that lost a race
//! consumes nothing, whether or not its loss was recorded.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use wigwag_core::deliberate_bug;
use wigwag_core::turn::step::retry_at_after;
use wigwag_core::turn::waits::ScanNeed;
use wigwag_core::{
    Closing, Decision, Fault, Mode, Name, NodeKind, OnFailure, Order, Path, Payload, Point, PointKind, Run, Signal,
    SignalClosed, SignalReceived, SignalRefused, SignalTimeout, SignalWaiting, Taken, Wait, limits,
};

use super::scan::{decide, waiting_facts, waiting_key};
use super::sources::look_at_signals;
use super::{OpenSlot, Release, Turn};
use crate::body::BodyLink;
use crate::engine_core::Stop;
use crate::error::Result;
use crate::failure::{Failure, permanent};
use crate::log::CommitError as Lost;
use crate::mailbox::{Heard, Reply, Slot, Spec};
use crate::panics;
use crate::scope::Caught;
use crate::workflow::{Changed, Workflow, data_payload};

/// Time that code has, after it got its signal, to send its next request so that both share one entry.
pub(super) const HEAR_OUT: std::time::Duration = std::time::Duration::from_millis(20);

/// A signal, timeout or lost race that a wait of code was offered.
#[derive(Debug)]
pub(super) struct Offer {
    heard: Heard,
    link: Arc<BodyLink>,
    /// Number of the reply.
    reply: u64,
}

impl Offer {
    /// Whether the code was polled since the offer.
    fn is_seen(&self) -> bool {
        self.link.has_seen(self.reply)
    }
}

impl Workflow {
    /// Whether users' code is called when the wait at this step has its signal or is timed out.
    pub(crate) fn calls_code_at(&self, path: &Path) -> bool {
        self.node_code(path).is_some_and(|code| code.on_receive.is_some() || code.on_timeout.is_some())
    }
}

impl Turn {
    /// Records that code waits for a signal.
    pub(super) fn start_wait(&mut self, path: &Path, open: &OpenSlot) -> Result<(), Lost> {
        let Spec::Wait { name, wait } = open.spec.clone() else { return Ok(()) };
        let after = wait.timeout.map(|span| self.now.after(span.min(limits::SPAN_MAX)));
        let relative = after.is_some_and(|after| wait.until.is_none_or(|until| after <= until));
        let deadline = after.into_iter().chain(wait.until).min();
        // Waits that race are over together, also if they were opened by two entries.
        let rival = wait.race.as_ref().and_then(|race| self.open_wait_of_race(race));
        let (deadline, relative) = rival.map_or((deadline, relative), |rival| (rival.until, rival.relative));
        if let Some(failure) = self.too_many_waits() {
            return self.refuse_wait(path, open, name, &failure);
        }
        let waiting = SignalWaiting {
            point: path.clone(),
            name,
            deadline,
            relative,
            mode: wait.mode,
            quorum: wait.quorum.max(1),
            authenticated: wait.authenticated,
            race: wait.race,
            schema: wait.schema,
            about: wait.about,
        };
        self.stage_wait(waiting)
    }

    /// Returns an open wait of a race. After a restart from a later one, the first may have its signal.
    fn open_wait_of_race(&self, race: &Path) -> Option<&Point> {
        let is_rival = |point: &Point| point.wait.as_ref().is_some_and(|wait| wait.race.as_ref() == Some(race));
        self.log.run.waits().find(|(path, point)| *path == race || is_rival(point)).map(|(_, point)| point)
    }

    /// Fails a wait that exceeds the limit of open waits. The failure is recorded: a replay must see the same, however many
    /// waits are open by then.
    fn refuse_wait(&mut self, path: &Path, open: &OpenSlot, name: Name, failure: &Failure) -> Result<(), Lost> {
        let waiting = SignalWaiting {
            point: path.clone(),
            name,
            deadline: None,
            relative: false,
            mode: Mode::Queue,
            quorum: 1,
            authenticated: false,
            race: None,
            schema: None,
            about: None,
        };
        self.log.stage(waiting, self.now)?;
        let error = failure.clone().at(path).fault().clone();
        let over = SignalTimeout { point: path.clone(), at: self.now, error: Some(error.clone()), patch: None };
        self.log.stage(over, self.now)?;
        let reply = Reply::Failed { failure: Failure::recorded(error), at: self.now };
        self.plan.releases.push(Release::Reply(Arc::clone(&open.slot), reply));
        Ok(())
    }

    /// Records that a node of a graph waits for its signal.
    pub(super) fn enter_signal(&mut self, node: &wigwag_core::Node) -> Result<(), Lost> {
        let Some(signal) = node.signal.clone() else { return Ok(()) };
        if let Some(failure) = self.too_many_waits() {
            let failed = failure.at(&node.name).fault().clone();
            self.phase.end(wigwag_core::Ending::Failed(failed));
            return Ok(());
        }
        let waiting = SignalWaiting {
            point: node.name.clone(),
            name: signal.name,
            deadline: signal.timeout.map(|span| self.now.after(span.min(limits::SPAN_MAX))),
            relative: true,
            mode: signal.mode,
            quorum: signal.quorum,
            authenticated: signal.authenticated,
            race: None,
            // Recorded, so that senders and workers go by the same schema for as long as the wait is open.
            schema: signal.schema,
            about: self.about(&node.name),
        };
        self.stage_wait(waiting)
    }

    /// Asks users' code what a wait of a graph is about. A description never fails a run: a panic in it means none.
    fn about(&self, path: &Path) -> Option<String> {
        let code = self.workflow.node_code(path)?.about.clone()?;
        let data = data_payload(&self.data(), &self.code.input);
        match panics::catch(|| code(data)) {
            Ok(text) => wigwag_core::about_line(&text?),
            Err(panic) => {
                let failure = Failure::panic(&*panic);
                tracing::warn!(run = %self.log.run.run, step = %path, error = %failure.fault().message, "a wait could not be described");
                None
            }
        }
    }

    /// Whether the run has as many open waits as it may have.
    fn too_many_waits(&self) -> Option<Failure> {
        let max = limits::current().waits_max;
        let is_full = self.log.run.waits().take(max).count() == max;
        is_full.then(|| permanent(format!("a run waits for at most {max} signals at once")))
    }

    fn stage_wait(&mut self, waiting: SignalWaiting) -> Result<(), Lost> {
        self.waits.open(&waiting, self.claim.is_new(), self.now);
        self.log.stage(waiting, self.now)
    }

    /// Whether the wait is in use: by a node of the graph, or by code that polled the wait since its last reply.
    pub(super) fn is_asked(&self, path: &Path) -> bool {
        let Some(open) = self.steps.slots.get(path) else {
            return self.workflow.definition.step(path).is_some_and(|node| node.kind == NodeKind::Signal);
        };
        matches!(open.spec, Spec::Wait { .. }) && self.code.bodies.contains_key(&open.body) && open.slot.is_awaited()
    }

    /// Lets waits consume stored signals, and times waits out; returns whether any wait was settled.
    ///
    /// A node of a graph consumes its signal at once. Code is offered its signal first and consumes it when it polls the
    /// wait, because the code may drop the wait at that moment; its next requests share the entry. No step of it starts
    /// before the entry is durable.
    pub(super) async fn receive(&mut self) -> Result<bool, Lost> {
        self.take_back_offers();
        let mut any = false;
        while !self.is_held_up() && !self.log.is_full() && self.log.run.waits().next().is_some() {
            if !self.mail.queue.is_empty() || self.mail.mailbox.has_requests() || self.is_about_to_reply() {
                // Pending requests of the code and replies to it come first: they may end a wait.
                break;
            }
            let mut found = std::mem::take(&mut self.waits.inboxes);
            let decision = decide(&self.inner, &self.log.run, &mut found, |path| self.may_take(path)).await;
            self.waits.inboxes = found;
            let decision = decision?;
            let calls_code = |decision: &Decision| self.workflow.calls_code_at(decision.point());
            self.own_before_calling(decision.as_ref().is_some_and(calls_code)).await?;
            match decision {
                Some(decision) if self.steps.slots.contains_key(decision.point()) => {
                    self.offer(&decision).await;
                    return Ok(any);
                }
                Some(Decision::Receive { point, signals }) => {
                    if let Some((taken, payload)) = self.read_signals(&point, &signals) {
                        self.take_signals(&point, taken, &payload).await?;
                    }
                }
                Some(Decision::TimeOut { point }) => self.time_out(&point).await?,
                None if self.needs_look().await? => {
                    self.look_into_inboxes().await?;
                    continue;
                }
                None => break,
            }
            any = true;
        }
        Ok(any)
    }

    /// Whether a wait may take something now.
    fn may_take(&self, path: &Path) -> bool {
        let name =
            |path: &Path| self.log.run.points.get(path).and_then(|point| Some(point.wait.as_ref()?.name.clone()));
        // A signal that is offered to one wait is not offered to another wait of the same name.
        let told = !self.offers.is_empty() && self.offers.keys().any(|other| name(other) == name(path));
        // Code with a reply that it has not polled yet polls that reply first.
        let is_idle = |open: &OpenSlot| self.code.bodies.get(&open.body).is_some_and(|body| body.scope.link.is_idle());
        let listens = self.steps.slots.get(path).is_none_or(is_idle);
        self.is_asked(path) && listens && !told
    }

    /// Whether code gets the outcome of a step once the staged entry is durable.
    fn is_about_to_reply(&self) -> bool {
        let is_outcome = |reply: &Reply| !matches!(reply, Reply::Run { .. });
        self.plan.releases.iter().any(|release| matches!(release, Release::Reply(_, reply) if is_outcome(reply)))
    }

    /// Offers code the signals for its wait, or the timeout; waits that race with it get their outcome too.
    async fn offer(&mut self, decision: &Decision) {
        let point = decision.point().clone();
        let rivals = self.log.run.losers_to(&point);
        let (heard, others) = match decision {
            Decision::Receive { point, signals } => {
                let Some((taken, payload)) = self.read_signals(point, signals) else { return };
                (Heard::Signals { taken, payload }, Heard::Lost)
            }
            Decision::TimeOut { .. } => (Heard::TimedOut, Heard::TimedOut),
        };
        for rival in rivals {
            self.tell(&rival, others.clone()).await;
        }
        self.tell(&point, heard).await;
    }

    async fn tell(&mut self, path: &Path, heard: Heard) {
        let Some(open) = self.steps.slots.get(path) else { return };
        let Some(body) = self.code.bodies.get(&open.body) else { return };
        let link = Arc::clone(&body.scope.link);
        let reply = open.slot.reply(Reply::Heard { heard: heard.clone(), at: self.now });
        // Code that dropped the wait has sent, or is about to send, a request that says so.
        let Some(reply) = reply else { return };
        self.offers.insert(path.clone(), Offer { heard, link, reply });
        if deliberate_bug!(RecordedUnheard)
            && let Some(open) = self.steps.slots.get(path)
        {
            let slot = Arc::clone(&open.slot);
            let _ = self.take_heard(path, &slot).await;
        }
    }

    /// Records an offer that the code has accepted.
    pub(super) async fn take_heard(&mut self, path: &Path, slot: &Arc<Slot>) -> Result<(), Lost> {
        if !self.steps.slots.get(path).is_some_and(|open| Arc::ptr_eq(&open.slot, slot)) {
            return Ok(());
        }
        self.steps.slots.remove(path);
        match self.offers.remove(path).map(|offer| offer.heard) {
            Some(Heard::Signals { taken, payload }) => self.take_signals(path, taken, &payload).await,
            Some(Heard::TimedOut) => self.time_out(path).await,
            // That it lost a race is recorded with the winner.
            Some(Heard::Lost) | None => Ok(()),
        }
    }

    /// Retracts offers that code did not accept when it was polled: the signals stay in the inbox.
    fn take_back_offers(&mut self) {
        let polled = self.offers.iter().filter(|(_, offer)| offer.is_seen());
        let polled: Vec<Path> = polled.map(|(path, _)| path.clone()).collect();
        for path in polled {
            if self.steps.slots.get(&path).is_some_and(|open| open.slot.retract()) {
                self.offers.remove(&path);
            }
        }
    }

    /// Drops offers to code that no longer exists.
    pub(super) fn forget_offers(&mut self) {
        let slots = &self.steps.slots;
        self.offers.retain(|path, _| slots.contains_key(path));
    }

    /// Lets code with an offer continue, so that its next requests share the entry; returns whether it continued.
    ///
    /// The turn does not wait for code that blocks its thread.
    pub(super) async fn hear_out(&mut self) -> bool {
        let unheard = self.offers.values().any(|offer| !offer.is_seen());
        // Code on another thread may have continued since the offer, before this turn got here. Its requests are in the
        // mailbox then; without this check they would cost a separate entry.
        let told = unheard || !self.offers.is_empty() && self.mail.mailbox.has_requests();
        let mut until = self.inner.clock.boot() + HEAR_OUT;
        while self.offers.values().any(|offer| !offer.is_seen()) {
            if !self.hear(&mut until).await {
                return false;
            }
        }
        told
    }

    /// Waits for the next request of code that runs outside of the engine, so that it shares the staged entry. Does nothing if
    /// the entry lets other code continue. Returns whether a request arrived.
    pub(super) async fn hear_foreign(&mut self) -> bool {
        let mut until = self.inner.clock.boot() + HEAR_OUT;
        while self.log.is_staged() && !self.log.run.status.is_final() && !self.lets_go_on() {
            if !self.mail.queue.is_empty() {
                return true;
            }
            let is_foreign = self.code.bodies.values().any(|body| body.scope.link.is_foreign());
            if !is_foreign || self.inner.stop() > Stop::Drain || !self.hear(&mut until).await {
                // A request that arrived at the last moment counts, too.
                return self.mail.mailbox.has_requests();
            }
        }
        false
    }

    /// Waits for requests of the code, at most until `until`, and queues them; returns `false` if none arrived. A request
    /// extends `until`. The mailbox also changes when the engine stops, repeatedly, and the code of a stopped engine sends
    /// no more requests.
    ///
    /// Code mostly sends its request as soon as it gets a thread. So the turn yields before it creates a timer: a new
    /// timer would wake another thread, which sleeps until the next timer.
    pub(super) async fn hear(&mut self, until: &mut std::time::Duration) -> bool {
        let left = until.saturating_sub(self.inner.clock.boot());
        if left.is_zero() {
            return false;
        }
        let (mailbox, clock) = (Arc::clone(&self.mail.mailbox), Arc::clone(&self.inner.clock));
        tokio::select! {
            biased;
            () = mailbox.changed() => {}
            () = async { tokio::task::yield_now().await; clock.sleep(left).await } => return false,
        }
        let said = mailbox.take();
        if !said.is_empty() {
            *until = self.inner.clock.boot() + HEAR_OUT;
        }
        self.mail.queue.extend(said);
        true
    }

    /// Whether an inbox must be listed before it counts as empty.
    async fn needs_look(&mut self) -> Result<bool, Lost> {
        // Moved out of the turn, because `may_take` borrows the whole turn.
        let mut waits = std::mem::take(&mut self.waits);
        let need = waits.scan_need(&self.log.run, self.now, |path| self.may_take(path));
        self.waits = waits;
        Ok(match need {
            ScanNeed::No => false,
            ScanNeed::Now => true,
            ScanNeed::Deadline(deadline) => {
                let now = self.inner.now().await?;
                self.waits.is_over(deadline, now.at, now.uncertainty)
            }
        })
    }

    /// Scans the inboxes and folds notes about late signals, so that a sender's late signal precedes its next one.
    async fn look_into_inboxes(&mut self) -> Result<(), Lost> {
        let mut found = look_at_signals(&self.inner, &self.log.run, None).await?;
        // All other control requests come with a wake-up, and are folded between two entries.
        found.controls.retain(|(_, control)| matches!(control.order, Order::Late { .. }));
        self.fold(found).await
    }

    /// Records that a wait consumes its signal, or all signals of its quorum.
    async fn take_signals(&mut self, path: &Path, taken: Vec<Taken>, payload: &Payload) -> Result<(), Lost> {
        let Some(wait) = self.open_wait(path) else { return Ok(()) };
        let patch = match self.on_receive(path, payload).await {
            Ok(patch) => patch,
            Err(failure) => {
                self.note_refused(&taken);
                return self.refuse_signal(path, &failure);
            }
        };
        let suffixes: Vec<String> = taken.iter().map(|taken| taken.signal.clone()).collect();
        let (cursor, floor) = self.log.run.read_up_to(&wait, &suffixes, &self.waits.inboxes);
        let data = self.log.data(Some(path), payload);
        let received = SignalReceived {
            point: path.clone(),
            name: wait.name.clone(),
            signals: taken,
            at: self.now,
            payload: data.clone(),
            patch,
            cursor,
            floor,
        };
        let losers = self.log.run.losers_to(path);
        self.log.stage(received, self.now)?;
        if let Some(seen) = self.waits.inboxes.names.get_mut(&wait.name) {
            suffixes.iter().for_each(|suffix| seen.remove(suffix));
        }
        self.leave_index(path, &wait);
        for loser in losers.into_iter().filter(|_| !deliberate_bug!(LosersStayOpen)) {
            self.close_wait(&loser, Closing::Lost)?;
        }
        self.plan.releases.push(Release::Output(path.clone(), data));
        self.pass(path);
        Ok(())
    }

    /// Returns the signals that a wait consumes, and the payload for its code.
    fn read_signals(&self, path: &Path, suffixes: &[String]) -> Option<(Vec<Taken>, Payload)> {
        let wait = self.open_wait(path)?;
        let read = &self.waits.inboxes.names.get(&wait.name)?.signals;
        let signals: Vec<&Arc<Signal>> = suffixes.iter().map(|suffix| read.get(suffix)).collect::<Option<_>>()?;
        let taken =
            |(suffix, signal): (&String, &&Arc<Signal>)| Taken { signal: suffix.clone(), by: signal.source.by.clone() };
        Some((suffixes.iter().zip(&signals).map(taken).collect(), together(&wait, &signals)))
    }

    fn open_wait(&self, path: &Path) -> Option<Wait> {
        let point = self.log.run.points.get(path).filter(|point| !point.status.is_settled())?;
        point.wait.as_deref().cloned()
    }

    /// Calls the `on_receive` code of a node, which updates the run's data from a signal.
    async fn on_receive(&self, path: &Path, payload: &Payload) -> Result<Option<Map<String, Value>>, Failure> {
        match self.workflow.node_code(path).and_then(|code| code.on_receive.clone()) {
            Some(code) => self.changed_by(|data| code(data, payload.clone())).await,
            None => Ok(None),
        }
    }

    /// Runs code on the run's data; a panic in it is a failure that is retried.
    async fn changed_by(
        &self,
        code: impl FnOnce(Payload) -> BoxFuture<'static, Changed>,
    ) -> Result<Option<Map<String, Value>>, Failure> {
        let before = self.data();
        let data = data_payload(&before, &self.code.input);
        let code = panics::catch(|| code(data)).map_err(|panic| Failure::panic(&*panic))?;
        let after = Caught(code).await?;
        let patch = after.and_then(|after| crate::scope::patch_of(&before, &after));
        let returned = crate::mailbox::Returned { result: Payload::null(), patch };
        Ok(self.check_data(returned)?.patch)
    }

    /// Records that users' code failed on a signal. The signal stays in the inbox: the code is retried, or the run fails.
    fn refuse_signal(&mut self, path: &Path, failure: &Failure) -> Result<(), Lost> {
        let Some(node) = self.workflow.node(path, &self.log.run) else { return Ok(()) };
        let point = self.log.run.points.get(path);
        let refused = point.filter(|point| point.wait.as_ref().is_some_and(|wait| wait.again.is_some()));
        let attempt = refused.map_or(1, |point| point.attempt.saturating_add(1));
        let error = failure.clone().at(path).fault().clone();
        let run_ends = self.phase.is_ending();
        let retry_at = retry_at_after(failure.outcome(), attempt, &node.retry, self.now, fastrand::f64());
        match retry_at.filter(|_| !run_ends) {
            Some(retry_at) => {
                self.log.stage(SignalRefused { point: path.clone(), attempt, at: self.now, error, retry_at }, self.now)
            }
            None => self.fail_wait(&node, error),
        }
    }

    /// Fails a waiting node of a graph. As with a step, the run fails, is paused, or continues without it.
    fn fail_wait(&mut self, node: &wigwag_core::Node, error: Fault) -> Result<(), Lost> {
        match node.on_failure {
            OnFailure::Pause => {
                // The wait stays open: a signal that arrives while the run is paused is in time.
                self.pause_for_failure(error)
            }
            OnFailure::Continue => {
                self.close_wait(&node.name, Closing::Lost)?;
                self.pass(&node.name);
                Ok(())
            }
            OnFailure::Fail => {
                self.phase.end(wigwag_core::Ending::Failed(error));
                Ok(())
            }
        }
    }

    /// Records the timeout of a wait.
    async fn time_out(&mut self, path: &Path) -> Result<(), Lost> {
        let Some(wait) = self.open_wait(path) else { return Ok(()) };
        let node = self.workflow.node(path, &self.log.run).filter(|node| node.kind == NodeKind::Signal);
        let (mut error, mut patch) = (None, None);
        if let Some(node) = &node {
            let code = self.workflow.node_code(path).and_then(|code| code.on_timeout.clone());
            match &code {
                None => error = Some(Fault::signal_timeout().at(path)),
                Some(code) => match self.changed_by(|data| code(data)).await {
                    Ok(changed) => patch = changed,
                    Err(failure) => error = Some(failure.at(path).fault().clone()),
                },
            }
            if let (Some(error), OnFailure::Pause) = (&error, node.on_failure) {
                return self.fail_wait(node, error.clone());
            }
        }
        let timeout = SignalTimeout { point: path.clone(), at: self.now, error: error.clone(), patch };
        self.log.stage(timeout, self.now)?;
        metrics::counter!("wigwag_signals_timeout_total").increment(1);
        self.leave_index(path, &wait);
        match (node, error) {
            (Some(node), Some(error)) if node.on_failure == OnFailure::Fail => self.fail_wait(&node, error),
            (Some(node), _) => {
                self.pass(&node.name);
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    /// Closes a wait that has no signal.
    pub(super) fn close_wait(&mut self, path: &Path, why: Closing) -> Result<(), Lost> {
        let Some(wait) = self.open_wait(path) else { return Ok(()) };
        self.log.stage(SignalClosed { point: path.clone(), why, at: self.now }, self.now)?;
        self.leave_index(path, &wait);
        Ok(())
    }

    /// Closes the open waits of a run that ends; returns `false` if the entry has no room for all of them.
    pub(super) fn close_waits(&mut self, why: Closing) -> Result<bool, Lost> {
        let open: Vec<Path> = self.log.run.waits().map(|(path, _)| path.clone()).collect();
        for path in &open {
            if self.log.is_full() {
                return Ok(false);
            }
            self.close_wait(path, why)?;
        }
        Ok(!self.log.is_full())
    }

    /// Takes a wait that is over out of the index, unless another opened with it waits for the same.
    fn leave_index(&mut self, path: &Path, wait: &Wait) {
        let same = |other: &Wait| other.name == wait.name && other.seq == wait.seq;
        let mut others = self.log.run.waits().filter(|(other, _)| *other != path);
        // A wait that closes in the entry that opened it was never put into the index.
        let stays = deliberate_bug!(IndexNotLeft);
        if wait.seq < self.log.run.seq && !stays && !others.any(|(_, point)| point.wait.as_deref().is_some_and(same)) {
            self.plan.around.delete.push(waiting_key(&self.log.run, wait));
        }
    }

    /// Puts the waits that the staged entry leaves open into the index; the index is written before the entry.
    pub(super) fn enter_index(&mut self) {
        let run = &self.log.run;
        let fresh = run.waits().filter_map(|(path, point)| Some((path, point, point.wait.as_deref()?)));
        let puts: std::collections::BTreeMap<String, bytes::Bytes> = fresh
            .filter(|(_, _, wait)| wait.seq == run.seq)
            .map(|(path, point, wait)| (waiting_key(run, wait), waiting_facts(run, path, point)))
            .collect();
        self.plan.around.before.extend(puts);
    }
}

/// Returns the result of a wait: a single payload unchanged, several as an array.
fn together(wait: &Wait, signals: &[&Arc<Signal>]) -> Payload {
    match signals {
        [only] if wait.quorum <= 1 => only.payload.clone(),
        many => {
            let texts: Vec<&str> = many.iter().map(|signal| signal.payload.text()).collect();
            let text = format!("[{}]", texts.join(","));
            serde_json::from_str(&text).expect("an array of JSON texts is JSON")
        }
    }
}

/// Whether a point that is recorded as open is a wait.
pub(super) fn is_open_wait(run: &Run, path: &Path) -> bool {
    run.points.get(path).is_some_and(|point| point.kind == PointKind::Wait && !point.status.is_settled())
}
