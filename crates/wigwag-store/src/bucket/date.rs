//! The bucket's time, derived from the `Date` of its responses, without extra requests.
//!
//! An answer asked for at `a` and received at `b` (by a local clock that never steps), dated `D`, says that the
//! offset from local to store time is in (D − b, D + 1 s − a): the date was written between `a` and `b`, and is
//! cut to the second. Every answer gives such an interval, and the truth is in all of them, so their
//! intersection narrows, to about a round trip once answers fall near the turn of a second.
//!
//! The interval is widened as it ages, because local clocks drift. When a new one does not meet it (front ends
//! disagree) the newest stands alone.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::{Clock, Now, Stamp};

/// Maximum drift of a local clock, in parts per million.
const DRIFT_PPM: i64 = 50;
/// Maximum difference between front ends of one store that are believed together.
const SLACK_MICROS: i64 = 20_000;
const SECOND_MICROS: i64 = 1_000_000;

#[derive(Debug)]
pub(super) struct DateClock {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    offset: Option<Offset>,
    last: Stamp,
}

/// Bounds, in microseconds, of (store time − local time), as of a local moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offset {
    low: i64,
    high: i64,
    at: i64,
}

impl DateClock {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::default() }
    }

    pub(super) fn boot(&self) -> Duration {
        self.clock.boot()
    }

    /// Adds the interval of one response.
    pub(super) fn observe(&self, asked: Duration, answered: Duration, date: &str) {
        let Some(date) =
            httpdate::parse_http_date(date).ok().and_then(|date| date.duration_since(std::time::UNIX_EPOCH).ok())
        else {
            return;
        };
        let (asked, answered, date) = (micros(asked), micros(answered), micros(date));
        let seen = Offset { low: date - answered, high: date + SECOND_MICROS - asked, at: answered };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.offset = Some(state.offset.map_or(seen, |known| known.narrowed(seen)));
    }

    /// The estimate, if there was a response; never less than an earlier one.
    pub(super) fn now(&self) -> Option<Now> {
        let local = micros(self.clock.boot());
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = state.offset?.aged(local);
        let middle = local + offset.low.midpoint(offset.high);
        let at = Stamp::from_micros(u64::try_from(middle).unwrap_or_default()).max(state.last.next());
        state.last = at;
        // The estimate may be held above the middle, so as not to go back; the far end is then further away.
        let told = at.micros().cast_signed();
        let uncertainty = (told - (local + offset.low)).max(local + offset.high - told);
        let uncertainty = Duration::from_micros(uncertainty.unsigned_abs());
        Some(Now { at, uncertainty })
    }
}

impl Offset {
    /// The same bounds after some time.
    fn aged(self, now: i64) -> Self {
        let widen = (now - self.at).max(0) * DRIFT_PPM / SECOND_MICROS + SLACK_MICROS;
        Self { low: self.low - widen, high: self.high + widen, at: self.at.max(now) }
    }

    fn narrowed(self, seen: Self) -> Self {
        let known = self.aged_by_drift(seen.at);
        let (low, high) = (known.low.max(seen.low), known.high.min(seen.high));
        if low <= high {
            return Self { low, high, at: known.at };
        }
        // Within the slack the two still agree: take where they are nearest.
        if low - high <= SLACK_MICROS { Self { low: high, high: low, at: known.at } } else { seen }
    }

    /// Adds drift only: the slack is added once, when the time is read, and not again with every response.
    fn aged_by_drift(self, now: i64) -> Self {
        let widen = (now - self.at).max(0) * DRIFT_PPM / SECOND_MICROS;
        Self { low: self.low - widen, high: self.high + widen, at: self.at.max(now) }
    }
}

fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI64, Ordering};

    #[derive(Debug, Default)]
    struct Local(AtomicI64);

    #[async_trait::async_trait]
    impl Clock for Local {
        fn wall(&self) -> Stamp {
            Stamp::default()
        }
        fn boot(&self) -> Duration {
            Duration::from_micros(self.0.load(Ordering::Relaxed).unsigned_abs())
        }
        async fn sleep(&self, _: Duration) {}
    }

    /// A server whose clock is `offset` ahead of the local one, asked every `step` with that round trip.
    fn ask(clock: &DateClock, local: &Local, offset: i64, step: i64, trip: i64, times: i64) {
        for _ in 0..times {
            let asked = local.0.fetch_add(trip, Ordering::Relaxed);
            let written = Duration::from_micros((asked + trip / 2 + offset).unsigned_abs());
            let date = httpdate::fmt_http_date(std::time::UNIX_EPOCH + written);
            clock.observe(Duration::from_micros(asked.unsigned_abs()), clock.boot(), &date);
            local.0.fetch_add(step, Ordering::Relaxed);
        }
    }

    fn error_of(clock: &DateClock, local: &Local, offset: i64) -> (i64, i64) {
        let now = clock.now().unwrap();
        let truth = local.0.load(Ordering::Relaxed) + offset;
        (now.at.micros().cast_signed() - truth, micros(now.uncertainty))
    }

    const OFFSET: i64 = 1_700_000_000_123_456;

    #[test]
    fn one_answer_tells_the_time_to_half_a_second_and_a_trip() {
        let local = Arc::new(Local::default());
        let clock = DateClock::new(Arc::clone(&local) as Arc<dyn Clock>);
        assert_eq!(clock.now(), None);
        ask(&clock, &local, OFFSET, 0, 10_000, 1);
        let (error, uncertainty) = error_of(&clock, &local, OFFSET);
        assert!(error.abs() <= uncertainty, "{error} {uncertainty}");
        assert!((505_000..=530_000).contains(&uncertainty), "{uncertainty}");
    }

    #[test]
    fn many_answers_narrow_it_and_the_truth_stays_inside() {
        let local = Arc::new(Local::default());
        let clock = DateClock::new(Arc::clone(&local) as Arc<dyn Clock>);
        ask(&clock, &local, OFFSET, 97_000, 10_000, 200);
        let (error, uncertainty) = error_of(&clock, &local, OFFSET);
        assert!(error.abs() <= uncertainty, "{error} {uncertainty}");
        assert!(uncertainty < 40_000, "{uncertainty}");
    }

    #[test]
    fn doubt_grows_with_silence() {
        let local = Arc::new(Local::default());
        let clock = DateClock::new(Arc::clone(&local) as Arc<dyn Clock>);
        ask(&clock, &local, OFFSET, 97_000, 10_000, 200);
        let (_, before) = error_of(&clock, &local, OFFSET);
        local.0.fetch_add(3_600 * SECOND_MICROS, Ordering::Relaxed);
        let (error, after) = error_of(&clock, &local, OFFSET);
        assert!(error.abs() <= after);
        assert!((170_000..=190_000).contains(&(after - before)), "50 ppm of an hour is 180 ms: {}", after - before);
    }

    #[test]
    fn a_server_that_disagrees_starts_it_over_and_time_does_not_go_back() {
        let local = Arc::new(Local::default());
        let clock = DateClock::new(Arc::clone(&local) as Arc<dyn Clock>);
        ask(&clock, &local, OFFSET, 97_000, 10_000, 50);
        let before = clock.now().unwrap().at;
        ask(&clock, &local, OFFSET - 60 * SECOND_MICROS, 0, 10_000, 1);
        let (error, uncertainty) = error_of(&clock, &local, OFFSET - 60 * SECOND_MICROS);
        assert!(clock.now().unwrap().at > before, "never back");
        assert!(error.abs() <= uncertainty && uncertainty > 59_000_000, "and honest about it: {error} {uncertainty}");
    }

    #[test]
    fn the_true_time_is_in_the_interval_even_after_an_imprecise_estimate() {
        for phase in 0..10 {
            let local = Arc::new(Local::default());
            let clock = DateClock::new(Arc::clone(&local) as Arc<dyn Clock>);
            let offset = OFFSET + phase * 100_000;
            for _ in 0..100 {
                ask(&clock, &local, offset, 37_000, 10_000, 1);
                let (error, uncertainty) = error_of(&clock, &local, offset);
                assert!(error.abs() <= uncertainty, "{error} {uncertainty}");
            }
        }
    }
}
