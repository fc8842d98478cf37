//! Runs from start to end on a store in memory, with a clock that is moved by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wigwag::testing::Kit;
use wigwag::{Ctx, Failure, Graph, Status, StepCtx};

#[derive(Debug, Clone, Serialize, Deserialize, PartialEq)]
struct Order {
    item: String,
    cents: u64,
    #[serde(default)]
    approved: bool,
}

fn order() -> Order {
    Order { item: "kettle".into(), cents: 1_999, approved: false }
}

async fn three_steps(ctx: Ctx, start: u64) -> Result<u64, Failure> {
    let a = ctx.step("a", || async { Ok::<_, Failure>(start + 1) }).await?;
    let b = ctx.step("b", || async { Ok::<_, Failure>(a * 2) }).await?;
    ctx.step("c", || async { Ok::<_, Failure>(b + 3) }).await
}

#[tokio::test]
async fn a_function_runs_its_steps_in_order_and_gives_its_result() {
    let kit = Kit::start(|engine| engine.function("three", 1, three_steps)).await.unwrap();
    let run = kit.client().start("three", &4).await.unwrap();
    assert_eq!(run.result::<u64>().await.unwrap(), 13);
    let entries = run.history(1, 100).await.unwrap();
    let names: Vec<Vec<&str>> =
        entries.iter().map(|entry| entry.events.iter().map(|event| event.name()).collect()).collect();
    assert_eq!(
        names,
        [
            vec!["run.started", "run.claimed", "step.started"],
            vec!["step.completed", "step.started"],
            vec!["step.completed", "step.started"],
            vec!["step.completed", "run.completed"],
        ],
        "one commit per moment of progress"
    );
}

#[tokio::test]
async fn a_graph_runs_what_is_ready_and_steps_see_input_outputs_and_data() {
    let graph = || {
        Graph::<Order>::new("order")
            .step("price", |ctx: StepCtx<Order>| async move { Ok::<_, Failure>(ctx.input()?.cents) })
            .step("approve", |ctx: StepCtx<Order>| async move {
                ctx.update(|order| order.approved = true)?;
                Ok::<_, Failure>(())
            })
            .after("price")
            .step("ship", |ctx: StepCtx<Order>| async move {
                let price: u64 = ctx.output("price").await?;
                Ok::<_, Failure>(format!("{} for {price}, approved: {}", ctx.data()?.item, ctx.data()?.approved))
            })
            .after(["price", "approve"])
    };
    let kit = Kit::start(|engine| engine.workflow(graph())).await.unwrap();
    let run = kit.client().start("order", &order()).id("order-17").await.unwrap();
    assert_eq!(run.result::<String>().await.unwrap(), "kettle for 1999, approved: true");
    assert_eq!(run.get().await.unwrap().run().data["approved"], true);
}

#[tokio::test]
async fn a_sleep_parks_the_run_and_survives_a_crash_of_its_worker() {
    let calls = Arc::new(AtomicU32::new(0));
    let code = {
        let calls = Arc::clone(&calls);
        move |ctx: Ctx, (): ()| {
            let calls = Arc::clone(&calls);
            async move {
                ctx.step("before", || async {
                    calls.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, Failure>(())
                })
                .await?;
                ctx.sleep("a-day", Duration::from_secs(86_400)).await?;
                ctx.step("after", || async { Ok::<_, Failure>("done".to_owned()) }).await
            }
        }
    };
    let kit = Kit::start(|engine| engine.function("sleepy", 1, code.clone())).await.unwrap();
    let run = kit.client().start("sleepy", &()).id("s").await.unwrap();
    kit.settle().await.unwrap();
    let view = run.get().await.unwrap();
    assert_eq!(view.status(), Status::Running);
    assert!(view.next_at().is_some(), "a run asleep says until when");
    let kit = kit.crash(|engine| engine.function("sleepy", 1, code)).await.unwrap();
    let run = kit.client().run("s").unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.result::<String>().await.unwrap(), "done");
    assert_eq!(calls.load(Ordering::SeqCst), 1, "a recorded step never runs again");
}
