//! What waits for an actor that is away.
//!
//! Order of writes: a message is stored, then its sender is told `queued`; it is delivered, then removed. Dying between the first
//! two leaves a message whose sender asks again and is recognised by its key; between the last two, one that is delivered again
//! under the same id. Puts of one address run one after the other, each with all that came meanwhile, so that whichever is
//! the last to land, nothing is there without what came before it. Nothing is read from the queue while one is under way.

use std::sync::Arc;

use bytes::Bytes;

use crate::Mutation;
use crate::key::{Waiting, message_hash};
use crate::outbox::{Carried, Out};
use crate::refusal;
use crate::seen::{Answer, Mark, Said};
use crate::settings::Millis;
use crate::{ActorId, SessionId};

use super::actor::{Past, Phase};
use super::run::Signalling;
use super::{Done, Hub, Op, Ticket};

/// What an outcome is waited for.
#[derive(Debug)]
pub(super) enum Job {
    Look(ActorId),
    Raise(ActorId),
    Put(ActorId, Vec<(Waiting, Out)>),
    Load(ActorId),
    Remove(ActorId, Waiting),
    Signal(Box<Signalling>),
}

impl Hub {
    /// An effect was done, or not.
    pub fn done(&mut self, ticket: Ticket, done: Done, now: Millis) {
        let Some(job) = self.jobs.remove(&ticket) else { return };
        match (job, done) {
            (Job::Look(id), Done::Looked { known, waiting }) => self.looked(id, known, waiting, now),
            (Job::Raise(id), Done::Raised { version, waiting }) => self.raised(id, version, waiting, now),
            (Job::Put(id, messages), Done::Stored) => self.stored(id, messages, now),
            (Job::Load(id), Done::Loaded(found)) => self.loaded(id, found, now),
            (Job::Remove(id, waiting), Done::Stored) => self.removed(id, &waiting),
            (Job::Signal(signalling), Done::Signalled(outcome)) => self.signalled(*signalling, outcome, now),
            (job, Done::Failed(why)) => self.failed(job, why, now),
            (job, _) => self.failed(job, String::from("an outcome of something else"), now),
        }
        self.tell_arrived(now);
    }

    fn failed(&mut self, job: Job, why: String, now: Millis) {
        self.counts.failed += 1;
        match job {
            Job::Look(id) => self.not_looked(id, &why, now),
            Job::Raise(id) => self.not_raised(id, &why, now),
            Job::Put(id, messages) => self.not_stored(id, messages, &why, now),
            Job::Load(id) => self.not_loaded(id, &why, now),
            Job::Remove(id, waiting) => self.not_removed(id, waiting),
            Job::Signal(signalling) => self.signalled(*signalling, Err(super::SignalRefusal::Later(why)), now),
        }
    }

    /// Brings a message to its target, wherever that is.
    pub(super) fn route(&mut self, out: Out, now: Millis) {
        let carried = &out.carried;
        let target = carried.target;
        let Some(actor) = self.actors.get_mut(target) else { return };
        actor.used_at = now;
        if actor.holds() && !(self.settings.has(Mutation::NotHeld) && actor.past != Past::Unknown) {
            return self.hold(out, now);
        }
        if let Some(session) = actor.owner {
            return self.deliver(session, out, now);
        }
        match actor.past {
            _ if actor.is_session => self.nobody(&out, now),
            Past::Registered if carried.queue => self.enqueue(out, now),
            Past::Never if carried.queue => self.nobody(&out, now),
            Past::Registered | Past::Never => self.counts.absent += 1,
            // A tell is lost if its target is away, whether it was ever here or not.
            Past::Unknown if !carried.queue => self.counts.absent += 1,
            Past::Unknown => {
                actor.phase = Phase::Looking;
                let address = Arc::clone(&actor.address);
                self.store(Job::Look(target), Op::Look { address });
                self.hold(out, now);
            }
        }
    }

    /// Nobody has or had this address.
    fn nobody(&mut self, out: &Out, now: Millis) {
        self.counts.absent += 1;
        let carried = &out.carried;
        if carried.is_ask {
            let address = self.address(carried.target);
            self.fail(carried, &refusal::never_registered(&address), now);
        }
    }

