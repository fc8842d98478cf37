//! The engine on a bucket: a small S3 server in this process, with a delay for each request, and workers in separate
//! processes. Prints the measured times with their targets.

mod part;
mod s3;

use std::fmt;
use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use wigwag::{Client, Engine, RunHandle};
use wigwag_server::{Server, Settings};
use wigwag_store::{Clock as _, Notifications, Opened, System};

use crate::http::Result;
use crate::http::process::Process;
use crate::measure::Spread;
use part::{Counted, opened, workflows};
use s3::Bucket;

pub(crate) use part::work;

/// Parameters of the benchmark.
#[derive(Debug)]
pub(crate) struct Wanted {
    pub(crate) delay: Duration,
    pub(crate) span: Duration,
    pub(crate) samples: usize,
    /// Length of the outage, and of the time in which waiters are counted.
    pub(crate) outage: Duration,
    /// Endpoint of a real S3 server with the bucket `wigwag`, used instead.
    pub(crate) endpoint: Option<String>,
}

/// One line of the table.
#[derive(Debug, Serialize)]
struct Row {
    what: &'static str,
    measured: String,
    bar: &'static str,
    passed: bool,
}

/// The longest allowed latencies of a row, in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Longest {
    p50_ms: f64,
    p95_ms: f64,
}

impl Row {
    /// Latencies with their targets.
    fn of_spans(what: &'static str, spans: &mut [Duration], bar: &'static str, longest: Longest) -> Self {
        let Spread { p50_ms, max_ms, .. } = Spread::of(spans);
        let p95_ms = spans.get(spans.len() * 95 / 100).copied().unwrap_or_default().as_secs_f64() * 1e3;
        let passed = !spans.is_empty() && p50_ms <= longest.p50_ms && p95_ms <= longest.p95_ms;
        let measured = format!("p50 {p50_ms:.0} ms, p95 {p95_ms:.0} ms, max {max_ms:.0} ms");
        Self { what, measured, bar, passed }
    }
}

/// The measured figures.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    delay_ms: f64,
    rows: Vec<Row>,
    throughput: Vec<Throughput>,
}

#[derive(Debug, Serialize)]
struct Throughput {
    clients: usize,
    runs_per_s: f64,
    p50_ms: f64,
    puts_per_run: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "a bucket with {} ms a request\n", self.delay_ms)?;
        writeln!(f, "| | measured | bar | |\n|---|---|---|---|")?;
        for Row { what, measured, bar, passed } in &self.rows {
            let outcome = if *passed { "PASS" } else { "FAIL" };
            writeln!(f, "| {what} | {measured} | {bar} | {outcome} |")?;
        }
        writeln!(f, "\n| clients | 3-step runs/s | p50 ms | PUT a run |\n|---|---|---|---|")?;
        for Throughput { clients, runs_per_s, p50_ms, puts_per_run } in &self.throughput {
            writeln!(f, "| {clients} | {runs_per_s:.1} | {p50_ms:.0} | {puts_per_run:.1} |")?;
        }
        writeln!(
            f,
            "\nThe project these designs come from states for itself 28 requests and 17 LIST a step, and 1 to 5 s a step."
        )
    }
}

impl Report {
    /// Whether every figure reached its target.
    pub(crate) fn passed(&self) -> bool {
        self.rows.iter().all(|row| row.passed)
    }
}

pub(crate) fn run(wanted: &Wanted) -> Result<Report> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(wanted))
}

async fn measure(wanted: &Wanted) -> Result<Report> {
    let bucket = Bucket::start(wanted.delay, wanted.endpoint.clone()).await?;
    let (mut rows, mut throughput) = (Vec::new(), Vec::new());
    one_process(&bucket, wanted, &mut rows, &mut throughput).await?;
    fleet(&bucket, wanted, &mut rows).await?;
    Ok(Report { delay_ms: wanted.delay.as_secs_f64() * 1e3, rows, throughput })
}

/// Waits until a run has parked on its signal.
async fn parked(run: &RunHandle) -> Result<()> {
    while run.waiting().await?.is_empty() {
        System.sleep(Duration::from_millis(20)).await;
    }
    // Time for the last writes of parking.
    System.sleep(Duration::from_millis(300)).await;
    Ok(())
}

/// Measures the time from a signal to the result of the run that waits for it.
async fn signal_to_result(client: &Client, samples: usize, place: &str) -> Result<Vec<Duration>> {
    let mut spans = Vec::new();
    for number in 0..samples {
        let run = client.start("go", &()).id(format!("{place}-{number}")).await?;
        parked(&run).await?;
        let waiting = tokio::spawn({
            let run = run.clone();
            async move { run.result::<u32>().await }
        });
        System.sleep(Duration::from_millis(100)).await;
        let begun = Instant::now();
        run.signal("go", &7).await?;
        waiting.await??;
        spans.push(begun.elapsed());
    }
    Ok(spans)
}

