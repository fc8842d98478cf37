//! Options of a signal call: only to an open wait, followed, to a run that may not exist, to one step, many at once.

use std::future::IntoFuture as _;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use wigwag::{Ctx, ErrorKind, Failure, Graph, SignalState, Status, StepCtx, permanent};
use wigwag_core::Fate;

use crate::world::*;

async fn approval(ctx: Ctx, (): ()) -> Result<Option<Value>, Failure> {
    ctx.wait("approval").timeout(HOUR).await
}

/// Waits twice for the same signal: the second time without a timeout.
async fn again(ctx: Ctx, (): ()) -> Result<Value, Failure> {
    let first: Option<Value> = ctx.wait("approval").timeout(HOUR).await?;
    let second: Value = ctx.wait("approval").await?;
    Ok(json!([first, second]))
}

#[tokio::test]
async fn only_if_waiting_is_not_waiting_when_no_wait_for_that_name_is_open() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, approval)).await;
        let run = world.begin("f", "r").await;
        for call in [run.signal("other", &1), run.signal("other", &1).key("k")] {
            let error = call.only_if_waiting().await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotWaiting);
            assert!(error.to_string().contains("`other`") && error.to_string().contains("`approval`"), "{error}");
        }
        assert!(run.signals(None).await.unwrap().is_empty(), "nothing is stored");
        world.end().await;
    }
}

#[tokio::test]
async fn only_if_waiting_reaches_the_wait_that_is_open() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, approval)).await;
        let run = world.begin("f", "r").await;
        let receipt = run.signal("approval", &1).only_if_waiting().await.unwrap();
        assert_eq!(receipt.state, SignalState::Waiting);
        world.settle().await;
        assert_eq!(result(&run).await, json!(1));
        world.end().await;
    }
}

#[tokio::test]
async fn a_strict_signal_is_bound_to_its_wait_and_no_later_wait_takes_it_if_that_one_ends_first() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, again)).await;
        let run = world.begin("f", "r").await;
        let gate = world.hold(Hold::BeforeWrite, "/signals/approval/");
        let sent = spawn(world.stranger().await.signal("r", "approval", &1).only_if_waiting());
        gate.reached().await;
        world.advance(HOUR).await;
        gate.open();
        assert_eq!(within(sent).await.unwrap().unwrap_err().kind(), ErrorKind::NotWaiting, "then it is the answer too");
        world.hint(&run).await;
        world.settle().await;
        assert_eq!(run.waiting().await.unwrap()[0].point.as_str(), "approval#2", "the later wait does not take it");
        assert_eq!(fate_of(&run, 1).await, Fate::Void);
        run.signal("approval", &2).await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!([null, 2]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_signal_bound_to_an_ended_wait_counts_as_consumed_and_its_outcome_is_void() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let both: Option<Vec<u32>> = ctx.wait("vote").quorum(2).timeout(HOUR).await?;
            let next: u32 = ctx.wait("vote").await?;
            ctx.sleep("nap", HOUR).await?;
            Ok::<_, Failure>(json!([both, next]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        // The signal is bound to the quorum, which times out without consuming it.
        run.signal("vote", &1).by("eve").only_if_waiting().await.unwrap();
        world.advance(HOUR).await;
        assert_eq!(fate_of(&run, 1).await, Fate::Void);
        let next = run.signal("vote", &2).await.unwrap();
        world.settle().await;
        assert_eq!(fate_of(&run, 1).await, Fate::Void);
        let view = run.get().await.unwrap();
        let (_, inbox) = view.run().signals.iter().next().unwrap();
        assert_eq!(inbox.cursor, next.suffix, "the cursor passes void signals");
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([null, 2]));
        world.end().await;
    }
}