    /// Keeps a message until the store has answered.
    fn hold(&mut self, out: Out, now: Millis) {
        let carried = &out.carried;
        let max = self.settings.drop_above;
        let actor = &mut self.actors[carried.target];
        if actor.held.len() < max {
            return actor.held.push_back(out);
        }
        self.counts.dropped += 1;
        if carried.is_ask {
            let address = self.address(carried.target);
            let refusal = refusal::queue_full(&address, "too many messages wait for this actor's registration");
            self.fail(carried, &refusal, now);
        }
    }

    pub(super) fn flush_held(&mut self, id: ActorId, now: Millis) {
        let Some(actor) = self.actors.get_mut(id) else { return };
        for out in std::mem::take(&mut actor.held) {
            self.route(out, now);
        }
    }

    /// Puts a message into a session's outbox.
    pub(super) fn deliver(&mut self, session: SessionId, out: Out, now: Millis) {
        let carried = &out.carried;
        let Some(target) = self.sessions.get(session) else { return };
        let unacknowledged = carried.require_ack && target.awaiting.is_over(&self.settings);
        if target.outbox.is_over(&self.settings) || unacknowledged {
            self.counts.dropped += 1;
            if carried.is_ask {
                let address = self.address(carried.target);
                let refusal = refusal::queue_full(&address, "too many messages wait for this actor to read them");
                self.fail(carried, &refusal, now);
            }
            return;
        }
        let (feeder, address) = (carried.feeder, carried.target);
        self.put(session, out, now);
        self.pause(session, feeder, address, now);
    }

    fn put(&mut self, session: SessionId, out: Out, now: Millis) {
        let Some(target) = self.sessions.get_mut(session) else { return };
        target.outbox.push(out.bytes, out.expires, Some(out.carried), now, &self.settings);
        self.wake(session);
    }

    /// A message was written to its target's connection.
    pub(super) fn arrived(&mut self, carried: &Carried, now: Millis) {
        self.counts.delivered += 1;
        match &carried.stored {
            Some(waiting) => self.remove(carried.target, waiting.clone()),
            None => self.answer(carried, Said::Delivered, now, now),
        }
    }

    /// Stores a message for an actor that is away.
    fn enqueue(&mut self, out: Out, now: Millis) {
        let carried = &out.carried;
        let (sender, id) = (self.address(carried.sender), carried.target);
        if out.expires < now {
            self.counts.expired += 1;
            return self.fail(carried, &refusal::expired(carried.ttl.unwrap_or_default()), now);
        }
        let hash = message_hash(&sender, &carried.id);
        let actor = &mut self.actors[id];
        if let Some(there) = actor.queue.keys().find(|waiting| waiting.hash == hash) {
            // It was stored before, by this hub or the one before it.
            let at = there.received;
            return self.answer(carried, Said::Queued, at, now);
        }
        let full = actor.queue.len() >= self.settings.queue_max && !self.settings.has(Mutation::UnboundedQueue);
        if full || actor.queue_bytes() + out.bytes.len() > self.settings.queue_bytes_max {
            self.counts.queue_full += 1;
            let what = format!("{} messages wait for this actor", actor.queue.len());
            let refusal = refusal::queue_full(&actor.address.clone(), &what);
            return self.fail(carried, &refusal, now);
        }
        let received = now.max(actor.last_received + 1);
        let expires = out.expires.min(now.saturating_add(self.settings.queue_for));
        let doubtful = actor.doubtful.remove(&hash).filter(|_| !self.settings.has(Mutation::AnotherKey));
        let waiting = doubtful.unwrap_or(Waiting { received, expires, hash });
        actor.last_received = actor.last_received.max(waiting.received);
        actor.queue.insert(waiting.clone(), out.bytes.len());
        if self.settings.has(Mutation::AnswerBeforeStored) {
            self.answer(carried, Said::Queued, waiting.received, now);
        }
        self.actors[id].unstored.push((waiting, out));
        self.store_next(id);
    }

