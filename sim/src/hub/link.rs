//! A connection: frames on their way.

use std::collections::VecDeque;

use wigwag_hub::SessionId;

#[derive(Debug)]
pub(super) struct Link {
    pub(super) session: SessionId,
    /// At which server.
    pub(super) server: usize,
    /// Of which hub there.
    pub(super) life: u64,
    pub(super) alive: bool,
    /// On their way to the hub.
    pub(super) up: VecDeque<String>,
    /// The connection has them, and has not said that they are written.
    pub(super) taken: VecDeque<String>,
    /// On their way to the client.
    pub(super) down: VecDeque<String>,
}

impl Link {
    pub(super) fn new(session: SessionId, server: usize, life: u64) -> Self {
        let empty = VecDeque::new;
        Self { session, server, life, alive: true, up: empty(), taken: empty(), down: empty() }
    }
}
