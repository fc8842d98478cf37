//! The same load on the engine and on the raw store, alternating.

use std::future::Future;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;
use wigwag_store::{Embedded, Store as _, Usage};

use super::record::{Script, new_id};
use crate::measure::{Load, RunFigures, Span};

pub(crate) const ROUNDS: usize = 3;

/// Number of concurrent clients, where many are needed.
pub(crate) const MANY: usize = 64;

/// Warm-up before each measurement, so that caches are filled and threads are started.
pub(crate) const WARM: Duration = Duration::from_millis(300);

/// The engine and the raw store with the same number of clients and the same writes.
#[derive(Debug, Serialize)]
pub(crate) struct Pair {
    pub(crate) clients: usize,
    pub(crate) engine: RunFigures,
    pub(crate) bare: RunFigures,
    /// Runs per second of the engine as a share of the raw store's.
    pub(crate) share: f64,
    /// CPU per run of the engine as a multiple of the raw store's.
    pub(crate) cpu: f64,
    /// p50 of the engine as a multiple of the raw store's.
    pub(crate) p50: f64,
    /// The same three ratios for each round, to show the noise.
    pub(crate) rounds: Vec<Ratios>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Ratios {
    pub(crate) share: f64,
    pub(crate) cpu: f64,
    pub(crate) p50: f64,
}

impl Ratios {
    pub(crate) fn new(engine: &RunFigures, bare: &RunFigures) -> Self {
        Self {
            share: engine.runs_per_s / bare.runs_per_s,
            cpu: engine.cpu_us_per_run / bare.cpu_us_per_run,
            p50: engine.p50_ms / bare.p50_ms,
        }
    }
}

/// Results of both, by round.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    engine: Load,
    bare: Load,
    rounds: Vec<Ratios>,
}

impl Turns {
    pub(crate) fn add(&mut self, mut engine: Load, mut bare: Load) {
        self.rounds.push(Ratios::new(&engine.runs(), &bare.runs()));
        self.engine.add(engine);
        self.bare.add(bare);
    }

    pub(crate) fn pair(mut self, clients: usize) -> Pair {
        let (engine, bare) = (self.engine.runs(), self.bare.runs());
        let Ratios { share, cpu, p50 } = Ratios::new(&engine, &bare);
        Pair { clients, engine, bare, share, cpu, p50, rounds: self.rounds }
    }
}

/// Store requests for each run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Asked {
    pub(crate) gets: f64,
    pub(crate) lists: f64,
    pub(crate) puts: f64,
    pub(crate) deletes: f64,
}

impl Asked {
    /// Adds requests, divided by the number of runs.
    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
    pub(crate) fn add(&mut self, usage: &Usage, runs: usize) {
        let runs = runs as f64;
        self.gets += usage.gets as f64 / runs;
        self.lists += usage.lists as f64 / runs;
        self.puts += usage.puts as f64 / runs;
        self.deletes += usage.deletes as f64 / runs;
    }
}

/// Runs this number of writers, which repeat the commits of a run for a while.
pub(crate) async fn bare_load(
    path: &Path,
    clients: usize,
    span: Duration,
    script: &Arc<Script>,
) -> Result<Load, wigwag_store::Error> {
    let (store, script) = (Embedded::open(path)?, Arc::clone(script));
    let once = move || {
        let (store, script) = (store.clone(), Arc::clone(&script));
        async move { commit(&store, &script, 0..script.commits(), new_id().as_str()).await }
    };
    load(clients, WARM, once.clone()).await;
    Ok(load(clients, span, once).await)
}

/// Commits these batches in sequence for a run with this id.
pub(crate) async fn commit(store: &Embedded, script: &Script, places: Range<usize>, id: &str) {
    for place in places {
        let written = store.write(script.batch(place, id)).await;
        drop(written.expect("the benchmark's keys are new and its disk has room"));
    }
}

/// Runs this number of clients, which repeat an operation for a while.
pub(crate) async fn load<F, Fut>(clients: usize, span: Duration, once: F) -> Load
where
    F: Fn() -> Fut + Clone + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let end = Instant::now() + span;
    repeat(clients, move || (Instant::now() < end).then_some(()), move |()| once()).await
}

/// Runs an operation once for each item, with this number of clients.
pub(crate) async fn to_each<F, Fut>(clients: usize, count: usize, once: F) -> Load
where
    F: Fn(usize) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let taken = Arc::new(AtomicUsize::new(0));
    let next = move || Some(taken.fetch_add(1, Ordering::Relaxed)).filter(|place| *place < count);
    repeat(clients, next, once).await
}

async fn repeat<T, N, F, Fut>(clients: usize, next: N, once: F) -> Load
where
    T: Send + 'static,
    N: Fn() -> Option<T> + Clone + Send + 'static,
    F: Fn(T) -> Fut + Clone + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let measured = Span::begin();
    let mut tasks = JoinSet::new();
    for _ in 0..clients {
        let (next, once) = (next.clone(), once.clone());
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while let Some(what) = next() {
                let began = Instant::now();
                once(what).await;
                latencies.push(began.elapsed());
            }
            latencies
        });
    }
    let mut latencies = Vec::new();
    while let Some(done) = tasks.join_next().await {
        latencies.extend(done.expect("a client does not panic"));
    }
    measured.end(latencies, 0)
}
