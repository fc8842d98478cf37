//! An address, and all that is known of it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::key::Waiting;
use crate::outbox::Out;
use crate::seen::Seen;
use crate::settings::Millis;
use crate::{ActorId, SessionId};

use super::Hub;
use super::register::Registering;

/// What is being asked of the store; meanwhile its messages are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Looking,
    Raising,
    Loading,
}

/// Whether it was ever registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Past {
    /// Nobody has looked.
    Unknown,
    Never,
    Registered,
}

#[derive(Debug)]
pub(super) struct Registration {
    pub(super) version: u64,
    pub(super) capabilities: Vec<Box<str>>,
    /// As JSON.
    pub(super) metadata: Box<str>,
    pub(super) ttl: Millis,
    pub(super) registered_at: Millis,
    pub(super) expires_at: Millis,
}

#[derive(Debug)]
pub(super) struct Actor {
    pub(super) address: Arc<str>,
    /// A session's own: it is not registered and has no queue.
    pub(super) is_session: bool,
    pub(super) owner: Option<SessionId>,
    pub(super) registration: Option<Registration>,
    pub(super) past: Past,
    pub(super) phase: Phase,
    /// Messages in the store, or on their way there, and their bytes.
    pub(super) queue: BTreeMap<Waiting, usize>,
    /// Some are on their way.
    pub(super) storing: bool,
    /// Those that go next, together: one that came later is never there without one that came before.
    pub(super) unstored: Vec<(Waiting, Out)>,
    /// Those that are being removed: they are not delivered again.
    pub(super) removing: BTreeSet<Waiting>,
    /// Removals that failed.
    pub(super) leftover: Vec<Waiting>,
    /// Those that may or may not be there: the put failed. A repeat takes the same key.
    pub(super) doubtful: BTreeMap<String, Waiting>,
    pub(super) last_received: Millis,
    /// What came while the store was asked.
    pub(super) held: VecDeque<Out>,
    pub(super) registering: VecDeque<Registering>,
    pub(super) seen: Seen,
    /// Ids of its messages that have arrived, as JSON: it is told of all of them together, and soon.
    pub(super) arrived: Vec<u8>,
    pub(super) used_at: Millis,
}

impl Actor {
    fn new(address: Arc<str>, is_session: bool, now: Millis) -> Self {
        Self {
            address,
            is_session,
            owner: None,
            registration: None,
            past: Past::Unknown,
            phase: Phase::Idle,
            queue: BTreeMap::new(),
            storing: false,
            unstored: Vec::new(),
            removing: BTreeSet::new(),
            leftover: Vec::new(),
            doubtful: BTreeMap::new(),
            last_received: 0,
            held: VecDeque::new(),
            registering: VecDeque::new(),
            seen: Seen::default(),
            arrived: Vec::new(),
            used_at: now,
        }
    }

    /// Whether nothing would be lost if it were forgotten: the store knows the rest.
    pub(super) fn is_idle(&mut self, now: Millis) -> bool {
        self.owner.is_none()
            && self.phase == Phase::Idle
            && !self.storing
            && self.removing.is_empty()
            && self.leftover.is_empty()
            && self.held.is_empty()
            && self.registering.is_empty()
            && self.seen.tidy(now)
    }

    /// Whether its messages wait for the store.
    pub(super) fn holds(&self) -> bool {
        self.phase != Phase::Idle || !self.registering.is_empty()
    }

    /// Bytes of what waits.
    pub(super) fn queue_bytes(&self) -> usize {
        self.queue.values().sum()
    }
}

impl Hub {
    /// The actor of an address.
    pub(super) fn actor(&mut self, address: &str, now: Millis) -> ActorId {
        if let Some(&found) = self.names.get(address) {
            self.actors[found].used_at = now;
            return found;
        }
        let address: Arc<str> = Arc::from(address);
        let is_session = address.starts_with("@(session/");
        let id = self.actors.insert(Actor::new(Arc::clone(&address), is_session, now));
        self.names.insert(address, id);
        id
    }

    pub(super) fn forget_actor(&mut self, id: ActorId) {
        if let Some(actor) = self.actors.remove(id) {
            self.names.remove(&actor.address);
        }
    }
}
