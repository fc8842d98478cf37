//! Ends of runs in a store without change notifications, found by listing `done/`.
//!
//! Holds: an end is announced once, also if its key is written up to [`LATE`] after keys of later ends, by a slow worker or by
//! one with another clock, and also across midnight. Ends from before the first listing are not announced.

use std::collections::BTreeSet;
use std::time::Duration;

use wigwag_core::{Key, Time};
use wigwag_store::limits::LIST_PAGE;
use wigwag_store::{Listed, Result, Store};

/// How late the key of an end may be written.
const LATE: Duration = Duration::from_secs(30);

/// Position in the index of ends.
#[derive(Debug)]
pub(super) struct Ends {
    /// Time of the newest end, or of the first listing.
    newest: Time,
    /// Announced keys that the next listing may return again.
    announced: BTreeSet<String>,
}

impl Ends {
    /// Starts at the store's current time.
    pub(super) async fn start(store: &dyn Store) -> Result<Self> {
        let newest = Time::from_micros(store.now().await?.at.micros());
        let mut ends = Self { newest, announced: BTreeSet::new() };
        for key in ends.list(store).await? {
            ends.announced(key);
        }
        Ok(ends)
    }

    /// Lists the keys of ends that were not announced yet, in order. The caller reports each with [`Ends::announced`].
    pub(super) async fn list(&mut self, store: &dyn Store) -> Result<Vec<String>> {
        let from = self.newest.before(LATE);
        let mut after = format!("done/{}/{from}", from.day());
        self.announced = self.announced.split_off(&after);
        let mut found = Vec::new();
        loop {
            let page = store.list("done/", &after, LIST_PAGE).await?;
            for listed in &page.entries {
                self.see(listed);
                if !self.announced.contains(&listed.key) {
                    found.push(listed.key.clone());
                }
            }
            match page.entries.into_iter().next_back() {
                Some(last) if page.more => after = last.key,
                _ => return Ok(found),
            }
        }
    }

    /// Advances the position. The key of a worker whose clock is ahead counts from the time when it was written.
    fn see(&mut self, listed: &Listed) {
        if let Ok(Key::Done { at, .. }) = listed.key.parse() {
            self.newest = self.newest.max(at.min(Time::from_micros(listed.modified.micros())));
        }
    }

    pub(super) fn announced(&mut self, key: String) {
        self.announced.insert(key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wigwag::testing::ManualClock;
    use wigwag_store::{Batch, Memory};

    use super::*;

    async fn end(store: &dyn Store, at: &str, run: &str) {
        let key = format!("done/{}/{at}~00000000~completed~{run}", &at[..10]);
        assert!(matches!(key.parse(), Ok(Key::Done { .. })), "{key}");
        store.write(Batch::new().put(key, "")).await.unwrap();
    }

    /// Returns the runs whose ends are announced next.
    async fn next(ends: &mut Ends, store: &dyn Store) -> Vec<String> {
        let keys = ends.list(store).await.unwrap();
        let run = |key: &String| key.rsplit('~').next().unwrap_or_default().to_owned();
        let runs = keys.iter().map(run).collect();
        keys.into_iter().for_each(|key| ends.announced(key));
        runs
    }

    /// A clock this long after the beginning of 2026.
    fn clock(seconds: u64) -> ManualClock {
        let clock = ManualClock::default();
        clock.advance(Duration::from_secs(seconds));
        clock
    }

    #[tokio::test]
    async fn ends_are_announced_once_also_if_late_and_across_midnight() {
        let clock = clock(24 * 3_600 - 30);
        let store = Memory::bucket_with_clock(Arc::new(clock.clone()));
        end(&store, "2026-01-01T23:59:20.000000Z", "before").await;
        let mut ends = Ends::start(&store).await.unwrap();
        assert!(next(&mut ends, &store).await.is_empty(), "it ended before anybody subscribed");
        end(&store, "2026-01-01T23:59:40.000000Z", "one").await;
        assert_eq!(next(&mut ends, &store).await, ["one"]);
        end(&store, "2026-01-01T23:59:35.000000Z", "late").await;
        assert_eq!(next(&mut ends, &store).await, ["late"], "its key sorts before one that was announced");
        clock.advance(Duration::from_secs(45));
        end(&store, "2026-01-01T23:59:59.900000Z", "last-of-the-day").await;
        end(&store, "2026-01-02T00:00:10.000000Z", "first-of-the-day").await;
        assert_eq!(next(&mut ends, &store).await, ["last-of-the-day", "first-of-the-day"]);
        end(&store, "2026-01-01T23:59:59.000000Z", "of-yesterday").await;
        assert_eq!(next(&mut ends, &store).await, ["of-yesterday"]);
        assert!(next(&mut ends, &store).await.is_empty());
    }

    #[tokio::test]
    async fn an_end_in_the_future_hides_no_others() {
        let store = Memory::bucket_with_clock(Arc::new(clock(12 * 3_600)));
        let mut ends = Ends::start(&store).await.unwrap();
        end(&store, "2026-01-01T13:00:00.000000Z", "wrong-clock").await;
        assert_eq!(next(&mut ends, &store).await, ["wrong-clock"]);
        end(&store, "2026-01-01T12:00:00.000000Z", "right-clock").await;
        assert_eq!(next(&mut ends, &store).await, ["right-clock"]);
        assert!(next(&mut ends, &store).await.is_empty());
    }
}
