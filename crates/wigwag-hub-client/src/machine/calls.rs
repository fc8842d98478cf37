//! Calls that wait for their answers, each with the next moment at which something is due.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::frame::Pattern;

/// A frame to be sent, and sent again: everything but who sends it and which attempt it is.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) kind: &'static str,
    pub(crate) id: String,
    pub(crate) pattern: Pattern,
    /// Else it is the session's main address.
    pub(crate) from: Option<String>,
    /// When it was made, so that its time to live counts from there.
    pub(crate) timestamp: u64,
    pub(crate) payload: Box<RawValue>,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) ttl: Option<u64>,
    /// A reply of the target is waited for, not only the hub's word that it was delivered.
    pub(crate) reply: bool,
    /// It is not given up before this, however often it is sent.
    pub(crate) patience: Duration,
}

/// Who made a call.
#[derive(Debug)]
pub(super) enum Who<W> {
    User(W),
    Register(String),
    Renew(String),
    Subscribe(u64),
    /// Nobody waits for what comes of it.
    Unsubscribe,
}

/// How far a call is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It waits to be sent.
    Held,
    /// It waits for its answer.
    Sent,
    /// It waits until it is sent again.
    Resting,
    /// The hub has it; the target's reply is waited for.
    Accepted,
}

#[derive(Debug)]
pub(super) struct Pending<W> {
    pub(super) call: Call,
    pub(super) who: Who<W>,
    pub(super) state: State,
    /// How often it was sent.
    pub(super) sent: u32,
    /// How often its answer did not come in time.
    pub(super) late: u32,
    pub(super) give_up_at: Duration,
    /// When it is looked at next.
    due: Duration,
}

#[derive(Debug)]
pub(super) struct Calls<W> {
    /// In the order in which they were made.
    pending: BTreeMap<u64, Pending<W>>,
    keys: HashMap<String, u64>,
    due: BTreeSet<(Duration, u64)>,
    next: u64,
}

impl<W> Calls<W> {
    pub(super) fn new() -> Self {
        Self { pending: BTreeMap::new(), keys: HashMap::new(), due: BTreeSet::new(), next: 0 }
    }

    pub(super) fn knows(&self, id: &str) -> bool {
        self.keys.contains_key(id)
    }

    pub(super) fn insert(&mut self, call: Call, who: Who<W>, give_up_at: Duration) -> u64 {
        let key = self.next;
        self.next += 1;
        self.keys.insert(call.id.clone(), key);
        self.due.insert((give_up_at, key));
        let pending = Pending { call, who, state: State::Held, sent: 0, late: 0, give_up_at, due: give_up_at };
        self.pending.insert(key, pending);
        key
    }

    pub(super) fn key_of(&self, id: &str) -> Option<u64> {
        self.keys.get(id).copied()
    }

    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut Pending<W>> {
        self.pending.get_mut(&key)
    }

    pub(super) fn get(&self, key: u64) -> Option<&Pending<W>> {
        self.pending.get(&key)
    }

    /// Moves a call on; it is looked at again at `due`, or when it is given up.
    pub(super) fn set(&mut self, key: u64, state: State, due: Option<Duration>) {
        let Some(pending) = self.pending.get_mut(&key) else { return };
        self.due.remove(&(pending.due, key));
        pending.state = state;
        pending.due = due.map_or(pending.give_up_at, |due| due.min(pending.give_up_at));
        self.due.insert((pending.due, key));
    }

    /// Gives a call more time.
    pub(super) fn extend(&mut self, key: u64, due: Duration, give_up_at: Duration) {
        let Some(pending) = self.pending.get_mut(&key) else { return };
        pending.give_up_at = pending.give_up_at.max(give_up_at);
        let (state, is_sent) = (pending.state, pending.state == State::Sent);
        self.set(key, state, is_sent.then_some(due));
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<Pending<W>> {
        let pending = self.pending.remove(&key)?;
        self.keys.remove(&pending.call.id);
        self.due.remove(&(pending.due, key));
        Some(pending)
    }

    /// When the next call is due.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    /// A call that is due by now.
    pub(super) fn next_due(&mut self, now: Duration) -> Option<u64> {
        self.due.first().filter(|(due, _)| *due <= now).map(|(_, key)| *key)
    }

    pub(super) fn keys(&self) -> Vec<u64> {
        self.pending.keys().copied().collect()
    }

    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }
}
