//! What waits to be written to one connection.
//!
//! Holds: frames leave in the order they came. A frame that was handed out is remembered until the connection says that it
//! was written, so that what a broken connection took along is known.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use crate::key::Waiting;
use crate::seen::Print;
use crate::settings::{Millis, Settings};
use crate::{ActorId, SessionId};

/// What is remembered of a message until it has arrived.
#[derive(Clone, Debug)]
pub(crate) struct Carried {
    pub(crate) sender: ActorId,
    /// The session it came from, which pauses if this is too much.
    pub(crate) feeder: SessionId,
    pub(crate) target: ActorId,
    /// The sender's id of it.
    pub(crate) id: Box<str>,
    pub(crate) print: Print,
    /// What is told back of its trace.
    pub(crate) trace: Box<str>,
    /// The hub's number of it.
    pub(crate) number: u64,
    pub(crate) received: Millis,
    pub(crate) ttl: Option<u64>,
    pub(crate) is_ask: bool,
    pub(crate) require_ack: bool,
    /// Stored if the target is away.
    pub(crate) queue: bool,
    /// Where it is stored, if it is.
    pub(crate) stored: Option<Waiting>,
    /// And the id it was forwarded with, which may be that of a hub before this one.
    pub(crate) stored_id: Option<Box<str>>,
}

/// A frame and what it carries.
#[derive(Clone, Debug)]
pub(crate) struct Out {
    pub(crate) bytes: Bytes,
    /// Not written after this.
    pub(crate) expires: Millis,
    pub(crate) carried: Option<Box<Carried>>,
}

impl Out {
    pub(crate) fn plain(bytes: Bytes) -> Self {
        Self { bytes, expires: Millis::MAX, carried: None }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: VecDeque<Out>,
    sent: VecDeque<Out>,
    bytes: usize,
    /// Since when it is too full.
    pub(crate) over_since: Option<Millis>,
    /// When something was written last, or came into the empty box.
    pub(crate) moved_at: Millis,
}

impl Outbox {
    pub(crate) fn push(&mut self, out: Out, now: Millis, settings: &Settings) {
        if self.is_empty() {
            self.moved_at = now;
        }
        self.bytes += out.bytes.len();
        self.waiting.push_back(out);
        if self.is_over(settings) && self.over_since.is_none() {
            self.over_since = Some(now);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.sent.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.sent.is_empty()
    }

    pub(crate) fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Too full for more.
    pub(crate) fn is_over(&self, settings: &Settings) -> bool {
        self.len() > settings.drop_above || self.bytes > settings.drop_bytes_above
    }

    /// So full that those who feed it should wait.
    pub(crate) fn is_high(&self, settings: &Settings) -> bool {
        self.len() > settings.pause_above || self.bytes > settings.drop_bytes_above / 2
    }

    /// Empty enough for them to go on.
    pub(crate) fn is_low(&self, settings: &Settings) -> bool {
        self.len() < settings.resume_below && self.bytes <= settings.drop_bytes_above / 4
    }

    /// The next frame to write.
    pub(crate) fn next(&mut self) -> Option<Out> {
        self.waiting.pop_front()
    }

    /// Remembers what was handed out; frames that carry nothing need not be kept themselves.
    pub(crate) fn handed_out(&mut self, mut out: Out) -> Bytes {
        let bytes = out.bytes.clone();
        if out.carried.is_none() {
            // Its length is all that is still needed.
            out.bytes = Bytes::new();
            out.expires = bytes.len() as Millis;
        }
        self.sent.push_back(out);
        bytes
    }

    /// A frame that is not written after all.
    pub(crate) fn dropped(&mut self, out: &Out) {
        self.bytes -= out.bytes.len();
    }

    /// The oldest frame that was handed out was written.
    pub(crate) fn written(&mut self, now: Millis) -> Option<Out> {
        let out = self.sent.pop_front()?;
        self.bytes -= match &out.carried {
            Some(_) => out.bytes.len(),
            None => usize::try_from(out.expires).unwrap_or_default(),
        };
        self.moved_at = now;
        Some(out)
    }

    /// Takes out all messages of others, in order; what the hub itself says stays.
    pub(crate) fn abandon(&mut self) -> Vec<Out> {
        let sent = std::mem::take(&mut self.sent);
        let (lost, kept) =
            std::mem::take(&mut self.waiting).into_iter().partition::<Vec<_>, _>(|out| out.carried.is_some());
        self.waiting = kept.into();
        self.bytes = self.waiting.iter().map(|out| out.bytes.len()).sum();
        // What was handed out may have arrived: an ask may come twice, a tell may not.
        let unsure = sent.into_iter().filter(|out| out.carried.as_ref().is_some_and(|carried| carried.is_ask));
        unsure.chain(lost).collect()
    }
}

/// Messages that a client is still to acknowledge, by the id they were forwarded with.
#[derive(Debug, Default)]
pub(crate) struct Awaiting {
    all: BTreeMap<Box<str>, Out>,
    bytes: usize,
}

impl Awaiting {
    pub(crate) fn insert(&mut self, id: Box<str>, out: Out) {
        self.bytes += out.bytes.len();
        if let Some(old) = self.all.insert(id, out) {
            self.bytes -= old.bytes.len();
        }
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<Out> {
        let out = self.all.remove(id)?;
        self.bytes -= out.bytes.len();
        Some(out)
    }

    /// Takes out those that meet a condition.
    pub(crate) fn remove_if(&mut self, is_over: impl Fn(&Out) -> bool) -> Vec<Out> {
        let over: Vec<Box<str>> = self.all.iter().filter(|(_, out)| is_over(out)).map(|(id, _)| id.clone()).collect();
        over.iter().filter_map(|id| self.remove(id)).collect()
    }

    pub(crate) fn is_over(&self, settings: &Settings) -> bool {
        self.all.len() >= settings.drop_above || self.bytes > settings.drop_bytes_above
    }
}
