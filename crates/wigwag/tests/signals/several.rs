//! Waiting for the first of several, for all of several, and for one each of several senders.

use std::time::Duration;

use serde_json::{Value, json};
use wigwag::{Ctx, ErrorKind, Failure, Graph, Payload, Status};
use wigwag_core::{Closing, Event, Fate, Key, Name, RunId, RunRef, Signal, Source, suffix};
use wigwag_store::{Batch, Store as _};

use crate::world::*;

/// Waits for the first of two signals, then for both names again.
async fn any(ctx: Ctx, (): ()) -> Result<Value, Failure> {
    let first = ctx.wait_any::<u32, _>(["approve", "reject"]).timeout(HOUR).await?;
    ctx.sleep("nap", HOUR).await?;
    let (approve, reject): (Option<u32>, Option<u32>) =
        (ctx.wait("approve").timeout(HOUR).await?, ctx.wait("reject").timeout(HOUR).await?);
    Ok(json!([first, approve, reject]))
}

#[tokio::test]
async fn wait_any_takes_the_first_and_says_which() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, any)).await;
        for (name, rest) in [("approve", [json!(null), json!(2)]), ("reject", [json!(2), json!(null)])] {
            let run = world.begin("f", name).await;
            run.signal(name, &1).await.unwrap();
            world.settle().await;
            assert!(run.waiting().await.unwrap().is_empty(), "the other wait is over with it");
            let other = if name == "approve" { "reject" } else { "approve" };
            run.signal(other, &2).await.unwrap();
            world.run_until_idle().await;
            assert_eq!(result(&run).await, json!([[name, 1], rest[0], rest[1]]));
        }
        world.end().await;
    }
}

#[tokio::test]
async fn losers_of_a_race_are_closed_in_the_same_entry() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, any)).await;
        let run = world.begin("f", "r").await;
        run.signal("reject", &1).await.unwrap();
        world.settle().await;
        let entries = run.history(1, 100).await.unwrap();
        let entry = entries.iter().find(|entry| {
            entry
                .events
                .iter()
                .any(|event| matches!(event, Event::SignalReceived(event) if event.name.as_str() == "reject"))
        });
        let closed = entry.unwrap().events.iter().find_map(|event| match event {
            Event::SignalClosed(closed) => Some((closed.point.to_string(), closed.why)),
            _ => None,
        });
        assert_eq!(closed, Some(("approve".to_owned(), Closing::Lost)));
        world.run_until_idle().await;
        world.end().await;
    }
}

#[tokio::test]
async fn of_a_race_whose_signals_are_all_there_the_oldest_wins_and_the_others_stay() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, any)).await;
        let run = world.client().start("f", &()).id("r").delay(HOUR).await.unwrap();
        run.signal("reject", &1).await.unwrap();
        run.signal("approve", &2).await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([["reject", 1], 2, null]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_race_that_times_out_returns_none() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, any)).await;
        let run = world.begin("f", "r").await;
        world.advance(HOUR).await;
        run.signal("approve", &1).await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([null, 1, null]));
        assert_eq!(count(&run, "signal.timeout").await, 3);
        world.end().await;
    }
}

#[tokio::test]
async fn a_race_of_many_leaves_no_wait_open() {
    for kind in KINDS {
        let code =
            |ctx: Ctx, (): ()| async move { ctx.wait_any::<u32, _>((0..64).map(|number| format!("s{number}"))).await };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        assert_eq!(run.waiting().await.unwrap().len(), 64);
        run.signal("s41", &1).await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!(["s41", 1]));
        assert_eq!(count(&run, "signal.closed").await, 63);
        world.end().await;
    }
}

#[tokio::test]
async fn more_concurrent_waits_than_the_limit_are_rejected() {
    let world = World::start(Kind::Atomic, |engine| {
        engine.function("f", 1, |ctx: Ctx, count: usize| async move {
            ctx.wait_any::<u32, _>((0..count).map(|number| format!("s{number}"))).await
        })
    })
    .await;
    for count in [0, 65] {
        let run = world.begin_with("f", &format!("r{count}"), &json!(count)).await;
        let error = within(run.result_payload()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::RunFailed);
        assert!(error.to_string().contains(&format!("got: {count}")), "{error}");
    }
    world.end().await;
}

