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

    /// Duration since `earlier`; zero if it is not later.
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
    /// Written by hand, because every entry, key and point of a run holds several.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, micros) = (self.0 / DAY_MICROS, self.0 % DAY_MICROS);
        let (year, month, day) = civil(days);
        let seconds = micros / 1_000_000;
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        digits(&mut text[0..4], year);
        digits(&mut text[5..7], month);
        digits(&mut text[8..10], day);
        digits(&mut text[11..13], seconds / 3_600);
        digits(&mut text[14..16], seconds / 60 % 60);
        digits(&mut text[17..19], seconds % 60);
        digits(&mut text[20..26], micros % 1_000_000);
        f.pad(std::str::from_utf8(&text).expect("digits are ASCII"))
    }
}

const DAY_MICROS: u64 = 86_400_000_000;

fn digits(place: &mut [u8], mut number: u64) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// The date of a day since 1970 in the Gregorian calendar: years are counted from March, so that a leap day comes last.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

impl FromStr for Time {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        let parsed = text.parse::<jiff::Timestamp>().ok();
        let time = parsed.and_then(|at| u64::try_from(at.as_microsecond()).ok()).map(Self::from_micros);
        // Each moment has exactly one text: other spellings would sort wrongly as a key.
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_is_that_of_the_calendar(micros in 0..=Time::MAX.micros()) {
            let calendar = jiff::Timestamp::from_microsecond(i64::try_from(micros).unwrap()).unwrap();
            prop_assert_eq!(Time::from_micros(micros).to_string(), format!("{calendar:.6}"));
        }
    }

    #[test]
    fn every_day_up_to_the_last_is_that_of_the_calendar() {
        for day in 0..=Time::MAX.micros() / DAY_MICROS {
            let micros = day * DAY_MICROS;
            let calendar = jiff::Timestamp::from_microsecond(i64::try_from(micros).unwrap()).unwrap();
            assert_eq!(Time::from_micros(micros).to_string(), format!("{calendar:.6}"));
        }
    }
}
