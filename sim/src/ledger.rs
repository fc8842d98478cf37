//! A record of the calls of users' code, kept outside the engine.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use wigwag_core::RunRef;
use wigwag_core::audit::{Breach, Promise};

use crate::watch::Watch;

/// Calls of users' code. Clones are the same record.
#[derive(Clone, Debug)]
pub struct Ledger {
    watch: Watch,
    state: Arc<Mutex<Noted>>,
}

/// The recorded calls.
#[derive(Debug, Default)]
pub struct Noted {
    /// Number of starts of each step's code, by run and step.
    pub begun: BTreeMap<(String, String), u32>,
    /// Number of calls of `on_receive`, by run, step and signal.
    pub received: BTreeMap<(String, String, String), u32>,
    /// Number of starts of each step's compensation, by run and step.
    pub undone: BTreeMap<(String, String), u32>,
    /// Violations that were observed by users' code.
    pub wrong: Vec<Breach>,
}

impl Ledger {
    /// Creates an empty record that uses the watch to read the logs.
    #[must_use]
    pub fn new(watch: Watch) -> Self {
        Self { watch, state: Arc::default() }
    }

    /// The recorded calls.
    pub fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the code of a step starts. Its result must not be recorded yet.
    pub fn begin(&self, run: &str, step: &str) {
        *self.noted().begun.entry((run.to_owned(), step.to_owned())).or_default() += 1;
        self.is_new(run, step);
    }

    /// Records that the code of a step starts in a separate task, which other workers may run too.
    pub fn begin_elsewhere(&self, run: &str, step: &str) {
        self.is_new(run, step);
    }

    fn is_new(&self, run: &str, step: &str) {
        let Ok(of) = run.parse().map(RunRef::workflow) else { return };
        if self.watch.is_recorded(&of, step) {
            let what = format!("the code of `{step}` in `{run}` began although its result is recorded");
            self.noted().wrong.push(Breach::new(Promise::RecordedStays, what));
        }
    }

    /// Returns the number of calls of a step's compensation, including this one.
    pub fn undo(&self, run: &str, step: &str) -> u32 {
        let mut noted = self.noted();
        let count = noted.undone.entry((run.to_owned(), step.to_owned())).or_default();
        *count += 1;
        *count
    }

    /// Returns the number of calls of `on_receive` for a signal, including this one. The run's data contains its id.
    pub fn receive(&self, data: &Value, step: &str, payload: &Value) -> u32 {
        let run = data["id"].as_str().unwrap_or_default().to_owned();
        let signal = format!("{}/{}", payload["sender"], payload["number"]);
        let mut noted = self.noted();
        let count = noted.received.entry((run, step.to_owned(), signal)).or_default();
        *count += 1;
        *count
    }
}
