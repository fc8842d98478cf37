//! The same load on each side, and what it cost whom.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;

use super::Result;
use super::side::{Side, Work, Worker};
use crate::measure::{Load, Span};

/// Before each measurement, so that caches, connections and threads are there.
const WARM: Duration = Duration::from_millis(500);

/// What one load did, and what each process used for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cost {
    /// The time and CPU are those of this process, the clients.
    clients: Load,
    server: Duration,
    handlers: Duration,
}

/// The same in figures. A latency of a signal is from sending it to the result being there.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Figures {
    pub(crate) runs: usize,
    pub(crate) runs_per_s: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) server_cpu_us: f64,
    pub(crate) handlers_cpu_us: f64,
    pub(crate) client_cpu_us: f64,
}

impl Cost {
    pub(crate) fn add(&mut self, other: Self) {
        self.clients.add(other.clients);
        self.server += other.server;
        self.handlers += other.handlers;
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
    pub(crate) fn figures(&mut self) -> Figures {
        let (all, runs) = (self.clients.runs(), self.clients.latencies.len());
        let per_run = |used: Duration| used.as_secs_f64() * 1e6 / runs as f64;
        Figures {
            runs,
            runs_per_s: all.runs_per_s,
            p50_ms: all.p50_ms,
            p99_ms: all.p99_ms,
            server_cpu_us: per_run(self.server),
            handlers_cpu_us: per_run(self.handlers),
            client_cpu_us: all.cpu_us_per_run,
        }
    }
}

/// Lets that many clients work for a while.
pub(crate) async fn load(side: &Side, work: Work, clients: usize, span: Duration) -> Result<Cost> {
    let mut workers = Vec::new();
    for _ in 0..clients {
        workers.push(Worker::new(Arc::clone(&side.target)).await?);
    }
    let (workers, _) = all(workers, work, WARM).await?;
    let used = |process: Option<&super::process::Process>| process.map_or(Ok(Duration::ZERO), |process| process.cpu());
    let (server, handlers) = (side.server.cpu()?, used(side.handlers.as_ref())?);
    let measured = Span::begin();
    let (_, latencies) = all(workers, work, span).await?;
    let clients = measured.end(latencies, 0);
    let (server, handlers) = (side.server.cpu()? - server, used(side.handlers.as_ref())? - handlers);
    Ok(Cost { clients, server, handlers })
}

/// All work until the time is over, and finish what they have begun.
async fn all(workers: Vec<Worker>, work: Work, span: Duration) -> Result<(Vec<Worker>, Vec<Duration>)> {
    let end = Instant::now() + span;
    let mut tasks = JoinSet::new();
    for mut worker in workers {
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while Instant::now() < end {
                latencies.push(worker.work(work).await?);
            }
            Result::Ok((worker, latencies))
        });
    }
    let (mut workers, mut all) = (Vec::new(), Vec::new());
    while let Some(done) = tasks.join_next().await {
        let (worker, latencies) = done??;
        workers.push(worker);
        all.extend(latencies);
    }
    Ok((workers, all))
}
