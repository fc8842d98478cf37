//! Waiting: the signals that a wait consumes, its record, and its end.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use wigwag::{Ctx, ErrorKind, Failure, Graph, OnFailure, Retry, SignalState, Status, StepCtx, permanent};
use wigwag_core::{Event, Fate, Key};

use crate::world::*;

/// Waits for an approval as a node of a graph, and ships.
fn order() -> Graph<Value> {
    Graph::<Value>::new("order")
        .signal("approval")
        .timeout(HOUR)
        .on_receive(|order: &mut Value, by: String| {
            order["by"] = json!(by);
            Ok::<_, Failure>(())
        })
        .step("ship", |ctx: StepCtx<Value>| async move { ctx.data() })
        .after("approval")
}

async fn approval(ctx: Ctx, (): ()) -> Result<Option<String>, Failure> {
    ctx.wait("approval").timeout(HOUR).await
}

#[tokio::test]
async fn a_signal_is_a_node_of_a_graph_with_on_receive() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.workflow(order())).await;
        let run = world.begin_with("order", "r", &json!({"item": "book"})).await;
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
        run.signal("approval", "ada").await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!({"item": "book", "by": "ada"}));
        assert_eq!(run.output::<String>("approval").await.unwrap(), "ada", "its result is the payload");
        world.end().await;
    }
}

#[tokio::test]
async fn a_signal_is_waited_for_in_a_function() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, approval)).await;
        let run = world.begin("f", "r").await;
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
        run.signal("approval", "ada").await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!("ada"));
        world.end().await;
    }
}

#[tokio::test]
async fn a_function_can_read_the_sender_and_time_of_a_signal() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let received = ctx.wait::<u32>("approval").details().await?;
            ctx.sleep("nap", HOUR).await?;
            Ok::<_, Failure>(json!([received.payload, received.by, received.id, received.sent_at]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        let receipt = run.signal("approval", &7).by("ada").await.unwrap();
        world.run_until_idle().await;
        let stamp = wigwag_core::stamp_of(&receipt.suffix).unwrap();
        assert_eq!(result(&run).await, json!([7, "ada", receipt.id, stamp]));
        world.end().await;
    }
}

#[tokio::test]
async fn when_is_checked_on_entry_only() {
    for kind in KINDS {
        let asked = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&asked);
        let code = move |engine: wigwag::Builder| {
            let graph = Graph::<Value>::new("g")
                .signal("approval")
                .when(move |order: &Value| {
                    counted.fetch_add(1, Ordering::SeqCst);
                    order["cents"].as_u64() > Some(100)
                })
                .step("cheapen", |ctx: StepCtx<Value>| async move { ctx.update(|order| order["cents"] = json!(1)) });
            engine.workflow(graph)
        };
        let world = World::start(kind, code).await;
        let small = world.begin_with("g", "small", &json!({"cents": 5})).await;
        assert_eq!(result(&small).await["approval"], json!(null), "a wait whose condition is false is skipped");
        assert_eq!(count(&small, "signal.waiting").await, 0);
        let large = world.begin_with("g", "large", &json!({"cents": 500})).await;
        let before = asked.load(Ordering::SeqCst);
        assert_eq!(large.status().await.unwrap(), Status::WaitingSignal, "it was cheapened after it was entered");
        world.advance(DAY * 3).await;
        large.signal("approval", &1).await.unwrap();
        world.settle().await;
        assert_eq!(result(&large).await["approval"], json!(1));
        assert_eq!(asked.load(Ordering::SeqCst), before);
        world.end().await;
    }
}

#[tokio::test]
async fn a_signal_in_the_inbox_is_consumed_at_once_and_the_run_never_parks() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.workflow(order()).function("f", 1, approval)).await;
        for (of, input) in [("order", json!({})), ("f", json!(null))] {
            let run = world.client().start(of, &input).id(of).delay(HOUR).await.unwrap();
            assert_eq!(run.signal("approval", "ada").await.unwrap().state, SignalState::Buffered);
            world.run_until_idle().await;
            assert_eq!(run.status().await.unwrap(), Status::Completed);
            assert_eq!(count(&run, "run.parked").await, 0, "{:?}", event_names(&run).await);
            assert_eq!((count(&run, "signal.waiting").await, count(&run, "signal.received").await), (1, 1));
        }
        world.end().await;
    }
}

