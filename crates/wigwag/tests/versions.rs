//! Changed code meets unfinished runs.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::time::Duration;

use serde_json::{Value, json};
use wigwag::testing::Kit;
use wigwag::{Builder, Ctx, ErrorKind, Failure, Graph, Status, StepCtx};

fn graph(steps: &[(&'static str, &[&'static str])]) -> Graph<Value> {
    steps.iter().fold(Graph::new("deploy"), |graph, (name, after)| {
        let graph = graph.step(*name, |_: StepCtx<Value>| async { Ok::<_, Failure>(()) });
        let graph = if after.is_empty() { graph } else { graph.after(after.to_vec()) };
        if *name == "wait" { graph.delay(Duration::from_secs(3_600)) } else { graph }
    })
}

type Steps = &'static [(&'static str, &'static [&'static str])];

const OLD: Steps = &[("a", &[]), ("wait", &["a"]), ("c", &["wait"])];

fn code(steps: Steps) -> impl FnOnce(Builder) -> Builder {
    move |engine| engine.workflow(graph(steps))
}

/// Starts a run of `OLD`, lets it reach its delay, and replaces the code with `new`.
async fn deployed(new: Steps) -> Kit {
    let kit = Kit::start(code(OLD)).await.unwrap();
    kit.client().start("deploy", &json!({})).id("r").await.unwrap();
    kit.settle().await.unwrap();
    kit.crash(code(new)).await.unwrap()
}

#[tokio::test]
async fn every_row_of_the_version_table_holds() {
    let rows: [(&str, Steps, Option<&[&str]>); 7] = [
        ("same hash: continues", OLD, None),
        (
            "a step added, not yet passed: continues",
            &[("a", &[]), ("wait", &["a"]), ("c", &["wait"]), ("d", &["c"])],
            None,
        ),
        ("a step removed, already completed: continues", &[("wait", &[]), ("c", &["wait"])], None),
        ("a step removed and not yet run", &[("a", &[]), ("wait", &["a"])], Some(&["c"])),
        ("dependencies of a step changed", &[("a", &[]), ("wait", &["a"]), ("c", &["wait", "a"])], Some(&["c"])),
        (
            "a new step before a finished one",
            &[("n", &[]), ("a", &["n"]), ("wait", &["a"]), ("c", &["wait"])],
            Some(&["a", "n"]),
        ),
        ("a step renamed", &[("a", &[]), ("wait", &["a"]), ("see", &["wait"])], Some(&["c"])),
    ];
    for (row, new, misfits) in rows {
        let kit = deployed(new).await;
        let run = kit.client().run("r").unwrap();
        kit.advance(Duration::from_secs(3_600)).await.unwrap();
        // A worker whose code does not match leaves the run alone for one lease, so that a matching worker
        // may claim it.
        if misfits.is_some() {
            assert_eq!(run.status().await.unwrap(), Status::Running, "{row}");
        }
        kit.advance(Duration::from_secs(40)).await.unwrap();
        kit.advance(Duration::from_secs(40)).await.unwrap();
        let view = run.get().await.unwrap();
        match misfits {
            None => assert_eq!(view.status(), Status::Completed, "{row}"),
            Some(steps) => {
                assert_eq!(view.status(), Status::Paused, "{row}");
                let error = view.run().error.clone().unwrap();
                assert_eq!(
                    (error.kind.as_str(), &error.incompatible_steps[..]),
                    ("VersionMismatch", &steps.iter().map(|step| (*step).to_owned()).collect::<Vec<_>>()[..]),
                    "{row}"
                );
                assert!(error.expected.is_some() && error.found.is_some() && error.expected != error.found);
                let refused = run.resume().await.unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::Conflict, "{row}");
                assert!(refused.to_string().contains(steps[0]), "{row}: {refused}");
            }
        }
    }
}

#[tokio::test]
async fn after_a_change_of_dependencies_alone_the_hint_is_a_plain_migrate_and_it_works() {
    let rows: [(Steps, &str); 2] = [
        (&[("a", &[]), ("wait", &["a"]), ("c", &["wait", "a"])], "`wigwag migrate r`"),
        (
            &[("n", &[]), ("a", &["n"]), ("wait", &["a"]), ("c", &["wait"])],
            "`wigwag migrate r --rename OLD=NEW --skip STEP`",
        ),
    ];
    for (new, command) in rows {
        let kit = deployed(new).await;
        let run = kit.client().run("r").unwrap();
        kit.advance(Duration::from_secs(3_600)).await.unwrap();
        kit.advance(Duration::from_secs(40)).await.unwrap();
        assert_eq!(run.status().await.unwrap(), Status::Paused);
        let refused = run.resume().await.unwrap_err();
        assert!(refused.advice().unwrap().contains(command), "want {command}, got: {:?}", refused.advice());
        if !command.contains("--") {
            run.migrate().await.unwrap();
            kit.run_until_idle().await.unwrap();
            assert_eq!(run.status().await.unwrap(), Status::Completed);
        }
    }
}

