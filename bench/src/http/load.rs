//! The same load on each server, and its cost for each process.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;

use super::Result;
use super::side::{Side, Work, Worker};
use crate::measure::{Load, Span};

/// Warm-up before each measurement, so that caches, connections and threads exist.
const WARM: Duration = Duration::from_millis(500);

/// Results of one load, with the CPU time of each process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cost {
    /// Time and CPU of this process, which runs the clients.
    clients: Load,
    server: Duration,
    handlers: Duration,
}

/// The same as figures. The latency of a signal is the time from sending it to receiving the result.
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

/// Runs this number of clients for a while.
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

/// All clients work until the time is over, and finish their current work.
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
