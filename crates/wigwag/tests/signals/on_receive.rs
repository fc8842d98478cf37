//! Updates of the run's data by a signal: recorded with the signal, and never computed again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};
use wigwag::{Builder, Failure, Graph, OnFailure, Retry, Status, StepCtx, permanent, retryable};
use wigwag_core::Fate;

use crate::world::*;

type Calls = Arc<AtomicU32>;

/// A graph whose `on_receive` counts its calls and fails the first of them.
fn graph(calls: &Calls, fails: u32, failure: fn(&str) -> Failure) -> Graph<Value> {
    let calls = Arc::clone(calls);
    Graph::<Value>::new("g")
        .signal("approval")
        .on_receive(move |order: &mut Value, by: String| {
            if calls.fetch_add(1, Ordering::SeqCst) < fails {
                return Err(failure("not now"));
            }
            order["by"] = json!(by);
            order["item"] = json!(null);
            Ok(())
        })
        .retry(Retry::times(3).first(SECOND))
        .step("ship", |ctx: StepCtx<Value>| async move { ctx.data() })
        .after("approval")
        .delay(HOUR)
}

fn never(_: &str) -> Failure {
    unreachable!("it does not fail")
}

#[tokio::test]
async fn signal_received_stores_the_payload_and_the_state_after_on_receive() {
    for kind in KINDS {
        let calls = Calls::default();
        let world = World::start(kind, |engine| engine.workflow(graph(&calls, 0, never))).await;
        let run = world.begin_with("g", "r", &json!({"item": "book", "cents": 7})).await;
        run.signal("approval", "ada").await.unwrap();
        world.settle().await;
        let received = received(&run).await;
        let stored = serde_json::to_value(&received[0]).unwrap();
        assert_eq!(stored["payload"], json!("ada"));
        assert_eq!(stored["patch"]["by"], json!("ada"), "{stored}");
        let view = run.get().await.unwrap();
        assert_eq!(Value::from(view.run().data.clone()), json!({"by": "ada", "cents": 7}));
        world.run_until_idle().await;
        world.end().await;
    }
}

#[tokio::test]
async fn replay_restores_the_state_and_never_calls_on_receive_again() {
    for kind in KINDS {
        let calls = Calls::default();
        let code = |engine: Builder| engine.workflow(graph(&calls, 0, never));
        let world = World::start(kind, code).await;
        let run = world.begin_with("g", "r", &json!({"cents": 7})).await;
        run.signal("approval", "ada").await.unwrap();
        world.settle().await;
        let world = world.crash(code).await;
        let run = world.run(run.id().as_str());
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!({"by": "ada", "cents": 7}));
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        world.end().await;
    }
}

#[tokio::test]
async fn if_on_receive_fails_the_run_fails_with_the_signal_kept() {
    for kind in KINDS {
        let calls = Calls::default();
        let world = World::start(kind, |engine| engine.workflow(graph(&calls, 9, |what| permanent(what)))).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        run.signal("approval", "ada").await.unwrap();
        world.settle().await;
        let view = run.get().await.unwrap();
        assert_eq!(view.status(), Status::Failed);
        let fault = view.run().error.clone().unwrap();
        assert_eq!((fault.message.as_str(), fault.point.unwrap().as_str()), ("not now", "approval"));
        assert_eq!(count(&run, "signal.received").await, 0);
        assert_eq!(fate_of(&run, "ada").await, Fate::NeverConsumed);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        world.end().await;
    }
}

#[tokio::test]
async fn a_payload_that_on_receive_cannot_read_fails_the_run_with_the_signal_kept() {
    for kind in KINDS {
        let calls = Calls::default();
        let world = World::start(kind, |engine| engine.workflow(graph(&calls, 0, never))).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        run.signal("approval", &7).await.unwrap();
        world.settle().await;
        assert_eq!(run.status().await.unwrap(), Status::Failed);
        assert_eq!(fate_of(&run, 7).await, Fate::NeverConsumed);
        world.end().await;
    }
}

#[tokio::test]
async fn if_on_receive_says_so_it_is_retried_with_the_same_signal() {
    for kind in KINDS {
        let calls = Calls::default();
        let world = World::start(kind, |engine| engine.workflow(graph(&calls, 2, |what| retryable(what)))).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        run.signal("approval", "ada").await.unwrap();
        run.signal("approval", "bob").await.unwrap();
        let received = async {
            while count(&run, "signal.received").await == 0 {
                tokio::task::yield_now().await;
            }
        };
        world.while_time_passes(received).await;
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!({"by": "ada"}));
        assert_eq!(calls.load(Ordering::SeqCst), 3);
        assert_eq!(fate_of(&run, "bob").await, Fate::NeverConsumed);
        world.end().await;
    }
}

