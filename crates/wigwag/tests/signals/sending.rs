//! Sending: which requests are made, in which order, and the responses.

use serde_json::{Value, json};
use wigwag::{Ctx, ErrorKind, Failure, Graph, PruneOptions, SignalState, Status, StepCtx, permanent};
use wigwag_core::{Fate, Key, Signal, stamp_of};
use wigwag_store::Store as _;

use crate::world::*;

/// Waits for an approval, then sleeps, then waits for a second.
async fn two_approvals(ctx: Ctx, (): ()) -> Result<Value, Failure> {
    let first: Value = ctx.wait("approval").await?;
    ctx.sleep("nap", HOUR).await?;
    let second: Value = ctx.wait("approval").await?;
    Ok(json!([first, second]))
}

async fn one_approval(ctx: Ctx, (): ()) -> Result<Value, Failure> {
    ctx.wait("approval").await
}

fn approved_graph() -> Graph<Value> {
    let schema = json!({"type": "object", "properties": {"by": {"type": "string"}}, "required": ["by"]});
    Graph::<Value>::new("g")
        .signal("approval")
        .schema(schema)
        .step("ship", |ctx: StepCtx<Value>| async move { ctx.output::<Value>("approval").await })
        .after("approval")
}

#[tokio::test]
async fn a_signal_is_an_object_in_the_runs_inbox_and_consuming_it_is_an_event_in_the_runs_log() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, one_approval)).await;
        let run = world.begin("f", "r").await;
        let receipt = run.signal("approval", &json!({"yes": 1})).by("ada").via("http").await.unwrap();
        let keys = world.keys("workflow/r/signals/approval/").await;
        assert_eq!(keys, [format!("workflow/r/signals/approval/{}.json", receipt.suffix)]);
        let body = world.store.get(&keys[0]).await.unwrap().unwrap().body;
        let object: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&object["id"], &object["name"]), (&json!(receipt.id), &json!("approval")));
        assert_eq!(object["payload"], json!({"yes": 1}));
        assert_eq!(object["source"], json!({"by": "ada", "via": "http"}));
        assert!(object["created_at"].is_string());
        world.settle().await;
        let received = received(&run).await;
        assert_eq!(received.len(), 1);
        assert_eq!(received[0].signals[0].signal, receipt.suffix);
        world.end().await;
    }
}

#[tokio::test]
async fn a_signal_stays_for_audit_until_retention_removes_the_run() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, one_approval)).await;
        let run = world.begin("f", "r").await;
        run.signal("approval", "yes").key("k").await.unwrap();
        world.settle().await;
        world.advance(DAY * 400).await;
        assert!(took(&fate_of(&run, "yes").await, "approval"));
        world.client().prune(&PruneOptions::older_than(HOUR)).await.unwrap();
        let left = world.keys("workflow/r/").await;
        assert!(!left.iter().any(|key| key.contains("/signals/") || key.contains("/keys/")), "{left:?}");
        assert_eq!(run.signal("approval", "again").await.unwrap_err().kind(), ErrorKind::Gone);
        world.end().await;
    }
}

#[tokio::test]
async fn schema_and_mode_come_from_the_runs_stored_definition() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g").signal("price").schema(json!({"type": "integer"})).latest();
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        // The run has not started, so no wait determines the schema, and the sending process lacks the code.
        let run = world.client().start("g", &json!({})).id("r").delay(HOUR).await.unwrap();
        let stranger = world.stranger().await;
        let error = stranger.signal("r", "price", "high").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPayload);
        stranger.signal("r", "price", &1).await.unwrap();
        stranger.signal("r", "price", &2).await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!(2));
        assert_eq!(fate_of(&run, 1).await, Fate::Superseded);
        world.end().await;
    }
}

#[tokio::test]
async fn for_functions_schema_and_mode_come_from_the_open_wait() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            ctx.sleep("nap", HOUR).await?;
            ctx.wait::<u32>("price").latest().typed().await
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        world.advance(HOUR).await;
        let stranger = world.stranger().await;
        assert_eq!(stranger.signal("r", "price", "high").await.unwrap_err().kind(), ErrorKind::InvalidPayload);
        run.pause().await.unwrap();
        world.settle().await;
        stranger.signal("r", "price", &1).await.unwrap();
        stranger.signal("r", "price", &2).await.unwrap();
        run.resume().await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!(2));
        assert_eq!(fate_of(&run, 1).await, Fate::Superseded);
        world.end().await;
    }
}

