//! Idempotency keys: repeated calls store one signal.

use serde_json::{Value, json};
use wigwag::{Ctx, ErrorKind, Failure, Graph, SignalState, Status};
use wigwag_core::{Fate, Key, Name, RunId, RunRef, sha256_hex, suffix};
use wigwag_store::{Batch, Store as _};

use crate::world::*;

/// Consumes this many numbers, sleeps after each, and returns them.
async fn numbers(ctx: Ctx, count: usize) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(ctx.wait("number").await?);
        ctx.sleep("nap", HOUR).await?;
    }
    Ok(all)
}

fn sent(run: &str, name: &str, key: &str) -> String {
    let run = RunRef::workflow(RunId::new(run).unwrap());
    Key::Sent { run, name: Name::new(name).unwrap(), hash: sha256_hex(&[key]) }.to_string()
}

async fn world(kind: Kind) -> World {
    World::start(kind, |engine| engine.function("f", 1, numbers)).await
}

#[tokio::test]
async fn the_key_is_an_object_that_holds_the_suffix_and_a_hash_of_the_payload() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("f", "r", &json!(1)).await;
        let receipt = run.signal("other", &json!({"n": 1})).key("click-1").await.unwrap();
        assert_eq!(world.keys("workflow/r/keys/").await, [sent("r", "other", "click-1")]);
        let body = world.store.get(&sent("r", "other", "click-1")).await.unwrap().unwrap().body;
        let facts: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(facts["signal"], json!(receipt.suffix));
        assert_eq!(facts["payload_sha256"], json!(sha256_hex(&["{\"n\":1}"])));
        world.end().await;
    }
}

#[tokio::test]
async fn no_sender_uses_up_the_key_of_another() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("f", "r", &json!(1)).await;
        let call = |number: u32| run.signal("other", &number).key("k");
        assert!(!call(1).await.unwrap().repeated);
        for sender in ["ada", "bob"] {
            assert!(!call(1).by(sender).await.unwrap().repeated, "`{sender}` has sent nothing before");
            assert!(!call(2).authenticated_as(sender).await.unwrap().repeated, "a claim is not the sender");
            assert!(call(2).authenticated_as(sender).await.unwrap().repeated);
            assert_eq!(call(3).authenticated_as(sender).await.unwrap_err().kind(), ErrorKind::Conflict);
        }
        assert_eq!(run.signals(Some("other")).await.unwrap().len(), 5);
        world.end().await;
    }
}

#[tokio::test]
async fn a_repeat_gives_the_first_receipt_and_is_consumed_once() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("f", "r", &json!(2)).await;
        let first = run.signal("number", &1).key("k").await.unwrap();
        let second = world.stranger().await.signal("r", "number", &1).key("k").await.unwrap();
        assert_eq!((&first.id, &first.suffix, first.state), (&second.id, &second.suffix, second.state));
        assert!(!first.repeated && second.repeated);
        world.advance(HOUR).await;
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal, "there is no second one");
        assert_eq!(run.signals(None).await.unwrap().len(), 1);
        run.signal("number", &2).await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([1, 2]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_repeat_before_a_wait_is_open_is_buffered_once() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("f", "r", &json!(2)).await;
        run.signal("number", &1).await.unwrap();
        world.settle().await;
        let first = run.signal("number", &2).key("k").await.unwrap();
        let second = run.signal("number", &2).key("k").await.unwrap();
        assert_eq!((first.state, second.state), (SignalState::Buffered, SignalState::Buffered));
        assert_eq!(first.suffix, second.suffix);
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([1, 2]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_repeat_at_any_later_time_also_after_it_was_consumed_returns_the_first_receipt() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("f", "r", &json!(3)).await;
        let first = run.signal("number", &1).key("k").await.unwrap();
        world.settle().await;
        for later in [SECOND, MINUTE, HOUR, DAY * 100] {
            world.advance(later).await;
            let again = run.signal("number", &1).key("k").await.unwrap();
            assert_eq!((&again.id, &again.suffix), (&first.id, &first.suffix));
            assert_eq!(again.state, SignalState::Waiting, "a wait has taken it");
            world.settle().await;
        }
        assert_eq!(received(&run).await.len(), 1);
        run.signal("number", &2).await.unwrap();
        run.signal("number", &3).await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([1, 2, 3]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_repeat_after_the_run_finished_with_it_returns_the_first_receipt() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("f", "r", &json!(1)).await;
        let first = run.signal("number", &1).key("k").await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([1]));
        let again = run.signal("number", &1).key("k").await.unwrap();
        assert_eq!((&again.id, &again.suffix, again.state), (&first.id, &first.suffix, SignalState::Waiting));
        world.end().await;
    }
}

#[tokio::test]
async fn a_strict_repeat_after_its_wait_took_it_returns_the_first_receipt() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("f", "r", &json!(1)).await;
        let first = run.signal("number", &1).key("k").only_if_waiting().await.unwrap();
        world.settle().await;
        let again = run.signal("number", &1).key("k").only_if_waiting().await.unwrap();
        assert_eq!((&again.id, &again.suffix, again.state), (&first.id, &first.suffix, SignalState::Waiting));
        world.run_until_idle().await;
        world.end().await;
    }
}

