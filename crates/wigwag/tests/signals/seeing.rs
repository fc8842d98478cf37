//! Inspection: open waits, the runs that wait, and the outcome of each signal.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wigwag::{Client, Ctx, Failure, Graph, Mode, Status};
use wigwag_core::Fate;
use wigwag_store::{Batch, Store as _};

use crate::world::*;

async fn approval(ctx: Ctx, (): ()) -> Result<Option<Value>, Failure> {
    ctx.wait("approval").timeout(HOUR).await
}

#[tokio::test]
async fn waiting_gives_every_open_wait_with_name_point_since_deadline_and_schema() {
    for kind in KINDS {
        let schema = json!({"type": "integer"});
        let graph = Graph::<Value>::new("g")
            .signal_at("price", "amount")
            .schema(schema.clone())
            .latest()
            .timeout(HOUR)
            .signal("vote")
            .quorum(3);
        let code = |ctx: Ctx, (): ()| async move { ctx.wait::<u32>("amount").typed().await };
        let world = World::start(kind, |engine| engine.workflow(graph).function("f", 1, code)).await;
        world.advance(HOUR).await;
        let began = world.now();
        let run = world.begin_with("g", "r", &json!({})).await;
        // A process without the code returns the same.
        for client in [world.client(), world.stranger().await] {
            let open = client.run("r").unwrap().waiting().await.unwrap();
            let [price, vote] = &open[..] else { panic!("{open:?}") };
            assert_eq!((price.name.as_str(), price.point.as_str()), ("amount", "price"));
            assert_eq!((price.mode, price.quorum, price.schema.as_ref()), (Mode::Latest, 1, Some(&schema)));
            assert!(price.since.unwrap() >= began && price.deadline.unwrap() >= began.after(HOUR));
            assert_eq!((vote.name.as_str(), vote.quorum), ("vote", 3));
            assert_eq!((vote.deadline, vote.schema.as_ref()), (None, None));
        }
        let function = world.begin("f", "f").await;
        let open = function.waiting().await.unwrap();
        assert_eq!(open[0].schema.as_ref().unwrap()["type"], json!("integer"), "of a function the wait says it");
        run.signal("amount", &1).await.unwrap();
        world.settle().await;
        assert_eq!(run.waiting().await.unwrap().len(), 1);
        world.end().await;
    }
}

/// Returns all pages of the runs that wait for an approval.
async fn pages(client: &Client, limit: usize) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = client.runs_waiting_for("approval", limit, after.as_deref()).await.unwrap();
        all.push(page.runs.iter().map(|run| run.id.to_string()).collect());
        match page.next {
            Some(next) => after = Some(next),
            None => return all,
        }
    }
}

#[tokio::test]
async fn runs_waiting_for_gives_runs_with_age_and_deadline() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, approval)).await;
        world.advance(HOUR).await;
        let run = world.begin("f", "r").await;
        let found = world.stranger().await.runs_waiting_for("approval", 10, None).await.unwrap();
        let [waiting] = &found.runs[..] else { panic!("{found:?}") };
        let wait = &run.waiting().await.unwrap()[0];
        assert_eq!((waiting.id.as_str(), waiting.of.as_str(), waiting.status), ("r", "f", Status::WaitingSignal));
        assert_eq!(&waiting.wait, wait);
        assert!(wait.since.is_some() && wait.deadline.is_some());
        assert_eq!(found.next, None);
        assert!(world.client().runs_waiting_for("other", 10, None).await.unwrap().runs.is_empty());
        assert!(world.client().runs_waiting_for("appro", 10, None).await.unwrap().runs.is_empty());
        world.end().await;
    }
}

#[tokio::test]
async fn runs_waiting_for_goes_page_by_page() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, approval)).await;
        for number in 0..5 {
            world.begin("f", &format!("r{number}")).await;
        }
        let client = world.client();
        assert_eq!(pages(&client, 2).await, [vec!["r0", "r1"], vec!["r2", "r3"], vec!["r4"]]);
        assert_eq!(pages(&client, 10).await, [["r0", "r1", "r2", "r3", "r4"]]);
        let all: Vec<String> = pages(&client, 1).await.concat();
        assert_eq!(all, ["r0", "r1", "r2", "r3", "r4"]);
        world.end().await;
    }
}

#[tokio::test]
async fn runs_waiting_for_is_checked_against_the_run() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            let first: Option<Value> = ctx.wait("approval").timeout(HOUR).await?;
            let second: Value = ctx.wait("approval").await?;
            Ok::<_, Failure>(json!([first, second]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        world.begin("f", "b").await;
        let done = world.begin("f", "c").await;
        done.cancel().await.unwrap();
        world.begin("f", "d").await;
        world.advance(HOUR).await;
        // Keys left by dead processes: of no run, of an ended run, of an ended wait, and an invalid key.
        let stale = ["a~0000000001", "c~0000000001", "d~0000000001", "nonsense"];
        for place in stale {
            let batch = Batch::new().put(format!("waiting/approval/{place}"), "{}");
            world.store.write(batch).await.unwrap();
        }
        for limit in [1, 2, 100] {
            assert_eq!(pages(&world.client(), limit).await.concat(), ["b", "d"], "by {limit}");
        }
        world.store.write(Batch::new().delete("waiting/approval/nonsense")).await.unwrap();
        world.advance(HOUR * 2).await;
        assert_eq!(world.client().sweep(false).await.unwrap().stale_waits, 3);
        world.end().await;
    }
}