    /// Stores what is to be stored, unless something is under way: then it goes together, after that.
    fn store_next(&mut self, id: ActorId) {
        let actor = &mut self.actors[id];
        if actor.storing || actor.unstored.is_empty() {
            return;
        }
        actor.storing = true;
        let next = std::mem::take(&mut actor.unstored);
        let address = Arc::clone(&actor.address);
        let messages = next.iter().map(|(waiting, out)| (waiting.clone(), out.bytes.clone())).collect();
        self.store(Job::Put(id, next), Op::Put { address, messages });
    }

    fn stored(&mut self, id: ActorId, messages: Vec<(Waiting, Out)>, now: Millis) {
        self.actors[id].storing = false;
        for (waiting, out) in messages {
            let carried = out.carried;
            if waiting.expires < now {
                self.counts.expired += 1;
                self.remove(id, waiting);
                self.fail(&carried, &refusal::expired(carried.ttl.unwrap_or_default()), now);
            } else {
                self.counts.queued += 1;
                self.answer(&carried, Said::Queued, waiting.received, now);
            }
        }
        self.store_next(id);
        self.go_on(id, now);
    }

    fn not_stored(&mut self, id: ActorId, messages: Vec<(Waiting, Out)>, why: &str, now: Millis) {
        self.actors[id].storing = false;
        for (waiting, out) in messages {
            let actor = &mut self.actors[id];
            actor.queue.remove(&waiting);
            actor.doubtful.insert(waiting.hash.clone(), waiting);
            self.fail(&out.carried, &refusal::internal(&format!("the message could not be stored: {why}")), now);
        }
        self.store_next(id);
        self.go_on(id, now);
    }

    fn looked(&mut self, id: ActorId, known: bool, waiting: Vec<(Waiting, usize)>, now: Millis) {
        self.set_queue(id, waiting);
        let actor = &mut self.actors[id];
        actor.past = if known { Past::Registered } else { Past::Never };
        actor.phase = Phase::Idle;
        self.go_on(id, now);
        let actor = &mut self.actors[id];
        if actor.past == Past::Never {
            // It may be registered by then: whoever asks again looks again.
            actor.past = Past::Unknown;
        }
    }

    fn not_looked(&mut self, id: ActorId, why: &str, now: Millis) {
        self.actors[id].phase = Phase::Idle;
        let held = std::mem::take(&mut self.actors[id].held);
        for carried in held.into_iter().map(|out| out.carried).filter(|carried| carried.is_ask) {
            self.fail(&carried, &refusal::internal(&format!("the store could not be asked: {why}")), now);
        }
        self.go_on(id, now);
    }

    /// What waits for an actor, as the store says: less what is being removed, and what is over.
    pub(super) fn set_queue(&mut self, id: ActorId, waiting: Vec<(Waiting, usize)>) {
        let actor = &mut self.actors[id];
        let newest = waiting.iter().map(|(waiting, _)| waiting.received).max();
        actor.last_received = actor.last_received.max(newest.unwrap_or_default());
        actor.doubtful.retain(|_, doubtful| !waiting.iter().any(|(there, _)| there == doubtful));
        actor.queue = waiting.into_iter().filter(|(waiting, _)| !actor.removing.contains(waiting)).collect();
    }

    /// Reads what waits for an actor; says whether anything does.
    pub(super) fn load(&mut self, id: ActorId) -> bool {
        let actor = &mut self.actors[id];
        let waiting: Vec<Waiting> = actor.queue.keys().cloned().collect();
        if waiting.is_empty() {
            return false;
        }
        actor.phase = Phase::Loading;
        let address = Arc::clone(&actor.address);
        self.store(Job::Load(id), Op::Load { address, waiting });
        true
    }

