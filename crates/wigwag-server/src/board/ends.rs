//! Ends of the last day, counted by quarter of an hour and status.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::sync::Mutex;
use wigwag::Time;
use wigwag_core::{Key, Status};
use wigwag_store::limits::LIST_PAGE;
use wigwag_store::{Clock as _, Result, Store, System};

/// How far back ends are counted.
pub(crate) const SPAN: Duration = Duration::from_secs(24 * 3_600);

/// Width of one step of the counts.
pub(crate) const STEP: Duration = Duration::from_secs(15 * 60);

/// How late the key of an end may be written: that much is listed again each time.
const LATE: Duration = Duration::from_secs(10);

/// LIST requests per update: 100,000 ends.
const LISTS_MAX: usize = 100;

/// Shortest time between two listings on a bucket.
const BUCKET_INTERVAL: Duration = Duration::from_secs(30);

/// Ends by step, kind of the type and status.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ends {
    /// Counts by start of the step (microseconds since 1970), kind and status.
    pub(crate) counts: BTreeMap<(u64, String, Status), usize>,
    /// Whether all ends of the span are counted.
    pub(crate) exact: bool,
    /// Keys of the last seconds, so that none is counted twice.
    recent: BTreeSet<String>,
    newest: Time,
    listed_at: Option<Duration>,
}

/// The index of ends: in the order of time, so that only its end is listed again.
#[derive(Debug, Default)]
pub(crate) struct EndsIndex(Mutex<Ends>);

impl EndsIndex {
    pub(crate) async fn ask(&self, store: &dyn Store) -> Result<Ends> {
        let mut ends = self.0.lock().await;
        let now = Time::from_micros(System.wall().micros());
        let is_fresh = |at: Duration| {
            System.boot().saturating_sub(at) < BUCKET_INTERVAL && !store.traits().notifications.is_complete()
        };
        if !ends.listed_at.is_some_and(is_fresh) {
            ends.list(store, now).await?;
            ends.listed_at = Some(System.boot());
        }
        Ok(ends.clone())
    }
}

impl Ends {
    async fn list(&mut self, store: &dyn Store, now: Time) -> Result<()> {
        let oldest = now.before(SPAN);
        let from = self.newest.before(LATE).max(oldest);
        let mut after = format!("done/{}/{from}", from.day());
        self.recent = self.recent.split_off(&after);
        self.counts.retain(|(step, ..), _| *step + micros(STEP) > oldest.micros());
        for _ in 0..LISTS_MAX {
            let page = store.list("done/", &after, LIST_PAGE).await?;
            for listed in &page.entries {
                self.count(&listed.key);
            }
            match page.entries.last() {
                Some(last) if page.more => after.clone_from(&last.key),
                _ => {
                    self.exact = true;
                    self.newest = self.newest.max(now);
                    return Ok(());
                }
            }
        }
        self.exact = false;
        Ok(())
    }

    fn count(&mut self, key: &str) {
        let Ok(Key::Done { at, kind, status, .. }) = key.parse::<Key>() else { return };
        if !self.recent.insert(key.to_owned()) {
            return;
        }
        let step = at.micros() / micros(STEP) * micros(STEP);
        *self.counts.entry((step, kind, status)).or_default() += 1;
        self.newest = self.newest.max(at);
    }
}

pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use wigwag_store::{Batch, Memory};

    use super::*;

    #[tokio::test]
    async fn an_end_is_counted_once_however_often_is_asked() {
        let store = Memory::new();
        let index = EndsIndex::default();
        let key = |id: &str, ago: u64, status| {
            let at = Time::from_micros(System.wall().micros()).before(Duration::from_secs(ago));
            let run = wigwag::RunId::new(id).unwrap();
            Key::Done { at, kind: "0a0b0c0d".into(), status, run }.to_string()
        };
        let total = |ends: &Ends| ends.counts.values().sum::<usize>();
        store.write(Batch::new().put(key("old", 3_600, Status::Failed), "")).await.unwrap();
        store.write(Batch::new().put(key("ancient", 48 * 3_600, Status::Failed), "")).await.unwrap();
        assert_eq!(total(&index.ask(&store).await.unwrap()), 1);
        store.write(Batch::new().put(key("new", 0, Status::Completed), "")).await.unwrap();
        for _ in 0..3 {
            let ends = index.ask(&store).await.unwrap();
            assert_eq!((total(&ends), ends.exact), (2, true));
        }
    }
}