async fn one_process(
    bucket: &Bucket,
    wanted: &Wanted,
    rows: &mut Vec<Row>,
    throughput: &mut Vec<Throughput>,
) -> Result<()> {
    let opened = opened(bucket.endpoint(), "one")?;
    let engine = workflows(Engine::on(opened.clone())).start().await?;
    let client = engine.client();
    let mut spans = Vec::new();
    for _ in 0..wanted.samples {
        let begun = Instant::now();
        client.start("steps", &()).await?.result::<u32>().await?;
        spans.push(begun.elapsed());
    }
    let longest = Longest { p50_ms: 85.0, p95_ms: f64::INFINITY };
    let what = "3-step run, one process: start → result";
    rows.push(Row::of_spans(what, &mut spans, "≤ 5 requests in a row (p50 ≤ 85 ms)", longest));
    let mut spans = signal_to_result(&client, wanted.samples, "own").await?;
    let longest = Longest { p50_ms: 150.0, p95_ms: 300.0 };
    let what = "signal → result, sender in the worker's own process";
    rows.push(Row::of_spans(what, &mut spans, "p50 ≤ 150 ms, p95 ≤ 300 ms", longest));
    for clients in [1, 16, 64, 256] {
        throughput.push(load(&client, &opened, clients, wanted.span).await?);
    }
    if let Some(switch) = bucket.switch() {
        rows.push(outage(&client, switch, wanted.outage).await?);
    }
    engine.stop().await;
    Ok(())
}

async fn load(client: &Client, opened: &Opened, clients: usize, span: Duration) -> Result<Throughput> {
    let (before, begun) = (opened.usage(), Instant::now());
    let one = || async {
        let mut spans = Vec::new();
        while begun.elapsed() < span {
            let at = Instant::now();
            client.start("steps", &()).await?.result::<u32>().await?;
            spans.push(at.elapsed());
        }
        Ok::<_, wigwag::Error>(spans)
    };
    let mut spans = Vec::new();
    for done in join_all((0..clients).map(|_| one())).await {
        spans.extend(done?);
    }
    let (elapsed, runs) = (begun.elapsed(), spans.len() as f64);
    // Requests after the results belong to the runs too.
    System.sleep(Duration::from_millis(500)).await;
    let puts = opened.usage().since(&before).puts as f64;
    Ok(Throughput {
        clients,
        runs_per_s: runs / elapsed.as_secs_f64(),
        p50_ms: Spread::of(&mut spans).p50_ms,
        puts_per_run: puts / runs,
    })
}

/// Makes the bucket unavailable for a while, with clients that wait, follow, start and signal.
async fn outage(client: &Client, switch: &s3::Switch, span: Duration) -> Result<Row> {
    let mut runs = Vec::new();
    for number in 0..4 {
        let run = client.start("go", &()).id(format!("outage-{number}")).await?;
        parked(&run).await?;
        runs.push(run);
    }
    let waiting = runs.iter().cloned().map(|run| tokio::spawn(async move { run.result::<u32>().await.err() }));
    let following = runs.iter().cloned().map(|run| {
        tokio::spawn(async move {
            let mut log = run.follow(1);
            while let Some(entries) = log.next().await.transpose() {
                if let Err(error) = entries {
                    return Some(error);
                }
            }
            None
        })
    });
    let waits: Vec<_> = waiting.chain(following).collect();
    switch.set(true);
    let begun = Instant::now();
    let mut calls = Vec::new();
    while begun.elapsed() < span {
        let client = client.clone();
        calls.push(tokio::spawn(async move { client.start("steps", &()).await.err() }));
        System.sleep(Duration::from_millis(500)).await;
    }
    switch.set(false);
    for run in &runs {
        run.signal("go", &7).await?;
    }
    let (asked, mut errors) = (calls.len() + waits.len(), Vec::new());
    for call in waits.into_iter().chain(calls) {
        errors.extend(call.await?.map(|error| error.to_string()));
    }
    let first = errors.first().map(|error| format!(", the first: {error}")).unwrap_or_default();
    let measured = format!("{} errors of {asked} calls in {} s of 503{first}", errors.len(), span.as_secs());
    Ok(Row { what: "503 for 30 s: client errors", measured, bar: "0", passed: errors.is_empty() })
}

