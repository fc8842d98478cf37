//! Limits, intervals and timeouts of the hub client, each with its reason.

use std::time::Duration;

/// Calls that are handled before the socket is polled again.
pub(crate) const FRAMES_PER_TURN: usize = 64;

/// Factor by which the inbox may grow while a call waits for its answer: the task that handles messages may be the one that
/// asks.
pub(crate) const INBOX_STRETCH: usize = 4;

/// Failed connections to another server after which the client returns to its first one.
pub(crate) const HOME_AFTER_FAILURES: u32 = 3;

/// Timeout of the closing handshake of the socket.
pub(crate) const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// Delay before an internal call is retried after a retryable rejection.
pub(crate) const RETRY_REST: Duration = Duration::from_secs(1);

/// Age from which on a connection counts as good: the backoff starts anew.
pub(crate) const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// Maximum moves within [`MOVES_WITHIN`], in case targets are at two servers.
pub(crate) const MOVES_MAX: usize = 3;

/// See [`MOVES_MAX`].
pub(crate) const MOVES_WITHIN: Duration = Duration::from_secs(10);

/// Timeout of `hub:disconnect`, until its answer.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Heartbeat intervals of silence after which the connection counts as broken.
pub(crate) const SILENT_HEARTBEATS_MAX: u32 = 3;

/// Longest frame that is read: a hub accepts 1 MiB, and adds little.
pub(crate) const FRAME_BYTES_MAX: usize = 8 << 20;

/// How long the hub waits for an acknowledgement or a reply by default.
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// How long the hub waits for an acknowledgement or a reply at most.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(300);

/// Added to the TTL before a call times out here: the hub's own timeout answer arrives a little later than the TTL.
pub(crate) const ANSWER_SLACK: Duration = Duration::from_secs(5);

/// Largest count that a setting accepts: more is no buffer any more.
pub(crate) const SETTING_COUNT_MAX: usize = 1_000_000;

/// Events that a listener may lag behind before it misses some.
pub(crate) const EVENTS_MAX: usize = 256;

/// Longest id that the protocol allows.
pub(crate) const ID_BYTES_MAX: usize = 128;

/// Longest address, topic or pattern that the protocol allows.
pub(crate) const NAME_BYTES_MAX: usize = 256;
