//! Four bugs of other engines with signals, each tested on both kinds of store: this engine has none of them.

use std::future::IntoFuture as _;

use serde_json::{Value, json};
use wigwag::{Builder, Ctx, Failure, Graph, SignalState, Status};

use crate::world::*;

/// Waits with a timeout, then again without one.
async fn patient(ctx: Ctx, (): ()) -> Result<Value, Failure> {
    let first: Option<u32> = ctx.wait("number").timeout(HOUR).await?;
    let second: u32 = ctx.wait("number").await?;
    ctx.sleep("nap", HOUR).await?;
    Ok(json!([first, second]))
}

#[tokio::test]
async fn field_bug_a_timed_out_wait_swallows_the_next_signal() {
    for kind in KINDS {
        for crashes in [false, true] {
            let code = |engine: Builder| engine.function("f", 1, patient);
            let world = World::start(kind, code).await;
            world.begin("f", "r").await;
            world.advance(HOUR).await;
            let world = if crashes { world.crash(code).await } else { world };
            let run = world.run("r");
            assert_eq!(count(&run, "signal.timeout").await, 1);
            run.signal("number", &1).await.unwrap();
            world.run_until_idle().await;
            assert_eq!(result(&run).await, json!([null, 1]));
            assert!(took(&fate_of(&run, 1).await, "number#2"));
            world.end().await;
        }
    }
}

#[tokio::test]
async fn field_bug_a_timed_out_wait_swallows_the_next_signal_that_comes_before_the_timeout_is_noticed() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, patient)).await;
        let run = world.begin("f", "r").await;
        world.move_clock(HOUR * 2);
        run.signal("number", &1).await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([null, 1]));
        assert!(took(&fate_of(&run, 1).await, "number#2"));
        world.end().await;
    }
}

/// Races by `wait_any`, then waits for the loser's name.
async fn race_any(ctx: Ctx, (): ()) -> Result<Value, Failure> {
    let (name, number) = ctx.wait_any::<u32, _>(["win", "lose"]).await?;
    ctx.sleep("nap", HOUR).await?;
    Ok(json!([name, number, ctx.wait::<u32>("lose").await?]))
}

/// Like [`race_any`], by a plain `select!`.
async fn race_plain(ctx: Ctx, (): ()) -> Result<Value, Failure> {
    let (win, lose) = (ctx.wait::<u32>("win").into_future(), ctx.wait::<u32>("lose").into_future());
    let (name, number) = tokio::select! {
        number = win => ("win", number?),
        number = lose => ("lose", number?),
    };
    ctx.sleep("nap", HOUR).await?;
    Ok(json!([name, number, ctx.wait::<u32>("lose").await?]))
}

/// Like [`race_plain`], but a replay does not poll the loser.
async fn race_biased(ctx: Ctx, (): ()) -> Result<Value, Failure> {
    let (win, lose) = (ctx.wait::<u32>("win").into_future(), ctx.wait::<u32>("lose").into_future());
    let (name, number) = tokio::select! {
        biased;
        number = win => ("win", number?),
        number = lose => ("lose", number?),
    };
    ctx.sleep("nap", HOUR).await?;
    Ok(json!([name, number, ctx.wait::<u32>("lose").await?]))
}

#[tokio::test]
async fn field_bug_a_races_loser_swallows_one() {
    let code = |engine: Builder| {
        engine.function("any", 1, race_any).function("plain", 1, race_plain).function("biased", 1, race_biased)
    };
    for kind in KINDS {
        for of in ["any", "plain", "biased"] {
            for crashes in [false, true] {
                let world = World::start(kind, code).await;
                let run = world.begin(of, "r").await;
                run.signal("win", &1).await.unwrap();
                world.settle().await;
                assert_eq!(run.signal("lose", &2).await.unwrap().state, SignalState::Buffered, "{of}");
                let world = if crashes { world.crash(code).await } else { world };
                let run = world.run("r");
                world.run_until_idle().await;
                assert_eq!(result(&run).await, json!(["win", 1, 2]), "{of}");
                assert!(took(&fate_of(&run, 2).await, "lose#2"));
                world.end().await;
            }
        }
    }
}

