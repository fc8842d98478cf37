//! One connection.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::outbox::{Awaiting, Out, Outbox};
use crate::rate::Bucket;
use crate::rights::Access;
use crate::settings::{Millis, Rate};
use crate::{ActorId, SessionId};

use super::{Close, message_id};

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
    /// What the client's clock lacks.
    pub(super) offset: i64,
    pub(super) malformed: (usize, Millis),
    /// How many sessions it is paused for.
    pub(super) pauses: usize,
    /// Those who are paused for it.
    pub(super) feeders: Vec<SessionId>,
    pub(super) is_woken: bool,
}

impl Session {
    pub(super) fn new(access: Access, secret: [u8; 16], rate: Option<Rate>, now: Millis) -> Self {
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
            offset: 0,
            malformed: (0, now),
            pauses: 0,
            feeders: Vec::new(),
            is_woken: false,
        }
    }

    pub(super) fn is_closing(&self) -> bool {
        matches!(self.state, State::Closing(_))
    }

    /// A frame goes to the connection. One that its client is to acknowledge is remembered from here on: the acknowledgement may
    /// come before anybody has said that it was written.
    pub(super) fn hand_out(&mut self, out: Out, boot: &str) -> Bytes {
        let Some(carried) = out.carried.as_ref().filter(|carried| carried.require_ack) else {
            return self.outbox.handed_out(out);
        };
        let id = carried.stored_id.clone().unwrap_or_else(|| message_id(boot, carried.number).into());
        let plain = Out::plain(out.bytes.clone());
        self.awaiting.insert(id, out);
        self.outbox.handed_out(plain)
    }
}
