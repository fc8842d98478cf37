//! Every hard limit of the server, each with its reason.

use std::time::Duration;

use wigwag_hub::Rate;

use crate::room::BodyBounds;

use wigwag_core::limits::PAYLOAD_BYTES_MAX;

/// A body holds one payload, and some JSON around it.
pub const BODY_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 64 * 1024;

/// Default number of items on a page.
pub const PAGE: usize = 50;

/// Maximum number of items on a page: each may be an object that is read.
pub const PAGE_MAX: usize = 1_000;

/// Maximum length of a cursor: that of a key of the store.
pub const CURSOR_BYTES_MAX: usize = 1_024;

/// Maximum number of signals in one request.
pub const SIGNALS_MAX: usize = 1_000;

/// Default time of a long-poll.
pub const WAIT: Duration = Duration::from_secs(30);

/// Maximum time of a long-poll: proxies give up on a silent connection after about a minute.
pub const WAIT_MAX: Duration = Duration::from_secs(55);

/// Default lifetime of a link.
pub const LINK_LIFE: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Events of one run that are kept in memory for its followers; a follower that is further behind reads the store.
pub const RECENT_EVENTS_MAX: usize = 1_024;

/// Maximum bytes of these events.
pub const RECENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Entries that a follower reads from the store at a time.
pub const CATCH_UP_ENTRIES: u64 = 64;

/// Maximum length of a link: it consists of an id, a name, a time and a signature.
pub const LINK_BYTES_MAX: usize = 2_048;

/// Allowed clock difference to the issuer of a JWT, when a connection starts and while it lasts.
pub const JWT_LEEWAY_SECONDS: u64 = 5;

/// Maximum length of a bearer token.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Memory budget of `/v1` bodies: 64 of the largest in total, a quarter for one address, half for one caller.
pub const BODIES: BodyBounds = bounds(64 * BODY_BYTES_MAX, 16 * BODY_BYTES_MAX, 32 * BODY_BYTES_MAX);

/// Memory budget of `/s3` bodies: four of the largest in total, three for one address or access key.
pub const S3_BODIES: BodyBounds = bounds(4 * S3_SENT_BYTES_MAX, 3 * S3_SENT_BYTES_MAX, 3 * S3_SENT_BYTES_MAX);

/// Memory budget of unfinished hub frames: 64 of the largest messages in total, a quarter for one address, half for one token.
/// A frame is in memory until its last byte arrives, so this bounds what slow or hostile clients hold.
pub const HUB_FRAMES: BodyBounds = bounds(64 * HUB_FRAME_BYTES, 16 * HUB_FRAME_BYTES, 32 * HUB_FRAME_BYTES);

/// The largest message of the hub.
const HUB_FRAME_BYTES: usize = 1024 * 1024;

/// The largest object, with the heads of its chunks.
const S3_SENT_BYTES_MAX: usize = wigwag_store::limits::BODY_BYTES_MAX / 63 * 64 + 64 * 1024;

const fn bounds(total_bytes_max: usize, address_bytes_max: usize, caller_bytes_max: usize) -> BodyBounds {
    BodyBounds { total_bytes_max, address_bytes_max, caller_bytes_max }
}

/// Minimum rate of an object's body in bytes per second, once `body_timeout` is over: a poor mobile connection.
pub const BODY_RATE_MIN: usize = 16 * 1024;

/// Read buffer of a connection: fits the head of a request; 10,000 of them fit a small machine.
pub const READ_BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Connections per client address: a quarter of all, so that one address cannot use them all.
pub const ADDRESS_CONNECTIONS_MAX: usize = 2_500;

/// Default request rate of an address: a busy office behind one address, or a fleet of remote workers, stays below it.
pub const ADDRESS_RATE: Rate = Rate { per_second: 2_000, burst: 4_000 };

/// Default request rate of a token or access key: more than the workers of one fleet need, who may share a key.
pub const TOKEN_RATE: Rate = Rate { per_second: 10_000, burst: 20_000 };

/// Failed authentications per address: the burst is answered at once, further ones at this rate.
pub const FAILED_AUTH: Rate = Rate { per_second: 10, burst: 100 };

/// Longest delay of a failed authentication; a failure that would be delayed longer is answered 429 immediately.
pub const FAILED_AUTH_DELAY_MAX: Duration = Duration::from_secs(5);

/// A list of a thousand keys to delete, each of the maximum length and with every character escaped.
pub const S3_DELETE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Maximum length of the head of a chunk (a number and a signature) or of a trailer (a name and a checksum).
pub const S3_CHUNK_HEAD_BYTES_MAX: usize = 4 * 1024;

/// Maximum number of keys in one post of notifications; for more, a scan is cheaper than reading them one by one.
pub const NOTIFY_KEYS_MAX: usize = 4_096;

/// Maximum number of keys in one event of the store's changes.
pub const CHANGES_AT_ONCE: usize = 256;
/// Interval in which metrics are aggregated; until then each sample is in memory.
pub const UPKEEP: Duration = Duration::from_secs(5);
