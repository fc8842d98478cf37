//! Tasks, children, fan-out, and steps that run elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use wigwag::testing::Kit;
use wigwag::{Builder, Ctx, Engine, ErrorKind, Failure, Graph, Retry, Status, StepCtx, TaskEnd, permanent};

async fn double(ctx: StepCtx<u64>) -> Result<u64, Failure> {
    Ok(ctx.input()? * 2)
}

#[tokio::test]
async fn a_task_is_one_step_and_its_key_makes_it_the_same_task() {
    let kit = Kit::start(|engine| engine.task("double", double)).await.unwrap();
    let client = kit.client();
    let task = client.submit("double", &21).key("k").await.unwrap();
    assert_eq!(task.result::<u64>().await.unwrap(), 42);
    let again = client.submit("double", &21).key("k").await.unwrap();
    assert_eq!(again.id(), task.id());
    let error = client.submit("double", &22).key("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_ne!(client.submit("double", &21).await.unwrap().id(), task.id());
}

#[tokio::test]
async fn a_task_waits_for_its_start_time_and_expires_when_no_worker_claims_it() {
    let kit = Kit::start(|engine| engine.task("double", double)).await.unwrap();
    let client = kit.client();
    let later = client.submit("double", &1).delay(Duration::from_secs(3_600)).await.unwrap();
    let elsewhere = client.submit("double", &1).queue("gpu").expires_in(Duration::from_secs(60)).await.unwrap();
    kit.settle().await.unwrap();
    assert_eq!(later.status().await.unwrap(), Status::Pending);
    kit.advance(Duration::from_secs(3_601)).await.unwrap();
    assert_eq!(later.status().await.unwrap(), Status::Completed);
    assert_eq!(elsewhere.status().await.unwrap(), Status::Pending, "no worker serves that queue");
    let kit = kit.crash(|engine| engine.task("double", double).queues(["gpu"])).await.unwrap();
    kit.settle().await.unwrap();
    let run = kit.client().task(elsewhere.id()).unwrap();
    let error = run.result::<u64>().await.unwrap_err();
    assert_eq!(error.fault().unwrap().kind, "Expired");
}

#[tokio::test]
async fn a_child_gives_its_result_to_its_parent_and_its_failure_too() {
    let child = |_: Ctx, good: bool| async move { if good { Ok(5) } else { Err(permanent("the child failed")) } };
    let parent = |ctx: Ctx, good: bool| async move {
        let got: u32 = ctx.child("kid", "child", &good).await?;
        Ok::<_, Failure>(got + 1)
    };
    let kit = Kit::start(|engine| engine.function("child", 1, child).function("parent", 1, parent)).await.unwrap();
    let good = kit.client().start("parent", &true).id("p").await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(good.result::<u32>().await.unwrap(), 6);
    assert_eq!(kit.client().run("p:kid").unwrap().result::<u32>().await.unwrap(), 5, "the child is a separate run");
    let bad = kit.client().start("parent", &false).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert!(bad.result::<u32>().await.unwrap_err().to_string().contains("the child failed"));
}

#[tokio::test]
async fn a_parents_cancel_reaches_its_children() {
    let child = |ctx: Ctx, (): ()| async move { ctx.sleep("long", Duration::from_secs(86_400)).await };
    let parent = |ctx: Ctx, (): ()| async move { ctx.child::<(), _>("kid", "child", &()).await };
    let kit = Kit::start(|engine| engine.function("child", 1, child).function("parent", 1, parent)).await.unwrap();
    let run = kit.client().start("parent", &()).id("p").await.unwrap();
    kit.settle().await.unwrap();
    run.cancel().await.unwrap();
    kit.settle().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Cancelled);
    assert_eq!(kit.client().run("p:kid").unwrap().status().await.unwrap(), Status::Cancelled);
}

fn fan(count: u64) -> impl FnOnce(Builder) -> Builder {
    let parent = move |ctx: Ctx, timeout: Option<u64>| async move {
        let fan = ctx.fan_out("items", "double", 0..count);
        let joined = match timeout {
            Some(seconds) => fan.timeout(Duration::from_secs(seconds)).await?,
            None => fan.await?,
        };
        let missing = joined.tasks.iter().filter(|task| matches!(task, TaskEnd::Missing(_))).count();
        Ok::<_, Failure>((joined.completed(), missing, joined.results::<u64>().map(|all| all.iter().sum::<u64>()).ok()))
    };
    move |engine| engine.function("fan", 1, parent)
}

