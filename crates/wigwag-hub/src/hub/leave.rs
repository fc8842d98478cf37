//! How a session ends, and what becomes of what it had not got.
//!
//! Order of what is done: its addresses are free first, so that what it had not got finds its target away (or held for the one
//! that takes its place) and is kept in the order it was sent.

use serde_json::json;

use crate::outbox::Out;
use crate::settings::Millis;
use crate::{Mutation, SessionId, refusal};

use super::actor::Past;
use super::session::State;
use super::{Close, Effect, Hub};

impl Hub {
    /// Tells a session why it ends, and ends it.
    pub(super) fn end(&mut self, id: SessionId, close: Close, now: Millis) {
        if self.sessions.get(id).is_none_or(super::session::Session::is_closing) {
            return;
        }
        self.counts.closed += 1;
        self.announce(id, "hub:disconnect", &json!({"reason": close.reason()}), now);
        self.leave(id, close, now);
    }

    /// Takes a session out of everything; its last frames can still be written.
    pub(super) fn leave(&mut self, id: SessionId, close: Close, now: Millis) {
        self.tell_arrived(now);
        let Some(session) = self.sessions.get_mut(id).filter(|session| !session.is_closing()) else { return };
        session.state = State::Closing(close);
        // One that was told and could not look, because it writes to somebody who does not read, is told again.
        session.is_woken = false;
        let own = session.own.take();
        let addresses = std::mem::take(&mut session.addresses);
        let lost = lost(session);
        for actor in addresses.into_iter().chain(own) {
            self.vacate(actor, id, now);
        }
        self.unsubscribe_all(id);
        self.release_feeders(id, now);
        self.wake(id);
        if self.settings.has(Mutation::LoseUnwritten) {
            return;
        }
        self.all_again(lost, now);
    }

    /// What a session had not got: before everything that came since, also where that is held back.
    fn all_again(&mut self, lost: Vec<Out>, now: Millis) {
        let is_held = |hub: &Self, out: &Out| {
            let target = hub.actors.get(out.carried.target);
            target.is_some_and(super::actor::Actor::holds)
        };
        let (held, free): (Vec<Out>, Vec<Out>) = lost.into_iter().partition(|out| is_held(self, out));
        for out in held.into_iter().rev() {
            if out.carried.stored.is_none() {
                self.actors[out.carried.target].held.push_front(out);
            }
        }
        for out in free {
            self.again(out, now);
        }
    }

    /// A session's address is free.
    pub(super) fn vacate(&mut self, id: crate::ActorId, session: SessionId, now: Millis) {
        // What has arrived is told to whoever sent it.
        self.tell_arrived(now);
        let Some(actor) = self.actors.get_mut(id).filter(|actor| actor.owner == Some(session)) else { return };
        actor.owner = None;
        actor.used_at = now;
        if actor.registration.take().is_some() {
            actor.past = Past::Registered;
        }
    }

    /// The connection is gone.
    pub fn close(&mut self, session: SessionId, now: Millis) {
        self.leave(session, Close::Asked, now);
        self.sessions.remove(session);
    }

    /// The server stops: everybody is told, what was not written is kept.
    pub fn shutdown(&mut self, now: Millis) {
        let all: Vec<SessionId> = self.sessions.keys().collect();
        for session in all {
            self.end(session, Close::Shutdown, now);
        }
    }

    /// A message that a connection took along.
    fn again(&mut self, out: Out, now: Millis) {
        let carried = &out.carried;
        if carried.stored.is_some() {
            // It is still in the store, and comes from there.
            return;
        }
        if self.actors.get(carried.target).is_some_and(|actor| actor.is_session) {
            let address = self.address(carried.target);
            let refusal = refusal::unknown_actor(
                &address,
                "the session is gone",
                "it may come back under the same address",
                true,
            );
            if carried.is_ask {
                self.fail(carried, &refusal, now);
            }
            return;
        }
        self.route(out, now);
    }

    fn unsubscribe_all(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(id) else { return };
        for topic in std::mem::take(&mut session.subscriptions).into_keys() {
            self.stop_hearing(id, &topic);
        }
    }

    /// Takes a session out of a topic's subscribers.
    pub(super) fn stop_hearing(&mut self, id: SessionId, name: &std::sync::Arc<str>) {
        if crate::address::run_of_topic(name).is_some() {
            self.effects.push(Effect::Unfollow { session: id, topic: std::sync::Arc::clone(name) });
            return;
        }
        let Some(topic) = self.topics.get_mut(name) else { return };
        topic.subscribers.retain(|subscriber| *subscriber != id);
        if topic.subscribers.is_empty() && crate::address::is_hubs_own(name) {
            self.effects.push(Effect::Wanted { topic: std::sync::Arc::clone(name), wanted: false });
        }
    }
}

/// All messages that a session had not got, in the order they were sent.
fn lost(session: &mut super::session::Session) -> Vec<Out> {
    let mut lost: Vec<Out> = session.awaiting.remove_if(|_| true);
    lost.extend(session.outbox.abandon());
    lost.sort_by_key(|out| out.carried.number);
    lost
}
