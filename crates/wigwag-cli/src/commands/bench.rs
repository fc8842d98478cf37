//! `wigwag bench`: benchmarks the user's store with real runs.
//!
//! Holds: every object is written below one prefix, which is removed at the end, also on interrupt or failure.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use wigwag::{Client, Ctx, Engine, Failure};
use wigwag_store::limits::LIST_PAGE;
use wigwag_store::{Batch, Clock as _, Cost, Meter, Prefix, Store, System, Usage};

use super::token::random_hex;
use super::{no_server, settings};
use crate::args::{Bench, StoreArgs};
use crate::error::Failed;
use crate::output::{Progress, table, talk};

/// Prefix of all keys that the benchmark writes.
const FOLDER: &str = "bench";

/// Number of loads that are measured: two workloads, each with one client and with many.
const LOADS: usize = 4;

pub(super) async fn run(args: &StoreArgs, wanted: &Bench, json: bool) -> Result<(), Failed> {
    no_server(args)?;
    let opened = wigwag_store::open(&args.store, &settings(args))?;
    let id = random_hex()?;
    let place = format!("{FOLDER}/{}", id.get(..12).unwrap_or(&id));
    let progress = Progress::towards(Some(LOADS));
    let measured = tokio::select! {
        measured = measure(&opened.store, &place, wanted, &progress) => measured,
        _ = tokio::signal::ctrl_c() => Err(Failed::new("interrupted")),
    };
    progress.done(LOADS, "loads, removing benchmark data");
    let removed = remove(&*opened.store, &place).await;
    drop(progress);
    let rows = measured?;
    removed?;
    show(&rows, json)
}

/// One row of the result.
struct Row {
    what: String,
    runs: usize,
    elapsed: Duration,
    p50: Duration,
    p99: Duration,
    usage: Usage,
}

async fn measure(store: &Arc<dyn Store>, place: &str, wanted: &Bench, progress: &Progress) -> Result<Vec<Row>, Failed> {
    let meter = Meter::new(Prefix::new(Arc::clone(store), place)?);
    let engine = Engine::builder(Arc::new(meter.clone())).function("steps", 1, steps).function("waits", 1, waits);
    let engine = engine.start().await?;
    let client = engine.client();
    let mut rows = Vec::new();
    for clients in [1, wanted.clients] {
        for (of, what) in [("steps", "three steps"), ("waits", "wait, signal")] {
            progress.done(rows.len(), &format!("loads, now {what} by {clients} clients"));
            let before = meter.usage();
            let (mut spans, elapsed) = load(&client, of, clients, wanted.span).await?;
            let usage = meter.usage().since(&before);
            spans.sort_unstable();
            let at = |share: usize| spans.get(spans.len().saturating_sub(1) * share / 100).copied().unwrap_or_default();
            let what = format!("{what}, {clients} clients");
            rows.push(Row { what, runs: spans.len(), elapsed, p50: at(50), p99: at(99), usage });
        }
    }
    engine.stop().await;
    Ok(rows)
}

async fn steps(ctx: Ctx, _: Value) -> Result<(), Failure> {
    for name in ["one", "two", "three"] {
        ctx.step(name, || async { Ok(()) }).await?;
    }
    Ok(())
}

async fn waits(ctx: Ctx, _: Value) -> Result<(), Failure> {
    let _: Value = ctx.wait("go").await?;
    Ok(())
}

/// Runs a workload with concurrent clients for `span`; returns the latency of each run and the elapsed time.
async fn load(
    client: &Client,
    of: &'static str,
    clients: u16,
    span: Duration,
) -> Result<(Vec<Duration>, Duration), Failed> {
    let began = System.boot();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..clients {
        let client = client.clone();
        tasks.spawn(async move {
            let mut spans = Vec::new();
            while System.boot().saturating_sub(began) < span || spans.is_empty() {
                let from = System.boot();
                let run = client.start(of, &Value::Null).await?;
                if of == "waits" {
                    run.signal("go", &Value::Null).await?;
                }
                run.result_payload().await?;
                spans.push(System.boot().saturating_sub(from));
            }
            Ok::<_, wigwag::Error>(spans)
        });
    }
    let mut all = Vec::new();
    while let Some(spans) = tasks.join_next().await {
        all.extend(spans.map_err(|error| Failed::new(error.to_string()))??);
    }
    Ok((all, System.boot().saturating_sub(began)))
}

async fn remove(store: &dyn Store, place: &str) -> Result<(), Failed> {
    let below = format!("{place}/");
    loop {
        let page = store.list(&below, "", LIST_PAGE).await?;
        if page.entries.is_empty() {
            return Ok(());
        }
        for some in page.entries.chunks(500) {
            let batch = some.iter().fold(Batch::new(), |batch, listed| batch.delete(&listed.key));
            store.write(batch).await?;
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a benchmark are far below 2^53")]
fn show(rows: &[Row], json: bool) -> Result<(), Failed> {
    let per_run = |count: u64, row: &Row| count as f64 / row.runs.max(1) as f64;
    let rate = |row: &Row| row.runs as f64 / row.elapsed.as_secs_f64();
    let ms = |span: Duration| span.as_secs_f64() * 1e3;
    let dollars = |row: &Row| row.usage.dollars(Cost::S3_STANDARD) / row.runs.max(1) as f64 * 1e6;
    if json {
        let mut stdout = std::io::stdout().lock();
        for row in rows {
            let shown = json!({
                "load": row.what, "runs": row.runs, "runs_per_s": rate(row), "p50_ms": ms(row.p50), "p99_ms": ms(row.p99),
                "puts_per_run": per_run(row.usage.puts, row), "gets_per_run": per_run(row.usage.gets, row),
                "lists_per_run": per_run(row.usage.lists, row), "dollars_per_million_runs": dollars(row),
            });
            writeln!(stdout, "{shown}")?;
        }
        return Ok(());
    }
    let cells = |row: &Row| {
        vec![
            row.what.clone(),
            format!("{:.0}", rate(row)),
            format!("{:.2} ms", ms(row.p50)),
            format!("{:.2} ms", ms(row.p99)),
            format!("{:.1}", per_run(row.usage.puts, row)),
            format!("{:.1}", per_run(row.usage.gets, row)),
            format!("{:.1}", per_run(row.usage.lists, row)),
            format!("${:.2}", dollars(row)),
        ]
    };
    let header = ["LOAD", "RUNS/S", "P50", "P99", "PUTS", "GETS", "LISTS", "$/MILLION RUNS"];
    table(&header, rows.iter().map(cells).collect())?;
    talk("PUTS, GETS and LISTS are per run; the cost is for requests at S3 Standard list prices");
    Ok(())
}
