//! A record of what users' code did, kept outside of the system.

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

/// What was noted.
#[derive(Debug, Default)]
pub struct Noted {
    /// How often the code of each step began, by run and step.
    pub begun: BTreeMap<(String, String), u32>,
    /// How often `on_receive` was called, by run, step and signal.
    pub received: BTreeMap<(String, String, String), u32>,
    /// How often the compensation of each step began, by run and step.
    pub undone: BTreeMap<(String, String), u32>,
    /// What must not have happened.
    pub wrong: Vec<Breach>,
}

impl Ledger {
    /// An empty record that asks the watch what is in the logs.
    #[must_use]
    pub fn new(watch: Watch) -> Self {
        Self { watch, state: Arc::default() }
    }

    /// What was noted.
    pub fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Code of a step begins. Its result must not be recorded by then.
    pub fn begin(&self, run: &str, step: &str) {
        *self.noted().begun.entry((run.to_owned(), step.to_owned())).or_default() += 1;
        self.is_new(run, step);
    }

    /// Code of a step begins in a task of its own, which other workers may run too.
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

    /// Calls of a step's compensation, this one included.
    pub fn undo(&self, run: &str, step: &str) -> u32 {
        let mut noted = self.noted();
        let count = noted.undone.entry((run.to_owned(), step.to_owned())).or_default();
        *count += 1;
        *count
    }

    /// Calls of `on_receive` for a signal, this one included. The run's data says which run it is.
    pub fn receive(&self, data: &Value, step: &str, payload: &Value) -> u32 {
        let run = data["id"].as_str().unwrap_or_default().to_owned();
        let signal = format!("{}/{}", payload["sender"], payload["number"]);
        let mut noted = self.noted();
        let count = noted.received.entry((run, step.to_owned(), signal)).or_default();
        *count += 1;
        *count
    }
}
