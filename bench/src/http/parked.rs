//! Ten thousand runs parked on a signal: the memory of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde::Serialize;
use tokio::task::JoinSet;

use super::process::{Memory, rest};
use super::side::Side;
use super::wire::Connection;
use super::{CLIENTS, Result};

/// Number of parked runs.
const RUNS: u64 = 10_000;

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Parked {
    pub(crate) runs: u64,
    pub(crate) start_s: f64,
    /// Memory of the idle server before.
    pub(crate) idle: Memory,
    /// Memory of the server with all of them, idle again.
    pub(crate) server: Memory,
    /// Memory of the process with users' code, if that is separate.
    pub(crate) handlers: Option<Memory>,
}

/// Parks runs on a fresh server, and counts them there.
pub(crate) async fn measure(side: &Side) -> Result<Parked> {
    rest(&side.processes()).await?;
    let idle = side.server.memory()?;
    let began = Instant::now();
    start(side, RUNS).await?;
    let start_s = began.elapsed().as_secs_f64();
    rest(&side.processes()).await?;
    let server = side.server.memory()?;
    let handlers = side.handlers.as_ref().map(|process| process.memory()).transpose()?;
    // Counted after the memory is read, because counting needs memory too.
    let parked = side.target.parked().await?;
    match parked == RUNS {
        true => Ok(Parked { runs: RUNS, start_s, idle, server, handlers }),
        false => Err(format!("{RUNS} runs were to be parked, and {parked} are").into()),
    }
}

/// Starts this number of waiting runs. Returns their keys.
pub(crate) async fn start(side: &Side, runs: u64) -> Result<Vec<u64>> {
    let taken = Arc::new(AtomicU64::new(0));
    let mut starters = JoinSet::new();
    for _ in 0..CLIENTS {
        let (target, taken) = (Arc::clone(&side.target), Arc::clone(&taken));
        starters.spawn(async move {
            let (mut on, mut keys) = (Connection::open(target.addr).await?, Vec::new());
            while taken.fetch_add(1, Ordering::Relaxed) < runs {
                keys.push(target.park(&mut on).await?);
            }
            Result::Ok(keys)
        });
    }
    let mut all = Vec::new();
    while let Some(keys) = starters.join_next().await {
        all.extend(keys??);
    }
    Ok(all)
}
