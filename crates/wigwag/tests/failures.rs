//! Consequences of failures: retries, compensation, cancel, pause, restart.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use wigwag::testing::Kit;
use wigwag::{Asked, Builder, Ctx, ErrorKind, Failure, Graph, OnFailure, Retry, Status, StepCtx, permanent, retryable};

/// Log of the calls of steps, in order.
#[derive(Clone, Debug, Default)]
struct Ledger(Arc<Mutex<Vec<String>>>);

impl Ledger {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A graph `a`, `b` after `a`, `c` after `b`; each has a compensation and notes its calls.
fn chain(ledger: &Ledger) -> Graph<Value> {
    let step = |name: &'static str| {
        let ledger = ledger.clone();
        move |_: StepCtx<Value>| {
            let ledger = ledger.clone();
            async move {
                ledger.note(name);
                Ok::<_, Failure>(name)
            }
        }
    };
    let undo = |name: &'static str| {
        let ledger = ledger.clone();
        move |_: StepCtx<Value>, result: Option<String>| {
            let ledger = ledger.clone();
            async move {
                ledger.note(format!("undo {name} {}", result.unwrap_or_else(|| "unknown".into())));
                Ok::<_, Failure>(())
            }
        }
    };
    Graph::new("chain")
        .step("a", step("a"))
        .compensate(undo("a"))
        .step("b", step("b"))
        .after("a")
        .compensate(undo("b"))
        .step("c", step("c"))
        .after("b")
        .compensate(undo("c"))
}

fn with(ledger: &Ledger) -> impl FnOnce(Builder) -> Builder {
    let graph = chain(ledger);
    move |engine| engine.workflow(graph)
}

#[tokio::test]
async fn every_row_of_the_failure_table_holds_for_a_graph() {
    let down = || retryable("down");
    let rows: [(&str, Vec<Failure>, Status, &[&str]); 5] = [
        ("success goes on", vec![], Status::Completed, &["a", "b", "c"]),
        ("a retryable error is retried", vec![down(), down(), down()], Status::Completed, &["a", "b", "c"]),
        (
            "without retries left: compensate, then failed; the failed step's own handler first, without a result",
            vec![down(), down(), down(), down()],
            Status::Failed,
            &["a", "undo b unknown", "undo a a"],
        ),
        (
            "a permanent error is not retried",
            vec![permanent("no")],
            Status::Failed,
            &["a", "undo b unknown", "undo a a"],
        ),
        ("a panic is a retryable error", vec![], Status::Completed, &["a", "b", "c"]),
    ];
    for (row, failures, status, expected) in rows {
        let ledger = Ledger::default();
        let kit = Kit::start(with(&ledger)).await.unwrap();
        kit.fail("b", failures);
        let run = kit.client().start("chain", &json!({})).await.unwrap();
        kit.run_until_idle().await.unwrap();
        assert_eq!(run.status().await.unwrap(), status, "{row}");
        assert_eq!(ledger.take(), expected, "{row}");
    }
}

#[tokio::test]
async fn a_run_without_compensation_just_fails_with_the_error_of_its_step() {
    let graph = || {
        Graph::<Value>::new("plain")
            .step("only", |_: StepCtx<Value>| async { Err::<(), _>(permanent("it cannot be done")) })
    };
    let kit = Kit::start(|engine| engine.workflow(graph())).await.unwrap();
    let run = kit.client().start("plain", &json!({})).await.unwrap();
    let error = run.result::<Value>().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RunFailed);
    let fault = error.fault().unwrap();
    assert_eq!((fault.kind.as_str(), fault.message.as_str()), ("Permanent", "it cannot be done"));
    assert_eq!(fault.point.as_ref().unwrap().as_str(), "only");
    let last = run.history(1, 100).await.unwrap().pop().unwrap();
    let names: Vec<&str> = last.events.iter().map(|event| event.name()).collect();
    assert_eq!(names, ["step.failed", "run.failed"], "one commit per moment of progress");
}

