//! Every hard limit of a run, each with its reason.

use std::time::Duration;

/// A name is one of several parts of a key segment.
pub const NAME_BYTES_MAX: usize = 64;

/// The line that describes a wait is in the snapshot, in the index of waits and in every row of an inbox.
pub const ABOUT_BYTES_MAX: usize = 200;

/// An id shares a segment of at most 200 bytes in a wake-up's key with a time, a kind and a nonce.
pub const ID_BYTES_MAX: usize = 100;

/// In indexes the type of a task contains its queue, a workflow and a step, in one segment of at most 200 bytes.
pub const TASK_TYPE_BYTES_MAX: usize = 190;

/// A path is repeated in every event of its step.
pub const PATH_BYTES_MAX: usize = 512;

/// Inputs, outputs and signals are held in memory completely by every worker that drives the run.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

/// JSON parsers reject more than 128 levels, and stored objects add some levels around a payload.
pub const PAYLOAD_DEPTH_MAX: usize = 100;

/// Larger payloads become separate objects, so that an entry stays small and a claim reads little.
pub const INLINE_BYTES_MAX: usize = 16 * 1024;

/// A run's `data` is part of every snapshot.
pub const DATA_BYTES_MAX: usize = 64 * 1024;

/// All steps of a run are in memory during a turn.
pub const POINTS_MAX: usize = 100_000;

/// The number of an entry has ten digits in its key: with more digits, keys would no longer sort in log order.
pub const ENTRIES_MAX: u64 = 9_999_999_999;

/// An entry is written and read in one piece.
pub const ENTRY_BYTES_MAX: usize = 1024 * 1024;

/// Number of events after which an entry is committed and the next one starts. A soft limit, like [`ENTRY_BYTES_SOFT`]:
/// events that belong together stay together.
pub const ENTRY_EVENTS_MAX: usize = 256;

/// Serialized size of events after which an entry is committed and the next one starts.
pub const ENTRY_BYTES_SOFT: usize = 512 * 1024;

/// Objects written before one entry (large payloads, index entries of waits): on a bucket each is a request, and all of
/// them must be stored well within a lease.
pub const ENTRY_PUTS_MAX: usize = 128;

/// Bytes of the large payloads that are written before one entry.
pub const ENTRY_BLOB_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Bytes of the step paths in the event of one restart or migration.
pub const NAMED_STEPS_BYTES_MAX: usize = 256 * 1024;

/// Number of incompatible steps listed by a version mismatch.
pub const NAMED_MISFITS_MAX: usize = 100;

/// Number of failed compensations in the snapshot; the log has all of them.
pub const COMPENSATION_ERRORS_MAX: usize = 100;

/// Serialized size of settled steps in one chunk. Entries are not split between chunks.
pub const CHUNK_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A long turn writes a snapshot after this many entries; this bounds the entries that a takeover reads.
pub const SNAPSHOT_ENTRIES: u64 = 64;

/// A long turn also writes a snapshot at this interval, so that readers see a recent state.
pub const SNAPSHOT_AGE: Duration = Duration::from_secs(5);

/// Size of settled steps at which they are moved out of the snapshot. It is written every [`SNAPSHOT_ENTRIES`], so this
/// bounds the bytes that each step writes for all steps before it: 256.
pub const SNAPSHOT_POINTS_BYTES_MAX: usize = 16 * 1024;

/// Maximum size of an error's message and backtrace: enough to read, too little to fill an entry.
pub const ERROR_BYTES_MAX: usize = 4 * 1024;

/// Reason of a cancellation. It is in the log of a run twice, and in every snapshot.
pub const REASON_BYTES_MAX: usize = ERROR_BYTES_MAX;

/// Number of steps that one migration renames or skips: each takes up to two paths in one entry.
pub const MAPPING_MAX: usize = 256;

/// How long the ids of folded control objects are remembered: longer than any writer can stall.
pub const CONTROL_MEMORY: Duration = Duration::from_secs(3_600);

/// Number of folded control objects that are remembered regardless of age. If workers died before they deleted such an
/// object, a scan may find it at any later time; 32 ids take 2 KiB of a snapshot.
pub const CONTROLS_REMEMBERED_MIN: usize = 32;

/// Age at which a wake-up without a run is deleted: by then no starter can still be about to create the run.
pub const ORPHAN_AGE: Duration = Duration::from_secs(3_600);