#[tokio::test]
async fn a_migration_that_is_too_large_or_names_no_hash_is_rejected() {
    let kit = deployed(OLD).await;
    let run = kit.client().run("r").unwrap();
    let many = (0..300).fold(run.migrate(), |call, number| call.skip(&format!("s{number}")));
    let error = many.await.unwrap_err();
    assert!(error.to_string().contains("at most 256 steps, got: 300"), "{error}");
    for hash in ["", "a/b", "sha256:12", &"x".repeat(100_000)] {
        let error = run.migrate().to(hash).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("not the hash of a definition") && error.to_string().len() < 300);
    }
}

#[tokio::test]
async fn a_migration_renames_or_skips_and_the_run_continues() {
    let kit = deployed(&[("a", &[]), ("wait", &["a"]), ("see", &["wait"])]).await;
    let run = kit.client().run("r").unwrap();
    kit.advance(Duration::from_secs(3_600)).await.unwrap();
    kit.advance(Duration::from_secs(40)).await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Paused);
    let refused = run.migrate().rename("c", "sea").await.unwrap_err();
    assert!(refused.to_string().contains("`sea`, which is no step of `deploy`"), "{refused}");
    run.migrate().rename("c", "see").await.unwrap();
    kit.run_until_idle().await.unwrap();
    let steps = run.steps().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Completed);
    assert!(steps.contains_key("see") && !steps.contains_key("c"), "{steps:?}");
}

fn naps(order: &'static [&'static str]) -> impl FnOnce(Builder) -> Builder {
    let code = move |ctx: Ctx, (): ()| async move {
        for name in order {
            match *name {
                "nap" => ctx.sleep("nap", Duration::from_secs(3_600)).await?,
                "~one" => ctx.sleep("one", Duration::from_secs(1)).await?,
                name => ctx.step(name, || async { Ok::<_, Failure>(()) }).await?,
            }
        }
        Ok::<_, Failure>(())
    };
    move |engine| engine.function("naps", 1, code)
}

#[tokio::test]
async fn a_function_that_no_longer_reaches_a_recorded_step_is_paused_and_names_it() {
    let rows: [(&str, &'static [&'static str], Option<&str>); 5] = [
        ("the same code", &["one", "nap", "two"], None),
        ("more after the recorded steps", &["one", "nap", "two", "three"], None),
        ("a recorded step is gone", &["nap", "two"], Some("one (recorded as step, not reached)")),
        ("the same points in another order", &["nap", "one", "two"], None),
        ("a recorded point is of another kind", &["~one", "nap", "two"], Some("one (recorded as step, now a sleep)")),
    ];
    for (row, new, misfit) in rows {
        let kit = Kit::start(naps(&["one", "nap", "two"])).await.unwrap();
        let run = kit.client().start("naps", &()).id("n").await.unwrap();
        kit.settle().await.unwrap();
        drop(run);
        let kit = kit.crash(naps(new)).await.unwrap();
        let run = kit.client().run("n").unwrap();
        kit.run_until_idle().await.unwrap();
        let view = run.get().await.unwrap();
        match misfit {
            None => assert_eq!(view.status(), Status::Completed, "{row}"),
            Some(misfit) => {
                assert_eq!(view.status(), Status::Paused, "{row}");
                assert_eq!(view.run().error.as_ref().unwrap().incompatible_steps, [misfit], "{row}");
            }
        }
    }
}

#[tokio::test]
async fn patched_guards_a_change_for_runs_that_had_passed_it() {
    let old = |ctx: Ctx, (): ()| async move {
        ctx.step("one", || async { Ok::<_, Failure>(()) }).await?;
        ctx.sleep("nap", Duration::from_secs(3_600)).await?;
        Ok::<_, Failure>("old".to_owned())
    };
    let new = |ctx: Ctx, (): ()| async move {
        let patched = ctx.patched("better").await?;
        if patched {
            ctx.step("better-one", || async { Ok::<_, Failure>(()) }).await?;
        } else {
            ctx.step("one", || async { Ok::<_, Failure>(()) }).await?;
        }
        ctx.sleep("nap", Duration::from_secs(3_600)).await?;
        Ok::<_, Failure>(if patched { "new".to_owned() } else { "old way".to_owned() })
    };
    let kit = Kit::start(|engine| engine.function("p", 1, old)).await.unwrap();
    kit.client().start("p", &()).id("before").await.unwrap();
    kit.settle().await.unwrap();
    let kit = kit.crash(|engine| engine.function("p", 2, new)).await.unwrap();
    let after = kit.client().start("p", &()).id("after").await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(kit.client().run("before").unwrap().result::<String>().await.unwrap(), "old way");
    assert_eq!(after.result::<String>().await.unwrap(), "new");
}

