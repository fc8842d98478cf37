//! The embedded store compared with the raw speed of its disk.

use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;
use wigwag_store::{Batch, Embedded, Operation, Store};

use crate::floor::RawLog;
use crate::measure::{Figures, Load, Span};

const ROUNDS: usize = 3;

/// All figures of one run of the benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Append + fdatasync by one thread, without channels or tasks.
    floor: Figures,
    rows: Vec<Row>,
}

/// The store and the raw log with the same writers and the same bytes.
#[derive(Debug, Serialize)]
struct Row {
    writers: usize,
    store: Figures,
    raw_log: Figures,
    /// Puts per second of the store as a share of the raw log's.
    share_of_raw_log: f64,
    /// CPU per put of the store as a multiple of the raw log's.
    cpu_of_raw_log: f64,
    /// p50 of the store as a multiple of the floor's.
    p50_of_floor: f64,
}

pub(crate) fn run(
    dir: &Path,
    span: Duration,
    writers: &[usize],
    ids: Ids,
) -> Result<Report, Box<dyn std::error::Error>> {
    std::fs::create_dir_all(dir)?;
    let folder = tempfile::tempdir_in(dir)?;
    // The writers share one thread, so that on two cores the store, or the log, has the other core.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let store = Embedded::open(folder.path().join("store"))?;
    let log = RawLog::open(&folder.path().join("log"))?;

    let mut floor = Load::default();
    for round in 0..ROUNDS {
        floor.add(append(&folder.path().join(format!("floor-{round}")), span, ids)?);
    }
    let floor = floor.figures();
    let mut rows = Vec::new();
    for &writers in writers {
        let (mut of_store, mut of_log) = (Load::default(), Load::default());
        // Alternates between both, so that a slow minute of the machine affects both.
        for _ in 0..ROUNDS {
            of_store.add(runtime.block_on(load(writers, span, ids, Target::Store(store.clone()))));
            of_log.add(runtime.block_on(load(writers, span, ids, Target::Log(log.clone()))));
        }
        rows.push(Row::new(writers, of_store.figures(), of_log.figures(), floor));
    }
    Ok(Report { floor, rows })
}

impl Row {
    fn new(writers: usize, store: Figures, raw_log: Figures, floor: Figures) -> Self {
        Self {
            writers,
            store,
            raw_log,
            share_of_raw_log: store.puts_per_s / raw_log.puts_per_s,
            cpu_of_raw_log: store.cpu_us_per_put / raw_log.cpu_us_per_put,
            p50_of_floor: store.p50_ms / floor.p50_ms,
        }
    }
}

#[derive(Clone, Debug)]
enum Target {
    Store(Embedded),
    Log(RawLog),
}

impl Target {
    async fn write(&self, batch: Batch) {
        match self {
            Self::Store(store) => {
                drop(store.write(batch).await.expect("the benchmark's keys are new and its disk has room"))
            }
            Self::Log(log) => log.write(bytes(&batch)).await,
        }
    }
}

/// Runs this number of writers, which repeat runs for a while.
async fn load(writers: usize, span: Duration, ids: Ids, target: Target) -> Load {
    let target = Arc::new(target);
    let measured = Span::begin();
    let end = Instant::now() + span;
    let mut tasks = JoinSet::new();
    for _ in 0..writers {
        let target = Arc::clone(&target);
        tasks.spawn(async move {
            let (mut latencies, mut puts) = (Vec::new(), 0);
            loop {
                for batch in commits_of_a_run(&ids.next()) {
                    puts += batch.puts().count() as u64;
                    let began = Instant::now();
                    target.write(batch).await;
                    latencies.push(began.elapsed());
                }
                if Instant::now() >= end {
                    break;
                }
            }
            (latencies, puts)
        });
    }
    let (mut latencies, mut puts) = (Vec::new(), 0);
    while let Some(done) = tasks.join_next().await {
        let (more, count) = done.expect("a writer does not panic");
        latencies.extend(more);
        puts += count;
    }
    measured.end(latencies, puts)
}

