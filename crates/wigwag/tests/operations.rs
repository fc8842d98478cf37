//! Operating runs: listing, waiting, large payloads, graceful stop, sweeping, removing, several workers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde_json::{Value, json};
use wigwag::testing::Kit;
use wigwag::{Ctx, Engine, ErrorKind, Failure, Filter, Graph, PruneOptions, Settings, Status, StepCtx};
use wigwag_store::{Batch, Clock, Embedded, EmbeddedSettings, Memory, Stamp, Store, System};

async fn echo(_: Ctx, input: Value) -> Result<Value, Failure> {
    Ok(input)
}

async fn nap(ctx: Ctx, hours: u64) -> Result<u64, Failure> {
    ctx.sleep("nap", Duration::from_secs(hours * 3_600)).await?;
    Ok(hours)
}

#[tokio::test]
async fn the_same_id_with_the_same_input_is_the_same_run_and_with_another_a_conflict() {
    let kit = Kit::start(|engine| engine.function("echo", 1, echo)).await.unwrap();
    let client = kit.client();
    client.start("echo", &json!({"a": 1, "b": 2})).id("e").await.unwrap();
    let same = client.start("echo", &json!({"b": 2, "a": 1})).id("e").await.unwrap();
    assert_eq!(same.result::<Value>().await.unwrap(), json!({"a": 1, "b": 2}));
    let error = client.start("echo", &json!({"a": 2})).id("e").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    for (id, wrong) in [("", "not an id"), (".x", "not an id"), ("a/b", "not an id"), ("x.json", "not an id")] {
        let error = client.start("echo", &1).id(id).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(wrong), "{error}");
    }
    let error = client.run("nobody").unwrap().get().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_large_payload_is_a_separate_object_and_one_that_is_too_large_is_rejected() {
    let kit = Kit::start(|engine| {
        let graph = Graph::<Value>::new("large")
            .step("grow", |ctx: StepCtx<Value>| async move { ctx.input() })
            .step("last", |ctx: StepCtx<Value>| async move { ctx.output::<Value>("grow").await })
            .after("grow");
        engine.function("echo", 1, echo).workflow(graph)
    })
    .await
    .unwrap();
    let client = kit.client();
    let large = json!({"text": "x".repeat(100_000)});
    for of in ["echo", "large"] {
        let run = client.start(of, &large).id(of).await.unwrap();
        assert_eq!(run.result::<Value>().await.unwrap(), large);
        let again = client.start(of, &large).id(of).await.unwrap();
        assert_eq!(again.id().as_str(), of, "compared by content");
        let entry = kit.store().get(&format!("workflow/{of}/log/0000000001.json")).await.unwrap().unwrap();
        assert!(entry.body.len() < 2_000, "an entry stays small: {}", entry.body.len());
    }
    let looks_like_a_reference = json!({"$blob": "x", "bytes": 1});
    let run = client.start("echo", &looks_like_a_reference).await.unwrap();
    assert_eq!(run.result::<Value>().await.unwrap(), looks_like_a_reference);
    let error = client.start("echo", &"x".repeat(2_000_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("at most 1048576 bytes"), "{error}");
}

#[tokio::test]
async fn runs_are_listed_by_type_and_status_page_by_page() {
    let kit = Kit::start(|engine| engine.function("echo", 1, echo).function("nap", 1, nap)).await.unwrap();
    let client = kit.client();
    for number in 0..7 {
        client.start("echo", &number).id(format!("e{number}")).await.unwrap();
        client.start("nap", &1).id(format!("n{number}")).await.unwrap();
    }
    kit.settle().await.unwrap();
    let mut filter = Filter::default();
    filter.limit = 3;
    let mut seen = Vec::new();
    loop {
        let page = client.list(&filter).await.unwrap();
        assert!(page.runs.len() <= 3);
        seen.extend(page.runs.iter().map(|run| format!("{} {}", run.id, run.status)));
        match page.next {
            Some(next) => filter.after = Some(next),
            None => break,
        }
    }
    let mut expected: Vec<String> = (0..7).map(|number| format!("n{number} running")).collect();
    expected.extend((0..7).rev().map(|number| format!("e{number} completed")));
    assert_eq!(seen, expected, "unfinished ones first, then finished ones, the last first");
    let mut filter = Filter::default();
    filter.of = Some("echo".into());
    assert_eq!(client.list(&filter).await.unwrap().runs.len(), 7);
    filter.statuses = vec![Status::Failed];
    assert_eq!(client.list(&filter).await.unwrap().runs.len(), 0);
    filter.after = Some("nonsense".into());
    filter.statuses.clear();
    assert_eq!(client.list(&filter).await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn now_and_random_are_the_same_whenever_the_function_is_run_again() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = Arc::clone(&seen);
    let code = move |ctx: Ctx, (): ()| {
        let seen = Arc::clone(&noted);
        async move {
            let first = (ctx.now(), ctx.random());
            ctx.step("one", || async { Ok::<_, Failure>(()) }).await?;
            let second = (ctx.now(), ctx.random());
            ctx.sleep("nap", Duration::from_secs(60)).await?;
            seen.lock().unwrap().push((first, second, ctx.now()));
            ctx.sleep("nap", Duration::from_secs(60)).await?;
            Ok::<_, Failure>(())
        }
    };
    let kit = Kit::start(|engine| engine.function("pure", 1, code)).await.unwrap();
    let run = kit.client().start("pure", &()).await.unwrap();
    kit.run_until_idle().await.unwrap();
    run.result::<()>().await.unwrap();
    let seen = seen.lock().unwrap().clone();
    assert!(seen.len() >= 2, "it was run again: {seen:?}");
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
    assert_ne!(seen[0].0.1, seen[0].1.1, "two calls give two numbers");
    assert!(run.steps().await.unwrap().contains_key("nap#2"), "a name used twice");
}

#[tokio::test]
async fn a_graceful_stop_releases_its_runs_and_another_engine_continues_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let begun = Arc::new(AtomicU32::new(0));
    let code = |begun: Arc<AtomicU32>, stuck: bool| {
        move |ctx: Ctx, (): ()| {
            let begun = Arc::clone(&begun);
            async move {
                ctx.step("slow", || async {
                    begun.fetch_add(1, Ordering::SeqCst);
                    if stuck {
                        std::future::pending::<()>().await;
                    }
                    Ok::<_, Failure>("done".to_owned())
                })
                .await
            }
        }
    };
    let store: Arc<dyn Store> = Arc::new(Embedded::open(folder.path()).unwrap());
    let mut settings = Settings::default();
    settings.grace = Duration::from_millis(50);
    let first = Engine::builder(Arc::clone(&store))
        .settings(settings)
        .function("slow", 1, code(Arc::clone(&begun), true))
        .start()
        .await
        .unwrap();
    first.client().start("slow", &()).id("s").await.unwrap();
    while begun.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    first.stop().await;
    let second = Engine::builder(store).function("slow", 1, code(Arc::clone(&begun), false)).start().await.unwrap();
    let run = second.client().run("s").unwrap();
    assert_eq!(run.result::<String>().await.unwrap(), "done");
    assert_eq!(run.steps().await.unwrap()["slow"].attempt, 1, "releasing a run is no failure");
    second.stop().await;
}

#[tokio::test]
async fn the_sweeper_finds_nothing_in_normal_operation_and_repairs_what_is_broken() {
    let kit = Kit::start(|engine| engine.function("echo", 1, echo).function("nap", 1, nap)).await.unwrap();
    let client = kit.client();
    client.start("echo", &1).await.unwrap();
    let run = client.start("nap", &1).id("n").await.unwrap();
    kit.settle().await.unwrap();
    kit.clock().advance(Duration::from_secs(120));
    let swept = client.sweep(false).await.unwrap();
    assert_eq!((swept.repaired(), swept.runs, swept.too_young), (0, 1, 0), "{swept:?}");
    // Deletes the wake-up, adds one for a run that never existed, and leaves a stale index entry.
    let hint = run.get().await.unwrap().run().hints[0].clone();
    let foreign = hint.replace("~n~", "~nobody~").replace("2026-01-01T01", "2026-01-01T00");
    let batch = Batch::new().delete(&hint).put(&foreign, r#"{"type":"nap","run":"workflow/nobody"}"#);
    kit.store().write(batch.put("live/nap/ghost", "{}")).await.unwrap();
    kit.clock().advance(Duration::from_secs(2 * 3_600));
    let dry = client.sweep(true).await.unwrap();
    assert_eq!((dry.orphan_hints, dry.stale_live, dry.lost_runs), (1, 1, 1), "{dry:?}");
    assert_eq!(client.sweep(false).await.unwrap(), dry, "a dry run changes nothing");
    kit.settle().await.unwrap();
    assert_eq!(run.result::<u64>().await.unwrap(), 1, "the lost run was found");
    assert_eq!(client.sweep(false).await.unwrap().repaired(), 0);
}

#[tokio::test]
async fn a_sweep_says_how_many_runs_are_too_young_to_judge() {
    let kit = Kit::start(|engine| engine.function("nap", 1, nap)).await.unwrap();
    let client = kit.client();
    let run = client.start("nap", &10).id("n").await.unwrap();
    kit.settle().await.unwrap();
    // A client that is about to create its run, and a run whose wake-up may be replaced at this moment.
    let hint = run.get().await.unwrap().run().hints[0].clone();
    kit.store().write(Batch::new().delete(&hint).put("live/nap/ghost", "{}")).await.unwrap();
    let swept = client.sweep(false).await.unwrap();
    assert_eq!((swept.runs, swept.too_young, swept.repaired()), (2, 2, 0), "{swept:?}");
    kit.clock().advance(Duration::from_secs(2 * 3_600));
    let swept = client.sweep(false).await.unwrap();
    assert_eq!((swept.runs, swept.too_young, swept.repaired()), (2, 0, 2), "{swept:?}");
}

#[tokio::test]
async fn old_runs_are_removed_in_two_phases_and_unfinished_ones_never() {
    let kit = Kit::start(|engine| engine.function("echo", 1, echo).function("nap", 1, nap)).await.unwrap();
    let client = kit.client();
    client.start("echo", &1).id("old").await.unwrap();
    client.start("nap", &10_000).id("asleep").await.unwrap();
    kit.settle().await.unwrap();
    kit.clock().advance(Duration::from_secs(10 * 86_400));
    client.start("echo", &2).id("young").await.unwrap();
    kit.settle().await.unwrap();
    let mut options = PruneOptions::older_than(Duration::from_secs(7 * 86_400));
    options.dry_run = true;
    assert_eq!(client.prune(&options).await.unwrap().runs, 1);
    assert_eq!(client.prunable(&options).await.unwrap(), 1, "counted from keys");
    assert_eq!(client.run("old").unwrap().status().await.unwrap(), Status::Completed, "a dry run changes nothing");
    options.dry_run = false;
    let pruned = client.prune(&options).await.unwrap();
    assert_eq!((pruned.runs, pruned.freed), (1, 0), "{pruned:?}");
    let error = client.run("old").unwrap().get().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gone);
    assert!(error.to_string().contains("is gone: it ended as `completed`"), "{error}");
    let error = client.start("echo", &1).id("old").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gone, "the id is not free yet");
    let left = kit.store().list("workflow/old/", "", 10).await.unwrap().entries;
    assert_eq!(
        left.len(),
        2,
        "a tombstone over the first entry, and one after the last that no restart passes: {left:?}"
    );
    kit.clock().advance(Duration::from_secs(2 * 86_400));
    assert_eq!(client.prune(&options).await.unwrap().freed, 1);
    assert_eq!(kit.store().list("workflow/old/", "", 10).await.unwrap().entries.len(), 0);
    client.start("echo", &1).id("old").await.unwrap();
    assert_eq!(client.run("asleep").unwrap().status().await.unwrap(), Status::Running);
    assert_eq!(client.run("young").unwrap().status().await.unwrap(), Status::Completed);
}

