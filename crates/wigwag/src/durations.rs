//! Durations in words: `days(2)` where the standard library counts seconds.

use std::time::Duration;

/// Returns a duration of this many seconds.
///
/// ```
/// use wigwag::{days, hours, mins, secs};
///
/// assert_eq!(mins(1), secs(60));
/// assert_eq!(hours(24), days(1));
/// ```
#[must_use]
pub const fn secs(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// Returns a duration of this many minutes.
#[must_use]
pub const fn mins(count: u64) -> Duration {
    secs(count.saturating_mul(60))
}

/// Returns a duration of this many hours.
#[must_use]
pub const fn hours(count: u64) -> Duration {
    mins(count.saturating_mul(60))
}

/// Returns a duration of this many days, of 24 hours each.
#[must_use]
pub const fn days(count: u64) -> Duration {
    hours(count.saturating_mul(24))
}