#[tokio::test]
async fn a_panic_is_a_retryable_failure_with_its_message_and_place() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let code = move |ctx: Ctx, (): ()| {
        let calls = Arc::clone(&counted);
        async move {
            ctx.step("shaky", || async {
                assert!(calls.fetch_add(1, Ordering::SeqCst) > 0, "the first time it panics");
                Ok::<_, Failure>(17)
            })
            .await
        }
    };
    let kit = Kit::start(|engine| engine.function("panics", 1, code)).await.unwrap();
    let run = kit.client().start("panics", &()).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.result::<u32>().await.unwrap(), 17);
    let entries = serde_json::to_string(&run.history(1, 100).await.unwrap()).unwrap();
    assert!(entries.contains("the first time it panics"), "{entries}");
    assert!(entries.contains("failures.rs:"), "where it panicked is kept: {entries}");
}

#[tokio::test]
async fn a_function_undoes_its_steps_in_reverse_and_may_catch_a_failure_itself() {
    let ledger = Ledger::default();
    let noted = ledger.clone();
    let code = move |ctx: Ctx, fail: bool| {
        let ledger = noted.clone();
        async move {
            for name in ["one", "two"] {
                let undo = ledger.clone();
                ctx.step(name, || async { Ok::<_, Failure>(name.to_owned()) })
                    .compensate(move |result: Option<String>| {
                        let undo = undo.clone();
                        async move {
                            undo.note(format!("undo {}", result.unwrap()));
                            Ok::<_, Failure>(())
                        }
                    })
                    .await?;
            }
            let caught = ctx.step("risky", || async { Err::<u32, _>(permanent("no")) }).await;
            if fail { caught } else { Ok(caught.unwrap_or(5)) }
        }
    };
    let kit = Kit::start(|engine| engine.function("saga", 1, code)).await.unwrap();
    let good = kit.client().start("saga", &false).await.unwrap();
    assert_eq!(good.result::<u32>().await.unwrap(), 5, "a failure that is caught is no failure of the run");
    assert_eq!(ledger.take(), Vec::<String>::new());
    let bad = kit.client().start("saga", &true).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(bad.status().await.unwrap(), Status::Failed);
    assert_eq!(ledger.take(), ["undo two", "undo one"]);
}

/// The idempotency key and the attempt that the compensations of two steps get, the second of which fails once.
#[tokio::test]
async fn each_compensation_gets_the_key_of_its_step_and_counts_its_attempts() {
    let ledger = Ledger::default();
    let note = |ledger: &Ledger, key: String, attempt: u32| {
        let is_first = attempt == 1 && key.ends_with("2");
        ledger.note(format!("{key} {attempt}"));
        if is_first { Err(retryable("busy")) } else { Ok(()) }
    };
    let noted = ledger.clone();
    let function = move |ctx: Ctx, (): ()| {
        let ledger = noted.clone();
        async move {
            for _ in 0..2 {
                let ledger = ledger.clone();
                ctx.step("c", || async { Ok::<_, Failure>(()) })
                    .compensate_with(move |_, info| {
                        std::future::ready(note(&ledger, info.idempotency_key(), info.attempt()))
                    })
                    .await?;
            }
            Err::<(), _>(permanent("no"))
        }
    };
    let undo = |ledger: &Ledger| {
        let ledger = ledger.clone();
        move |ctx: StepCtx<Value>, _: Option<()>| {
            std::future::ready(note(&ledger, ctx.idempotency_key(), ctx.attempt()))
        }
    };
    let graph = Graph::<Value>::new("graph")
        .step("c", |_: StepCtx<Value>| async { Ok::<_, Failure>(()) })
        .compensate(undo(&ledger))
        .step("c2", |_: StepCtx<Value>| async { Ok::<_, Failure>(()) })
        .after("c")
        .compensate(undo(&ledger))
        .step("no", |_: StepCtx<Value>| async { Err::<(), _>(permanent("no")) })
        .after("c2");
    let kit = Kit::start(|engine| engine.function("function", 1, function).workflow(graph)).await.unwrap();
    for (of, want) in [
        ("function", ["function:c#2 1", "function:c#2 2", "function:c 1"]),
        ("graph", ["graph:c2 1", "graph:c2 2", "graph:c 1"]),
    ] {
        let run = kit.client().start(of, &json!(null)).id(of).await.unwrap();
        kit.run_until_idle().await.unwrap();
        assert_eq!((run.status().await.unwrap(), ledger.take()), (Status::Failed, want.map(str::to_owned).to_vec()));
    }
}