#[tokio::test]
async fn wait_all_takes_all_in_whatever_order_they_come() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move { ctx.wait_all::<u32, _>(["a", "b", "c"]).await };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        for (number, name) in [(1, "c"), (2, "a"), (3, "b")] {
            assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
            run.signal(name, &number).await.unwrap();
            world.settle().await;
        }
        assert_eq!(result(&run).await, json!({"a": 2, "b": 3, "c": 1}));
        world.end().await;
    }
}

#[tokio::test]
async fn wait_all_returns_the_signals_consumed_before_the_deadline() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let all = ctx.wait_all::<u32, _>(["a", "b"]).timeout(HOUR).await?;
            let later: u32 = ctx.wait("b").await?;
            Ok::<_, Failure>(json!([all, later]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        run.signal("a", &1).await.unwrap();
        world.advance(HOUR).await;
        run.signal("b", &2).await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!([{"a": 1}, 2]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_quorum_takes_one_each_of_so_many_distinct_senders() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let votes: Vec<u32> = ctx.wait("vote").quorum(3).await?;
            ctx.sleep("nap", HOUR).await?;
            let next: u32 = ctx.wait("vote").await?;
            Ok::<_, Failure>(json!([votes, next]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        for (by, vote) in [("ada", 1), ("ada", 2), ("bob", 3)] {
            run.signal("vote", &vote).by(by).await.unwrap();
            world.settle().await;
            assert_eq!(count(&run, "signal.received").await, 0, "nothing is taken before there are enough");
        }
        run.signal("vote", &4).by("eve").await.unwrap();
        world.settle().await;
        assert_eq!(count(&run, "signal.received").await, 1);
        let views = run.signals(Some("vote")).await.unwrap();
        let taken: Vec<bool> = views.iter().map(|view| took(&view.fate, "vote")).collect();
        assert_eq!(taken, [true, false, true, true]);
        world.run_until_idle().await;
        assert_eq!(
            result(&run).await,
            json!([[1, 3, 4], 2]),
            "the cursor has not passed the signal that did not count"
        );
        world.end().await;
    }
}

#[tokio::test]
async fn signals_without_a_sender_never_count_towards_a_quorum() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g").signal("vote").quorum(2);
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        for vote in 1..=3 {
            let receipt = run.signal("vote", &vote).await.unwrap();
            assert!(receipt.warning.unwrap().contains("no sender"), "the sender gets a warning");
            world.settle().await;
        }
        let receipt = run.signal("vote", &4).by("ada").await.unwrap();
        assert_eq!(receipt.warning, None);
        world.settle().await;
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
        let views = run.signals(Some("vote")).await.unwrap();
        assert!(views[0].misfit.as_ref().unwrap().contains("no sender"), "{views:?}");
        run.signal("vote", &5).by("bob").await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!([4, 5]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_wait_for_authenticated_senders_rejects_claims() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g").signal("vote").quorum(2).authenticated();
        let code = |ctx: Ctx, (): ()| async move { ctx.wait::<u32>("vote").authenticated().await };
        let world = World::start(kind, |engine| engine.workflow(graph).function("f", 1, code)).await;
        let (graph, function) = (world.begin_with("g", "g", &json!({})).await, world.begin("f", "f").await);
        for run in [&graph, &function] {
            for call in [run.signal("vote", &1), run.signal("vote", &1).by("ada")] {
                let error = call.await.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::RejectedSender, "{error}");
            }
            assert!(run.waiting().await.unwrap()[0].authenticated);
            run.signal("vote", &2).authenticated_as("ada").await.unwrap();
        }
        graph.signal("vote", &3).authenticated_as("bob").await.unwrap();
        world.settle().await;
        assert_eq!((result(&graph).await, result(&function).await), (json!([2, 3]), json!(2)));
        world.end().await;
    }
}

#[tokio::test]
async fn earlier_signals_with_claimed_senders_are_not_consumed_by_an_authenticated_wait() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            ctx.sleep("nap", HOUR).await?;
            ctx.wait::<u32>("vote").authenticated().await
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        run.signal("vote", &1).by("ada").await.unwrap();
        world.advance(HOUR).await;
        world.settle().await;
        let views = run.signals(Some("vote")).await.unwrap();
        assert!(views[0].misfit.as_ref().unwrap().contains("authenticated"), "{views:?}");
        run.signal("vote", &2).authenticated_as("ada").await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!(2));
        world.end().await;
    }
}

