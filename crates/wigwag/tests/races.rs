//! Races, panics and large values: on a store that really waits, with code that drops futures it started.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::{Either, select};
use serde_json::{Value, json};
use wigwag::testing::Kit;
use wigwag::{Ctx, Engine, Failure, Graph, Retry, Settings, Status, StepCtx, permanent};
use wigwag_store::{Embedded, Store};

/// Races a step against a sleep; the loser is dropped. A nap follows, so that the function is replayed.
async fn race(ctx: Ctx, sleep_first: bool) -> Result<&'static str, Failure> {
    let work = Box::pin(ctx.step("work", || async { Ok::<_, Failure>(()) }).into_future());
    let deadline = ctx.sleep("deadline", Duration::from_secs(60));
    let won = if sleep_first {
        match select(deadline, work).await {
            Either::Left(_) => "deadline",
            Either::Right(_) => "work",
        }
    } else {
        match select(work, deadline).await {
            Either::Left(_) => "work",
            Either::Right(_) => "deadline",
        }
    };
    ctx.sleep("nap", Duration::from_secs(3_600)).await?;
    ctx.sleep("nap", Duration::from_secs(3_600)).await?;
    Ok(won)
}

#[tokio::test]
async fn a_point_that_lost_a_race_loses_it_again_when_the_function_is_run_again() {
    for sleep_first in [true, false] {
        let kit = Kit::start(|engine| engine.function("race", 1, race)).await.unwrap();
        let run = kit.client().start("race", &sleep_first).await.unwrap();
        kit.run_until_idle().await.unwrap();
        assert_eq!(run.status().await.unwrap(), Status::Completed, "{:?}", run.get().await.unwrap().run().error);
        assert_eq!(run.result::<String>().await.unwrap(), "work");
    }
}

#[tokio::test]
async fn a_panic_before_the_first_await_is_a_failure_like_any_other() {
    let calls = Arc::new(AtomicU32::new(0));
    let (of_graph, of_function) = (Arc::clone(&calls), Arc::clone(&calls));
    let graph = Graph::<Value>::new("graph").step("shaky", move |_: StepCtx<Value>| {
        assert!(of_graph.fetch_add(1, Ordering::SeqCst) > 0, "not yet");
        async { Ok::<_, Failure>(1) }
    });
    let function = move |ctx: Ctx, (): ()| {
        let calls = Arc::clone(&of_function);
        async move {
            ctx.step("shaky", move || {
                assert!(calls.fetch_add(1, Ordering::SeqCst) > 0, "not yet");
                async { Ok::<_, Failure>(2) }
            })
            .await
        }
    };
    let kit = Kit::start(|engine| engine.workflow(graph).function("function", 1, function)).await.unwrap();
    for (of, input, result) in [("graph", json!({}), 1), ("function", json!(null), 2)] {
        calls.store(0, Ordering::SeqCst);
        let run = kit.client().start(of, &input).await.unwrap();
        kit.run_until_idle().await.unwrap();
        assert_eq!(run.result::<u32>().await.unwrap(), result);
        assert_eq!(run.steps().await.unwrap()["shaky"].attempt, 2);
    }
}

#[tokio::test]
async fn the_outcome_of_a_step_after_its_timeout_is_ignored() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let kit_clock = wigwag::testing::ManualClock::default();
    let clock = kit_clock.clone();
    let code = move |ctx: Ctx, (): ()| {
        let (calls, clock) = (Arc::clone(&counted), clock.clone());
        async move {
            ctx.step("slow", || {
                let (calls, clock) = (Arc::clone(&calls), clock.clone());
                async move {
                    let number = calls.fetch_add(1, Ordering::SeqCst);
                    if number == 0 {
                        // Longer than its timeout, without an await: the code cannot be stopped.
                        clock.advance(Duration::from_secs(6));
                        tokio::task::yield_now().await;
                    }
                    Ok::<_, Failure>(number)
                }
            })
            .timeout(Duration::from_secs(5))
            .retry(Retry::times(2).first(Duration::from_millis(10)))
            .await
        }
    };
    let store = Arc::new(wigwag_store::Memory::with_clock(Arc::new(kit_clock.clone())));
    let kit = Kit::on(store, kit_clock, |engine| engine.function("slow", 1, code)).await.unwrap();
    let run = kit.client().start("slow", &()).await.unwrap();
    kit.run_until_idle().await.unwrap();
    let result = run.result::<u32>().await.unwrap();
    let recorded: u32 = run.output("slow").await.unwrap();
    assert_eq!(result, recorded, "the function and the log agree on what the step gave");
}

