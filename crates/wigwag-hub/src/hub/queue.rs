//! Durable queues of actors that are away.
//!
//! Order of writes: a message is stored, then its sender gets `queued`; it is delivered, then removed, after its
//! dedup marker is stored. What if we die here? Between the first two, the sender retries and is recognised by the
//! message's key; between the last two, the message is delivered again under the same id. Puts of one address run one
//! at a time, each with all messages received during the previous one, so that the store never has a later message
//! without an earlier one, whichever put completes last. The queue is not read during a put.
//!
//! A stored message that cannot be read is set aside, never deleted: its sender got the answer `queued`. What if we die
//! here? The copy is written before the message is removed from the queue, so that it is set aside again, under the same key.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::key::{Delivered, Waiting, message_hash};
use crate::outbox::{Carried, Out};
use crate::refusal;
use crate::seen::{ANY_TAG, Answer, Known, Mark, Said, Tag};
use crate::settings::Millis;
use crate::stored::StoredHead;
use crate::{ActorId, SessionId};

use super::actor::{Past, Phase, Queued};
use super::run::Signalling;
use super::send::seen_span;
use super::work::Chore;
use super::{Done, Hub, Kept, Op, Place, Ticket};

/// Minimum time between listings of a full queue, which another server may have emptied.
const LOOK_AGAIN: Millis = 1_000;

/// The purpose of an outstanding effect.
#[derive(Debug)]
pub(super) enum Job {
    Look(ActorId),
    Raise(ActorId),
    Put(ActorId, Vec<(Waiting, Out)>),
    Load(ActorId),
    /// Reads expired messages in order to notify their senders.
    Expire(ActorId),
    Remove(ActorId, Waiting, Option<Delivered>),
    SetAside(ActorId, Waiting),
    /// Best effort: the sweep deletes leftovers.
    Forget,
    Signal(Box<Signalling>),
}

impl Hub {
    /// Handles the outcome of an effect.
    pub fn done(&mut self, ticket: Ticket, done: Done, now: Millis) {
        let Some(job) = self.jobs.remove(&ticket) else { return };
        match (job, done) {
            (Job::Look(id), Done::Looked { known, elsewhere, kept }) => self.looked(id, known, elsewhere, kept, now),
            (Job::Raise(id), Done::Raised { version, kept }) => self.raised(id, version, kept, now),
            (Job::Put(id, messages), Done::Stored) => self.stored(id, messages, now),
            (Job::Put(id, messages), Done::Elsewhere(_)) if deliberate_bug!(QueueForElsewhere) => {
                self.stored(id, messages, now);
            }
            (Job::Put(id, messages), Done::Elsewhere(place)) => self.stored_elsewhere(id, messages, &place, now),
            (Job::Load(id), Done::Loaded(found)) => self.loaded(id, found, now),
            (Job::Expire(id), Done::Loaded(found)) => self.expire_loaded(id, found, now),
            (Job::Remove(id, waiting, _), Done::Stored) => self.removed(id, &waiting),
            (Job::SetAside(id, waiting), Done::Stored) => self.removed(id, &waiting),
            (Job::Forget, Done::Stored) => {}
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
            Job::Expire(id) => self.expire_loaded(id, Vec::new(), now),
            Job::Remove(id, waiting, delivered) => self.not_removed(id, waiting, delivered),
            // The message is still stored: the next reading of its queue sets it aside.
            Job::SetAside(id, waiting) => self.removed(id, &waiting),
            Job::Forget => {}
            Job::Signal(signalling) => self.signalled(*signalling, Err(super::SignalRefusal::Later(why)), now),
        }
    }

    /// Routes a message to its target.
    pub(super) fn route(&mut self, out: Out, now: Millis) {
        let Some(actor) = self.actors.get_mut(out.carried.target) else { return };
        actor.used_at = now;
        let is_held = actor.holds() && !(deliberate_bug!(NotHeld) && actor.past != Past::Unknown);
        let held = if is_held { Some(out) } else { self.dispatch(out, now) };
        if let Some(out) = held {
            self.hold(out, now);
        }
    }