#[tokio::test]
async fn an_early_signal_to_a_function_is_validated_when_consumed_and_a_mismatch_is_kept_and_shown() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            ctx.sleep("nap", HOUR).await?;
            let number = ctx.wait::<u32>("price").typed().await?;
            ctx.sleep("nap", HOUR).await?;
            let text = ctx.wait::<String>("price").typed().await?;
            Ok::<_, Failure>(json!([number, text]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        assert_eq!(run.signal("price", "high").await.unwrap().state, SignalState::Buffered);
        world.advance(HOUR).await;
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal, "the wait does not take what does not fit");
        let shown = signal_with(&run, "high").await;
        assert_eq!(shown.fate, Fate::Unconsumed);
        let misfit = shown.misfit.expect("it is said why the wait does not take it");
        assert!(misfit.contains("`price`") && misfit.contains("high"), "{misfit}");
        run.signal("price", &7).await.unwrap();
        world.settle().await;
        world.advance(HOUR).await;
        assert_eq!(result(&run).await, json!([7, "high"]), "a wait that it fits takes it");
        world.end().await;
    }
}

#[tokio::test]
async fn an_unknown_run_is_not_found() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, one_approval)).await;
        let error = world.client().signal("nobody", "approval", "yes").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("nobody"), "{error}");
        assert!(world.keys("workflow/").await.is_empty(), "nothing is stored");
        world.end().await;
    }
}

#[tokio::test]
async fn a_finished_run_is_not_running_and_its_final_status_is_said() {
    for kind in KINDS {
        let good = |_: Ctx, (): ()| async { Ok::<_, Failure>(()) };
        let bad = |_: Ctx, (): ()| async { Err::<(), _>(permanent("no")) };
        let code = |engine: wigwag::Builder| {
            engine.function("good", 1, good).function("bad", 1, bad).function("f", 1, one_approval)
        };
        let world = World::start(kind, code).await;
        world.begin("good", "completed").await;
        world.begin("bad", "failed").await;
        world.begin("f", "cancelled").await.cancel().await.unwrap();
        world.settle().await;
        for status in ["completed", "failed", "cancelled"] {
            let error = world.client().signal(status, "approval", "yes").await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotRunning);
            assert!(error.to_string().contains(&format!("finished: `{status}`")), "{error}");
            assert!(world.keys(&format!("workflow/{status}/signals/")).await.is_empty(), "nothing is stored");
        }
        world.end().await;
    }
}

#[tokio::test]
async fn a_payload_that_does_not_fit_is_invalid_naming_the_path_in_the_payload() {
    for kind in KINDS {
        let schema = json!({"properties": {"lines": {"items": {"properties": {"count": {"type": "integer"}}}}}});
        let graph = Graph::<Value>::new("g").signal("order").schema(schema);
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        let bad = json!({"lines": [{"count": 1}, {"count": "two"}]});
        let error = run.signal("order", &bad).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidPayload);
        assert!(error.to_string().contains("/lines/1/count") && error.to_string().contains("`order`"), "{error}");
        world.end().await;
    }
}

#[tokio::test]
async fn an_invalid_signal_is_never_stored() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move { ctx.wait::<u32>("price").typed().await };
        let world = World::start(kind, |engine| engine.workflow(approved_graph()).function("f", 1, code)).await;
        let graph = world.begin_with("g", "graph", &json!({})).await;
        let function = world.begin("f", "function").await;
        for (run, name) in [(&graph, "approval"), (&function, "price")] {
            for call in [run.signal(name, "x"), run.signal(name, "x").key("k"), run.signal(name, "x").only_if_waiting()]
            {
                assert_eq!(call.await.unwrap_err().kind(), ErrorKind::InvalidPayload);
            }
            assert!(run.signals(None).await.unwrap().is_empty());
            assert!(world.keys(&format!("workflow/{}/keys/", run.id())).await.is_empty());
        }
        // The rejected signal did not use up the idempotency key.
        graph.signal("approval", &json!({"by": "ada"})).key("k").await.unwrap();
        world.settle().await;
        assert_eq!(result(&graph).await, json!({"by": "ada"}));
        world.end().await;
    }
}