/// Starts more runs than there are threads, each of which blocks its thread in the first attempt of its step.
async fn results_of_steps_that_block_all_threads(of: &str) {
    let calls = || Arc::new(std::sync::Mutex::new(std::collections::HashMap::<String, u32>::new()));
    /// Blocks the thread past the timeout in the first attempt; returns the number of the attempt.
    fn block(calls: &std::sync::Mutex<std::collections::HashMap<String, u32>>, run: &str) -> u32 {
        let mut calls = calls.lock().unwrap();
        let number = calls.entry(run.to_owned()).and_modify(|count| *count += 1).or_insert(1);
        let number = *number;
        drop(calls);
        if number == 1 {
            std::thread::sleep(Duration::from_millis(900));
        }
        number
    }
    let retry = || Retry::times(3).first(Duration::from_millis(10));
    let (timeout, counted) = (Duration::from_millis(300), calls());
    let graph_calls = Arc::clone(&counted);
    let graph = Graph::<Value>::new("graph")
        .step("slow", move |ctx: StepCtx<Value>| {
            let calls = Arc::clone(&graph_calls);
            async move { Ok::<_, Failure>(block(&calls, ctx.workflow_id().as_str())) }
        })
        .timeout(timeout)
        .retry(retry());
    let function = move |ctx: Ctx, run: String| {
        let calls = Arc::clone(&counted);
        async move {
            let body = || async { Ok::<_, Failure>(block(&calls, &run)) };
            ctx.step("slow", body).timeout(timeout).retry(retry()).await
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(folder.path()).unwrap());
    let engine = Engine::builder(store).workflow(graph).function("function", 1, function).start().await.unwrap();
    let runs = (0..5).map(|number| {
        let client = engine.client();
        async move {
            let id = format!("{of}-{number}");
            let input = if of == "graph" { json!({}) } else { json!(id) };
            let run = client.start(of, &input).id(&id).await.unwrap();
            let result = run.result::<u32>().await.unwrap();
            (result, run.steps().await.unwrap()["slow"].attempt)
        }
    });
    for (result, attempt) in futures_util::future::join_all(runs).await {
        assert!(
            result >= 2 && attempt >= 2,
            "{of}: the late result of the first attempt was recorded: {result}, {attempt}"
        );
        // An attempt whose time ran out before a thread was free for it made no call.
        assert!(result <= attempt, "{of}: the recorded result is not of a later call than the recorded attempt");
    }
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_result_is_discarded_also_if_graph_steps_blocked_all_threads() {
    results_of_steps_that_block_all_threads("graph").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_result_is_discarded_also_if_function_steps_blocked_all_threads() {
    results_of_steps_that_block_all_threads("function").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_that_blocks_its_thread_through_several_timeouts_does_not_decide_for_a_later_attempt() {
    let calls = Arc::new(AtomicU32::new(0));
    let code = {
        let calls = Arc::clone(&calls);
        move |ctx: Ctx, (): ()| {
            let calls = Arc::clone(&calls);
            async move {
                let body = || async {
                    let number = calls.fetch_add(1, Ordering::SeqCst) + 1;
                    if number == 1 {
                        std::thread::sleep(Duration::from_millis(1_500));
                    }
                    Ok(number)
                };
                let retry = Retry::times(20).first(Duration::from_millis(1)).cap(Duration::from_millis(1));
                ctx.step("slow", body).timeout(Duration::from_millis(400)).retry(retry).await
            }
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(folder.path()).unwrap());
    let engine = Engine::builder(store).function("function", 1, code).start().await.unwrap();
    let run = engine.client().start("function", &()).await.unwrap();
    let result = run.result::<u32>().await.unwrap();
    let step = run.steps().await.unwrap()["slow"].clone();
    assert!(result >= 2 && step.attempt >= 3, "attempts in between timed out: {result}, {}", step.attempt);
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_receive_is_called_once_for_each_run_although_three_workers_race_for_it() {
    const RUNS: usize = 40;
    let calls = Arc::new(std::sync::Mutex::new(std::collections::HashMap::<String, u32>::new()));
    let graph = |calls: &Arc<std::sync::Mutex<std::collections::HashMap<String, u32>>>| {
        let calls = Arc::clone(calls);
        Graph::<Value>::new("g").signal("go").on_receive(move |data: &mut Value, _: Value| {
            let run = data["run"].as_str().unwrap_or_default().to_owned();
            *calls.lock().unwrap().entry(run).or_default() += 1;
            Ok::<_, Failure>(())
        })
    };
    let store: Arc<dyn Store> = Arc::new(wigwag_store::Memory::bucket());
    let mut settings = Settings::default();
    (settings.look_min, settings.look_max) = (Duration::from_millis(20), Duration::from_millis(100));
    settings.linger = Duration::ZERO;
    let mut workers = Vec::new();
    for _ in 0..3 {
        let worker = Engine::builder(Arc::clone(&store)).settings(settings.clone()).workflow(graph(&calls));
        workers.push(worker.start().await.unwrap());
    }
    let client = Engine::builder(store).client().await.unwrap();
    let mut runs = Vec::new();
    for number in 0..RUNS {
        let id = format!("r-{number}");
        runs.push(client.start("g", &json!({"run": id})).id(&id).await.unwrap());
    }
    for run in &runs {
        run.signal("go", &true).await.unwrap();
    }
    for run in &runs {
        run.result::<Value>().await.unwrap();
    }
    let calls = calls.lock().unwrap().clone();
    assert!(calls.len() == RUNS && calls.values().all(|count| *count == 1), "{calls:?}");
    for worker in workers {
        worker.stop().await;
    }
}

#[tokio::test]
async fn large_results_of_children_that_end_together_all_reach_the_parent() {
    let child = |_: Ctx, number: u32| async move { Ok::<_, Failure>(format!("{number}:{}", "x".repeat(15_000))) };
    let parent = |ctx: Ctx, (): ()| async move {
        let children = (0..100).map(|number| ctx.child::<String, _>(&format!("kid-{number}"), "child", &number));
        let results = futures_util::future::try_join_all(children).await?;
        Ok::<_, Failure>(results.iter().map(String::len).sum::<usize>())
    };
    let kit = Kit::start(|engine| engine.function("child", 1, child).function("parent", 1, parent)).await.unwrap();
    let run = kit.client().start("parent", &()).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.result::<usize>().await.unwrap(), 100 * 15_002 + 90);
}

#[tokio::test]
async fn a_restart_while_a_step_of_the_paused_run_still_runs_begins_afresh() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let graph = Graph::<Value>::new("g")
        .step("a", |_: StepCtx<Value>| async { Ok::<_, Failure>(()) })
        .step("slow", move |_: StepCtx<Value>| {
            let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if first {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Failure>("done")
            }
        })
        .after("a");
    let kit = Kit::start(|engine| engine.workflow(graph)).await.unwrap();
    let run = kit.client().start("g", &json!({})).await.unwrap();
    while calls.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    run.pause().await.unwrap();
    while run.status().await.unwrap() != Status::Paused {
        tokio::task::yield_now().await;
    }
    run.restart().await.unwrap();
    kit.settle().await.unwrap();
    assert_eq!(run.result::<String>().await.unwrap(), "done");
    let events = serde_json::to_string(&run.history(1, 100).await.unwrap()).unwrap();
    assert_eq!(events.matches("\"step.completed\",\"point\":\"a\"").count(), 2, "all was begun afresh: {events}");
}

#[tokio::test]
async fn an_engine_stops_although_a_function_returned_while_its_run_was_paused() {
    let (begun, go) = (Arc::new(AtomicU32::new(0)), Arc::new(tokio::sync::Notify::new()));
    let (counted, wait) = (Arc::clone(&begun), Arc::clone(&go));
    let code = move |ctx: Ctx, (): ()| {
        let (begun, go) = (Arc::clone(&counted), Arc::clone(&wait));
        async move {
            ctx.step("last", || async {
                begun.fetch_add(1, Ordering::SeqCst);
                go.notified().await;
                Ok::<_, Failure>("done".to_owned())
            })
            .await
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(folder.path()).unwrap());
    let engine = Engine::builder(Arc::clone(&store)).function("f", 1, code.clone()).start().await.unwrap();
    let run = engine.client().start("f", &()).id("r").await.unwrap();
    while begun.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    run.pause().await.unwrap();
    while run.status().await.unwrap() != Status::Paused {
        tokio::task::yield_now().await;
    }
    go.notify_one();
    tokio::time::timeout(Duration::from_secs(20), engine.stop()).await.unwrap();
    let engine = Engine::builder(store).function("f", 1, code).start().await.unwrap();
    let run = engine.client().run("r").unwrap();
    run.resume().await.unwrap();
    assert_eq!(run.result::<String>().await.unwrap(), "done");
    assert_eq!(begun.load(Ordering::SeqCst), 1, "a recorded step never runs again");
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_results_are_read_back_on_a_store_that_waits_also_for_undoing() {
    let undone = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&undone);
    let code = move |ctx: Ctx, (): ()| {
        let undone = Arc::clone(&counted);
        async move {
            for number in 0..5 {
                let undone = Arc::clone(&undone);
                ctx.step(&format!("large-{number}"), || async { Ok::<_, Failure>("x".repeat(50_000)) })
                    .compensate(move |large: Option<String>| {
                        let undone = Arc::clone(&undone);
                        async move {
                            undone.fetch_add(
                                u32::from(large.is_some_and(|large| large.len() == 50_000)),
                                Ordering::SeqCst,
                            );
                            Ok::<_, Failure>(())
                        }
                    })
                    .await?;
            }
            ctx.sleep("long", Duration::from_secs(3_600)).await?;
            Err::<(), _>(permanent("never reached"))
        }
    };
    let folder = tempfile::tempdir().unwrap();
    let store: Arc<dyn Store> = Arc::new(Embedded::open(folder.path()).unwrap());
    let engine = Engine::builder(store).function("f", 1, code).start().await.unwrap();
    for number in 0..20 {
        let run = engine.client().start("f", &()).id(format!("r{number}")).await.unwrap();
        while !run.get().await.unwrap().run().parked {
            tokio::task::yield_now().await;
        }
        run.cancel().await.unwrap();
        assert_eq!(run.wait().await.unwrap().status(), Status::Cancelled);
        assert_eq!(undone.swap(0, Ordering::SeqCst), 5, "run {number}");
    }
    engine.stop().await;
}

#[tokio::test]
async fn a_turn_renews_its_lease_although_its_code_always_asks_for_more() {
    let clock = wigwag::testing::ManualClock::default();
    let store = Arc::new(wigwag_store::Memory::with_clock(Arc::new(clock.clone())));
    let moved = clock.clone();
    let code = move |ctx: Ctx, (): ()| {
        let clock = moved.clone();
        async move {
            ctx.map("item", 0..200_u64, move |number| {
                // All items together take far longer than a lease.
                clock.advance(Duration::from_millis(500));
                async move { Ok::<_, Failure>(number) }
            })
            .concurrency(4)
            .await
            .map(|items| items.len())
        }
    };
    let mut settings = Settings::default();
    settings.lease = Duration::from_secs(30);
    let engine =
        Engine::builder(store).clock(Arc::new(clock)).settings(settings).function("f", 1, code).start().await.unwrap();
    let run = engine.client().start("f", &()).await.unwrap();
    assert_eq!(run.result::<usize>().await.unwrap(), 200);
    let events = serde_json::to_string(&run.history(1, 1_000).await.unwrap()).unwrap();
    assert!(events.matches("run.claimed").count() > 5, "it renewed on the way");
    assert_eq!(events.matches("\"step.started\"").count(), 200, "and nothing was begun twice");
}

#[tokio::test]
async fn a_retried_step_submits_the_same_tasks_and_no_other_step_does() {
    let tries = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&tries);
    let code = move |ctx: Ctx, (): ()| {
        let tries = Arc::clone(&counted);
        async move {
            let mut ids = Vec::new();
            for name in ["a", "b"] {
                let (inner, tries) = (ctx.clone(), Arc::clone(&tries));
                let id = ctx
                    .step(name, || async {
                        let id = inner.submit("echo", name).await?;
                        if name == "b" && tries.fetch_add(1, Ordering::SeqCst) == 0 {
                            return Err(wigwag::retryable("once more"));
                        }
                        Ok::<_, Failure>(id)
                    })
                    .await?;
                ctx.sleep("nap", Duration::from_secs(60)).await?;
                ids.push(id);
            }
            ctx.wait_for_tasks(ids, None).await?.results::<String>()
        }
    };
    let echo = |ctx: StepCtx<String>| async move { ctx.input() };
    let kit = Kit::start(|engine| engine.function("f", 1, code).task("echo", echo)).await.unwrap();
    let run = kit.client().start("f", &()).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.result::<Vec<String>>().await.unwrap(), ["a", "b"]);
}

#[tokio::test]
async fn a_wait_that_is_held_but_not_polled_consumes_its_signal_once_polled() {
    let code = |ctx: Ctx, (): ()| async move {
        let mut stop = std::pin::pin!(ctx.wait::<u32>("stop").into_future());
        for rounds in 0..10 {
            tokio::select! {
                biased;
                stopped = &mut stop => return Ok((rounds, stopped?)),
                worked = ctx.step("work", || async { Ok::<_, Failure>(()) }).into_future() => worked?,
            }
            // The future of the wait still exists, but this code does not poll it here.
            ctx.step("save", || async { Ok::<_, Failure>(()) }).await?;
            ctx.sleep("pause", Duration::from_secs(60)).await?;
        }
        Err(permanent("nobody stopped it"))
    };
    let kit = Kit::start(|engine| engine.function("held", 1, code)).await.unwrap();
    let run = kit.client().start("held", &()).await.unwrap();
    kit.advance(Duration::from_secs(90)).await.unwrap();
    run.signal("stop", &7).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), kit.run_until_idle()).await.expect("it hangs").unwrap();
    assert_eq!(run.result::<(u32, u32)>().await.unwrap(), (2, 7));
}

#[tokio::test]
async fn waits_that_lost_a_race_together_lose_it_again_when_the_function_is_run_again() {
    let code = |ctx: Ctx, (): ()| async move {
        let first = tokio::select! {
            biased;
            heard = ctx.wait_any::<u32, _>(["a", "b"]).into_future() => Some(heard?),
            napped = ctx.sleep("nap", Duration::from_secs(60)) => {
                napped?;
                None
            }
        };
        ctx.sleep("more", Duration::from_secs(60)).await?;
        Ok::<_, Failure>((first, ctx.wait::<u32>("a").await?))
    };
    let kit = Kit::start(|engine| engine.function("lost", 1, code)).await.unwrap();
    let run = kit.client().start("lost", &()).await.unwrap();
    kit.run_until_idle().await.unwrap();
    run.signal("a", &7).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.result::<(Option<(String, u32)>, u32)>().await.unwrap(), (None, 7));
}

#[tokio::test]
async fn tasks_that_ended_before_their_run_existed_reach_it() {
    let code = |ctx: Ctx, (): ()| async move {
        let id = ctx.submit("quick", &()).await?;
        // The run is stored only after this loop, when the task has already ended.
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        ctx.wait_for_tasks(vec![id], None).await.map(|joined| joined.completed())
    };
    let task = |_: StepCtx<()>| async { Ok::<_, Failure>(()) };
    let kit = Kit::start(|engine| engine.function("joins", 1, code).task("quick", task)).await.unwrap();
    let run = kit.client().start("joins", &()).await.unwrap();
    kit.settle().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Completed);
}
