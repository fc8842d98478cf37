//! Late arrivals: a signal that appears behind the cursor is not skipped, and none is consumed twice.

use serde_json::{Value, json};
use wigwag::{Ctx, ErrorKind, Failure, Graph, RunHandle, SignalState, Status};
use wigwag_core::{Event, Fate, SignalLate};

use crate::world::*;

/// A world with `numbers` and `prices`, which consume a count of signals and sleep after each.
async fn world(kind: Kind) -> World {
    let world = World::start(kind, |engine| engine.function("numbers", 1, numbers).function("prices", 1, prices)).await;
    world.advance(HOUR).await;
    world
}

async fn late_notes(run: &RunHandle) -> Vec<SignalLate> {
    let all = events(run).await.into_iter();
    all.filter_map(|event| if let Event::SignalLate(late) = event { Some(late) } else { None }).collect()
}

#[tokio::test]
async fn a_signal_that_appears_behind_the_cursor_within_the_overlap_is_still_consumed() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("numbers", "r", &json!(3)).await;
        run.signal("number", &1).await.unwrap();
        world.settle().await;
        // The sender drew this stamp before the first signal, and its put took nearly five seconds.
        world.put_signal("r", "number", world.now().before(SECOND * 4), &json!(2)).await;
        world.advance(HOUR).await;
        assert!(took(&fate_of(&run, 2).await, "number#2"));
        world.advance(HOUR).await;
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal, "neither is taken again");
        run.signal("number", &3).await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([1, 2, 3]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_signal_behind_the_cursor_is_still_consumed_long_after_it_appeared() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("numbers", "r", &json!(2)).await;
        run.signal("number", &1).await.unwrap();
        world.settle().await;
        world.put_signal("r", "number", world.now().before(SECOND * 4), &json!(2)).await;
        // The reader looks back from its last scan, not from its next.
        world.advance(DAY * 30).await;
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([1, 2]));
        world.end().await;
    }
}

#[tokio::test]
async fn an_unacknowledged_signal_behind_the_overlap_is_shown_as_unacknowledged() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("numbers", "r", &json!(2)).await;
        run.signal("number", &1).await.unwrap();
        world.settle().await;
        world.put_signal("r", "number", world.now().before(MINUTE), &json!(2)).await;
        world.advance(HOUR).await;
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
        assert_eq!(fate_of(&run, 2).await, Fate::Unacknowledged);
        world.end().await;
    }
}

/// Sends a number with an idempotency key (so that its stamp is drawn beforehand on both kinds of store), and holds
/// its put while other signals are read.
async fn send_slowly(world: &World, run: &RunHandle, name: &str) -> wigwag::Result<wigwag::Receipt> {
    let gate = world.hold(Hold::BeforeWrite, &format!("/signals/{name}/"));
    let slow = spawn(world.stranger().await.signal(run.id(), name, &1).key("slow"));
    gate.reached().await;
    world.move_clock(MINUTE);
    run.signal(name, &2).await.unwrap();
    world.settle().await;
    gate.open();
    within(slow).await.unwrap()
}