#[tokio::test]
async fn else_the_wait_is_recorded_with_point_and_deadline_and_the_run_parks() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.workflow(order()).function("f", 1, approval)).await;
        for (of, input) in [("order", json!({})), ("f", json!(null))] {
            let began = world.now();
            let run = world.begin_with(of, of, &input).await;
            let events = events(&run).await;
            let waiting = events.iter().find_map(|event| match event {
                Event::SignalWaiting(waiting) => Some(waiting),
                _ => None,
            });
            let waiting = waiting.unwrap();
            assert_eq!((waiting.point.as_str(), waiting.name.as_str()), ("approval", "approval"));
            let deadline = waiting.deadline.unwrap();
            assert!(deadline >= began.after(HOUR) && deadline < began.after(HOUR + SECOND), "{deadline}");
            assert_eq!(event_names(&run).await.last(), Some(&"run.parked"));
            assert!(run.get().await.unwrap().run().parked);
        }
        world.end().await;
    }
}

#[tokio::test]
async fn a_wait_is_added_to_the_waiting_index_and_removed_when_it_ends() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.workflow(order()).function("f", 1, approval)).await;
        for (of, input) in [("order", json!({})), ("f", json!(null))] {
            for end in ["signal", "timeout", "cancel"] {
                let id = format!("{of}-{end}");
                let run = world.begin_with(of, &id, &input).await;
                assert_eq!(world.keys("waiting/").await, [format!("waiting/approval/{id}~0000000001")]);
                match end {
                    "signal" => _ = run.signal("approval", "ada").await.unwrap(),
                    "timeout" => world.advance(HOUR).await,
                    _ => _ = run.cancel().await.unwrap(),
                }
                world.settle().await;
                assert!(run.status().await.unwrap().is_final());
                assert!(world.keys("waiting/").await.is_empty(), "{id}");
            }
        }
        world.end().await;
    }
}

#[tokio::test]
async fn the_deadline_is_a_hint() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, approval)).await;
        let run = world.begin("f", "r").await;
        let deadline = run.waiting().await.unwrap()[0].deadline.unwrap();
        let dues: Vec<_> = world
            .keys("due/")
            .await
            .iter()
            .filter_map(|key| if let Ok(Key::Due(hint)) = key.parse() { Some(hint.due) } else { None })
            .collect();
        assert_eq!(dues, [deadline], "and there is no other");
        world.end().await;
    }
}

#[tokio::test]
async fn a_timeout_without_on_timeout_fails_the_step_with_signal_timeout_for_good() {
    for kind in KINDS {
        let graph = order();
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("order", "r", &json!({})).await;
        world.run_until_idle().await;
        let error = within(run.result_payload()).await.unwrap_err();
        let fault = error.fault().unwrap();
        assert_eq!((error.kind(), fault.kind.as_str()), (ErrorKind::RunFailed, "SignalTimeout"));
        assert_eq!(fault.point.as_ref().unwrap().as_str(), "approval");
        assert_eq!(count(&run, "signal.waiting").await, 1, "it is not tried again");
        assert_eq!(count(&run, "signal.timeout").await, 1);
        world.end().await;
    }
}

#[tokio::test]
async fn on_timeout_returning_ok_continues_with_its_state() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g")
            .signal("approval")
            .timeout(HOUR)
            .on_timeout(|order: &mut Value| {
                order["by"] = json!("nobody");
                Ok::<_, Failure>(())
            })
            .step("ship", |ctx: StepCtx<Value>| async move { ctx.data() })
            .after("approval");
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({"item": 1})).await;
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!({"item": 1, "by": "nobody"}));
        world.end().await;
    }
}

#[tokio::test]
async fn on_timeout_returning_an_error_fails_the_run_with_it() {
    for kind in KINDS {
        let refuse = |_: &mut Value| Err::<(), _>(permanent("nobody answered"));
        let graph = Graph::<Value>::new("g").signal("approval").timeout(HOUR).on_timeout(refuse);
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        world.run_until_idle().await;
        let error = within(run.result_payload()).await.unwrap_err();
        assert_eq!(error.fault().unwrap().message, "nobody answered");
        world.end().await;
    }
}

