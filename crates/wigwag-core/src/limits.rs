//! Every hard limit of a run, each with its reason.

use std::time::Duration;

/// A name is one segment of a key, beside others.
pub const NAME_BYTES_MAX: usize = 64;

/// An id stands in a hint's key beside a time, a kind and a nonce, in one segment of at most 200 bytes.
pub const ID_BYTES_MAX: usize = 100;

/// In indexes the type of a task holds its queue, a workflow and a step, in one segment of at most 200 bytes.
pub const TASK_TYPE_BYTES_MAX: usize = 190;

/// A path is repeated in every event of its point.
pub const PATH_BYTES_MAX: usize = 512;

/// Inputs, outputs and signals are held in memory whole, by every worker that touches the run.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

/// Readers of JSON give up at 128 levels, and what is stored has some levels of its own around a payload.
pub const PAYLOAD_DEPTH_MAX: usize = 100;

/// Larger payloads become objects of their own, so that an entry stays small and a claim reads little.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;

/// A run's `data` is part of every snapshot.
pub const DATA_BYTES_MAX: usize = 64 * 1024;

/// All points of a run are in memory while it is driven.
pub const POINTS_MAX: usize = 100_000;

/// The number of an entry has ten digits in its key: with more, keys would no longer sort as entries follow each other.
pub const ENTRIES_MAX: u64 = 9_999_999_999;

/// An entry is written and read whole.
pub const ENTRY_BYTES_MAX: usize = 1024 * 1024;

/// So many events share an entry at most; with inline payloads at most, that stays far below [`ENTRY_BYTES_MAX`].
pub const ENTRY_EVENTS_MAX: usize = 256;

/// What events may add to one entry before the rest goes into the next.
pub const ENTRY_BYTES_SOFT: usize = 512 * 1024;

/// In a long turn a snapshot is written after so many entries, so that a takeover reads at most these.
pub const SNAPSHOT_ENTRIES: u64 = 64;

/// And after so long, so that whoever looks sees a recent state.
pub const SNAPSHOT_AGE: Duration = Duration::from_secs(5);

/// Finished points leave the snapshot once they take so much of it. It is written every [`SNAPSHOT_ENTRIES`], so
/// this bounds what each step pays for all before it: 256 bytes.
pub const SNAPSHOT_POINTS_BYTES_MAX: usize = 16 * 1024;

/// What is kept of an error's message and backtrace: enough to read, not enough to fill an entry.
pub const ERROR_BYTES_MAX: usize = 4 * 1024;

/// Reason of a cancel. It is twice in the log of a run, and in every snapshot.
pub const REASON_BYTES_MAX: usize = ERROR_BYTES_MAX;

/// Steps that one migration renames or skips: each takes up to two paths in one entry.
pub const MAPPING_MAX: usize = 256;

/// How long the ids of folded control objects are remembered: longer than any writer stalls.
pub const CONTROL_MEMORY: Duration = Duration::from_secs(3_600);

/// A hint without a run is dropped when it is so old that no starter can still be about to make the run.
pub const ORPHAN_AGE: Duration = Duration::from_secs(3_600);

/// A parked run with no deadline is looked at after this, doubling up to [`PATROL_MAX`].
pub const PATROL_FIRST: Duration = Duration::from_secs(24 * 3_600);

/// The longest time between two looks at a parked run.
pub const PATROL_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// So many workers may die while they run one step before that counts as the step's failure: it may be what kills them.
pub const INTERRUPTIONS_MAX: u32 = 16;

/// How far behind the last look an inbox is looked at again: a sender that took no longer than [`PUT_MAX`] is seen by
/// then, by whatever clocks.
pub const LOOK_BACK: Duration = Duration::from_secs(10);

/// How long a sender may take from before its stamp was drawn until its signal is there. Slower ones send a late note.
pub const PUT_MAX: Duration = Duration::from_secs(5);

/// How far off the store's time may be for a signal to be sent.
pub const UNCERTAINTY_MAX: Duration = Duration::from_millis(2_500);

/// The schema of a function's wait stands in its log.
pub const SCHEMA_BYTES_MAX: usize = 16 * 1024;

/// So many waits may race or be gathered at once.
pub const RACE_MAX: usize = 64;

/// So many waits of a run may be open: they are closed in one entry when it ends.
pub const WAITS_MAX: usize = 1_000;

/// A signal's place in its inbox is one segment of a key, with `.json` behind it.
pub const SUFFIX_BYTES_MAX: usize = 190;

/// So many senders a quorum may want: what they sent is held in memory together.
pub const QUORUM_MAX: u32 = 64;

/// What a sender may say of itself, and an idempotency key.
pub const SENDER_BYTES_MAX: usize = 256;

/// Nobody waits longer for anything than a hundred years.
pub const SPAN_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

const _: () = assert!(2 * MAPPING_MAX * PATH_BYTES_MAX <= ENTRY_BYTES_SOFT);
const _: () = assert!(INLINE_BYTES_MAX < PAYLOAD_BYTES_MAX);
const _: () = assert!(LOOK_BACK.as_millis() >= PUT_MAX.as_millis() + 2 * UNCERTAINTY_MAX.as_millis());
const _: () = assert!(ENTRY_BYTES_SOFT + 2 * INLINE_BYTES_MAX + DATA_BYTES_MAX < ENTRY_BYTES_MAX);

/// Who reads a run quickly, and again within this, finds what was added meanwhile: of a run that ended no longer ago
/// retention takes nothing but the name.
pub const RETENTION_RECENT: Duration = Duration::from_secs(60);