#[tokio::test]
async fn a_failed_compensation_is_recorded_and_the_rest_continues() {
    let ledger = Ledger::default();
    let noted = ledger.clone();
    let graph = Graph::<Value>::new("stubborn")
        .step("a", |_: StepCtx<Value>| async { Ok::<_, Failure>(()) })
        .compensate(move |_: StepCtx<Value>, _: Option<()>| {
            let ledger = noted.clone();
            async move {
                ledger.note("undo a");
                Ok::<_, Failure>(())
            }
        })
        .step("b", |_: StepCtx<Value>| async { Ok::<_, Failure>(()) })
        .after("a")
        .compensate(|_: StepCtx<Value>, _: Option<()>| async { Err::<(), _>(permanent("it stays")) })
        .step("c", |_: StepCtx<Value>| async { Err::<(), _>(permanent("no")) })
        .after("b");
    let kit = Kit::start(|engine| engine.workflow(graph)).await.unwrap();
    let run = kit.client().start("stubborn", &json!({})).await.unwrap();
    kit.run_until_idle().await.unwrap();
    let view = run.get().await.unwrap();
    assert_eq!((view.status(), ledger.take()), (Status::Failed, vec!["undo a".to_owned()]));
    let errors = &view.run().compensation_errors;
    assert_eq!((errors[0].point.as_str(), errors[0].error.message.as_str()), ("b", "it stays"));
}

#[tokio::test]
async fn a_chain_of_compensation_survives_a_crash_half_way_for_graphs_and_functions() {
    let ledger = Ledger::default();
    let make = |ledger: &Ledger, stuck: bool| {
        let ledger = ledger.clone();
        move |ctx: Ctx, (): ()| {
            let ledger = ledger.clone();
            async move {
                for name in ["one", "two", "three"] {
                    let undo = ledger.clone();
                    ctx.step(name, || async { Ok::<_, Failure>(()) })
                        .compensate(move |_| {
                            let undo = undo.clone();
                            async move {
                                undo.note(format!("undo {name}"));
                                if stuck && name == "two" {
                                    std::future::pending::<()>().await;
                                }
                                Ok::<_, Failure>(())
                            }
                        })
                        .await?;
                }
                Err::<(), _>(permanent("no"))
            }
        }
    };
    let stuck = make(&ledger, true);
    let kit = Kit::start(|engine| engine.function("saga", 1, stuck)).await.unwrap();
    let run = kit.client().start("saga", &()).id("s").await.unwrap();
    while ledger.0.lock().unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(run.status().await.unwrap(), Status::Compensating);
    let again = make(&ledger, false);
    let kit = kit.crash(|engine| engine.function("saga", 1, again)).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(kit.client().run("s").unwrap().status().await.unwrap(), Status::Failed);
    assert_eq!(
        ledger.take(),
        ["undo three", "undo two", "undo two", "undo one"],
        "a completed compensation does not run again"
    );
}

