//! What goes wrong, and what follows from it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Path, Retry, limits};

/// An error as it is recorded and shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Fault {
    /// What kind: `StepFailed`, `Permanent`, `Timeout`, `Panic`, `VersionMismatch`, …
    #[serde(rename = "type")]
    pub kind: String,
    /// What happened, in words.
    pub message: String,
    /// Causes and backtrace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Where it happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub point: Option<Path>,
    /// For a version mismatch: the steps that do not fit, at most a hundred of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incompatible_steps: Vec<String>,
    /// For a version mismatch: the hash the run has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// For a version mismatch: the hash the code has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

impl Fault {
    /// An error of this kind in these words, cut to what a log entry can bear.
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

    /// Says where it happened, unless that is said.
    #[must_use]
    pub fn at(mut self, point: &Path) -> Self {
        self.point.get_or_insert_with(|| point.clone());
        self
    }

    /// No signal came in time.
    #[must_use]
    pub fn signal_timeout() -> Self {
        Self::new("SignalTimeout", "no signal came in time")
    }

    /// The code does not fit the run: these steps.
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

/// Shortens a text to so many bytes, and marks that it was.
pub(crate) fn cut_to(mut text: String, max: usize) -> String {
    if text.len() > max {
        let end = (0..=max).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    text
}

/// How a step came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It gave a result.
    Success,
    /// It failed, took too long, or panicked; another try may help.
    Retryable,
    /// Another try cannot help.
    Permanent,
    /// The run is being cancelled.
    Cancelled,
}

/// What follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The next steps.
    GoOn,
    /// The same step, after this long.
    Retry(Duration),
    /// The run fails.
    Fail,
    /// What was done is undone, then the run fails.
    CompensateThenFail,
    /// The run is cancelled.
    Cancel,
    /// What was done is undone, then the run is cancelled.
    CompensateThenCancel,
}

/// The table of failures: what follows from how a step came out.
///
/// `attempt` counts from 1; `to_undo` says whether anything in the run can be undone; `chance` is from 0 to 1.
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
