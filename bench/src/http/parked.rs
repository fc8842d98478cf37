//! Ten thousand runs parked on a signal: what the server holds for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde::Serialize;
use tokio::task::JoinSet;

use super::process::{Memory, rest};
use super::side::Side;
use super::wire::Connection;
use super::{CLIENTS, Result};

/// So many are parked.
const RUNS: u64 = 10_000;

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Parked {
    pub(crate) runs: u64,
    pub(crate) start_s: f64,
    /// Of the server before, at rest.
    pub(crate) idle: Memory,
    /// Of the server with all of them, at rest again.
    pub(crate) server: Memory,
    /// Of the process with users' code, if that is another one.
    pub(crate) handlers: Option<Memory>,
}

/// Parks them on a server that has done nothing else, and counts them there.
pub(crate) async fn measure(side: &Side) -> Result<Parked> {
    rest(&side.processes()).await?;
    let idle = side.server.memory()?;
    let began = Instant::now();
    start(side, RUNS).await?;
    let start_s = began.elapsed().as_secs_f64();
    rest(&side.processes()).await?;
    let server = side.server.memory()?;
    let handlers = side.handlers.as_ref().map(|process| process.memory()).transpose()?;
    // Counted afterwards: counting takes memory too.
    let parked = side.target.parked().await?;
    match parked == RUNS {
        true => Ok(Parked { runs: RUNS, start_s, idle, server, handlers }),
        false => Err(format!("{RUNS} runs were to be parked, and {parked} are").into()),
    }
}

/// Starts so many runs that wait; gives what they are called.
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