/// A graph whose step or compensation blocks until the test releases it.
fn slow_graph(go: &Arc<Notify>) -> Graph<Value> {
    let (doing, undoing) = (Arc::clone(go), Arc::clone(go));
    Graph::<Value>::new("slow")
        .step("do", move |ctx: StepCtx<Value>| {
            let go = Arc::clone(&doing);
            async move {
                if ctx.input()?["in"] == "do" {
                    go.notified().await;
                }
                Ok::<_, Failure>(())
            }
        })
        .compensate(move |ctx: StepCtx<Value>, _: Option<()>| {
            let go = Arc::clone(&undoing);
            async move {
                if ctx.input()?["in"] == "undo" {
                    go.notified().await;
                }
                Ok::<_, Failure>(())
            }
        })
        .signal("approval")
        .after("do")
        .when(|data: &Value| data["in"] == "do")
        .step("fail", |ctx: StepCtx<Value>| async move {
            if ctx.input()?["in"] == "undo" { Err(permanent("no")) } else { Ok(()) }
        })
        .after("do")
}

async fn becomes(run: &wigwag::RunHandle, status: Status) {
    let there = async {
        while run.status().await.unwrap() != status {
            tokio::task::yield_now().await;
        }
    };
    within(there).await;
}

#[tokio::test]
async fn the_default_is_to_buffer_in_any_unfinished_status() {
    for kind in KINDS {
        let nap = |ctx: Ctx, (): ()| async move {
            ctx.sleep("nap", HOUR).await?;
            ctx.wait::<u32>("approval").await
        };
        let world = World::start(kind, |engine| engine.function("nap", 1, nap).function("f", 1, approval)).await;
        let pending = world.client().start("nap", &()).id("pending").delay(HOUR).await.unwrap();
        let running = world.begin("nap", "running").await;
        let waiting = world.begin("f", "waiting").await;
        let paused = world.begin("nap", "paused").await;
        paused.pause().await.unwrap();
        world.settle().await;
        let expected = [
            (&pending, Status::Pending),
            (&running, Status::Running),
            (&waiting, Status::WaitingSignal),
            (&paused, Status::Paused),
        ];
        for (run, status) in expected {
            assert_eq!(run.status().await.unwrap(), status);
            let name = if status == Status::WaitingSignal { "other" } else { "approval" };
            assert_eq!(run.signal(name, &1).await.unwrap().state, SignalState::Buffered, "{status}");
        }
        paused.resume().await.unwrap();
        world.run_until_idle().await;
        for run in [&pending, &running, &paused] {
            assert_eq!(result(run).await, json!(1));
        }
        world.end().await;
    }
}

#[tokio::test]
async fn a_signal_while_a_step_runs_is_buffered_and_consumed_when_the_wait_is_reached() {
    for kind in KINDS {
        let go = Arc::new(Notify::new());
        let graph = slow_graph(&go);
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.client().start("slow", &json!({"in": "do"})).id("r").await.unwrap();
        assert_eq!(run.signal("approval", &1).await.unwrap().state, SignalState::Buffered);
        go.notify_one();
        world.settle().await;
        assert!(took(&fate_of(&run, 1).await, "approval"));
        world.end().await;
    }
}

#[tokio::test]
async fn a_signal_during_compensating_is_buffered() {
    for kind in KINDS {
        let go = Arc::new(Notify::new());
        let graph = slow_graph(&go);
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.client().start("slow", &json!({"in": "undo"})).id("r").await.unwrap();
        becomes(&run, Status::Compensating).await;
        assert_eq!(run.signal("approval", &1).await.unwrap().state, SignalState::Buffered);
        assert_eq!(fates(&run, "approval").await, [Fate::Unconsumed]);
        go.notify_one();
        world.settle().await;
        assert_eq!(run.status().await.unwrap(), Status::Failed);
        assert_eq!(fates(&run, "approval").await, [Fate::NeverConsumed]);
        world.end().await;
    }
}

#[tokio::test]
async fn and_wait_returns_when_a_wait_consumed_it_with_the_point_and_what_the_run_waits_for_next() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let first: u32 = ctx.wait("approval").await?;
            let second: Option<u32> = ctx.wait("payment").timeout(HOUR).await?;
            Ok::<_, Failure>(json!([first, second]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        for client in [world.client(), world.stranger().await] {
            let name = if count(&run, "signal.received").await == 0 { "approval" } else { "payment" };
            let sent = client.signal("r", name, &1).and_wait(MINUTE).into_future();
            let consumed = world.while_time_passes(sent).await.unwrap();
            assert_eq!(consumed.point.as_str(), name);
            assert_eq!(consumed.receipt.state, SignalState::Waiting);
            world.settle().await;
            let next: Vec<&str> = consumed.next.iter().map(|wait| wait.name.as_str()).collect();
            match name {
                "approval" => assert_eq!((next, consumed.status), (vec!["payment"], Status::WaitingSignal)),
                _ => assert_eq!((next, consumed.status), (vec![], Status::Completed)),
            }
        }
        world.end().await;
    }
}

