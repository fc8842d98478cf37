//! From the number of an attempt to the time before the next; chance is an argument.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::span;

/// Retry policy of a step: the number of retries and their delays.
///
/// ```
/// use std::time::Duration;
/// use wigwag_core::Retry;
///
/// let retry = Retry::times(5).first(Duration::from_millis(100)).cap(Duration::from_secs(10));
/// assert_eq!(retry.attempts_max(), 6);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Retry {
    /// Number of attempts after the first.
    pub retries: u32,
    /// The time before the first retry.
    #[serde(with = "span")]
    pub first: Duration,
    /// Factor between two successive delays.
    pub factor: f64,
    /// Maximum delay between two attempts.
    #[serde(with = "span")]
    pub cap: Duration,
    /// Random share by which a delay is shortened or extended, so that steps that failed together do
    /// not retry together.
    pub jitter: f64,
}

impl Default for Retry {
    fn default() -> Self {
        Self { retries: 3, first: Duration::from_secs(1), factor: 2.0, cap: Duration::from_secs(60), jitter: 0.25 }
    }
}

impl Retry {
    /// The default delays, with this many retries.
    #[must_use]
    pub fn times(retries: u32) -> Self {
        Self { retries, ..Self::default() }
    }

    /// A policy without retries.
    #[must_use]
    pub fn never() -> Self {
        Self::times(0)
    }

    /// Sets the time before the first retry.
    #[must_use]
    pub fn first(self, first: Duration) -> Self {
        Self { first, ..self }
    }

    /// Sets by how much each delay is longer than the one before; at least 1.
    #[must_use]
    pub fn factor(self, factor: f64) -> Self {
        Self { factor: if factor.is_finite() { factor.max(1.0) } else { 1.0 }, ..self }
    }

    /// Sets the longest delay.
    #[must_use]
    pub fn cap(self, cap: Duration) -> Self {
        Self { cap, ..self }
    }

    /// Sets the share by which a delay may be shorter or longer, 0 to 1.
    #[must_use]
    pub fn jitter(self, jitter: f64) -> Self {
        Self { jitter: if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 0.0 }, ..self }
    }

    /// Total number of attempts.
    #[must_use]
    pub fn attempts_max(&self) -> u32 {
        self.retries.saturating_add(1)
    }

    /// How long to wait after attempt number `attempt` failed (the first is 1); `None` when it was the last.
    ///
    /// `chance` is from 0 to 1.
    #[must_use]
    pub fn delay_after(&self, attempt: u32, chance: f64) -> Option<Duration> {
        if attempt >= self.attempts_max() {
            return None;
        }
        let power = self.factor.powi(i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX));
        let plain = (self.first.as_secs_f64() * power).min(self.cap.as_secs_f64());
        let swing = 1.0 + self.jitter * (2.0 * chance.clamp(0.0, 1.0) - 1.0);
        Some(Duration::try_from_secs_f64(plain * swing).unwrap_or(self.cap).min(self.cap))
    }
}