/// Appends the same bytes and syncs, with sequential commits.
fn append(path: &Path, span: Duration, ids: Ids) -> std::io::Result<Load> {
    let mut file = File::create(path)?;
    let measured = Span::begin();
    let end = Instant::now() + span;
    let (mut latencies, mut puts) = (Vec::new(), 0);
    loop {
        for batch in commits_of_a_run(&ids.next()) {
            puts += batch.puts().count() as u64;
            let bytes = bytes(&batch);
            let began = Instant::now();
            file.write_all(&bytes)?;
            file.sync_data()?;
            latencies.push(began.elapsed());
        }
        if Instant::now() >= end {
            break;
        }
    }
    Ok(measured.end(latencies, puts))
}

/// The way in which ids are generated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ids {
    /// Ids begin with their creation time, like those of wigwag, so that runs in progress at the
    /// same time are neighbours in key order.
    Timed,
    /// Ids are random, so that every commit writes to another place.
    Random,
}

impl Ids {
    fn next(self) -> String {
        static COUNT: AtomicU64 = AtomicU64::new(0x0190_0000_0000);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        match self {
            Self::Timed => format!("{count:012x}-7c3a-b2f1"),
            // An odd factor gives each count a different id.
            Self::Random => format!("{:012x}-7c3a-b2f1", count.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16),
        }
    }
}

/// Returns the writes of a run of three steps: seven small objects in five commits.
fn commits_of_a_run(id: &str) -> [Batch; 5] {
    let entry = |seq: u32| {
        let key = format!("workflow/{id}/log/{seq:010}.json");
        let body = format!(
            r#"{{"seq":{seq},"by":"4c1b1f6e-{id}","at":"2026-01-28T12:00:00.000000Z","events":[{{"type":"step.completed","point":"charge","attempt":1,"result":{{"charged":1999,"currency":"EUR","receipt":"r-{id}-{seq}"}}}},{{"type":"step.started","point":"ship","attempt":1}}]}}"#
        );
        (key, body)
    };
    let create = |batch: Batch, seq: u32| {
        let (key, body) = entry(seq);
        batch.create(key, body)
    };
    let start = Batch::new()
        .put(
            format!("due/00/2026-01-28T12:00:30.000000Z~9f86d081~{id}~{id}"),
            format!(r#"{{"type":"order","id":"{id}"}}"#),
        )
        .put(format!("live/order/{id}"), format!(r#"{{"type":"order","id":"{id}"}}"#));
    [
        create(start, 1),
        create(Batch::new(), 2),
        create(Batch::new(), 3),
        create(Batch::new(), 4),
        create(Batch::new(), 5),
    ]
}

fn bytes(batch: &Batch) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1024);
    for operation in batch.operations() {
        bytes.extend_from_slice(operation.key().as_bytes());
        if let Operation::Put(put) = operation {
            bytes.extend_from_slice(&put.body);
        }
    }
    bytes
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<34} {:>10} {:>10} {:>9} {:>9} {:>11}",
            "", "commits/s", "puts/s", "p50 ms", "p99 ms", "CPU µs/put"
        )?;
        let mut line = |name: &str, figures: &Figures| {
            let Figures { commits_per_s, puts_per_s, p50_ms, p99_ms, cpu_us_per_put } = figures;
            writeln!(
                f,
                "{name:<34} {commits_per_s:>10.0} {puts_per_s:>10.0} {p50_ms:>9.3} {p99_ms:>9.3} {cpu_us_per_put:>11.2}"
            )
        };
        line("floor: append + fdatasync", &self.floor)?;
        for row in &self.rows {
            line(&format!("store, {} writers", row.writers), &row.store)?;
            line(&format!("raw group-commit log, {} writers", row.writers), &row.raw_log)?;
        }
        writeln!(f)?;
        for row in &self.rows {
            let (share, cpu, p50) = (row.share_of_raw_log * 100.0, row.cpu_of_raw_log, row.p50_of_floor);
            let writers = row.writers;
            writeln!(
                f,
                "{writers:>3} writers: {share:.0} % of the raw log's puts/s, {cpu:.2} x its CPU per put, p50 {p50:.2} x the floor's"
            )?;
        }
        Ok(())
    }
}
