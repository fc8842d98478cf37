//! Waits take signals from their inboxes, or are timed out.
//!
//! The order: an inbox is listed, then a wait takes what is there and the entry that says so is written; or the wait is
//! recorded, and the inbox is listed **again** after that entry. A sender puts its signal, then reads the run, and puts
//! a hint if a wait is open. One of the two sees the other.
//!
//! What if we die here? Until the entry is there nothing was taken, and the next owner finds the same signals. After
//! it, the record answers. Code is offered a signal only at waits that it waits at in this turn: one that lost a race
//! takes nothing, whether or not its loss was recorded.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::try_join_all;
use serde_json::{Map, Value};
use tracing::warn;
use wigwag_core::mutation::{Mutation, is_mutated};
use wigwag_core::{
    Closing, Decision, Fault, Inbox, Inboxes, Key, Mode, Name, NodeKind, OnFailure, Order, Path, PauseCause, Payload,
    Point, PointKind, Run, RunPaused, Seen, Signal, SignalClosed, SignalReceived, SignalRefused, SignalTimeout,
    SignalWaiting, Taken, Time, Wait, limits, prefix,
};
use wigwag_store::Listed;

use super::sources::{Found, look_at_signals};
use super::{OpenSlot, Release, Turn};
use crate::error::Result;
use crate::failure::{Failure, permanent};
use crate::inner::Inner;
use crate::log::Lost;
use crate::mailbox::{Heard, Reply, Slot, Spec};
use crate::pages::Pages;
use crate::panics;
use crate::scope::Scope;
use crate::workflow::{Workflow, data_payload};

/// How long code that was told of its signal may take to say what comes next, before it gets an entry of its own.
const HEAR_OUT: std::time::Duration = std::time::Duration::from_millis(20);

/// What a wait of code was told.
#[derive(Debug)]
pub(super) struct Offer {
    heard: Heard,
    scope: Arc<Scope>,
    /// How often the code had been polled before.
    polls: u64,
}

/// The names that open waits wait for.
pub(crate) fn names_waited_for(run: &Run) -> BTreeSet<Name> {
    run.waits().filter_map(|(_, point)| Some(point.wait.as_ref()?.name.clone())).collect()
}

/// What lies in the inboxes of these names, of all that is listed below `signals/`.
pub(crate) fn sort_inboxes(run: &Run, names: &BTreeSet<Name>, since: Time, listed: &[Listed]) -> Inboxes {
    let mut found = Inboxes { since, names: names.iter().map(|name| (name.clone(), Seen::default())).collect() };
    for listed in listed {
        if let Ok(Key::Signal { name, suffix, .. }) = listed.key.parse::<Key>()
            && let Some(seen) = found.names.get_mut(&name)
        {
            note(run, &name, suffix, seen);
        }
    }
    add_late(run, &mut found);
    found
}

/// The same by one listing for each name, from where it was read before.
pub(crate) async fn list_inboxes(inner: &Inner, run: &Run, names: &BTreeSet<Name>, since: Time) -> Result<Inboxes> {
    let mut found = Inboxes { since, ..Inboxes::default() };
    for name in names {
        let prefix = prefix::inbox(&run.run, name);
        let floor = run.signals.get(name).map(|inbox| inbox.floor.as_str()).unwrap_or_default();
        let mut seen = Seen::default();
        let mut pages = Pages::after(&*inner.store, &prefix, &format!("{prefix}{floor}"));
        while let Some(entries) = pages.next().await? {
            for listed in entries {
                if let Ok(Key::Signal { suffix, .. }) = listed.key.parse::<Key>() {
                    note(run, name, suffix, &mut seen);
                }
            }
        }
        found.names.insert(name.clone(), seen);
    }
    add_late(run, &mut found);
    Ok(found)
}

fn note(run: &Run, name: &Name, suffix: String, seen: &mut Seen) {
    let floor = run.signals.get(name).map(|inbox| inbox.floor.as_str()).unwrap_or_default();
    let is_taken = || run.signals.get(name).is_some_and(|inbox| !inbox.offers(&suffix, Mode::Queue));
    if suffix.as_str() > floor && !is_taken() {
        if wigwag_core::stamp_of(&suffix).is_some() {
            seen.suffixes.insert(suffix);
        } else {
            warn!(run = %run.run, %name, suffix, "passed over: it is no signal's key");
        }
    }
}

