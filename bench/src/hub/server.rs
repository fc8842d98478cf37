//! The measured hub: a server as `wigwag serve` runs it, without a rate limit.

use std::io::Read as _;
use std::path::Path;

use tokio::signal::unix::{SignalKind, signal};
use wigwag::Engine;
use wigwag_server::{Server, Settings};

use crate::http::Result;
use crate::http::process::raise_files;

/// Room for ten thousand idle connections, and a few more.
const CONNECTIONS_MAX: usize = 15_000;

/// Serves until it is asked to end, or until the parent process has ended.
pub(crate) fn run(dir: &Path) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve(dir));
    // Does not wait for the thread that reads the input, which may never end.
    runtime.shutdown_background();
    served
}

async fn serve(dir: &Path) -> Result<()> {
    raise_files()?;
    let engine = Engine::open(&dir.to_string_lossy())?.start().await?;
    let mut settings = Settings::default();
    settings.connections_max = CONNECTIONS_MAX;
    // Same as `--hub-rate off`: the benchmark sends as fast as it can.
    settings.hub.rate = None;
    let server = Server::builder(engine.client()).bind(([127, 0, 0, 1], 0).into()).settings(settings).start().await?;
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
