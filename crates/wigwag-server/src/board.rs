//! The board: indexes of waits, unfinished runs and ends, in memory and built from keys alone.
//!
//! Holds: an index is listed on request and at most once per interval, for any number of requests; without requests it is not
//! listed. On a bucket the interval grows with the number of LIST requests, so that an open dashboard costs at most
//! [`LIST_SHARE`] requests an hour whatever the size of the store.

mod ends;
mod waits;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use wigwag_store::limits::LIST_PAGE;
use wigwag_store::{Clock as _, Result, Store, System};

pub(crate) use ends::{EndsIndex, micros};
pub(crate) use waits::{Facts, READ_MAX, Waits};

/// LIST requests an hour that one index may cost on a bucket: $0.0072 at list price.
pub(crate) const LIST_SHARE: u32 = 1_440;

/// Shortest interval on a bucket.
const BUCKET_INTERVAL_MIN: Duration = Duration::from_secs(30);

/// Shortest interval where listing is free.
const LOCAL_INTERVAL_MIN: Duration = Duration::from_millis(200);

/// Listing takes at most this share of the time where it is free: one part in ten.
const LOCAL_PARTS: u32 = 9;

/// Indexes of one server.
#[derive(Debug, Default)]
pub(crate) struct Board {
    pub(crate) waits: Arc<Index<Waits>>,
    pub(crate) live: Arc<Index<Live>>,
    pub(crate) ends: EndsIndex,
    pub(crate) facts: waits::FactsCache,
}

/// An aggregate of listed keys.
pub(crate) trait Listing: Default + Clone + Send + Sync + 'static {
    const PREFIX: &'static str;
    fn add(&mut self, key: &str, modified: u64);
    /// Called before a snapshot of the added keys is taken.
    fn finish(&mut self) {}
}

/// An index as it was when it was listed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot<T> {
    pub(crate) found: T,
    /// Start of the listing, in microseconds since 1970.
    pub(crate) at: u64,
    /// Whether it contains all keys.
    pub(crate) exact: bool,
    /// Number of this snapshot.
    pub(crate) number: u64,
    /// Time until the index is listed again.
    pub(crate) interval: Duration,
}

/// One index: the newest snapshot, and at most one listing in progress.
#[derive(Debug)]
pub(crate) struct Index<T> {
    state: Mutex<State>,
    newest: watch::Sender<Option<Arc<Snapshot<T>>>>,
}

#[derive(Debug, Default)]
struct State {
    is_listing: bool,
    /// Time from which a request lists again; immediately if absent.
    next: Option<Instant>,
    number: u64,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Self { state: Mutex::default(), newest: watch::channel(None).0 }
    }
}

impl<T: Listing> Index<T> {
    /// Returns the newest snapshot, after at most `patience`; partial ones while the first listing is in progress.
    pub(crate) async fn ask(self: &Arc<Self>, store: &Arc<dyn Store>, patience: Duration) -> Option<Arc<Snapshot<T>>> {
        let mut newest = self.newest.subscribe();
        if let Some(number) = self.refresh(store) {
            let listed =
                newest.wait_for(|found| found.as_ref().is_some_and(|found| found.exact && found.number >= number));
            let _ = tokio::time::timeout(patience, listed).await;
        }
        newest.borrow().clone()
    }

    /// Starts a listing if the interval is over. Returns the number of the listing in progress, if there is one.
    fn refresh(self: &Arc<Self>, store: &Arc<dyn Store>) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if !state.is_listing {
            if state.next.is_some_and(|next| Instant::now() < next) {
                return None;
            }
            state.is_listing = true;
            state.number += 1;
            let (index, store, number) = (Arc::clone(self), Arc::clone(store), state.number);
            tokio::spawn(async move { index.list(&store, number).await });
        }
        Some(state.number)
    }

    async fn list(&self, store: &Arc<dyn Store>, number: u64) {
        let begun = Instant::now();
        let at = System.wall().micros();
        let is_first = self.newest.borrow().is_none();
        let mut lists = 0;
        let outcome = list_all::<T>(&**store, |found, pages| {
            lists = pages;
            // At doubling distances, so that all copies together cost as much as one full copy.
            if is_first && pages.is_power_of_two() {
                let mut found = found.clone();
                found.finish();
                let snapshot = Snapshot { found, at, exact: false, number, interval: BUCKET_INTERVAL_MIN };
                self.newest.send_replace(Some(Arc::new(snapshot)));
            }
        })
        .await;
        let interval = interval(store.traits().notifications.is_complete(), lists, begun.elapsed());
        match outcome {
            Ok(found) => {
                let snapshot = Snapshot { found, at, exact: true, number, interval };
                self.newest.send_replace(Some(Arc::new(snapshot)));
            }
            Err(error) => tracing::debug!(%error, prefix = T::PREFIX, "an index could not be listed"),
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        (state.is_listing, state.next) = (false, Some(Instant::now() + interval));
    }
}

/// Time between two listings.
fn interval(is_local: bool, lists: usize, took: Duration) -> Duration {
    let lists = u32::try_from(lists).unwrap_or(u32::MAX);
    match is_local {
        true => LOCAL_INTERVAL_MIN.max(took.saturating_mul(LOCAL_PARTS)),
        false => BUCKET_INTERVAL_MIN.max((Duration::from_secs(3_600) / LIST_SHARE).saturating_mul(lists)),
    }
}

