//! The action of a worker that found a due wake-up.

use std::time::Duration;

use crate::limits::ORPHAN_AGE;
use crate::{Hint, Run, Status, Time};

/// The action for a run that a wake-up names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// Another worker holds the turn: keep the wake-up, and check again when that lease ends.
    Leave {
        /// End of the lease.
        until: Time,
    },
    /// The run ended: check for a restart, else complete its end, then delete the wake-up.
    Ended,
    /// The run does not exist yet, and its starter may still be about to create it: keep the wake-up.
    Unborn,
    /// The run does not exist, and no starter can be about to create it: delete the wake-up.
    Orphan,
    /// No worker drives the run: check whether there is something to do, and claim it if so.
    Free,
}

impl Run {
    /// Whether the run waits for signals only: it is parked without a driver, a due timer or a pending control request,
    /// and has no child or late signal to process first.
    #[must_use]
    pub fn waits_only(&self, now: Time) -> bool {
        let is_asked = self.pause.is_some() || self.chain.is_some() || self.cancel.is_some();
        let has_children =
            || self.open.iter().any(|path| self.points.get(path).is_some_and(|point| point.children.is_some()));
        self.status == Status::WaitingSignal
            && self.parked
            && self.lease.is_none()
            && self.next_at.is_none_or(|at| at > now)
            && self.signals.values().all(|inbox| inbox.late.is_empty())
            && self.is_whole()
            && !is_asked
            && !has_children()
    }
}

/// Decides the action of a worker that found this wake-up. `uncertainty` is the maximum error of `now`.
///
/// `owner_lives` returns whether a process of this machine is alive; `None` if processes have no liveness records.
pub fn look(
    run: Option<&Run>,
    hint: &Hint,
    now: Time,
    uncertainty: Duration,
    owner_lives: impl FnOnce(&str) -> Option<bool>,
) -> Look {
    let Some(run) = run else {
        return if now.since(hint.due) > ORPHAN_AGE { Look::Orphan } else { Look::Unborn };
    };
    if run.status.is_final() {
        return Look::Ended;
    }
    let Some(lease) = &run.lease else { return Look::Free };
    if deliberate_bug!(LeaseIgnored) {
        return Look::Free;
    }
    // The owner obeys its lease by the cautious side of its clock; we wait for the cautious other side of ours.
    let over = now.before(uncertainty) > lease.until;
    let dead = lease.peer.as_deref().and_then(owner_lives) == Some(false);
    if over || dead { Look::Free } else { Look::Leave { until: lease.until.after(uncertainty) } }
}
