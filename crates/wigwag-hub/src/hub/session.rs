//! State of one connection.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::OwnId;
use crate::outbox::{Awaiting, Next, Outbox};
use crate::rate::Bucket;
use crate::rights::Access;
use crate::settings::{Millis, Rate};
use crate::{ActorId, SessionId, TokenId};

use super::Close;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Before `hub:connect`.
    Fresh,
    Connected,
    Closing(Close),
}

/// A session's subscription to a topic.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) id: u64,
    /// Range of messages that were dropped because the session reads too slowly.
    pub(super) missed: Option<(u64, u64)>,
    /// Number of the last message that the subscription replayed, or reported as a gap. A fan-out in progress skips these.
    pub(super) replayed: u64,
    /// The subscribe request to answer once a run's topic is followed: its id, `from` and trace.
    pub(super) asked: Option<(String, String, String)>,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) state: State,
    pub(super) secret: [u8; 16],
    pub(super) opened: Millis,
    pub(super) heard: Millis,
    pub(super) access: Access,
    /// The session's own address.
    pub(super) own: Option<ActorId>,
    /// Addresses that it has registered.
    pub(super) addresses: Vec<ActorId>,
    pub(super) subscriptions: BTreeMap<Arc<str>, Subscription>,
    pub(super) outbox: Outbox,
    /// Messages that its client has yet to acknowledge.
    pub(super) awaiting: Awaiting,
    pub(super) bucket: Option<Bucket>,
    /// Whether it gets combined acknowledgements.
    pub(super) acks_together: bool,
    /// Offset from the client's clock to the hub's.
    pub(super) offset: i64,
    pub(super) malformed: (usize, Millis),
    /// Slow sessions for which it is paused.
    pub(super) paused_for: Vec<SessionId>,
    /// Sessions that are paused because this one is slow.
    pub(super) feeders: Vec<SessionId>,
    /// The last target, cached because consecutive messages mostly have the same one.
    pub(super) last_target: ActorId,
    pub(super) is_woken: bool,
    /// The token that it counts for.
    pub(super) token: Option<TokenId>,
    /// Position in the roster.
    pub(super) place: usize,
    /// Number of its requests that wait for replies.
    pub(super) reply_waits: usize,
    /// Number and bytes of its signals in progress.
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
            token: None,
            place,
            reply_waits: 0,
            signals: (0, 0),
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing(_))
    }
}

/// Hands a frame to the connection. A frame that requires acknowledgement is recorded here already, since the
/// acknowledgement may arrive before the write is reported.
pub(super) fn hand_out(next: Next<'_>, awaiting: &mut Awaiting, boot: &str, (within, within_max): (Millis, Millis)) {
    let Some(carried) = next.carried().filter(|carried| carried.require_ack) else { return };
    let id = carried.stored_id.clone().unwrap_or_else(|| OwnId::new(boot, carried.number).as_str().into());
    if let Some(out) = next.take() {
        let carried = &out.carried;
        let span = carried.ttl.unwrap_or(within).min(within_max);
        // Queued messages are stored until they are acknowledged, and have no deadline.
        let deadline = if carried.stored.is_some() { Millis::MAX } else { carried.received.saturating_add(span) };
        awaiting.insert(id, out, deadline);
    }
}
