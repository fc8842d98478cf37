//! Open calls, each with its next deadline.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::frame::Pattern;

/// A frame that can be sent repeatedly: all fields except the default sender and the attempt number.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) kind: &'static str,
    pub(crate) id: String,
    pub(crate) pattern: Pattern,
    /// Address of the sender; `None` stands for the client's main address.
    pub(crate) from: Option<String>,
    /// When the call was created, which is the start of its time to live.
    pub(crate) timestamp: u64,
    pub(crate) payload: Box<RawValue>,
    pub(crate) metadata: Map<String, Value>,
    pub(crate) ttl: Option<u64>,
    /// Whether the call waits for the target's reply, not only for the hub's delivery acknowledgement.
    pub(crate) reply: bool,
    /// Minimum time before the call times out, regardless of the number of attempts.
    pub(crate) patience: Duration,
}

/// The origin of a call, which receives the answer.
#[derive(Debug)]
pub(super) enum Who<W> {
    User(W),
    Register(String),
    Renew(String),
    Subscribe(u64),
    /// The answer is ignored.
    Unsubscribe,
}

/// State of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The call waits to be sent.
    Held,
    /// The call was sent and waits for its answer.
    Sent,
    /// The call waits for the delay before its next attempt.
    Resting,
    /// The hub accepted the message; the target's reply is outstanding.
    Accepted,
}

#[derive(Debug)]
pub(super) struct Pending<W> {
    pub(super) call: Call,
    pub(super) who: Who<W>,
    pub(super) state: State,
    /// Number of attempts that were sent.
    pub(super) sent: u32,
    /// Number of attempts that timed out.
    pub(super) late: u32,
    pub(super) give_up_at: Duration,
    /// Next deadline of the call, at most `give_up_at`.
    due: Duration,
}

#[derive(Debug)]
pub(super) struct Calls<W> {
    /// Calls by key; keys grow in the order of creation.
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

    /// Sets the state of a call, and its next deadline: `due`, but at most `give_up_at`.
    pub(super) fn set(&mut self, key: u64, state: State, due: Option<Duration>) {
        let Some(pending) = self.pending.get_mut(&key) else { return };
        self.due.remove(&(pending.due, key));
        pending.state = state;
        pending.due = due.map_or(pending.give_up_at, |due| due.min(pending.give_up_at));
        self.due.insert((pending.due, key));
    }

    /// Extends the deadlines of a call.
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

    /// Returns the earliest deadline of all calls.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Returns a call whose deadline has passed.
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
