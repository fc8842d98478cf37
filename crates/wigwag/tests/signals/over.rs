//! A closed wait consumes nothing, and a consumed signal stays with its step.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use wigwag::{Builder, Ctx, Failure, Graph, Retry, SignalState, Status, StepCtx, retryable};
use wigwag_core::{Closing, Event, Fate};

use crate::world::*;

#[tokio::test]
async fn a_wait_that_timed_out_consumes_nothing_and_the_next_wait_gets_the_next_signal() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let first: Option<u32> = ctx.wait("number").timeout(HOUR).await?;
            ctx.sleep("nap", HOUR).await?;
            let second: u32 = ctx.wait("number").await?;
            Ok::<_, Failure>(json!([first, second]))
        };
        let graph = Graph::<Value>::new("g")
            .signal_at("first", "number")
            .timeout(HOUR)
            .on_timeout(|_| Ok::<_, Failure>(()))
            .signal_at("second", "number")
            .after("first")
            .delay(HOUR);
        let world = World::start(kind, |engine| engine.function("f", 1, code).workflow(graph)).await;
        for (of, input, point, expected) in
            [("f", json!(null), "number#2", json!([null, 1])), ("g", json!({}), "second", json!(1))]
        {
            let run = world.begin_with(of, of, &input).await;
            world.advance(HOUR).await;
            assert_eq!(count(&run, "signal.timeout").await, 1);
            assert_eq!(run.signal("number", &1).await.unwrap().state, SignalState::Buffered);
            world.run_until_idle().await;
            assert_eq!(result(&run).await, expected);
            assert!(took(&fate_of(&run, 1).await, point));
        }
        world.end().await;
    }
}

#[tokio::test]
async fn a_wait_that_was_cancelled_consumes_nothing() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move { ctx.wait::<u32>("number").await };
        let graph = Graph::<Value>::new("g").signal("number");
        let world = World::start(kind, |engine| engine.function("f", 1, code).workflow(graph)).await;
        let stranger = world.stranger().await;
        for (of, input) in [("f", json!(null)), ("g", json!({}))] {
            let run = world.begin_with(of, of, &input).await;
            run.cancel().await.unwrap();
            // The signal is stored before a worker folds the cancel.
            stranger.signal(of, "number", &1).await.unwrap();
            world.settle().await;
            assert_eq!(run.status().await.unwrap(), Status::Cancelled);
            assert_eq!(fate_of(&run, 1).await, Fate::NeverConsumed);
            let closed: Vec<Closing> = events(&run)
                .await
                .iter()
                .filter_map(|event| if let Event::SignalClosed(closed) = event { Some(closed.why) } else { None })
                .collect();
            assert_eq!(closed, [Closing::Cancelled]);
            run.restart().await.unwrap();
            world.settle().await;
            assert_eq!(result(&run).await, json!(1), "the wait of the run that began again is another");
        }
        world.end().await;
    }
}

/// Races two waits with a plain `select!`; then waits for the loser's name again.
async fn plain_race(ctx: Ctx, (): ()) -> Result<Value, Failure> {
    let (left, right) = (ctx.wait::<u32>("left").into_future(), ctx.wait::<u32>("right").into_future());
    let won = tokio::select! {
        number = left => json!(["left", number?]),
        number = right => json!(["right", number?]),
    };
    ctx.sleep("nap", HOUR).await?;
    let (left, right): (u32, u32) = (ctx.wait("left").await?, ctx.wait("right").await?);
    Ok(json!([won, left, right]))
}

