//! The store's time as a number and as text.
//!
//! Holds: text order is time order, because the text has a fixed width.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Placeholder in the key of a put: the store replaces it by the time of the commit.
pub const STAMP: &str = "{stamp}";

/// A moment by the store's clock, in microseconds since 1970 (UTC).
///
/// ```
/// let stamp: wigwag_store::Stamp = "2026-01-28T12:00:00.000000Z".parse()?;
/// assert_eq!(stamp.to_string(), "2026-01-28T12:00:00.000000Z");
/// # Ok::<(), wigwag_store::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(u64);

impl Stamp {
    /// The last moment that has a text: a day before the year 10000, wherever on Earth that is.
    pub const MAX: Self = Self(253_402_207_200_000_000);

    /// Makes a stamp from microseconds since 1970, held at [`Stamp::MAX`].
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 { Self::MAX } else { Self(micros) }
    }

    /// Microseconds since 1970.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// The moment `span` later.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self::from_micros(self.0.saturating_add(micros(span)))
    }

    /// The moment `span` earlier, not before 1970.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(micros(span)))
    }

    /// Duration since `earlier`; zero if it is not later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    pub(crate) const fn next(self) -> Self {
        Self::from_micros(self.0 + 1)
    }
}

/// A span in whole microseconds, held at the largest that fits.
fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = i64::try_from(self.0).ok().and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
        write!(f, "{:.6}", at.expect("a stamp is held below the year 10000"))
    }
}

impl FromStr for Stamp {
    type Err = crate::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parsed = text.parse::<jiff::Timestamp>().ok();
        let stamp = parsed.and_then(|at| u64::try_from(at.as_microsecond()).ok()).map(Self::from_micros);
        // Each moment has exactly one text: other spellings would sort wrongly as a key.
        stamp.filter(|stamp| stamp.to_string() == text).ok_or_else(|| {
            crate::Error::invalid(format!("not a time (want `2026-01-28T12:00:00.000000Z`): `{}`", text.escape_debug()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_order_is_time_order(a in 0..=Stamp::MAX.0, b in 0..=Stamp::MAX.0) {
            let (a, b) = (Stamp(a), Stamp(b));
            prop_assert_eq!(a.cmp(&b), a.to_string().cmp(&b.to_string()));
        }

        #[test]
        fn text_reads_back(a in 0..=Stamp::MAX.0) {
            let stamp = Stamp(a);
            prop_assert_eq!(stamp.to_string().len(), 27);
            prop_assert_eq!(stamp.to_string().parse::<Stamp>().unwrap(), stamp);
        }
    }

    #[test]
    fn the_first_and_the_last_moment_have_a_text() {
        for stamp in [Stamp::default(), Stamp::MAX, Stamp::from_micros(u64::MAX), Stamp::MAX.after(Duration::MAX)] {
            assert_eq!(stamp.to_string().parse::<Stamp>().unwrap(), stamp);
        }
        assert_eq!(Stamp::MAX.to_string(), "9999-12-30T22:00:00.000000Z");
    }

    #[test]
    fn other_spellings_of_a_time_are_rejected() {
        for text in [
            "",
            "2026-01-28",
            "2026-01-28T12:00:00Z",
            "2026-01-28T12:00:00.000000+00:00",
            "1969-01-01T00:00:00.000000Z",
        ] {
            assert!(text.parse::<Stamp>().is_err(), "{text}");
        }
    }
}