#[tokio::test]
async fn a_paused_run_is_among_those_that_wait() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, approval)).await;
        let run = world.begin("f", "r").await;
        run.pause().await.unwrap();
        world.settle().await;
        let found = world.client().runs_waiting_for("approval", 10, None).await.unwrap();
        assert_eq!(found.runs[0].status, Status::Paused);
        world.end().await;
    }
}

#[tokio::test]
async fn a_run_that_waits_while_a_step_of_it_runs_is_among_those_that_wait() {
    for kind in KINDS {
        let go = std::sync::Arc::new(tokio::sync::Notify::new());
        let wait = std::sync::Arc::clone(&go);
        let graph = Graph::<Value>::new("g").signal("approval").step("slow", move |_: wigwag::StepCtx<Value>| {
            let go = std::sync::Arc::clone(&wait);
            async move {
                go.notified().await;
                Ok::<_, Failure>(())
            }
        });
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.client().start("g", &json!({})).id("r").await.unwrap();
        assert_eq!(run.waiting().await.unwrap().len(), 1);
        let found = world.client().runs_waiting_for("approval", 10, None).await.unwrap();
        go.notify_one();
        world.settle().await;
        assert_eq!(found.runs.len(), 1, "it can be approved now");
        world.end().await;
    }
}

#[tokio::test]
async fn waiting_runs_gives_the_runs_that_wait_for_anything() {
    for kind in KINDS {
        let code = |ctx: Ctx, name: String| async move { ctx.wait::<Value>(&name).await };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        for name in ["b", "a", "c"] {
            world.begin_with("f", &format!("run-{name}"), &json!(name)).await;
        }
        let found = world.client().waiting_runs(2, None).await.unwrap();
        let names: Vec<&str> = found.runs.iter().map(|run| run.wait.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        let rest = world.client().waiting_runs(2, found.next.as_deref()).await.unwrap();
        assert_eq!((rest.runs[0].id.as_str(), rest.next), ("run-c", None));
        world.end().await;
    }
}

/// The view of each signal, by payload.
async fn shown(world: &World, id: &str) -> BTreeMap<String, Value> {
    let views = world.stranger().await.run(id).unwrap().signals(None).await.unwrap();
    let one = |view: &wigwag::SignalView| (view.payload.value().to_string(), serde_json::to_value(view).unwrap());
    views.iter().map(one).collect()
}

#[tokio::test]
async fn signals_gives_the_inbox_with_each_signals_fate() {
    for kind in KINDS {
        let code = |ctx: Ctx, (): ()| async move {
            ctx.sleep("nap", HOUR).await?;
            let price: u32 = ctx.wait("price").latest().await?;
            let votes: Option<Vec<u32>> = ctx.wait("vote").quorum(2).timeout(HOUR).await?;
            let first: u32 = ctx.wait("number").await?;
            ctx.sleep("nap", DAY).await?;
            Ok::<_, Failure>(json!([price, votes, first]))
        };
        let world = World::start(kind, |engine| engine.function("f", 1, code)).await;
        let run = world.begin("f", "r").await;
        run.signal("price", &1).await.unwrap();
        run.signal("price", &2).await.unwrap();
        world.advance(HOUR).await;
        run.signal("vote", &3).by("eve").only_if_waiting().await.unwrap();
        run.signal("other", &4).by("ada").via("http").await.unwrap();
        world.advance(HOUR).await;
        run.signal("number", &5).await.unwrap();
        world.settle().await;
        let before = shown(&world, "r").await;
        let fates: Vec<&Value> = before.values().map(|view| &view["fate"]).collect();
        assert_eq!(fates, ["superseded", "consumed", "void", "unconsumed", "consumed"]);
        assert_eq!(before["2"]["point"], json!("price"));
        assert!(before["2"]["at"].is_string());
        assert_eq!(before["4"]["source"], json!({"by": "ada", "via": "http"}));
        world.run_until_idle().await;
        let after = shown(&world, "r").await;
        assert_eq!(after["4"]["fate"], json!("never_consumed"), "the run has finished");
        assert_eq!(after["5"]["fate"], json!("consumed"));
        assert_eq!(fate_of(&run, 3).await, Fate::Void);
        world.end().await;
    }
}

#[tokio::test]
async fn signals_of_one_name_gives_those_in_order() {
    for kind in KINDS {
        let world = World::start(kind, |engine| engine.function("f", 1, approval)).await;
        let run = world.begin("f", "r").await;
        for number in 0..40 {
            run.signal(if number % 2 == 0 { "even" } else { "odd" }, &number).await.unwrap();
        }
        let views = run.signals(Some("odd")).await.unwrap();
        let numbers: Vec<Value> = views.iter().map(|view| view.payload.value()).collect();
        assert_eq!(numbers, (0..20).map(|number| json!(2 * number + 1)).collect::<Vec<_>>());
        assert_eq!(run.signals(None).await.unwrap().len(), 40);
        world.end().await;
    }
}
