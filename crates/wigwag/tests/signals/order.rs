//! Modes, the cursor, and the order in which signals are consumed.

use std::future::IntoFuture as _;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use wigwag::{Ctx, Failure, Graph, SignalState, Status};
use wigwag_core::Fate;
use wigwag_store::{Batch, Store as _};

use crate::world::*;

/// A world with `numbers` and `prices`, which consume a count of signals and sleep after each.
async fn world(kind: Kind) -> World {
    World::start(kind, |engine| engine.function("numbers", 1, numbers).function("prices", 1, prices)).await
}

#[tokio::test]
async fn queue_consumes_the_oldest_and_the_rest_stays_for_the_next_wait() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g").signal_at("a", "number").signal_at("b", "number").after("a").delay(HOUR);
        let world = World::start(kind, |engine| engine.function("f", 1, numbers).workflow(graph)).await;
        for (of, input, points, expected) in
            [("f", json!(2), ["number", "number#2"], json!([1, 2])), ("g", json!({}), ["a", "b"], json!(2))]
        {
            let run = world.client().start(of, &input).id(of).delay(HOUR).await.unwrap();
            for number in 1..=3 {
                run.signal("number", &number).await.unwrap();
            }
            world.advance(HOUR).await;
            assert!(took(&fate_of(&run, 1).await, points[0]));
            assert_eq!(fate_of(&run, 2).await, Fate::Unconsumed);
            world.run_until_idle().await;
            assert_eq!(result(&run).await, expected);
            assert!(took(&fate_of(&run, 2).await, points[1]));
            assert_eq!(fate_of(&run, 3).await, Fate::NeverConsumed);
        }
        world.end().await;
    }
}

#[tokio::test]
async fn latest_consumes_the_newest_and_older_ones_stay_readable_as_superseded() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g").signal("price").latest();
        let world = World::start(kind, |engine| engine.function("f", 1, prices).workflow(graph)).await;
        for (of, input, expected) in [("f", json!(1), json!([3])), ("g", json!({}), json!(3))] {
            let run = world.client().start(of, &input).id(of).delay(HOUR).await.unwrap();
            for number in 1..=3 {
                run.signal("price", &number).await.unwrap();
            }
            world.run_until_idle().await;
            assert_eq!(result(&run).await, expected);
            let views = run.signals(Some("price")).await.unwrap();
            let shown: Vec<(Value, bool)> =
                views.iter().map(|view| (view.payload.value(), view.fate == Fate::Superseded)).collect();
            assert_eq!(shown, [(json!(1), true), (json!(2), true), (json!(3), false)]);
        }
        world.end().await;
    }
}

#[tokio::test]
async fn under_latest_the_cursor_moves_past_all_older_ones() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.client().start("prices", &2).id("r").delay(HOUR).await.unwrap();
        run.signal("price", &1).await.unwrap();
        let newest = run.signal("price", &2).await.unwrap();
        world.advance(HOUR).await;
        let view = run.get().await.unwrap();
        assert_eq!(view.run().signals.values().next().unwrap().cursor, newest.suffix);
        world.advance(HOUR).await;
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal, "the older one is not for the next wait");
        run.signal("price", &3).await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([2, 3]));
        world.end().await;
    }
}

#[tokio::test]
async fn latest_mode_has_no_overlap_so_that_an_old_value_never_follows_a_newer_one() {
    for kind in KINDS {
        let world = world(kind).await;
        world.advance(MINUTE).await;
        let run = world.begin_with("prices", "r", &json!(2)).await;
        run.signal("price", &2).await.unwrap();
        world.settle().await;
        let before = world.now().before(SECOND * 2);
        world.put_signal("r", "price", before, &json!(1)).await;
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
async fn the_cursor_is_a_suffix_and_what_it_names_is_not_consumed_again() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("numbers", "r", &json!(2)).await;
        let first = run.signal("number", &1).await.unwrap();
        world.settle().await;
        let view = run.get().await.unwrap();
        assert_eq!(view.run().signals.values().next().unwrap().cursor, first.suffix);
        // A full scan long after the look-back does not consume the signal a second time.
        for span in [HOUR, DAY] {
            world.advance(span).await;
            world.hint(&run).await;
            world.settle().await;
            assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
        }
        run.signal("number", &2).await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([1, 2]));
        world.end().await;
    }
}

