//! The audit of a store: no finding in an intact store, and each kind of damage is found.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::time::Duration;

use serde_json::{Value, json};
use wigwag::testing::Kit;
use wigwag::{Audit, AuditOptions, Ctx, Failure};
use wigwag_core::{Entry, read_entry};
use wigwag_store::{Batch, Store as _};

async fn order(ctx: Ctx, _: Value) -> Result<Value, Failure> {
    ctx.step("reserve", || async { Ok::<_, Failure>(1) }).await?;
    let first = ctx.wait::<Value>("approval").await?;
    ctx.sleep("pause", Duration::from_secs(5)).await?;
    let second = ctx.wait::<Value>("approval").await?;
    Ok(json!([first, second]))
}

/// Returns a kit with a finished run and a waiting run.
async fn a_store() -> Kit {
    let kit = Kit::start(|engine| engine.function("order", 1, order)).await.unwrap();
    for id in ["ended", "waits"] {
        kit.client().start("order", &json!({"id": id})).id(id).await.unwrap();
    }
    kit.settle().await.unwrap();
    for (id, key) in [("ended", "k1"), ("ended", "k2"), ("waits", "k1")] {
        kit.client().signal(id, "approval", &json!({"key": key})).key(key).await.unwrap();
        kit.settle().await.unwrap();
        kit.advance(Duration::from_secs(10)).await.unwrap();
    }
    kit.advance(Duration::from_secs(120)).await.unwrap();
    kit
}

async fn audit(kit: &Kit) -> Audit {
    kit.client().audit(&AuditOptions::at_rest(), |_| {}).await.unwrap()
}

/// Returns the keys with this prefix and this ending.
async fn keys(kit: &Kit, prefix: &str, end: &str) -> Vec<String> {
    let page = kit.store().list(prefix, "", 1_000).await.unwrap();
    page.entries.into_iter().map(|listed| listed.key).filter(|key| key.ends_with(end)).collect()
}

async fn key(kit: &Kit, prefix: &str, end: &str) -> String {
    let keys = keys(kit, prefix, end).await;
    assert!(!keys.is_empty(), "there is a key like `{prefix}…{end}`");
    keys[0].clone()
}

async fn replace(kit: &Kit, key: &str, change: impl FnOnce(String) -> String) {
    let text = kit.store().get(key).await.unwrap().unwrap_or_else(|| panic!("`{key}` is there")).body;
    let text = change(String::from_utf8(text.to_vec()).unwrap());
    kit.store().write(Batch::new().put(key, text)).await.unwrap();
}

async fn remove(kit: &Kit, key: &str) {
    assert!(kit.store().get(key).await.unwrap().is_some(), "`{key}` is there");
    kit.store().write(Batch::new().delete(key)).await.unwrap();
}

/// Returns the numbers of the violated guarantees, and their descriptions.
async fn broken(kit: &Kit) -> (Vec<u8>, String) {
    let audit = audit(kit).await;
    let said = audit.broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    let mut numbers: Vec<u8> = audit.broken.iter().map(|breach| breach.promise.number()).collect();
    numbers.dedup();
    (numbers, said)
}

#[track_caller]
fn assert_found(found: &(Vec<u8>, String), promise: u8, said: &str) {
    assert!(found.0.contains(&promise), "promise {promise} is named: {found:?}");
    assert!(found.1.contains(said), "it says `{said}`: {}", found.1);
}

#[tokio::test]
async fn a_good_store_breaks_nothing() {
    let kit = a_store().await;
    let audit = audit(&kit).await;
    assert_eq!((audit.runs, audit.unfinished, audit.signals), (2, 1, 3));
    assert!(audit.entries > 6 && audit.broken.is_empty() && audit.untidy.is_empty(), "{audit:?}");
    let mut seen = 0;
    let some = kit.client().audit(&AuditOptions::default().limit(1), |_| seen += 1).await.unwrap();
    assert_eq!((some.runs, seen), (1, 1), "no more than asked for");
}

#[tokio::test]
async fn recent_writes_are_not_judged() {
    let kit = Kit::start(|engine| engine.function("order", 1, order)).await.unwrap();
    kit.client().start("order", &json!({})).id("young").await.unwrap();
    kit.settle().await.unwrap();
    remove(&kit, "live/order/young").await;
    let young = kit.client().audit(&AuditOptions::default(), |_| {}).await.unwrap();
    assert!(young.broken.is_empty(), "a worker may be about to put it: {young:?}");
    kit.clock().advance(Duration::from_secs(120));
    let old = kit.client().audit(&AuditOptions::default(), |_| {}).await.unwrap();
    assert_eq!(old.broken.len(), 1, "{old:?}");
}