fn add_late(run: &Run, found: &mut Inboxes) {
    for (name, seen) in &mut found.names {
        if let Some(inbox) = run.signals.get(name) {
            seen.suffixes.extend(inbox.late.iter().cloned());
        }
    }
}

/// The next thing that follows from what was found; signals are read as far as that needs.
pub(crate) async fn decide(
    inner: &Inner,
    run: &Run,
    found: &mut Inboxes,
    asked: impl Fn(&Path) -> bool,
) -> Result<Option<Decision>> {
    let fits = |_: &Path, wait: &Wait, signal: &Signal| match (wait.rejects_sender(&signal.source), &wait.schema) {
        (Some(_), _) => false,
        (None, Some(schema)) => inner.schemas.check(schema, &signal.payload).is_ok(),
        (None, None) => true,
    };
    loop {
        let decision = run.decide(found, &asked, fits);
        // Before nothing counts as having come in time, all that came must have been read.
        let settled = matches!(decision, Some(Decision::Receive { .. }));
        if settled {
            return Ok(decision);
        }
        if !read_more(inner, run, found, &asked).await? {
            inner.misfits.remember(run, found, fits);
            return Ok(decision);
        }
    }
}

/// Reads some more of the signals that open waits may take; says whether there were any.
async fn read_more(inner: &Inner, run: &Run, found: &mut Inboxes, asked: impl Fn(&Path) -> bool) -> Result<bool> {
    let mut wanted: BTreeSet<(Name, String)> = BTreeSet::new();
    for (_, point, wait) in run.waits_in_order().into_iter().filter(|(path, ..)| asked(path)) {
        let Some(seen) = found.names.get(&wait.name) else { continue };
        let empty = Inbox::default();
        let inbox = run.signals.get(&wait.name).unwrap_or(&empty);
        let is_known = |one: &String| seen.signals.contains_key(one) || seen.misfits.contains(one);
        let is_unread = |one: &&String| !is_known(one) && wait.is_offered(point, inbox, one);
        let unread = seen.suffixes.iter().filter(is_unread);
        let some: Vec<&String> = match wait.mode {
            Mode::Queue => unread.take(limits::current().signals_read_at_once).collect(),
            Mode::Latest => unread.rev().take(limits::current().signals_read_at_once).collect(),
        };
        wanted.extend(some.into_iter().map(|suffix| (wait.name.clone(), suffix.clone())));
    }
    let reads = wanted.iter().map(|(name, suffix)| read_signal(inner, run, name, suffix));
    for ((name, suffix), signal) in wanted.iter().zip(try_join_all(reads).await?) {
        let Some(seen) = found.names.get_mut(name) else { continue };
        match signal {
            Some(signal) => _ = seen.signals.insert(suffix.clone(), signal),
            None => _ = seen.suffixes.remove(suffix),
        }
    }
    Ok(!wanted.is_empty())
}

