//! Time that passes only when nothing else can happen.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;
use wigwag_store::{Clock, Stamp};

/// The beginning of 2026, and of every world.
pub const BEGINNING: Stamp = Stamp::from_micros(1_767_225_600_000_000);

/// Reads of the clock within one instant after which the reader counts as a loop that never sleeps.
const READS_AT_ONE_INSTANT_MAX: u64 = 4_000_000;

/// The runtime's paused clock: when all tasks wait, it steps to the moment the first of them waits for. The wall clock
/// that goes with it can be set; clones are the same clock.
#[derive(Clone, Debug)]
pub struct SimClock {
    origin: Instant,
    /// By how many microseconds the wall clock was set forward.
    set_by: Arc<AtomicI64>,
    /// The instant of the last read, and the number of reads within it.
    reads: Arc<(Mutex<Duration>, AtomicU64)>,
}

impl SimClock {
    /// Creates a clock that starts now. The runtime's time must be paused.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: Instant::now(), set_by: Arc::default(), reads: Arc::default() }
    }

    /// Returns the simulated time since the start.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Sets the wall clock forward or back.
    pub fn set_by(&self, micros: i64) {
        self.set_by.fetch_add(micros, Ordering::Relaxed);
    }

    /// Whether a task reads the clock repeatedly while no time passes.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.reads.1.load(Ordering::Relaxed) > READS_AT_ONE_INSTANT_MAX
    }

    /// Ends a spinning task, which would otherwise block all other tasks.
    fn count_read(&self, now: Duration) {
        let mut last = self.reads.0.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_stuck() {
            return;
        }
        if *last != now {
            *last = now;
            self.reads.1.store(0, Ordering::Relaxed);
        }
        if self.reads.1.fetch_add(1, Ordering::Relaxed) == READS_AT_ONE_INSTANT_MAX {
            drop(last);
            // Without the panic hook: the breach is reported, not the backtrace.
            std::panic::resume_unwind(Box::new("simulated time stopped"));
        }
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
        let now = self.elapsed();
        self.count_read(now);
        now
    }

    #[expect(clippy::disallowed_methods, reason = "it is the simulated time that passes")]
    async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}
