//! Settings of a hub, each with its reason.

/// Milliseconds since 1970, or a duration in milliseconds.
pub type Millis = u64;

/// Settings of a hub. [`Settings::default`] has the values of the protocol page.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// Version of the server, sent in `hub:connected`.
    pub server_version: String,
    /// Maximum size of a message.
    pub message_bytes_max: usize,
    /// Heartbeat interval of clients; a session without a sign of life for three intervals is closed.
    pub heartbeat: Millis,
    /// Time limit for `hub:connect` on a new connection.
    pub connect_within: Millis,
    /// Rate limit of each session; `None`: no limit.
    pub rate: Option<Rate>,
    /// Rate limit of each token, for all its sessions together; `None`: no limit.
    pub token_rate: Option<Rate>,
    /// Maximum number of messages in the queue of an actor that is away.
    pub queue_max: usize,
    /// Maximum bytes in such a queue.
    pub queue_bytes_max: usize,
    /// Maximum time that a message is queued.
    pub queue_for: Millis,
    /// Frames in a session's outbox above which its feeders pause.
    pub pause_above: usize,
    /// Frames below which paused feeders resume.
    pub resume_below: usize,
    /// Frames above which further messages are rejected.
    pub drop_above: usize,
    /// The same limit in bytes; feeders pause at half of it and resume at a quarter.
    pub drop_bytes_above: usize,
    /// Maximum bytes in all outboxes together; beyond it, each outbox may hold 64 KiB.
    pub outboxes_bytes_max: usize,
    /// A session is closed if its outbox makes no progress, or stays too full, for this time.
    pub drain_within: Millis,
    /// Recipients of a broadcast or topic message per slice, before other work gets a turn.
    pub fan_out: usize,
    /// Maximum number of a topic's messages kept for replay.
    pub history_max: usize,
    /// Maximum bytes of a topic's messages kept for replay.
    pub history_bytes_max: usize,
    /// How long a topic's messages are kept for replay.
    pub history_for: Millis,
    /// Maximum bytes of the history of all topics together; the oldest messages are dropped first.
    pub history_total_bytes_max: usize,
    /// Maximum number of topics; a topic exists while it has subscribers or history.
    pub topics_max: usize,
    /// Maximum number of dedup entries per sender; at most a million.
    pub seen_max: usize,
    /// Maximum number of dedup entries of all senders together. Beyond it, a sender keeps no more than an equal share of
    /// them, so that one with many messages loses its own oldest entries and not those of others.
    pub seen_total_max: usize,
    /// Minimum dedup window.
    pub seen_for: Millis,
    /// Maximum dedup window.
    pub seen_for_max: Millis,
    /// Default time limit for a reply or an acknowledgement.
    pub answer_within: Millis,
    /// Maximum number of requests of one session that wait for a reply; the limit for all sessions is
    /// ten times as high.
    pub reply_waits_max: usize,
    /// Maximum bytes of replies kept for askers that lost them, of all sessions together.
    pub replies_bytes_max: usize,
    /// Maximum number of concurrent sessions per token.
    pub sessions_per_token_max: usize,
    /// Sessions, actors or messages per slice of a long job: a few microseconds each.
    pub work_slice: usize,
    /// How often the store is swept for expired messages and for unused addresses.
    pub sweep_interval: Millis,
    /// How long an address is remembered after its last registration.
    pub address_retention: Millis,
    /// Heartbeat interval of servers that share a store.
    pub peer_interval: Millis,
    /// Maximum number of addresses per session.
    pub addresses_max: usize,
    /// Maximum number of subscriptions per session.
    pub subscriptions_max: usize,
    /// Malformed frames within [`Settings::abuse_within`] that close a connection.
    pub abuse_max: usize,
    /// Time window of [`Settings::abuse_max`].
    pub abuse_within: Millis,
}

/// Parameters of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Sustained messages per second.
    pub per_second: u32,
    /// Messages that may be sent at once.
    pub burst: u32,
}

impl Rate {
    /// Returns the milliseconds after which an empty bucket is full.
    pub(crate) fn full_after(self) -> Millis {
        (u64::from(self.burst) * 1_000).div_ceil(u64::from(self.per_second.max(1)))
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server_version: String::from(env!("CARGO_PKG_VERSION")),
            message_bytes_max: 1024 * 1024,
            heartbeat: 30_000,
            connect_within: 10_000,
            rate: Some(Rate { per_second: 1_000, burst: 2_000 }),
            // As many as twenty busy sessions, such as a fleet of workers that share a token.
            token_rate: Some(Rate { per_second: 20_000, burst: 40_000 }),
            queue_max: 100,
            queue_bytes_max: 16 * 1024 * 1024,
            queue_for: 24 * 3_600_000,
            pause_above: 1_000,
            resume_below: 500,
            drop_above: 2_000,
            drop_bytes_above: 16 * 1024 * 1024,
            outboxes_bytes_max: 256 * 1024 * 1024,
            drain_within: 30_000,
            fan_out: 100,
            history_max: 1_024,
            history_bytes_max: 4 * 1024 * 1024,
            history_for: 600_000,
            history_total_bytes_max: 64 * 1024 * 1024,
            topics_max: 100_000,
            seen_max: 10_000,
            // About 64 bytes each: 128 MiB.
            seen_total_max: 2_000_000,
            seen_for: 120_000,
            seen_for_max: 300_000,
            answer_within: 30_000,
            reply_waits_max: 10_000,
            replies_bytes_max: 32 * 1024 * 1024,
            sessions_per_token_max: 10_000,
            work_slice: 64,
            sweep_interval: 3_600_000,
            address_retention: 30 * 24 * 3_600_000,
            peer_interval: 5_000,
            addresses_max: 64,
            subscriptions_max: 1_024,
            abuse_max: 16,
            abuse_within: 10_000,
        }
    }
}