async fn read_signal(inner: &Inner, run: &Run, name: &Name, suffix: &str) -> Result<Option<Arc<Signal>>> {
    let key = Key::Signal { run: run.run.clone(), name: name.clone(), suffix: suffix.into() }.to_string();
    let Some(object) = crate::log::get_named(&*inner.store, &key).await? else { return Ok(None) };
    match Signal::read(&object.body) {
        Ok(signal) => Ok(Some(Arc::new(signal))),
        Err(refusal) => {
            warn!(key, %refusal, "passed over");
            Ok(None)
        }
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
        };
        self.stage_wait(waiting)
    }

    /// Returns an open wait of a race. After a restart from a later one, the first may have its signal.
    fn open_wait_of_race(&self, race: &Path) -> Option<&Point> {
        let is_rival = |point: &Point| point.wait.as_ref().is_some_and(|wait| wait.race.as_ref() == Some(race));
        self.log.run.waits().find(|(path, point)| *path == race || is_rival(point)).map(|(_, point)| point)
    }

    /// Fails a wait for which there is no room. That is recorded: run again, the code must learn the same, however many
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
        };
        self.log.stage(waiting, self.now)?;
        let error = failure.clone().at(path).fault().clone();
        let over = SignalTimeout { point: path.clone(), at: self.now, error: Some(error.clone()), patch: None };
        self.log.stage(over, self.now)?;
        let reply = Reply::Failed { failure: Failure::recorded(error), at: self.now };
        self.releases.push(Release::Reply(Arc::clone(&open.slot), reply));
        Ok(())
    }

    /// Records that a node of a graph waits for its signal.
    pub(super) fn enter_signal(&mut self, node: &wigwag_core::Node) -> Result<(), Lost> {
        let Some(signal) = node.signal.clone() else { return Ok(()) };
        if let Some(failure) = self.too_many_waits() {
            let failed = failure.at(&node.name).fault().clone();
            self.ending.get_or_insert(wigwag_core::Ending::Failed(failed));
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
        };
        self.stage_wait(waiting)
    }

    /// Whether the run has as many open waits as it may have.
    fn too_many_waits(&self) -> Option<Failure> {
        let max = limits::current().waits_max;
        let is_full = self.log.run.waits().take(max).count() == max;
        is_full.then(|| permanent(format!("a run waits for at most {max} signals at once")))
    }

    fn stage_wait(&mut self, waiting: SignalWaiting) -> Result<(), Lost> {
        if self.is_new {
            // Nobody can have sent anything to a run that is not there yet.
            self.inboxes.since = self.inboxes.since.max(self.now);
            self.inboxes.names.entry(waiting.name.clone()).or_default();
        } else {
            self.unseen.insert(waiting.point.clone());
            self.unlooked = true;
            // What the waits before it did not take, this one may.
            if let Some(seen) = self.inboxes.names.get_mut(&waiting.name) {
                seen.misfits.clear();
            }
        }
        self.log.stage(waiting, self.now)
    }

    /// Whether somebody waits there: a node of the graph, or code that looked at the wait since it was last told.
    pub(super) fn is_asked(&self, path: &Path) -> bool {
        let Some(open) = self.slots.get(path) else {
            return self.workflow.definition.step(path).is_some_and(|node| node.kind == NodeKind::Signal);
        };
        matches!(open.spec, Spec::Wait { .. }) && self.bodies.contains_key(&open.body) && open.slot.is_awaited()
    }

    /// The next moment at which a wait is over.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let asked = self.log.run.waits().filter(|(path, _)| self.is_asked(path));
        // One on whose signal users' code failed is looked at again when the code is asked again: by a look that began
        // after that time for sure.
        let is_ahead = |again: &Time| *again > self.now || *again > self.inboxes.since;
        let again = |point: &Point| point.wait.as_ref().and_then(|wait| wait.again).filter(is_ahead);
        asked.filter_map(|(_, point)| again(point).or(point.until)).min()
    }

    /// Lets waits take what is there, and times them out; says whether any was settled.
    ///
    /// A node of a graph takes its signal at once. Code is told of its own first and takes it by hearing it, because
    /// it may at that moment turn to something else; what follows shares the entry. No step of it begins before the
    /// entry is durable.
    pub(super) async fn receive(&mut self) -> Result<bool, Lost> {
        self.take_back_offers();
        let mut any = false;
        while !self.is_held_up() && !self.log.is_full() && self.log.run.waits().next().is_some() {
            if !self.mail.is_empty() || self.mailbox.has_requests() || self.is_about_to_reply() {
                // What the code has just said or is about to hear comes first: a wait may be over by it.
                break;
            }
            let mut found = std::mem::take(&mut self.inboxes);
            let decision = decide(&self.inner, &self.log.run, &mut found, |path| self.may_take(path)).await;
            self.inboxes = found;
            let decision = decision?;
            let calls_code = |decision: &Decision| self.workflow.calls_code_at(decision.point());
            self.own_before_calling(decision.as_ref().is_some_and(calls_code)).await?;
            match decision {
                Some(decision) if self.slots.contains_key(decision.point()) => {
                    self.offer(&decision);
                    return Ok(any);
                }
                Some(Decision::Receive { point, signals }) => {
                    if let Some((taken, payload)) = self.read_signals(&point, &signals) {
                        self.take_signals(&point, taken, &payload)?;
                    }
                }
                Some(Decision::TimeOut { point }) => self.time_out(&point)?,
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
        // What one wait was told of, another of that name is not.
        let told = !self.offers.is_empty() && self.offers.keys().any(|other| name(other) == name(path));
        // Code that was told something hears that first.
        let is_idle = |open: &OpenSlot| self.bodies.get(&open.body).is_some_and(|body| body.scope.is_idle());
        let listens = self.slots.get(path).is_none_or(is_idle);
        self.is_asked(path) && listens && !told
    }

    /// Whether code is to be told how a point came out, once the entry that is being made is durable.
    fn is_about_to_reply(&self) -> bool {
        let is_outcome = |reply: &Reply| !matches!(reply, Reply::Run { .. });
        self.releases.iter().any(|release| matches!(release, Release::Reply(_, reply) if is_outcome(reply)))
    }

    /// Tells code what its wait takes, or that nothing came in time; those that race with it are told too.
    fn offer(&mut self, decision: &Decision) {
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
            self.tell(&rival, others.clone());
        }
        self.tell(&point, heard);
    }

    fn tell(&mut self, path: &Path, heard: Heard) {
        let Some(open) = self.slots.get(path) else { return };
        let Some(body) = self.bodies.get(&open.body) else { return };
        let offer = Offer { heard: heard.clone(), scope: Arc::clone(&body.scope), polls: body.scope.polls() };
        open.slot.reply(Reply::Heard { heard, at: self.now });
        self.offers.insert(path.clone(), offer);
        if is_mutated(Mutation::RecordedUnheard)
            && let Some(open) = self.slots.get(path)
        {
            let slot = Arc::clone(&open.slot);
            let _ = self.take_heard(path, &slot);
        }
    }

    /// Code has heard what it was told: now it is so.
    pub(super) fn take_heard(&mut self, path: &Path, slot: &Arc<Slot>) -> Result<(), Lost> {
        if !self.slots.get(path).is_some_and(|open| Arc::ptr_eq(&open.slot, slot)) {
            return Ok(());
        }
        self.slots.remove(path);
        match self.offers.remove(path).map(|offer| offer.heard) {
            Some(Heard::Signals { taken, payload }) => self.take_signals(path, taken, &payload),
            Some(Heard::TimedOut) => self.time_out(path),
            // That it lost a race is recorded with the winner.
            Some(Heard::Lost) | None => Ok(()),
        }
    }

    /// Code that was polled and did not listen does not want it now: it goes back into the inbox.
    fn take_back_offers(&mut self) {
        let polled = self.offers.iter().filter(|(_, offer)| offer.scope.polls() > offer.polls);
        let polled: Vec<Path> = polled.map(|(path, _)| path.clone()).collect();
        for path in polled {
            if self.slots.get(&path).is_some_and(|open| open.slot.retract()) {
                self.offers.remove(&path);
            }
        }
    }

    /// What was told to code that is gone is not heard.
    pub(super) fn forget_offers(&mut self) {
        let slots = &self.slots;
        self.offers.retain(|path, _| slots.contains_key(path));
    }

    /// Lets code that was told something go on, so that what it asks for next shares the entry; says whether it did.
    ///
    /// Code that blocks its thread is not waited for.
    pub(super) async fn hear_out(&mut self) -> bool {
        let unheard = self.offers.values().any(|offer| offer.scope.polls() == offer.polls);
        // Code may have been quicker than this turn: on another thread it may have gone on since it was told. What it
        // asked for is in the mailbox then, and without a look there it would cost an entry of its own.
        let told = unheard || !self.offers.is_empty() && self.mailbox.has_requests();
        while self.offers.values().any(|offer| offer.scope.polls() == offer.polls) {
            if !self.hear().await {
                return false;
            }
        }
        told
    }

    /// Takes what code says, but does not wait long for it; `false` if it said nothing.
    ///
    /// Code mostly says it as soon as it gets a thread. So it gets one before a timer is made: that would wake another
    /// thread, one that sleeps until the next timer and must be told that there is an earlier one.
    pub(super) async fn hear(&mut self) -> bool {
        let (mailbox, clock) = (Arc::clone(&self.mailbox), Arc::clone(&self.inner.clock));
        tokio::select! {
            biased;
            () = mailbox.changed() => {}
            () = async { tokio::task::yield_now().await; clock.sleep(HEAR_OUT).await } => return false,
        }
        self.mail.extend(mailbox.take());
        true
    }

    /// Whether an inbox must be listed before it can be said that nothing is there.
    async fn needs_look(&mut self) -> Result<bool, Lost> {
        let asked: Vec<(Path, Name, Option<Time>)> = self
            .log
            .run
            .waits_in_order()
            .into_iter()
            .filter(|(path, ..)| self.may_take(path))
            .map(|(path, point, wait)| (path.clone(), wait.name.clone(), wait.again.max(point.until)))
            .collect();
        let fresh =
            |(path, name, _): &(Path, Name, _)| self.unseen.contains(path) || !self.inboxes.names.contains_key(name);
        if asked.iter().any(fresh) {
            return Ok(true);
        }
        let over: Vec<Time> = asked.iter().filter_map(|(_, _, until)| *until).filter(|at| *at <= self.now).collect();
        if is_mutated(Mutation::TimeoutWithoutLook) {
            self.inboxes.since = self.inboxes.since.max(self.now);
        }
        let Some(last) = over.into_iter().filter(|at| *at > self.inboxes.since).max() else {
            self.look_at = None;
            return Ok(false);
        };
        // A wait is over when by the cautious side of the clock its time has come.
        let now = self.inner.now().await?;
        self.look_at = Some(last.after(now.uncertainty));
        Ok(now.at.before(now.uncertainty) >= last)
    }

    /// Looks into the inboxes, and heeds late notes: whoever sent one before it sent the next signal is heard in order.
    async fn look_into_inboxes(&mut self) -> Result<(), Lost> {
        let mut found = Found::default();
        look_at_signals(&self.inner, &self.log.run, &mut found).await?;
        // All else that is asked comes with a hint, and is folded between two entries.
        found.controls.retain(|(_, control)| matches!(control.order, Order::Late { .. }));
        self.look_at = None;
        self.fold(found).await
    }

    /// A wait takes its signal, or as many as it wants.
    fn take_signals(&mut self, path: &Path, taken: Vec<Taken>, payload: &Payload) -> Result<(), Lost> {
        let Some(wait) = self.open_wait(path) else { return Ok(()) };
        let patch = match self.on_receive(path, payload) {
            Ok(patch) => patch,
            Err(failure) => {
                self.note_refused(&taken);
                return self.refuse_signal(path, &failure);
            }
        };
        let suffixes: Vec<String> = taken.iter().map(|taken| taken.signal.clone()).collect();
        let (cursor, floor) = self.log.run.read_up_to(&wait, &suffixes, &self.inboxes);
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
        if let Some(seen) = self.inboxes.names.get_mut(&wait.name) {
            suffixes.iter().for_each(|suffix| seen.remove(suffix));
        }
        self.leave_index(path, &wait);
        for loser in losers.into_iter().filter(|_| !is_mutated(Mutation::LosersStayOpen)) {
            self.close_wait(&loser, Closing::Lost)?;
        }
        self.releases.push(Release::Output(path.clone(), data));
        if let Some(frontier) = &mut self.frontier {
            frontier.passed(path);
        }
        Ok(())
    }

    /// The signals that a wait takes, as it gets them.
    fn read_signals(&self, path: &Path, suffixes: &[String]) -> Option<(Vec<Taken>, Payload)> {
        let wait = self.open_wait(path)?;
        let read = &self.inboxes.names.get(&wait.name)?.signals;
        let signals: Vec<&Arc<Signal>> = suffixes.iter().map(|suffix| read.get(suffix)).collect::<Option<_>>()?;
        let taken =
            |(suffix, signal): (&String, &&Arc<Signal>)| Taken { signal: suffix.clone(), by: signal.source.by.clone() };
        Some((suffixes.iter().zip(&signals).map(taken).collect(), together(&wait, &signals)))
    }

    fn open_wait(&self, path: &Path) -> Option<Wait> {
        let point = self.log.run.points.get(path).filter(|point| !point.status.is_settled())?;
        point.wait.as_deref().cloned()
    }

    /// Asks users' code what a signal makes of the run's data.
    fn on_receive(&self, path: &Path, payload: &Payload) -> Result<Option<Map<String, Value>>, Failure> {
        let code = self.workflow.node_code(path).and_then(|code| code.on_receive.clone());
        self.changed_by(code.map(|code| move |data: &Payload| code(data, payload)))
    }

    /// Runs code on the run's data; a panic in it is a failure that another try may mend.
    fn changed_by(
        &self,
        code: Option<impl FnOnce(&Payload) -> Result<Option<Map<String, Value>>, Failure>>,
    ) -> Result<Option<Map<String, Value>>, Failure> {
        let Some(code) = code else { return Ok(None) };
        let before = self.data();
        let data = data_payload(&before, &self.input);
        let after = panics::catch(|| code(&data)).unwrap_or_else(|panic| Err(Failure::panic(&*panic)))?;
        let patch = after.and_then(|after| crate::scope::patch_of(&before, &after));
        let returned = crate::mailbox::Returned { result: Payload::null(), patch };
        Ok(self.check_data(returned)?.patch)
    }

    /// Users' code failed on a signal. The signal stays where it is: the code is asked again, or the run fails.
    fn refuse_signal(&mut self, path: &Path, failure: &Failure) -> Result<(), Lost> {
        let Some(node) = self.workflow.node(path, &self.log.run) else { return Ok(()) };
        let point = self.log.run.points.get(path);
        let refused = point.filter(|point| point.wait.as_ref().is_some_and(|wait| wait.again.is_some()));
        let attempt = refused.map_or(1, |point| point.attempt.saturating_add(1));
        let error = failure.clone().at(path).fault().clone();
        match self.retry_at(failure, attempt, &node.retry, self.now) {
            Some(retry_at) => {
                self.log.stage(SignalRefused { point: path.clone(), attempt, at: self.now, error, retry_at }, self.now)
            }
            None => self.fail_wait(&node, error),
        }
    }

    /// A node of a graph that waits cannot go on: as with a step, the run fails, is paused, or goes on without it.
    fn fail_wait(&mut self, node: &wigwag_core::Node, error: Fault) -> Result<(), Lost> {
        match node.on_failure {
            OnFailure::Pause => {
                // The wait stays open: a signal that comes while the run is paused is in time.
                let error = Some(error);
                let paused =
                    RunPaused { why: PauseCause::Failure, error, reason: None, control: None, refused: None, by: None };
                self.log.stage(paused, self.now)
            }
            OnFailure::Continue => {
                self.close_wait(&node.name, Closing::Lost)?;
                if let Some(frontier) = &mut self.frontier {
                    frontier.passed(&node.name);
                }
                Ok(())
            }
            OnFailure::Fail => {
                if self.ending.is_none() {
                    self.ending = Some(wigwag_core::Ending::Failed(error));
                }
                Ok(())
            }
        }
    }

    /// Nothing came in time.
    fn time_out(&mut self, path: &Path) -> Result<(), Lost> {
        let Some(wait) = self.open_wait(path) else { return Ok(()) };
        let node = self.workflow.node(path, &self.log.run).filter(|node| node.kind == NodeKind::Signal);
        let (mut error, mut patch) = (None, None);
        if let Some(node) = &node {
            let code = self.workflow.node_code(path).and_then(|code| code.on_timeout.clone());
            match &code {
                None => error = Some(Fault::signal_timeout().at(path)),
                Some(code) => match self.changed_by(Some(|data: &Payload| code(data))) {
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
                if let Some(frontier) = &mut self.frontier {
                    frontier.passed(&node.name);
                }
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    /// A wait is over without a signal.
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
        // One that is over in the entry that opened it never was there.
        let stays = is_mutated(Mutation::IndexNotLeft);
        if wait.seq < self.log.run.seq && !stays && !others.any(|(_, point)| point.wait.as_deref().is_some_and(same)) {
            self.around.delete.push(waiting_key(&self.log.run, wait));
        }
    }

    /// Puts the waits that the entry which is being made leaves open into the index; it is written before that entry.
    pub(super) fn enter_index(&mut self) {
        let run = &self.log.run;
        let fresh = run.waits().filter_map(|(path, point)| Some((path, point, point.wait.as_deref()?)));
        let puts: std::collections::BTreeMap<String, bytes::Bytes> = fresh
            .filter(|(_, _, wait)| wait.seq == run.seq)
            .map(|(path, point, wait)| (waiting_key(run, wait), waiting_facts(run, path, point)))
            .collect();
        self.around.before.extend(puts);
    }
}

/// What a wait gives: one payload as it came, several as an array.
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

pub(crate) fn waiting_key(run: &Run, wait: &Wait) -> String {
    Key::Waiting { name: wait.name.clone(), run: run.run.id.clone(), seq: wait.seq }.to_string()
}

/// What the index says of a wait.
pub(crate) fn waiting_facts(run: &Run, path: &Path, point: &Point) -> bytes::Bytes {
    let mut facts = serde_json::json!({
        "type": run.of,
        "run": run.run,
        "point": path,
        "since": point.started_at,
    });
    if let Some(until) = point.until {
        facts["deadline"] = serde_json::json!(until);
    }
    format!("{facts}\n").into()
}

/// Whether a point that is recorded as open is a wait.
pub(super) fn is_open_wait(run: &Run, path: &Path) -> bool {
    run.points.get(path).is_some_and(|point| point.kind == PointKind::Wait && !point.status.is_settled())
}