#[tokio::test]
async fn a_run_continues_after_the_timeout_of_an_optional_wait() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g")
            .signal("approval")
            .timeout(HOUR)
            .on_failure(OnFailure::Continue)
            .step("ship", |_: StepCtx<Value>| async { Ok::<_, Failure>("shipped") })
            .after("approval");
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!("shipped"));
        world.end().await;
    }
}

#[tokio::test]
async fn in_a_function_a_timeout_gives_none() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, approval)).await;
        let run = world.begin("f", "r").await;
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!(null));
        assert!(world.kit().elapsed() >= HOUR);
        world.end().await;
    }
}

#[tokio::test]
async fn a_wait_with_a_zero_timeout_consumes_a_buffered_signal() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let before: Option<u32> = ctx.wait("number").timeout(std::time::Duration::ZERO).await?;
            ctx.sleep("nap", HOUR).await?;
            let after: Option<u32> = ctx.wait("number").timeout(std::time::Duration::ZERO).await?;
            Ok::<_, Failure>(json!([before, after]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        run.signal("number", &1).await.unwrap();
        world.advance(HOUR).await;
        assert_eq!(result(&run).await, json!([null, 1]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_deadline_that_fires_after_the_signal_came_does_nothing() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let first: Option<u32> = ctx.wait("approval").timeout(HOUR).await?;
            let second: u32 = ctx.wait("approval").await?;
            Ok::<_, Failure>(json!([first, second]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        // The old wake-up of the deadline is kept, as after a lost delete.
        let hint = world.keys("due/").await.remove(0);
        run.signal("approval", &1).await.unwrap();
        world.settle().await;
        let body = json!({"type": "f", "run": "workflow/r"}).to_string();
        let batch = wigwag_store::Batch::new().put(hint, body);
        wigwag_store::Store::write(&world.store, batch).await.unwrap();
        world.advance(HOUR * 2).await;
        assert_eq!(count(&run, "signal.timeout").await, 0);
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
        run.signal("approval", &2).await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!([1, 2]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_deadline_that_fires_after_cancellation_does_nothing() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.workflow(order()).function("f", 1, approval)).await;
        for (of, input) in [("order", json!({})), ("f", json!(null))] {
            let run = world.begin_with(of, of, &input).await;
            run.cancel().await.unwrap();
            // The cancel is stored, and then the deadline passes before a worker checks the run.
            world.move_clock(HOUR * 2);
            world.settle().await;
            assert_eq!(run.status().await.unwrap(), Status::Cancelled);
            assert_eq!((count(&run, "signal.timeout").await, count(&run, "signal.closed").await), (0, 1));
            world.advance(DAY).await;
            assert_eq!(run.status().await.unwrap(), Status::Cancelled);
        }
        world.end().await;
    }
}

#[tokio::test]
async fn of_signal_and_timeout_at_the_same_moment_the_log_has_exactly_one() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, approval)).await;
        for number in 0..20_u64 {
            let id = format!("r{number}");
            let run = world.begin("f", &id).await;
            let deadline = run.waiting().await.unwrap()[0].deadline.unwrap();
            // From ten microseconds before the deadline to ten after it.
            let stamp = wigwag::Time::from_micros(deadline.micros() + number - 10);
            world.put_signal(&id, "approval", stamp, &json!("ada")).await;
            world.advance(HOUR).await;
            let expected = if stamp <= deadline { json!("ada") } else { json!(null) };
            assert_eq!(result(&run).await, expected, "{number}");
            let (received, timeout) = (count(&run, "signal.received").await, count(&run, "signal.timeout").await);
            assert_eq!(received + timeout, 1);
        }
        world.end().await;
    }
}

#[tokio::test]
async fn a_pause_moves_the_deadline_by_as_long_as_it_lasts() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.workflow(order()).function("f", 1, approval)).await;
        for (of, input) in [("order", json!({})), ("f", json!(null))] {
            let run = world.begin_with(of, of, &input).await;
            world.advance(MINUTE * 30).await;
            run.pause().await.unwrap();
            world.settle().await;
            world.advance(DAY).await;
            assert_eq!(run.status().await.unwrap(), Status::Paused, "a paused run is not timed out");
            run.resume().await.unwrap();
            world.settle().await;
            world.advance(MINUTE * 29).await;
            assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
            run.signal("approval", "ada").await.unwrap();
            world.settle().await;
            assert_eq!(run.status().await.unwrap(), Status::Completed);
        }
        world.end().await;
    }
}

