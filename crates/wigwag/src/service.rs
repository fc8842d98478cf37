//! Background services. All have one shape: `run` loops, `*_once` does one pass and is called by tests.

pub(crate) mod retention;
pub(crate) mod sweeper;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::engine_core::{EngineCore, Stop};

/// Starts the services that the settings enable.
pub(crate) fn start(inner: &Arc<EngineCore>) -> Vec<JoinHandle<()>> {
    let mut tasks = Vec::new();
    if let Some(every) = inner.settings.sweep_every {
        tasks.push(tokio::spawn(sweeper::run(Arc::clone(inner), every)));
    }
    if let Some(keep) = inner.settings.keep {
        tasks.push(tokio::spawn(retention::run(Arc::clone(inner), keep)));
    }
    tasks
}

/// Waits for the next pass, with jitter so that many engines do not run at the same time; `false` when
/// the engine stops.
async fn tick(inner: &EngineCore, every: Duration) -> bool {
    let mut stopping = inner.turns.stopping.subscribe();
    let span = every.mul_f64(0.75 + fastrand::f64() / 2.0);
    tokio::select! {
        biased;
        _ = stopping.wait_for(|stop| *stop != Stop::No) => false,
        () = inner.clock.sleep(span) => true,
    }
}