#[tokio::test]
async fn and_wait_follows_a_signal_that_was_buffered_until_a_wait_to_come_takes_it() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            ctx.sleep("nap", SECOND * 3).await?;
            ctx.wait::<u32>("approval").await
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        let sent = run.signal("approval", &1).and_wait(MINUTE).into_future();
        let consumed = world.while_time_passes(sent).await.unwrap();
        assert_eq!((consumed.receipt.state, consumed.point.as_str()), (SignalState::Buffered, "approval"));
        world.end().await;
    }
}

#[tokio::test]
async fn and_wait_that_times_out_keeps_the_signal() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            ctx.sleep("nap", HOUR).await?;
            ctx.wait::<u32>("approval").await
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        let sent = run.signal("approval", &1).and_wait(SECOND * 5).into_future();
        let error = world.while_time_passes(sent).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(fate_of(&run, 1).await, Fate::Unconsumed);
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!(1));
        world.end().await;
    }
}

#[tokio::test]
async fn and_wait_ends_when_the_run_ends_without_the_signal() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move { ctx.sleep("nap", SECOND * 3).await };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        let sent = run.signal("approval", &1).and_wait(HOUR).into_future();
        let error = world.while_time_passes(sent).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotRunning);
        assert!(error.to_string().contains("`completed`"), "{error}");
        assert!(world.kit().elapsed() < MINUTE, "it does not wait for its own end");
        assert_eq!(fate_of(&run, 1).await, Fate::NeverConsumed);
        world.end().await;
    }
}

#[tokio::test]
async fn and_wait_of_a_strict_signal_ends_when_its_wait_ends_without_it() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let votes: Option<Vec<u32>> = ctx.wait("vote").quorum(2).timeout(SECOND * 3).await?;
            ctx.sleep("nap", HOUR).await?;
            Ok::<_, Failure>(votes)
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        let sent = run.signal("vote", &1).only_if_waiting().and_wait(MINUTE).into_future();
        let error = world.while_time_passes(sent).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotWaiting, "no wait to come takes it: {error} {:?}", error.advice());
        world.run_until_idle().await;
        world.end().await;
    }
}

#[tokio::test]
async fn and_wait_ends_when_a_newer_one_supersedes_the_signal() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            ctx.sleep("nap", SECOND * 3).await?;
            let price: u32 = ctx.wait("price").latest().await?;
            ctx.sleep("nap", HOUR).await?;
            Ok::<_, Failure>(price)
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        let old = spawn(run.signal("price", &1).and_wait(MINUTE));
        world.move_clock(SECOND);
        while run.signals(None).await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        run.signal("price", &2).await.unwrap();
        let error = world.while_time_passes(old).await.unwrap().unwrap_err();
        assert_eq!(fate_of(&run, 1).await, Fate::Superseded);
        assert_eq!(error.kind(), ErrorKind::Conflict, "no wait to come takes it: {error} {:?}", error.advice());
        world.run_until_idle().await;
        world.end().await;
    }
}

#[tokio::test]
async fn start_if_absent_starts_the_run_if_there_is_none_then_delivers() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, approval)).await;
        let call = world.client().signal("r", "approval", &1).start_if_absent("f", &());
        call.await.unwrap();
        world.settle().await;
        assert_eq!(result(&world.run("r")).await, json!(1));
        world.end().await;
    }
}

#[tokio::test]
async fn start_if_absent_by_a_client_without_workers_starts_it_for_others() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, approval)).await;
        let stranger = world.stranger().await;
        let receipt = stranger.signal("r", "approval", &1).start_if_absent("f", &()).await.unwrap();
        assert_eq!(receipt.state, SignalState::Buffered);
        world.settle().await;
        assert_eq!(result(&world.run("r")).await, json!(1));
        world.end().await;
    }
}