#[tokio::test]
async fn a_run_that_is_paused_for_another_reason_is_not_resumed_under_code_that_does_not_fit() {
    let hold = |second: &'static str| {
        let step = move |_: StepCtx<Value>| async move {
            if second == "charge" { Err(wigwag::permanent("refused")) } else { Ok::<_, Failure>(2) }
        };
        move |engine: Builder| {
            let graph = Graph::<Value>::new("hold")
                .step("a", |_: StepCtx<Value>| async { Ok::<_, Failure>(1) })
                .step(second, step)
                .after("a")
                .on_failure(wigwag::OnFailure::Pause);
            engine.workflow(graph)
        }
    };
    let kit = Kit::start(hold("charge")).await.unwrap();
    kit.client().start("hold", &json!({})).id("h").await.unwrap();
    kit.settle().await.unwrap();
    let kit = kit.crash(hold("pay")).await.unwrap();
    let run = kit.client().run("h").unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Paused);
    run.resume().await.unwrap();
    kit.advance(Duration::from_secs(100)).await.unwrap();
    let view = run.get().await.unwrap();
    assert_eq!(view.status(), Status::Paused);
    assert_eq!(view.run().error.as_ref().unwrap().incompatible_steps, ["charge"]);
    run.migrate().rename("charge", "pay").await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.result::<u32>().await.unwrap(), 2);
}

#[tokio::test]
async fn a_wait_keeps_the_schema_it_was_opened_with_when_code_changes_it() {
    let code = |kind: &'static str| {
        let schema = json!({"type": kind});
        move |engine: Builder| {
            let graph = Graph::<Value>::new("g").signal("first").schema(schema.clone()).signal("second").after("first");
            engine.workflow(graph.schema(schema))
        }
    };
    let kit = Kit::start(code("integer")).await.unwrap();
    let run = kit.client().start("g", &json!({})).id("r").await.unwrap();
    kit.settle().await.unwrap();
    let kit = kit.crash(code("string")).await.unwrap();
    let run = kit.client().run(run.id()).unwrap();
    let refused = run.signal("first", "text").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidPayload, "the open wait keeps the schema of its opening");
    run.signal("first", &7).await.unwrap();
    kit.settle().await.unwrap();
    assert_eq!(run.waiting().await.unwrap()[0].point.as_str(), "second", "the accepted signal is consumed");
    let refused = run.signal("second", &7).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidPayload, "a wait that was opened later has the new schema");
    run.signal("second", "text").await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Completed);
}

#[tokio::test]
async fn a_wait_of_a_function_keeps_the_schema_it_was_opened_with_when_code_changes_it() {
    let code = |kind: &'static str| {
        move |engine: Builder| {
            engine.function("f", 1, move |ctx: Ctx, (): ()| async move {
                let schema = json!({"type": kind});
                let first = ctx.wait::<Value>("n").schema(schema.clone()).await?;
                let second = ctx.wait::<Value>("n").schema(schema).await?;
                Ok::<_, Failure>(json!([first, second]))
            })
        }
    };
    let kit = Kit::start(code("integer")).await.unwrap();
    kit.client().start("f", &()).id("r").await.unwrap();
    kit.settle().await.unwrap();
    let kit = kit.crash(code("string")).await.unwrap();
    kit.settle().await.unwrap();
    let run = kit.client().run("r").unwrap();
    let refused = run.signal("n", &json!("text")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidPayload, "the open wait keeps the schema of its opening");
    run.signal("n", &json!(1)).await.unwrap();
    kit.settle().await.unwrap();
    let refused = run.signal("n", &json!(2)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidPayload, "a wait that was opened later has the new schema");
    run.signal("n", &json!("text")).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.result::<Value>().await.unwrap(), json!([1, "text"]));
}

#[tokio::test]
async fn an_early_signal_that_the_changed_schema_does_not_take_is_kept_and_shown_with_the_reason() {
    let code = |kind: &'static str| {
        let schema = json!({"type": kind});
        move |engine: Builder| {
            let step = |_: StepCtx<Value>| async { Ok::<_, Failure>(()) };
            let graph = Graph::<Value>::new("g").step("later", step).delay(Duration::from_secs(3_600));
            engine.workflow(graph.signal("go").after("later").schema(schema))
        }
    };
    let kit = Kit::start(code("integer")).await.unwrap();
    kit.client().start("g", &json!({})).id("r").await.unwrap().signal("go", &7).await.unwrap();
    kit.settle().await.unwrap();
    let kit = kit.crash(code("string")).await.unwrap();
    kit.run_until_idle().await.unwrap();
    let run = kit.client().run("r").unwrap();
    let kept = run.signals(Some("go")).await.unwrap();
    assert!(kept.len() == 1 && kept[0].misfit.as_ref().unwrap().contains("`go` rejects it"), "{kept:?}");
    run.signal("go", "text").await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Completed);
}
