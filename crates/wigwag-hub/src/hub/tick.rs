//! What time does.

use crate::key::Waiting;
use crate::settings::Millis;
use crate::{ActorId, SessionId};

use super::actor::Phase;
use super::session::State;
use super::{Close, Hub};

/// How long an actor that is away is remembered after its last use; the store knows the rest.
const ACTOR_KEPT: Millis = 60_000;

/// Silent for so many heartbeats, a session is gone.
const HEARTBEATS_MISSED_MAX: u64 = 3;

impl Hub {
    /// Time has passed: about once a second.
    pub fn tick(&mut self, now: Millis) {
        self.counts.tick(now);
        let sessions: Vec<SessionId> = self.sessions.keys().collect();
        for session in sessions {
            if let Some(close) = self.overdue(session, now) {
                self.end(session, close, now);
            }
            self.time_out_acks(session, now);
        }
        self.time_out_replies(now);
        let actors: Vec<ActorId> = self.actors.keys().collect();
        for actor in actors {
            self.tick_actor(actor, now);
        }
        let settings = &self.settings;
        self.topics.retain(|_, topic| !topic.tidy(now, settings) || !topic.subscribers.is_empty());
    }

    /// Why a session ends now, if it does.
    fn overdue(&self, id: SessionId, now: Millis) -> Option<Close> {
        let (session, settings) = (&self.sessions[id], &self.settings);
        let since = |moment: Millis, span: Millis| moment.saturating_add(span) < now;
        match session.state {
            State::Closing(_) => return None,
            State::Fresh if since(session.opened, settings.connect_within) => return Some(Close::Idle),
            State::Fresh | State::Connected => {}
        }
        if session.access.until().is_some_and(|until| until < now) {
            return Some(Close::Token);
        }
        let outbox = &session.outbox;
        let stuck = !outbox.is_empty() && since(outbox.moved_at, settings.drain_within);
        if stuck || outbox.over_since.is_some_and(|moment| since(moment, settings.drain_within)) {
            return Some(Close::Slow);
        }
        since(session.heard, HEARTBEATS_MISSED_MAX * settings.heartbeat).then_some(Close::Idle)
    }

    fn tick_actor(&mut self, id: ActorId, now: Millis) {
        self.remove_again(id);
        let actor = &mut self.actors[id];
        let over = actor.registration.as_ref().is_some_and(|registration| registration.expires_at < now);
        if let (true, Some(session)) = (over, actor.owner) {
            self.release(id, session, now);
        }
        let actor = &mut self.actors[id];
        // What is being delivered or stored is seen to on its way.
        let at_rest = actor.owner.is_none() && !actor.storing && actor.phase == Phase::Idle;
        let is_late = |waiting: &&Waiting| at_rest && waiting.expires < now;
        let late: Vec<Waiting> = actor.queue.keys().filter(is_late).cloned().collect();
        for waiting in late {
            self.counts.expired += 1;
            self.remove(id, waiting);
        }
        let actor = &mut self.actors[id];
        if actor.used_at.saturating_add(ACTOR_KEPT) < now && actor.is_idle(now) {
            self.forget_actor(id);
        }
    }

    /// How many addresses it remembers; the store knows the others.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.actors.len()
    }
}
