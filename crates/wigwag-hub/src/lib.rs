//! Routes messages between actors, with ordering, delivery and deduplication guarantees.
//!
//! [`Hub`] is a value: frames, connections, disconnects and the time are inputs; frames for connections and
//! [`Effect`]s (mostly store operations) are outputs. It has no sockets, no clock and no async; `wigwag-server` is
//! the shell around it. The protocol is `docs/reference/hub.md`.
//!
//! Holds, and is checked by the tests and the simulator:
//!
//! - An ask answered `delivered` was written to its target's connection (or acknowledged by its client); an ask
//!   answered `queued` is in the store. A repeat gets the same answer and is delivered once, also after a restart if
//!   it was queued.
//! - A message keeps one id while the hub runs, across all retries.
//! - No call is slow: long jobs are split into slices.
//! - Messages from one sender to one target over one connection arrive in order, also through the queue.
//! - No message is delivered after its time to live.
//! - Messages of a topic are numbered; a subscriber that misses some receives the range of the gap.
//! - The hub verifies `from`.
//! - Everything that a client can make grow is bounded.

/// Whether the deliberate bug of this name is active: `false` at compile time unless the
/// feature `deliberate-bugs` is enabled.
#[cfg(feature = "deliberate-bugs")]
macro_rules! deliberate_bug {
    ($name:ident) => {
        $crate::mutation::is_mutated($crate::mutation::Mutation::$name)
    };
}

/// Whether the deliberate bug of this name is active: never in this build.
#[cfg(not(feature = "deliberate-bugs"))]
macro_rules! deliberate_bug {
    ($name:ident) => {
        false
    };
}

pub mod address;
mod envelope;
mod frame;
mod glob;
mod hub;
mod id;
pub mod key;
#[cfg(feature = "deliberate-bugs")]
#[doc(hidden)]
pub mod mutation;
mod outbox;
mod plain;
mod rate;
mod refusal;
mod rights;
mod seen;
mod settings;
mod stored;
pub mod sweep;
#[cfg(feature = "testing")]
pub mod testing;
mod topic;

pub use envelope::{Envelope, Fields, Frame, Metadata, Pattern, Text, Unreadable, read};
pub use glob::Glob;
pub use hub::{Came, Close, Done, Effect, Hub, Kept, Op, Place, SignalRefusal, Ticket};
pub use key::{Delivered, Waiting};
pub use rights::{Access, Rights};
pub use settings::{Millis, Rate, Settings};
pub use topic::After;

/// The version of the protocol.
pub const PROTOCOL_VERSION: &str = "0.1.0";

slotmap::new_key_type! {
    /// Identifies a session of a hub.
    pub struct SessionId;
    /// Identifies an actor in the hub's memory.
    pub(crate) struct ActorId;
    /// Identifies a token in use.
    pub(crate) struct TokenId;
}
