//! Waiting clients: long-polls and followers, the memory of each, and a check that all are answered.

use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;
use wigwag_store::{Clock as _, System};

use super::process::{Memory, raise_files, rest};
use super::side::Side;
use super::wire::{Answer, Connection};
use super::{Result, parked};

/// Number of long-polls, each for a different run.
const POLLS: u64 = 10_000;

/// Number of followed runs, and of followers of each.
const FOLLOWED: u64 = 100;
const FOLLOWERS: usize = 10;

/// Number of signals in one request.
const AT_ONCE: usize = 500;

/// Timeout until all connections are held.
const HELD_MAX: Duration = Duration::from_secs(45);

/// Open files for other purposes.
const SPARE_FILES: u64 = 500;

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Held {
    pub(crate) connections: usize,
    /// Memory of the server before the connections, when idle, and with all of them.
    pub(crate) before: Memory,
    pub(crate) with: Memory,
    /// Memory of each connection.
    pub(crate) kb_each: f64,
    /// Seconds from the first signal until all clients were answered.
    pub(crate) answered_s: f64,
}

/// Measures ten thousand long-polls for waiting runs, which are then signalled.
pub(crate) async fn polls(side: &Side) -> Result<Held> {
    let keys = parked::start(side, POLLS).await?;
    let paths = keys.iter().map(|key| format!("/v1/runs/p-{key}/result?timeout=55s")).collect();
    let is_answered = |answer: &Answer| answer.status == 200 && answer.body == b"42";
    hold(side, &keys, paths, true, is_answered).await
}

/// Measures a thousand followers of a hundred waiting runs, which are then signalled.
pub(crate) async fn followers(side: &Side) -> Result<Held> {
    let keys = parked::start(side, FOLLOWED).await?;
    let paths = keys.iter().flat_map(|key| vec![format!("/v1/runs/p-{key}/events"); FOLLOWERS]).collect();
    let is_answered = |answer: &Answer| {
        let text = answer.text();
        let once = |event: &str| text.matches(event).count() == 1;
        once("event: run.started\n") && once("event: run.completed\n") && once("event: end\n")
    };
    hold(side, &keys, paths, false, is_answered).await
}

/// `silent`: the response begins only after the awaited event, so that the server counts the request as in progress.
#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
async fn hold(
    side: &Side,
    keys: &[u64],
    paths: Vec<String>,
    silent: bool,
    is_answered: fn(&Answer) -> bool,
) -> Result<Held> {
    let (files, connections) = (raise_files()?, paths.len());
    if files < connections as u64 + SPARE_FILES {
        return Err(format!("{connections} connections want more than {files} open files: raise `ulimit -Hn`").into());
    }
    rest(&side.processes()).await?;
    let before = side.server.memory()?;
    let mut waiting = JoinSet::new();
    for path in paths {
        let mut on = Connection::open(side.target.addr).await?;
        on.send("GET", &path, "").await?;
        waiting.spawn(async move {
            loop {
                let answer = on.receive().await?;
                // A long-poll may time out before its run ends, and is then repeated.
                match answer.text().contains(r#""code":"timed_out""#) {
                    true => on.send("GET", &path, "").await?,
                    false => return Result::Ok(answer),
                }
            }
        });
    }
    match silent {
        true => until_held(side, connections).await?,
        false => rest(&side.processes()).await?,
    }
    let with = side.server.memory()?;
    let began = Instant::now();
    signal_all(side, keys).await?;
    while let Some(answer) = waiting.join_next().await {
        let answer = answer??;
        if !is_answered(&answer) {
            return Err(format!("not the answer that was waited for: {}: {}", answer.status, answer.text()).into());
        }
    }
    let kb_each = (with.resident_mb - before.resident_mb) * 1e3 / connections as f64;
    Ok(Held { connections, before, with, kb_each, answered_s: began.elapsed().as_secs_f64() })
}

/// Waits until the server reports that it serves all of them.
#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
async fn until_held(side: &Side, connections: usize) -> Result<()> {
    let (mut on, end) = (Connection::open(side.target.addr).await?, Instant::now() + HELD_MAX);
    loop {
        let text = on.get("/metrics").await?.text();
        let line = text.lines().find_map(|line| line.strip_prefix("wigwag_http_requests_under_way "));
        let held: f64 = line.ok_or("the server reports no requests in progress")?.parse()?;
        // One of the requests is this one.
        if held > connections as f64 {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(format!("of {connections} connections {held} are held after {HELD_MAX:?}").into());
        }
        System.sleep(Duration::from_millis(50)).await;
    }
}

async fn signal_all(side: &Side, keys: &[u64]) -> Result<()> {
    let mut on = Connection::open(side.target.addr).await?;
    for some in keys.chunks(AT_ONCE) {
        let signals = some.iter().map(|key| format!(r#"{{"run":"p-{key}","name":"go","payload":42}}"#));
        let body = format!(r#"{{"signals":[{}]}}"#, signals.collect::<Vec<_>>().join(","));
        on.post("/v1/signals", &body).await?.expect(200)?;
    }
    Ok(())
}
