//! Warnings of the engine, collected while a world is simulated: they are the only sign of a turn that is rejected
//! repeatedly for the same reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::clock::SimClock;

/// Warnings that name a run and an error, and when they were given. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct Warnings(Arc<Mutex<Vec<Warning>>>);

/// A warning of the engine.
#[derive(Clone, Debug)]
pub struct Warning {
    /// Simulated time of the warning.
    pub at: Duration,
    /// Id of the run.
    pub run: String,
    /// Text of the error in the warning.
    pub error: String,
}

impl Warnings {
    /// Returns a subscriber for this thread that adds to the list.
    #[must_use]
    pub fn subscriber(&self, clock: &SimClock) -> impl Subscriber + use<> {
        Collector { warnings: self.clone(), clock: clock.clone() }
    }

    /// Returns the errors that the same run met at least `times` times since then, with their numbers. The count of a run restarts
    /// at each time in `stopped`, when a failure paused it.
    #[must_use]
    pub fn repeated(
        &self,
        since: Duration,
        times: usize,
        stopped: &BTreeMap<String, Vec<Duration>>,
    ) -> Vec<(Warning, usize)> {
        let warnings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut seen: BTreeMap<(String, String, usize), (Warning, usize)> = BTreeMap::new();
        for warning in warnings.iter().filter(|warning| warning.at >= since) {
            // Numbers, such as that of an entry or its size, may differ between attempts.
            let shape = warning.error.chars().filter(|letter| !letter.is_ascii_digit()).collect();
            let run = warning.run.trim_start_matches("workflow/").to_owned();
            let stops = stopped.get(&run).map_or(0, |stops| stops.iter().filter(|at| **at < warning.at).count());
            seen.entry((run, shape, stops)).or_insert_with(|| (warning.clone(), 0)).1 += 1;
        }
        seen.into_values().filter(|(_, count)| *count >= times).collect()
    }
}

struct Collector {
    warnings: Warnings,
    clock: SimClock,
}

#[derive(Default)]
struct Fields {
    run: String,
    error: String,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "run" => _ = write!(self.run, "{value:?}"),
            "error" => _ = write!(self.error, "{value:?}"),
            _ => {}
        }
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= Level::WARN
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::WARN)
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let Fields { run, error } = fields;
        if !run.is_empty() && !error.is_empty() {
            let warning = Warning { at: self.clock.elapsed(), run, error };
            self.warnings.0.lock().unwrap_or_else(PoisonError::into_inner).push(warning);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
