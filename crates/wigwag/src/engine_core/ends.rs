//! Waiting for the end of runs, as far as this engine learns of it.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;
use wigwag_core::{Run, RunRef};

use super::{EngineCore, lock};

/// Callers that wait for the end of runs.
#[derive(Debug, Default)]
pub(crate) struct EndWaiters {
    waiters: Mutex<HashMap<RunRef, Vec<Waiter>>>,
    /// Ends of runs that other processes drive are followed too.
    pub(crate) follows_others: AtomicBool,
}

/// Receives the end of a run, with the run if it ended here.
type Waiter = oneshot::Sender<Option<Arc<Run>>>;

impl EngineCore {
    /// Returns a receiver that resolves when this engine learns that the run ended, with the run if it ended here.
    pub(crate) fn wait_for_end(&self, run: &RunRef) -> oneshot::Receiver<Option<Arc<Run>>> {
        let (tell, told) = oneshot::channel();
        let mut waiters = lock(&self.ends.waiters);
        let list = waiters.entry(run.clone()).or_default();
        list.retain(|waiter| !waiter.is_closed());
        list.push(tell);
        told
    }

    /// Notifies the waiters of a run, with the ended run if it is in memory.
    pub(crate) fn tell_end(&self, run: &RunRef, ended: impl FnOnce() -> Option<Run>) {
        let waiting = lock(&self.ends.waiters).remove(run);
        if waiting.is_none() {
            return;
        }
        let ended = ended().map(Arc::new);
        for waiter in waiting.into_iter().flatten() {
            let _ = waiter.send(ended.clone());
        }
    }

    /// Notifies the waiters of all runs to check their run.
    pub(crate) fn tell_all(&self) {
        let waiting = std::mem::take(&mut *lock(&self.ends.waiters));
        for waiter in waiting.into_values().flatten() {
            let _ = waiter.send(None);
        }
    }

    /// Removes the waiters of a run that were dropped.
    pub(crate) fn forget_waiters(&self, run: &RunRef) {
        let mut waiters = lock(&self.ends.waiters);
        if let Some(list) = waiters.get_mut(run) {
            list.retain(|waiter| !waiter.is_closed());
            if list.is_empty() {
                waiters.remove(run);
            }
        }
    }
}
