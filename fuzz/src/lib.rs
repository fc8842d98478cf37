//! Shared parts of the fuzz targets: the loop, choices drawn from bytes, and slightly damaged forms.
//!
//! A target is a function of bytes. A plain test run feeds it the files of its corpus and a fixed sequence of inputs;
//! `WIGWAG_FUZZ_SECONDS` adds this many seconds of random inputs. See `docs/internals/fuzzing.md`.

mod alarm;
mod choices;
mod exercise;
mod forms;
mod mutate;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

pub use alarm::without_panics;
pub use choices::Choices;
pub use exercise::{exercise, graph};
pub use forms::{Form, RUN, at, golden, of_form};
pub use mutate::{body, json, text};

/// Maximum length of an input: enough for some dozens of choices, short enough for a person to read.
pub const INPUT_BYTES_MAX: usize = 1_024;

/// Feeds a target, a function of `&[u8]`: its corpus, a fixed sequence of inputs, and then random inputs
/// for the configured time.
#[macro_export]
macro_rules! fuzz {
    ($iterations:expr, $target:expr) => {{
        let target = $target;
        $crate::repeat($iterations, &target);
        let target = $crate::Target::new(&target);
        bolero::check!()
            .with_iterations(if $crate::seconds().is_zero() { 0 } else { usize::MAX })
            .with_test_time(if $crate::seconds().is_zero() { std::time::Duration::MAX } else { $crate::seconds() })
            .with_max_len($crate::INPUT_BYTES_MAX)
            .for_each(|input: &[u8]| target.feed(input));
    }};
}

/// A fuzz target. A failure ends the test, so state that the target left half-changed is never observed.
pub struct Target<'a>(AssertUnwindSafe<&'a Fed<'a>>);

type Fed<'a> = dyn Fn(&[u8]) + 'a;

impl<'a> Target<'a> {
    /// Creates a target from a function.
    pub fn new(target: &'a Fed<'a>) -> Self {
        Self(AssertUnwindSafe(target))
    }

    /// Calls the target with one input.
    pub fn feed(&self, input: &[u8]) {
        (self.0)(input);
    }
}

impl std::fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Target")
    }
}

/// Returns the time for random inputs, from `WIGWAG_FUZZ_SECONDS`.
#[must_use]
pub fn seconds() -> Duration {
    let seconds = std::env::var("WIGWAG_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(0))
}

/// Feeds a target with a fixed sequence of inputs; `WIGWAG_FUZZ_ITERATIONS` multiplies their number.
///
/// A failing input is saved to a file, and the file's name is printed.
pub fn repeat(iterations: u64, target: &dyn Fn(&[u8])) {
    // Under `cargo bolero` only its engine chooses inputs; with a time limit, all of the time is for random inputs.
    if cfg!(fuzzing) || !seconds().is_zero() || std::env::var_os("CARGO_BOLERO_SELECT").is_some() {
        return;
    }
    let times = std::env::var("WIGWAG_FUZZ_ITERATIONS").ok().and_then(|text| text.parse().ok());
    for number in 0..iterations.saturating_mul(times.unwrap_or(1)) {
        let input = input(number);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(&input))) {
            keep(number, &input);
            resume_unwind(panic);
        }
    }
}

/// Returns the input with this number. Short inputs are as likely as long ones, because they
/// are easier to understand.
fn input(number: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(number);
    let length = random.usize(0..=16) << random.usize(0..=6);
    (0..length).map(|_| random.u8(..)).collect()
}

#[expect(clippy::print_stderr, reason = "a failed input is repeated from this output")]
fn keep(number: u64, input: &[u8]) {
    let file = std::env::temp_dir().join(format!("wigwag-fuzz-{}-{number}", std::process::id()));
    match std::fs::write(&file, input) {
        Ok(()) => eprintln!("input {number} failed; it is in `{}`", file.display()),
        Err(error) => eprintln!("input {number} failed: {input:?} ({error})"),
    }
}