    fn loaded(&mut self, id: ActorId, found: Vec<(Waiting, Option<Bytes>)>, now: Millis) {
        self.actors[id].phase = Phase::Idle;
        for (waiting, body) in found {
            let Some(body) = body else {
                self.actors[id].queue.remove(&waiting);
                continue;
            };
            let out = self.revive(id, &waiting, body, now);
            let late = waiting.expires < now;
            match (self.actors[id].owner, out) {
                (_, Some(out)) if late => {
                    self.counts.expired += 1;
                    self.expired(&out.carried, now);
                }
                (Some(session), Some(out)) => {
                    self.put(session, out, now);
                    if self.settings.has(Mutation::RemoveBeforeWritten) {
                        self.remove(id, waiting);
                    }
                }
                (_, None) => {
                    // Nobody could read it: it is not what a hub has stored.
                    self.counts.unreadable += 1;
                    self.remove(id, waiting);
                }
                (None, Some(_)) => {}
            }
        }
        self.flush_held(id, now);
        self.go_on(id, now);
    }

    /// A stored message as one that is carried.
    fn revive(&mut self, id: ActorId, waiting: &Waiting, body: Bytes, now: Millis) -> Option<Out> {
        #[derive(serde::Deserialize)]
        struct Head {
            id: Box<str>,
            from: Box<str>,
            ttl: Option<u64>,
            metadata: Metadata,
        }
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata {
            original_message_id: String,
            #[serde(default)]
            require_ack: bool,
        }
        let head: Head = serde_json::from_slice(&body).ok()?;
        let sender = self.actor(&head.from, now);
        self.recognise(sender, &head.metadata.original_message_id, waiting.received, now);
        let carried = Carried {
            sender,
            feeder: SessionId::default(),
            target: id,
            mark: Mark::NOWHERE,
            id: head.metadata.original_message_id,
            trace: String::new(),
            number: 0,
            received: waiting.received,
            ttl: head.ttl,
            // It was answered when it was stored.
            is_ask: false,
            require_ack: head.metadata.require_ack,
            queue: true,
            stored_id: Some(head.id),
            stored: Some(waiting.clone()),
        };
        Some(Out { bytes: body, expires: waiting.expires, carried: Box::new(carried) })
    }

    /// A sender that was not told that its message is stored asks again: it is known, also to a hub that has not stored it.
    fn recognise(&mut self, sender: ActorId, id: &str, received: Millis, now: Millis) {
        let print = self.print(id);
        let number = self.next_number();
        let settings = &self.settings;
        let seen = &mut self.actors[sender].seen;
        if let Ok(mark) = seen.meet(print, now, settings.seen_for, settings.seen_max) {
            seen.answer(mark, Answer { number, at: received, said: Said::Queued });
        }
    }

    fn not_loaded(&mut self, id: ActorId, why: &str, now: Millis) {
        // What waits is still there, and nothing newer may go before it: whoever has the address registers again.
        let actor = &mut self.actors[id];
        actor.phase = Phase::Idle;
        if let Some(session) = actor.owner {
            let address = Arc::clone(&actor.address);
            let refusal = refusal::internal(&format!("what waits for `{address}` could not be read: {why}"));
            self.say(session, Some(&address), refusal.kind, None, &refusal.payload, "", now);
            self.end(session, super::Close::Shutdown, now);
        }
        self.flush_held(id, now);
        self.go_on(id, now);
    }

    /// A message is in its target's hands: it is not needed any more.
    pub(super) fn remove(&mut self, id: ActorId, waiting: Waiting) {
        let Some(actor) = self.actors.get_mut(id) else { return };
        actor.queue.remove(&waiting);
        if actor.removing.insert(waiting.clone()) {
            let address = Arc::clone(&actor.address);
            self.store(Job::Remove(id, waiting.clone()), Op::Remove { address, waiting });
        }
    }

    fn removed(&mut self, id: ActorId, waiting: &Waiting) {
        if let Some(actor) = self.actors.get_mut(id) {
            actor.removing.remove(waiting);
        }
    }

    fn not_removed(&mut self, id: ActorId, waiting: Waiting) {
        if let Some(actor) = self.actors.get_mut(id) {
            actor.leftover.push(waiting);
        }
    }

    /// Tries again what could not be removed.
    pub(super) fn remove_again(&mut self, id: ActorId) {
        let leftover = std::mem::take(&mut self.actors[id].leftover);
        for waiting in leftover {
            let address = Arc::clone(&self.actors[id].address);
            self.store(Job::Remove(id, waiting.clone()), Op::Remove { address, waiting });
        }
    }
}
