//! Scanning `done/` from the newest key to the oldest.
//!
//! Stores list keys in ascending order only. The scan therefore lists time windows, the newest first, and returns the keys
//! of each window in descending order. A window that holds more keys than one page is narrowed, one with few keys makes the
//! next window wider: the number of requests depends on the number of keys, not on the length of the history.
//!
//! Holds: every key below the starting bound is returned once, in descending order; at most two pages are in memory.

use wigwag_core::Time;
use wigwag_store::{Store, limits::LIST_PAGE};

use crate::error::Result;
use crate::limits::{LIST_WINDOW_FACTOR, LIST_WINDOW_MICROS_FIRST};

/// Index of finished runs.
const PREFIX: &str = "done/";

/// Sorts behind every day: `:` follows `9`.
pub(super) const NEWEST: &str = "done/:";

/// A scan of finished runs, newest first.
#[derive(Debug)]
pub(super) struct Backwards<'a> {
    store: &'a dyn Store,
    /// Keys from here on were returned already. Empty at the end of the scan.
    bound: String,
    /// Latest time that a key below the bound can have.
    until: Time,
    /// Width of the next window.
    micros: u64,
}

impl<'a> Backwards<'a> {
    /// Scans the keys below `bound`, a key, the start of one, or [`NEWEST`].
    pub(super) fn new(store: &'a dyn Store, bound: &str, now: Time) -> Self {
        let until = match time_of(bound) {
            Some(at) if bound.contains('~') => at,
            // The bound is the start of a window: all keys of this moment are above it.
            Some(at) => one_before(at),
            None => now,
        };
        Self { store, bound: bound.to_owned(), until, micros: LIST_WINDOW_MICROS_FIRST }
    }

    /// Bound from which another scan continues exactly where this one stopped.
    pub(super) fn bound(&self) -> &str {
        &self.bound
    }

    /// Lists the next window and returns its keys, newest first. The window may be empty. `None` after the oldest key.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<String>>> {
        if self.bound.is_empty() {
            return Ok(None);
        }
        let start = Time::from_micros(self.until.micros().saturating_sub(self.micros));
        let after = if start == Time::default() { String::new() } else { start_of(start) };
        let page = self.store.list(PREFIX, &after, LIST_PAGE).await?;
        if page.more && page.entries.last().is_some_and(|last| last.key < self.bound) {
            // Foreign keys have no time.
            let reached = page.entries.iter().rev().find_map(|listed| time_of(&listed.key)).unwrap_or(start);
            return match self.narrow(start, reached) {
                true => Ok(Some(Vec::new())),
                false => Ok(Some(self.crowded_moment(after).await?)),
            };
        }
        let keys = page.entries.into_iter().map(|listed| listed.key).filter(|key| *key < self.bound);
        let keys: Vec<String> = keys.rev().collect();
        if keys.len() < LIST_PAGE / 4 {
            self.micros = self.micros.max(1).saturating_mul(LIST_WINDOW_FACTOR);
        }
        self.until = one_before(start);
        if after < self.bound {
            self.bound = after;
        }
        Ok(Some(keys))
    }

    /// Narrows a window whose first page ends at `reached`. Returns false if it is a single moment and
    /// cannot be narrowed.
    fn narrow(&mut self, start: Time, reached: Time) -> bool {
        if reached > self.until {
            // Clocks differ: keys are newer than the bound's time. Search for the newest in doubling steps.
            let span = reached.micros() - start.micros();
            self.until = Time::from_micros(reached.micros().saturating_add(span));
            self.micros = self.until.micros() - reached.micros();
            return true;
        }
        let left = self.until.micros() - reached.micros();
        let was = self.micros;
        self.micros = left.min(was / LIST_WINDOW_FACTOR);
        was > 0
    }

    /// Returns the newest page of a single microsecond with more than a page of keys.
    async fn crowded_moment(&mut self, mut after: String) -> Result<Vec<String>> {
        let mut keys: Vec<String> = Vec::new();
        loop {
            let page = self.store.list(PREFIX, &after, LIST_PAGE).await?;
            let below = page.entries.iter().filter(|listed| listed.key < self.bound);
            keys.extend(below.map(|listed| listed.key.clone()));
            keys.drain(..keys.len().saturating_sub(LIST_PAGE));
            match page.entries.last() {
                Some(last) if page.more && last.key < self.bound => after.clone_from(&last.key),
                _ => break,
            }
        }
        keys.reverse();
        if let Some(oldest) = keys.last() {
            self.bound.clone_from(oldest);
        }
        Ok(keys)
    }
}