    /// Delivers, stores or rejects a message. Returns it if the store must be read first.
    fn dispatch(&mut self, out: Out, now: Millis) -> Option<Out> {
        let carried = &out.carried;
        let target = carried.target;
        if carried.is_ask && self.was_delivered_before(carried, now) {
            return None;
        }
        let actor = &mut self.actors[target];
        if let Some(session) = actor.owner {
            self.deliver(session, out, now);
            return None;
        }
        match actor.past {
            _ if actor.is_session => self.nobody(&out, now),
            // A tell is lost if its target is away, whether or not the target was ever registered.
            _ if !carried.queue => self.lost(&out, now),
            Past::Registered => return self.enqueue(out, now),
            Past::Never => self.nobody(&out, now),
            Past::Elsewhere => {
                let place = actor.place.clone();
                self.is_elsewhere(&out, place.as_ref(), now);
            }
            Past::Unknown => {
                self.look(target);
                return Some(out);
            }
        }
        None
    }

    /// Reads the record and the queue of an address from the store.
    fn look(&mut self, id: ActorId) {
        let actor = &mut self.actors[id];
        actor.phase = Phase::Looking;
        let address = Arc::clone(&actor.address);
        self.store(Job::Look(id), Op::Look { address });
    }

    /// Answers a repeat of a message that an earlier hub queued and delivered.
    fn was_delivered_before(&mut self, carried: &Carried, now: Millis) -> bool {
        let before = &self.actors[carried.target].delivered_before;
        if before.is_empty() {
            return false;
        }
        let hash = message_hash(&self.address(carried.sender), &carried.id);
        let found = before.get(&hash).filter(|delivered| delivered.until >= now);
        let Some(received) = found.map(|delivered| delivered.received) else { return false };
        self.answer(carried, Said::Queued, received, now);
        true
    }

    /// Rejects a message to an address that was never registered.
    fn nobody(&mut self, out: &Out, now: Millis) {
        self.counts.absent += 1;
        let carried = &out.carried;
        if carried.is_ask || carried.expects_reply {
            let actor = &self.actors[carried.target];
            let refusal = match actor.is_session {
                true => refusal::session_gone(&actor.address),
                false => refusal::never_registered(&actor.address),
            };
            self.fail(carried, &refusal, now);
        }
    }

    /// Drops a tell whose target is away. The sender gets an error if it expects a reply.
    fn lost(&mut self, out: &Out, now: Millis) {
        self.counts.absent += 1;
        if out.carried.expects_reply {
            let address = self.address(out.carried.target);
            let hint = "use an ask: asks are queued";
            self.fail(&out.carried, &refusal::unknown_actor(&address, "the target is not connected", hint, true), now);
        }
    }

    /// Holds a message until a store operation completes.
    fn hold(&mut self, out: Out, now: Millis) {
        let carried = &out.carried;
        let settings = &self.settings;
        let actor = &mut self.actors[carried.target];
        if actor.held.len() < settings.drop_above && actor.held_bytes < settings.drop_bytes_above {
            actor.held_bytes += out.bytes.len();
            return actor.held.push_back(out);
        }
        self.counts.dropped += 1;
        if carried.is_ask || carried.expects_reply {
            let address = self.address(carried.target);
            let refusal = refusal::queue_full(&address, "too many messages are pending until this actor is registered");
            self.fail(carried, &refusal, now);
        }
    }

    /// Routes held messages: immediately if they fit into a slice, else in slices while new messages are held behind them.
    pub(super) fn flush_held(&mut self, id: ActorId, now: Millis) {
        let slice = self.settings.work_slice;
        let Some(actor) = self.actors.get_mut(id) else { return };
        if actor.phase != Phase::Idle || !actor.registering.is_empty() {
            return;
        }
        if actor.held.len() > slice {
            actor.phase = Phase::Draining;
            return self.chores.push_back(Chore::Drain(id));
        }
        self.flush_some(id, now);
    }

    /// Routes a slice of the held messages. Returns true if more are held.
    pub(super) fn flush_some(&mut self, id: ActorId, now: Millis) -> bool {
        let slice = self.settings.work_slice;
        let Some(actor) = self.actors.get_mut(id) else { return false };
        let mut some = actor.unhold(slice);
        while let Some(out) = some.pop_front() {
            if let Some(out) = self.dispatch(out, now) {
                some.push_front(out);
                self.actors[id].hold_first(some.into_iter());
                return false;
            }
        }
        self.actors.get(id).is_some_and(|actor| !actor.held.is_empty())
    }