async fn list_all<T: Listing>(store: &dyn Store, mut progress: impl FnMut(&T, usize)) -> Result<T> {
    let mut found = T::default();
    let (mut after, mut pages) = (String::new(), 0);
    loop {
        let page = store.list(T::PREFIX, &after, LIST_PAGE).await?;
        pages += 1;
        for listed in &page.entries {
            found.add(&listed.key, listed.modified.micros());
        }
        match page.entries.last() {
            Some(last) if page.more => after.clone_from(&last.key),
            _ => break,
        }
        progress(&found, pages);
        // Processing thousands of keys keeps a core busy, so other tasks run in between.
        tokio::task::yield_now().await;
    }
    progress(&found, pages);
    found.finish();
    Ok(found)
}

/// Unfinished runs by type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Live {
    pub(crate) by_type: std::collections::BTreeMap<String, usize>,
}

impl Listing for Live {
    const PREFIX: &'static str = "live/";

    fn add(&mut self, key: &str, _: u64) {
        let Some((of, _)) = key.strip_prefix(Self::PREFIX).and_then(|rest| rest.split_once('/')) else { return };
        match self.by_type.get_mut(of) {
            Some(count) => *count += 1,
            None => _ = self.by_type.insert(of.to_owned(), 1),
        }
    }
}

#[cfg(test)]
mod slow;

#[cfg(test)]
mod tests {
    use wigwag_store::{Batch, Memory, Meter};

    use super::*;

    #[test]
    fn a_listing_costs_a_bounded_share() {
        let hour = |lists| 3_600.0 / interval(false, lists, Duration::ZERO).as_secs_f64() * lists as f64;
        for lists in [1, 12, 100, 1_000, 10_000] {
            assert!(hour(lists) <= f64::from(LIST_SHARE) + 1.0, "{lists}: {}", hour(lists));
        }
        assert_eq!(interval(true, 100, Duration::from_secs(1)), Duration::from_secs(9));
        assert_eq!(interval(true, 1, Duration::from_millis(1)), LOCAL_INTERVAL_MIN);
    }

    #[tokio::test]
    async fn many_questions_on_a_bucket_are_one_listing() {
        let meter = Meter::new(Memory::bucket());
        let store: Arc<dyn Store> = Arc::new(meter.clone());
        for run in 0..3 {
            store.write(Batch::new().put(format!("waiting/approval/r{run}~0000000004"), "{}")).await.unwrap();
        }
        let index = Arc::new(Index::<Waits>::default());
        let before = meter.usage().lists;
        for _ in 0..50 {
            let found = index.ask(&store, Duration::from_secs(5)).await.unwrap();
            assert_eq!((found.found.total(), found.exact), (3, true));
        }
        assert_eq!(meter.usage().lists - before, 1);
    }

    /// A bucket with that many waits, where each request takes 30 ms of virtual time.
    async fn slow_bucket(waits: usize) -> (Meter<Memory>, Arc<dyn Store>) {
        let meter = Meter::new(Memory::bucket());
        for first in (0..waits).step_by(1_000) {
            let puts = (first..waits.min(first + 1_000))
                .fold(Batch::new(), |batch, run| batch.put(format!("waiting/approval/run-{run:07}~0000000004"), "{}"));
            meter.write(puts).await.unwrap();
        }
        let store = slow::Slow { inner: Arc::new(meter.clone()), delay: Duration::from_millis(30) };
        (meter, Arc::new(store))
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "time is paused: the test owns the time of tokio")]
    async fn a_million_waits_on_a_slow_bucket_show_their_first_rows_at_once_and_are_listed_once() {
        let (meter, store) = slow_bucket(1_000_000).await;
        let (index, before, begun) = (Arc::new(Index::<Waits>::default()), meter.usage().lists, Instant::now());
        let first = index.ask(&store, Duration::from_millis(500)).await.unwrap();
        let shown = begun.elapsed();
        assert!(!first.exact && first.found.by_age.len() >= 50, "{} rows", first.found.by_age.len());
        let mut last = first;
        while !last.exact {
            tokio::time::sleep(Duration::from_secs(1)).await;
            last = index.ask(&store, Duration::from_millis(500)).await.unwrap();
        }
        let lists = meter.usage().lists - before;
        assert!(shown <= Duration::from_millis(750), "{shown:?}");
        assert_eq!((last.found.total(), lists), (1_000_000, 1_000));
    }

    /// LIST requests of one hour in which the inbox is asked for every `every`.
    #[expect(clippy::disallowed_methods, reason = "time is paused: the test owns the time of tokio")]
    async fn lists_of_an_hour(waits: usize, every: Duration) -> u64 {
        let (meter, store) = slow_bucket(waits).await;
        let (index, begun) = (Arc::new(Index::<Waits>::default()), Instant::now());
        while begun.elapsed() < Duration::from_secs(3_600) {
            index.ask(&store, Duration::from_millis(500)).await;
            tokio::time::sleep(every).await;
        }
        meter.usage().lists
    }

    #[tokio::test(start_paused = true)]
    async fn an_hour_of_questions_costs_less_than_a_cent_whatever_the_size_and_however_many_ask() {
        for (waits, every) in [(1_000, 60), (100_000, 60), (100_000, 1), (300_000, 1)] {
            let lists = lists_of_an_hour(waits, Duration::from_secs(every)).await;
            let dollars = lists as f64 * 0.005 / 1_000.0;
            // A listing that begins within the hour also ends in it.
            assert!(dollars <= 0.0075 + 0.0015, "{waits} waits, asked every {every} s: {lists} LISTs, ${dollars:.4}");
        }
    }
}
