//! How a run ends: when, by which event, and which step is compensated next.

use crate::Definition;
use crate::{Ending, Event, OnFailure, Path, PointStatus, Run, RunCancelled, RunFailed, Status, Style, Time};

/// Returns how a run ends, if its log determines that already; called once, at the start of the turn.
#[must_use]
pub fn recorded_ending(run: &Run, definition: &Definition) -> Option<Ending> {
    if let Some(chain) = &run.chain {
        return Some(chain.cause.clone());
    }
    if definition.style == Style::Function {
        return None;
    }
    let fails = |path: &Path| definition.step(path).is_some_and(|node| node.on_failure != OnFailure::Continue);
    let failed = run.points.iter().filter(|(path, point)| point.status == PointStatus::Failed && fails(path));
    let last = failed.max_by_key(|(_, point)| (point.seq, point.place));
    last.and_then(|(_, point)| point.error.clone()).map(Ending::Failed)
}

/// Returns the event that ends the run this way.
#[must_use]
pub fn final_event(ending: Ending) -> Event {
    match ending {
        Ending::Failed(error) => RunFailed { error }.into(),
        Ending::Cancelled(reason) => RunCancelled { reason }.into(),
    }
}

/// Whether a run may end now: it has not ended, and it is not paused. A cancel ends a paused run too.
#[must_use]
pub fn may_end(run: &Run) -> bool {
    !run.status.is_final() && !is_held_by_pause(run)
}

/// Whether a pause keeps the run from ending.
#[must_use]
pub fn is_held_by_pause(run: &Run) -> bool {
    run.status == Status::Paused && run.cancel.is_none()
}

/// Next action of a turn for the compensation of a run without running steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoMove {
    /// Nothing is left to compensate: the run ends.
    End,
    /// Starts this attempt.
    Start {
        /// Path of the step.
        step: Path,
        /// Attempt number, starting at 1.
        attempt: u32,
    },
    /// Runs a recorded attempt again: its worker died.
    Rerun {
        /// Path of the step.
        step: Path,
        /// Attempt number, starting at 1.
        attempt: u32,
    },
    /// No action: the compensation is running, or its next attempt is not due.
    Wait,
}

impl UndoMove {
    /// Decides from the recorded chain. `order` is [`Run::undo_order`]; `runs` returns whether this turn
    /// compensates a step.
    pub fn of(run: &Run, order: &[Path], now: Time, runs: impl Fn(&Path) -> bool) -> Self {
        let behind = run.chain.as_ref().map_or(0, |chain| chain.behind);
        let Some(next) = order.get(behind) else { return Self::End };
        let Some(current) = run.chain.as_ref().and_then(|chain| chain.current.as_ref()) else {
            return Self::Start { step: next.clone(), attempt: 1 };
        };
        let (step, attempt) = (current.point.clone(), current.attempt);
        match current.retry_at {
            Some(at) if at <= now => Self::Start { step, attempt: attempt.saturating_add(1) },
            Some(_) => Self::Wait,
            None if runs(&step) => Self::Wait,
            None => Self::Rerun { step, attempt },
        }
    }
}

/// How to stop a run whose next entry can never be recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// No action: the run is paused.
    Nothing,
    /// Pause the run: a resume retries.
    Pause,
    /// Cancel the run: a run that is being cancelled cannot be paused.
    Cancel,
    /// Fail the run: a run that is compensating cannot be paused.
    Fail,
}

impl Halt {
    /// Decides for a run.
    #[must_use]
    pub fn of(run: &Run) -> Self {
        match (&run.chain, &run.cancel) {
            _ if run.status == Status::Paused => Self::Nothing,
            (None, None) => Self::Pause,
            (Some(chain), _) if !matches!(chain.cause, Ending::Cancelled(_)) => Self::Fail,
            _ => Self::Cancel,
        }
    }
}
