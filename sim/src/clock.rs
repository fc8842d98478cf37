//! Time that passes only when nothing else can happen.

use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use wigwag_store::{Clock, Stamp};

/// The beginning of 2026.
const BEGINNING: Stamp = Stamp::from_micros(1_767_225_600_000_000);

/// The runtime's paused clock: when all tasks wait, it steps to the moment the first of them waits for.
#[derive(Clone, Copy, Debug)]
pub struct SimClock {
    origin: Instant,
}

impl SimClock {
    /// A clock that begins now. The runtime's time must be paused.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }

    /// How long the simulation has gone on.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }
}

impl Default for SimClock {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Clock for SimClock {
    fn wall(&self) -> Stamp {
        BEGINNING.after(self.elapsed())
    }

    fn boot(&self) -> Duration {
        self.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "it is the simulated time that passes")]
    async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}
