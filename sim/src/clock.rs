//! Time that passes only when nothing else can happen.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use wigwag_store::{Clock, Stamp};

/// The beginning of 2026.
const BEGINNING: Stamp = Stamp::from_micros(1_767_225_600_000_000);

/// The runtime's paused clock: when all tasks wait, it steps to the moment the first of them waits for. The wall clock
/// that goes with it can be set; clones are the same clock.
#[derive(Clone, Debug)]
pub struct SimClock {
    origin: Instant,
    /// By how many microseconds the wall clock was set forward.
    set_by: Arc<AtomicI64>,
}

impl SimClock {
    /// A clock that begins now. The runtime's time must be paused.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: Instant::now(), set_by: Arc::default() }
    }

    /// How long the simulation has gone on.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Sets the wall clock forward, or back.
    pub fn set_by(&self, micros: i64) {
        self.set_by.fetch_add(micros, Ordering::Relaxed);
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
        let now = BEGINNING.after(self.elapsed());
        Stamp::from_micros(now.micros().saturating_add_signed(self.set_by.load(Ordering::Relaxed)))
    }

    fn boot(&self) -> Duration {
        self.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "it is the simulated time that passes")]
    async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}
