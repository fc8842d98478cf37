//! Every hard limit of the store, each with its reason.

use std::time::Duration;

/// S3 and most of its kin allow 1,024 bytes in a key.
pub const KEY_BYTES_MAX: usize = 1_024;

/// Servers that keep objects as files cannot name a segment longer than a file name.
pub const SEGMENT_BYTES_MAX: usize = 255;

/// A body is held in memory whole, by us and by the server's single-request put. 64 payloads of 1 MiB fit, as a quorum
/// may collect them, with the commas between them.
pub const BODY_BYTES_MAX: usize = 65 * 1024 * 1024;

/// A batch is one transaction on the embedded store; a larger one would hold up everybody else.
pub const BATCH_OPERATIONS_MAX: usize = 4_096;

/// As many keys as one LIST request of S3 returns; a longer page costs further requests.
pub const LIST_PAGE: usize = 1_000;

/// How many writes may wait for the embedded writer before callers wait to enqueue theirs.
pub const WRITES_WAITING_MAX: usize = 4_096;

/// How many reads may wait for the embedded readers before callers wait to enqueue theirs.
pub const READS_WAITING_MAX: usize = 1_024;

/// What one transaction of the embedded store takes together, so that nobody's answer waits for all the world's.
pub const GROUP_BATCHES_MAX: usize = 1_024;

/// The same in bytes of bodies.
pub const GROUP_BYTES_MAX: usize = 16 * 1024 * 1024;

/// How many nudges a follower may leave unread before it is told that it missed some.
pub const CHANGES_WAITING_MAX: usize = 1_024;

/// How long an event of a server's changes may be: some hundred keys, each as long as a key may be.
pub const NUDGE_EVENT_BYTES_MAX: usize = 1024 * 1024;

/// How long a server's stream of changes may be silent before it counts as broken; it says every 15 s that it lives.
pub const NUDGE_SILENCE_MAX: Duration = Duration::from_secs(50);

/// How far ahead of the store's time a caller may ask for a stamp; beyond it something is wrong with the caller.
pub const STAMP_AHEAD_MAX: Duration = Duration::from_secs(3_600);

const _: () = assert!(SEGMENT_BYTES_MAX < KEY_BYTES_MAX);
const _: () = assert!(GROUP_BATCHES_MAX <= WRITES_WAITING_MAX);
