//! Limits, intervals and timeouts of the hub client, each with its reason.

use std::time::Duration;

/// Maximum commands handled before the socket is polled again.
pub(crate) const FRAMES_PER_TURN: usize = 64;

/// Factor by which the inbox may grow while a call waits for its answer, because the task that handles messages may be
/// waiting for that answer.
pub(crate) const INBOX_STRETCH: usize = 4;

/// Failed connections to another server after which the client returns to its first one.
pub(crate) const HOME_AFTER_FAILURES: u32 = 3;

/// Timeout of the closing handshake of the socket.
pub(crate) const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// Delay before an internal call is retried after a retryable rejection.
pub(crate) const RETRY_REST: Duration = Duration::from_secs(1);

/// Connection age after which the reconnect backoff resets.
pub(crate) const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// Maximum moves to another server within [`MOVES_WITHIN`]: a client with targets on two
/// servers must not switch endlessly.
pub(crate) const MOVES_MAX: usize = 3;

/// Time window of the limit [`MOVES_MAX`].
pub(crate) const MOVES_WITHIN: Duration = Duration::from_secs(10);

/// How long a closing client waits for the answer to `hub:disconnect`.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Heartbeat intervals of silence after which the connection counts as broken.
pub(crate) const SILENT_HEARTBEATS_MAX: u32 = 3;

/// Maximum size of an incoming frame: a hub accepts messages of 1 MiB and adds a small envelope.
pub(crate) const FRAME_BYTES_MAX: usize = 8 << 20;

/// How long the hub waits for an acknowledgement or a reply by default.
pub(crate) const TTL: Duration = Duration::from_secs(30);

/// How long the hub waits for an acknowledgement or a reply at most.
pub(crate) const TTL_MAX: Duration = Duration::from_secs(300);

/// Added to the TTL before a call times out here: the hub's own timeout answer arrives a little later than the TTL.
pub(crate) const ANSWER_SLACK: Duration = Duration::from_secs(5);

/// Maximum of a count setting: a larger buffer would be unbounded in practice.
pub(crate) const SETTING_COUNT_MAX: usize = 1_000_000;

/// Events that a listener may lag behind before it misses some.
pub(crate) const EVENTS_MAX: usize = 256;

/// Longest id that the protocol allows.
pub(crate) const ID_BYTES_MAX: usize = 128;

/// Longest address, topic or pattern that the protocol allows.
pub(crate) const NAME_BYTES_MAX: usize = 256;
