//! What a worker does that found a hint which is due.

use std::time::Duration;

use crate::limits::ORPHAN_AGE;
use crate::mutation::{Mutation, is_mutated};
use crate::{Hint, Run, Status, Time};

/// What to do about a run that a hint led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// Another holds the turn: leave the hint, and come back when that lease ends.
    Leave {
        /// When.
        until: Time,
    },
    /// The run ended: look for a restart, else complete its end, then delete the hint.
    Ended,
    /// There is no such run, and its starter may still be about to make it: leave the hint.
    Unborn,
    /// There is no such run, and nobody can be about to make it: delete the hint.
    Orphan,
    /// Nobody drives it: look whether there is something to do, and claim it if so.
    Free,
}

impl Run {
    /// Whether nothing keeps it but signals: it is parked, nobody drives it, no time has come, nothing was asked of it,
    /// and no child or late signal of it may have to be heeded first.
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

/// What a worker does that found this hint. `uncertainty` is how far off `now` may be.
///
/// `owner_lives` answers for a process of this machine; `None` where processes cannot prove that they live.
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
    if is_mutated(Mutation::LeaseIgnored) {
        return Look::Free;
    }
    // The owner obeys its lease by the cautious side of its clock; we wait for the cautious other side of ours.
    let over = now.before(uncertainty) > lease.until;
    let dead = lease.peer.as_deref().and_then(owner_lives) == Some(false);
    if over || dead { Look::Free } else { Look::Leave { until: lease.until.after(uncertainty) } }
}
