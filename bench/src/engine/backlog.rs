//! A backlog of signals for one run: how the time to consume it grows with its size.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;
use wigwag::{Client, Ctx, Engine, Failure, RunId};
use wigwag_store::Store as _;

use super::load::{MANY, to_each};

/// Name of the workflow and of its signal.
const COUNT: &str = "count";

/// Sizes of the backlogs, smallest first.
const SIZES: [u32; 3] = [1_000, 4_000, 10_000];

/// Each size is measured this often, alternating with the others; the best round counts.
const ROUNDS: usize = 3;

/// Time to consume one backlog, with the size of the snapshot at the end.
#[derive(Debug, Serialize)]
pub(crate) struct Backlog {
    pub(crate) signals: u32,
    /// From the start of the worker to the result of the run.
    pub(crate) seconds: f64,
    pub(crate) snapshot_bytes: usize,
}

/// Waits for the number of signals in its input, in sequence.
async fn count(ctx: Ctx, signals: u32) -> Result<u32, Failure> {
    for _ in 0..signals {
        ctx.wait::<u32>(COUNT).await?;
    }
    Ok(signals)
}

/// Measures the sizes alternately, so that a slow minute of the machine affects all of them.
pub(crate) async fn measure(folder: &Path) -> Result<Vec<Backlog>, Box<dyn std::error::Error>> {
    let mut best: Vec<Backlog> = Vec::new();
    for _ in 0..ROUNDS {
        for (place, signals) in SIZES.into_iter().enumerate() {
            let round = consume(folder, signals).await?;
            match best.get_mut(place) {
                Some(known) if known.seconds <= round.seconds => {}
                Some(known) => *known = round,
                None => best.push(round),
            }
        }
    }
    Ok(best)
}

/// Sends the backlog while no worker has the workflow, then starts a worker and waits for the result.
async fn consume(folder: &Path, signals: u32) -> Result<Backlog, Box<dyn std::error::Error>> {
    let place = tempfile::tempdir_in(folder)?;
    let url = place.path().to_string_lossy().into_owned();
    let sender = Engine::open(&url)?.start().await?;
    let run = sender.client().start(COUNT, &signals).await?;
    send_all(&sender.client(), run.id(), signals).await;
    sender.stop().await;
    let began = Instant::now();
    let worker = Engine::open(&url)?.function(COUNT, 1, count).start().await?;
    let run = worker.client().run(run.id())?;
    let consumed: u32 = run.result().await?;
    let seconds = began.elapsed().as_secs_f64();
    assert_eq!(consumed, signals, "every signal is consumed");
    worker.stop().await;
    let store = wigwag_store::Embedded::open(place.path())?;
    let snapshot = store.get(&format!("workflow/{}/state.json", run.id())).await?;
    let snapshot_bytes = snapshot.map_or(0, |object| object.body.len());
    Ok(Backlog { signals, seconds, snapshot_bytes })
}

async fn send_all(client: &Client, run: &RunId, signals: u32) {
    let (client, run) = (client.clone(), run.clone());
    let send = move |number: usize| {
        let call = client.signal(&run, COUNT, &number);
        async move { drop(call.await.expect("an unfinished run accepts a signal")) }
    };
    to_each(MANY, signals as usize, send).await;
}