#[tokio::test]
async fn a_wait_that_lost_a_plain_select_consumes_nothing_and_the_next_wait_gets_the_next_signal() {
    for kind in KINDS {
        // `select!` polls in random order: twelve runs cover all orders with high probability.
        for number in 0..12 {
            let world = World::start(kind, |engine| engine.function("f", 1, plain_race)).await;
            let run = world.begin("f", "r").await;
            let (winner, loser) = if number % 2 == 0 { ("left", "right") } else { ("right", "left") };
            run.signal(winner, &1).await.unwrap();
            world.settle().await;
            assert!(run.waiting().await.unwrap().is_empty(), "the loser's wait is closed");
            run.signal(loser, &2).await.unwrap();
            world.settle().await;
            assert_eq!(fate_of(&run, 2).await, Fate::Unconsumed);
            run.signal(winner, &3).await.unwrap();
            world.run_until_idle().await;
            let expected = if number % 2 == 0 { json!([["left", 1], 3, 2]) } else { json!([["right", 1], 2, 3]) };
            assert_eq!(result(&run).await, expected);
            world.end().await;
        }
    }
}

#[tokio::test]
async fn of_a_plain_select_whose_signals_are_both_there_one_is_consumed() {
    for kind in KINDS {
        for _ in 0..12 {
            let world = World::start(kind, |engine| engine.function("f", 1, plain_race)).await;
            let run = world.client().start("f", &()).id("r").delay(HOUR).await.unwrap();
            run.signal("left", &1).await.unwrap();
            run.signal("right", &2).await.unwrap();
            world.advance(HOUR).await;
            assert_eq!(count(&run, "signal.received").await, 1, "{:?}", event_names(&run).await);
            run.signal("left", &3).await.unwrap();
            run.signal("right", &4).await.unwrap();
            world.run_until_idle().await;
            let result = result(&run).await;
            let either = [json!([["left", 1], 3, 2]), json!([["right", 2], 1, 4])];
            assert!(either.contains(&result), "{result}");
            world.end().await;
        }
    }
}

/// Races two waits; a replay creates the loser, but never polls it.
async fn biased_race(ctx: Ctx, (): ()) -> Result<Value, Failure> {
    let (first, second) = (ctx.wait::<u32>("first"), ctx.wait::<u32>("second"));
    let won = tokio::select! {
        biased;
        number = first.into_future() => json!(["first", number?]),
        number = second.into_future() => json!(["second", number?]),
    };
    ctx.sleep("nap", HOUR).await?;
    Ok(json!([won, ctx.wait::<u32>("second").await?]))
}

#[tokio::test]
async fn a_loser_that_is_never_polled_when_the_code_is_run_again_consumes_nothing() {
    for kind in KINDS {
        let code = |engine: Builder| engine.function("f", 1, biased_race);
        let world = World::start(kind, code).await;
        let run = world.begin("f", "r").await;
        run.signal("first", &1).await.unwrap();
        world.settle().await;
        run.signal("second", &2).await.unwrap();
        let world = world.crash(code).await;
        let run = world.run(run.id().as_str());
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([["first", 1], 2]));
        assert!(took(&fate_of(&run, 2).await, "second#2"));
        world.end().await;
    }
}

#[tokio::test]
async fn a_loser_whose_worker_died_before_its_loss_was_recorded_consumes_nothing() {
    for kind in KINDS {
        // In the first execution, the code stops after its race, before it requests another step.
        let tries = Arc::new(AtomicU32::new(0));
        let code = |tries: &Arc<AtomicU32>| {
            let tries = Arc::clone(tries);
            let function = move |ctx: Ctx, (): ()| {
                let tries = Arc::clone(&tries);
                async move {
                    let (first, second) = (ctx.wait::<u32>("first").into_future(), ctx.wait::<u32>("second"));
                    let mut second = Box::pin(second.into_future());
                    let won = tokio::select! {
                        biased;
                        number = first => json!(["first", number?]),
                        number = &mut second => json!(["second", number?]),
                    };
                    if tries.fetch_add(1, Ordering::SeqCst) == 0 {
                        // The future of the loser still exists here.
                        std::future::pending::<()>().await;
                    }
                    drop(second);
                    ctx.sleep("nap", HOUR).await?;
                    Ok::<_, Failure>(json!([won, ctx.wait::<u32>("second").await?]))
                }
            };
            move |engine: Builder| engine.function("f", 1, function)
        };
        let world = World::start(kind, code(&tries)).await;
        let run = world.begin("f", "r").await;
        run.signal("first", &1).await.unwrap();
        world.move_clock(SECOND);
        let heard = async {
            while count(&run, "signal.received").await == 0 {
                tokio::task::yield_now().await;
            }
        };
        world.while_time_passes(heard).await;
        assert_eq!(tries.load(Ordering::SeqCst), 1);
        let world = world.crash(code(&tries)).await;
        let run = world.run("r");
        run.signal("second", &2).await.unwrap();
        world.settle().await;
        // The code was replayed for the signal, and dropped the loser without a poll.
        assert!(run.waiting().await.unwrap().is_empty(), "{:?}", event_names(&run).await);
        assert_eq!(fate_of(&run, 2).await, Fate::Unconsumed);
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([["first", 1], 2]));
        assert!(took(&fate_of(&run, 2).await, "second#2"));
        world.end().await;
    }
}

