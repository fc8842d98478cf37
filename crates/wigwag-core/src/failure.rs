//! Failures and their consequences.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Path, Retry, limits};

/// An error in its recorded form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Fault {
    /// Kind of the error: `StepFailed`, `Permanent`, `Timeout`, `Panic`, `VersionMismatch`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// Text of the error.
    pub message: String,
    /// Causes and backtrace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Path of the step that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Path>,
    /// For a version mismatch: the steps that do not match, at most a hundred of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incompatible_steps: Vec<String>,
    /// For a version mismatch: the definition hash of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// For a version mismatch: the definition hash of the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

impl Fault {
    /// An error of this kind, truncated to the size that a log entry allows.
    pub fn new(kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            message: cut(message.into()),
            detail: None,
            point: None,
            incompatible_steps: Vec::new(),
            expected: None,
            found: None,
        }
    }

    /// Adds causes or a backtrace.
    #[must_use]
    pub fn detail(self, detail: Option<String>) -> Self {
        Self { detail: detail.map(cut), ..self }
    }

    /// Sets the path of the failed step unless it is set.
    #[must_use]
    pub fn at(mut self, point: &Path) -> Self {
        self.point.get_or_insert_with(|| point.clone());
        self
    }

    /// The error of a wait that timed out.
    #[must_use]
    pub fn signal_timeout() -> Self {
        Self::new("SignalTimeout", "no signal came in time")
    }

    /// The error of a run whose steps do not match the code.
    #[must_use]
    pub fn version_mismatch(expected: &str, found: &str, mut steps: Vec<String>) -> Self {
        let named = steps.iter().take(10).map(|step| format!("`{step}`")).collect::<Vec<_>>().join(", ");
        let more = steps.len().saturating_sub(10);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let message = format!("the code does not fit the run at {named}{more}");
        steps.truncate(limits::current().named_misfits_max);
        let fault = Self::new("VersionMismatch", message);
        Self { incompatible_steps: steps, expected: Some(expected.into()), found: Some(found.into()), ..fault }
    }
}

fn cut(text: String) -> String {
    cut_to(text, limits::current().error_bytes_max)
}

/// Truncates a text to `max` bytes and marks the cut.
pub(crate) fn cut_to(mut text: String, max: usize) -> String {
    if text.len() > max {
        let end = (0..=max).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The step returned a result.
    Success,
    /// The step failed, timed out or panicked; a retry may succeed.
    Retryable,
    /// A retry cannot succeed.
    Permanent,
    /// The run is being cancelled.
    Cancelled,
}

/// Consequence of an attempt's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The run continues with the next steps.
    GoOn,
    /// The step is retried after this delay.
    Retry(Duration),
    /// The run fails.
    Fail,
    /// Completed steps are compensated, then the run fails.
    CompensateThenFail,
    /// The run is cancelled.
    Cancel,
    /// Completed steps are compensated, then the run is cancelled.
    CompensateThenCancel,
}

/// The failure table: maps the outcome of an attempt to its consequence.
///
/// `attempt` starts at 1; `to_undo` is true if the run has anything to compensate; `chance` is between
/// 0 and 1.
#[must_use]
pub fn after_failure(outcome: Outcome, attempt: u32, retry: &Retry, to_undo: bool, chance: f64) -> Then {
    if outcome == Outcome::Retryable
        && let Some(delay) = retry.delay_after(attempt, chance)
    {
        return Then::Retry(delay);
    }
    match (outcome, to_undo) {
        (Outcome::Success, _) => Then::GoOn,
        (Outcome::Cancelled, false) => Then::Cancel,
        (Outcome::Cancelled, true) => Then::CompensateThenCancel,
        (Outcome::Retryable | Outcome::Permanent, false) => Then::Fail,
        (Outcome::Retryable | Outcome::Permanent, true) => Then::CompensateThenFail,
    }
}
