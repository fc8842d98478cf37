//! What the hub asks of its shell, and the outcomes.

use std::sync::Arc;

use bytes::Bytes;

use crate::topic::After;
use crate::{Delivered, SessionId, Waiting};

/// Names an effect whose outcome the hub waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

/// What the shell is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// An operation on the store; [`Hub::done`](crate::Hub::done) is told the outcome. Those of different tickets may be done at once.
    Store(Ticket, Op),
    /// A signal for a run; [`Hub::done`](crate::Hub::done) is told the outcome. Those of one session for one run are sent in order.
    Signal {
        /// For the outcome.
        ticket: Ticket,
        /// Who sent it.
        session: SessionId,
        /// To which run.
        run: String,
        /// Its name.
        name: String,
        /// What it says, as JSON.
        payload: String,
        /// So that a repeat is the same signal.
        key: String,
        /// In whose name.
        by: String,
        /// Whether it is the name of a token; otherwise it is an address that anybody may have.
        is_authenticated: bool,
    },
    /// A session wants to hear a run; [`Hub::followed`](crate::Hub::followed) says whether it may, then [`Hub::feed`](crate::Hub::feed) feeds it.
    Follow {
        /// Who wants to.
        session: SessionId,
        /// The topic.
        topic: Arc<str>,
        /// The run.
        run: String,
        /// From where on.
        after: Option<After>,
    },
    /// It wants to no longer.
    Unfollow {
        /// Who.
        session: SessionId,
        /// The topic.
        topic: Arc<str>,
    },
    /// A topic of the hub's own has its first subscriber, or none any more.
    Wanted {
        /// The topic.
        topic: Arc<str>,
        /// Whether anybody hears it.
        wanted: bool,
    },
}

/// An operation on the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Is this address known, and what waits for it? → [`Done::Looked`]
    Look {
        /// The address.
        address: Arc<str>,
    },
    /// Raise the version of this address by one, durably, from 0 if it is not known; then: what waits for it? →
    /// [`Done::Raised`]
    Raise {
        /// The address.
        address: Arc<str>,
    },
    /// Keep messages: all, or the first of them → [`Done::Stored`]
    Put {
        /// For whom.
        address: Arc<str>,
        /// Their keys and frames, in order.
        messages: Vec<(Waiting, Bytes)>,
    },
    /// Read these messages → [`Done::Loaded`]
    Load {
        /// For whom.
        address: Arc<str>,
        /// Their keys.
        waiting: Vec<Waiting>,
    },
    /// Remove a message → [`Done::Stored`]
    Remove {
        /// For whom it was.
        address: Arc<str>,
        /// Its key.
        waiting: Waiting,
        /// The dedup marker, stored before the message is removed.
        delivered: Option<Delivered>,
    },
    /// Delete dedup markers of delivered messages → [`Done::Stored`]
    Forget {
        /// For whom they were.
        address: Arc<str>,
        /// The markers.
        delivered: Vec<Delivered>,
    },
}

/// What became of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// Of [`Op::Look`].
    Looked {
        /// It was registered once.
        known: bool,
        /// The other, running server that registered the address last.
        elsewhere: Option<Place>,
        /// Messages and dedup markers of the address.
        kept: Kept,
    },
    /// Of [`Op::Raise`].
    Raised {
        /// The new version.
        version: u64,
        /// Messages and dedup markers of the address.
        kept: Kept,
    },
    /// Of [`Op::Put`], [`Op::Remove`] and [`Op::Forget`].
    Stored,
    /// Of [`Op::Put`]: another server that is running has registered the address, and nothing is stored.
    Elsewhere(Place),
    /// Of [`Op::Load`]; `None`: it is not there any more.
    Loaded(Vec<(Waiting, Option<Bytes>)>),
    /// Of [`Effect::Signal`]: whether a wait was open for it.
    Signalled(Result<bool, SignalRefusal>),
    /// It may have been done or not.
    Failed(String),
}

/// Where the hub of another server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its URL, if it is known.
    pub url: Option<String>,
}

/// Messages and dedup markers of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Messages that wait for it, and how many bytes each has.
    pub waiting: Vec<(Waiting, usize)>,
    /// Messages that waited and were delivered.
    pub delivered: Vec<Delivered>,
}

/// Why a signal was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignalRefusal {
    /// There is no such run, or it has ended.
    Unknown(String),
    /// The run does not take it.
    Invalid(String),
    /// It may work later.
    Later(String),
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Close {
    /// The client asked.
    Asked = 1000,
    /// The server stops.
    Shutdown = 1001,
    /// Another session has the address.
    Duplicate = 4000,
    /// No token that counts, or not any more.
    Token = 4001,
    /// It reads too slowly.
    Slow = 4002,
    /// It was silent.
    Idle = 4003,
    /// Too many malformed frames.
    Abuse = 4004,
}

impl Close {
    /// The code that the WebSocket is closed with.
    #[must_use]
    pub fn code(self) -> u16 {
        self as u16
    }

    /// What `hub:disconnect` says.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Shutdown => "server_shutdown",
            Self::Duplicate => "duplicate_connection",
            Self::Token => "token_expired",
            Self::Slow => "slow_consumer",
            Self::Idle => "idle",
            Self::Abuse => "abuse",
        }
    }
}
