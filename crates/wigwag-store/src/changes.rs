//! Nudges: what was put under a prefix, told to whoever follows it.
//!
//! Holds: a follower that falls behind is told so once (`Missed`) and can list.
//! Does not hold: a nudge may be repeated, and may come for a put that was deleted since.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::mpsc;

use crate::limits::CHANGES_WAITING_MAX;

/// One nudge.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// Something was put at this key.
    Put(String),
    /// More happened than could be told. List.
    Missed,
}

/// The nudges under one prefix, from when it was made.
#[derive(Debug)]
pub struct Changes {
    inner: Option<Inner>,
    strip: usize,
}

#[derive(Debug)]
struct Inner {
    nudges: mpsc::Receiver<String>,
    missed: Arc<AtomicBool>,
}

impl Changes {
    /// Nudges that never come: for stores that cannot tell.
    #[must_use]
    pub fn silent() -> Self {
        Self { inner: None, strip: 0 }
    }

    /// The same nudges with the first `bytes` of each key cut off.
    pub(crate) fn without_first(mut self, bytes: usize) -> Self {
        self.strip += bytes;
        self
    }

    /// Waits for the next nudge. Never returns on a store that cannot tell, nor once the store is closed.
    pub async fn next(&mut self) -> Change {
        let Some(inner) = &mut self.inner else {
            return std::future::pending().await;
        };
        loop {
            if inner.missed.swap(false, Ordering::AcqRel) {
                // What is still queued is older than the loss; the listing that follows will see it too.
                while inner.nudges.try_recv().is_ok() {}
                return Change::Missed;
            }
            match inner.nudges.recv().await {
                // An empty key is no nudge: it wakes a follower that has missed some.
                Some(key) if key.is_empty() || inner.missed.load(Ordering::Acquire) => {}
                Some(key) => {
                    return Change::Put(key.get(self.strip..).unwrap_or_default().to_owned());
                }
                None => return std::future::pending().await,
            }
        }
    }
}

/// Everyone who follows some prefix of one store.
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
        Changes { inner: Some(Inner { nudges, missed }), strip: 0 }
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

    /// Drops followers that nobody listens to any more.
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
