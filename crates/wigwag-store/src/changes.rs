//! Notifications: the keys put under a prefix, sent to its followers.
//!
//! Holds: a slow follower is notified of a loss once (`Missed`) and can list.
//! Does not hold: a notification may be repeated, and may refer to an object that was deleted since.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use crate::limits::CHANGES_WAITING_MAX;

/// A notification to a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Something was put at this key.
    Put(String),
    /// Notifications were lost. List the prefix.
    Missed,
}

/// Notifications for one prefix, from its creation on.
#[derive(Debug)]
pub struct Changes {
    /// At most two sources: a store's own, and those of this process.
    sources: [Option<Source>; 2],
}

#[derive(Debug)]
struct Source {
    nudges: mpsc::Receiver<String>,
    missed: Arc<AtomicBool>,
    /// Number of bytes to remove from each key.
    strip: usize,
}

impl Changes {
    /// A source without notifications: for stores that send none.
    #[must_use]
    pub fn silent() -> Self {
        Self { sources: [None, None] }
    }

    /// The same notifications with the first `bytes` of each key removed.
    pub(crate) fn without_first(mut self, bytes: usize) -> Self {
        self.sources.iter_mut().flatten().for_each(|source| source.strip += bytes);
        self
    }

    /// The same notifications, combined with those of another source. Both have one source at most.
    pub(crate) fn and(self, other: Self) -> Self {
        let mut all = self.sources.into_iter().chain(other.sources).flatten();
        let sources = [all.next(), all.next()];
        debug_assert!(all.next().is_none(), "a layer joins its own source to that of the store below");
        Self { sources }
    }

    /// Waits for the next notification. Never returns on a store without notifications, nor once the
    /// store is closed.
    pub async fn next(&mut self) -> Change {
        let [first, second] = &mut self.sources;
        tokio::select! {
            biased;
            change = next(first) => change,
            change = next(second) => change,
        }
    }
}

async fn next(source: &mut Option<Source>) -> Change {
    let Some(source) = source else {
        return std::future::pending().await;
    };
    loop {
        if source.missed.swap(false, Ordering::AcqRel) {
            // The queued notifications are older than the loss; the following listing sees
            // their objects too.
            while source.nudges.try_recv().is_ok() {}
            return Change::Missed;
        }
        match source.nudges.recv().await {
            // An empty key is no notification: it wakes a follower that has missed some.
            Some(key) if key.is_empty() || source.missed.load(Ordering::Acquire) => {}
            Some(key) => {
                return Change::Put(key.get(source.strip..).unwrap_or_default().to_owned());
            }
            None => return std::future::pending().await,
        }
    }
}

/// All followers of one store.
#[derive(Debug, Default)]
pub(crate) struct Followers {
    all: Mutex<Vec<Follower>>,
    any: AtomicBool,
}

#[derive(Debug)]
struct Follower {
    prefix: String,
    nudges: mpsc::Sender<String>,
    missed: Arc<AtomicBool>,
}

impl Followers {
    pub(crate) fn follow(&self, prefix: &str) -> Changes {
        let (sender, nudges) = mpsc::channel(CHANGES_WAITING_MAX);
        let missed = Arc::new(AtomicBool::new(false));
        let follower = Follower { prefix: prefix.to_owned(), nudges: sender, missed: Arc::clone(&missed) };
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(follower);
        self.any.store(true, Ordering::Release);
        Changes { sources: [Some(Source { nudges, missed, strip: 0 }), None] }
    }

    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    pub(crate) fn tell<'a>(&self, keys: impl IntoIterator<Item = &'a str>) {
        if !self.any() {
            return;
        }
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        for key in keys {
            for follower in all.iter().filter(|follower| key.starts_with(&follower.prefix)) {
                if let Err(mpsc::error::TrySendError::Full(_)) = follower.nudges.try_send(key.to_owned()) {
                    follower.missed.store(true, Ordering::Release);
                }
            }
        }
        drop(all);
        self.forget_the_gone();
    }

    /// Removes followers that were dropped.
    pub(crate) fn forget_the_gone(&self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|follower| !follower.nudges.is_closed());
        self.any.store(!all.is_empty(), Ordering::Release);
    }

    pub(crate) fn tell_missed(&self) {
        for follower in &*self.all.lock().unwrap_or_else(PoisonError::into_inner) {
            follower.missed.store(true, Ordering::Release);
            // A follower that waits on an empty channel needs something to wake it.
            let _ = follower.nudges.try_send(String::new());
        }
    }
}
