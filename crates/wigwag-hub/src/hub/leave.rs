//! How a session ends, and how its undelivered messages are rerouted.
//!
//! Order: the session's addresses are released first, so that its undelivered messages find their target away (or
//! held for its next owner) and are kept in the order of sending.

use serde_json::{Value, json};

use crate::outbox::{Out, Spare};
use crate::rights::Access;
use crate::settings::Millis;
use crate::{ActorId, SessionId};

use super::actor::Past;
use super::session::{Session, State};
use super::work::Chore;
use super::{Close, Effect, Hub};

impl Hub {
    /// Sends a session the reason for its end, and ends it.
    pub(super) fn end(&mut self, id: SessionId, close: Close, now: Millis) {
        self.end_saying(id, close, &json!({"reason": close.reason()}), now);
    }

    fn end_saying(&mut self, id: SessionId, close: Close, payload: &Value, now: Millis) {
        if self.sessions.get(id).is_none_or(|session| session.is_closing()) {
            return;
        }
        self.counts.closed += 1;
        self.announce(id, "hub:disconnect", payload, now);
        self.leave(id, close, now);
    }

    /// Ends a session whose socket accepts no data, as a slow consumer.
    pub fn stalled(&mut self, session: SessionId, now: Millis) {
        self.end(session, Close::Slow, now);
    }

    /// Returns a slice of the sessions with their access, from the end of the roster down, and the `before` of the next slice.
    ///
    /// Downwards, because a session that ends is replaced by the last one: nothing moves past the cursor unseen.
    #[must_use]
    pub fn credentials(&self, before: Option<usize>) -> (Vec<(SessionId, Access)>, Option<usize>) {
        let end = before.unwrap_or(usize::MAX).min(self.roster.len());
        let start = end.saturating_sub(self.settings.work_slice);
        let slice = self.roster.get(start..end).unwrap_or_default().iter();
        let found = slice.filter_map(|id| Some((*id, self.sessions.get(*id)?.access.clone()))).collect();
        (found, (start > 0).then_some(start))
    }

    /// Ends a session whose token was revoked or changed.
    pub fn revoke(&mut self, session: SessionId, now: Millis) {
        self.end(session, Close::Token, now);
    }

    /// Handles a takeover by another server: notifies the session that holds the address here and ends it.
    pub fn taken_over(&mut self, address: &str, version: u64, url: Option<&str>, now: Millis) {
        let Some(id) = self.names.get(address).copied() else { return };
        let Some(actor) = self.actors.get_mut(id) else { return };
        actor.past = Past::Unknown;
        let has_older = actor.registration.as_ref().is_some_and(|registration| registration.version < version);
        let owner = actor.owner;
        if has_older || owner.is_none() {
            self.forget_queue(id);
        }
        if let Some(session) = owner.filter(|_| has_older && !deliberate_bug!(TakenNotTold)) {
            let close = Close::Duplicate;
            let payload = json!({"reason": close.reason(), "address": address, "url": url});
            self.end_saying(session, close, &payload, now);
            self.tell_arrived(now);
        }
    }

    /// Removes a session from all state; its last frames can still be written.
    pub(super) fn leave(&mut self, id: SessionId, close: Close, now: Millis) {
        self.tell_arrived(now);
        let Some(session) = self.sessions.get_mut(id).filter(|session| !session.is_closing()) else { return };
        session.state = State::Closing(close);
        // The shell may be blocked in a write to a client that does not read and have missed the last wake-up, so it
        // is woken again.
        session.is_woken = false;
        let own = session.own.take();
        let addresses = std::mem::take(&mut session.addresses);
        let lost = lost(session, &mut self.spare);
        let token = session.token.take();
        for actor in addresses.into_iter().chain(own) {
            self.vacate(actor, id, now);
        }
        if let Some(token) = token {
            self.tokens.leave(token, now);
        }
        self.unsubscribe_all(id);
        self.release_feeders(id, now);
        self.wake(id);
        if deliberate_bug!(LoseUnwritten) {
            return;
        }
        self.all_again(lost, now);
    }

    /// Reroutes undelivered messages ahead of newer ones, including held ones.
    fn all_again(&mut self, lost: Vec<Out>, now: Millis) {
        let mut targets: Vec<ActorId> = Vec::new();
        // Stored messages are delivered from the store.
        for out in lost.into_iter().rev().filter(|out| out.carried.stored.is_none()) {
            let target = out.carried.target;
            let Some(actor) = self.actors.get_mut(target) else { continue };
            actor.hold_first(std::iter::once(out));
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
        for target in targets {
            self.flush_held(target, now);
        }
    }

    /// Releases an address of a session.
    pub(super) fn vacate(&mut self, id: ActorId, session: SessionId, now: Millis) {
        // Senders get their acknowledgements first.
        self.tell_arrived(now);
        let Some(actor) = self.actors.get_mut(id).filter(|actor| actor.owner == Some(session)) else { return };
        actor.owner = None;
        actor.used_at = now;
        if actor.registration.take().is_some() {
            actor.past = Past::Registered;
            self.counts.registered -= 1;
        }
    }

    /// Handles a closed connection.
    pub fn close(&mut self, session: SessionId, now: Millis) {
        self.leave(session, Close::Asked, now);
        let Some(gone) = self.sessions.remove(session) else { return };
        self.spare.outbox_bytes = self.spare.outbox_bytes.saturating_sub(gone.outbox.bytes());
        self.roster.swap_remove(gone.place);
        if let Some(moved) = self.roster.get(gone.place).and_then(|moved| self.sessions.get_mut(*moved)) {
            moved.place = gone.place;
        }
        if self.roster.len() < self.roster.capacity() / 4 {
            self.roster.shrink_to(2 * self.roster.len());
        }
    }

    /// Ends all sessions because the server stops; unwritten messages are requeued. [`Hub::advance`] does the work in slices.
    pub fn shutdown(&mut self, now: Millis) {
        self.chores.push_back(Chore::Shutdown(self.roster.len()));
        self.advance(now);
    }

    fn unsubscribe_all(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        let topics: Vec<_> = std::mem::take(&mut session.subscriptions).into_keys().collect();
        self.counts.subscriptions -= topics.len();
        if !topics.is_empty() {
            self.chores.push_back(Chore::Unsubscribe { session: id, topics });
        }
    }

    /// Removes a session from the subscribers of a topic.
    pub(super) fn stop_hearing(&mut self, id: SessionId, name: &std::sync::Arc<str>) {
        if crate::address::run_of_topic(name).is_some() {
            self.effects.push(Effect::Unfollow { session: id, topic: std::sync::Arc::clone(name) });
            return;
        }
        let Some(topic) = self.topics.get_mut(name) else { return };
        let Some(place) = topic.subscribers.iter().position(|subscriber| *subscriber == id) else { return };
        std::sync::Arc::make_mut(&mut topic.subscribers).remove(place);
        if topic.subscribers.is_empty() && crate::address::is_hubs_own(name) {
            self.effects.push(Effect::Wanted { topic: std::sync::Arc::clone(name), wanted: false });
        }
    }
}

/// Returns all undelivered messages of a session in the order of sending.
fn lost(session: &mut Session, spare: &mut Spare) -> Vec<Out> {
    let mut lost: Vec<Out> = session.awaiting.take_all();
    lost.extend(session.outbox.abandon(spare));
    lost.sort_by_key(|out| out.carried.number);
    lost
}