#[tokio::test]
async fn a_sender_slower_than_the_put_limit_sends_a_late_note_and_its_signal_is_offered_whatever_the_cursor_says() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("numbers", "r", &json!(2)).await;
        let receipt = send_slowly(&world, &run, "number").await.unwrap();
        assert_eq!(receipt.state, SignalState::Buffered);
        world.settle().await;
        let notes = late_notes(&run).await;
        assert_eq!(notes.len(), 1);
        assert_eq!((&notes[0].signal, &notes[0].refused), (&receipt.suffix, &None));
        assert!(world.keys("workflow/r/signals/.control/").await.is_empty(), "a note goes once it is in the log");
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([2, 1]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_slow_sender_is_acknowledged_only_after_its_late_note_is_there() {
    for kind in KINDS {
        let world = world(kind).await;
        world.begin_with("numbers", "r", &json!(1)).await;
        let gate = world.hold(Hold::BeforeWrite, "/signals/number/");
        let note = world.hold(Hold::BeforeWrite, "/signals/.control/");
        let slow = spawn(world.stranger().await.signal("r", "number", &1).key("slow"));
        gate.reached().await;
        world.move_clock(SECOND * 6);
        gate.open();
        note.reached().await;
        assert!(!slow.is_finished());
        note.open();
        within(slow).await.unwrap().unwrap();
        world.run_until_idle().await;
        assert_eq!(received(&world.run("r")).await.len(), 1);
        world.end().await;
    }
}

#[tokio::test]
async fn a_sender_within_the_put_limit_sends_no_late_note() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("numbers", "r", &json!(1)).await;
        let gate = world.hold(Hold::BeforeWrite, "/signals/number/");
        let slow = spawn(world.stranger().await.signal("r", "number", &1).key("slow"));
        gate.reached().await;
        world.move_clock(SECOND * 4);
        gate.open();
        within(slow).await.unwrap().unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([1]));
        assert!(late_notes(&run).await.is_empty());
        world.end().await;
    }
}

#[tokio::test]
async fn a_slow_answer_counts_as_a_slow_put() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            ctx.sleep("nap", HOUR).await?;
            ctx.wait::<u32>("number").await
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        for keyed in [true, false] {
            let gate = world.hold(Hold::AfterWrite, "/signals/number/");
            let call = world.stranger().await.signal("r", "number", &1);
            let slow = spawn(if keyed { call.key("slow") } else { call });
            gate.reached().await;
            world.move_clock(SECOND * 6);
            gate.open();
            within(slow).await.unwrap().unwrap();
            world.settle().await;
        }
        assert_eq!(late_notes(&run).await.len(), 2);
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!(1));
        world.end().await;
    }
}

#[tokio::test]
async fn a_late_note_for_a_signal_that_was_consumed_has_no_effect() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("numbers", "r", &json!(2)).await;
        let receipt = run.signal("number", &1).await.unwrap();
        world.settle().await;
        for span in [SECOND, HOUR, DAY] {
            world.advance(span).await;
            world.put_late_note(&run, "number", &receipt.suffix).await;
            world.settle().await;
            assert!(late_notes(&run).await.last().unwrap().refused.is_some());
        }
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal, "there are no twins");
        run.signal("number", &2).await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([1, 2]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_late_note_is_looked_up_in_the_whole_log_of_a_long_run() {
    async fn many(ctx: Ctx, count: u32) -> Result<u32, Failure> {
        for _ in 0..count {
            ctx.wait::<u32>("number").await?;
        }
        ctx.wait("number").await
    }
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, many)).await;
        let run = world.begin_with("f", "r", &json!(400)).await;
        let first = run.signal("number", &0).await.unwrap();
        for number in 1..400 {
            run.signal("number", &number).await.unwrap();
        }
        world.settle().await;
        assert!(!run.get().await.unwrap().run().is_whole(), "the first points have left the snapshot");
        world.advance(DAY).await;
        world.put_late_note(&run, "number", &first.suffix).await;
        world.settle().await;
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
        assert!(took(&fate_of(&run, 0).await, "number"));
        run.signal("number", &1_000).await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!(1_000));
        world.end().await;
    }
}

#[tokio::test]
async fn a_late_note_for_a_signal_consumed_before_a_restart_has_no_effect() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("numbers", "r", &json!(1)).await;
        let receipt = run.signal("number", &1).await.unwrap();
        world.run_until_idle().await;
        run.restart().await.unwrap();
        world.settle().await;
        world.advance(DAY).await;
        world.put_late_note(&run, "number", &receipt.suffix).await;
        world.settle().await;
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
        assert!(late_notes(&run).await[0].refused.is_some());
        assert!(took(&fate_of(&run, 1).await, "number"), "the log still says who took it");
        run.signal("number", &2).await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([2]));
        world.end().await;
    }
}