#[tokio::test]
async fn a_step_that_takes_too_long_is_stopped_and_tried_again() {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let graph = Graph::<Value>::new("slow")
        .step("slow", move |_: StepCtx<Value>| {
            let first = counted.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                if first {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Failure>("at last")
            }
        })
        .timeout(Duration::from_secs(5));
    let kit = Kit::start(|engine| engine.workflow(graph)).await.unwrap();
    let run = kit.client().start("slow", &json!({})).await.unwrap();
    while calls.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await;
    kit.clock().advance(Duration::from_secs(6));
    while run.history(2, 10).await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.result::<String>().await.unwrap(), "at last");
    let history = serde_json::to_string(&run.history(1, 50).await.unwrap()).unwrap();
    assert!(history.contains("\"type\":\"Timeout\""), "{history}");
}

#[tokio::test]
async fn a_cancel_compensates_completed_steps_and_records_the_reason() {
    let ledger = Ledger::default();
    let noted = ledger.clone();
    let code = move |ctx: Ctx, (): ()| {
        let ledger = noted.clone();
        async move {
            ctx.step("one", || async { Ok::<_, Failure>(()) })
                .compensate(move |_| {
                    let ledger = ledger.clone();
                    async move {
                        ledger.note("undo one");
                        Ok::<_, Failure>(())
                    }
                })
                .await?;
            ctx.sleep("long", Duration::from_secs(86_400)).await?;
            Ok::<_, Failure>(())
        }
    };
    let kit = Kit::start(|engine| engine.function("sleepy", 1, code)).await.unwrap();
    let run = kit.client().start("sleepy", &()).await.unwrap();
    kit.settle().await.unwrap();
    assert_eq!(run.cancel().reason("not needed any more").await.unwrap(), Asked::Now);
    kit.settle().await.unwrap();
    let view = run.get().await.unwrap();
    assert_eq!((view.status(), ledger.take()), (Status::Cancelled, vec!["undo one".to_owned()]));
    assert_eq!(view.run().cancel.as_ref().unwrap().reason.as_deref(), Some("not needed any more"));
    let again = run.cancel().await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::NotRunning);
    assert!(again.to_string().contains("has already finished: `cancelled`"), "{again}");
    let error = run.result::<()>().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::RunCancelled);
    assert!(error.to_string().contains("not needed any more"), "{error}");
}

#[tokio::test]
async fn a_cancel_of_a_run_that_compensates_after_a_failure_is_answered_so() {
    let code = |ctx: Ctx, (): ()| async move {
        ctx.step("one", || async { Ok::<_, Failure>(()) })
            .compensate(|_| async { std::future::pending::<Result<(), Failure>>().await })
            .await?;
        Err::<(), _>(permanent("broken"))
    };
    let kit = Kit::start(|engine| engine.function("saga", 1, code)).await.unwrap();
    let run = kit.client().start("saga", &()).await.unwrap();
    while run.status().await.unwrap() != Status::Compensating {
        tokio::task::yield_now().await;
    }
    assert_eq!(run.cancel().await.unwrap(), Asked::Compensating);
    assert!(run.get().await.unwrap().run().cancel.is_none(), "nobody asked");
}

#[tokio::test]
async fn a_reason_beyond_its_limit_is_rejected_and_one_at_the_limit_ends_the_run() {
    let kit = Kit::start(|engine| {
        engine.function("sleepy", 1, |ctx: Ctx, (): ()| async move {
            ctx.sleep("long", Duration::from_secs(86_400)).await?;
            Ok::<_, Failure>(())
        })
    });
    let kit = kit.await.unwrap();
    let run = kit.client().start("sleepy", &()).await.unwrap();
    kit.settle().await.unwrap();
    let error = run.cancel().reason("x".repeat(4_097)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("at most 4096 bytes, got: 4097"), "{error}");
    assert_eq!(run.cancel().reason("x".repeat(4_096)).await.unwrap(), Asked::Now);
    kit.settle().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Cancelled);
}