#[tokio::test]
async fn a_signal_that_was_consumed_and_is_gone_is_found() {
    let kit = a_store().await;
    let signal = key(&kit, "workflow/ended/signals/approval/", "").await;
    remove(&kit, &signal).await;
    assert_found(&broken(&kit).await, 1, "was consumed, and is gone");
}

#[tokio::test]
async fn two_keys_of_one_signal_are_found() {
    let kit = a_store().await;
    let marks = keys(&kit, "workflow/ended/keys/approval/", "").await;
    let first = kit.store().get(&marks[0]).await.unwrap().unwrap().body;
    kit.store().write(Batch::new().put(&marks[1], first)).await.unwrap();
    assert_found(&broken(&kit).await, 3, "name the same signal");
}

#[tokio::test]
async fn an_entry_that_is_missing_is_found() {
    let kit = a_store().await;
    remove(&kit, "workflow/ended/log/0000000002.json").await;
    assert_found(&broken(&kit).await, 6, "`workflow/ended/log/0000000002.json` is missing, but the log continues");
}

#[tokio::test]
async fn an_unreadable_entry_is_found_and_the_other_runs_are_still_audited() {
    let kit = a_store().await;
    replace(&kit, "workflow/ended/log/0000000002.json", |text| text[..text.len() / 2].to_owned()).await;
    remove(&kit, "live/order/waits").await;
    let found = broken(&kit).await;
    assert_found(&found, 7, "`workflow/ended/log/0000000002.json` cannot be read");
    assert_found(&found, 11, "`live/order/waits` is missing");
}

#[tokio::test]
async fn an_entry_by_another_than_the_owner_is_found() {
    let kit = a_store().await;
    let key = "workflow/ended/log/0000000003.json";
    let entry = kit.store().get(key).await.unwrap().unwrap();
    let Ok(Ok(entry)) = read_entry(&entry.body) else { panic!("it is an entry") };
    let claims = entry.events.iter().any(|event| matches!(event, wigwag_core::Event::RunClaimed(_)));
    let (by, forged) = (entry.by.clone(), Entry { by: "somebody.1".into(), ..entry });
    kit.store().write(Batch::new().put(key, forged.to_json())).await.unwrap();
    assert!(claims, "the third entry claims the run, so that its writer is known: {by}");
    assert_found(&broken(&kit).await, 8, "is by `somebody.1`");
}

#[tokio::test]
async fn an_entry_after_the_end_is_found() {
    let kit = a_store().await;
    let last = keys(&kit, "workflow/ended/log/", ".json").await.pop().unwrap();
    let body = kit.store().get(&last).await.unwrap().unwrap().body;
    let Ok(Ok(entry)) = read_entry(&body) else { panic!("it is an entry") };
    let again = Entry { seq: entry.seq + 1, by: format!("{}1", entry.by), ..entry.clone() };
    let next = last.replace(&format!("{:010}", entry.seq), &format!("{:010}", entry.seq + 1));
    kit.store().write(Batch::new().put(next, again.to_json())).await.unwrap();
    assert_found(&broken(&kit).await, 7, "contradicts itself");
}

#[tokio::test]
async fn a_snapshot_that_does_not_follow_from_the_log_is_found() {
    let kit = a_store().await;
    replace(&kit, "workflow/waits/state.json", |text| text.replace("\"waiting_signal\"", "\"running\"")).await;
    assert_found(&broken(&kit).await, 11, "is not what the log folds to");
    let kit = a_store().await;
    replace(&kit, "workflow/waits/state.json", |_| "{}".into()).await;
    assert_found(&broken(&kit).await, 11, "`workflow/waits/state.json` cannot be read");
}

#[tokio::test]
async fn an_index_that_misses_or_invents_something_is_found() {
    let kit = a_store().await;
    let waiting = key(&kit, "waiting/approval/", "").await;
    remove(&kit, &waiting).await;
    assert_found(&broken(&kit).await, 11, &format!("`{waiting}` is missing"));
    let kit = a_store().await;
    let done = key(&kit, "done/", "ended").await;
    remove(&kit, &done).await;
    assert_found(&broken(&kit).await, 11, &format!("`{done}` is missing"));
    let kit = a_store().await;
    kit.store().write(Batch::new().put("live/order/ended", "{}")).await.unwrap();
    let audit = audit(&kit).await;
    assert!(audit.broken.is_empty(), "it is harmless");
    assert!(audit.untidy[0].what.contains("`live/order/ended` names a run or a wait that is over"), "{audit:?}");
}

#[tokio::test]
async fn an_entry_of_a_run_that_was_removed_is_found() {
    let kit = a_store().await;
    kit.store().write(Batch::new().put("workflow/old/log/0000000004.json", "{}")).await.unwrap();
    assert_found(&broken(&kit).await, 12, "`workflow/old` has entry 4 and no first");
}