#[tokio::test]
async fn a_fan_out_of_10_000_tasks_is_joined() {
    let kit = Kit::start(|engine| fan(10_000)(engine).task("double", double)).await.unwrap();
    let run = kit.client().start("fan", &Option::<u64>::None).await.unwrap();
    kit.run_until_idle().await.unwrap();
    let (done, missing, sum) = run.result::<(usize, usize, Option<u64>)>().await.unwrap();
    assert_eq!((done, missing, sum), (10_000, 0, Some(99_990_000)));
}

#[tokio::test]
async fn a_join_that_times_out_reports_finished_and_missing_tasks() {
    let kit = Kit::start(fan(3)).await.unwrap();
    let run = kit.client().start("fan", &Some(60)).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.result::<(usize, usize, Option<u64>)>().await.unwrap(), (0, 3, None));
}

#[tokio::test]
async fn tasks_that_a_step_submits_can_be_waited_for() {
    let graph = Graph::<Value>::new("batch").step("spread", |ctx: StepCtx<Value>| async move {
        let mut ids = Vec::new();
        for number in 0..20_u64 {
            ids.push(ctx.submit("double", &number).await?);
        }
        let joined = ctx.wait_for_tasks(ids, None).await?;
        Ok::<_, Failure>(joined.results::<u64>()?.iter().sum::<u64>())
    });
    let kit = Kit::start(|engine| engine.workflow(graph).task("double", double)).await.unwrap();
    let run = kit.client().start("batch", &json!({})).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.result::<u64>().await.unwrap(), 380);
    assert_eq!(run.steps().await.unwrap()["spread"].attempt, 1, "parking is no new attempt");
}

#[tokio::test]
async fn a_map_runs_its_items_and_a_recorded_item_never_runs_again() {
    let calls = Arc::new(AtomicU32::new(0));
    let code = {
        let calls = Arc::clone(&calls);
        move |ctx: Ctx, (): ()| {
            let calls = Arc::clone(&calls);
            async move {
                let items = ctx
                    .map("item", 0..100_u64, move |number| {
                        calls.fetch_add(1, Ordering::SeqCst);
                        async move { Ok::<_, Failure>(number + 1) }
                    })
                    .concurrency(10)
                    .retry(Retry::never())
                    .await?;
                ctx.sleep("nap", Duration::from_secs(3_600)).await?;
                Ok::<_, Failure>(items.iter().sum::<u64>())
            }
        }
    };
    let kit = Kit::start(|engine| engine.function("map", 1, code.clone())).await.unwrap();
    kit.client().start("map", &()).id("m").await.unwrap();
    kit.settle().await.unwrap();
    let kit = kit.crash(|engine| engine.function("map", 1, code)).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(kit.client().run("m").unwrap().result::<u64>().await.unwrap(), 5_050);
    assert_eq!(calls.load(Ordering::SeqCst), 100);
}

fn remote(with_code: bool) -> Graph<Value> {
    let graph = Graph::<Value>::new("render").step("prepare", |ctx: StepCtx<Value>| async move {
        ctx.change_data(|data| _ = data.insert("prepared".into(), true.into()));
        Ok::<_, Failure>(20)
    });
    let graph = if with_code {
        graph.step("render", |ctx: StepCtx<Value>| async move {
            let base: u32 = ctx.output("prepare").await?;
            let prepared = ctx.data_map()["prepared"].clone();
            ctx.change_data(|data| _ = data.insert("rendered".into(), true.into()));
            Ok::<_, Failure>(format!("{base} {prepared} {}", ctx.idempotency_key()))
        })
    } else {
        graph.remote_step("render")
    };
    graph
        .after("prepare")
        .queue("gpu")
        .step("publish", |ctx: StepCtx<Value>| async move {
            let rendered: String = ctx.output("render").await?;
            Ok::<_, Failure>(format!("{rendered} {}", ctx.data_map()["rendered"]))
        })
        .after("render")
}

#[tokio::test]
async fn a_step_with_a_queue_runs_where_that_queue_is_served_and_its_result_wakes_the_parent() {
    let kit = Kit::start(|engine| engine.workflow(remote(false))).await.unwrap();
    let run = kit.client().start("render", &json!({})).id("film").await.unwrap();
    kit.settle().await.unwrap();
    let view = run.get().await.unwrap();
    assert_eq!((view.status(), view.run().parked), (Status::Running, true), "it waits for the task without a worker");
    let settings = wigwag::Settings::default();
    let gpu = Engine::builder(Arc::clone(kit.store()))
        .clock(Arc::new(kit.clock().clone()))
        .settings(settings)
        .workflow(remote(true))
        .queues(["gpu"])
        .start()
        .await
        .unwrap();
    while run.status().await.unwrap() != Status::Completed {
        kit.clock().advance(Duration::from_millis(200));
        kit.settle().await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(run.result::<String>().await.unwrap(), "20 true film:render true");
    drop(gpu);
}
