//! `wigwag doctor` on stores with runs that are stuck.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

#[expect(dead_code, reason = "no command fails here, so that its errors are not checked")]
mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{good, text, wigwag};
use serde_json::{Value, json};
use wigwag::testing::{Kit, ManualClock};
use wigwag::{Ctx, Failure, Graph, StepCtx, Time};
use wigwag_store::{Batch, Clock as _, Embedded, EmbeddedSettings, Store, System};

/// Creates a store whose runs were started two hours ago. No worker serves `pair`.
async fn a_store(folder: &std::path::Path) -> Kit {
    let clock = ManualClock::default();
    let passed = System.wall().since(clock.wall());
    clock.advance(passed.saturating_sub(Duration::from_secs(2 * 3_600)));
    let mut settings = EmbeddedSettings::default();
    settings.clock = Arc::new(clock.clone());
    let store: Arc<dyn Store> = Arc::new(Embedded::open_with(folder.join(".wigwag"), &settings).unwrap());
    let waits = |ctx: Ctx, _: Value| async move { ctx.wait::<Value>("approval").await };
    let step = |_: StepCtx<Value>| async { Ok::<_, Failure>(()) };
    let pair = Graph::<Value>::new("pair").step("a", step).step("b", step).after("a");
    let kit = Kit::on(store, clock, |engine| engine.workflow(pair)).await.unwrap();
    let sleeps = |ctx: Ctx, _: Value| async move { ctx.sleep("s", Duration::from_secs(4 * 3_600)).await };
    kit.crash(|engine| engine.function("waits", 1, waits).function("sleeps", 1, sleeps)).await.unwrap()
}

/// Appends an entry to the log of a run, as a worker with a bug would, this many minutes after its start.
async fn append(kit: &Kit, run: &str, minutes: u64, events: Value) {
    let log = kit.store().list(&format!("workflow/{run}/log/"), "", 100).await.unwrap().entries;
    let first = kit.store().get(&log[0].key).await.unwrap().unwrap().body;
    let at: Time = serde_json::from_value(serde_json::from_slice::<Value>(&first).unwrap()["at"].clone()).unwrap();
    let at = at.after(Duration::from_secs(60 * minutes));
    let seq = log.len() + 1;
    let text = events.to_string().replace("NOW", &at.to_string());
    let events: Value =
        serde_json::from_str(&text.replace("SOON", &at.after(Duration::from_secs(30)).to_string())).unwrap();
    let entry = json!({"seq": seq, "by": format!("w.{seq}"), "at": at, "events": events}).to_string();
    kit.store().write(Batch::new().put(format!("workflow/{run}/log/{seq:010}.json"), entry)).await.unwrap();
}

fn claim() -> Value {
    json!({"type": "run.claimed", "owner": "w", "until": "SOON", "hints": []})
}

/// Starts a run of `pair`, and lets a worker with a bug park it after these events.
async fn park(kit: &Kit, run: &str, events: Vec<Value>) {
    kit.client().start("pair", &json!({})).id(run).await.unwrap();
    let definitions = kit.store().list("definition/", "", 100).await.unwrap().entries;
    let definition = definitions.iter().find(|listed| listed.key.contains("pair")).unwrap();
    let definition = kit.store().get(&definition.key).await.unwrap().unwrap().body;
    let hash = serde_json::from_slice::<Value>(&definition).unwrap()["hash"].clone();
    let hint = format!("due/00/2036-06-01T00:00:00.000000Z~00000000~{run}~x");
    let park = json!({"type": "run.parked", "hints": [hint]});
    let follow = json!({"type": "run.migrated", "definition_hash": hash});
    let events: Vec<Value> = [follow, claim()].into_iter().chain(events).chain([park]).collect();
    append(kit, run, 1, json!(events)).await;
}

/// Runs that are parked although they could continue, each for another reason.
async fn park_some(kit: &Kit) {
    let started = |step: &str| json!({"type": "step.started", "point": step, "attempt": 1, "compensate": true});
    let done = |step: &str| json!({"type": "step.completed", "point": step, "at": "NOW", "result": 1});
    let error = json!({"type": "StepFailed", "message": "no"});
    let failed = json!({"type": "step.failed", "point": "a", "attempt": 1, "at": "NOW", "error": error});
    let undo = json!({"type": "compensation.started", "point": "a", "attempt": 1, "cause": {"failed": error}});
    park(kit, "ready", vec![]).await;
    park(kit, "done", vec![started("a"), done("a"), started("b"), done("b")]).await;
    park(kit, "failed", vec![started("a"), failed]).await;
    park(kit, "undone", vec![started("a"), done("a"), undo]).await;
    park(kit, "cancelled", vec![json!({"type": "run.cancel_requested", "control": "c"})]).await;
}