#[tokio::test]
async fn a_wait_that_lost_against_a_step_consumes_nothing() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let step = ctx.step("quick", || async { Ok::<_, Failure>(0) }).into_future();
            let wait = ctx.wait::<u32>("number").into_future();
            let won = tokio::select! {
                number = wait => number?,
                number = step => number?,
            };
            let next: u32 = ctx.wait("number").await?;
            Ok::<_, Failure>(json!([won, next]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        run.signal("number", &1).await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!([0, 1]));
        assert!(took(&fate_of(&run, 1).await, "number#2"));
        world.end().await;
    }
}

#[tokio::test]
async fn a_function_that_returns_while_a_wait_is_open_closes_it_as_finished_or_lost() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let mut wait = Box::pin(ctx.wait::<u32>("number").into_future());
            tokio::select! {
                _ = &mut wait => {}
                slept = ctx.sleep("nap", HOUR) => slept?,
            }
            Ok::<_, Failure>(())
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        world.run_until_idle().await;
        assert_eq!(run.status().await.unwrap(), Status::Completed);
        assert_eq!(count(&run, "signal.closed").await, 1);
        world.end().await;
    }
}

/// A step of a graph that waits in its body, and then fails this many times.
fn shaky(fails: u32, between: fn(Ctx) -> wigwag::Point<()>) -> Graph<Value> {
    Graph::<Value>::new("shaky")
        .step("ask", move |ctx: StepCtx<Value>| async move {
            let number: u32 = ctx.wait("number").await?;
            between(Ctx::clone(&ctx)).await?;
            if ctx.attempt() <= fails { Err(retryable("again")) } else { Ok(json!([number, ctx.attempt()])) }
        })
        .retry(Retry::times(5).first(SECOND))
}

#[tokio::test]
async fn a_step_that_is_retried_gets_the_signal_again_that_it_consumed_not_the_next_one() {
    let at_once = |_: Ctx| -> wigwag::Point<()> { Box::pin(async { Ok(()) }) };
    let after_a_nap = |ctx: Ctx| ctx.sleep("nap", HOUR);
    for kind in KINDS {
        for between in [at_once as fn(Ctx) -> wigwag::Point<()>, after_a_nap] {
            let world = World::start(kind, |engine| engine.workflow(shaky(2, between))).await;
            let run = world.begin_with("shaky", "r", &json!({})).await;
            run.signal("number", &1).await.unwrap();
            run.signal("number", &2).await.unwrap();
            world.run_until_idle().await;
            assert_eq!(result(&run).await, json!([1, 3]));
            assert_eq!(count(&run, "signal.received").await, 1);
            assert!(took(&fate_of(&run, 1).await, "ask/number"));
            assert_eq!(fate_of(&run, 2).await, Fate::NeverConsumed);
            world.end().await;
        }
    }
}

