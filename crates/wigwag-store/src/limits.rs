//! Every hard limit of the store, each with its reason.

use std::time::Duration;

/// S3 and most of its kin allow 1,024 bytes in a key.
pub const KEY_BYTES_MAX: usize = 1_024;

/// Servers that keep objects as files cannot name a segment longer than a file name.
pub const SEGMENT_BYTES_MAX: usize = 255;

/// A body is held in memory whole, by us and by the server's single-request put. 64 payloads of 1 MiB fit, as a quorum
/// may collect them, with the commas between them.
pub const BODY_BYTES_MAX: usize = 65 * 1024 * 1024;

/// A batch is one transaction on the embedded store; a larger one would block all other writers.
pub const BATCH_OPERATIONS_MAX: usize = 4_096;

/// Number of keys in one LIST response of S3; a longer page costs further requests.
pub const LIST_PAGE: usize = 1_000;

/// Number of writes that may wait for the embedded writer before callers wait to enqueue theirs.
pub const WRITES_WAITING_MAX: usize = 4_096;

/// Number of reads that may wait for the embedded readers before callers wait to enqueue theirs.
pub const READS_WAITING_MAX: usize = 1_024;

/// Number of batches in one transaction of the embedded store; it bounds the latency of each.
pub const GROUP_BATCHES_MAX: usize = 1_024;

/// Size of the bodies in one transaction of the embedded store.
pub const GROUP_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Number of notifications that a follower may leave unread before they are dropped and it is notified of the gap.
pub const CHANGES_WAITING_MAX: usize = 1_024;

/// Size of an event in a server's stream of changes: some hundred keys of maximum length.
pub const NUDGE_EVENT_BYTES_MAX: usize = 1024 * 1024;

/// Maximum silence of a server's stream of changes before it counts as broken; it sends a keep-alive every 15 s.
pub const NUDGE_SILENCE_MAX: Duration = Duration::from_secs(50);

/// Number of servers that a process connects to: each receives every write, so that more would cost more
/// than they help.
pub const SERVERS_MAX: usize = 32;

/// Number of keys that wait to be posted to a server before some are dropped.
pub const FLEET_PENDING_KEYS_MAX: usize = 4_096;

/// How large the body of one post of notifications is: some hundred keys.
pub const NOTIFY_BYTES_MAX: usize = 64 * 1024;

/// Time for which a process that ends waits until its notifications are delivered: some round trips. A server that is slower
/// finds the writes by polling.
pub const NOTIFY_FLUSH_MAX: Duration = Duration::from_secs(1);

/// Maximum lead of a requested stamp over the store's time; a larger one indicates a faulty caller.
pub const STAMP_AHEAD_MAX: Duration = Duration::from_secs(3_600);

const _: () = assert!(SEGMENT_BYTES_MAX < KEY_BYTES_MAX);
const _: () = assert!(GROUP_BATCHES_MAX <= WRITES_WAITING_MAX);