#[tokio::test]
async fn field_bug_a_races_loser_swallows_one_that_comes_with_the_winners() {
    let code = |engine: Builder| {
        engine.function("any", 1, race_any).function("plain", 1, race_plain).function("biased", 1, race_biased)
    };
    for kind in KINDS {
        for of in ["any", "plain", "biased"] {
            let world = World::start(kind, code).await;
            let run = world.client().start(of, &()).id("r").delay(HOUR).await.unwrap();
            run.signal("win", &1).await.unwrap();
            run.signal("lose", &2).await.unwrap();
            world.advance(HOUR).await;
            // A plain race has no order: whichever wait won, the other's signal is still buffered.
            let winner = received(&run).await[0].name.to_string();
            run.signal("lose", &3).await.unwrap();
            world.run_until_idle().await;
            let expected = if winner == "win" { json!(["win", 1, 2]) } else { json!(["lose", 2, 3]) };
            assert_eq!(result(&run).await, expected, "{of}");
            world.end().await;
        }
    }
}

#[tokio::test]
async fn field_bug_a_signal_before_the_wait_is_lost() {
    let nap = |ctx: Ctx, (): ()| async move {
        ctx.sleep("nap", HOUR).await?;
        ctx.wait::<u32>("number").await
    };
    for kind in KINDS {
        for crashes in [false, true] {
            let code = |engine: Builder| {
                engine.function("f", 1, nap).workflow(Graph::<Value>::new("g").signal("number").delay(HOUR))
            };
            let world = World::start(kind, code).await;
            for (of, input) in [("f", json!(null)), ("g", json!({}))] {
                let run = world.begin_with(of, of, &input).await;
                assert_eq!(run.signal("number", &1).await.unwrap().state, SignalState::Buffered);
            }
            let world = if crashes { world.crash(code).await } else { world };
            world.run_until_idle().await;
            for of in ["f", "g"] {
                assert_eq!(result(&world.run(of)).await, json!(1));
            }
            world.end().await;
        }
    }
}

#[tokio::test]
async fn field_bug_a_signal_before_the_wait_is_lost_when_it_is_put_while_the_wait_is_recorded() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, patient)).await;
        let run = world.begin("f", "r").await;
        world.move_clock(HOUR + SECOND);
        // The worker has scanned an empty inbox, and is about to record the second wait: the sender has read the run before
        // that, sees no wait for its signal, and puts no wake-up.
        let entry = world.hold(Hold::BeforeWrite, "workflow/r/log/");
        let meanwhile = async {
            entry.reached().await;
            world.put_signal("r", "number", world.now(), &json!(1)).await;
            entry.open();
        };
        tokio::join!(world.settle(), meanwhile);
        assert!(took(&fate_of(&run, 1).await, "number#2"), "{:?}", event_names(&run).await);
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([null, 1]));
        world.end().await;
    }
}

#[tokio::test]
async fn field_bug_a_signal_behind_the_cursor_is_lost() {
    let pair = |ctx: Ctx, (): ()| async move {
        let first: u32 = ctx.wait("number").await?;
        ctx.sleep("nap", HOUR).await?;
        let second: u32 = ctx.wait("number").await?;
        Ok::<_, Failure>(json!([first, second]))
    };
    for kind in KINDS {
        for waits_already in [false, true] {
            let world = World::start(kind, |engine| engine.function("f", 1, pair)).await;
            world.advance(HOUR).await;
            let run = world.begin("f", "r").await;
            run.signal("number", &1).await.unwrap();
            let behind = world.now().before(SECOND * 3);
            world.settle().await;
            if waits_already {
                world.advance(HOUR).await;
                assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
            }
            world.put_signal("r", "number", behind, &json!(2)).await;
            world.hint(&run).await;
            world.run_until_idle().await;
            assert_eq!(result(&run).await, json!([1, 2]));
            world.end().await;
        }
    }
}

#[tokio::test]
async fn field_bug_a_signal_behind_the_cursor_is_lost_when_its_sender_was_slow() {
    let pair = |ctx: Ctx, (): ()| async move {
        let first: u32 = ctx.wait("number").await?;
        ctx.sleep("nap", HOUR).await?;
        let second: u32 = ctx.wait("number").await?;
        Ok::<_, Failure>(json!([first, second]))
    };
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, pair)).await;
        let run = world.begin("f", "r").await;
        let gate = world.hold(Hold::BeforeWrite, "/signals/number/");
        let slow = spawn(world.stranger().await.signal("r", "number", &2).key("slow"));
        gate.reached().await;
        world.move_clock(MINUTE * 10);
        run.signal("number", &1).await.unwrap();
        world.settle().await;
        gate.open();
        within(slow).await.unwrap().unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!([1, 2]));
        world.end().await;
    }
}