#[tokio::test]
async fn a_quorum_that_is_not_reached_in_time_consumes_nothing() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let votes: Option<Vec<u32>> = ctx.wait("vote").quorum(2).timeout(HOUR).await?;
            let next: u32 = ctx.wait("vote").await?;
            Ok::<_, Failure>(json!([votes, next]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        run.signal("vote", &1).by("ada").await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([null, 1]));
        world.end().await;
    }
}

#[tokio::test]
async fn a_quorum_of_less_than_two_senders_is_rejected() {
    for senders in [0, 1] {
        let code = move |ctx: Ctx, (): ()| async move { ctx.wait::<u32>("vote").quorum(senders).await };
        let world = World::start(Kind::Atomic, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        let error = within(run.result_payload()).await.unwrap_err();
        assert!(error.to_string().contains(&format!("got: {senders}")), "{error}");
        world.end().await;
        let graph = Graph::<Value>::new("g").signal("vote").quorum(senders);
        let error = wigwag::testing::Kit::start(|engine| engine.workflow(graph)).await.unwrap_err();
        assert!(error.to_string().contains(&format!("got: {senders}")), "{error}");
    }
}

#[tokio::test]
async fn a_name_is_gathered_once() {
    let code = |ctx: Ctx, (): ()| async move { ctx.wait_all::<u32, _>(["a", "b", "a"]).await };
    let world = World::start(Kind::Atomic, |engine| engine.function("f", 1, code)).await;
    let run = world.begin("f", "r").await;
    let error = within(run.result_payload()).await.unwrap_err();
    assert!(error.to_string().contains("`quorum`"), "{error}");
    world.end().await;
}

/// Puts many signals of one sender directly: more than a page of a listing holds.
async fn flood(world: &World, run: &str, name: &str, count: u64) {
    let run = RunRef::workflow(RunId::new(run).unwrap());
    let name = Name::new(name).unwrap();
    for number in 0..count {
        let stamp = world.now().after(Duration::from_micros(number));
        let id = format!("{number:032x}");
        let signal = Signal {
            id: id.clone(),
            name: name.clone(),
            payload: Payload::of(&number).unwrap(),
            created_at: stamp,
            source: Source::new(Some("eve".into()), "client"),
            only: None,
            point: None,
        };
        let key = Key::Signal { run: run.clone(), name: name.clone(), suffix: suffix(stamp, &id) }.to_string();
        world.store.write(Batch::new().put(key, signal.to_json())).await.unwrap();
    }
}

#[tokio::test]
async fn however_many_signals_one_sender_sends_anothers_vote_is_counted() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g").signal("vote").quorum(2).timeout(HOUR);
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        flood(&world, "r", "vote", 2_100).await;
        world.move_clock(SECOND);
        run.signal("vote", &"yes").by("ada").await.unwrap();
        world.settle().await;
        world.advance(HOUR).await;
        assert_eq!(result(&run).await, json!([0, "yes"]));
        world.end().await;
    }
}

#[tokio::test]
async fn however_many_signals_there_are_the_latest_is_found() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g").signal("price").latest();
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.client().start("g", &json!({})).id("r").delay(HOUR).await.unwrap();
        flood(&world, "r", "price", 2_100).await;
        world.advance(HOUR).await;
        assert_eq!(result(&run).await, json!(2_099));
        world.end().await;
    }
}

#[tokio::test]
async fn however_many_signals_there_are_a_cancel_is_found() {
    for kind in KINDS {
        // A name whose keys sort before the keys of control objects.
        let graph = Graph::<Value>::new("g").signal("approval");
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        flood(&world, "r", "-others", 1_100).await;
        run.cancel().await.unwrap();
        world.settle().await;
        assert_eq!(run.status().await.unwrap(), Status::Cancelled);
        world.end().await;
    }
}

#[tokio::test]
async fn a_strict_signal_that_races_is_void_when_another_wins() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, any)).await;
        let run = world.begin("f", "r").await;
        run.pause().await.unwrap();
        world.settle().await;
        run.signal("approve", &1).await.unwrap();
        run.signal("reject", &2).only_if_waiting().await.unwrap();
        run.resume().await.unwrap();
        world.settle().await;
        assert!(took(&fate_of(&run, 1).await, "approve"));
        assert_eq!(fate_of(&run, 2).await, Fate::Void);
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([["approve", 1], null, null]));
        world.end().await;
    }
}
