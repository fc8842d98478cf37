//! Rate limit of a session: a token bucket.

use crate::settings::{Millis, Rate};

/// Token bucket of one session, in thousandths of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    left: u64,
    at: Millis,
}

impl Bucket {
    pub(crate) fn full(rate: Rate, now: Millis) -> Self {
        Self { left: u64::from(rate.burst) * 1_000, at: now }
    }

    /// Takes `cost` messages from the bucket, or returns the milliseconds to wait.
    pub(crate) fn take(&mut self, rate: Rate, cost: u64, now: Millis) -> Result<(), Millis> {
        let filled = now.saturating_sub(self.at).saturating_mul(u64::from(rate.per_second));
        let full = u64::from(rate.burst) * 1_000;
        self.left = self.left.saturating_add(filled).min(full);
        self.at = self.at.max(now);
        // A cost above the capacity passes when the bucket is full, and empties it.
        let cost = cost.saturating_mul(1_000).min(full);
        if self.left >= cost {
            self.left -= cost;
            return Ok(());
        }
        Err((cost - self.left).div_ceil(u64::from(rate.per_second.max(1))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_second: 1_000, burst: 2_000 };

    #[test]
    fn a_burst_is_followed_by_the_sustained_rate() {
        let mut bucket = Bucket::full(RATE, 0);
        for _ in 0..2_000 {
            assert_eq!(bucket.take(RATE, 1, 0), Ok(()));
        }
        assert_eq!(bucket.take(RATE, 1, 0), Err(1));
        assert_eq!(bucket.take(RATE, 10, 0), Err(10));
        assert_eq!(bucket.take(RATE, 1, 1), Ok(()));
        assert_eq!(bucket.take(RATE, 1, 1), Err(1));
        assert_eq!(bucket.take(RATE, 2_000, 3_000), Ok(()));
    }

    #[test]
    fn a_cost_above_the_capacity_empties_a_full_bucket() {
        let mut bucket = Bucket::full(RATE, 0);
        assert_eq!(bucket.take(RATE, 5_000, 0), Ok(()));
        assert_eq!(bucket.take(RATE, 5_000, 0), Err(2_000));
    }

    #[test]
    fn a_clock_that_goes_back_gives_nothing() {
        let mut bucket = Bucket::full(RATE, 1_000);
        assert_eq!(bucket.take(RATE, 2_000, 1_000), Ok(()));
        assert_eq!(bucket.take(RATE, 1, 0), Err(1));
        assert_eq!(bucket.take(RATE, 1, 1_000), Err(1));
    }
}
