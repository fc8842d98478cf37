//! Effects that the hub requests from its shell, and their outcomes.

use std::sync::Arc;

use bytes::Bytes;

use crate::topic::After;
use crate::{Delivered, SessionId, Waiting};

/// Identifies an effect whose outcome the hub waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

/// An action for the shell to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A store operation; report the outcome with [`Hub::done`](crate::Hub::done). Operations with different tickets
    /// may run concurrently.
    Store(Ticket, Op),
    /// A signal to a run; report the outcome with [`Hub::done`](crate::Hub::done). Signals of one session to one run
    /// are sent in order.
    Signal {
        /// Ticket for the outcome.
        ticket: Ticket,
        /// The sending session.
        session: SessionId,
        /// Id of the run.
        run: String,
        /// Name of the signal.
        name: String,
        /// Payload as JSON.
        payload: String,
        /// Idempotency key, so that a repeat is the same signal.
        key: String,
        /// Name of the sender.
        by: String,
        /// Whether the sender is the name of a token; otherwise it is an address, which any client may choose.
        is_authenticated: bool,
    },
    /// A session subscribes to the topic of a run; answer with [`Hub::followed`](crate::Hub::followed), then send
    /// events with [`Hub::feed`](crate::Hub::feed).
    Follow {
        /// The subscribing session.
        session: SessionId,
        /// Name of the topic.
        topic: Arc<str>,
        /// Id of the run.
        run: String,
        /// Position after which to start.
        after: Option<After>,
    },
    /// A session unsubscribes from the topic of a run.
    Unfollow {
        /// The unsubscribing session.
        session: SessionId,
        /// Name of the topic.
        topic: Arc<str>,
    },
    /// A topic of the hub itself got its first subscriber or lost its last.
    Wanted {
        /// Name of the topic.
        topic: Arc<str>,
        /// Whether the topic has subscribers.
        wanted: bool,
    },
}

/// An operation on the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read the record and list the queue of an address. → [`Done::Looked`]
    Look {
        /// The address of the actor.
        address: Arc<str>,
    },
    /// Durably increment the version of an address, from 0 if it has no record, then list its queue. →
    /// [`Done::Raised`]
    Raise {
        /// The address of the actor.
        address: Arc<str>,
    },
    /// Store messages: all of them, or a prefix. → [`Done::Stored`]
    Put {
        /// The target's address.
        address: Arc<str>,
        /// Their keys and frames, in order.
        messages: Vec<(Waiting, Bytes)>,
    },
    /// Read these messages. → [`Done::Loaded`]
    Load {
        /// The target's address.
        address: Arc<str>,
        /// Keys of the messages to read.
        waiting: Vec<Waiting>,
    },
    /// Remove a message. → [`Done::Stored`]
    Remove {
        /// The target's address.
        address: Arc<str>,
        /// Key of the message.
        waiting: Waiting,
        /// The dedup marker, stored before the message is removed.
        delivered: Option<Delivered>,
    },
    /// Move a stored message that the hub cannot read to [`unreadable`](crate::key::unreadable), and log it;
    /// → [`Done::Stored`] when it is moved.
    SetAside {
        /// The target's address.
        address: Arc<str>,
        /// Key of the message.
        waiting: Waiting,
        /// The message as it is stored.
        body: Bytes,
        /// Why it cannot be read.
        reason: String,
    },
    /// Delete dedup markers of delivered messages. → [`Done::Stored`]
    Forget {
        /// The target's address.
        address: Arc<str>,
        /// Dedup markers to delete.
        delivered: Vec<Delivered>,
    },
}

/// Outcome of an effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// Outcome of [`Op::Look`].
    Looked {
        /// Whether the address was ever registered.
        known: bool,
        /// The server of the last registration, if that is another server that is running.
        elsewhere: Option<Place>,
        /// Messages and dedup markers of the address.
        kept: Kept,
    },
    /// Outcome of [`Op::Raise`].
    Raised {
        /// The new version.
        version: u64,
        /// Messages and dedup markers of the address.
        kept: Kept,
    },
    /// Success of [`Op::Put`], [`Op::Remove`], [`Op::SetAside`] or [`Op::Forget`].
    Stored,
    /// Outcome of [`Op::Put`]: another running server has registered the address, and no message was stored.
    Elsewhere(Place),
    /// Outcome of [`Op::Load`]; `None`: the message no longer exists.
    Loaded(Vec<(Waiting, Option<Bytes>)>),
    /// Outcome of [`Effect::Signal`]: whether a wait was open for it.
    Signalled(Result<bool, SignalRefusal>),
    /// The operation failed with this error; it may have taken effect or not.
    Failed(String),
}

/// Location of another server's hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its URL, if it is known.
    pub url: Option<String>,
}

/// Messages and dedup markers of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Queued messages and their sizes in bytes.
    pub waiting: Vec<(Waiting, usize)>,
    /// Dedup markers of delivered messages.
    pub delivered: Vec<Delivered>,
}

/// Why a signal was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignalRefusal {
    /// The run does not exist or has ended.
    Unknown(String),
    /// The run does not accept this signal.
    Invalid(String),
    /// A temporary failure; a retry may succeed.
    Later(String),
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Close {
    /// The client requested it.
    Asked = 1000,
    /// The server is shutting down.
    Shutdown = 1001,
    /// Another session registered the address.
    Duplicate = 4000,
    /// The token is invalid, expired or revoked.
    Token = 4001,
    /// The client reads too slowly.
    Slow = 4002,
    /// The session sent no heartbeat.
    Idle = 4003,
    /// The client sent too many malformed frames.
    Abuse = 4004,
}

impl Close {
    /// Returns the WebSocket close code.
    #[must_use]
    pub fn code(self) -> u16 {
        self as u16
    }

    /// Returns the `reason` of `hub:disconnect`.
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