#[tokio::test]
async fn the_stamp_is_not_before_the_stores_now() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, one_approval)).await;
        let run = world.begin("f", "r").await;
        world.advance(HOUR).await;
        let before = world.now();
        for call in [run.signal("other", &1), run.signal("other", &2).key("k")] {
            let stamp = stamp_of(&call.await.unwrap().suffix).unwrap();
            assert!(stamp >= before && stamp <= world.now().after(SECOND), "{stamp}");
        }
        world.end().await;
    }
}

#[tokio::test]
async fn the_stamp_is_behind_the_cursor_of_that_name() {
    for kind in KINDS {
        for key in [None, Some("k")] {
            let world = World::start(kind, |engine| engine.function("f", 1, two_approvals)).await;
            let run = world.begin("f", "r").await;
            // The signal of a process whose clock is ahead by as much as a store's time may be wrong.
            let ahead = world.put_signal("r", "approval", world.now().after(SECOND * 2), &json!(1)).await;
            world.hint(&run).await;
            world.settle().await;
            let call = run.signal("approval", &2);
            let receipt = match key {
                Some(key) => call.key(key).await.unwrap(),
                None => call.await.unwrap(),
            };
            assert!(receipt.suffix > ahead, "{} is behind {ahead}", receipt.suffix);
            world.run_until_idle().await;
            assert_eq!(result(&run).await, json!([1, 2]));
            world.end().await;
        }
    }
}

#[tokio::test]
async fn the_stamp_is_behind_this_senders_last() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, one_approval)).await;
        let run = world.begin("f", "r").await;
        let mut last = String::new();
        // The clock stands still.
        for number in 0..20 {
            let call = run.signal("other", &number);
            let call = if number % 3 == 0 { call.key(format!("k{number}")) } else { call };
            let receipt = call.await.unwrap();
            assert!(stamp_of(&receipt.suffix) > stamp_of(&last), "{} after {last}", receipt.suffix);
            last = receipt.suffix;
        }
        world.end().await;
    }
}

#[tokio::test]
async fn if_the_run_waits_for_this_name_a_hint_due_now_is_put() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move { ctx.wait::<u32>("approval").timeout(HOUR).await };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        let due_now = async || {
            let keys = world.keys("due/").await.into_iter();
            let hints = keys.filter_map(|key| if let Ok(Key::Due(hint)) = key.parse() { Some(hint) } else { None });
            hints.filter(|hint: &wigwag_core::Hint| hint.due <= world.now().after(SECOND)).count()
        };
        let stranger = world.stranger().await;
        stranger.signal("r", "other", &1).await.unwrap();
        assert_eq!(due_now().await, 0, "no wait is open for it");
        stranger.signal("r", "approval", &1).await.unwrap();
        assert_eq!(due_now().await, 1);
        world.settle().await;
        assert_eq!(result(&run).await, json!(1));
        world.end().await;
    }
}

#[tokio::test]
async fn a_wait_that_opens_while_the_signal_is_put_is_hinted_too() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            ctx.sleep("nap", HOUR).await?;
            ctx.wait::<u32>("approval").await
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        let gate = world.hold(Hold::BeforeWrite, "/signals/approval/");
        let sent = spawn(world.stranger().await.signal("r", "approval", &1));
        gate.reached().await;
        // The sender has read the run before its second wait, which opens before the signal is stored.
        world.advance(HOUR).await;
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
        gate.open();
        assert_eq!(within(sent).await.unwrap().unwrap().state, SignalState::Waiting);
        world.settle().await;
        assert_eq!(result(&run).await, json!(1));
        world.end().await;
    }
}

#[tokio::test]
async fn a_signal_to_a_run_that_finished_in_between_is_rejected_and_its_object_stays_unconsumed() {
    for kind in KINDS {
        for hold in [Hold::BeforeWrite, Hold::AfterWrite] {
            let code = |ctx: Ctx, (): ()| async move { ctx.sleep("nap", HOUR).await };
            let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
            let run = world.begin("f", "r").await;
            let gate = world.hold(hold, "/signals/approval/");
            let sent = spawn(world.stranger().await.signal("r", "approval", &1));
            gate.reached().await;
            run.cancel().await.unwrap();
            world.settle().await;
            assert_eq!(run.status().await.unwrap(), Status::Cancelled);
            gate.open();
            let error = within(sent).await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotRunning);
            assert!(error.to_string().contains("`cancelled`"), "{error}");
            assert_eq!(fates(&run, "approval").await, [Fate::NeverConsumed]);
            world.end().await;
        }
    }
}

