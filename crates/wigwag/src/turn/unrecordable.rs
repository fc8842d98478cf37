//! Stops a run whose next entry can never be recorded, with the reason, instead of retrying without end.
//!
//! The store rejects an entry, a payload or a batch permanently when it exceeds a limit that no earlier check covers; the
//! log rejects an event that contradicts it. Both are bugs. Every further turn would end in the same way, and the run
//! would consume no signal and follow no cancel any more.
//!
//! The run is paused if its state allows that: `resume` tries again, with better code for example. A run that is being
//! cancelled or compensated cannot be paused, and ends.
//!
//! What if we die here? Until the entry is stored no event took effect, and the next turn is rejected in the same way.

use tracing::warn;
use wigwag_core::turn::ending::Halt;
use wigwag_core::turn::park::timers_of;
use wigwag_core::turn::phase::Phase;
use wigwag_core::{Closing, Fault, RunCancelled, RunFailed};

use super::Turn;
use crate::error::Error;
use crate::log::{self, CommitError as Lost, CommitPlan, Log};

/// Kind of the error of a run that was paused because its next entry can never be recorded.
pub(crate) const UNRECORDABLE: &str = "Unrecordable";

impl Turn {
    /// Stops the run that this turn holds. If even that fails, the run is tried again when the lease ends.
    pub(super) async fn stop_unrecordable(&mut self, error: &Error) {
        let run = self.log.run.run.clone();
        warn!(%run, %error, "an entry of the run can never be recorded; the run is stopped");
        if let Err(lost) = self.start_over_to_stop(error).await {
            warn!(%run, ?lost, "the run could not be stopped; another turn follows when its lease ends");
            _ = self.handle.poke(Some(&self.lease.hint));
        }
    }

    /// Reads the run again, because the staged events are unusable, and records the reason for the stop.
    async fn start_over_to_stop(&mut self, error: &Error) -> Result<(), Lost> {
        let loaded = log::read_whole(&*self.inner.store, self.run_ref()).await?;
        let own = |owner: &str| owner == self.inner.worker;
        let Some(loaded) = loaded.filter(|loaded| loaded.run.lease.as_ref().is_some_and(|lease| own(&lease.owner)))
        else {
            return Err(Lost::Taken);
        };
        self.abort_bodies();
        self.mail.queue.clear();
        self.mail.held.clear();
        self.plan.releases.clear();
        self.steps.overdue.clear();
        self.plan.around = CommitPlan::default();
        (self.code.root, self.code.begins, self.plan.brings) = (None, false, None);
        self.phase = Phase::Driving;
        let lease_ends = self.log.lease_ends;
        self.log = Log::new(std::sync::Arc::clone(&self.inner), loaded);
        self.log.lease_ends = lease_ends;
        self.steps.timers = timers_of(&self.log.run);
        self.now = self.inner.now().await?.at;
        self.stage_stop(error).await?;
        match self.log.run.status.is_final() {
            true => self.end().await,
            false => self.park().await.map(drop),
        }
    }

    /// Records why the run stops: paused where that is possible, else ended.
    pub(crate) async fn stage_stop(&mut self, error: &Error) -> Result<(), Lost> {
        let fault = Fault::new(UNRECORDABLE, format!("the next entry of the run cannot be recorded: {error}"));
        let halt = Halt::of(&self.log.run);
        if halt == Halt::Nothing {
            return Ok(());
        }
        if halt == Halt::Pause {
            return self.pause_for_failure(fault);
        }
        while !self.close_waits(Closing::Cancelled)? {
            self.commit().await?;
        }
        match halt {
            Halt::Cancel => self.log.stage(RunCancelled { reason: Some(fault.message) }, self.now),
            _ => self.log.stage(RunFailed { error: fault }, self.now),
        }
    }
}
