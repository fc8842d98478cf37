//! The measured server: a separate process with HTTP, the engine and the workflows, on the embedded store.

use std::io::Read as _;
use std::path::Path;

use tokio::signal::unix::{SignalKind, signal};
use wigwag::Engine;
use wigwag_server::{Metrics, Server, Settings};

use super::Result;
use super::process::raise_files;
use crate::engine::workloads;

/// Room for ten thousand waiting connections, and for the connections that send signals.
const CONNECTIONS_MAX: usize = 15_000;

/// Serves until it is asked to end, or until the parent process has ended.
pub(crate) fn run(dir: &Path, metrics: bool) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve(dir, metrics));
    // Does not wait for the thread that reads the input, which may never end.
    runtime.shutdown_background();
    served
}

async fn serve(dir: &Path, metrics: bool) -> Result<()> {
    raise_files()?;
    let engine = workloads(Engine::open(&dir.to_string_lossy())?).start().await?;
    let mut settings = Settings::default();
    settings.connections_max = CONNECTIONS_MAX;
    let mut server = Server::builder(engine.client()).bind(([127, 0, 0, 1], 0).into()).settings(settings);
    if metrics {
        server = server.metrics(Metrics::install()?);
    }
    let server = server.start().await?;
    println!("listening {}", server.addr());
    let mut told = signal(SignalKind::terminate())?;
    let orphaned = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    tokio::select! {
        _ = told.recv() => {}
        _ = orphaned => {}
    }
    server.stop().await;
    engine.stop().await;
    Ok(())
}