#[tokio::test]
async fn a_repeat_to_a_point_that_took_it_returns_the_first_receipt() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("f", "r", &json!(1)).await;
        let first = run.signal("number", &1).key("k").point("number").await.unwrap();
        world.settle().await;
        let again = run.signal("number", &1).key("k").point("number").await.unwrap();
        assert_eq!((&again.id, &again.suffix, again.state), (&first.id, &first.suffix, SignalState::Waiting));
        world.run_until_idle().await;
        world.end().await;
    }
}

#[tokio::test]
async fn a_repeat_after_the_next_wait_wants_something_else_returns_the_first_receipt() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let first = ctx.wait::<u32>("number").typed().await?;
            let second = ctx.wait::<String>("number").typed().await?;
            Ok::<_, Failure>(json!([first, second]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        let first = run.signal("number", &1).key("k").await.unwrap();
        world.settle().await;
        let again = run.signal("number", &1).key("k").await.unwrap();
        assert_eq!((&again.id, &again.suffix, again.state), (&first.id, &first.suffix, SignalState::Waiting));
        world.end().await;
    }
}

#[tokio::test]
async fn another_payload_under_the_same_key_is_rejected() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("f", "r", &json!(1)).await;
        run.signal("number", &1).key("k").await.unwrap();
        let error = run.signal("number", &2).key("k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        assert!(error.to_string().contains("`k`"), "{error}");
        world.settle().await;
        assert_eq!(run.signal("number", &2).key("k").await.unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(run.signals(None).await.unwrap().len(), 1);
        world.run_until_idle().await;
        world.end().await;
    }
}

#[tokio::test]
async fn the_same_key_of_another_name_or_run_is_another_signal() {
    for kind in KINDS {
        let world = world(kind).await;
        for id in ["r1", "r2"] {
            let run = world.begin_with("f", id, &json!(1)).await;
            assert!(!run.signal("number", &1).key("k").await.unwrap().repeated);
            assert!(!run.signal("other", &2).key("k").await.unwrap().repeated);
            world.settle().await;
        }
        world.end().await;
    }
}

/// Puts only the key, like a sender that dies before it stores its signal.
async fn die_after_key(world: &World, run: &str, payload: &Value) -> String {
    let place = suffix(world.now(), "00000000000000000000000000000abc");
    let facts = json!({"signal": place, "payload_sha256": sha256_hex(&[&payload.to_string()])});
    let batch = Batch::new().put(sent(run, "number", "k"), facts.to_string());
    world.store.write(batch).await.unwrap();
    place
}

#[tokio::test]
async fn a_repeat_after_the_first_sender_died_between_key_and_signal_puts_the_signal() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("f", "r", &json!(1)).await;
        let place = die_after_key(&world, "r", &json!(1)).await;
        assert_eq!(run.signal("number", &2).key("k").await.unwrap_err().kind(), ErrorKind::Conflict);
        let receipt = run.signal("number", &1).key("k").await.unwrap();
        assert_eq!(receipt.suffix, place);
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([1]));
        assert_eq!(run.signals(None).await.unwrap().len(), 1);
        world.end().await;
    }
}

#[tokio::test]
async fn a_repeat_long_after_the_first_sender_died_and_others_were_read_is_still_consumed() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("f", "r", &json!(3)).await;
        let place = die_after_key(&world, "r", &json!(1)).await;
        for number in [2, 3] {
            world.advance(HOUR).await;
            run.signal("number", &number).await.unwrap();
            world.settle().await;
        }
        world.advance(DAY).await;
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
        // The signal is far behind the cursor by now: the late note of the repeated call leads to it.
        let receipt = run.signal("number", &1).key("k").await.unwrap();
        assert_eq!(receipt.suffix, place);
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([2, 3, 1]));
        assert_eq!(run.signal("number", &1).key("k").await.map(|again| again.suffix).unwrap_or(place.clone()), place);
        world.end().await;
    }
}

#[tokio::test]
async fn repeats_at_the_same_moment_are_one_signal() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("f", "r", &json!(2)).await;
        let gate = world.hold(Hold::BeforeWrite, "/signals/number/");
        let slow = spawn(world.stranger().await.signal("r", "number", &1).key("k"));
        gate.reached().await;
        let quick = run.signal("number", &1).key("k").await.unwrap();
        world.settle().await;
        gate.open();
        let slow = within(slow).await.unwrap().unwrap();
        assert_eq!((slow.id, slow.suffix), (quick.id, quick.suffix));
        assert_ne!(slow.repeated, quick.repeated, "one of them was the first");
        world.advance(HOUR).await;
        assert_eq!(received(&run).await.len(), 1);
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
        world.end().await;
    }
}

#[tokio::test]
async fn a_repeat_of_one_whose_wait_ended_first_is_not_waiting_again() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g").signal("number").timeout(HOUR).on_timeout(|_| Ok::<_, Failure>(()));
        let graph = graph.signal_at("second", "number").after("number");
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        let gate = world.hold(Hold::BeforeWrite, "/signals/number/");
        let sent = spawn(world.stranger().await.signal("r", "number", &1).key("k").only_if_waiting());
        gate.reached().await;
        world.advance(HOUR).await;
        gate.open();
        assert_eq!(within(sent).await.unwrap().unwrap_err().kind(), ErrorKind::NotWaiting);
        // The second wait is open now, but the signal of that key was for the first.
        let again = run.signal("number", &1).key("k").only_if_waiting().await.unwrap_err();
        assert_eq!(again.kind(), ErrorKind::NotWaiting);
        world.settle().await;
        assert_eq!(fates(&run, "number").await, [Fate::Void]);
        run.signal("number", &2).await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!(2));
        world.end().await;
    }
}