#[tokio::test]
async fn start_if_absent_delivers_to_the_run_that_is_there() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, approval)).await;
        let run = world.begin("f", "r").await;
        run.signal("approval", &1).start_if_absent("f", &"a different input").await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!(1));
        world.end().await;
    }
}

#[tokio::test]
async fn two_racing_senders_give_one_run_and_two_signals() {
    async fn pair(ctx: Ctx, _: Value) -> Result<Vec<u32>, Failure> {
        Ok(vec![ctx.wait("number").await?, ctx.wait("number").await?])
    }
    for kind in KINDS {
        for inputs in [["same", "same"], ["one", "another"]] {
            let world = World::start(kind, |engine| engine.function("f", 1, pair)).await;
            // Both senders have found no run before either has created it.
            let gate = world.hold(Hold::BeforeWrite, "workflow/r/log/");
            let slow = spawn(world.client().signal("r", "number", &1).start_if_absent("f", inputs[0]));
            gate.reached().await;
            let quick = world.stranger().await.signal("r", "number", &2).start_if_absent("f", inputs[1]);
            quick.await.unwrap();
            gate.open();
            within(slow).await.unwrap().unwrap();
            world.settle().await;
            let run = world.run("r");
            assert_eq!(count(&run, "run.started").await, 1);
            let mut numbers: Vec<u64> =
                result(&run).await.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect();
            numbers.sort_unstable();
            assert_eq!(numbers, [1, 2]);
            // On a bucket, the second starter has put its wait into the index by then: the sweeper removes it.
            world.advance(HOUR * 2).await;
            world.client().sweep(false).await.unwrap();
            world.end().await;
        }
    }
}

#[tokio::test]
async fn point_addresses_one_wait_when_several_wait_for_the_same_name() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g").signal_at("legal", "approval").signal_at("finance", "approval");
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        run.signal("approval", &1).point("finance").await.unwrap();
        world.settle().await;
        assert!(took(&fate_of(&run, 1).await, "finance"));
        let open: Vec<String> = run.waiting().await.unwrap().iter().map(|wait| wait.point.to_string()).collect();
        assert_eq!(open, ["legal"]);
        run.signal("approval", &2).await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!({"finance": 1, "legal": 2}));
        world.end().await;
    }
}

#[tokio::test]
async fn a_signal_to_a_step_is_not_consumed_by_an_earlier_wait_although_it_is_older() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g").signal_at("legal", "approval").signal_at("finance", "approval").quorum(2);
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        run.signal("approval", &1).point("finance").by("ada").await.unwrap();
        world.settle().await;
        run.signal("approval", &2).by("bob").await.unwrap();
        world.settle().await;
        assert!(took(&fate_of(&run, 2).await, "legal"));
        assert_eq!(fate_of(&run, 1).await, Fate::Unconsumed);
        run.signal("approval", &3).by("eve").await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!({"finance": [1, 3], "legal": 2}));
        world.end().await;
    }
}

#[tokio::test]
async fn point_addresses_a_wait_of_the_graph_that_is_to_come() {
    for kind in KINDS {
        let graph =
            Graph::<Value>::new("g").signal_at("first", "approval").signal_at("second", "approval").after("first");
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        assert_eq!(run.signal("approval", &2).point("second").await.unwrap().state, SignalState::Buffered);
        world.settle().await;
        assert_eq!(fate_of(&run, 2).await, Fate::Unconsumed);
        run.signal("approval", &1).await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!(2));
        assert!(took(&fate_of(&run, 1).await, "first"));
        world.end().await;
    }
}

#[tokio::test]
async fn signal_many_gives_a_result_per_item_in_order() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, approval)).await;
        let mut calls = Vec::new();
        for number in 0..200 {
            let id = format!("r{number}");
            world.client().start("f", &()).id(&id).await.unwrap();
            calls.push(world.client().signal(&id, "approval", &number));
        }
        let answers = within(world.client().signal_many(calls)).await;
        assert_eq!(answers.len(), 200);
        world.settle().await;
        for (number, answer) in answers.into_iter().enumerate() {
            let run = world.run(&format!("r{number}"));
            assert_eq!(result(&run).await, json!(number));
            assert_eq!(run.signals(None).await.unwrap()[0].suffix, answer.unwrap().suffix);
        }
        world.end().await;
    }
}