/// A parked run without a deadline is checked after this time, doubling up to [`PATROL_MAX`].
pub const PATROL_FIRST: Duration = Duration::from_secs(24 * 3_600);

/// The longest interval between two checks of a parked run.
pub const PATROL_MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Number of workers that may die during one step before this counts as the step's failure: the step may kill them.
pub const INTERRUPTIONS_MAX: u32 = 16;

/// Overlap of inbox scans: each rereads this much before the previous one. It finds the signals of senders that needed
/// no longer than [`PUT_MAX`], despite clock differences.
pub const LOOK_BACK: Duration = Duration::from_secs(10);

/// Maximum time from drawing a signal's stamp until the signal is stored. Slower senders add a late note.
pub const PUT_MAX: Duration = Duration::from_secs(5);

/// Maximum uncertainty of the store's time at which a signal may be sent.
pub const UNCERTAINTY_MAX: Duration = Duration::from_millis(2_500);

/// The schema of a function's wait is part of its log.
pub const SCHEMA_BYTES_MAX: usize = 16 * 1024;

/// Number of waits that may race or be joined.
pub const RACE_MAX: usize = 64;

/// Number of open waits of a run: they are closed in one entry when it ends.
pub const WAITS_MAX: usize = 1_000;

/// A signal's position in its inbox is one segment of a key, followed by `.json`.
pub const SUFFIX_BYTES_MAX: usize = 190;

/// Number of senders that a quorum may need: their payloads are held in memory together.
pub const QUORUM_MAX: u32 = 64;

/// Size of a sender's name and of an idempotency key.
pub const SENDER_BYTES_MAX: usize = 256;

/// Maximum duration of any wait or sleep: a hundred years.
pub const SPAN_MAX: Duration = Duration::from_secs(100 * 365 * 24 * 3_600);

const _: () = assert!(2 * MAPPING_MAX * PATH_BYTES_MAX <= ENTRY_BYTES_SOFT);
const _: () = assert!(INLINE_BYTES_MAX < PAYLOAD_BYTES_MAX);
const _: () = assert!(LOOK_BACK.as_millis() >= PUT_MAX.as_millis() + 2 * UNCERTAINTY_MAX.as_millis());
// An entry below its soft limit has space for one more event of any kind, or one group of events that belong together.
const _: () = assert!(ENTRY_BYTES_SOFT + TASK_IDS_BYTES_MAX + 2 * PATH_BYTES_MAX + 4 * 1024 < ENTRY_BYTES_MAX);
const _: () = assert!(ENTRY_BYTES_SOFT + INLINE_BYTES_MAX + DATA_BYTES_MAX + RECEIVED_BYTES_MAX < ENTRY_BYTES_MAX);
const _: () = assert!(ENTRY_BYTES_SOFT + NAMED_STEPS_BYTES_MAX + INLINE_BYTES_MAX < ENTRY_BYTES_MAX);
// A quorum returns its payloads as one array.
const _: () = assert!(QUORUM_MAX as usize * (PAYLOAD_BYTES_MAX + 1) < BODY_BYTES_MAX);
const _: () = assert!(CHUNK_BYTES_MAX + ENTRY_BYTES_MAX < BODY_BYTES_MAX);

/// Size of a quorum's event without its payload: signals and their senders, whose names may need escapes of six bytes
/// per byte; and the other waits of a race, which are closed with it.
const RECEIVED_BYTES_MAX: usize =
    QUORUM_MAX as usize * (SUFFIX_BYTES_MAX + 6 * SENDER_BYTES_MAX + 32) + RACE_MAX * (PATH_BYTES_MAX + 128);

/// Age below which retention deletes only the name of an ended run. A reader that reads a run and rereads it within
/// this time therefore finds all objects that were added in between.
pub const RETENTION_RECENT: Duration = Duration::from_secs(60);

/// Signals read from an inbox concurrently: enough to hide the latency of a bucket, few enough for memory.
pub const SIGNALS_READ_AT_ONCE: usize = 16;

/// Operations in one batch; equal to the store's own limit, which the engine asserts.
pub const BATCH_OPERATIONS_MAX: usize = 4_096;

/// Bytes of one stored object; equal to the store's own limit, which the engine asserts.
pub const BODY_BYTES_MAX: usize = 65 * 1024 * 1024;

/// Joined results of tasks: one object of the store, held in memory completely.
pub const JOINED_BYTES_MAX: usize = 32 * 1024 * 1024;

