//! The embedded store's clock: the calendar, made strictly increasing.
//!
//! Holds: no stamp is drawn twice or goes back, not across a restart nor between processes, because every
//! commit takes its stamps above the high-water mark in the database and leaves a new one.
//! Also holds: time never stands still. When the calendar is stepped back, the clock continues at half speed
//! until the calendar has caught up, so that timers still fire.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::{Clock, Stamp};

#[derive(Debug)]
pub(super) struct Time {
    clock: Arc<dyn Clock>,
    last: Mutex<Last>,
}

#[derive(Debug)]
struct Last {
    stamp: Stamp,
    at: Duration,
}

impl Time {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let last = Last { stamp: Stamp::default(), at: clock.boot() };
        Self { clock, last: Mutex::new(last) }
    }

    /// Draws the next stamp.
    pub(super) fn now(&self) -> Stamp {
        let (wall, boot) = (self.clock.wall(), self.clock.boot());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let slow = last.stamp.after(boot.saturating_sub(last.at) / 2);
        *last = Last { stamp: wall.max(slow).max(last.stamp.next()), at: boot };
        last.stamp
    }

    /// Learns of a stamp drawn elsewhere, so that later ones are above it.
    pub(super) fn observe(&self, stamp: Stamp) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if stamp > last.stamp {
            *last = Last { stamp, at: self.clock.boot() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A clock that a test sets.
    #[derive(Debug, Default)]
    struct Hands {
        wall: AtomicU64,
        boot: AtomicU64,
    }

    #[async_trait::async_trait]
    impl Clock for Hands {
        fn wall(&self) -> Stamp {
            Stamp::from_micros(self.wall.load(Ordering::Relaxed))
        }
        fn boot(&self) -> Duration {
            Duration::from_micros(self.boot.load(Ordering::Relaxed))
        }
        async fn sleep(&self, _: Duration) {}
    }

    #[test]
    fn a_calendar_stepped_back_slows_the_clock_and_does_not_stop_or_reverse_it() {
        let hands = Arc::new(Hands::default());
        let set = |wall, boot| {
            hands.wall.store(wall, Ordering::Relaxed);
            hands.boot.store(boot, Ordering::Relaxed);
        };
        set(5_000_000, 1_000_000);
        let time = Time::new(Arc::clone(&hands) as Arc<dyn Clock>);
        assert_eq!(time.now().micros(), 5_000_000);
        assert_eq!(time.now().micros(), 5_000_001, "the same moment is never drawn twice");

        set(1_000_000, 2_000_000);
        assert_eq!(time.now().micros(), 5_500_001, "half a second for the second that passed");
        set(6_000_000, 7_000_000);
        assert_eq!(time.now().micros(), 8_000_001);
        set(9_000_000, 10_000_000);
        assert_eq!(time.now().micros(), 9_500_001);
        set(12_000_000, 13_000_000);
        assert_eq!(time.now().micros(), 12_000_000, "the calendar has caught up");
    }

    #[test]
    fn a_stamp_seen_elsewhere_is_never_drawn_again() {
        let time = Time::new(Arc::new(Hands::default()));
        time.observe(Stamp::from_micros(99));
        assert_eq!(time.now().micros(), 100);
    }
}
