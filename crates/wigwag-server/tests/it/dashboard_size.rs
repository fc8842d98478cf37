//! Cost of an inbox with very many waits: time on the embedded store, requests on a bucket. Each test prints its figures.
#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt as _, stream};
use wigwag_store::{Batch, Cost, Embedded, Memory, Meter, Store, Usage};

use crate::kit::{Kit, answer};

/// Number of real runs; they are the oldest, so that they fill the first pages.
const REAL: usize = 120;

/// Waits for a person in a kit: `REAL` runs for `approval`, the rest index entries for `review`.
async fn fill(kit: &Kit, waits: usize) {
    let started = stream::iter(0..REAL).map(|run| async move { kit.waiting(&format!("real-{run:03}")).await });
    started.buffer_unordered(16).collect::<Vec<_>>().await;
    for first in (REAL..waits).step_by(1_000) {
        let runs = first..waits.min(first + 1_000);
        let puts =
            runs.fold(Batch::new(), |batch, run| batch.put(format!("waiting/review/run-{run:07}~0000000004"), "{}"));
        kit.store.write(puts).await.unwrap();
    }
}

async fn timed(kit: &Kit, path: &str) -> (serde_json::Value, Duration) {
    let begun = Instant::now();
    let found = kit.get(path).await.ok(200);
    (found, begun.elapsed())
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stdout, reason = "the figures are what the test is for")]
async fn an_inbox_of_100_000_waits_on_the_embedded_store_is_usable_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let kit = Kit::on(Arc::new(Embedded::open(folder.path()).unwrap()), |server| server).await;
    fill(&kit, 100_000).await;
    let begun = Instant::now();
    let (first, summary) = tokio::join!(kit.get("/v1/waiting?order=due&limit=50"), kit.get("/v1/waiting/summary"));
    let usable = begun.elapsed();
    let first = first.ok(200);
    assert_eq!(first["items"].as_array().unwrap().len(), 50);
    summary.ok(200);
    let counted = kit.until("/v1/waiting/summary", |found| found["exact"] == true).await;
    assert_eq!(counted["total"], 100_000);
    let next = first["next"].as_str().unwrap();
    let (page, turned) = timed(&kit, &format!("/v1/waiting?order=due&limit=50&after={next}")).await;
    assert_eq!(page["items"].as_array().unwrap().len(), 50);
    let (group, switched) = timed(&kit, "/v1/waiting?order=due&name=approval&limit=50").await;
    assert_eq!((group["order"].as_str(), group["items"].as_array().unwrap().len()), (Some("due"), 50));
    println!(
        "100,000 waits, embedded: usable {usable:?} (bar 800 ms), next page {turned:?} (100 ms), other group {switched:?} (100 ms)"
    );
    // A debug build on a busy machine gets ten times the limits.
    assert!(usable < Duration::from_secs(8), "{usable:?}");
    assert!(turned.max(switched) < Duration::from_secs(1), "{turned:?}, {switched:?}");
}

/// Reads of the inbox in an hour of a visible tab on a bucket: one a minute (`screens/waiting.js`).
const READS_AN_HOUR: u64 = 60;

/// Maximum LIST requests of the board per hour.
const LISTS_AN_HOUR: u64 = 1_440;

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stdout, reason = "the figures are what the test is for")]
async fn an_hour_of_a_visible_inbox_on_a_bucket_costs_less_than_a_cent() {
    let meter = Meter::new(Memory::bucket());
    let kit = Kit::on(Arc::new(meter.clone()) as Arc<dyn Store>, |server| server).await;
    fill(&kit, 6_000).await;
    // The worker's own requests are not the dashboard's.
    let Kit { engine, server, http, .. } = kit;
    engine.stop().await;
    let get = |path: &'static str| {
        let request = http.get(format!("http://{}{path}", server.addr()));
        async move { answer(request).await.ok(200) }
    };
    let read = || async {
        let summary = get("/v1/waiting/summary").await;
        let page = get("/v1/waiting?order=due&limit=50").await;
        assert_eq!(page["items"].as_array().unwrap().len(), 50);
        summary
    };
    while read().await["exact"] != true {}
    read().await;
    let before = meter.usage();
    read().await;
    let gets = meter.usage().gets - before.gets;
    let lists = meter.usage().lists - before.lists;
    let hour = Usage { gets: READS_AN_HOUR * gets, lists: LISTS_AN_HOUR, ..Usage::default() };
    let dollars = hour.dollars(Cost::S3_STANDARD);
    println!("a visible inbox: {gets} GETs and {lists} LISTs a read, ${dollars:.4} an hour at most (bar $0.01)");
    assert_eq!(lists, 0, "the board lists at most once per interval");
    assert!(dollars <= 0.01, "${dollars}");
}

/// What a visible list of runs requests in an hour on a bucket with 100,000 unfinished runs and as many waits (`screens/runs.js`, `app.js`,
/// `hub/runs.rs`): the list every two minutes, the counts every ten, the badge twice, and the ends for the topic `runs`.
const LISTINGS_AN_HOUR: u64 = 30;
const COUNTS_AN_HOUR: u64 = 6;
const BADGES_AN_HOUR: u64 = 2;
const ENDS_AN_HOUR: u64 = 720;
const INDEX_PAGES: u64 = 100;

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::print_stdout, reason = "the figures are what the test is for")]
async fn an_hour_of_a_visible_list_of_runs_on_a_bucket_costs_less_than_a_cent() {
    let meter = Meter::new(Memory::bucket());
    let kit = Kit::on(Arc::new(meter.clone()) as Arc<dyn Store>, |server| server).await;
    fill(&kit, REAL).await;
    let Kit { engine, server, http, .. } = kit;
    engine.stop().await;
    let before = meter.usage();
    let page = answer(http.get(format!("http://{}/v1/runs?limit=50", server.addr()))).await.ok(200);
    assert_eq!(page["items"].as_array().unwrap().len(), 50);
    let (gets, lists) = (meter.usage().gets - before.gets, meter.usage().lists - before.lists);
    let index = INDEX_PAGES * (COUNTS_AN_HOUR + BADGES_AN_HOUR);
    let hour = Usage {
        gets: LISTINGS_AN_HOUR * gets,
        lists: LISTINGS_AN_HOUR * lists + index + COUNTS_AN_HOUR + ENDS_AN_HOUR,
        ..Usage::default()
    };
    let dollars = hour.dollars(Cost::S3_STANDARD);
    println!("a visible list of runs: {gets} GETs and {lists} LISTs a read, ${dollars:.4} an hour (bar $0.01)");
    assert!(dollars <= 0.01, "${dollars}");
}