#[tokio::test]
async fn a_run_without_a_wake_up_is_found() {
    let kit = a_store().await;
    for hint in keys(&kit, "due/", "").await {
        remove(&kit, &hint).await;
    }
    assert_found(&broken(&kit).await, 13, "run `waits` (waiting_signal) has no wake-up: no worker will check it");
}

#[tokio::test]
async fn a_wait_with_a_stored_signal_and_no_due_wake_up_is_named() {
    let kit = a_store().await;
    let page = kit.store().list("workflow/ended/signals/approval/", "", 1).await.unwrap();
    let body = kit.store().get(&page.entries[0].key).await.unwrap().unwrap().body;
    let now = wigwag::Time::from_micros(kit.store().now().await.unwrap().at.micros());
    let key = format!("workflow/waits/signals/approval/{now}_00000000000000000000000000000001.json");
    kit.store().write(Batch::new().put(key, body)).await.unwrap();
    let audit = audit(&kit).await;
    assert!(audit.broken.is_empty(), "the signal may not have been acknowledged");
    let said = audit.untidy[0].to_string();
    assert!(said.contains("promise 13: run `waits` (waiting_signal) waits for a signal that is there"), "{said}");
}

/// Appends an entry to the log of a run, as a faulty worker could.
async fn append(kit: &Kit, run: &str, events: Value) {
    let seq = keys(kit, &format!("workflow/{run}/log/"), ".json").await.len() + 1;
    let at = kit.client().run(run).unwrap().get().await.unwrap().run().updated_at;
    let entry = json!({"seq": seq, "by": format!("w.{seq}"), "at": at, "events": events});
    kit.store().write(Batch::new().put(format!("workflow/{run}/log/{seq:010}.json"), entry.to_string())).await.unwrap();
}

/// Returns a kit with a run of a graph of two steps, which no worker serves.
async fn an_unserved_graph() -> Kit {
    use wigwag::{Graph, StepCtx};
    let step = |_: StepCtx<Value>| async { Ok::<_, Failure>(()) };
    let graph = Graph::<Value>::new("pair").step("a", step).step("b", step).after("a");
    let kit = Kit::start(|engine| engine.workflow(graph)).await.unwrap();
    let kit = kit.crash(|engine| engine.function("order", 1, order)).await.unwrap();
    kit.client().start("pair", &json!({})).id("p").await.unwrap();
    kit
}

#[tokio::test]
async fn a_parked_run_that_could_continue_is_named() {
    let hint = |due: &str| format!("due/0000/{due}~00000000~p~x.1.json");
    let claim = json!({"type": "run.claimed", "owner": "w", "until": "2026-01-01T01:00:00.000000Z", "hints": []});
    let park = json!({"type": "run.parked", "hints": [hint("2026-06-01T00:00:00.000000Z")]});
    let started = |step: &str| json!({"type": "step.started", "point": step, "attempt": 1, "compensate": true});
    let done =
        |step: &str| json!({"type": "step.completed", "point": step, "at": "2026-01-01T00:01:00.000000Z", "result": 1});
    let error = json!({"type": "StepFailed", "message": "no"});
    let undo = json!({"type": "compensation.started", "point": "a", "attempt": 1, "cause": {"failed": error.clone()}});
    let cancel = json!({"type": "run.cancel_requested", "control": "c"});
    let failed =
        json!({"type": "step.failed", "point": "a", "attempt": 1, "at": "2026-01-01T00:01:00.000000Z", "error": error});
    let rows = [
        (vec![], "step `a` is ready, and has not begun"),
        (vec![started("a"), done("a")], "step `b` is ready, and has not begun"),
        (vec![started("a"), done("a"), started("b"), done("b")], "all its steps are done, and it has not ended"),
        (vec![started("a"), done("a"), undo], "its compensation has not ended"),
        (vec![cancel], "it is being cancelled, and nothing continues that"),
        (vec![started("a"), failed], "step `a` has failed, and the run has not"),
    ];
    for (between, why) in rows {
        let kit = an_unserved_graph().await;
        let hash = keys(&kit, "definition/", ".json").await.into_iter().find(|key| key.contains("pair")).unwrap();
        let hash = kit.store().get(&hash).await.unwrap().unwrap().body;
        let hash = serde_json::from_slice::<Value>(&hash).unwrap()["hash"].clone();
        let follows = json!({"type": "run.migrated", "definition_hash": hash});
        let events: Vec<Value> = [follows, claim.clone()].into_iter().chain(between).chain([park.clone()]).collect();
        append(&kit, "p", json!(events)).await;
        let said = audit(&kit).await.broken.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(said.contains("is parked and could continue") && said.contains(why), "want: {why}, got: {said}");
    }
}