#[tokio::test]
async fn a_step_fails_when_sixteen_workers_have_died_of_it() {
    let calls = Arc::new(AtomicU32::new(0));
    let deadly = |calls: Arc<AtomicU32>| {
        move |ctx: Ctx, (): ()| {
            let calls = Arc::clone(&calls);
            async move {
                let step = ctx.step("deadly", || {
                    calls.fetch_add(1, Ordering::SeqCst);
                    std::future::pending::<Result<(), Failure>>()
                });
                step.retry(Retry::never()).await
            }
        }
    };
    let mut kit = Kit::start(|engine| engine.function("deadly", 1, deadly(Arc::clone(&calls)))).await.unwrap();
    let id = kit.client().start("deadly", &()).await.unwrap().id().clone();
    for deaths in 1..=wigwag_core::limits::INTERRUPTIONS_MAX {
        while calls.load(Ordering::SeqCst) < deaths {
            tokio::task::yield_now().await;
        }
        kit = kit.crash(|engine| engine.function("deadly", 1, deadly(Arc::clone(&calls)))).await.unwrap();
    }
    tokio::time::timeout(Duration::from_secs(30), kit.settle()).await.expect("no worker runs it again").unwrap();
    let view = kit.client().run(&id).unwrap().get().await.unwrap();
    assert_eq!((view.status(), calls.load(Ordering::SeqCst)), (Status::Failed, 16));
    assert!(view.run().error.as_ref().unwrap().message.contains("16 workers died"), "{:?}", view.run().error);
}

#[tokio::test]
async fn a_running_step_learns_of_a_cancel_and_is_dropped_after_the_grace_time() {
    for polite in [true, false] {
        let graph = Graph::<Value>::new("long").step("long", move |ctx: StepCtx<Value>| async move {
            if polite {
                ctx.cancelled().await;
                return Ok::<_, Failure>("stopped in time");
            }
            std::future::pending().await
        });
        let kit = Kit::start(|engine| engine.workflow(graph)).await.unwrap();
        let run = kit.client().start("long", &json!({})).await.unwrap();
        run.cancel().await.unwrap();
        while run.get().await.unwrap().run().cancel.is_none() && !run.status().await.unwrap().is_final() {
            tokio::task::yield_now().await;
        }
        if !polite {
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(run.status().await.unwrap(), Status::Running, "it has a grace time");
            kit.clock().advance(Duration::from_secs(11));
        }
        kit.settle().await.unwrap();
        assert_eq!(run.status().await.unwrap(), Status::Cancelled, "polite: {polite}");
    }
}

#[tokio::test]
async fn a_pause_lets_the_step_finish_and_shifts_relative_timers_only() {
    let code = |ctx: Ctx, (): ()| async move {
        let (relative, absolute) = tokio::join!(
            ctx.sleep("relative", Duration::from_secs(3_600)),
            ctx.sleep_until("absolute", ctx.now().after(Duration::from_secs(3_600))),
        );
        relative?;
        absolute?;
        Ok::<_, Failure>(())
    };
    let kit = Kit::start(|engine| engine.function("naps", 1, code)).await.unwrap();
    let run = kit.client().start("naps", &()).await.unwrap();
    kit.advance(Duration::from_secs(600)).await.unwrap();
    assert_eq!(run.pause().await.unwrap(), Asked::Now);
    kit.settle().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Paused);
    assert_eq!(run.pause().await.unwrap(), Asked::Before);
    kit.advance(Duration::from_secs(7_200)).await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Paused, "no timer ends a pause");
    run.resume().await.unwrap();
    kit.settle().await.unwrap();
    let steps = run.steps().await.unwrap();
    let status = |name: &str| steps[name].status.to_string();
    assert_eq!((status("relative"), status("absolute")), ("running".into(), "completed".into()));
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Completed);
    assert_eq!(kit.elapsed().as_secs(), 3_600 + 7_200, "the relative one moved by as long as the run was paused");
    let error = run.resume().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotRunning);
}

