//! Random histories of pauses, crashes, timeouts, slow senders and repeats, in random order.

use std::collections::BTreeMap;
use std::future::IntoFuture as _;

use serde_json::{Value, json};
use wigwag::{Builder, Ctx, Failure, Status};
use wigwag_core::Fate;

use crate::world::*;

/// Number of signals in one history.
const SIGNALS: u64 = 24;

/// Consumes all numbers, by several kinds of waits, and returns them.
async fn collect(ctx: Ctx, (): ()) -> Result<Vec<u64>, Failure> {
    let mut all: Vec<u64> = Vec::new();
    while all.len() < SIGNALS as usize {
        match ctx.random() % 4 {
            0 => all.push(ctx.wait("number").await?),
            1 => all.extend(ctx.wait::<u64>("number").timeout(MINUTE).await?),
            2 => all.extend(ctx.wait_any::<u64, _>(["number", "nothing"]).timeout(MINUTE).await?.map(|(_, one)| one)),
            _ => {
                let nap = ctx.sleep("nap", SECOND * 20);
                tokio::select! {
                    biased;
                    number = ctx.wait::<u64>("number").into_future() => all.push(number?),
                    slept = nap => slept?,
                }
            }
        }
    }
    Ok(all)
}

/// Plays one history: sends all numbers between random disturbances, and returns the suffix of each.
async fn history(mut world: World, chance: &mut fastrand::Rng) -> (World, BTreeMap<u64, String>) {
    let code = |engine: Builder| engine.function("f", 1, collect);
    let mut suffixes = BTreeMap::new();
    let mut number = 0;
    while number < SIGNALS {
        let run = world.run("r");
        match chance.u32(..9) {
            0 => world = world.crash(code).await,
            1 => world.advance(SECOND * chance.u32(1..90)).await,
            2 => _ = run.pause().await,
            3 => {
                world.settle().await;
                _ = run.resume().await;
            }
            4 => world.settle().await,
            5 => {
                // A sender that dies after it stored its signal, or whose put was slow.
                let stamp = world.now().before(SECOND * chance.u32(..4));
                let place = world.put_signal("r", "number", stamp.after(micros(number)), &json!(number)).await;
                suffixes.insert(number, place);
                number += 1;
            }
            _ => {
                let call = run.signal("number", &number);
                let receipt = match chance.bool() {
                    true => call.await.unwrap(),
                    false => {
                        call.key(format!("k{number}")).await.unwrap();
                        run.signal("number", &number).key(format!("k{number}")).await.unwrap()
                    }
                };
                suffixes.insert(number, receipt.suffix);
                number += 1;
            }
        }
    }
    (world, suffixes)
}

fn micros(number: u64) -> std::time::Duration {
    std::time::Duration::from_micros(number)
}

#[tokio::test]
async fn whatever_happens_every_signal_that_was_sent_is_consumed_exactly_once() {
    let seeds = std::env::var("WIGWAG_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(12);
    for seed in 0..seeds {
        for kind in KINDS {
            let world = World::start(kind, |engine| engine.function("f", 1, collect)).await;
            world.advance(MINUTE).await;
            world.begin("f", "r").await;
            let (world, suffixes) = history(world, &mut fastrand::Rng::with_seed(seed)).await;
            let run = world.run("r");
            world.settle().await;
            if run.status().await.unwrap() == Status::Paused {
                run.resume().await.unwrap();
            }
            // Signals that the test stored directly came without a wake-up.
            for _ in 0..SIGNALS {
                world.hint(&run).await;
                world.advance(SECOND * 61).await;
            }
            let mut all: Vec<Value> = result(&run).await.as_array().unwrap().clone();
            all.sort_by_key(Value::as_u64);
            assert_eq!(all, (0..SIGNALS).map(Value::from).collect::<Vec<_>>(), "seed {seed}");
            assert_eq!(suffixes.len(), all.len());
            assert!(fates(&run, "number").await.iter().all(|fate| matches!(fate, Fate::Consumed { .. })));
            world.end().await;
        }
    }
}
