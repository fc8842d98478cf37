//! What a durable run is and how it changes: values and functions, no clock, no I/O, no async.
//!
//! A run is a log of [`Entry`]s. [`Run::apply`] folds them; nothing else changes a run. What may happen next is asked
//! of pure functions: which steps of a graph are ready ([`Frontier`]), what follows a failure ([`after_failure`]), what
//! is undone in which order ([`Run::undo_order`]), whether new code fits an old run ([`version`]), what a worker that
//! found a hint does ([`look`]). The engine around it reads, asks, writes and asks again.

mod id;
pub mod limits;
mod payload;
mod requests;
mod retry;
mod time;

mod definition;
mod event;
mod failure;
mod graph;
mod key;
mod run;
mod signal;
mod stored;

mod apply;
pub mod audit;
mod control;
mod look;
pub mod mutation;
pub mod version;

pub use control::{Control, Order};
pub use definition::{Definition, Node, NodeKind, OnFailure, STEP_TIMEOUT, SignalSpec, Style, task_point};
pub use event::*;
pub use failure::{Fault, Outcome, Then, after_failure};
pub use graph::Frontier;
pub use id::{Name, Path, Refusal, RunId, TypeName, sha256_hex, sha256_u32};
pub use key::{Family, Hint, INPUT_SEGMENT, Key, RunRef, kind_of, prefix, shard_of};
pub use look::{Look, look};
pub use payload::{Blob, Data, Payload};
pub use requests::Requests;
pub use retry::Retry;
pub use run::*;
pub use signal::{
    Bound, Decision, Fate, Inbox, Inboxes, Mode, Seen, SenderMisfit, Signal, Source, Taken, Wait, is_suffix, stamp_of,
    suffix,
};
pub use stored::{
    Chunk, Entry, Tombstone, chunk_to_json, read_chunk, read_entry, read_state, shown_to_json, state_to_json,
};
pub use time::Time;