/// First key prefix of a moment.
pub(super) fn start_of(at: Time) -> String {
    format!("{PREFIX}{}/{at}", at.day())
}

/// Time of a key, or of the start of one.
fn time_of(key: &str) -> Option<Time> {
    key.strip_prefix(PREFIX)?.split_once('/')?.1.split('~').next()?.parse().ok()
}

fn one_before(at: Time) -> Time {
    Time::from_micros(at.micros().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use wigwag_store::{Batch, Memory};

    use super::*;

    const NOW: Time = Time::from_micros(1_800_000_000_000_000);

    fn key(micros: u64, id: u64) -> String {
        format!("{}~00ff00ff~completed~r{id}", start_of(Time::from_micros(micros)))
    }

    async fn store(keys: &BTreeSet<String>) -> Memory {
        let store = Memory::new();
        let keys: Vec<&String> = keys.iter().collect();
        for some in keys.chunks(1_000) {
            let batch = some.iter().fold(Batch::new(), |batch, key| batch.put(key.as_str(), "{}"));
            store.write(batch).await.unwrap();
        }
        store
    }

    /// Scans to the end; a new scan starts after every 16 windows, like a new page. Returns the keys and the
    /// number of requests.
    async fn scan(store: &Memory) -> (Vec<String>, usize) {
        let (mut found, mut windows) = (Vec::new(), 0);
        let mut bound = NEWEST.to_owned();
        loop {
            let mut keys = Backwards::new(store, &bound, NOW);
            for _ in 0..16 {
                let Some(window) = keys.next().await.unwrap() else { return (found, windows) };
                windows += 1;
                assert!(window.len() <= LIST_PAGE && windows < 10_000, "{windows} windows, at {}", keys.bound());
                found.extend(window);
            }
            keys.bound().clone_into(&mut bound);
        }
    }

    async fn check(keys: BTreeSet<String>, requests: usize) {
        let (found, windows) = scan(&store(&keys).await).await;
        assert_eq!(found.len(), keys.len());
        assert!(found.iter().eq(keys.iter().rev()), "descending, each once");
        assert!(windows <= requests, "want at most {requests} windows, got: {windows}");
    }

    #[tokio::test]
    async fn every_key_is_returned_once_from_the_newest_on_however_they_are_spread() {
        let now = NOW.micros();
        check(BTreeSet::new(), 20).await;
        check((0..5).map(|id| key(now - id, id)).collect(), 40).await;
        // One key a day for ten years.
        check((0..3_650).map(|day| key(now - day * 86_400_000_000, day)).collect(), 100).await;
        // 25,000 on one day.
        check((0..25_000).map(|id| key(now - id * 3_000_000, id)).collect(), 400).await;
        // A burst within a second, a year ago.
        check((0..5_000).map(|id| key(now - 31_536_000_000_000 - id * 7, id)).collect(), 200).await;
        // More than two pages within one microsecond.
        check((0..2_500).map(|id| key(now - 5, id)).chain([key(now, 1), key(now - 9, 1)]).collect(), 100).await;
        // Clocks that are ahead.
        check((0..5_000).map(|id| key(now + id * 1_000_000, id)).collect(), 200).await;
    }

    #[tokio::test]
    async fn random_ends_are_all_returned() {
        for seed in 0..20 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut keys = BTreeSet::new();
            for _ in 0..random.u64(1..6) {
                let (end, reach) = (NOW.micros() - (1 << random.u32(0..50)), 1 << random.u32(0..45));
                let count = random.u64(1..3_000);
                keys.extend((0..count).map(|id| key(end - random.u64(0..reach), id)));
            }
            check(keys, 600).await;
        }
    }
}