#[tokio::test]
async fn two_late_notes_for_one_signal_offer_it_once() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("numbers", "r", &json!(2)).await;
        run.signal("number", &1).await.unwrap();
        world.settle().await;
        let place = world.put_signal("r", "number", world.now().before(MINUTE), &json!(2)).await;
        world.put_late_note(&run, "number", &place).await;
        world.put_late_note(&run, "number", &place).await;
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([1, 2]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_late_note_to_an_open_wait_takes_effect_at_once() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("graph").signal_at("first", "number");
        let graph = graph.signal_at("second", "number").after("first").delay(HOUR);
        let world = World::start(kind, |engine| engine.function("numbers", 1, numbers).workflow(graph)).await;
        world.advance(DAY).await;
        for (of, input, point) in [("numbers", json!(2), "number#2"), ("graph", json!({}), "second")] {
            let run = world.begin_with(of, of, &input).await;
            run.signal("number", &1).await.unwrap();
            world.advance(HOUR).await;
            assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
            let place = world.put_signal(of, "number", world.now().before(HOUR * 2), &json!(2)).await;
            world.hint(&run).await;
            world.settle().await;
            assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
            world.put_late_note(&run, "number", &place).await;
            world.settle().await;
            assert!(took(&fate_of(&run, 2).await, point));
        }
        world.run_until_idle().await;
        world.end().await;
    }
}

#[tokio::test]
async fn a_late_note_for_a_signal_that_no_open_wait_may_take_leaves_the_run_waiting() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("graph").signal_at("first", "number").schema(json!({"type": "integer"}));
        let code = |ctx: Ctx, (): ()| async move { ctx.wait::<u32>("number").typed().await };
        let world = World::start(kind, |engine| engine.function("function", 1, code).workflow(graph)).await;
        world.advance(DAY).await;
        for (of, input) in [("function", json!(null)), ("graph", json!({}))] {
            let run = world.begin_with(of, of, &input).await;
            let place = world.put_signal(of, "number", world.now().before(HOUR), &json!("no number")).await;
            world.put_late_note(&run, "number", &place).await;
            world.settle().await;
            assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
            run.signal("number", &1).await.unwrap();
            world.settle().await;
            assert_eq!(result(&run).await, json!(1));
        }
        world.end().await;
    }
}

#[tokio::test]
async fn several_control_objects_at_once_are_all_folded() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("numbers", "r", &json!(3)).await;
        run.signal("number", &1).await.unwrap();
        world.advance(HOUR).await;
        let stamp = world.now().before(HOUR * 2);
        let first = world.put_signal("r", "number", stamp, &json!(2)).await;
        let second = world.put_signal("r", "number", stamp.after(SECOND), &json!(3)).await;
        world.put_late_note(&run, "number", &first).await;
        world.put_late_note(&run, "number", &second).await;
        world.settle().await;
        assert_eq!(late_notes(&run).await.len(), 2);
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([1, 2, 3]));
        world.end().await;
    }
}

#[tokio::test]
async fn under_latest_a_late_signal_at_or_below_the_cursor_is_superseded() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("prices", "r", &json!(2)).await;
        let receipt = send_slowly(&world, &run, "price").await.unwrap();
        assert_eq!(receipt.state, SignalState::Superseded);
        world.settle().await;
        assert!(late_notes(&run).await.iter().all(|note| note.refused.is_some()));
        world.advance(HOUR).await;
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
        assert_eq!(fate_of(&run, 1).await, Fate::Superseded);
        run.signal("price", &3).await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([2, 3]));
        world.end().await;
    }
}

#[tokio::test]
async fn sending_is_rejected_if_the_stores_time_is_too_uncertain() {
    for kind in KINDS {
        let world = world(kind).await;
        world.begin_with("numbers", "r", &json!(1)).await;
        let sender = world.stranger().await;
        world.set_uncertainty(SECOND * 3);
        let error = sender.signal("r", "number", &1).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("3s"), "{error}");
        assert!(world.keys("workflow/r/signals/").await.is_empty());
        world.set_uncertainty(SECOND * 2);
        sender.signal("r", "number", &1).await.unwrap();
        world.set_uncertainty(std::time::Duration::ZERO);
        world.run_until_idle().await;
        world.end().await;
    }
}