#[tokio::test]
async fn a_child_is_not_removed_before_its_end_was_reported_to_the_parent() {
    let parent = |ctx: Ctx, _: Value| async move { ctx.child::<Value, _>("child", "echo", &1).await };
    let kit = Kit::start(|engine| engine.function("echo", 1, echo).function("parent", 1, parent)).await.unwrap();
    let client = kit.client();
    client.start("parent", &json!({})).id("p").await.unwrap();
    kit.settle().await.unwrap();
    let child = client.run("p:child").unwrap();
    let hints = child.get().await.unwrap().run().hints.clone();
    assert!(!hints.is_empty(), "the hint of its last lease is known");
    // As after the death of its worker behind the last entry: this wake-up leads to the end of the child,
    // which wakes the parent.
    kit.store().write(Batch::new().put(&hints[0], "{}")).await.unwrap();
    kit.clock().advance(Duration::from_secs(7_200));
    let all = PruneOptions::older_than(Duration::ZERO);
    assert_eq!(client.prune(&all).await.unwrap().runs, 1, "the parent alone");
    assert_eq!(child.status().await.unwrap(), Status::Completed);
    kit.store().write(Batch::new().delete(&hints[0])).await.unwrap();
    assert_eq!(client.prune(&all).await.unwrap().runs, 1);
    assert_eq!(child.get().await.unwrap_err().kind(), ErrorKind::Gone);
}

