//! A connection: frames on their way.

use std::collections::VecDeque;

use wigwag_hub::SessionId;

#[derive(Debug)]
pub(super) struct Link {
    pub(super) session: SessionId,
    /// Of which hub.
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
    pub(super) fn new(session: SessionId, life: u64) -> Self {
        let empty = VecDeque::new;
        Self { session, life, alive: true, up: empty(), taken: empty(), down: empty() }
    }
}
