//! Listing many runs: the newest first, in bounded pages, each run once.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use wigwag::testing::{Kit, ManualClock};
use wigwag::{Client, Ctx, Failure, Filter, Listing, Status, permanent};
use wigwag_core::{Key, Status as CoreStatus, Time, kind_of};
use wigwag_store::{Batch, Memory, Meter, Store};

async fn echo(_: Ctx, input: Value) -> Result<Value, Failure> {
    Ok(input)
}

async fn nap(ctx: Ctx, hours: u64) -> Result<u64, Failure> {
    ctx.sleep("nap", Duration::from_secs(hours * 3_600)).await?;
    Ok(hours)
}

async fn fail(_: Ctx, (): ()) -> Result<(), Failure> {
    Err(permanent("broken"))
}

async fn kit() -> Kit {
    Kit::start(|engine| engine.function("echo", 1, echo).function("nap", 1, nap).function("fail", 1, fail))
        .await
        .unwrap()
}

/// Puts index keys of finished tasks, which no list of workflows shows, one after each `step` from `from` on.
async fn put_ends(store: &dyn Store, from: Time, step: Duration, count: u32) {
    let kind = kind_of(&"task:mail:send".parse().unwrap());
    let numbers: Vec<u32> = (0..count).collect();
    for some in numbers.chunks(1_000) {
        let batch = some.iter().fold(Batch::new(), |batch, number| {
            let (at, run) = (from.after(step * *number), format!("t{number}").parse().unwrap());
            let key = Key::Done { at, kind: kind.clone(), status: CoreStatus::Completed, run };
            batch.put(key.to_string(), format!("{{\"run\":\"task/t{number}\"}}"))
        });
        store.write(batch).await.unwrap();
    }
}

async fn now(store: &dyn Store) -> Time {
    Time::from_micros(store.now().await.unwrap().at.micros())
}

async fn pages(client: &Client, mut filter: Filter) -> Vec<Listing> {
    let mut pages = Vec::new();
    loop {
        let page = client.list(&filter).await.unwrap();
        filter.after.clone_from(&page.next);
        let is_last = page.next.is_none();
        pages.push(page);
        if is_last {
            return pages;
        }
    }
}

fn ids(pages: &[Listing]) -> Vec<&str> {
    pages.iter().flat_map(|page| &page.runs).map(|run| run.id.as_str()).collect()
}

#[tokio::test]
async fn the_newest_run_of_a_day_with_25000_ends_is_listed_first() {
    let kit = kit().await;
    let client = kit.client();
    for id in ["first", "mid", "last"] {
        client.start("echo", &1).id(id).await.unwrap();
        kit.settle().await.unwrap();
        put_ends(&**kit.store(), now(&**kit.store()).await, Duration::from_secs(1), 12_500).await;
        kit.clock().advance(Duration::from_secs(12_500));
    }
    let mut filter = Filter::default();
    filter.of = Some("echo".into());
    assert_eq!(ids(&[client.list(&filter).await.unwrap()]), ["last", "mid", "first"], "on one page");
    assert_eq!(ids(&pages(&client, Filter::default()).await), ["last", "mid", "first"], "without a filter");
}

#[tokio::test]
async fn a_list_of_a_long_history_takes_few_requests() {
    let clock = ManualClock::default();
    let meter = Meter::new(Memory::with_clock(Arc::new(clock.clone())));
    let kit = Kit::on(Arc::new(meter.clone()), clock, |engine| engine.function("echo", 1, echo)).await.unwrap();
    let then = now(&**kit.store()).await;
    put_ends(&**kit.store(), then, Duration::from_secs(24 * 3_600), 3_650).await;
    kit.clock().advance(Duration::from_secs(3_650 * 24 * 3_600));
    kit.settle().await.unwrap();
    let client = kit.client();
    for number in 0..3 {
        client.start("echo", &number).await.unwrap();
    }
    kit.settle().await.unwrap();
    let mut filter = Filter::default();
    filter.limit = 3;
    let before = meter.usage().lists;
    assert_eq!(client.list(&filter).await.unwrap().runs.len(), 3);
    let lists = meter.usage().lists - before;
    assert!(lists <= 10, "the newest runs after ten years take a few requests, got: {lists}");
    filter.of = Some("echo".into());
    filter.statuses = vec![Status::Failed];
    let before = meter.usage().lists;
    assert_eq!(client.list(&filter).await.unwrap().runs.len(), 0);
    let lists = meter.usage().lists - before;
    assert!(lists <= 40, "one window has many days, got: {lists} requests for 3,650 days");
}

