//! The life cycle of a step: start, succeed, fail, retry, time out, compensate. Graph steps, steps of functions, map
//! items and tasks share it.
//!
//! ```text
//!            ┌──────────── retry at ◄──────────┐
//!            ▼                                 │ retries left
//! start ► running ── outcome in time ─┬─ failed ┴─► on_failure: end the run, pause it, continue, or reply to the code
//!            │                        └─ completed
//!            └─ deadline passed ─► failed (Timeout)
//! ```

use std::time::Duration;

use crate::{Fault, OnFailure, Outcome, Path, Point, PointKind, PointStatus, Retry, StepFailed, Then, Time};
use crate::{after_failure, limits};

/// An attempt whose code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Attempt number, starting at 1.
    pub number: u32,
    /// Time at which the attempt is stopped.
    pub deadline: Time,
    /// Timeout of the attempt.
    pub timeout: Duration,
}

impl Attempt {
    /// Returns an attempt that starts now.
    #[must_use]
    pub fn new(number: u32, now: Time, timeout: Duration) -> Self {
        Self { number, deadline: now.after(timeout), timeout }
    }

    /// Whether the attempt has timed out.
    #[must_use]
    pub fn is_overdue(&self, now: Time) -> bool {
        self.deadline <= now
    }

    /// Returns the time of an outcome that arrived in time, else `Err` with the deadline, whether or not the turn
    /// noticed the timeout before.
    pub fn accept(&self, at: Time) -> Result<Time, Time> {
        if at > self.deadline { Err(self.deadline) } else { Ok(at) }
    }
}

/// Action of a turn for a step that is reached: by the code of a function, or because its dependencies have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// The step was never reached.
    New,
    /// Starts this attempt.
    Start {
        /// Attempt number, starting at 1.
        attempt: u32,
    },
    /// Runs a recorded attempt again: its worker died or released the run.
    Rerun {
        /// Attempt number, starting at 1.
        attempt: u32,
    },
    /// Fails a recorded attempt: too many workers died while they ran it, or its code is elsewhere by now.
    Lost {
        /// Attempt number, starting at 1.
        attempt: u32,
        /// Number of workers that died.
        workers: u32,
    },
    /// Waits for the next attempt.
    RetryAt(Time),
    /// No action: this turn or a task runs the step, or it waits for something else.
    Wait,
    /// The recorded outcome is used.
    Settled,
}

impl Begin {
    /// Decides for a recorded step. `runs` returns whether this turn runs it; `is_dispatched` whether tasks run it.
    #[must_use]
    pub fn of(point: Option<&Point>, now: Time, runs: bool, is_dispatched: bool) -> Self {
        let Some(point) = point else { return Self::New };
        match (point.kind, point.status) {
            (_, status) if status.is_settled() => Self::Settled,
            (PointKind::Step, PointStatus::Retrying) => match point.until {
                Some(at) if at > now => Self::RetryAt(at),
                // A failure that paused the run has no retry time, and the step starts over; a failed task is
                // replaced by another task.
                None if point.children.is_none() => Self::Start { attempt: 1 },
                _ => Self::Start { attempt: point.attempt.saturating_add(1) },
            },
            (PointKind::Step, PointStatus::Running) if point.children.is_none() && !runs => {
                // The step was started by a worker with its code and claimed by one without: the next
                // attempt is dispatched.
                if point.interrupted >= limits::current().interruptions_max || is_dispatched {
                    return Self::Lost { attempt: point.attempt, workers: point.interrupted.max(1) };
                }
                Self::Rerun { attempt: point.attempt }
            }
            _ => Self::Wait,
        }
    }
}

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedAttempt {
    /// Path of the step.
    pub step: Path,
    /// Attempt number, starting at 1.
    pub attempt: u32,
    /// Time of the failure.
    pub at: Time,
    /// Whether another attempt may help.
    pub outcome: Outcome,
    /// Error of the attempt.
    pub error: Fault,
    /// How long the code wants the next attempt to wait, instead of what the retry policy says.
    pub after: Option<Duration>,
}

/// How a step is retried, and what its failure means.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Retry policy; `None` for a dispatched step, whose task was retried.
    pub retry: Option<Retry>,
    /// Recipient of the failure, which decides its effect on the run.
    pub owner: Owner,
    /// Whether the run ends, so that there are no retries.
    pub run_ends: bool,
}

/// The recipient of a step's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The code of a function, which receives the error.
    Code,
    /// A graph, with the step's failure policy.
    Graph(OnFailure),
}

/// Consequence of a failed attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum AfterFailure {
    /// The next attempt starts at this time.
    RetryAt(Time),
    /// The code of the function receives the error.
    ReplyToCode,
    /// The run is paused; a resume starts the step over.
    Pause,
    /// The graph continues without the step.
    Continue,
    /// The run ends with this error.
    EndRun(Fault),
    /// No consequence: the run ends already.
    Nothing,
}

impl FailedAttempt {
    /// Decides the consequence, and returns the event that records the failure. `chance` is between 0 and 1.
    #[must_use]
    pub fn settle(self, policy: &Policy, chance: f64) -> (StepFailed, AfterFailure) {
        let Self { step, attempt, at, outcome, error, after } = self;
        let error = error.at(&step);
        let retry_at = policy.retry.as_ref().filter(|_| !policy.run_ends);
        let retry_at = retry_at.and_then(|retry| retry_at_after(outcome, attempt, retry, at, chance));
        let retry_at = retry_at.map(|again| after.map_or(again, |span| at.after(span)));
        let then = match (retry_at, policy.owner) {
            (Some(again), _) => AfterFailure::RetryAt(again),
            (None, Owner::Code) => AfterFailure::ReplyToCode,
            (None, Owner::Graph(OnFailure::Pause)) if !policy.run_ends => AfterFailure::Pause,
            (None, Owner::Graph(OnFailure::Continue)) => AfterFailure::Continue,
            (None, Owner::Graph(_)) if policy.run_ends => AfterFailure::Nothing,
            (None, Owner::Graph(_)) => AfterFailure::EndRun(error.clone()),
        };
        let held = then == AfterFailure::Pause;
        (StepFailed { point: step, attempt, at, error, retry_at, held }, then)
    }
}

/// Returns the time of the retry after a failure at this time; `None` without a retry.
#[must_use]
pub fn retry_at_after(outcome: Outcome, attempt: u32, retry: &Retry, at: Time, chance: f64) -> Option<Time> {
    match after_failure(outcome, attempt, retry, false, chance) {
        Then::Retry(delay) => Some(at.after(delay)),
        _ => None,
    }
}
