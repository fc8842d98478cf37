//! W4: a thousand concurrent durable sleeps of one second, and their delay.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use tokio::task::JoinSet;
use wigwag::{Ctx, Engine, Failure, RunHandle, Time};
use wigwag_core::Event;
use wigwag_store::{Clock as _, System};

use crate::measure::Spread;

const SLEEPS: usize = 1_000;

const NAP: Duration = Duration::from_secs(1);

#[derive(Debug, Serialize)]
pub(crate) struct Sleeps {
    sleeps: usize,
    /// Number of runs that were parked according to their logs.
    pub(crate) parked: usize,
    /// Number of parked runs when all had been started.
    pub(crate) seen_parked: usize,
    /// Time from the due time to the step after the sleep.
    pub(crate) overshoot: Spread,
}

/// Sleeps, and then returns the current time.
async fn nap(ctx: Ctx, (): ()) -> Result<u64, Failure> {
    ctx.sleep("nap", NAP).await?;
    ctx.step("awake", || async { Ok::<_, Failure>(System.wall().micros()) }).await
}

pub(crate) async fn measure(path: &Path) -> Result<Sleeps, wigwag::Error> {
    let engine = Engine::open(&path.to_string_lossy())?.function("nap", 1, nap).start().await?;
    let client = engine.client();
    let mut starts = JoinSet::new();
    for _ in 0..SLEEPS {
        let start = client.start("nap", &());
        starts.spawn(async move { start.await.expect("the benchmark's store takes a run") });
    }
    let runs = starts.join_all().await;
    let mut seen_parked = 0;
    for run in &runs {
        seen_parked += usize::from(run.get().await?.run().parked);
    }
    let (mut overshoots, mut parked) = (Vec::new(), 0);
    for run in &runs {
        let awake = Time::from_micros(run.result().await?);
        let (until, was_parked) = slept(run).await?;
        // Both times are from the machine's clock, which the store's time follows.
        overshoots.push(awake.since(until));
        parked += usize::from(was_parked);
    }
    engine.stop().await;
    Ok(Sleeps { sleeps: SLEEPS, parked, seen_parked, overshoot: Spread::of(&mut overshoots) })
}

/// Returns the due time of the sleep and whether the run parked, according to its log.
async fn slept(run: &RunHandle) -> Result<(Time, bool), wigwag::Error> {
    let (mut until, mut parked) = (Time::default(), false);
    for event in run.history(1, 100).await?.into_iter().flat_map(|entry| entry.events) {
        match event {
            Event::SleepStarted(sleep) => until = sleep.until,
            Event::RunParked(_) => parked = true,
            _ => {}
        }
    }
    Ok((until, parked))
}