#[tokio::test]
async fn a_signal_to_a_paused_run_is_consumed_when_it_is_resumed_although_its_deadline_passed_in_the_pause() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.workflow(order()).function("f", 1, approval)).await;
        for (of, input) in [("order", json!({})), ("f", json!(null))] {
            let run = world.begin_with(of, of, &input).await;
            run.pause().await.unwrap();
            world.settle().await;
            world.advance(HOUR * 5).await;
            assert_eq!(run.signal("approval", "ada").await.unwrap().state, SignalState::Waiting);
            world.advance(HOUR * 5).await;
            assert_eq!(fate_of(&run, "ada").await, Fate::Unconsumed, "no wait of a paused run takes anything");
            run.resume().await.unwrap();
            world.settle().await;
            assert!(took(&fate_of(&run, "ada").await, "approval"));
            assert_eq!(run.status().await.unwrap(), Status::Completed);
        }
        world.end().await;
    }
}

#[tokio::test]
async fn a_signal_sent_while_the_waits_timeout_has_paused_the_run_is_consumed() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g").signal("approval").timeout(HOUR).on_failure(OnFailure::Pause);
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        // No worker checked the run for ten minutes after the deadline.
        world.advance(HOUR + MINUTE * 10).await;
        assert_eq!(run.status().await.unwrap(), Status::Paused);
        world.advance(MINUTE * 30).await;
        run.signal("approval", "ada").await.unwrap();
        world.advance(SECOND).await;
        run.resume().await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!("ada"));
        world.end().await;
    }
}

#[tokio::test]
async fn a_wait_beside_a_running_step_consumes_its_signal_at_once() {
    for kind in KINDS {
        let go = Arc::new(tokio::sync::Notify::new());
        let wait = Arc::clone(&go);
        let graph = Graph::<Value>::new("g")
            .step("slow", move |_: StepCtx<Value>| {
                let go = Arc::clone(&wait);
                async move {
                    go.notified().await;
                    Ok::<_, Failure>(())
                }
            })
            .signal("approval");
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.client().start("g", &json!({})).id("r").await.unwrap();
        let sent = run.signal("approval", &1).and_wait(MINUTE);
        let consumed = world.while_time_passes(sent.into_future()).await.unwrap();
        assert_eq!(consumed.point.as_str(), "approval");
        assert_eq!(run.status().await.unwrap(), Status::Running);
        go.notify_one();
        world.settle().await;
        assert_eq!(run.status().await.unwrap(), Status::Completed);
        world.end().await;
    }
}

#[tokio::test]
async fn a_wait_beside_a_step_that_runs_is_timed_out_in_time() {
    for kind in KINDS {
        let go = Arc::new(tokio::sync::Notify::new());
        let wait = Arc::clone(&go);
        let code = move |ctx: Ctx, (): ()| {
            let go = Arc::clone(&wait);
            async move {
                let slow = ctx.step("slow", || async {
                    go.notified().await;
                    Ok::<_, Failure>(())
                });
                let slow = slow.into_future();
                let timed = ctx.wait::<u32>("approval").timeout(MINUTE);
                let (_, heard) = tokio::try_join!(slow, timed.into_future())?;
                Ok::<_, Failure>(heard)
            }
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.client().start("f", &()).id("r").await.unwrap();
        let over = async {
            while count(&run, "signal.timeout").await == 0 {
                tokio::task::yield_now().await;
            }
        };
        world.while_time_passes(over).await;
        assert!(world.kit().elapsed() < MINUTE * 2);
        go.notify_one();
        world.settle().await;
        assert_eq!(result(&run).await, json!(null));
        world.end().await;
    }
}

#[tokio::test]
async fn signals_do_not_expire_by_themselves_but_waits_do() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let other: Option<u32> = ctx.wait("other").timeout(DAY * 1_000).await?;
            let approval: u32 = ctx.wait("approval").await?;
            Ok::<_, Failure>(json!([other, approval]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        run.signal("approval", &1).await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([null, 1]));
        assert!(world.kit().elapsed() >= DAY * 1_000);
        world.end().await;
    }
}