#[tokio::test]
async fn one_bad_item_of_signal_many_does_not_stop_the_rest() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, approval)).await;
        let (one, two) = (world.begin("f", "r1").await, world.begin("f", "r2").await);
        let client = world.client();
        let calls = [
            client.signal("r1", "approval", &1),
            client.signal("nobody", "approval", &2),
            client.signal("r1", "not a name", &3),
            client.signal("not an id!", "approval", &4),
            client.signal("r2", "approval", &5),
        ];
        let answers = within(client.signal_many(calls)).await;
        let kinds: Vec<Option<ErrorKind>> =
            answers.iter().map(|answer| answer.as_ref().err().map(wigwag::Error::kind)).collect();
        let (absent, name, id) = (ErrorKind::NotFound, ErrorKind::InvalidName, ErrorKind::Invalid);
        assert_eq!(kinds, [None, Some(absent), Some(name), Some(id), None]);
        world.settle().await;
        assert_eq!((result(&one).await, result(&two).await), (json!(1), json!(5)));
        world.end().await;
    }
}

#[tokio::test]
async fn signal_many_is_concurrent() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, approval)).await;
        world.begin("f", "r1").await;
        let second = world.begin("f", "r2").await;
        let gate = world.hold(Hold::BeforeWrite, "workflow/r1/signals/");
        let client = world.client();
        let calls = [client.signal("r1", "approval", &1), client.signal("r2", "approval", &2)];
        let sent = tokio::spawn(async move { client.signal_many(calls).await });
        gate.reached().await;
        let arrives = async {
            while second.signals(None).await.unwrap().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        within(arrives).await;
        gate.open();
        assert!(within(sent).await.unwrap().iter().all(Result::is_ok));
        world.settle().await;
        world.end().await;
    }
}

#[tokio::test]
async fn a_retry_without_a_key_may_be_consumed_twice() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, again)).await;
        let run = world.begin("f", "r").await;
        let first = run.signal("approval", "yes").await.unwrap();
        let second = run.signal("approval", "yes").await.unwrap();
        assert_ne!(first.suffix, second.suffix);
        world.settle().await;
        assert_eq!(result(&run).await, json!(["yes", "yes"]));
        assert!(Duration::ZERO == world.kit().elapsed());
        world.end().await;
    }
}

#[tokio::test]
async fn only_if_waiting_is_rejected_after_the_deadline_of_the_wait() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, again)).await;
        let run = world.begin("f", "r").await;
        // No worker has noticed the timeout yet.
        world.move_clock(HOUR * 2);
        let outcome = run.signal("approval", &1).only_if_waiting().await;
        world.settle().await;
        let fate = run.signals(None).await.unwrap().first().map(|view| view.fate.clone());
        let kind = outcome.map_err(|error| error.kind());
        assert_eq!(kind.unwrap_err(), ErrorKind::NotWaiting, "that wait cannot take it any more: {fate:?}");
        world.end().await;
    }
}

/// Waits for a number and a text of the same name.
async fn number_and_text(ctx: Ctx, (): ()) -> Result<(u32, String), Failure> {
    let number = ctx.wait::<u32>("value").typed().into_future();
    let text = ctx.wait::<String>("value").typed().into_future();
    tokio::try_join!(number, text)
}

#[tokio::test]
async fn of_several_open_at_once_the_earliest_opened_that_the_signal_fits_gets_it() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, number_and_text)).await;
        let run = world.begin("f", "r").await;
        assert_eq!(run.signal("value", &true).await.unwrap_err().kind(), ErrorKind::InvalidPayload, "it fits none");
        run.signal("value", "one").await.unwrap();
        world.settle().await;
        assert!(took(&fate_of(&run, "one").await, "value#2"));
        run.signal("value", &1).await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!([1, "one"]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_strict_signal_is_bound_to_a_wait_that_it_fits() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, number_and_text)).await;
        let run = world.begin("f", "r").await;
        run.signal("value", "one").only_if_waiting().await.unwrap();
        world.settle().await;
        assert!(took(&fate_of(&run, "one").await, "value#2"), "{:?}", signal_with(&run, "one").await);
        world.end().await;
    }
}