#[tokio::test]
async fn a_step_that_is_retried_after_it_dropped_its_wait_waits_again() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g")
            .step("ask", |ctx: StepCtx<Value>| async move {
                let wait = ctx.wait::<u32>("number").into_future();
                let first = ctx.attempt() == 1;
                let other = async move {
                    match first {
                        true => Err(retryable("again")),
                        false => std::future::pending::<Result<u32, Failure>>().await,
                    }
                };
                tokio::select! {
                    biased;
                    number = wait => number,
                    failed = other => failed,
                }
            })
            .retry(Retry::times(5).first(SECOND));
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        world.run_until_idle().await;
        run.signal("number", &1).await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!(1));
        world.end().await;
    }
}

#[tokio::test]
async fn a_function_that_is_run_again_gets_the_signal_again_that_it_consumed() {
    for kind in KINDS {
        let heard = Arc::new(std::sync::Mutex::new(Vec::new()));
        let code = |heard: &Arc<std::sync::Mutex<Vec<u32>>>| {
            let heard = Arc::clone(heard);
            let function = move |ctx: Ctx, (): ()| {
                let heard = Arc::clone(&heard);
                async move {
                    let number: u32 = ctx.wait("number").await?;
                    heard.lock().unwrap().push(number);
                    for _ in 0..3 {
                        ctx.sleep("nap", HOUR).await?;
                    }
                    Ok::<_, Failure>(number)
                }
            };
            move |engine: Builder| engine.function("f", 1, function)
        };
        let world = World::start(kind, code(&heard)).await;
        let run = world.begin("f", "r").await;
        run.signal("number", &1).await.unwrap();
        run.signal("number", &2).await.unwrap();
        world.advance(HOUR).await;
        let world = world.crash(code(&heard)).await;
        world.run_until_idle().await;
        let run = world.run("r");
        assert_eq!(result(&run).await, json!(1));
        let heard = heard.lock().unwrap().clone();
        assert!(heard.len() > 2 && heard.iter().all(|number| *number == 1), "{heard:?}");
        world.end().await;
    }
}

#[tokio::test]
async fn a_large_payload_is_consumed_once_and_replayed() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let text: String = ctx.wait("text").await?;
            ctx.sleep("nap", HOUR).await?;
            let votes: Vec<String> = ctx.wait("vote").quorum(3).await?;
            ctx.sleep("nap", HOUR).await?;
            Ok::<_, Failure>(json!([text.len(), votes.iter().map(String::len).sum::<usize>()]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        run.signal("text", &"x".repeat(900_000)).await.unwrap();
        world.settle().await;
        for by in ["ada", "bob", "eve"] {
            // Together the signals exceed the limit of one payload.
            run.signal("vote", &"y".repeat(600_000)).by(by).await.unwrap();
        }
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([900_000, 1_800_000]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_wait_that_was_closed_with_a_failed_run_is_waited_for_when_it_is_restarted_from_a_step() {
    for kind in KINDS {
        let fails = Arc::new(AtomicU32::new(1));
        let counted = Arc::clone(&fails);
        let graph = Graph::<Value>::new("g")
            .signal("approval")
            .step("ship", |ctx: StepCtx<Value>| async move { ctx.output::<Value>("approval").await })
            .after("approval")
            .step("pack", move |_: StepCtx<Value>| {
                let fails = counted.swap(0, Ordering::SeqCst) == 1;
                async move { if fails { Err(wigwag::permanent("no box")) } else { Ok(()) } }
            })
            .delay(HOUR);
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        world.advance(HOUR).await;
        assert_eq!(run.status().await.unwrap(), Status::Failed);
        run.restart().from("pack").await.unwrap();
        world.run_until_idle().await;
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal, "no signal has approved it");
        run.signal("approval", "ada").await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await["ship"], json!("ada"));
        world.end().await;
    }
}

#[tokio::test]
async fn a_wait_that_is_open_when_a_paused_run_is_restarted_is_closed() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move { ctx.wait::<u32>("number").await };
        let graph = Graph::<Value>::new("g").signal("number");
        let world = World::start(kind, |engine| engine.function("f", 1, code).workflow(graph)).await;
        for (of, input) in [("f", json!(null)), ("g", json!({}))] {
            let run = world.begin_with(of, of, &input).await;
            run.pause().await.unwrap();
            world.settle().await;
            run.restart().await.unwrap();
            world.settle().await;
            let found = world.client().runs_waiting_for("number", 10, None).await.unwrap();
            assert_eq!(found.runs.len(), 1);
            run.signal("number", &1).await.unwrap();
            world.settle().await;
            assert_eq!(result(&run).await, json!(1));
        }
        world.end().await;
    }
}

