//! Timeouts and expiry, in slices.

use std::ops::Bound;
use std::sync::Arc;

use crate::settings::Millis;
use crate::{ActorId, SessionId};

use super::session::State;
use super::{Close, Hub};

/// How long an actor that is away stays in memory after its last use.
const ACTOR_KEPT: Millis = 60_000;

/// A session that misses this many heartbeats is closed.
const HEARTBEATS_MISSED_MAX: u64 = 3;

/// Progress of the tick.
#[derive(Debug, Default)]
pub(super) enum Round {
    /// The next slice starts with the sessions.
    #[default]
    Begin,
    Sessions(usize),
    Replies,
    /// Actors after this address.
    Actors(Option<Arc<str>>),
    /// Topics after this name.
    Topics(Option<Arc<str>>),
}

impl Hub {
    /// Advances time by one slice of work. Call about once a second, then again until it returns false.
    pub fn tick(&mut self, now: Millis) -> bool {
        self.round = match std::mem::take(&mut self.round) {
            Round::Begin => {
                self.counts.tick(now);
                self.tokens.forget_idle(&self.settings, now);
                self.tick_sessions(0, now)
            }
            Round::Sessions(place) => self.tick_sessions(place, now),
            Round::Replies if self.time_out_replies(now) => Round::Replies,
            Round::Replies => Round::Actors(None),
            Round::Actors(after) => self.tick_actors(after.as_deref(), now),
            Round::Topics(after) => self.tick_topics(after.as_deref(), now),
        };
        !matches!(self.round, Round::Begin)
    }

    fn tick_sessions(&mut self, place: usize, now: Millis) -> Round {
        let end = self.roster.len().min(place + self.settings.work_slice);
        for place in place..end {
            let Some(&session) = self.roster.get(place) else { break };
            self.visits.count(1);
            if self.time_out_acks(session, now) {
                return Round::Sessions(place);
            }
            if let Some(close) = self.overdue(session, now) {
                self.end(session, close, now);
            }
        }
        if end < self.roster.len() { Round::Sessions(end) } else { Round::Replies }
    }

    /// Returns the reason to close a session now, if any.
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

    fn tick_actors(&mut self, after: Option<&str>, now: Millis) -> Round {
        let some = self.names_after(after, self.settings.work_slice);
        let Some(last) = some.last().map(|(name, _)| Arc::clone(name)) else { return Round::Topics(None) };
        for (_, actor) in some {
            self.tick_actor(actor, now);
        }
        Round::Actors(Some(last))
    }

    fn tick_actor(&mut self, id: ActorId, now: Millis) {
        self.remove_again(id);
        let actor = &mut self.actors[id];
        let over = actor.registration.as_ref().is_some_and(|registration| registration.expires_at < now);
        if let (true, Some(session)) = (over, actor.owner) {
            self.release(id, session, now);
        }
        self.expire_queued(id, now);
        self.forget_repeats(id, now);
        self.tidy_seen(id, now);
        let actor = &self.actors[id];
        let is_idle = actor.used_at.saturating_add(ACTOR_KEPT) < now && actor.is_idle();
        if is_idle && self.drop_expired(id, usize::MAX, now) {
            self.forget_actor(id);
        }
    }

    /// Drops dedup state of messages whose window has passed.
    fn forget_repeats(&mut self, id: ActorId, now: Millis) {
        let span = self.settings.seen_for_max;
        let actor = &mut self.actors[id];
        for (waiting, queued) in &mut actor.queue {
            if waiting.received.saturating_add(span) < now {
                queued.carried = None;
            }
        }
        let mut over: Vec<_> = actor.delivered_here.extract_if(.., |delivered| delivered.until < now).collect();
        let before: Vec<String> =
            actor.delivered_before.values().filter(|one| one.until < now).map(|one| one.hash.clone()).collect();
        over.extend(before.iter().filter_map(|hash| actor.delivered_before.remove(hash)));
        self.forget_delivered(id, over);
    }

    fn tick_topics(&mut self, after: Option<&str>, now: Millis) -> Round {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let topics = self.topics.range_mut::<str, _>((from, Bound::Unbounded));
        let (mut last, mut empty) = (None, Vec::new());
        for (name, topic) in topics.take(self.settings.work_slice) {
            self.visits.count(1);
            let is_empty = topic.tidy(now, &self.settings, &mut self.histories);
            if is_empty && topic.subscribers.is_empty() {
                empty.push(Arc::clone(name));
            }
            last = Some(Arc::clone(name));
        }
        for name in empty {
            if let Some(topic) = self.topics.remove(&name) {
                self.histories.forget(&topic);
            }
        }
        last.map_or(Round::Begin, |last| Round::Topics(Some(last)))
    }

    /// Returns the number of actors in memory; the store knows the others.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.actors.len()
    }
}
