//! One connection.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::OwnId;
use crate::outbox::{Awaiting, Next, Outbox};
use crate::rate::Bucket;
use crate::rights::Access;
use crate::settings::{Millis, Rate};
use crate::{ActorId, SessionId};

use super::Close;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It has not said who it is.
    Fresh,
    Connected,
    Closing(Close),
}

/// A topic that a session hears.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) id: u64,
    /// Numbers that were dropped since it reads too slowly.
    pub(super) missed: Option<(u64, u64)>,
    /// Number of the last message that the subscription replayed, or reported as a gap. A fan-out in progress skips these.
    pub(super) replayed: u64,
    /// Whom to tell once a run's topic is followed: the request's id, its `from` and trace.
    pub(super) asked: Option<(String, String, String)>,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) state: State,
    pub(super) secret: [u8; 16],
    pub(super) opened: Millis,
    pub(super) heard: Millis,
    pub(super) access: Access,
    /// The address that is its own.
    pub(super) own: Option<ActorId>,
    /// Those it has registered.
    pub(super) addresses: Vec<ActorId>,
    pub(super) subscriptions: BTreeMap<Arc<str>, Subscription>,
    pub(super) outbox: Outbox,
    /// Messages that its client has not acknowledged.
    pub(super) awaiting: Awaiting,
    pub(super) bucket: Option<Bucket>,
    /// It is told of several messages that have arrived with one frame.
    pub(super) acks_together: bool,
    /// What the client's clock lacks.
    pub(super) offset: i64,
    pub(super) malformed: (usize, Millis),
    /// Sessions it is paused for.
    pub(super) paused_for: Vec<SessionId>,
    /// Those who are paused for it.
    pub(super) feeders: Vec<SessionId>,
    /// To whom it sent last: mostly it is the same again.
    pub(super) last_target: ActorId,
    pub(super) is_woken: bool,
    /// The token that it counts as a session of.
    pub(super) counts_for: Option<String>,
    /// Its place in the roster.
    pub(super) place: usize,
    /// Its questions that wait for replies.
    pub(super) reply_waits: usize,
    /// Its signals that are under way, and their bytes.
    pub(super) signals: (usize, usize),
}

impl Session {
    pub(super) fn new(access: Access, secret: [u8; 16], rate: Option<Rate>, place: usize, now: Millis) -> Self {
        Self {
            state: State::Fresh,
            secret,
            opened: now,
            heard: now,
            access,
            own: None,
            addresses: Vec::new(),
            subscriptions: BTreeMap::new(),
            outbox: Outbox::default(),
            awaiting: Awaiting::default(),
            bucket: rate.map(|rate| Bucket::full(rate, now)),
            acks_together: false,
            offset: 0,
            malformed: (0, now),
            paused_for: Vec::new(),
            feeders: Vec::new(),
            last_target: ActorId::default(),
            is_woken: false,
            counts_for: None,
            place,
            reply_waits: 0,
            signals: (0, 0),
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing(_))
    }
}

/// A frame goes to the connection. One that its client is to acknowledge is remembered from here on: the acknowledgement may
/// come before anybody has said that it was written.
pub(super) fn hand_out(next: Next<'_>, awaiting: &mut Awaiting, boot: &str, (within, within_max): (Millis, Millis)) {
    let Some(carried) = next.carried().filter(|carried| carried.require_ack) else { return };
    let id = carried.stored_id.clone().unwrap_or_else(|| OwnId::new(boot, carried.number).as_str().into());
    if let Some(out) = next.take() {
        let carried = &out.carried;
        let span = carried.ttl.unwrap_or(within).min(within_max);
        // Queued messages stay in the store until they are acknowledged, without a deadline.
        let deadline = if carried.stored.is_some() { Millis::MAX } else { carried.received.saturating_add(span) };
        awaiting.insert(id, out, deadline);
    }
}