#[tokio::test]
async fn a_wait_in_the_body_of_a_step_is_closed_when_the_run_is_cancelled() {
    for kind in KINDS {
        let at_once = |_: Ctx| -> wigwag::Point<()> { Box::pin(async { Ok(()) }) };
        let world = World::start(kind, |engine| engine.workflow(shaky(0, at_once))).await;
        let run = world.begin_with("shaky", "r", &json!({})).await;
        run.cancel().await.unwrap();
        world.settle().await;
        assert_eq!(run.status().await.unwrap(), Status::Cancelled);
        assert_eq!(count(&run, "signal.closed").await, 1);
        world.end().await;
    }
}

#[tokio::test]
async fn a_function_that_fails_while_a_wait_is_open_closes_it() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let wait = ctx.wait::<u32>("number").into_future();
            let nap = ctx.sleep("nap", HOUR);
            tokio::try_join!(wait, async { nap.await.and(Err::<(), _>(wigwag::permanent("no"))) })
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        world.run_until_idle().await;
        assert_eq!(run.status().await.unwrap(), Status::Failed);
        assert_eq!(count(&run, "signal.closed").await, 1);
        world.end().await;
    }
}

#[tokio::test]
async fn a_wait_goes_with_its_step_when_that_has_another_name() {
    for kind in KINDS {
        let code = |step: &'static str| {
            let graph = Graph::<Value>::new("g").signal_at(step, "approval").timeout(DAY);
            move |engine: Builder| engine.workflow(graph)
        };
        let world = World::start(kind, code("old")).await;
        world.begin_with("g", "r", &json!({})).await;
        let world = world.crash(code("new")).await;
        let run = world.run("r");
        // The code does not match, which is found at the next check of the run, and reported after a lease.
        run.signal("approval", &1).await.unwrap();
        world.settle().await;
        world.advance(MINUTE).await;
        world.advance(MINUTE).await;
        assert_eq!(run.status().await.unwrap(), Status::Paused);
        run.migrate().rename("old", "new").await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!(1));
        assert!(took(&fate_of(&run, 1).await, "new"));
        assert!(world.keys("waiting/").await.is_empty());
    }
}

#[tokio::test]
async fn a_worker_that_lost_its_lease_consumes_nothing() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let first: u32 = ctx.wait("number").await?;
            ctx.sleep("nap", HOUR).await?;
            Ok::<_, Failure>(json!([first, ctx.wait::<u32>("number").await?]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        let gate = world.hold(Hold::BeforeWrite, "workflow/r/log/");
        let stranger = world.stranger().await;
        stranger.signal("r", "number", &1).await.unwrap();
        stranger.signal("r", "number", &2).await.unwrap();
        let meanwhile = async {
            gate.reached().await;
            // The first worker hangs before its entry lands, for longer than its lease; another takes over.
            world.move_clock(MINUTE * 2);
            let clock = world.kit().clock().clone();
            let store = Arc::new(world.store.clone());
            let other = wigwag::testing::Kit::on(store, clock, |engine| engine.function("f", 1, code)).await.unwrap();
            within(other.settle()).await.unwrap();
            gate.open();
            other
        };
        let (_, other) = tokio::join!(within(world.kit().settle()), meanwhile);
        world.run_until_idle().await;
        within(other.settle()).await.unwrap();
        assert_eq!(result(&run).await, json!([1, 2]));
        assert_eq!(count(&run, "signal.received").await, 2);
        drop(other);
        world.end().await;
    }
}