#[tokio::test]
async fn a_worker_skips_workflows_that_it_did_not_register() {
    let kit = Kit::start(|engine| engine.function("echo", 1, echo)).await.unwrap();
    let client = kit.client();
    for number in 0..1_500 {
        client.start("foreign", &number).await.unwrap();
    }
    let other = Engine::builder(Arc::clone(kit.store())).clock(Arc::new(kit.clock().clone())).client().await.unwrap();
    let run = other.start("echo", &1).await.unwrap();
    kit.settle().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Completed, "no head-of-line blocking");
    for _ in 0..20 {
        kit.advance(Duration::from_secs(10)).await.unwrap();
    }
    let run = other.start("echo", &2).await.unwrap();
    kit.settle().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parallel_branches_really_run_in_parallel() {
    let barrier = Arc::new(std::sync::Barrier::new(2));
    let branch = || {
        let barrier = Arc::clone(&barrier);
        move |_: StepCtx<Value>| {
            let barrier = Arc::clone(&barrier);
            async move {
                // Blocks the thread until the other branch has reached this line too.
                tokio::task::block_in_place(|| barrier.wait());
                Ok::<_, Failure>(())
            }
        }
    };
    let graph = Graph::<Value>::new("wide").step("left", branch()).step("right", branch());
    let engine = Engine::builder(Arc::new(Memory::new())).workflow(graph).start().await.unwrap();
    let run = engine.client().start("wide", &json!({})).await.unwrap();
    assert_eq!(run.result::<Value>().await.unwrap(), json!({"left": null, "right": null}));
    engine.stop().await;
}