/// Ids of the tasks of one wait: they are in its event.
pub const TASK_IDS_BYTES_MAX: usize = 400 * 1024;

/// A parent with more open children than this gets one wake-up for all children that end within the same second.
pub const SHARED_WAKE_FROM: usize = 8;

/// The limits that the simulator draws from its seed. All other builds use [`Limits::REAL`].
///
/// A simulated run is small. With limits of the real size it would never fill an entry, a page or a batch, and bugs at
/// these limits would stay undetected. The struct has a field for each drawn limit, and so more than 15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is the constant of the same name")]
#[non_exhaustive]
pub struct Limits {
    pub entry_events_max: usize,
    pub entry_bytes_soft: usize,
    pub entry_bytes_max: usize,
    pub entry_puts_max: usize,
    pub entry_blob_bytes_max: usize,
    pub error_bytes_max: usize,
    pub inline_bytes_max: usize,
    pub payload_bytes_max: usize,
    pub points_max: usize,
    pub waits_max: usize,
    pub race_max: usize,
    pub quorum_max: u32,
    pub interruptions_max: u32,
    pub snapshot_entries: u64,
    pub snapshot_points_bytes_max: usize,
    pub chunk_bytes_max: usize,
    pub named_steps_bytes_max: usize,
    pub named_misfits_max: usize,
    pub compensation_errors_max: usize,
    pub reason_bytes_max: usize,
    pub control_memory: Duration,
    pub controls_remembered_min: usize,
    pub patrol_first: Duration,
    pub signals_read_at_once: usize,
    pub batch_operations_max: usize,
    pub body_bytes_max: usize,
    pub joined_bytes_max: usize,
    pub task_ids_bytes_max: usize,
    pub shared_wake_from: usize,
}

impl Limits {
    /// The limits outside the simulator.
    pub const REAL: Self = Self {
        entry_events_max: ENTRY_EVENTS_MAX,
        entry_bytes_soft: ENTRY_BYTES_SOFT,
        entry_bytes_max: ENTRY_BYTES_MAX,
        entry_puts_max: ENTRY_PUTS_MAX,
        entry_blob_bytes_max: ENTRY_BLOB_BYTES_MAX,
        error_bytes_max: ERROR_BYTES_MAX,
        inline_bytes_max: INLINE_BYTES_MAX,
        payload_bytes_max: PAYLOAD_BYTES_MAX,
        points_max: POINTS_MAX,
        waits_max: WAITS_MAX,
        race_max: RACE_MAX,
        quorum_max: QUORUM_MAX,
        interruptions_max: INTERRUPTIONS_MAX,
        snapshot_entries: SNAPSHOT_ENTRIES,
        snapshot_points_bytes_max: SNAPSHOT_POINTS_BYTES_MAX,
        chunk_bytes_max: CHUNK_BYTES_MAX,
        named_steps_bytes_max: NAMED_STEPS_BYTES_MAX,
        named_misfits_max: NAMED_MISFITS_MAX,
        compensation_errors_max: COMPENSATION_ERRORS_MAX,
        reason_bytes_max: REASON_BYTES_MAX,
        control_memory: CONTROL_MEMORY,
        controls_remembered_min: CONTROLS_REMEMBERED_MIN,
        patrol_first: PATROL_FIRST,
        signals_read_at_once: SIGNALS_READ_AT_ONCE,
        batch_operations_max: BATCH_OPERATIONS_MAX,
        body_bytes_max: BODY_BYTES_MAX,
        joined_bytes_max: JOINED_BYTES_MAX,
        task_ids_bytes_max: TASK_IDS_BYTES_MAX,
        shared_wake_from: SHARED_WAKE_FROM,
    };
}

#[cfg(feature = "testing")]
mod drawn {
    use std::cell::Cell;

    use super::Limits;

    thread_local! {
        static CURRENT: Cell<Limits> = const { Cell::new(Limits::REAL) };
    }

    /// Sets the limits for this thread.
    pub fn set(limits: Limits) {
        CURRENT.set(limits);
    }

    /// Returns the limits of this thread.
    #[must_use]
    pub fn current() -> Limits {
        CURRENT.get()
    }
}

#[cfg(feature = "testing")]
pub use drawn::{current, set};

/// Returns the limits.
#[cfg(not(feature = "testing"))]
#[must_use]
#[inline]
pub const fn current() -> Limits {
    Limits::REAL
}
