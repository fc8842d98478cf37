//! A connection with its frames in transit.

use std::collections::VecDeque;

use wigwag_hub::SessionId;

#[derive(Debug)]
pub(super) struct Link {
    pub(super) session: SessionId,
    /// Number of the server.
    pub(super) server: usize,
    /// Life of the hub at that server.
    pub(super) life: u64,
    pub(super) alive: bool,
    /// Frames in transit to the hub.
    pub(super) up: VecDeque<String>,
    /// Frames that the connection has and has not reported as written.
    pub(super) taken: VecDeque<String>,
    /// Frames in transit to the client.
    pub(super) down: VecDeque<String>,
}

impl Link {
    pub(super) fn new(session: SessionId, server: usize, life: u64) -> Self {
        let empty = VecDeque::new;
        Self { session, server, life, alive: true, up: empty(), taken: empty(), down: empty() }
    }
}
