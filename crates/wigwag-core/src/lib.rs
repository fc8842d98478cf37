//! Durable runs and their transitions as values and functions: no clock, no I/O, no async.
//!
//! A run is a log of [`Entry`]s. [`Run::apply`] folds them; nothing else changes a run. Pure functions decide about the
//! next action: the ready steps of a graph ([`Frontier`]), the consequence of a failure ([`after_failure`]), the order
//! of compensations ([`Run::undo_order`]), whether new code matches an old run ([`version`]), and the action of a
//! worker that found a wake-up ([`look`]). The engine around them reads, decides, writes and repeats.

/// Whether the deliberate bug of this name is enabled: `false` at compile time without the feature `deliberate-bugs`.
#[doc(hidden)]
#[cfg(feature = "deliberate-bugs")]
#[macro_export]
macro_rules! deliberate_bug {
    ($name:ident) => {
        $crate::mutation::is_mutated($crate::mutation::Mutation::$name)
    };
}

/// Always `false`: this build contains no deliberate bugs.
#[doc(hidden)]
#[cfg(not(feature = "deliberate-bugs"))]
#[macro_export]
macro_rules! deliberate_bug {
    ($name:ident) => {
        false
    };
}

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
mod explain;
mod look;
#[cfg(feature = "deliberate-bugs")]
#[doc(hidden)]
pub mod mutation;
pub mod turn;
pub mod version;

pub use control::{Control, Order};
pub use definition::{Definition, Node, NodeKind, OnFailure, STEP_TIMEOUT, SignalSpec, Style, task_point};
pub use event::*;
pub use explain::{Arrived, Compensated, Explanation, Misfit, OpenPoint};
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
    Bound, Decision, Fate, Inbox, Inboxes, Mode, Seen, SenderMisfit, Signal, Source, Taken, Wait, about_line,
    is_suffix, stamp_of, suffix,
};
pub use stored::{
    Chunk, Entry, Tombstone, chunk_to_json, read_chunk, read_entry, read_state, shown_to_json, state_to_json,
};
pub use time::Time;
