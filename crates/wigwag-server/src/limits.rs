//! Every hard limit of the server, each with its reason.

use std::time::Duration;

use wigwag_hub::Rate;

use crate::room::BodyBounds;

use wigwag::core::limits::PAYLOAD_BYTES_MAX;

/// A body holds one payload, and a little around it.
pub const BODY_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + 64 * 1024;

/// How many items a page has unless it is asked for otherwise.
pub const PAGE: usize = 50;

/// How many items a page has at most: each may be an object that is read.
pub const PAGE_MAX: usize = 1_000;

/// A cursor is a key of the store, or shorter.
pub const CURSOR_BYTES_MAX: usize = 1_024;

/// So many signals are sent by one request.
pub const SIGNALS_MAX: usize = 1_000;

/// How long a long-poll waits unless it is asked for otherwise.
pub const WAIT: Duration = Duration::from_secs(30);

/// The longest: proxies give up on a silent connection after about a minute.
pub const WAIT_MAX: Duration = Duration::from_secs(55);

/// How long a link lives unless it is asked for otherwise.
pub const LINK_LIFE: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Events of one run that are kept for its followers; who is further behind reads the store.
pub const RECENT_EVENTS_MAX: usize = 1_024;

/// And at most so much text of them.
pub const RECENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Entries that a follower who is behind reads at a time.
pub const CATCH_UP_ENTRIES: u64 = 64;

/// A link is made of an id, a name, a time and a signature: one that is longer was not made by us.
pub const LINK_BYTES_MAX: usize = 2_048;

/// Allowed clock difference to the issuer of a JWT, when a connection starts and while it lasts.
pub const JWT_LEEWAY_SECONDS: u64 = 5;

/// Nor was a token.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;

/// Memory budget of `/v1` bodies: 64 of the largest in total, a quarter for one address, half for one caller.
pub const BODIES: BodyBounds = bounds(64 * BODY_BYTES_MAX, 16 * BODY_BYTES_MAX, 32 * BODY_BYTES_MAX);

/// Memory budget of `/s3` bodies: four of the largest in total, three for one address or access key.
pub const S3_BODIES: BodyBounds = bounds(4 * S3_SENT_BYTES_MAX, 3 * S3_SENT_BYTES_MAX, 3 * S3_SENT_BYTES_MAX);

/// The largest object, with the heads of its chunks around it.
const S3_SENT_BYTES_MAX: usize = wigwag::store::limits::BODY_BYTES_MAX / 63 * 64 + 64 * 1024;

const fn bounds(total_bytes_max: usize, address_bytes_max: usize, caller_bytes_max: usize) -> BodyBounds {
    BodyBounds { total_bytes_max, address_bytes_max, caller_bytes_max }
}

/// Minimum rate of an object's body in bytes per second, once `body_timeout` is over: a poor mobile connection.
pub const BODY_RATE_MIN: usize = 16 * 1024;

/// Read buffer of a connection: fits the head of a request; 10,000 of them fit a small machine.
pub const READ_BUFFER_BYTES_MAX: usize = 64 * 1024;

/// Connections per client address: a quarter of all, so that one address cannot use them all.
pub const ADDRESS_CONNECTIONS_MAX: usize = 2_500;

/// Failed authentications per address: the burst is answered at once, further ones at this rate.
pub const FAILED_AUTH: Rate = Rate { per_second: 10, burst: 100 };

/// Longest delay of a failed authentication; one that would be delayed longer is answered 429 at once.
pub const FAILED_AUTH_DELAY_MAX: Duration = Duration::from_secs(5);

/// A list of a thousand keys to delete, each as long as a key may be and escaped as badly as can be.
pub const S3_DELETE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The head of a chunk is a number and a signature, and a trailer a name and a checksum.
pub const S3_CHUNK_HEAD_BYTES_MAX: usize = 4 * 1024;

/// So many keys are told by one event of the store's changes.
pub const CHANGES_AT_ONCE: usize = 256;
/// How often figures are summed up: what comes in between lies in memory one by one.
pub const UPKEEP: Duration = Duration::from_secs(5);