/// Starts three workers in separate processes; this process is the server that relays notifications.
async fn fleet(bucket: &Bucket, wanted: &Wanted, rows: &mut Vec<Row>) -> Result<()> {
    let opened = opened(bucket.endpoint(), "fleet")?;
    let client = Engine::on(opened.clone()).client().await?;
    let mut settings = Settings::default();
    let place = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    settings.advertise = Some(format!("http://{place}"));
    let server = Server::builder(client.clone()).bind(place).settings(settings).start().await?;
    // A first write tests the bucket, and the record of this server must exist before the workers start.
    while opened.store.list("servers/", "", 1).await?.entries.is_empty() {
        System.sleep(Duration::from_millis(50)).await;
    }
    let mut workers = Vec::new();
    for _ in 0..3 {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bucket-worker", "--prefix", "fleet", "--endpoint", bucket.endpoint()]);
        workers.push(Process::listening(&mut command)?.0);
    }
    // All workers follow the server once it gets their notifications.
    let _follows = client.store().changes("done/");
    let deadline = Instant::now() + Duration::from_secs(30);
    while client.store().traits().notifications != Notifications::Fleet && Instant::now() < deadline {
        System.sleep(Duration::from_millis(50)).await;
    }
    System.sleep(Duration::from_secs(3)).await;
    let mut spans = signal_to_result(&client, wanted.samples, "far").await?;
    let longest = Longest { p50_ms: 300.0, p95_ms: 500.0 };
    let what = "signal → result, sent through a server, worker elsewhere";
    rows.push(Row::of_spans(what, &mut spans, "p50 ≤ 300 ms, p95 ≤ 500 ms", longest));
    let mut spans = Vec::new();
    for _ in 0..wanted.samples {
        let begun = System.wall().micros();
        let first: u64 = client.start("stamp", &()).await?.result().await?;
        spans.push(Duration::from_micros(first.saturating_sub(begun)));
        System.sleep(Duration::from_millis(200)).await;
    }
    let longest = Longest { p50_ms: f64::INFINITY, p95_ms: 250.0 };
    let what = "start by a client → first step elsewhere";
    rows.push(Row::of_spans(what, &mut spans, "p95 ≤ 250 ms", longest));
    rows.push(many(&client).await?);
    rows.push(waiters(&client, &Counted(&opened), wanted.outage).await?);
    server.stop().await;
    for worker in workers {
        worker.stop().await?;
    }
    Ok(())
}

/// Starts 300 runs, 32 at a time, and waits for all of them.
async fn many(client: &Client) -> Result<Row> {
    let one = |_| async {
        let begun = Instant::now();
        client.start("steps", &()).await?.result::<u32>().await?;
        Ok::<_, wigwag::Error>(begun.elapsed())
    };
    let done: Vec<_> = stream::iter(0..300).map(one).buffer_unordered(32).collect().await;
    let mut spans = done.into_iter().collect::<std::result::Result<Vec<_>, _>>()?;
    let longest = Longest { p50_ms: f64::INFINITY, p95_ms: 1_000.0 };
    Ok(Row::of_spans("300 runs over 3 workers, 32 at a time", &mut spans, "p95 ≤ 1 s", longest))
}

/// Measures the cost of waiting clients.
async fn waiters(client: &Client, counted: &Counted<'_>, span: Duration) -> Result<Row> {
    const COUNT: usize = 20;
    let mut tasks = Vec::new();
    for number in 0..COUNT {
        let run = client.start("go", &()).id(format!("wait-{number}")).await?;
        tasks.push(tokio::spawn(async move { run.result::<u32>().await }));
    }
    // Each waiter polls once, and catches up with its run.
    System.sleep(Duration::from_secs(40)).await;
    let before = counted.gets();
    System.sleep(span).await;
    let gets = (counted.gets() - before) as f64 / COUNT as f64 / span.as_secs_f64();
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(Row { what: "a waiter, GET a second", measured: format!("{gets:.4}"), bar: "≤ 0.035", passed: gets <= 0.035 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_fails_if_one_of_its_latencies_is_too_long_or_nothing_was_measured() {
        let ms = |all: &[u64]| all.iter().copied().map(Duration::from_millis).collect::<Vec<_>>();
        let longest = Longest { p50_ms: 150.0, p95_ms: 300.0 };
        for (mut spans, passed) in [
            (ms(&[100, 100, 100]), true),
            (ms(&[160, 160, 160]), false),
            (ms(&[100, 100, 400]), false),
            (Vec::new(), false),
        ] {
            let row = Row::of_spans("", &mut spans, "", longest);
            assert_eq!(row.passed, passed, "{row:?}");
        }
    }
}
