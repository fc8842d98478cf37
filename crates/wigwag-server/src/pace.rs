//! Rate limits with a burst, per address or token (GCRA), in bounded memory.

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hash};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use wigwag_hub::Rate;

/// Keys with a bucket each; further keys share buckets.
const KEYS_MAX: usize = 65_536;

/// Shared buckets for keys beyond the limit.
const SHARED_BUCKETS: u64 = 1_024;

/// A rate limiter per key.
#[derive(Debug)]
pub(crate) struct Pace<K> {
    rate: Rate,
    hasher: RandomState,
    state: Mutex<State<K>>,
}

#[derive(Debug)]
struct State<K> {
    /// Theoretical arrival time of the next request, by key.
    due: HashMap<Slot<K>, Duration>,
    /// Time of the last scan.
    cleaned: Duration,
}

/// Minimum interval between scans that drop idle keys.
const CLEANING: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Slot<K> {
    Own(K),
    Shared(u64),
}

impl<K: Hash + Eq + Clone> Pace<K> {
    pub(crate) fn new(rate: Rate) -> Self {
        let rate = Rate { per_second: rate.per_second.max(1), burst: rate.burst.max(1) };
        Self {
            rate,
            hasher: RandomState::new(),
            state: Mutex::new(State { due: HashMap::new(), cleaned: Duration::ZERO }),
        }
    }

    /// Counts a request of this key and returns how long it would have to wait to keep the rate. A request that would wait
    /// longer than `patience` is not counted.
    pub(crate) fn take(&self, key: &K, now: Duration, patience: Duration) -> Duration {
        let interval = Duration::from_secs(1) / self.rate.per_second;
        let tolerance = interval * (self.rate.burst - 1);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = self.slot(&mut state, key, now);
        let on_time = state.due.get(&slot).copied().unwrap_or_default().max(now);
        let early = on_time.saturating_sub(tolerance).saturating_sub(now);
        if early <= patience {
            state.due.insert(slot, on_time + interval);
        }
        early
    }

    /// Returns the key's own bucket, or a shared one if there are too many keys.
    fn slot(&self, state: &mut State<K>, key: &K, now: Duration) -> Slot<K> {
        let own = Slot::Own(key.clone());
        if state.due.len() < KEYS_MAX || state.due.contains_key(&own) {
            return own;
        }
        if now >= state.cleaned + CLEANING {
            state.due.retain(|_, on_time| *on_time > now);
            state.due.shrink_to(KEYS_MAX / 2);
            state.cleaned = now;
        }
        if state.due.len() < KEYS_MAX { own } else { Slot::Shared(self.hasher.hash_one(key) % SHARED_BUCKETS) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Duration = Duration::ZERO;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(1_000_000 + millis)
    }

    #[test]
    fn a_burst_passes_and_then_the_rate_holds_for_each_key() {
        let pace = Pace::new(Rate { per_second: 10, burst: 3 });
        for _ in 0..3 {
            assert_eq!(pace.take(&"a", at(0), NONE), NONE);
        }
        assert_eq!(pace.take(&"a", at(0), NONE), Duration::from_millis(100));
        assert_eq!(pace.take(&"b", at(0), NONE), NONE, "another key has a rate of its own");
        assert_eq!(pace.take(&"a", at(50), NONE), Duration::from_millis(50), "what was refused is not counted");
        assert_eq!(pace.take(&"a", at(100), NONE), NONE);
        assert_eq!(pace.take(&"a", at(10_000), NONE), NONE);
    }

    #[test]
    fn who_waits_is_counted_and_waits_longer_each_time() {
        let pace = Pace::new(Rate { per_second: 10, burst: 1 });
        let patience = Duration::from_millis(250);
        let waits: Vec<u128> = (0..5).map(|_| pace.take(&"a", at(0), patience).as_millis()).collect();
        assert_eq!(waits, [0, 100, 200, 300, 300]);
    }

    #[test]
    fn memory_is_bounded_however_many_keys_come() {
        let pace = Pace::new(Rate { per_second: 1, burst: 1 });
        for key in 0..3 * KEYS_MAX {
            pace.take(&key, at(0), NONE);
        }
        let most = KEYS_MAX + usize::try_from(SHARED_BUCKETS).unwrap();
        assert!(pace.state.lock().unwrap().due.len() <= most);
        assert!(pace.take(&"late".len(), at(0), NONE) > NONE, "4 was there");
        // Idle keys are dropped.
        pace.take(&usize::MAX, at(60_000), NONE);
        assert!(pace.state.lock().unwrap().due.len() < 10);
    }
}