#[tokio::test]
async fn mistakes_in_a_definition_are_rejected_by_name_when_the_engine_starts() {
    let step = |_: StepCtx<Value>| async { Ok::<_, Failure>(()) };
    let rows = [
        (Graph::<Value>::new("g").step("a", step).after("b"), "comes after `b`, which is no step"),
        (Graph::new("g").step("a", step).step("a", step), "two steps called `a`"),
        (Graph::new("g").step("a", step).after("b").step("b", step).after("a"), "wait for each other: `a` after `b`"),
        (Graph::new("g").step("a/b", step), "not a name"),
        (Graph::new("g").after("x"), "must follow a step"),
        (Graph::new("g"), "has no steps"),
        (Graph::new("no good").step("a", step), "not a name"),
    ];
    for (graph, wrong) in rows {
        let error = Engine::builder(Arc::new(Memory::new())).workflow(graph).start().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(wrong), "{error}");
    }
}

#[tokio::test]
async fn a_group_is_a_sequence_with_paths_of_its_own() {
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let step = |name: &'static str| {
        let order = Arc::clone(&order);
        move |_: StepCtx<Value>| {
            order.lock().unwrap().push(name);
            async { Ok::<_, Failure>(()) }
        }
    };
    let graph = Graph::<Value>::new("g")
        .step("first", step("first"))
        .group("pack", |group| {
            group
                .step("wrap", step("wrap"))
                .group("label", |label| label.step("print", step("print")).step("stick", step("stick")))
        })
        .after("first")
        .step("last", step("last"))
        .after("pack");
    let kit = Kit::start(|engine| engine.workflow(graph)).await.unwrap();
    let run = kit.client().start("g", &json!({})).await.unwrap();
    run.wait().await.unwrap();
    assert_eq!(*order.lock().unwrap(), ["first", "wrap", "print", "stick", "last"]);
    let paths: Vec<String> = run.steps().await.unwrap().keys().map(ToString::to_string).collect();
    assert_eq!(paths, ["first", "last", "pack/label/print", "pack/label/stick", "pack/wrap"]);
}