#[tokio::test]
async fn on_failure_decides_whether_a_run_continues_or_pauses() {
    let flaky = |_: StepCtx<Value>| async { Ok::<_, Failure>("fine") };
    let graph = |then: OnFailure| {
        Graph::<Value>::new("tolerant")
            .step("a", flaky)
            .retry(Retry::never())
            .on_failure(then)
            .step("b", |_: StepCtx<Value>| async { Ok::<_, Failure>("after") })
            .after("a")
    };
    let kit = Kit::start(|engine| engine.workflow(graph(OnFailure::Continue))).await.unwrap();
    kit.fail("a", [retryable("no")]);
    let run = kit.client().start("tolerant", &json!({})).await.unwrap();
    assert_eq!(run.result::<String>().await.unwrap(), "after");

    let kit = Kit::start(|engine| engine.workflow(graph(OnFailure::Pause))).await.unwrap();
    kit.fail("a", [retryable("no")]);
    let run = kit.client().start("tolerant", &json!({})).await.unwrap();
    kit.settle().await.unwrap();
    let view = run.get().await.unwrap();
    assert_eq!((view.status(), view.run().error.as_ref().unwrap().message.as_str()), (Status::Paused, "no"));
    run.resume().await.unwrap();
    assert_eq!(run.result::<String>().await.unwrap(), "after", "resumed, it tries the step again");
}

#[tokio::test]
async fn a_restart_begins_again_from_the_start_or_from_a_step() {
    let ledger = Ledger::default();
    let kit = Kit::start(with(&ledger)).await.unwrap();
    let run = kit.client().start("chain", &json!({})).await.unwrap();
    run.wait().await.unwrap();
    kit.settle().await.unwrap();
    assert_eq!(ledger.take(), ["a", "b", "c"]);
    run.restart().from("b").await.unwrap();
    kit.settle().await.unwrap();
    assert_eq!((run.status().await.unwrap(), ledger.take()), (Status::Completed, vec!["b".into(), "c".into()]));
    run.restart().await.unwrap();
    kit.settle().await.unwrap();
    assert_eq!(ledger.take(), ["a", "b", "c"]);
    let error = run.restart().from("nowhere").await.unwrap_err();
    assert!(error.to_string().contains("never came to `nowhere`"), "{error}");
    let listed = kit.client().list(&wigwag::Filter::default()).await.unwrap();
    assert_eq!(listed.runs.len(), 1, "it is listed once: {listed:?}");
}

/// Its worker may die during the compensation: the next worker reads a snapshot without its settled steps, and then
/// entries that refer to them.
#[tokio::test]
async fn a_run_with_offloaded_results_can_be_read_while_it_compensates() {
    let gate = Arc::new(tokio::sync::Notify::new());
    let held = Arc::clone(&gate);
    let many = move |ctx: Ctx, _: Value| {
        let held = Arc::clone(&held);
        async move {
            let undo = move |_: Option<Value>| {
                let held = Arc::clone(&held);
                async move {
                    held.notified().await;
                    Ok::<_, Failure>(())
                }
            };
            ctx.step("first", || async { Ok::<_, Failure>(json!(1)) }).compensate(undo).await?;
            for _ in 0..60 {
                ctx.step("large", || async { Ok::<_, Failure>("x".repeat(2_000)) }).await?;
            }
            ctx.sleep("rest", Duration::from_secs(60)).await?;
            Err::<Value, _>(permanent("it was not to be"))
        }
    };
    let kit = Kit::start(|engine| engine.function("many", 1, many)).await.unwrap();
    let run = kit.client().start("many", &json!({})).id("m").await.unwrap();
    kit.settle().await.unwrap();
    let chunks = kit.store().list("workflow/m/chunk/", "", 10).await.unwrap().entries;
    assert!(!chunks.is_empty(), "results have left the snapshot");
    kit.clock().advance(Duration::from_secs(61));
    while run.status().await.unwrap() != Status::Compensating {
        tokio::task::yield_now().await;
    }
    let steps = run.steps().await.unwrap();
    assert_eq!(steps.len(), 62, "all of it can be read");
    gate.notify_one();
    kit.settle().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Failed);
}
