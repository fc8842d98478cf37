//! Messages between actors: who hears what, in which order, and what is promised.
//!
//! [`Hub`] is a value: frames, connections, their ends and the time go in; frames for connections and [`Effect`]s (mostly
//! operations on a store) come out. It has no sockets, no clock and no async; `wigwag-server` is the shell around it. The
//! protocol is `docs/reference/hub.md`.
//!
//! Holds, and is tried by the tests and the simulator:
//!
//! - An ask that was answered `delivered` was written to its target's connection (or acknowledged by its client), one that
//!   was answered `queued` is in the store; a repeat is answered the same and delivered once, also after a restart if it was queued.
//! - A message has one id for as long as the hub lives, however often it is tried.
//! - No call takes long: long jobs are split into slices.
//! - What one sender sends to one target over one connection arrives in that order, through the queue too.
//! - Nothing is delivered after its time.
//! - A topic's messages are numbered; whoever misses some is told which.
//! - `from` is what the hub has checked.
//! - Everything that a client can make grow has a bound.

pub mod address;
mod envelope;
mod frame;
mod glob;
mod hub;
mod id;
pub mod key;
mod mutation;
mod outbox;
mod plain;
mod rate;
mod refusal;
mod rights;
mod seen;
mod settings;
pub mod sweep;
#[cfg(feature = "testing")]
pub mod testing;
mod topic;

pub use envelope::{Envelope, Fields, Frame, Metadata, Pattern, Text, Unreadable, read};
pub use glob::Glob;
pub use hub::{Came, Close, Done, Effect, Hub, Kept, Op, Place, SignalRefusal, Ticket};
pub use key::{Delivered, Waiting};
pub use mutation::Mutation;
pub use rights::{Access, Rights};
pub use settings::{Millis, Rate, Settings};
pub use topic::After;

/// The version of the protocol.
pub const PROTOCOL_VERSION: &str = "0.1.0";

slotmap::new_key_type! {
    /// Names a session of a hub.
    pub struct SessionId;
    /// Names an actor that a hub knows.
    pub(crate) struct ActorId;
}
