//! Waiting for a run's end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::de::DeserializeOwned;
use wigwag_core::{Data, Family, Key, Payload, Run, RunRef, Status};
use wigwag_store::{Change, Clock, Notifications};

use super::{RunHandle, RunView};
use crate::engine_core::EngineCore;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{
    FLEET_POLL_INTERVAL, OUTAGE_PATIENCE, OUTAGE_POLL_INTERVAL_MAX, OUTAGE_POLL_INTERVAL_MIN, RESULT_POLL_INTERVAL,
    RESULT_POLL_INTERVAL_MAX,
};
use crate::log;

/// Tolerance of a waiting caller for store outages: a wait of hours does not fail for a minute without the bucket.
#[derive(Debug, Default)]
pub(super) struct StorePatience {
    since: Option<Duration>,
}

impl StorePatience {
    /// Returns the error unless it is a temporary outage.
    pub(super) fn bear(&mut self, error: Error, clock: &dyn Clock) -> Result<()> {
        let now = clock.boot();
        let since = *self.since.get_or_insert(now);
        match error.kind() == ErrorKind::Unavailable && now.saturating_sub(since) < OUTAGE_PATIENCE {
            true => Ok(()),
            false => Err(error),
        }
    }

    /// The store responded: resets the tolerance.
    pub(super) fn calm(&mut self) {
        self.since = None;
    }
}

/// Returns the poll interval: `told` if the store notifies about every write, `pause` if it never notifies about writes of
/// other processes, and a longer fixed interval if servers relay notifications.
pub(super) fn poll_interval(notifications: Notifications, told: Duration, pause: Duration) -> Duration {
    match notifications {
        Notifications::Complete => told,
        Notifications::Fleet => FLEET_POLL_INTERVAL,
        Notifications::Process | Notifications::Silent => pause,
    }
}

impl RunHandle {
    /// Waits until the run has ended, and returns its final state.
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
                        let what = format!("run `{}` did not finish within {span:?}", self.run.id);
                        return Err(Error::new(ErrorKind::TimedOut, what));
                    }
                }
            }
        };
        Ok(RunView { run: Arc::unwrap_or_clone(run) })
    }

    /// Waits until the run has ended, and returns its result; an error if it failed or was cancelled.
    pub async fn result<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(self.result_payload().await?.read()?)
    }

    /// Like [`Self::result`], as JSON.
    pub async fn result_payload(&self) -> Result<Payload> {
        let run = self.ended().await?;
        let id = &self.run.id;
        match (run.status, &run.result) {
            (Status::Completed, Some(result)) => self.read_result(result).await,
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

    /// Reads the result of an ended run, from its own object if it is large. Tolerates an outage, as the wait before it does.
    async fn read_result(&self, result: &Data) -> Result<Payload> {
        let (mut patience, mut pause) = (StorePatience::default(), OUTAGE_POLL_INTERVAL_MIN);
        loop {
            match self.inner.payload(&self.run, None, result).await {
                Err(error) => patience.bear(error, &*self.inner.clock)?,
                payload => return payload,
            }
            self.inner.clock.sleep(pause).await;
            pause = (pause * 2).min(OUTAGE_POLL_INTERVAL_MAX);
        }
    }

    async fn ended(&self) -> Result<Arc<Run>> {
        let inner = &self.inner;
        let mut folded = None;
        let (mut pause, mut look) = (Duration::from_millis(50), RESULT_POLL_INTERVAL);
        let (mut told_to_look, mut is_unread) = (false, false);
        let mut patience = StorePatience::default();
        loop {
            let told = inner.wait_for_end(&self.run);
            let _forget = Forget { inner, run: &self.run };
            // Other processes may end it, once it is parked here.
            follow_ends(inner);
            let here = !told_to_look && inner.active(&self.run).is_some_and(|turn| !turn.has_ended());
            if !here {
                let read = match folded.take() {
                    None => self.read().await.map(|loaded| loaded.run),
                    Some(run) => self.caught_up(run).await,
                };
                match read {
                    Ok(run) => {
                        folded = Some(run);
                        patience.calm();
                    }
                    Err(error) => {
                        patience.bear(error, &*inner.clock)?;
                        // The end of the run was notified but could not be read: retry as soon as the store responds.
                        (pause, is_unread) = (pause.max(Duration::from_secs(1)), true);
                    }
                }
                if let Some(run) = folded.take_if(|run| run.status.is_final()) {
                    return Ok(Arc::new(run));
                }
            }
            let span = match (inner.store.traits().notifications, here) {
                _ if std::mem::take(&mut is_unread) => pause,
                // It may be parked here at any moment, and end in another process; while it is not, a check
                // costs no request.
                (Notifications::Silent | Notifications::Process, true) => RESULT_POLL_INTERVAL,
                (notifications, _) => poll_interval(notifications, look, pause),
            };
            (pause, look) = ((pause * 3 / 2).min(Duration::from_secs(2)), (look * 2).min(RESULT_POLL_INTERVAL_MAX));
            let clock = Arc::clone(&inner.clock);
            tokio::select! {
                biased;
                ended = told => match ended {
                    Ok(Some(run)) => return Ok(run),
                    // The run may have ended between this notification and the next: check it.
                    _ => told_to_look = true,
                },
                () = clock.sleep(span) => told_to_look = false,
            }
        }
    }

    async fn caught_up(&self, run: Run) -> Result<Run> {
        let mut folded = Some(run);
        log::catch_up_to_end(&*self.inner.store, &self.run, &mut folded).await?;
        folded.ok_or_else(|| self.not_found())
    }
}

/// A waiter that is dropped leaves nothing behind.
struct Forget<'a> {
    inner: &'a EngineCore,
    run: &'a RunRef,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        self.inner.forget_waiters(self.run);
    }
}

/// Follows the ends of runs that other processes drive, if the store notifies; shared by all waiting callers.
fn follow_ends(inner: &Arc<EngineCore>) {
    if inner.store.traits().notifications == Notifications::Silent
        || inner.ends.follows_others.swap(true, Ordering::AcqRel)
    {
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
