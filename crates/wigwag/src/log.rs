//! The log of a run: reading it, staging events, committing entries. The only writer of entries.
//!
//! What if we die here? An entry exists or not, and that decides. Objects that a batch puts before it (wake-ups, large
//! payloads) are harmless without it: a spare wake-up, an object that nothing names. Writes after it (snapshot, index objects,
//! deleted wake-ups) are repeated by the next owner. Where the store is atomic, a batch is one commit; elsewhere the
//! entry is written alone and the snapshot follows under the version last read, so that a stalled worker's old snapshot
//! never replaces a newer one.

mod archive;
mod commit;
mod reader;
mod writer;

use wigwag_core::limits;

pub(crate) use archive::{make_inboxes_whole, make_whole};
pub(crate) use commit::{CommitError, CommitPlan, Preconditions, is_by};
pub(crate) use reader::{
    Loaded, catch_up_run, catch_up_to_end, fate_in_log, get_named, is_taken_in_log, read, read_entries, read_on,
    read_snapshot, read_whole,
};
pub(crate) use writer::{Log, blob};

const _: () = assert!(limits::BATCH_OPERATIONS_MAX == wigwag_store::limits::BATCH_OPERATIONS_MAX);
const _: () = assert!(limits::BODY_BYTES_MAX == wigwag_store::limits::BODY_BYTES_MAX);
