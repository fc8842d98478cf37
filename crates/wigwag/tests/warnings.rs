//! Unknown names: they are accepted, and the response lists the known ones.

use std::time::Duration;

use serde_json::{Value, json};
use wigwag::testing::Kit;
use wigwag::{Builder, Ctx, Engine, ErrorKind, Failure, Graph, SignalState, Status, StepCtx};

async fn echo(_: Ctx, input: Value) -> Result<Value, Failure> {
    Ok(input)
}

fn code(engine: Builder) -> Builder {
    let graph = Graph::<Value>::new("approve")
        .signal("approval")
        .step("pay", |_: StepCtx<Value>| async { Ok::<_, Failure>(()) })
        .after("approval")
        .signal("payment.received")
        .after("pay");
    engine.function("order", 1, echo).workflow(graph)
}

#[tokio::test]
async fn a_start_of_an_unregistered_workflow_warns_and_names_the_closest() {
    let kit = Kit::start(code).await.unwrap();
    let stranger = Engine::builder(kit.store().clone()).client().await.unwrap();
    for client in [kit.client(), stranger.clone()] {
        let run = client.start("aprove", &json!({})).id("typo").await.unwrap();
        let [warning] = run.warnings() else { panic!("{:?}", run.warnings()) };
        assert!(warning.contains("workflow `aprove`") && warning.contains("known: `approve`, `order`"), "{warning}");
        let view = run.get().await.unwrap();
        assert_eq!(view.status(), Status::Pending, "the start succeeds");
        assert_eq!(&client.diagnose(view.run()).await.unwrap(), run.warnings());
        let why = run.explain().await.unwrap().why;
        assert!(
            why.contains("No worker has registered workflow `aprove`") && why.contains("known: `approve`"),
            "{why}"
        );
        let known = client.start("order", &json!({})).await.unwrap();
        assert!(known.warnings().is_empty(), "{:?}", known.warnings());
    }
    // A worker starts later.
    let kit = kit.crash(|engine| code(engine).function("aprove", 1, echo)).await.unwrap();
    kit.run_until_idle().await.unwrap();
    let view = stranger.run("typo").unwrap().get().await.unwrap();
    assert_eq!(view.status(), Status::Completed);
    assert!(stranger.diagnose(view.run()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_start_of_registered_workflows_only_rejects_a_typing_error_before_there_is_a_run() {
    let kit = Kit::start(code).await.unwrap();
    let stranger = Engine::builder(kit.store().clone()).client().await.unwrap();
    for client in [kit.client(), stranger] {
        let error = client.start("aprove", &json!({})).id("typo").registered_only().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let what = "no worker has registered workflow `aprove`; did you mean `approve`? known: `approve`, `order`";
        assert_eq!(error.to_string(), what);
        assert_eq!(client.run("typo").unwrap().get().await.unwrap_err().kind(), ErrorKind::NotFound);
        assert!(client.start("order", &json!({})).registered_only().await.is_ok());
    }
    let empty = Kit::start(|engine| engine).await.unwrap();
    let early = empty.client().start("order", &json!({})).registered_only().await.unwrap();
    assert_eq!(early.warnings().len(), 1, "without any worker so far, the name may be right");
}

#[tokio::test]
async fn a_parent_that_waits_for_a_child_of_an_unregistered_workflow_says_so() {
    let parent = |ctx: Ctx, (): ()| async move { ctx.child::<Value, _>("part", "ordr", &json!({})).await };
    let kit = Kit::start(|engine| code(engine).function("parent", 1, parent)).await.unwrap();
    let run = kit.client().start("parent", &()).id("p").await.unwrap();
    kit.settle().await.unwrap();
    let found = kit.client().diagnose(run.get().await.unwrap().run()).await.unwrap();
    let [warning] = &found[..] else { panic!("{found:?}") };
    assert!(warning.starts_with("child `") && warning.contains("workflow `ordr`"), "{warning}");
    assert!(warning.contains("known: `order`"), "{warning}");
    let why = run.explain().await.unwrap().why;
    assert!(why.contains("workflow `ordr`") && why.contains("known: `order`"), "{why}");
}

#[tokio::test]
async fn a_signal_that_no_step_waits_for_warns_and_names_the_closest_and_strict_rejects_it() {
    let kit = Kit::start(code).await.unwrap();
    let client = kit.client();
    let run = client.start("approve", &json!({})).id("a").await.unwrap();
    kit.settle().await.unwrap();
    let receipt = run.signal("aproval", &true).await.unwrap();
    assert_eq!(receipt.state, SignalState::Buffered, "it is accepted");
    let warning = receipt.warning.unwrap();
    assert!(warning.contains("never waits for signal `aproval`; did you mean `approval`?"), "{warning}");
    assert!(warning.contains("`payment.received`"), "{warning}");
    let error = run.signal("aproval", &true).only_if_waiting().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotWaiting);
    assert!(error.to_string().contains("did you mean `approval`?"), "{error}");
    // A name that is waited for now, or will be, has no warning.
    assert_eq!(run.signal("payment.received", &true).await.unwrap().warning, None);
    assert_eq!(run.signal("approval", &true).await.unwrap().warning, None);
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Completed);
}

#[tokio::test]
async fn a_signal_that_starts_an_unregistered_workflow_warns() {
    let kit = Kit::start(code).await.unwrap();
    let call = kit.client().signal("new", "go", &true).start_if_absent("oder", &json!({}));
    let warning = call.await.unwrap().warning.unwrap();
    assert!(warning.contains("workflow `oder`") && warning.contains("known: `order`"), "{warning}");
}

#[tokio::test]
async fn signals_to_functions_have_no_warning_because_their_waits_are_unknown() {
    let waits = |ctx: Ctx, (): ()| async move {
        ctx.sleep("nap", Duration::from_secs(60)).await?;
        ctx.wait::<bool>("go").await
    };
    let kit = Kit::start(|engine| engine.function("waits", 1, waits)).await.unwrap();
    let run = kit.client().start("waits", &()).id("w").await.unwrap();
    kit.settle().await.unwrap();
    assert_eq!(run.signal("whatever", &true).await.unwrap().warning, None);
}