#[tokio::test]
async fn a_log_is_followed_to_its_end_and_from_anywhere_in_it() {
    let kit = Kit::start(|engine| engine.function("nap", 1, nap)).await.unwrap();
    let run = kit.client().start("nap", &1).id("n").await.unwrap();
    let mut log = run.follow(1);
    let first = log.next().await.unwrap().unwrap();
    assert_eq!(first[0].events[0].name(), "run.started");
    let rest = tokio::spawn(async move {
        let mut seen = first;
        while let Some(more) = log.next().await.unwrap() {
            seen.extend(more);
        }
        seen
    });
    kit.run_until_idle().await.unwrap();
    let seen = rest.await.unwrap();
    assert_eq!(seen, run.history(1, 1_000).await.unwrap(), "nothing is lost and nothing repeated");
    let last = seen.last().unwrap();
    assert_eq!(last.events.last().unwrap().name(), "run.completed");
    assert_eq!(run.follow(last.seq).next().await.unwrap().unwrap(), std::slice::from_ref(last));
    assert!(run.follow(last.seq + 1).next().await.unwrap().is_none(), "it has ended");
    assert_eq!(run.follow(last.seq + 2).next().await.unwrap_err().kind(), ErrorKind::Invalid);
    let missing = kit.client().run("nobody").unwrap();
    assert_eq!(missing.follow(1).next().await.unwrap_err().kind(), ErrorKind::NotFound);
}

/// The machine's clock, two minutes ahead.
#[derive(Debug)]
struct Ahead;

#[async_trait::async_trait]
impl Clock for Ahead {
    fn wall(&self) -> Stamp {
        System.wall().after(Duration::from_secs(120))
    }
    fn boot(&self) -> Duration {
        System.boot()
    }
    async fn sleep(&self, span: Duration) {
        System.sleep(span).await;
    }
}

/// Measures how many finished runs of an embedded store are pruned in a second. Built with optimisations, it is to be 5,000.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement, which depends on the machine"]
#[expect(clippy::print_stderr, reason = "its output is its result")]
async fn prune_speed() {
    const RUNS: usize = 10_000;
    let folder = tempfile::tempdir().unwrap();
    let code = |ctx: Ctx, (): ()| async move { ctx.step("only", || async { Ok::<_, Failure>(()) }).await };
    let store = Embedded::open(folder.path()).unwrap();
    let engine = Engine::builder(Arc::new(store)).function("short", 1, code).start().await.unwrap();
    let client = engine.client();
    let one = |number| {
        let client = client.clone();
        async move { client.start("short", &()).id(format!("r-{number}")).await.unwrap().wait().await.unwrap() }
    };
    assert_eq!(stream::iter(0..RUNS).map(one).buffer_unordered(256).count().await, RUNS);
    engine.stop().await;
    let mut settings = EmbeddedSettings::existing();
    settings.clock = Arc::new(Ahead);
    let store = Embedded::open_with(folder.path(), &settings).unwrap();
    let client = Engine::builder(Arc::new(store)).client().await.unwrap();
    let begun = System.boot();
    let pruned = client.prune(&PruneOptions::older_than(Duration::from_secs(60))).await.unwrap();
    let took = System.boot() - begun;
    eprintln!("{} runs and {} objects in {took:?}", pruned.runs, pruned.objects);
    assert_eq!(pruned.runs, RUNS);
}