#[tokio::test]
async fn the_cursor_never_passes_an_unconsumed_signal_that_was_seen() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g")
            .signal_at("first", "number")
            .signal_at("second", "number")
            .signal_at("third", "number")
            .after(["first", "second"])
            .delay(DAY);
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        run.pause().await.unwrap();
        world.settle().await;
        // The signal is for a later wait: the two open waits see it, and it is far behind the cursor when it is consumed.
        let left = run.signal("number", &3).point("third").await.unwrap();
        run.signal("number", &1).await.unwrap();
        run.signal("number", &2).await.unwrap();
        run.resume().await.unwrap();
        world.settle().await;
        let view = run.get().await.unwrap();
        let inbox = view.run().signals.values().next().unwrap();
        assert!(inbox.cursor < left.suffix, "{inbox:?}");
        assert_eq!(inbox.taken.len(), 2, "signals consumed beyond it are listed separately: {inbox:?}");
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!(3));
        world.end().await;
    }
}

#[tokio::test]
async fn one_senders_signals_keep_their_order() {
    for kind in KINDS {
        for keyed in [false, true] {
            let code = |ctx: Ctx, (): ()| async move {
                let mut all: Vec<u32> = Vec::new();
                for _ in 0..40 {
                    all.push(ctx.wait("number").await?);
                }
                Ok::<_, Failure>(all)
            };
            let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
            let run = world.begin("f", "r").await;
            let sender = world.stranger().await;
            for number in 0..40_u32 {
                let call = sender.signal("r", "number", &number);
                let call = if keyed && number % 2 == 0 { call.key(number.to_string()) } else { call };
                call.await.unwrap();
                if number % 7 == 0 {
                    world.settle().await;
                }
            }
            world.settle().await;
            assert_eq!(result(&run).await, json!((0..40).collect::<Vec<u32>>()));
            world.end().await;
        }
    }
}

#[tokio::test]
async fn senders_racing_get_an_arbitrary_but_stable_order() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let mut all: Vec<u32> = Vec::new();
            for _ in 0..40 {
                all.push(ctx.wait("number").await?);
                ctx.sleep("nap", MINUTE).await?;
            }
            Ok::<_, Failure>(all)
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        let senders = [world.stranger().await, world.stranger().await, world.client()];
        let sends = (0..40).map(|number| senders[number % 3].signal("r", "number", &number).into_future());
        let receipts: Vec<_> = join_all(sends).await.into_iter().map(Result::unwrap).collect();
        world.run_until_idle().await;
        let mut by_key: Vec<usize> = (0..40).collect();
        by_key.sort_by_key(|number| receipts[*number].suffix.clone());
        assert_eq!(result(&run).await, json!(by_key));
        world.end().await;
    }
}

#[tokio::test]
async fn where_the_store_stamps_inside_the_commit_the_order_is_that_of_acknowledgement() {
    let world = world(Kind::Atomic).await;
    let run = world.begin_with("numbers", "r", &json!(2)).await;
    let gate = world.hold(Hold::BeforeWrite, "/signals/number/");
    let slow = spawn(world.stranger().await.signal("r", "number", &2));
    gate.reached().await;
    let quick = run.signal("number", &1).await.unwrap();
    gate.open();
    let slow = within(slow).await.unwrap().unwrap();
    assert!(slow.suffix > quick.suffix);
    world.run_until_idle().await;
    assert_eq!(result(&run).await, json!([1, 2]));
    world.end().await;
}

#[tokio::test]
async fn a_timeout_is_committed_only_after_a_list_that_began_after_the_deadline() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move { ctx.wait_all::<u32, _>(["a", "b"]).timeout(HOUR).await };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        let deadline = run.waiting().await.unwrap()[0].deadline.unwrap();
        world.advance(HOUR - SECOND).await;
        world.put_signal("r", "b", world.now(), &json!(2)).await;
        world.hint(&run).await;
        // The worker lists the inbox before the deadline, and continues after it.
        let gate = world.hold(Hold::AfterList, "workflow/r/signals/");
        let meanwhile = async {
            gate.reached().await;
            assert!(world.now() < deadline);
            world.put_signal("r", "a", world.now(), &json!(1)).await;
            world.move_clock(SECOND * 2);
            gate.open();
        };
        tokio::join!(world.settle(), meanwhile);
        assert_eq!(result(&run).await, json!({"a": 1, "b": 2}));
        world.end().await;
    }
}