#[tokio::test]
async fn if_on_receive_fails_as_often_as_it_is_retried_the_run_fails_with_the_signal_kept() {
    for kind in KINDS {
        let calls = Calls::default();
        let world = World::start(kind, |engine| engine.workflow(graph(&calls, 9, |what| retryable(what)))).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        run.signal("approval", "ada").await.unwrap();
        let ended = world.while_time_passes(run.wait()).await.unwrap();
        assert_eq!(ended.status(), Status::Failed);
        assert_eq!(calls.load(Ordering::SeqCst), 4);
        assert_eq!(fate_of(&run, "ada").await, Fate::NeverConsumed);
        world.end().await;
    }
}

#[tokio::test]
async fn a_test_kit_continues_by_itself_while_on_receive_is_retried() {
    for kind in KINDS {
        let calls = Calls::default();
        let world = World::start(kind, |engine| engine.workflow(graph(&calls, 2, |what| retryable(what)))).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        run.signal("approval", "ada").await.unwrap();
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!({"by": "ada"}));
        world.end().await;
    }
}

#[tokio::test]
async fn a_retry_of_on_receive_survives_a_crash() {
    for kind in KINDS {
        let calls = Calls::default();
        let code = |engine: Builder| engine.workflow(graph(&calls, 1, |what| retryable(what)));
        let world = World::start(kind, code).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        run.signal("approval", "ada").await.unwrap();
        let failed = async {
            while calls.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
        };
        world.while_time_passes(failed).await;
        let world = world.crash(code).await;
        let run = world.run(run.id().as_str());
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!({"by": "ada"}));
        assert_eq!(calls.load(Ordering::SeqCst), 2);
        world.end().await;
    }
}

#[tokio::test]
async fn a_panic_in_on_receive_is_a_failure_that_is_retried() {
    for kind in KINDS {
        let calls = Calls::default();
        let failure: fn(&str) -> Failure = |what| panic!("{what}");
        let world = World::start(kind, |engine| engine.workflow(graph(&calls, 1, failure))).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        run.signal("approval", "ada").await.unwrap();
        let received = async {
            while count(&run, "signal.received").await == 0 {
                tokio::task::yield_now().await;
            }
        };
        world.while_time_passes(received).await;
        world.run_until_idle().await;
        assert_eq!(result(&run).await, json!({"by": "ada"}));
        world.end().await;
    }
}

#[tokio::test]
async fn if_on_receive_fails_and_the_step_pauses_it_is_asked_again_with_the_same_signal_after_a_resume() {
    for kind in KINDS {
        let calls = Calls::default();
        let counted = Arc::clone(&calls);
        let graph = Graph::<Value>::new("g")
            .signal("approval")
            .on_receive(move |order: &mut Value, by: String| {
                if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                    return Err(permanent("not now"));
                }
                order["by"] = json!(by);
                Ok(())
            })
            .on_failure(OnFailure::Pause);
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        run.signal("approval", "ada").await.unwrap();
        run.signal("approval", "bob").await.unwrap();
        world.settle().await;
        assert_eq!(run.status().await.unwrap(), Status::Paused);
        assert_eq!(fate_of(&run, "ada").await, Fate::Unconsumed);
        run.resume().await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!("ada"));
        world.end().await;
    }
}

#[tokio::test]
async fn if_on_receive_fails_and_the_step_may_fail_the_run_continues_without_it() {
    for kind in KINDS {
        let graph = Graph::<Value>::new("g")
            .signal("approval")
            .on_receive(|_: &mut Value, _: Value| Err::<(), _>(permanent("never")))
            .on_failure(OnFailure::Continue)
            .step("ship", |_: StepCtx<Value>| async { Ok::<_, Failure>("shipped") })
            .after("approval");
        let world = World::start(kind, |engine| engine.workflow(graph)).await;
        let run = world.begin_with("g", "r", &json!({})).await;
        run.signal("approval", "ada").await.unwrap();
        world.settle().await;
        assert_eq!(result(&run).await, json!("shipped"));
        assert_eq!(fate_of(&run, "ada").await, Fate::NeverConsumed);
        world.end().await;
    }
}