#[tokio::test]
async fn a_signal_is_acknowledged_only_after_it_and_its_hint_are_there() {
    for kind in KINDS {
        for part in ["/signals/approval/", "due/"] {
            let world = World::start(kind, |engine| engine.function("f", 1, one_approval)).await;
            world.begin("f", "r").await;
            let gate = world.hold(Hold::BeforeWrite, part);
            let sent = spawn(world.stranger().await.signal("r", "approval", &1));
            gate.reached().await;
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert!(!sent.is_finished(), "`{part}` is not there yet");
            gate.open();
            assert_eq!(within(sent).await.unwrap().unwrap().state, SignalState::Waiting);
            world.settle().await;
            world.end().await;
        }
    }
}

#[tokio::test]
async fn the_receipt_says_the_id_and_the_suffix() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, one_approval)).await;
        let run = world.begin("f", "r").await;
        for call in [run.signal("other", &1), run.signal("other", &2).key("k")] {
            let receipt = call.await.unwrap();
            let key = format!("workflow/r/signals/other/{}.json", receipt.suffix);
            let signal = Signal::read(&world.store.get(&key).await.unwrap().unwrap().body).unwrap();
            assert_eq!(signal.id, receipt.id);
            assert!(receipt.suffix.ends_with(&format!("_{}", receipt.id)));
            assert!(!receipt.repeated);
        }
        world.end().await;
    }
}

#[tokio::test]
async fn the_receipt_says_waiting_when_a_wait_is_open() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, one_approval)).await;
        let run = world.begin("f", "r").await;
        assert_eq!(run.signal("approval", &1).await.unwrap().state, SignalState::Waiting);
        world.settle().await;
        world.end().await;
    }
}

#[tokio::test]
async fn the_receipt_says_buffered_when_no_wait_is_open() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, two_approvals)).await;
        let run = world.begin("f", "r").await;
        assert_eq!(run.signal("other", &1).await.unwrap().state, SignalState::Buffered, "it waits for another");
        run.signal("approval", &2).await.unwrap();
        world.settle().await;
        assert_eq!(run.signal("approval", &3).await.unwrap().state, SignalState::Buffered, "it sleeps");
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([2, 3]));
        world.end().await;
    }
}

#[tokio::test]
async fn the_receipt_says_superseded_when_a_newer_signal_was_consumed_in_latest_mode() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let first: u32 = ctx.wait("price").latest().await?;
            let second: u32 = ctx.wait("price").latest().await?;
            Ok::<_, Failure>(json!([first, second]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        let gate = world.hold(Hold::BeforeWrite, "/signals/price/");
        // With a key the stamp is drawn beforehand on both kinds of store.
        let slow = spawn(world.stranger().await.signal("r", "price", &1).key("k"));
        gate.reached().await;
        world.move_clock(SECOND);
        run.signal("price", &2).await.unwrap();
        world.settle().await;
        gate.open();
        assert_eq!(within(slow).await.unwrap().unwrap().state, SignalState::Superseded);
        world.settle().await;
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal, "an old value never comes after a newer one");
        assert_eq!(fate_of(&run, 1).await, Fate::Superseded);
        run.signal("price", &3).await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!([2, 3]));
        world.end().await;
    }
}

#[tokio::test]
async fn one_name_has_one_mode_and_one_schema_in_a_definition() {
    let several = [
        Graph::<Value>::new("g").signal_at("a", "price").latest().signal_at("b", "price"),
        Graph::<Value>::new("g").signal_at("a", "price").schema(json!({"type": "string"})).signal_at("b", "price"),
    ];
    for graph in several {
        let error = wigwag::testing::Kit::start(|engine| engine.workflow(graph)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(["`a`", "`b`", "`price`"].iter().all(|part| error.to_string().contains(part)), "{error}");
    }
}
