//! Counters and statistics of the hub.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::SessionId;
use crate::refusal::Refusal;
use crate::settings::Millis;

use super::work::Chore;
use super::{Hub, Request};

/// Maximum number of concurrent surveys; each visits all sessions and actors.
const SURVEYS_MAX: usize = 16;

/// A statistics request in progress.
#[derive(Debug)]
pub(super) struct Survey {
    session: SessionId,
    id: String,
    from: String,
    trace: String,
    /// Number of sessions counted so far.
    place: usize,
    /// The last address counted.
    after: Option<Arc<str>>,
    outboxes: Outboxes,
    queues: Queues,
}

#[derive(Debug, Default)]
struct Outboxes {
    frames: usize,
    bytes: usize,
    deepest: usize,
    paused: usize,
}

#[derive(Debug, Default)]
struct Queues {
    actors: usize,
    messages: usize,
    bytes: usize,
}

/// Counters since the hub started.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) received: u64,
    pub(super) delivered: u64,
    pub(super) queued: u64,
    pub(super) repeated: u64,
    pub(super) published: u64,
    pub(super) broadcasts: u64,
    pub(super) signals: u64,
    pub(super) refused: u64,
    pub(super) failed: u64,
    pub(super) pauses: u64,
    pub(super) gaps: u64,
    pub(super) closed: u64,
    // Undelivered messages, by reason.
    pub(super) expired: u64,
    pub(super) absent: u64,
    pub(super) dropped: u64,
    pub(super) queue_full: u64,
    pub(super) rate_limited: u64,
    /// Stored messages that could not be read and were set aside.
    pub(super) unreadable: u64,
    // Current totals, unlike the counters above.
    pub(super) registered: usize,
    pub(super) subscriptions: usize,
    /// Baseline of the rates, and the rates of the last full second.
    mark: Mark,
    received_rate: u64,
    delivered_rate: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    at: Millis,
    received: u64,
    delivered: u64,
}

impl Counts {
    /// Updates the rates since the last call.
    pub(super) fn tick(&mut self, now: Millis) {
        let span = now.saturating_sub(self.mark.at);
        if span >= 1_000 {
            self.received_rate = (self.received - self.mark.received) * 1_000 / span;
            self.delivered_rate = (self.delivered - self.mark.delivered) * 1_000 / span;
            self.mark = Mark { at: now, received: self.received, delivered: self.delivered };
        }
    }

    fn drops(&self) -> Value {
        json!({
            "expired": self.expired,
            "absent": self.absent,
            "slowConsumer": self.dropped,
            "queueFull": self.queue_full,
            "rateLimited": self.rate_limited,
        })
    }
}

impl Hub {
    /// Counts all sessions and actors in slices, then answers.
    pub(super) fn queue_stats(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let envelope = request.envelope;
        let survey = Survey {
            session: request.session,
            id: envelope.id.as_str().to_owned(),
            from: envelope.from.as_str().to_owned(),
            trace: request.trace.clone(),
            place: 0,
            after: None,
            outboxes: Outboxes::default(),
            queues: Queues::default(),
        };
        if self.chores.iter().filter(|chore| matches!(chore, Chore::Survey(_))).count() >= SURVEYS_MAX {
            return Err(crate::refusal::rate_limited(1_000));
        }
        self.chores.push_back(Chore::Survey(Box::new(survey)));
        Ok(())
    }

    /// Advances a survey by one slice; returns it if it is unfinished.
    pub(super) fn survey(&mut self, mut survey: Box<Survey>, now: Millis) -> Option<Box<Survey>> {
        let slice = self.settings.work_slice;
        if survey.place < self.roster.len() {
            let some = self.roster.iter().skip(survey.place).take(slice);
            for session in some.filter_map(|id| self.sessions.get(*id)) {
                let (outbox, sums) = (&session.outbox, &mut survey.outboxes);
                sums.frames += outbox.len();
                sums.bytes += outbox.bytes();
                sums.deepest = sums.deepest.max(outbox.len());
                sums.paused += usize::from(outbox.is_high(&self.settings));
            }
            self.visits.count(slice);
            survey.place += slice;
            return Some(survey);
        }
        let some = self.names_after(survey.after.as_deref(), slice);
        for actor in some.iter().filter_map(|(_, id)| self.actors.get(*id)).filter(|actor| !actor.queue.is_empty()) {
            survey.queues.actors += 1;
            survey.queues.messages += actor.queue.len();
            survey.queues.bytes += actor.queue_bytes();
        }
        survey.after = some.last().map(|(name, _)| Arc::clone(name));
        if survey.after.is_some() {
            return Some(survey);
        }
        let Survey { session, id, from, trace, outboxes, queues, .. } = *survey;
        let payload = self.stats(&outboxes, &queues);
        self.say(session, Some(&from), "hub:queue_stats", Some(&id), &payload, &trace, now);
        None
    }

    fn stats(&self, outboxes: &Outboxes, queues: &Queues) -> Value {
        let settings = &self.settings;
        json!({
            "outboxes": {
                "frames": outboxes.frames,
                "bytes": outboxes.bytes,
                "deepest": outboxes.deepest,
                "paused": outboxes.paused,
            },
            "queues": {"actors": queues.actors, "messages": queues.messages, "bytes": queues.bytes},
            "thresholds": {
                "pauseAbove": settings.pause_above,
                "resumeBelow": settings.resume_below,
                "dropAbove": settings.drop_above,
                "queueMax": settings.queue_max,
            },
            "drops": self.counts.drops(),
        })
    }

    pub(super) fn metrics(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let payload = self.figures();
        self.respond(request, "hub:metrics", &payload);
        Ok(())
    }

    /// Returns the statistics as JSON.
    #[must_use]
    pub fn figures(&self) -> Value {
        let counts = &self.counts;
        json!({
            "sessions": self.sessions.len(),
            "actors": counts.registered,
            "topics": self.topics.len(),
            "subscriptions": counts.subscriptions,
            "historyBytes": self.histories.bytes(),
            "outboxBytes": self.spare.outbox_bytes,
            "replyWaits": self.replies.len(),
            "replyBytes": self.reply_bytes,
            "dedupEntries": self.seen_total.entries,
            "received": counts.received,
            "delivered": counts.delivered,
            "queued": counts.queued,
            "repeated": counts.repeated,
            "published": counts.published,
            "broadcasts": counts.broadcasts,
            "signals": counts.signals,
            "refused": counts.refused,
            "storeFailures": counts.failed,
            "unreadable": counts.unreadable,
            "pauses": counts.pauses,
            "gaps": counts.gaps,
            "closed": counts.closed,
            "rates": {"receivedPerSecond": counts.received_rate, "deliveredPerSecond": counts.delivered_rate},
            "drops": counts.drops(),
        })
    }
}
