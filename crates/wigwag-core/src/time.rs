//! Moments and spans: arithmetic and text, no clock.
//!
//! Holds: text order is time order, because the text has a fixed width.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Refusal;

/// A moment by the store's clock, in microseconds since 1970 (UTC).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The last moment that has a text.
    pub const MAX: Self = Self(253_402_207_200_000_000);

    /// Makes a moment from microseconds since 1970, held at [`Time::MAX`].
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 { Self::MAX } else { Self(micros) }
    }

    /// Microseconds since 1970.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// The moment `span` later, held at [`Time::MAX`].
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self::from_micros(self.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }

    /// The moment `span` earlier, not before 1970.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The next full second at or after this moment.
    #[must_use]
    pub const fn next_second(self) -> Self {
        Self::from_micros(self.0.div_ceil(1_000_000) * 1_000_000)
    }

    /// The day it falls on, as `2026-01-28`.
    #[must_use]
    pub fn day(self) -> String {
        self.to_string().chars().take(10).collect()
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = i64::try_from(self.0).ok().and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
        write!(f, "{:.6}", at.expect("a time is held below the year 10000"))
    }
}

impl FromStr for Time {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let parsed = text.parse::<jiff::Timestamp>().ok();
        let time = parsed.and_then(|at| u64::try_from(at.as_microsecond()).ok()).map(Self::from_micros);
        // One moment has one text: anything else would sort wrongly as a key.
        time.filter(|time| time.to_string() == text).ok_or_else(|| {
            Refusal::new(format!("not a time (want `2026-01-28T12:00:00.000000Z`): `{}`", text.escape_debug()))
        })
    }
}

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A span as whole microseconds, for fields marked `#[serde(with = "span")]`.
pub(crate) mod span {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        u64::try_from(span.as_micros()).unwrap_or(u64::MAX).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_micros)
    }
}
