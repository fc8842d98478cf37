//! Long jobs, split into slices to bound the time that the hub is locked.
//!
//! Holds: a slice handles [`work_slice`](crate::Settings::work_slice) sessions, actors or messages, or one batch of a message for
//! many. The owner of the hub calls [`Hub::advance`] until it returns false, and releases the lock in between.

use std::ops::Bound;
use std::sync::Arc;

use crate::settings::Millis;
use crate::{ActorId, SessionId};

use super::actor::Phase;
use super::stats::Survey;
use super::{Close, Hub};

/// A job in progress.
#[derive(Debug)]
pub(super) enum Chore {
    /// Routes the held messages of an actor.
    Drain(ActorId),
    /// Resumes sessions that were paused for a slow one.
    Resume { slow: SessionId, feeders: Vec<SessionId> },
    /// Removes a session from the subscribers of its topics.
    Unsubscribe { session: SessionId, topics: Vec<Arc<str>> },
    /// Gathers statistics of all sessions and actors.
    Survey(Box<Survey>),
    /// Ends all sessions: those before this place of the roster are left.
    Shutdown(usize),
}

/// Topics per slice: removing a subscriber scans all subscribers of the topic.
const TOPICS_AT_ONCE: usize = 4;

impl Hub {
    /// Does the next slice of work. Returns true if there is more.
    pub fn advance(&mut self, now: Millis) -> bool {
        if let Some(chore) = self.chores.pop_front()
            && let Some(rest) = self.work(chore, now)
        {
            self.chores.push_back(rest);
        }
        self.advance_fans(now);
        self.tell_arrived(now);
        self.has_more()
    }

    /// Whether a job is in progress.
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.fans.is_empty() || !self.chores.is_empty()
    }

    /// Does a slice of a job. Returns the rest of it.
    fn work(&mut self, chore: Chore, now: Millis) -> Option<Chore> {
        match chore {
            Chore::Drain(id) => self.drain(id, now).then_some(Chore::Drain(id)),
            Chore::Resume { slow, feeders } => self.resume(slow, feeders, now),
            Chore::Unsubscribe { session, mut topics } => {
                for topic in topics.drain(topics.len().saturating_sub(TOPICS_AT_ONCE)..) {
                    self.stop_hearing(session, &topic);
                }
                (!topics.is_empty()).then_some(Chore::Unsubscribe { session, topics })
            }
            Chore::Survey(survey) => self.survey(survey, now).map(Chore::Survey),
            Chore::Shutdown(before) => self.shut_some(before, now).map(Chore::Shutdown),
        }
    }

    /// Routes a slice of the held messages of an actor. Returns true if there are more.
    fn drain(&mut self, id: ActorId, now: Millis) -> bool {
        if self.flush_some(id, now) {
            return true;
        }
        // If the store is being read, its result continues the work.
        if let Some(actor) = self.actors.get_mut(id).filter(|actor| actor.phase == Phase::Draining) {
            actor.phase = Phase::Idle;
            self.forget_past(id);
            self.go_on(id, now);
        }
        false
    }

    /// Ends a slice of the sessions before a place of the roster. Returns the place to continue before.
    ///
    /// Downwards, because a session that closes is replaced by the last one, which has been ended.
    fn shut_some(&mut self, before: usize, now: Millis) -> Option<usize> {
        let end = before.min(self.roster.len());
        let begin = end.saturating_sub(self.settings.work_slice);
        let some: Vec<SessionId> = self.roster[begin..end].to_vec();
        self.visits.count(some.len());
        for session in some {
            self.end(session, Close::Shutdown, now);
        }
        (begin > 0).then_some(begin)
    }

    /// Returns up to `max` addresses after the given one.
    pub(super) fn names_after(&self, after: Option<&str>, max: usize) -> Vec<(Arc<str>, ActorId)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.names.range::<str, _>((from, Bound::Unbounded)).take(max);
        let names: Vec<_> = names.map(|(name, id)| (Arc::clone(name), *id)).collect();
        self.visits.count(names.len());
        names
    }
}
