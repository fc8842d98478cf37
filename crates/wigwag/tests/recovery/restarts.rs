//! Replayed functions, and steps that finish too late.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use wigwag::{Ctx, Failure, Retry, Status, StepCtx, permanent, retryable};

use super::seat::{World, settle};

/// `a` was compensated and is run again. While it waits for its next attempt, the replay has not reached the record of
/// `keep` behind it: the code has not changed for that reason.
#[tokio::test]
async fn a_restarted_function_that_waits_before_its_kept_steps_is_not_taken_for_changed_code() {
    let code = |ctx: Ctx, (): ()| async move {
        let retry = Retry::default().first(Duration::from_secs(100));
        let undo = |_: Option<()>| async { Ok::<_, Failure>(()) };
        ctx.step("a", || async { Ok::<_, Failure>(()) }).retry(retry).compensate(undo).await?;
        ctx.step("keep", || async { Ok::<_, Failure>(()) }).await?;
        ctx.step("b", || async { Ok::<_, Failure>(()) }).await
    };
    let world = World::new().await;
    let kit = world.worker(|engine| engine.function("f", 1, code)).await;
    kit.fail("b", [permanent("no")]);
    let run = world.client.start("f", &()).id("r").await.unwrap();
    settle(&kit).await;
    assert_eq!(run.status().await.unwrap(), Status::Failed);
    kit.fail("a", [retryable("not yet")]);
    run.restart().from("b").await.unwrap();
    settle(&kit).await;
    assert_eq!(run.status().await.unwrap(), Status::Running, "{}", world.log("r").await);
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Completed);
}

/// A function that waits for the tasks of two fan-outs.
async fn fan_outs(ctx: Ctx, (): ()) -> Result<usize, Failure> {
    let slow = ctx.fan_out("slow", "slow", 0..2_u32).into_future();
    let quick = ctx.fan_out("quick", "quick", 0..2_u32).into_future();
    let (slow, quick) = tokio::join!(slow, quick);
    Ok(slow?.completed() + quick?.completed())
}

/// Restarts the run from `quick` while no worker serves the tasks of `slow`; then a worker for them starts.
async fn restart_beside_an_open_fan_out(cancel: bool) {
    let world = World::new().await;
    let done = |_: StepCtx<u32>| async { Ok::<_, Failure>(()) };
    let kit = world.worker(|engine| engine.function("f", 1, fan_outs).task("quick", done)).await;
    let run = world.client.start("f", &()).id("r").await.unwrap();
    settle(&kit).await;
    let stopped = if cancel {
        run.cancel().await.unwrap();
        Status::Cancelled
    } else {
        run.pause().await.unwrap();
        Status::Paused
    };
    settle(&kit).await;
    assert_eq!(run.status().await.unwrap(), stopped);
    run.restart().from("quick").await.unwrap();
    settle(&kit).await;
    let other = world.worker(|engine| engine.task("slow", done)).await;
    settle(&other).await;
    settle(&kit).await;
    assert_eq!(run.status().await.unwrap(), Status::Completed, "{}", world.log("r").await);
    assert_eq!(run.result::<usize>().await.unwrap(), 4);
}

/// The ids of tasks contain the number of restarts: tasks of a kept fan-out have the earlier number.
#[tokio::test]
async fn a_restart_of_a_paused_run_keeps_the_tasks_of_a_continuing_fan_out() {
    restart_beside_an_open_fan_out(false).await;
}

/// The tasks were cancelled with the run: a run that waited for them would never continue.
#[tokio::test]
async fn a_restart_of_a_cancelled_run_starts_the_tasks_again_that_were_cancelled_with_it() {
    restart_beside_an_open_fan_out(true).await;
}

/// The turn records a timeout: if the code continued with the result, it would reach steps that follow a failed one.
#[tokio::test]
async fn code_does_not_continue_with_a_result_that_came_after_the_timeout() {
    let world = World::new().await;
    let (clock, calls) = (world.clock.clone(), Arc::new(AtomicU32::new(0)));
    let code = move |ctx: Ctx, (): ()| {
        let (clock, calls) = (clock.clone(), Arc::clone(&calls));
        async move {
            let slow = move || {
                let (clock, calls) = (clock.clone(), Arc::clone(&calls));
                async move {
                    let call = calls.fetch_add(1, Ordering::SeqCst) + 1;
                    if call == 1 {
                        clock.advance(Duration::from_secs(10));
                    }
                    Ok::<_, Failure>(call)
                }
            };
            let result = ctx.step("slow", slow).timeout(Duration::from_secs(1)).await?;
            ctx.sleep("nap", Duration::from_secs(60)).await?;
            Ok::<_, Failure>(result)
        }
    };
    let kit = world.worker(|engine| engine.function("f", 1, code)).await;
    let run = world.client.start("f", &()).id("r").await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Completed, "{}", world.log("r").await);
    assert_eq!(run.result::<u32>().await.unwrap(), 2);
}
