//! Runs that sleep for a month, or wait for a signal: their memory and disk usage, and the time to wake one of them.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;
use wigwag::{Client, Ctx, Engine, Failure, RunId, Status};
use wigwag_store::{Clock as _, System};

use super::signals::{self, GO, with_go};
use crate::measure::{Span, Spread};

const STARTERS: usize = 256;

const FEW: u64 = 10_000;

const MANY: u64 = 1_000_000;

/// Approximate disk usage of a parked run; with few runs the store's log dominates.
const DISK_BYTES_PER_RUN: u64 = 4_000;

/// Time for a process to become idle.
const REST: Duration = Duration::from_secs(2);

/// The reason why runs are parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// A sleep; a run is woken by cancelling it.
    Sleep,
    /// A signal; a run is woken by sending it.
    Signal,
}

impl On {
    fn workflow(self) -> &'static str {
        match self {
            Self::Sleep => MONTH,
            Self::Signal => GO,
        }
    }

    /// Number of runs that are woken in sequence.
    fn wakes(self) -> u64 {
        match self {
            Self::Sleep => 50,
            Self::Signal => 200,
        }
    }
}

/// Figures for a number of parked runs.
#[derive(Debug, Serialize)]
pub(crate) struct Parked {
    pub(crate) runs: u64,
    /// Starts per second, until the last start was answered.
    pub(crate) starts_per_s: f64,
    /// Seconds from the first start until no run was in progress.
    pub(crate) all_parked_s: f64,
    pub(crate) cpu_us_per_run: f64,
    /// Absent if the process did other work before: memory left in the allocator would hide it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) memory_mb_above_idle: Option<f64>,
    pub(crate) disk_mb: f64,
    /// Number of parked runs in the sample.
    pub(crate) sample: usize,
    pub(crate) sample_parked: usize,
    /// Time from the call that wakes a run until its end is known.
    pub(crate) wake: Spread,
}

/// Figures for all sizes, with the idle process as baseline.
#[derive(Debug, Serialize)]
pub(crate) struct Crowd {
    /// Anonymous memory of the process with an idle engine.
    pub(crate) idle_mb: f64,
    pub(crate) sizes: Vec<Parked>,
}

const MONTH: &str = "month";

async fn month(ctx: Ctx, (): ()) -> Result<(), Failure> {
    ctx.sleep("month", Duration::from_secs(30 * 24 * 3_600)).await
}

/// `fresh`: this process has done no other work yet, so that its memory is meaningful.
pub(crate) async fn measure(path: &Path, on: On, long: bool, fresh: bool) -> Result<Crowd, Box<dyn std::error::Error>> {
    if long {
        check_room(path)?;
    }
    let engine = with_go(Engine::open(&path.to_string_lossy())?).function(MONTH, 1, month).start().await?;
    System.sleep(REST).await;
    let idle = anonymous_bytes()?;
    let above = fresh.then_some(idle);
    let mut sizes = vec![park(&engine, path, on, 0..FEW, above).await?];
    if long {
        sizes.push(park(&engine, path, on, FEW..MANY, above).await?);
    }
    engine.stop().await;
    // The next size needs the disk space. Files that are still being closed are removed with the whole folder.
    _ = std::fs::remove_dir_all(path);
    Ok(Crowd { idle_mb: mb(idle), sizes })
}

/// Prints the disk space that a million runs need, and fails unless a quarter more is free.
fn check_room(path: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let (bytes, free) = (MANY * DISK_BYTES_PER_RUN, free_bytes(path.parent().unwrap_or(path))?);
    let (bytes_gb, free_gb) = (mb(bytes) / 1e3, mb(free) / 1e3);
    println!("a million parked runs will take about {bytes_gb:.1} GB of disk; {free_gb:.1} GB are free");
    if bytes + bytes / 4 > free {
        return Err(format!("want a quarter more than {bytes_gb:.1} GB free for {}", path.display()).into());
    }
    Ok(())
}

/// Parks the missing runs, and wakes a few of them.
#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
async fn park(
    engine: &Engine,
    path: &Path,
    on: On,
    Range { start: there, end: wanted }: Range<u64>,
    idle: Option<u64>,
) -> Result<Parked, Box<dyn std::error::Error>> {
    let client = engine.client();
    let measured = Span::begin();
    let began = Instant::now();
    let ids = start(&client, on, wanted - there).await;
    let started = began.elapsed();
    while engine.active_runs() > 0 {
        System.sleep(Duration::from_millis(5)).await;
    }
    let load = measured.end(Vec::new(), wanted - there);
    System.sleep(REST).await;
    let memory = anonymous_bytes()?;
    let disk = disk_bytes(path)?;
    let mut sample_parked = 0;
    for id in &ids {
        let view = client.run(id)?.get().await?;
        sample_parked += usize::from(view.run().parked);
    }
    let new = (wanted - there) as f64;
    Ok(Parked {
        runs: wanted,
        starts_per_s: new / started.as_secs_f64(),
        all_parked_s: load.elapsed.as_secs_f64(),
        cpu_us_per_run: load.cpu.as_secs_f64() * 1e6 / new,
        memory_mb_above_idle: idle.map(|idle| mb(memory.saturating_sub(idle))),
        disk_mb: mb(disk),
        sample: ids.len(),
        sample_parked,
        wake: wake(&client, on, &ids).await?,
    })
}

/// Starts this number of runs. Returns the ids of some, evenly spread.
async fn start(client: &Client, on: On, count: u64) -> Vec<RunId> {
    let next = Arc::new(AtomicU64::new(0));
    let mut starters = JoinSet::new();
    for _ in 0..STARTERS {
        let (client, next) = (client.clone(), Arc::clone(&next));
        starters.spawn(async move {
            let mut ids = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return ids;
                }
                let run = client.start(on.workflow(), &()).await.expect("the benchmark's store takes a run");
                if number % (count / on.wakes()) == 0 {
                    ids.push(run.id().clone());
                }
            }
        });
    }
    starters.join_all().await.into_iter().flatten().collect()
}

/// Wakes some runs in sequence through a client.
async fn wake(client: &Client, on: On, ids: &[RunId]) -> Result<Spread, wigwag::Error> {
    let mut spans = Vec::new();
    for id in ids {
        let run = client.run(id)?;
        let began = Instant::now();
        match on {
            On::Sleep => {
                run.cancel().await?;
                assert_eq!(run.wait().await?.status(), Status::Cancelled, "run `{id}`");
            }
            On::Signal => signals::signal(client, &run).await?,
        }
        spans.push(began.elapsed());
    }
    Ok(Spread::of(&mut spans))
}

#[expect(clippy::cast_precision_loss, reason = "sizes of a benchmark are far below 2^53")]
fn mb(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Returns the anonymous memory of this process.
fn anonymous_bytes() -> Result<u64, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).ok_or("the system tells no `RssAnon`")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1_024)
}

fn disk_bytes(path: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let about = entry.metadata()?;
        bytes += if about.is_dir() { disk_bytes(&entry.path())? } else { about.len() };
    }
    Ok(bytes)
}

fn free_bytes(path: &Path) -> std::io::Result<u64> {
    let about = rustix::fs::statvfs(path)?;
    Ok(about.f_bavail * about.f_frsize)
}
