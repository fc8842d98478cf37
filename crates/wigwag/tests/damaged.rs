//! Damaged objects: each is named, left unchanged, and harmless to other runs.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::time::Duration;

use serde_json::{Value, json};
use wigwag::testing::Kit;
use wigwag::{Ctx, ErrorKind, Failure, Filter, PruneOptions, Status};
use wigwag_core::{Payload, Tombstone};
use wigwag_store::Batch;

async fn wait(ctx: Ctx, _: Value) -> Result<Value, Failure> {
    ctx.step("a", || async { Ok::<_, Failure>(1) }).await?;
    ctx.wait::<Value>("go").await
}

/// Returns a kit with two waiting runs, of which `r` has no snapshot, only its log.
async fn waiting() -> Kit {
    let kit = Kit::start(|engine| engine.function("wait", 1, wait)).await.unwrap();
    for id in ["r", "other"] {
        kit.client().start("wait", &Value::Null).id(id).await.unwrap();
    }
    kit.settle().await.unwrap();
    put(&kit, Batch::new().delete("workflow/r/state.json")).await;
    kit
}

async fn put(kit: &Kit, batch: Batch) {
    kit.store().write(batch).await.unwrap();
}

const LAST: &str = "workflow/r/log/0000000002.json";

#[tokio::test]
async fn an_entry_with_the_number_of_another_is_rejected_by_name() {
    let kit = waiting().await;
    let entry = kit.store().get(LAST).await.unwrap().unwrap().body;
    let text = String::from_utf8(entry.to_vec()).unwrap();
    for (body, why) in [(text.replace("\"seq\":2", "\"seq\":1"), "entry 1"), ("{".into(), "not a log entry")] {
        put(&kit, Batch::new().put(LAST, body)).await;
        let error = kit.client().run("r").unwrap().get().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged);
        assert!(error.to_string().contains(LAST) && error.to_string().contains(why), "{error}");
        assert!(error.advice().unwrap().contains("wigwag cat"), "{error}");
    }
}

#[tokio::test]
async fn a_tombstone_over_a_later_entry_takes_nothing_away() {
    let kit = waiting().await;
    let tombstone = Tombstone { gone_at: wigwag::Time::default(), status: Status::Completed };
    put(&kit, Batch::new().put(LAST, tombstone.to_json())).await;
    let done = "done/2026-01-01/2026-01-01T00:00:00.000000Z~00ff00ff~completed~r";
    put(&kit, Batch::new().put(done, "{\"run\":\"workflow/r\"}")).await;
    kit.advance(Duration::from_secs(48 * 3_600)).await.unwrap();
    kit.client().prune(&PruneOptions::older_than(Duration::from_secs(60))).await.unwrap();
    assert!(kit.store().get(LAST).await.unwrap().is_some());
    assert_eq!(kit.client().run("r").unwrap().get().await.unwrap_err().kind(), ErrorKind::Damaged);
}

#[tokio::test]
async fn one_run_that_cannot_be_read_does_not_hide_the_others() {
    let kit = waiting().await;
    put(&kit, Batch::new().put(LAST, "{")).await;
    let listing = kit.client().list(&Filter::default()).await.unwrap();
    assert_eq!(listing.runs.iter().map(|run| run.id.as_str()).collect::<Vec<_>>(), ["other"]);
    let [error] = &listing.unreadable[..] else { panic!("{listing:?}") };
    assert!(error.to_string().contains(LAST), "{error}");
}

#[tokio::test]
async fn a_list_of_runs_ends_despite_foreign_keys_in_the_index_of_ended_runs() {
    let kit = waiting().await;
    for foreign in ["done/2026-01-01/~foreign", "done/2026-01-01/é", "done/x", "done/~/~"] {
        put(&kit, Batch::new().put(foreign, "hello")).await;
    }
    let listed = tokio::time::timeout(Duration::from_secs(10), async { kit.client().list(&Filter::default()).await });
    assert_eq!(listed.await.unwrap().unwrap().runs.len(), 2);
}

#[tokio::test]
async fn json_that_no_reader_takes_does_not_get_in() {
    let kit = waiting().await;
    let deep = (0..200).fold(Value::Null, |inner, _| json!({ "in": inner }));
    let error = kit.client().start("wait", &deep).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    let error = kit.client().signal("r", "go", &deep).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidPayload, "{error}");
    assert!(error.to_string().contains("more than 100 arrays or objects"), "{error}");
    for raw in ["1e999", "\"\\ud800\"", "[1e999]"] {
        assert!(Payload::parse(raw).is_err(), "{raw}");
    }
    // The deepest allowed payload: both the snapshot and the log must be readable with it.
    let input = (0..100).fold(Value::Null, |inner, _| json!({ "in": inner }));
    let run = kit.client().start("wait", &input).id("deep").await.unwrap();
    run.signal("go", &input).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(run.result::<Value>().await.unwrap(), input);
    put(&kit, Batch::new().delete("workflow/deep/state.json")).await;
    assert_eq!(run.status().await.unwrap(), Status::Completed);
}

#[tokio::test]
async fn an_invalid_key_in_an_inbox_is_rejected_by_name() {
    let kit = waiting().await;
    let send = || async { kit.client().signal("r", "later", &true).key("click-1").await };
    send().await.unwrap();
    let key = kit.store().list("workflow/r/keys/", "", 10).await.unwrap().entries.remove(0).key;
    let object = kit.store().get(&key).await.unwrap().unwrap().body;
    let mut facts: Value = serde_json::from_slice(&object).unwrap();
    for wrong in ["x", "a/b", "\n"] {
        facts["signal"] = json!(wrong);
        put(&kit, Batch::new().put(&key, facts.to_string())).await;
        let error = send().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
        assert!(error.to_string().contains(&key), "{error}");
    }
}

#[tokio::test]
async fn history_ends_where_numbers_do() {
    let kit = waiting().await;
    assert!(kit.client().run("r").unwrap().history(u64::MAX, u64::MAX).await.unwrap().is_empty());
}
