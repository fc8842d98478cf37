//! How a hub behaves, each with its reason.

/// Milliseconds since 1970, or a span of them.
pub type Millis = u64;

/// How a hub behaves. [`Settings::default`] is what the protocol page says.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// What the server calls itself.
    pub server_version: String,
    /// The largest message that is read.
    pub message_bytes_max: usize,
    /// How often a client shows that it lives; silent for three of them, it is gone.
    pub heartbeat: Millis,
    /// How long a connection may take to say who it is.
    pub connect_within: Millis,
    /// Messages a second and at once, for each session; `None`: no limit.
    pub rate: Option<Rate>,
    /// So many messages wait for an actor that is away.
    pub queue_max: usize,
    /// And so many bytes of them.
    pub queue_bytes_max: usize,
    /// So long, if they do not say.
    pub queue_for: Millis,
    /// Frames that wait for one session, from which on its feeders pause.
    pub pause_above: usize,
    /// And go on below.
    pub resume_below: usize,
    /// And are refused above.
    pub drop_above: usize,
    /// The same in bytes; half of it pauses, a quarter resumes.
    pub drop_bytes_above: usize,
    /// The most bytes that wait in the outboxes of all sessions together; beyond, each has 64 KiB.
    pub outboxes_bytes_max: usize,
    /// A session that does not read for so long is closed.
    pub drain_within: Millis,
    /// So many receive a broadcast or a topic's message before others have a turn.
    pub fan_out: usize,
    /// A topic's messages that are kept for those who come back.
    pub history_max: usize,
    /// So many bytes of them.
    pub history_bytes_max: usize,
    /// And so long.
    pub history_for: Millis,
    /// The most bytes of history of all topics together; the oldest messages go first.
    pub history_total_bytes_max: usize,
    /// The most topics that exist at once: one exists while it has subscribers or history.
    pub topics_max: usize,
    /// Answers that are remembered for each sender; no more than a million.
    pub seen_max: usize,
    /// At least so long.
    pub seen_for: Millis,
    /// And at most so long.
    pub seen_for_max: Millis,
    /// How long an asker waits for a reply or an acknowledgement unless it says.
    pub answer_within: Millis,
    /// The most questions that wait for their replies at once, of one session; and ten times as many of all.
    pub reply_waits_max: usize,
    /// The most bytes of replies that are remembered in case an asker lost them, of all sessions together.
    pub replies_bytes_max: usize,
    /// The most sessions of one token at once.
    pub sessions_per_token_max: usize,
    /// Sessions, actors or messages per slice of a long job: a few microseconds each.
    pub work_slice: usize,
    /// How often the store is swept for expired messages and for unused addresses.
    pub sweep_interval: Millis,
    /// How long an address is remembered after its last registration.
    pub address_retention: Millis,
    /// Heartbeat interval of servers that share a store.
    pub peer_interval: Millis,
    /// Addresses and subscriptions of one session.
    pub addresses_max: usize,
    /// Topics that one session hears.
    pub subscriptions_max: usize,
    /// So many malformed frames within [`Settings::abuse_within`] end a connection.
    pub abuse_max: usize,
    /// See [`Settings::abuse_max`].
    pub abuse_within: Millis,
    /// A deliberate bug, for the simulator.
    #[cfg(feature = "testing")]
    pub mutation: Option<crate::Mutation>,
}

impl Settings {
    /// Whether this deliberate bug is in.
    #[cfg(feature = "testing")]
    pub(crate) fn has(&self, mutation: crate::Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// None is.
    #[cfg(not(feature = "testing"))]
    #[expect(clippy::unused_self, reason = "with the feature it looks")]
    pub(crate) const fn has(&self, _: crate::Mutation) -> bool {
        false
    }
}

/// A token bucket's measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Messages a second.
    pub per_second: u32,
    /// Messages at once.
    pub burst: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server_version: String::from(env!("CARGO_PKG_VERSION")),
            message_bytes_max: 1024 * 1024,
            heartbeat: 30_000,
            connect_within: 10_000,
            rate: Some(Rate { per_second: 1_000, burst: 2_000 }),
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
            #[cfg(feature = "testing")]
            mutation: None,
        }
    }
}
