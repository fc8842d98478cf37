//! Many signals to one run: the cost of a burst is linear, and signals that no wait takes are read once.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use wigwag::testing::{Kit, ManualClock};
use wigwag::{Client, Ctx, Engine, Failure, Status, permanent};
use wigwag_core::{Key, Time};
use wigwag_store::{Batch, Memory, Meter, Store as _, Usage};

/// A store and a client, and no worker yet.
async fn nobody_home() -> (Memory, ManualClock, Client) {
    let clock = ManualClock::default();
    let memory = Memory::with_clock(Arc::new(clock.clone()));
    let client = Engine::builder(Arc::new(memory.clone())).clock(Arc::new(clock.clone())).client().await.unwrap();
    (memory, clock, client)
}

/// Cost of a burst.
struct Cost {
    requests: u64,
    bytes: u64,
    entries: usize,
    /// Size of the last snapshot.
    snapshot: usize,
}

/// Lets a run consume this many signals that were sent while there was no worker.
async fn consume(count: u32) -> Cost {
    let (memory, clock, client) = nobody_home().await;
    let code = |ctx: Ctx, count: u32| async move {
        for number in 0..count {
            let got = ctx.wait::<u32>("n").await?;
            if got != number {
                return Err(permanent(format!("want: {number}, got: {got}")));
            }
        }
        Ok::<_, Failure>(())
    };
    let run = client.start("f", &count).id("r").await.unwrap();
    for number in 0..count {
        run.signal("n", &number).await.unwrap();
    }
    let meter = Meter::new(memory.clone());
    let kit = Kit::on(Arc::new(meter.clone()), clock, |engine| engine.function("f", 1, code)).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Completed);
    let snapshot = memory.get("workflow/r/state.json").await.unwrap().unwrap().body.len();
    let entries = memory.list("workflow/r/log/", "", 1_000).await.unwrap().entries.len();
    let Usage { gets, puts, lists, bytes_read, bytes_written, .. } = meter.usage();
    Cost { requests: gets + puts + lists, bytes: bytes_read + bytes_written, entries, snapshot }
}

#[tokio::test]
async fn a_burst_of_signals_costs_in_proportion_and_the_snapshot_stays_small() {
    let (few, many) = (consume(200).await, consume(2_000).await);
    assert!(
        many.requests <= few.requests * 12,
        "ten times as many signals: {} requests, not {}",
        many.requests,
        few.requests
    );
    assert!(many.bytes <= few.bytes * 12, "ten times as many signals: {} bytes, not {}", many.bytes, few.bytes);
    assert!(
        many.entries <= few.entries * 12,
        "ten times as many signals: {} entries, not {}",
        many.entries,
        few.entries
    );
    assert!(many.snapshot < 40 * 1024, "the snapshot has {} bytes", many.snapshot);
}

/// Puts a wake-up for the run that is due now, as a sender does.
async fn wake(memory: &Memory, number: u32) {
    let page = memory.list("due/", "", 1_000).await.unwrap();
    let listed = page.entries.iter().find(|listed| listed.key.contains("~r~")).unwrap();
    let body = memory.get(&listed.key).await.unwrap().unwrap().body;
    let Ok(Key::Due(mut hint)) = listed.key.parse::<Key>() else { panic!("{}", listed.key) };
    hint.due = Time::from_micros(memory.now().await.unwrap().at.micros());
    hint.nonce = format!("test{number}");
    memory.write(Batch::new().put(Key::Due(hint).to_string(), body)).await.unwrap();
}

/// Objects read by the first check of a run whose inbox holds this many signals that its wait does not take, and by later ones.
async fn reads_with_misfits(count: u32) -> (u64, Vec<u64>) {
    let (memory, clock, client) = nobody_home().await;
    let code = |ctx: Ctx, (): ()| async move {
        ctx.wait::<u32>("n").schema(json!({"type": "integer", "minimum": 1_000_000})).await
    };
    let run = client.start("f", &()).id("r").await.unwrap();
    for number in 0..count {
        run.signal("n", &number).await.unwrap();
    }
    let meter = Meter::new(memory.clone());
    let kit = Kit::on(Arc::new(meter.clone()), clock, |engine| engine.function("f", 1, code)).await.unwrap();
    kit.settle().await.unwrap();
    let first = meter.usage().gets;
    let mut later = Vec::new();
    for number in 0..4 {
        let before = meter.usage();
        wake(&memory, number).await;
        kit.advance(Duration::from_secs(1)).await.unwrap();
        later.push(meter.usage().since(&before).gets);
    }
    run.signal("n", &2_000_000).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.result::<u32>().await.unwrap(), 2_000_000);
    (first, later)
}

#[tokio::test]
async fn signals_that_no_wait_takes_are_not_read_again_at_each_wake_up() {
    let (first, later) = reads_with_misfits(20).await;
    let (first_of_many, later_of_many) = reads_with_misfits(200).await;
    assert!(first >= 20 && first_of_many >= 200, "each is read once: {first} and {first_of_many}");
    assert!(later.iter().all(|reads| (1..20).contains(reads)), "a check reads the run: {later:?}");
    assert_eq!(later, later_of_many, "and nothing for each signal");
}
