//! Waiting for a run's end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::de::DeserializeOwned;
use wigwag_core::{Family, Key, Payload, Run, RunRef, Status};
use wigwag_store::Change;

use super::{RunHandle, RunView};
use crate::error::{Error, ErrorKind, Result};
use crate::inner::Inner;
use crate::log;

/// How long one who waits and will be told of the end goes without looking by itself, at first.
const LOOK: Duration = Duration::from_secs(5);

/// And at last: ten thousand who wait for days ask the store for little.
const LOOK_MAX: Duration = Duration::from_secs(60);

impl RunHandle {
    /// Waits until the run has ended, and gives it as it ended.
    pub async fn wait(&self) -> Result<RunView> {
        self.wait_for(None).await
    }

    /// Waits until the run has ended, but not longer than this.
    pub async fn wait_for(&self, timeout: impl Into<Option<Duration>>) -> Result<RunView> {
        let run = match timeout.into() {
            None => self.ended().await?,
            Some(span) => {
                let clock = Arc::clone(&self.inner.clock);
                tokio::select! {
                    biased;
                    ended = self.ended() => ended?,
                    () = clock.sleep(span) => {
                        let what = format!("run `{}` has not ended within {span:?}", self.run.id);
                        return Err(Error::new(ErrorKind::TimedOut, what));
                    }
                }
            }
        };
        Ok(RunView { run: Arc::unwrap_or_clone(run) })
    }

    /// Waits until the run has ended, and gives its result; an error if it failed or was cancelled.
    pub async fn result<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(self.result_payload().await?.read()?)
    }

    /// The same as JSON.
    pub async fn result_payload(&self) -> Result<Payload> {
        let run = self.ended().await?;
        let id = &self.run.id;
        match (run.status, &run.result) {
            (Status::Completed, Some(result)) => self.inner.payload(&self.run, None, result).await,
            (Status::Completed, None) => Ok(Payload::null()),
            (Status::Cancelled, _) => {
                let reason = run.cancel.as_ref().and_then(|cancel| cancel.reason.as_deref());
                let why = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
                Err(Error::new(ErrorKind::RunCancelled, format!("run `{id}` was cancelled{why}")))
            }
            _ => {
                let fault = run.error.clone();
                let why = fault.as_ref().map_or_else(String::new, |fault| format!(": {}", fault.message));
                let error = Error::new(ErrorKind::RunFailed, format!("run `{id}` failed{why}"));
                Err(match fault {
                    Some(fault) => error.with_fault(fault),
                    None => error,
                })
            }
        }
    }

    async fn ended(&self) -> Result<Arc<Run>> {
        let inner = &self.inner;
        let mut folded = None;
        let (mut pause, mut look) = (Duration::from_millis(50), LOOK);
        let mut told_to_look = false;
        loop {
            let told = inner.wait_for_end(&self.run);
            let _forget = Forget { inner, run: &self.run };
            // Others may end it, once it is parked here.
            follow_ends(inner);
            let here = !told_to_look && inner.active(&self.run).is_some();
            if !here {
                match folded.take() {
                    None => folded = Some(self.read().await?.run),
                    Some(run) => folded = Some(self.caught_up(run).await?),
                }
                if let Some(run) = folded.take_if(|run| run.status.is_final()) {
                    return Ok(Arc::new(run));
                }
            }
            let span = match (inner.store.traits().nudges, here) {
                (true, _) => look,
                // It may be parked here at any moment, and end elsewhere; while it is not, looking costs no request.
                (false, true) => LOOK,
                (false, false) => pause,
            };
            (pause, look) = ((pause * 3 / 2).min(Duration::from_secs(2)), (look * 2).min(LOOK_MAX));
            let clock = Arc::clone(&inner.clock);
            tokio::select! {
                biased;
                ended = told => match ended {
                    Ok(Some(run)) => return Ok(run),
                    // It may have ended between this word and the next.
                    _ => told_to_look = true,
                },
                () = clock.sleep(span) => told_to_look = false,
            }
        }
    }

    async fn caught_up(&self, run: Run) -> Result<Run> {
        let mut folded = Some(run);
        log::catch_up(&*self.inner.store, &self.run, &mut folded).await?;
        folded.ok_or_else(|| self.not_found())
    }
}

/// A waiter that is dropped leaves nothing behind.
struct Forget<'a> {
    inner: &'a Inner,
    run: &'a RunRef,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.inner.forget_waiters(self.run);
    }
}

/// Follows the ends of runs that others drive, where the store tells; once for all who wait.
fn follow_ends(inner: &Arc<Inner>) {
    if !inner.store.traits().nudges || inner.follows_ends.swap(true, Ordering::AcqRel) {
        return;
    }
    let mut changes = inner.store.changes("done/");
    let weak = Arc::downgrade(inner);
    tokio::spawn(async move {
        loop {
            let change = changes.next().await;
            let Some(inner) = weak.upgrade() else { return };
            match change {
                Change::Put(key) => {
                    if let Ok(Key::Done { run, .. }) = key.parse::<Key>() {
                        for family in [Family::Workflow, Family::Task] {
                            let run = RunRef { family, id: run.clone() };
                            if inner.active(&run).is_none() {
                                inner.tell_end(&run, || None);
                            }
                        }
                    }
                }
                _ => inner.tell_all(),
            }
        }
    });
}