/// Runs whose turns record nothing, or that no worker serves.
async fn neglect_some(kit: &Kit) {
    for id in ["unserved", "moved", "dying", "rejected"] {
        kit.client().start("pair", &json!({})).id(id).await.unwrap();
    }
    let started = json!({"type": "step.started", "point": "a", "attempt": 1, "compensate": true});
    append(kit, "moved", 1, json!([claim(), started])).await;
    for minutes in 1..=3 {
        append(kit, "dying", minutes, json!([claim()])).await;
    }
    let error = json!({"type": "Unrecordable", "message": "the next entry has too many bytes"});
    append(kit, "rejected", 1, json!([{"type": "run.paused", "why": "failure", "error": error}])).await;
}

/// Runs whose wake-up is missing or too late: without one, for a timer, for a control object, for a signal.
async fn forget_some(kit: &Kit) {
    for (of, id) in [("waits", "forgotten"), ("sleeps", "late"), ("waits", "asked"), ("waits", "unheard")] {
        kit.client().start(of, &json!(null)).id(id).await.unwrap();
    }
    kit.settle().await.unwrap();
    let at = kit.client().run("asked").unwrap().get().await.unwrap().run().updated_at;
    let hints = kit.store().list("due/", "", 100).await.unwrap().entries;
    let hint_of = |id: &str| hints.iter().find(|hint| hint.key.contains(&format!("~{id}~"))).unwrap().key.clone();
    let late = hint_of("late");
    let later = format!("due/00/2036-06-01T00:00:00.000000Z~{}", late.split_once('~').unwrap().1);
    let control = json!({"id": "1", "created_at": at, "order": "cancel"}).to_string();
    let signal = json!({"id": "1", "name": "approval", "created_at": at, "payload": 1}).to_string();
    let after = at.after(Duration::from_secs(60));
    let batch = Batch::new()
        .delete(hint_of("forgotten"))
        .delete(late)
        .put(later, "{}")
        .put(format!("workflow/asked/signals/.control/{at}_1.json"), control)
        .put(format!("workflow/unheard/signals/approval/{after}_00000000000000000000000000000001.json"), signal);
    kit.store().write(batch).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_names_each_kind_of_stuck_run() {
    let folder = tempfile::tempdir().unwrap();
    let kit = a_store(folder.path()).await;
    kit.client().start("waits", &json!(null)).id("fine").await.unwrap();
    park_some(&kit).await;
    neglect_some(&kit).await;
    forget_some(&kit).await;
    drop(kit);
    let output = wigwag(folder.path(), &["doctor", "--no-store"]);
    let (said, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("violates a guarantee") && error.contains("\nhint: back up the store"), "{error}");
    for (word, what) in [
        ("BROKEN", "run `ready` (running) is parked and could continue: step `a` is ready, and has not begun"),
        ("BROKEN", "run `done` (running) is parked and could continue: all its steps are done, and it has not ended"),
        ("BROKEN", "run `failed` (running) is parked and could continue: step `a` has failed, and the run has not"),
        ("BROKEN", "run `undone` (compensating) is parked and could continue: its compensation has not ended"),
        ("BROKEN", "run `cancelled` (running) is parked and could continue: it is being cancelled"),
        ("STUCK", "run `unserved` (pending) was due on"),
        ("STUCK", "run `moved` (running) was due on"),
        ("STUCK", "no worker serves `pair`"),
        ("STUCK", "run `dying` (running) was claimed 3 times in a row, and nothing else was recorded"),
        (
            "STUCK",
            "run `rejected` (paused) is paused: the same turn would be rejected again: the next entry has too many",
        ),
        ("BROKEN", "run `forgotten` (waiting_signal) has no wake-up: no worker will check it"),
        ("BROKEN", "run `late` (running) needs attention at "),
        ("BROKEN", "run `asked` (waiting_signal) has a control object"),
        ("untidy", "run `unheard` (waiting_signal) waits for a signal that is there"),
    ] {
        assert!(said.lines().any(|line| line.starts_with(word) && line.contains(what)), "want: {word} {what}\n{said}");
    }
    assert!(!said.contains("`fine`"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn doctor_has_nothing_to_say_of_runs_that_wait() {
    let folder = tempfile::tempdir().unwrap();
    let kit = a_store(folder.path()).await;
    kit.client().start("waits", &json!(null)).id("fine").await.unwrap();
    kit.settle().await.unwrap();
    drop(kit);
    let said = good(&wigwag(folder.path(), &["doctor", "--no-store"]));
    assert!(!said.contains("STUCK") && !said.contains("BROKEN"), "{said}");
}