#[tokio::test]
async fn a_signal_stamped_at_or_before_the_deadline_wins_although_it_is_noticed_after_it() {
    for kind in KINDS {
        for early in [Duration::ZERO, SECOND] {
            let graph = Graph::<Value>::new("g").signal("approval").timeout(HOUR);
            let world = World::start(kind, |engine| engine.workflow(graph)).await;
            let run = world.begin_with("g", "r", &json!({})).await;
            let deadline = run.waiting().await.unwrap()[0].deadline.unwrap();
            world.put_signal("r", "approval", deadline.before(early), &json!(1)).await;
            world.advance(HOUR * 3).await;
            assert_eq!(result(&run).await, json!(1));
            world.end().await;
        }
    }
}

#[tokio::test]
async fn a_signal_stamped_after_the_deadline_loses_although_the_timeout_is_noticed_after_it() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let first: Option<u32> = ctx.wait("number").timeout(HOUR).await?;
            let second: u32 = ctx.wait("number").await?;
            Ok::<_, Failure>(json!([first, second]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        world.move_clock(HOUR + SECOND);
        // The wait is open in the log, although its deadline has passed.
        assert_eq!(run.signal("number", &1).await.unwrap().state, SignalState::Waiting);
        world.settle().await;
        assert_eq!(result(&run).await, json!([null, 1]));
        assert!(took(&fate_of(&run, 1).await, "number#2"));
        world.end().await;
    }
}

#[tokio::test]
async fn a_wait_times_out_only_when_its_deadline_has_passed_for_certain() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move { ctx.wait::<u32>("number").timeout(HOUR).await };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        let deadline = run.waiting().await.unwrap()[0].deadline.unwrap();
        world.set_uncertainty(SECOND * 2);
        world.move_clock(HOUR + SECOND);
        let looked = async {
            for _ in 0..200 {
                tokio::task::yield_now().await;
            }
        };
        looked.await;
        assert_eq!(count(&run, "signal.timeout").await, 0, "by the sender's clock it may be earlier");
        world.put_signal("r", "number", deadline, &json!(1)).await;
        let ended = world.while_time_passes(run.wait()).await.unwrap();
        assert_eq!(ended.status(), Status::Completed);
        assert_eq!(result(&run).await, json!(1));
        world.set_uncertainty(Duration::ZERO);
        world.end().await;
    }
}

#[tokio::test]
async fn however_many_signals_there_are_they_are_consumed_in_order() {
    for kind in KINDS {
        let code = |ctx: Ctx, count: u32| async move {
            let mut last = None;
            for _ in 0..count {
                let next: u32 = ctx.wait("number").await?;
                if last.is_some_and(|last| next != last + 1) {
                    return Err(wigwag::permanent(format!("{next} after {last:?}")));
                }
                last = Some(next);
            }
            Ok::<_, Failure>(last)
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        // More signals than a page of a listing holds.
        let run = world.client().start("f", &1_100).id("r").delay(HOUR).await.unwrap();
        for number in 0..1_100 {
            run.signal("number", &number).await.unwrap();
        }
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!(1_099));
        world.end().await;
    }
}

#[tokio::test]
async fn invalid_objects_in_the_inbox_are_skipped() {
    for kind in KINDS {
        let world = world(kind).await;
        let run = world.begin_with("numbers", "r", &json!(2)).await;
        let stamp = world.now();
        for (file, body) in [
            (format!("{stamp}_broken.json"), "{"),
            (format!("{stamp}_other.json"), "{\"hello\": 1}"),
            ("README.md".into(), "hello"),
            ("no-stamp.json".into(), "{}"),
        ] {
            let batch = Batch::new().put(format!("workflow/r/signals/number/{file}"), body);
            world.store.write(batch).await.unwrap();
        }
        for number in [1, 2] {
            run.signal("number", &number).await.unwrap();
        }
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([1, 2]));
        assert_eq!(run.signals(None).await.unwrap().len(), 2);
        world.end().await;
    }
}
