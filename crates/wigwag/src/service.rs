//! Services that go on in the background. All have one shape: `run` loops, `*_once` does one pass and is what tests call.

pub(crate) mod retention;
pub(crate) mod sweeper;

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::inner::{Inner, Stop};

/// Starts those that the settings ask for.
pub(crate) fn start(inner: &Arc<Inner>) -> Vec<JoinHandle<()>> {
    let mut tasks = Vec::new();
    if let Some(every) = inner.settings.sweep_every {
        tasks.push(tokio::spawn(sweeper::run(Arc::clone(inner), every)));
    }
    if let Some(keep) = inner.settings.keep {
        tasks.push(tokio::spawn(retention::run(Arc::clone(inner), keep)));
    }
    tasks
}

/// Waits for the next pass, a little off so that many engines do not pass together; `false` when it is time to stop.
async fn tick(inner: &Inner, every: Duration) -> bool {
    let mut stopping = inner.stopping.subscribe();
    let span = every.mul_f64(0.75 + fastrand::f64() / 2.0);
    tokio::select! {
        biased;
        _ = stopping.wait_for(|stop| *stop != Stop::No) => false,
        () = inner.clock.sleep(span) => true,
    }
}