    /// Appends a message to a session's outbox.
    pub(super) fn deliver(&mut self, session: SessionId, out: Out, now: Millis) {
        let carried = &out.carried;
        let Some(target) = self.sessions.get(session) else { return };
        let unacknowledged = carried.require_ack && target.awaiting.is_over(&self.settings);
        if target.outbox.is_over(&self.settings, &self.spare) || unacknowledged {
            self.counts.dropped += 1;
            if carried.is_ask || carried.expects_reply {
                let address = self.address(carried.target);
                let refusal =
                    refusal::queue_full(&address, "slow consumer: too many messages are pending for this actor");
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
        let at = (now, &self.settings, &mut self.spare);
        target.outbox.push(out.bytes, out.expires, Some(out.carried), at);
        self.wake(session);
    }

    /// Handles a message that was written to its target's connection.
    pub(super) fn arrived(&mut self, carried: &Carried, now: Millis) {
        self.counts.delivered += 1;
        let Some(waiting) = &carried.stored else { return self.answer(carried, Said::Delivered, now, now) };
        let until = waiting.received.saturating_add(seen_span(&self.settings, carried.ttl));
        let is_known = until > now && !deliberate_bug!(SeenNotStored);
        let (received, hash) = (waiting.received, &waiting.hash);
        let delivered = is_known.then(|| Delivered { until, received, hash: hash.clone() });
        self.remove(carried.target, waiting.clone(), delivered);
    }

    /// Stores a message for an actor that is away. Returns it if the store must be read first.
    fn enqueue(&mut self, out: Out, now: Millis) -> Option<Out> {
        let carried = &out.carried;
        let (sender, id) = (self.address(carried.sender), carried.target);
        if out.expires < now {
            self.counts.expired += 1;
            self.fail(carried, &refusal::expired(carried.ttl.unwrap_or_default()), now);
            return None;
        }
        let hash = message_hash(&sender, &carried.id);
        let actor = &mut self.actors[id];
        if let Some((there, queued)) = actor.queue.iter_mut().find(|(waiting, _)| waiting.hash == hash) {
            // The message is already stored, by this hub or an earlier one.
            let at = there.received;
            if !actor.storing {
                queued.carried = Some(carried.clone());
            }
            self.answer(carried, Said::Queued, at, now);
            return None;
        }
        if self.is_full(id, out.bytes.len()) && self.make_queue_room(id, now) {
            return Some(out);
        }
        if self.is_full(id, out.bytes.len()) {
            self.counts.queue_full += 1;
            let actor = &self.actors[id];
            let what = format!("the queue of this actor is full: {} messages", actor.queue.len());
            let refusal = refusal::queue_full(&actor.address, &what);
            self.fail(&out.carried, &refusal, now);
            return None;
        }
        let actor = &mut self.actors[id];
        let received = now.max(actor.last_received + 1);
        let expires = out.expires.min(now.saturating_add(self.settings.queue_for));
        let doubtful = actor.doubtful.remove(&hash).filter(|_| !deliberate_bug!(AnotherKey));
        let waiting = doubtful.unwrap_or(Waiting { received, expires, hash });
        actor.last_received = actor.last_received.max(waiting.received);
        actor.queue.insert(waiting.clone(), Queued { bytes: out.bytes.len(), carried: None });
        if deliberate_bug!(AnswerBeforeStored) {
            self.answer(&out.carried, Said::Queued, waiting.received, now);
        }
        self.actors[id].unstored.push((waiting, out));
        self.store_next(id);
        None
    }

    /// Whether a queue lacks room for a message of this size.
    fn is_full(&self, id: ActorId, bytes: usize) -> bool {
        let (actor, settings) = (&self.actors[id], &self.settings);
        let full = actor.queue.len() >= settings.queue_max && !deliberate_bug!(UnboundedQueue);
        full || actor.queue_bytes() + bytes > settings.queue_bytes_max
    }

    /// Removes expired messages from a full queue. If it is still full, lists the store again, since another server may have
    /// delivered cached messages. Returns true if a listing was started.
    fn make_queue_room(&mut self, id: ActorId, now: Millis) -> bool {
        self.expire_queued(id, now);
        let actor = &self.actors[id];
        let is_stale = actor.looked_at.saturating_add(LOOK_AGAIN) < now && !deliberate_bug!(StaleQueueFull);
        let is_at_rest = !actor.storing && actor.unstored.is_empty() && actor.removing.is_empty();
        let is_full = actor.queue.len() >= self.settings.queue_max;
        let looks = is_full && is_stale && is_at_rest;
        if looks {
            self.look(id);
        }
        looks
    }

    /// Starts a put of all unstored messages, unless one is in progress: its completion starts the next.
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
                self.remove(id, waiting, None);
                self.fail(&carried, &refusal::expired(carried.ttl.unwrap_or_default()), now);
            } else {
                self.counts.queued += 1;
                self.answer(&carried, Said::Queued, waiting.received, now);
                if let Some(queued) = self.actors[id].queue.get_mut(&waiting) {
                    queued.carried = Some(carried);
                }
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

    /// Rejects messages whose target is registered at another server.
    fn stored_elsewhere(&mut self, id: ActorId, messages: Vec<(Waiting, Out)>, place: &Place, now: Millis) {
        let actor = &mut self.actors[id];
        actor.storing = false;
        actor.past = Past::Unknown;
        let unstored = std::mem::take(&mut actor.unstored);
        for (waiting, out) in messages.into_iter().chain(unstored) {
            self.actors[id].queue.remove(&waiting);
            self.is_elsewhere(&out, Some(place), now);
        }
        self.go_on(id, now);
    }

    /// Rejects a message whose target is at another server.
    fn is_elsewhere(&mut self, out: &Out, place: Option<&Place>, now: Millis) {
        let address = self.address(out.carried.target);
        let url = place.and_then(|place| place.url.as_deref());
        self.fail(&out.carried, &refusal::elsewhere(&address, url), now);
    }

    fn looked(&mut self, id: ActorId, known: bool, elsewhere: Option<Place>, kept: Kept, now: Millis) {
        // A registration in progress here overrides the other server.
        let is_ours = !self.actors[id].registering.is_empty() || deliberate_bug!(QueueForElsewhere);
        let place = elsewhere.filter(|_| !is_ours);
        // The other server is responsible for the queue, and for the expiry of its messages.
        self.set_kept(id, if place.is_some() { Kept::default() } else { kept }, now);
        let actor = &mut self.actors[id];
        actor.past = if known { Past::Registered } else { Past::Never };
        actor.phase = Phase::Idle;
        actor.looked_at = now;
        actor.place = place;
        if actor.place.is_some() {
            actor.past = Past::Elsewhere;
        }
        self.go_on(id, now);
        self.forget_past(id);
    }

    /// Forgets the result of a read once the held messages are routed, so that the next message
    /// reads the store again.
    pub(super) fn forget_past(&mut self, id: ActorId) {
        let Some(actor) = self.actors.get_mut(id) else { return };
        let is_passing = matches!(actor.past, Past::Never | Past::Elsewhere);
        if is_passing && actor.phase != Phase::Draining {
            actor.past = Past::Unknown;
            actor.place = None;
        }
    }

    fn not_looked(&mut self, id: ActorId, why: &str, now: Millis) {
        self.actors[id].phase = Phase::Idle;
        let held = self.actors[id].unhold(usize::MAX);
        let is_told = |carried: &Carried| carried.is_ask || carried.expects_reply;
        for carried in held.into_iter().map(|out| out.carried).filter(|carried| is_told(carried)) {
            self.fail(&carried, &refusal::internal(&format!("the store is unavailable: {why}")), now);
        }
        self.go_on(id, now);
    }

    /// Forgets the queue of an address that was registered at another server, which is responsible for it from now
    /// on. Repeats read the store.
    pub(super) fn forget_queue(&mut self, id: ActorId) {
        let queue = std::mem::take(&mut self.actors[id].queue);
        queue.into_values().filter_map(|queued| queued.carried).for_each(|carried| self.forget_queued(&carried));
    }

    fn forget_queued(&mut self, carried: &Carried) {
        let print = self.print(&carried.id);
        if let Some(sender) = self.actors.get_mut(carried.sender) {
            sender.seen.forget_queued(print);
        }
    }

    /// Replaces the cached queue by the store's listing, except for messages that are being removed.
    pub(super) fn set_kept(&mut self, id: ActorId, kept: Kept, now: Millis) {
        let Kept { waiting, delivered } = kept;
        let actor = &mut self.actors[id];
        let newest = waiting.iter().map(|(waiting, _)| waiting.received).max();
        actor.last_received = actor.last_received.max(newest.unwrap_or_default());
        actor.doubtful.retain(|_, doubtful| !waiting.iter().any(|(there, _)| there == doubtful));
        let mut before = std::mem::take(&mut actor.queue);
        for (waiting, bytes) in waiting.into_iter().filter(|(waiting, _)| !actor.removing.contains(waiting)) {
            let carried = before.remove(&waiting).and_then(|queued| queued.carried);
            actor.queue.insert(waiting, Queued { bytes, carried });
        }
        before.retain(|waiting, _| !actor.removing.contains(waiting));
        before.retain(|waiting, _| !delivered.iter().any(|delivered| delivered.hash == waiting.hash));
        let (known, over): (Vec<_>, Vec<_>) = delivered.into_iter().partition(|delivered| delivered.until >= now);
        let is_own = |delivered: &Delivered| actor.delivered_here.contains(delivered);
        let known = known.into_iter().filter(|delivered| !is_own(delivered));
        actor.delivered_before = known.map(|delivered| (delivered.hash.clone(), delivered)).collect();
        self.forget_delivered(id, over);
        self.forget_vanished(before, now);
    }

    /// Handles messages that another server removed without having delivered them: they have expired, or a repeat reads the store.
    fn forget_vanished(&mut self, vanished: BTreeMap<Waiting, Queued>, now: Millis) {
        for (waiting, carried) in vanished.into_iter().filter_map(|(waiting, queued)| Some((waiting, queued.carried?)))
        {
            match waiting.expires < now {
                true => self.expired_in_queue(&carried, now),
                false => self.forget_queued(&carried),
            }
        }
    }

    /// Deletes dedup markers of delivered messages from the store.
    pub(super) fn forget_delivered(&mut self, id: ActorId, delivered: Vec<Delivered>) {
        if !delivered.is_empty() {
            let address = self.address(id);
            self.store(Job::Forget, Op::Forget { address, delivered });
        }
    }

    /// Starts reading the queue of an actor. Returns whether it has messages.
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
                self.removed_elsewhere(id, waiting, now);
                continue;
            };
            let out = match self.revive(id, &waiting, &body, now) {
                Ok(out) => out,
                Err(reason) => {
                    self.set_aside(id, waiting, body, reason);
                    continue;
                }
            };
            match self.actors[id].owner {
                _ if out.expires < now => {
                    self.counts.expired += 1;
                    self.expired(&out.carried, now);
                }
                Some(session) => {
                    // The sender is now known, for the expiry notice.
                    if let Some(queued) = self.actors[id].queue.get_mut(&waiting) {
                        queued.carried = Some(out.carried.clone());
                    }
                    self.put(session, out, now);
                    if deliberate_bug!(RemoveBeforeWritten) {
                        self.remove(id, waiting, None);
                    }
                }
                None => {}
            }
        }
        self.flush_held(id, now);
        self.go_on(id, now);
    }

    /// Handles a message that another server removed since the queue was listed: it was delivered there, unless it has expired.
    fn removed_elsewhere(&mut self, id: ActorId, waiting: Waiting, now: Millis) {
        let actor = &mut self.actors[id];
        actor.queue.remove(&waiting);
        let Waiting { received, expires, hash } = waiting;
        let until = received.saturating_add(self.settings.seen_for);
        let is_known = expires >= now && until >= now && !deliberate_bug!(SeenNotStored);
        if is_known && !actor.delivered_here.iter().any(|delivered| delivered.hash == hash) {
            let delivered = Delivered { until, received, hash: hash.clone() };
            actor.delivered_before.entry(hash).or_insert(delivered);
        }
    }

    /// Moves a stored message that cannot be read out of the queue. The message is kept, because it was acknowledged.
    fn set_aside(&mut self, id: ActorId, waiting: Waiting, body: Bytes, reason: String) {
        let actor = &mut self.actors[id];
        actor.queue.remove(&waiting);
        if actor.removing.insert(waiting.clone()) {
            self.counts.unreadable += 1;
            let op = Op::SetAside { address: self.address(id), waiting: waiting.clone(), body, reason };
            self.store(Job::SetAside(id, waiting), op);
        }
    }

    /// Converts a stored message into a deliverable one, or returns why it cannot be read.
    fn revive(&mut self, id: ActorId, waiting: &Waiting, body: &Bytes, now: Millis) -> Result<Out, String> {
        let head = StoredHead::read(body)?;
        let sender = self.actor(&head.from, now);
        let number = self.number_of(&head.id).unwrap_or_default();
        // The request of a stored reply is unknown.
        let tag = if head.is_reply { ANY_TAG } else { self.actors[id].tag };
        self.recognise(sender, (id, tag), &head.original_id, waiting.received, now);
        let carried = Carried {
            sender,
            feeder: SessionId::default(),
            target: id,
            mark: Mark::NOWHERE,
            id: head.original_id,
            trace: String::new(),
            number,
            received: waiting.received,
            ttl: head.ttl,
            // The sender got its answer when the message was stored.
            is_ask: false,
            require_ack: head.require_ack,
            queue: true,
            expects_reply: head.expects_reply,
            stored_id: Some(head.id),
            stored: Some(waiting.clone()),
        };
        // A retry under the key of a failed put may have another timestamp, by the clock of another connection.
        let expires = head.ttl.map_or(Millis::MAX, |ttl| head.timestamp.saturating_add(ttl));
        Ok(Out { bytes: body.clone(), expires: expires.min(waiting.expires), carried: Box::new(carried) })
    }

    /// Records that a stored message was answered `queued`, so that a retry by a sender that lost the answer is
    /// recognised, even by a hub that did not store it.
    fn recognise(&mut self, sender: ActorId, (target, tag): (ActorId, Tag), id: &str, received: Millis, now: Millis) {
        let print = self.print(id);
        let tag = if deliberate_bug!(NoConflict) { ANY_TAG } else { tag };
        let number = self.next_number();
        let window = (now, self.settings.seen_for);
        match self.meet(sender, print, (tag, number), window) {
            Ok(slot) => {
                let seen = &mut self.actors[sender].seen;
                seen.answer(slot.mark, Answer { number: slot.number, at: received, said: Said::Queued });
            }
            // The retry was received while the queue was being read.
            Err(Known::Pending) => self.drop_held_repeat(sender, target, id, (received, now)),
            Err(_) => {}
        }
    }

    /// Answers a held repeat of a message that is delivered from the queue, and drops it: otherwise it would be
    /// delivered twice, under two ids.
    fn drop_held_repeat(&mut self, sender: ActorId, target: ActorId, id: &str, (received, now): (Millis, Millis)) {
        let actor = &mut self.actors[target];
        let is_it = |out: &Out| out.carried.sender == sender && out.carried.is_ask && out.carried.id == id;
        let Some(place) = actor.held.iter().position(is_it) else { return };
        if let Some(out) = actor.held.remove(place) {
            actor.held_bytes -= out.bytes.len();
            self.answer(&out.carried, Said::Queued, received, now);
        }
    }

    /// Removes expired messages of an actor that is away and notifies their senders.
    pub(super) fn expire_queued(&mut self, id: ActorId, now: Millis) {
        let actor = &mut self.actors[id];
        // Messages that are being delivered or stored are checked later.
        if actor.owner.is_some() || actor.storing || actor.phase == Phase::Loading {
            return;
        }
        let late: Vec<Waiting> = actor.queue.keys().filter(|waiting| waiting.expires < now).cloned().collect();
        let mut unknown = Vec::new();
        for waiting in late {
            match self.actors[id].queue.get_mut(&waiting).and_then(|queued| queued.carried.take()) {
                Some(carried) => {
                    self.counts.expired += 1;
                    self.remove(id, waiting, None);
                    self.expired_in_queue(&carried, now);
                }
                None => unknown.push(waiting),
            }
        }
        let actor = &mut self.actors[id];
        if !unknown.is_empty() && !std::mem::replace(&mut actor.expiring, true) {
            let address = Arc::clone(&actor.address);
            self.store(Job::Expire(id), Op::Load { address, waiting: unknown });
        }
    }

    fn expire_loaded(&mut self, id: ActorId, found: Vec<(Waiting, Option<Bytes>)>, now: Millis) {
        let Some(actor) = self.actors.get_mut(id) else { return };
        actor.expiring = false;
        for (waiting, body) in found {
            self.counts.expired += 1;
            let Some(body) = body else {
                self.remove(id, waiting, None);
                continue;
            };
            match self.revive(id, &waiting, &body, now) {
                Ok(out) => self.expired(&out.carried, now),
                Err(reason) => self.set_aside(id, waiting, body, reason),
            }
        }
    }

    /// Notifies the sender of a message that expired in the queue, and records the expiry as the answer to repeats.
    pub(super) fn expired_in_queue(&mut self, carried: &Carried, now: Millis) {
        let print = self.print(&carried.id);
        if carried.expects_reply {
            self.drop_wait(carried.number);
        }
        let Some(sender) = self.actors.get_mut(carried.sender) else { return };
        let is_news = deliberate_bug!(ExpiredStaysQueued) || sender.seen.expire_print(print, now);
        let (address, owner) = (Arc::clone(&sender.address), sender.owner.filter(|_| is_news));
        if let Some(session) = owner {
            let refusal = refusal::expired_in_queue();
            self.say(session, Some(&address), refusal.kind, Some(&carried.id), &refusal.payload, &carried.trace, now);
        }
    }

    fn not_loaded(&mut self, id: ActorId, why: &str, now: Millis) {
        // The queue still exists, and newer messages must not overtake it, so the owner has to register again.
        let actor = &mut self.actors[id];
        actor.phase = Phase::Idle;
        if let Some(session) = actor.owner {
            let address = Arc::clone(&actor.address);
            let refusal = refusal::internal(&format!("cannot read the queue of `{address}`: {why}"));
            self.say(session, Some(&address), refusal.kind, None, &refusal.payload, "", now);
            self.end(session, super::Close::Shutdown, now);
        }
        self.flush_held(id, now);
        self.go_on(id, now);
    }

    /// Removes a delivered or expired message from the store.
    pub(super) fn remove(&mut self, id: ActorId, waiting: Waiting, delivered: Option<Delivered>) {
        let Some(actor) = self.actors.get_mut(id) else { return };
        actor.queue.remove(&waiting);
        if actor.removing.insert(waiting.clone()) {
            actor.delivered_here.extend(delivered.clone());
            self.remove_stored(id, waiting, delivered);
        }
    }

    fn remove_stored(&mut self, id: ActorId, waiting: Waiting, delivered: Option<Delivered>) {
        let address = self.address(id);
        let op = Op::Remove { address, waiting: waiting.clone(), delivered: delivered.clone() };
        self.store(Job::Remove(id, waiting, delivered), op);
    }

    fn removed(&mut self, id: ActorId, waiting: &Waiting) {
        if let Some(actor) = self.actors.get_mut(id) {
            actor.removing.remove(waiting);
        }
    }

    fn not_removed(&mut self, id: ActorId, waiting: Waiting, delivered: Option<Delivered>) {
        if let Some(actor) = self.actors.get_mut(id) {
            actor.leftover.push((waiting, delivered));
        }
    }

    /// Retries failed removals.
    pub(super) fn remove_again(&mut self, id: ActorId) {
        let leftover = std::mem::take(&mut self.actors[id].leftover);
        for (waiting, delivered) in leftover {
            self.remove_stored(id, waiting, delivered);
        }
    }

    /// Lists the queue of an address so that the next tick expires old messages. Called by the sweep.
    pub fn sweep(&mut self, address: &str, now: Millis) {
        let id = self.actor(address, now);
        let actor = &self.actors[id];
        if actor.owner.is_none() && actor.phase == Phase::Idle && actor.registering.is_empty() && !actor.storing {
            self.look(id);
        }
    }

    /// Whether an address is registered here, or a registration is in progress.
    #[must_use]
    pub fn is_registered(&self, address: &str) -> bool {
        let actor = self.names.get(address).and_then(|id| self.actors.get(*id));
        actor.is_some_and(|actor| actor.owner.is_some() || !actor.registering.is_empty())
    }
}
