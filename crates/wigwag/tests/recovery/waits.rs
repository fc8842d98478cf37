//! Waits at their deadlines and at the limits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use wigwag::testing::Kit;
use wigwag::{Ctx, Failure, Graph, Status, StepCtx, retryable};
use wigwag_core::limits;
use wigwag_store::Store;

use super::seat::{Fault, Seat, World, settle};

/// Advances the clock and runs all work that is ready then. A turn may continue: it waits until a deadline has
/// passed for certain.
async fn pass(kit: &Kit, millis: u64) {
    kit.clock().advance(Duration::from_millis(millis));
    for _ in 0..2_000 {
        tokio::task::yield_now().await;
    }
}

/// On a bucket a retry may be due between the earliest and the latest estimate of the time.
#[tokio::test]
async fn a_signal_on_which_on_receive_failed_is_tried_again_whenever_the_next_turn_comes() {
    for late_by in [0, 250, 500, 750, 1_000, 1_500] {
        let world = World::bucket().await;
        let mut seat = Seat::new(&world.memory);
        seat.uncertainty = Duration::from_secs(1);
        let calls = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&calls);
        let graph = Graph::<Value>::new("g").signal("a").on_receive(move |_: &mut Value, _: Value| {
            match counted.fetch_add(1, Ordering::SeqCst) {
                0 => Err(retryable("not yet")),
                _ => Ok::<_, Failure>(()),
            }
        });
        let kit = world.worker_on(Arc::new(seat), |engine| engine.workflow(graph)).await;
        let run = world.client.start("g", &json!({})).id("r").await.unwrap();
        pass(&kit, 3_000).await;
        run.signal("a", &json!(1)).await.unwrap();
        pass(&kit, 3_000).await;
        let view = run.get().await.unwrap();
        let again = view.run().points.values().find_map(|point| point.wait.as_ref()?.again).expect("it was refused");
        let now = world.memory.now().await.unwrap().at;
        let ahead = again.micros().saturating_sub(now.micros());
        pass(&kit, ahead / 1_000 + 1 + late_by).await;
        // From here on, time passes and no other event occurs.
        for _ in 0..20 {
            pass(&kit, 1_000).await;
        }
        assert_eq!(run.status().await.unwrap(), Status::Completed, "late by {late_by} ms");
        assert_eq!(calls.load(Ordering::SeqCst), 2);
    }
}

/// A signal arrives while its run is being parked. The worker claims the run again, and another may be faster.
#[tokio::test]
async fn on_receive_is_not_called_before_a_parked_run_is_claimed_again() {
    let world = World::new().await;
    let mut seat = Seat::new(&world.memory);
    seat.hangs_when_parked = true;
    let seat = Arc::new(seat);
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let graph = Graph::<Value>::new("g").signal("a").on_receive(move |_: &mut Value, _: Value| {
        counted.fetch_add(1, Ordering::SeqCst);
        Ok::<_, Failure>(())
    });
    world.client.start("g", &json!({})).id("r").await.unwrap();
    let kit = world.worker_on(Arc::clone(&seat) as _, |engine| engine.workflow(graph)).await;
    pass(&kit, 0).await;
    assert!(world.log("r").await.contains("run.parked"));
    seat.set_fault("\"run.claimed\"", Fault::DiesBefore);
    world.client.signal("r", "a", &json!(1)).await.unwrap();
    seat.hangs.store(false, Ordering::SeqCst);
    pass(&kit, 0).await;
    assert!(seat.is_dead(), "it claims the run");
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn waits_of_one_race_have_one_deadline_also_if_two_entries_open_them() {
    let mut small = limits::Limits::REAL;
    small.entry_events_max = 2;
    limits::set(small);
    let code = |ctx: Ctx, (): ()| async move {
        ctx.step("first", || async { Ok::<_, Failure>(()) }).await?;
        let names = ["a", "b", "c", "d", "e"];
        ctx.wait_any::<Value, _>(names).timeout(Duration::from_secs(3_600)).await.map(drop)
    };
    let world = World::new().await;
    let mut seat = Seat::new(&world.memory);
    seat.tick = Some((world.clock.clone(), Duration::from_millis(500)));
    let kit = world.worker_on(Arc::new(seat), |engine| engine.function("f", 1, code)).await;
    let run = world.client.start("f", &()).id("r").await.unwrap();
    settle(&kit).await;
    let deadlines = async || {
        let view = run.get().await.unwrap();
        view.run().waits().map(|(_, point)| point.until).collect::<Vec<_>>()
    };
    let until = deadlines().await;
    assert_eq!(until.len(), 5, "{}", world.log("r").await);
    assert!(until.iter().all(|at| *at == until[0]), "{until:?}");
    // The first has its signal, and the others are opened again.
    run.signal("a", &json!(1)).await.unwrap();
    settle(&kit).await;
    assert_eq!(run.status().await.unwrap(), Status::Completed);
    run.restart().from("b").await.unwrap();
    settle(&kit).await;
    limits::set(limits::Limits::REAL);
    let until = deadlines().await;
    assert_eq!(until.len(), 4, "{}", world.log("r").await);
    assert!(until.iter().all(|at| *at == until[0]), "{until:?}");
}

#[tokio::test]
async fn a_quorum_of_64_payloads_of_the_largest_size_is_consumed() {
    let graph = Graph::<Value>::new("g").signal("vote").quorum(64);
    let kit = Kit::start(|engine| engine.workflow(graph)).await.unwrap();
    let run = kit.client().start("g", &json!({})).id("r").await.unwrap();
    kit.settle().await.unwrap();
    let largest = "x".repeat(limits::PAYLOAD_BYTES_MAX - 2);
    for number in 0..64 {
        kit.client().signal("r", "vote", &largest).by(format!("voter-{number}")).await.unwrap();
    }
    settle(&kit).await;
    assert_eq!(run.status().await.unwrap(), Status::Completed, "{:?}", run.get().await.unwrap().run().error);
}

#[tokio::test]
async fn a_claim_after_which_nothing_can_be_recorded_pauses_the_run_with_the_reason() {
    let world = World::new().await;
    let graph = Graph::<Value>::new("g").signal("a").on_receive(|_: &mut Value, _: Value| Ok::<_, Failure>(()));
    let run = world.client.start("g", &json!({})).id("r").await.unwrap();
    run.signal("a", &"x".repeat(10_000)).await.unwrap();
    let mut small = limits::Limits::REAL;
    small.entry_bytes_max = 4 * 1024;
    limits::set(small);
    let kit = world.worker(|engine| engine.workflow(graph)).await;
    settle(&kit).await;
    limits::set(limits::Limits::REAL);
    assert_eq!(run.status().await.unwrap(), Status::Paused, "{}", world.log("r").await);
    let error = run.get().await.unwrap().run().error.clone().unwrap();
    assert!(error.kind == "Unrecordable" && error.message.contains("bytes"), "{error:?}");
}

#[tokio::test]
async fn last_steps_whose_results_are_too_large_together_fail_the_run() {
    let large = |_: StepCtx<Value>| async { Ok::<_, Failure>("x".repeat(600_000)) };
    let graph = Graph::<Value>::new("g").step("a", large).step("b", large);
    let kit = Kit::start(|engine| engine.workflow(graph)).await.unwrap();
    let run = kit.client().start("g", &json!({})).id("r").await.unwrap();
    settle(&kit).await;
    assert_eq!(run.status().await.unwrap(), Status::Failed);
    let error = run.get().await.unwrap().run().error.clone().unwrap();
    assert!(error.kind == "TooLarge" && error.message.contains("the last 2 steps cannot be combined"), "{error:?}");
}