#[tokio::test]
async fn the_same_name_waited_for_in_a_loop_consumes_one_each_in_order() {
    for kind in KINDS {
        for parked_between in [true, false] {
            let code = move |ctx: Ctx, (): ()| async move {
                let mut all: Vec<u32> = Vec::new();
                for _ in 0..8 {
                    all.push(ctx.wait("number").await?);
                    if parked_between {
                        ctx.sleep("nap", MINUTE).await?;
                    }
                }
                Ok::<_, Failure>(all)
            };
            let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
            let run = world.begin("f", "r").await;
            for number in 0..8 {
                run.signal("number", &number).await.unwrap();
                if number % 3 == 2 {
                    world.settle().await;
                }
            }
            world.run_until_idle().await;
            assert_eq!(result(&run).await, json!([0, 1, 2, 3, 4, 5, 6, 7]));
            let points: Vec<String> = received(&run).await.iter().map(|event| event.point.to_string()).collect();
            let expected = (1..=8).map(|place| if place == 1 { "number".into() } else { format!("number#{place}") });
            assert_eq!(points, expected.collect::<Vec<_>>());
            world.end().await;
        }
    }
}

#[tokio::test]
async fn of_several_open_at_once_the_earliest_opened_gets_it() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g")
            .step("first", |_: StepCtx<Value>| async { Ok::<_, Failure>(()) })
            .delay(HOUR)
            // By name it sorts before the other, but it is opened later.
            .signal_at("a", "number")
            .after("first")
            .signal_at("z", "number");
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        world.advance(HOUR).await;
        let open: Vec<String> = run.waiting().await.unwrap().iter().map(|wait| wait.point.to_string()).collect();
        assert_eq!(open, ["z", "a"]);
        for (number, point) in [(1, "z"), (2, "a")] {
            run.signal("number", &number).await.unwrap();
            world.settle().await;
            assert!(took(&fate_of(&run, number).await, point));
        }
        assert_eq!(result(&run).await, json!({"a": 2, "z": 1}));
        world.end().await;
    }
}

#[tokio::test]
async fn of_several_opened_in_one_entry_the_one_written_first_gets_it() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let waits = (0..3).map(|_| ctx.wait::<u32>("number").into_future());
            futures_util::future::try_join_all(waits).await
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        for number in 0..3 {
            run.signal("number", &number).await.unwrap();
        }
        world.settle().await;
        assert_eq!(result(&run).await, json!([0, 1, 2]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_retry_policy_of_the_wait_is_not_for_its_timeout() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g").signal("approval").timeout(HOUR).retry(Retry::times(5));
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        world.run_until_idle().await;
        assert_eq!(run.status().await.unwrap(), Status::Failed);
        assert_eq!(count(&run, "signal.waiting").await, 1);
        world.end().await;
    }
}

#[tokio::test]
async fn a_deadline_that_is_a_moment_is_not_moved_by_a_pause() {
    for kind in KINDS {
        let code = |ctx: Ctx, until: wigwag::Time| async move { ctx.wait::<u32>("approval").until(until).await };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let until = world.now().after(HOUR);
        let run = world.begin_with("f", "r", &json!(until)).await;
        assert_eq!(run.waiting().await.unwrap()[0].deadline, Some(until));
        run.pause().await.unwrap();
        world.settle().await;
        world.advance(HOUR * 2).await;
        run.signal("approval", &1).await.unwrap();
        run.resume().await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!(null));
        world.end().await;
    }
}

#[tokio::test]
async fn a_signal_that_carries_nothing_is_a_signal() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let came: Option<()> = ctx.wait("go").timeout(HOUR).await?;
            ctx.sleep("nap", HOUR).await?;
            Ok::<_, Failure>(came.is_some())
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        run.signal("go", &()).await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!(true));
        world.end().await;
    }
}

#[tokio::test]
async fn a_task_waits_for_signals_too() {
    for kind in KINDS {
        let code = |ctx: StepCtx<()>| async move { ctx.wait::<u32>("go").await };
        let world = World::start(kind, |engine| engine.task("t", code)).await;
        let task = world.client().submit("t", &()).await.unwrap();
        world.settle().await;
        let found = world.client().runs_waiting_for("go", 10, None).await.unwrap();
        assert_eq!(found.runs[0].id, *task.id());
        assert_eq!(task.signal("go", &7).await.unwrap().state, SignalState::Waiting);
        world.settle().await;
        assert_eq!(within(task.result::<u32>()).await.unwrap(), 7);
        world.end().await;
    }
}