#[tokio::test]
async fn a_control_object_that_nothing_folds_is_named() {
    let kit = a_store().await;
    let control = json!({"id": "1", "created_at": "2026-01-01T00:00:00.000000Z", "order": "cancel"});
    let key = "workflow/waits/signals/.control/2026-01-01T00:00:00.000000Z_1.json";
    kit.store().write(Batch::new().put(key, control.to_string())).await.unwrap();
    let (numbers, said) = broken(&kit).await;
    assert_eq!(numbers, [13], "{said}");
    assert!(said.contains("control object `2026-01-01T00:00:00.000000Z_1`"), "{said}");
}

#[tokio::test]
async fn a_wake_up_that_moves_nothing_is_named() {
    let kit = an_unserved_graph().await;
    assert!(audit(&kit).await.stuck.is_empty(), "a worker may be about to check it");
    kit.advance(Duration::from_secs(600)).await.unwrap();
    let stuck = audit(&kit).await.stuck;
    assert!(stuck.len() == 1 && stuck[0].what.contains("no worker serves `pair`"), "{stuck:?}");
}

/// The findings of stuck runs.
async fn stuck(kit: &Kit) -> Vec<String> {
    audit(kit).await.stuck.into_iter().map(|breach| breach.what).collect()
}

#[tokio::test]
async fn a_wake_up_that_moves_nothing_is_named_also_if_the_run_moved_since_another_was_due() {
    let kit = a_store().await;
    let hint = key(&kit, "due/", "").await;
    let body = kit.store().get(&hint).await.unwrap().unwrap().body;
    let run = kit.client().run("waits").unwrap();
    let moved_at = run.get().await.unwrap().run().updated_at;
    let (head, tail) = hint.split_once('~').unwrap();
    let overdue = |due: wigwag::Time| format!("{}/{due}~{tail}x", &head[..head.rfind('/').unwrap()]);
    let (before, after) =
        (overdue(moved_at.before(Duration::from_secs(5))), overdue(moved_at.after(Duration::from_secs(5))));
    kit.store().write(Batch::new().put(before, body.clone()).put(&after, body)).await.unwrap();
    assert!(stuck(&kit).await.is_empty(), "a worker may be about to check it");
    // The clock moves, and no worker serves the run.
    kit.clock().advance(Duration::from_secs(600));
    let stuck = stuck(&kit).await;
    assert!(stuck.len() == 1 && stuck[0].contains("(2 wake-ups are overdue), and has not moved"), "{stuck:?}");
}

/// Claims by workers that die, each a minute after the one before it; `until` is how long a lease lasts.
async fn claim(kit: &Kit, owners: &[&str], until: Duration) {
    for owner in owners {
        kit.clock().advance(Duration::from_secs(60));
        let now = wigwag::Time::from_micros(kit.store().now().await.unwrap().at.micros());
        let seq = keys(kit, "workflow/p/log/", ".json").await.len() + 1;
        let events = json!([{"type": "run.claimed", "owner": owner, "until": now.after(until), "hints": []}]);
        let entry = json!({"seq": seq, "by": format!("{owner}.{seq}"), "at": now, "events": events});
        let key = format!("workflow/p/log/{seq:010}.json");
        kit.store().write(Batch::new().put(key, entry.to_string())).await.unwrap();
    }
}

#[tokio::test]
async fn a_run_whose_every_turn_ends_before_it_records_anything_is_named() {
    let lease = Duration::from_secs(30);
    let named = |stuck: &[String]| stuck.iter().any(|what| what.contains("and nothing else was recorded"));
    let kit = an_unserved_graph().await;
    claim(&kit, &["w1", "w2"], lease).await;
    assert!(!named(&stuck(&kit).await), "two workers may die by chance");
    claim(&kit, &["w2"], lease).await;
    let found = stuck(&kit).await;
    assert!(named(&found) && found[0].contains("was claimed 3 times in a row"), "{found:?}");
    let kit = an_unserved_graph().await;
    claim(&kit, &["w1"; 9], Duration::from_secs(120)).await;
    assert!(!named(&stuck(&kit).await), "a worker renews its lease while a long step runs");
}

#[tokio::test]
async fn a_run_that_was_paused_because_its_entry_cannot_be_recorded_is_named() {
    let kit = an_unserved_graph().await;
    let error = json!({"type": "Unrecordable", "message": "entry 2 of `workflow/p` has 9 bytes"});
    append(&kit, "p", json!([{"type": "run.paused", "why": "failure", "error": error}])).await;
    let stuck = stuck(&kit).await;
    assert!(stuck[0].contains("would be rejected again: entry 2 of `workflow/p` has 9 bytes"), "{stuck:?}");
}
