//! Steps that run as tasks, and children.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::select;
use serde_json::{Value, json};
use wigwag::{Ctx, Failure, Graph, OnFailure, PruneOptions, Status, StepCtx, permanent};
use wigwag_store::{Batch, Store as _};

use super::seat::{Fault, Seat, World, settle};

#[tokio::test]
async fn a_dispatched_step_whose_failure_pauses_the_run_fails_once() {
    let graph = || {
        let fails = |_: StepCtx<Value>| async { Err::<(), _>(permanent("no")) };
        Graph::<Value>::new("g").step("s", fails).queue("side").on_failure(OnFailure::Pause)
    };
    for world in [World::new().await, World::bucket().await] {
        let kit = world.worker(|engine| engine.workflow(graph()).queues(["side"])).await;
        let run = world.client.start("g", &json!({})).id("r").await.unwrap();
        for _ in 0..20 {
            settle(&kit).await;
            kit.clock().advance(Duration::from_secs(1));
        }
        assert_eq!(run.status().await.unwrap(), Status::Paused, "{}", world.log("r").await);
        assert_eq!(world.log("r").await.matches("step.failed").count(), 1, "{}", world.log("r").await);
    }
}

/// Without the code the step is dispatched.
fn graph(calls: Option<&Arc<AtomicU32>>) -> Graph<Value> {
    let graph = Graph::<Value>::new("g");
    match calls.cloned() {
        None => graph.remote_step("s"),
        Some(calls) => graph.step("s", move |_: StepCtx<Value>| {
            calls.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, Failure>(()) }
        }),
    }
}

#[tokio::test]
async fn a_task_that_its_run_never_recorded_does_not_run_a_step_that_the_run_has_run_itself() {
    let world = World::new().await;
    let run = world.client.start("g", &json!({})).id("r").await.unwrap();
    // The task is stored; the worker dies before the run records it.
    let seat = Seat::with(&world.memory, "\"step.started\"", Fault::DiesBefore);
    world.doomed(&seat, |engine| engine.workflow(graph(None))).await;
    let hint = world.keys("due/").await.into_iter().find(|key| key.contains("~r:s~")).expect("the task is there");
    let body = world.memory.get(&hint).await.unwrap().unwrap().body;
    world.delete([hint.clone()]).await;
    let calls = Arc::new(AtomicU32::new(0));
    let kit = world.worker(|engine| engine.workflow(graph(Some(&calls)))).await;
    settle(&kit).await;
    assert_eq!((run.status().await.unwrap(), calls.load(Ordering::SeqCst)), (Status::Completed, 1));
    // Only now a worker can claim the task.
    world.memory.write(Batch::new().put(hint, body)).await.unwrap();
    kit.clock().advance(Duration::from_secs(60));
    settle(&kit).await;
    assert_eq!(calls.load(Ordering::SeqCst), 1, "a recorded step does not run again");
    assert_eq!(world.keys("live/").await, Vec::<String>::new(), "the task has ended");
}

#[tokio::test]
async fn a_child_whose_parent_was_removed_ends() {
    let nap = |ctx: Ctx, (): ()| async move { ctx.sleep("nap", Duration::from_secs(36_000)).await };
    let parent = |ctx: Ctx, (): ()| async move {
        let child = Box::pin(ctx.child::<(), _>("child", "nap", &()).into_future());
        let deadline = ctx.sleep("deadline", Duration::from_secs(1));
        select(child, deadline).await;
        Ok::<_, Failure>(())
    };
    for world in [World::new().await, World::bucket().await] {
        let kit = world.worker(|engine| engine.function("nap", 1, nap).function("parent", 1, parent)).await;
        let run = world.client.start("parent", &()).id("p").await.unwrap();
        kit.clock().advance(Duration::from_secs(2));
        settle(&kit).await;
        kit.clock().advance(Duration::from_secs(2));
        settle(&kit).await;
        assert_eq!(run.status().await.unwrap(), Status::Completed);
        kit.clock().advance(Duration::from_secs(3_600));
        let pruned = world.client.prune(&PruneOptions::older_than(Duration::from_secs(60))).await.unwrap();
        assert_eq!(pruned.runs, 1);
        kit.clock().advance(Duration::from_secs(36_000));
        settle(&kit).await;
        assert_eq!(world.client.run("p:child").unwrap().status().await.unwrap(), Status::Completed);
        assert_eq!(world.keys("due/").await, Vec::<String>::new(), "nothing is left to do for it");
    }
}

#[tokio::test]
async fn a_child_that_ended_and_was_removed_before_its_parent_recorded_it_is_not_lost() {
    let echo = |_: Ctx, (): ()| async move { Ok::<_, Failure>(7) };
    let parent = |ctx: Ctx, (): ()| async move { ctx.child::<u32, _>("child", "echo", &()).await };
    let world = World::new().await;
    let run = world.client.start("parent", &()).id("p").await.unwrap();
    // The child is stored; the worker dies before the parent records it.
    let seat = Seat::with(&world.memory, "\"child.started\"", Fault::DiesBefore);
    world.doomed(&seat, |engine| engine.function("parent", 1, parent)).await;
    let kit = world.worker(|engine| engine.function("echo", 1, echo)).await;
    settle(&kit).await;
    kit.clock().advance(Duration::from_secs(3_600));
    assert_eq!(world.client.prune(&PruneOptions::older_than(Duration::from_secs(60))).await.unwrap().runs, 1);
    drop(kit);
    let kit = world.worker(|engine| engine.function("parent", 1, parent)).await;
    settle(&kit).await;
    assert_eq!(run.result::<u32>().await.unwrap(), 7, "{}", world.log("p").await);
}
