//! The workloads of the HTTP benchmark in this process: the same workflows on the same store, without a server.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use wigwag::{Builder, Client, Engine};

use super::WORKER_THREADS;
use super::load::WARM;
use super::signals::{self, GO, with_go};
use super::steps::{run_once, three};
use crate::measure::{Load, Span};

/// Work that a client repeats.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Starts a run of three steps and awaits its result.
    Three,
    /// Starts a run that waits, signals it and awaits its result. The start is not timed.
    Signal,
}

/// Registers the workflows of the HTTP benchmark.
pub(crate) fn workloads(builder: Builder) -> Builder {
    with_go(builder).function("three", 1, three)
}

/// Runs this number of clients for a while, on a separate engine.
pub(crate) fn load(dir: &Path, work: Work, clients: usize, span: Duration) -> Result<Load, wigwag::Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKER_THREADS).enable_all().build();
    let runtime = runtime.expect("there are threads to be had");
    let folder = tempfile::tempdir_in(dir).expect("the folder to measure in can be written");
    runtime.block_on(async {
        let engine = workloads(Engine::open(&folder.path().to_string_lossy())?).start().await?;
        all(&engine.client(), work, clients, WARM).await;
        let measured = Span::begin();
        let latencies = all(&engine.client(), work, clients, span).await;
        let load = measured.end(latencies, 0);
        engine.stop().await;
        Ok(load)
    })
}

async fn all(client: &Client, work: Work, clients: usize, span: Duration) -> Vec<Duration> {
    let (end, mut tasks) = (Instant::now() + span, JoinSet::new());
    for _ in 0..clients {
        let client = client.clone();
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while Instant::now() < end {
                latencies.push(once(&client, work).await);
            }
            latencies
        });
    }
    tasks.join_all().await.into_iter().flatten().collect()
}

async fn once(client: &Client, work: Work) -> Duration {
    match work {
        Work::Three => {
            let began = Instant::now();
            run_once(client, "three").await;
            began.elapsed()
        }
        Work::Signal => {
            let run = client.start(GO, &()).await.expect("the benchmark's store takes a run");
            let began = Instant::now();
            signals::signal(client, &run).await.expect("a run that is signalled completes");
            began.elapsed()
        }
    }
}