#[tokio::test]
async fn a_page_reads_a_bounded_number_of_unfinished_runs_and_the_next_continues() {
    let kit = kit().await;
    let client = kit.client();
    for number in 0..2_500 {
        client.start("nap", &1).id(format!("n{number:04}")).await.unwrap();
    }
    kit.settle().await.unwrap();
    for id in ["n0007", "n2499"] {
        client.run(id).unwrap().pause().await.unwrap();
    }
    kit.settle().await.unwrap();
    let mut filter = Filter::default();
    filter.statuses = vec![Status::Paused];
    let pages = pages(&client, filter).await;
    assert_eq!(ids(&pages), ["n0007", "n2499"]);
    assert_eq!(pages.len(), 2, "one page does not read all 2,500 runs");
}

#[tokio::test]
async fn a_run_that_ended_twice_is_listed_once() {
    let kit = kit().await;
    let run = kit.client().start("fail", &()).id("twice").await.unwrap();
    kit.settle().await.unwrap();
    let first_end = kit.store().list("done/", "", 10).await.unwrap().entries.remove(0).key;
    kit.clock().advance(Duration::from_secs(60));
    run.restart().await.unwrap();
    kit.settle().await.unwrap();
    // A worker that dies after the restart is recorded leaves the key of the first end behind.
    kit.store().write(Batch::new().put(first_end, r#"{"run":"workflow/twice"}"#)).await.unwrap();
    assert_eq!(run.get().await.unwrap().run().restarts, 1);
    assert_eq!(ids(&[kit.client().list(&Filter::default()).await.unwrap()]), ["twice"]);
}

#[tokio::test]
async fn an_end_that_is_not_in_the_index_yet_is_listed() {
    let kit = kit().await;
    kit.client().start("echo", &1).id("e").await.unwrap();
    kit.settle().await.unwrap();
    // Remains of a worker that died at the end: the last entry and `live/`, but no `done/`.
    let done = kit.store().list("done/", "", 10).await.unwrap().entries.remove(0).key;
    kit.store().write(Batch::new().delete(done).put("live/echo/e", "{}")).await.unwrap();
    let listing = kit.client().list(&Filter::default()).await.unwrap();
    assert_eq!((listing.runs[0].id.as_str(), listing.runs[0].status), ("e", Status::Completed));
}

#[tokio::test]
async fn runs_are_listed_once_each_while_others_start_and_end() {
    let kit = kit().await;
    let client = kit.client();
    for number in 0..20 {
        client.start("echo", &number).id(format!("e{number:02}")).await.unwrap();
        client.start("nap", &(number + 1)).id(format!("n{number:02}")).await.unwrap();
        kit.settle().await.unwrap();
        kit.clock().advance(Duration::from_secs(5));
    }
    let mut filter = Filter::default();
    filter.limit = 3;
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    loop {
        let page = client.list(&filter).await.unwrap();
        for run in &page.runs {
            *seen.entry(run.id.to_string()).or_default() += 1;
        }
        let Some(next) = page.next else { break };
        filter.after = Some(next);
        // An hour passes between two pages: some runs end, and others start.
        client.start("echo", &0).await.unwrap();
        kit.advance(Duration::from_secs(3_600)).await.unwrap();
    }
    for number in 0..20 {
        let (ended, slept) = (&seen[&format!("e{number:02}")], &seen[&format!("n{number:02}")]);
        assert_eq!(*ended, 1, "e{number:02} changed nothing");
        assert!((1..=2).contains(slept), "n{number:02} ended between two pages, and is on one page or two: {slept}");
    }
}

#[tokio::test]
async fn a_workflow_with_more_than_a_thousand_definitions_shows_all_and_the_newest_last() {
    let kit = kit().await;
    let stored = kit.store().list("definition/echo/", "", 10).await.unwrap().entries.remove(0).key;
    let stored = kit.store().get(&stored).await.unwrap().unwrap().body;
    let mut definition: Value = serde_json::from_slice(&stored).unwrap();
    for number in (0..1_200).rev() {
        let hash = format!("sha256:{number:064x}");
        definition["hash"] = hash.clone().into();
        let key = format!("definition/other/{hash}.json");
        definition["type"] = "other".into();
        kit.store().write(Batch::new().put(key, definition.to_string())).await.unwrap();
    }
    definition["hash"] = format!("sha256:{:f>64}", "").into();
    let key = format!("definition/other/sha256:{:f>64}.json", "");
    kit.store().write(Batch::new().put(key, definition.to_string())).await.unwrap();
    let known = kit.client().definitions("other").await.unwrap();
    assert_eq!(known.len(), 1_201);
    assert_eq!(known.last().unwrap().hash, format!("sha256:{:f>64}", ""), "on the second page of keys");
}

#[tokio::test]
async fn a_span_selects_ends_by_their_time_and_unfinished_runs_by_their_start() {
    let kit = kit().await;
    let client = kit.client();
    let mut starts = Vec::new();
    for hour in 0..4 {
        starts.push(now(&**kit.store()).await);
        client.start("echo", &1).id(format!("done-{hour}")).await.unwrap();
        client.start("fail", &()).id(format!("failed-{hour}")).await.unwrap();
        client.start("nap", &1_000).id(format!("nap-{hour}")).await.unwrap();
        kit.settle().await.unwrap();
        kit.clock().advance(Duration::from_secs(3_600));
    }
    let mut filter = Filter::default();
    filter.since = starts.get(1).copied();
    filter.until = starts.get(3).copied();
    filter.limit = 2;
    let found = pages(&client, filter.clone()).await;
    let mut names = ids(&found);
    assert_eq!(names.split_off(2), ["failed-2", "done-2", "failed-1", "done-1"], "the newest end first");
    assert_eq!(names, ["nap-1", "nap-2"]);
    filter.statuses = vec![Status::Completed, Status::Cancelled];
    assert_eq!(ids(&pages(&client, filter.clone()).await), ["done-2", "done-1"], "several statuses");
    filter.statuses = vec![Status::Completed, Status::Running, Status::WaitingSignal, Status::Pending];
    filter.since = starts.get(3).copied();
    filter.until = None;
    let found = pages(&client, filter.clone()).await;
    assert!(ids(&found).contains(&"nap-3") && ids(&found).contains(&"done-3"), "{:?}", ids(&found));
    assert_eq!(ids(&found).len(), 2);
    (filter.since, filter.until) = (filter.until, filter.since);
    filter.since = filter.until;
    assert_eq!(ids(&pages(&client, filter).await), Vec::<&str>::new(), "an empty span");
}

#[tokio::test]
async fn a_span_of_a_long_history_takes_few_requests() {
    let clock = ManualClock::default();
    let meter = Meter::new(Memory::with_clock(Arc::new(clock.clone())));
    let kit = Kit::on(Arc::new(meter.clone()), clock, |engine| engine.function("echo", 1, echo)).await.unwrap();
    let then = now(&**kit.store()).await;
    put_ends(&**kit.store(), then, Duration::from_secs(3_600), 24_000).await;
    kit.clock().advance(Duration::from_secs(24_000 * 3_600));
    let mut filter = Filter::default();
    filter.since = Some(then.after(Duration::from_secs(12_000 * 3_600)));
    filter.until = Some(then.after(Duration::from_secs(12_001 * 3_600)));
    let before = meter.usage().lists;
    let page = kit.client().list(&filter).await.unwrap();
    let lists = meter.usage().lists - before;
    assert!(page.next.is_none() && lists <= 12, "one hour of 24,000 is one page, got: {lists} requests");
}
