//! What the hub counts.

use serde_json::{Value, json};

use crate::refusal::Refusal;
use crate::settings::Millis;

use super::{Hub, Request};

/// Counts since the hub began.
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
    // Messages that nobody got, by reason.
    pub(super) expired: u64,
    pub(super) absent: u64,
    pub(super) dropped: u64,
    pub(super) queue_full: u64,
    pub(super) rate_limited: u64,
    pub(super) unreadable: u64,
    /// What the rates of the last full second are counted from, and they themselves.
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
    /// Rates since this was called last.
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
            "unreadable": self.unreadable,
        })
    }
}

impl Hub {
    pub(super) fn queue_stats(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let outboxes = self.sessions.values().map(|session| &session.outbox);
        let (mut frames, mut bytes, mut deepest, mut paused) = (0, 0, 0, 0);
        for outbox in outboxes {
            frames += outbox.len();
            bytes += outbox.bytes();
            deepest = deepest.max(outbox.len());
            paused += usize::from(outbox.is_high(&self.settings));
        }
        let queues = self.actors.values().filter(|actor| !actor.queue.is_empty());
        let (mut actors, mut messages, mut queue_bytes) = (0, 0, 0);
        for actor in queues {
            actors += 1;
            messages += actor.queue.len();
            queue_bytes += actor.queue_bytes();
        }
        let settings = &self.settings;
        let payload = json!({
            "outboxes": {"frames": frames, "bytes": bytes, "deepest": deepest, "paused": paused},
            "queues": {"actors": actors, "messages": messages, "bytes": queue_bytes},
            "thresholds": {
                "pauseAbove": settings.pause_above,
                "resumeBelow": settings.resume_below,
                "dropAbove": settings.drop_above,
                "queueMax": settings.queue_max,
            },
            "drops": self.counts.drops(),
        });
        self.respond(request, "hub:queue_stats", &payload);
        Ok(())
    }

    pub(super) fn metrics(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let payload = self.figures();
        self.respond(request, "hub:metrics", &payload);
        Ok(())
    }

    /// What the hub counts, as JSON.
    #[must_use]
    pub fn figures(&self) -> Value {
        let counts = &self.counts;
        let registered = self.actors.values().filter(|actor| actor.registration.is_some()).count();
        let subscriptions: usize = self.sessions.values().map(|session| session.subscriptions.len()).sum();
        json!({
            "sessions": self.sessions.len(),
            "actors": registered,
            "topics": self.topics.len(),
            "subscriptions": subscriptions,
            "received": counts.received,
            "delivered": counts.delivered,
            "queued": counts.queued,
            "repeated": counts.repeated,
            "published": counts.published,
            "broadcasts": counts.broadcasts,
            "signals": counts.signals,
            "refused": counts.refused,
            "storeFailures": counts.failed,
            "pauses": counts.pauses,
            "gaps": counts.gaps,
            "closed": counts.closed,
            "rates": {"receivedPerSecond": counts.received_rate, "deliveredPerSecond": counts.delivered_rate},
            "drops": counts.drops(),
        })
    }
}
