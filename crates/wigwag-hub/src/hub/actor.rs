//! An actor: its address, registration, queue and dedup state.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::key::{Delivered, Waiting};
use crate::outbox::{Carried, Out};
use crate::seen::{Seen, Tag};
use crate::settings::Millis;
use crate::{ActorId, SessionId};

use super::register::Registering;
use super::{Hub, Place};

/// The store operation in progress for an actor; until it completes, new messages are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Looking,
    Raising,
    Loading,
    /// Held messages are being routed in slices.
    Draining,
}

/// Whether an address was ever registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Past {
    /// The store has not been read.
    Unknown,
    /// The record did not exist when the store was read; valid for the messages that were held then.
    Never,
    /// The last registration was at another server; valid for the messages that were held when the store was read.
    Elsewhere,
    Registered,
}

/// A message that is stored, or being stored.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) bytes: usize,
    /// Sender and id, for the expiry notice. `None` for messages stored by another hub, and after the dedup window.
    pub(super) carried: Option<Box<Carried>>,
}

#[derive(Debug)]
pub(super) struct Registration {
    pub(super) version: u64,
    pub(super) capabilities: Vec<Box<str>>,
    /// Metadata and capabilities as `hub:discover` lists them, without the braces, so that a page
    /// is assembled by copying.
    pub(super) shown: Box<str>,
    pub(super) ttl: Millis,
    pub(super) registered_at: Millis,
    pub(super) expires_at: Millis,
}

#[derive(Debug)]
pub(super) struct Actor {
    pub(super) address: Arc<str>,
    /// Hash of the address, for the dedup entries of asks.
    pub(super) tag: Tag,
    /// The address of a session itself, which is not registered and has no queue.
    pub(super) is_session: bool,
    pub(super) owner: Option<SessionId>,
    pub(super) registration: Option<Registration>,
    pub(super) past: Past,
    pub(super) phase: Phase,
    /// Messages that are stored, or being stored.
    pub(super) queue: BTreeMap<Waiting, Queued>,
    /// The other server, if `past` is `Elsewhere`.
    pub(super) place: Option<Place>,
    /// Time of the last queue listing.
    pub(super) looked_at: Millis,
    /// Queued messages delivered by an earlier hub, by the hash of sender and id, for deduplication.
    pub(super) delivered_before: BTreeMap<String, Delivered>,
    /// Queued messages delivered by this hub; their markers are deleted from the store after the dedup window.
    pub(super) delivered_here: Vec<Delivered>,
    /// Expired messages are being loaded from the store to identify their senders.
    pub(super) expiring: bool,
    /// A put is in progress.
    pub(super) storing: bool,
    /// Messages of the next put. They are stored together and in order, so that the store never has a later message
    /// without an earlier one.
    pub(super) unstored: Vec<(Waiting, Out)>,
    /// Messages being removed from the store, which must not be delivered again.
    pub(super) removing: BTreeSet<Waiting>,
    /// Removals that failed.
    pub(super) leftover: Vec<(Waiting, Option<Delivered>)>,
    /// Messages whose put failed and which may be stored all the same. A retry uses the same key.
    pub(super) doubtful: BTreeMap<String, Waiting>,
    pub(super) last_received: Millis,
    /// Messages received during a store operation.
    pub(super) held: VecDeque<Out>,
    pub(super) held_bytes: usize,
    pub(super) registering: VecDeque<Registering>,
    pub(super) seen: Seen,
    /// Ids of delivered messages as JSON, for the next combined acknowledgement to this sender.
    pub(super) arrived: Vec<u8>,
    pub(super) used_at: Millis,
}

impl Actor {
    fn new(address: Arc<str>, tag: Tag, is_session: bool, now: Millis) -> Self {
        Self {
            address,
            tag,
            is_session,
            owner: None,
            registration: None,
            past: Past::Unknown,
            phase: Phase::Idle,
            queue: BTreeMap::new(),
            place: None,
            looked_at: 0,
            delivered_before: BTreeMap::new(),
            delivered_here: Vec::new(),
            expiring: false,
            storing: false,
            unstored: Vec::new(),
            removing: BTreeSet::new(),
            leftover: Vec::new(),
            doubtful: BTreeMap::new(),
            last_received: 0,
            held: VecDeque::new(),
            held_bytes: 0,
            registering: VecDeque::new(),
            seen: Seen::default(),
            arrived: Vec::new(),
            used_at: now,
        }
    }

    /// Whether the actor can be dropped from memory once its dedup window is empty, because the store knows everything else.
    pub(super) fn is_idle(&self) -> bool {
        self.owner.is_none()
            && self.phase == Phase::Idle
            && !self.storing
            && self.removing.is_empty()
            && self.leftover.is_empty()
            && self.held.is_empty()
            && self.registering.is_empty()
            && !self.expiring
            && self.delivered_before.is_empty()
            && self.delivered_here.is_empty()
            && self.queue.values().all(|queued| queued.carried.is_none())
    }

    /// Whether new messages must be held until a store operation completes.
    pub(super) fn holds(&self) -> bool {
        self.phase != Phase::Idle || !self.registering.is_empty()
    }

    /// Returns the total size of the queue in bytes.
    pub(super) fn queue_bytes(&self) -> usize {
        self.queue.values().map(|queued| queued.bytes).sum()
    }

    /// Removes and returns up to `max` held messages.
    pub(super) fn unhold(&mut self, max: usize) -> VecDeque<Out> {
        let rest = self.held.split_off(self.held.len().min(max));
        let some = std::mem::replace(&mut self.held, rest);
        self.held_bytes -= some.iter().map(|out| out.bytes.len()).sum::<usize>();
        some
    }

    /// Puts messages in front of the held ones.
    pub(super) fn hold_first(&mut self, some: impl DoubleEndedIterator<Item = Out>) {
        for out in some.rev() {
            self.held_bytes += out.bytes.len();
            self.held.push_front(out);
        }
    }
}

impl Hub {
    /// Returns the actor of an address, and creates it if it is new.
    pub(super) fn actor(&mut self, address: &str, now: Millis) -> ActorId {
        if let Some(&found) = self.names.get(address) {
            self.actors[found].used_at = now;
            return found;
        }
        let address: Arc<str> = Arc::from(address);
        let is_session = address.starts_with("@(session/");
        let tag = self.tag(&address);
        let id = self.actors.insert(Box::new(Actor::new(Arc::clone(&address), tag, is_session, now)));
        self.names.insert(address, id);
        id
    }

    pub(super) fn forget_actor(&mut self, id: ActorId) {
        if let Some(actor) = self.actors.remove(id) {
            self.names.remove(&actor.address);
        }
    }
}
