//! Keys that were sent to other processes and are neither delivered nor abandoned yet: counted, so that a process can
//! wait for them before it ends.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::watch;

use crate::Clock;

/// Number of outgoing keys of one fleet.
#[derive(Debug)]
pub(super) struct Undelivered {
    count: watch::Sender<usize>,
}

/// The counters of this process, by which keys are found whose sender was dropped already.
static ALL: Mutex<Vec<Weak<Undelivered>>> = Mutex::new(Vec::new());

impl Undelivered {
    pub(super) fn new() -> Arc<Self> {
        let counter = Arc::new(Self { count: watch::Sender::new(0) });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|counter| counter.strong_count() > 0);
        all.push(Arc::downgrade(&counter));
        counter
    }

    /// Waits until every key is delivered or abandoned.
    pub(super) async fn settled(&self) {
        // The sender is `self`, so the channel cannot close.
        let _ = self.count.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// A key on its way. It counts as delivered or abandoned once it is dropped.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) key: String,
    undelivered: Arc<Undelivered>,
}

impl Outgoing {
    pub(super) fn new(key: &str, undelivered: &Arc<Undelivered>) -> Self {
        undelivered.count.send_modify(|count| *count += 1);
        Self { key: key.to_owned(), undelivered: Arc::clone(undelivered) }
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.undelivered.count.send_modify(|count| *count -= 1);
    }
}

/// Delivers the pending notifications of this process, also those of stores that were dropped. Gives up after `max`.
///
/// For the end of a short program: notifications are sent in the background, and a process that exits at once would
/// take them with it. The runtime that the stores were used on must still run.
pub async fn flush_notifications(clock: &dyn Clock, max: Duration) {
    let all: Vec<_> = {
        let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    };
    tokio::select! {
        biased;
        _ = join_all(all.iter().map(|counter| counter.settled())) => {}
        () = clock.sleep(max) => {}
    }
}
