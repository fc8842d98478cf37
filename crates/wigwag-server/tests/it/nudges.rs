//! Notifications for remote workers: `/v1/changes`, and the store that follows it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use wigwag_server::{Auth, S3Keys, Scope, Server};
use wigwag_store::conformance::{self, Quirks};
use wigwag_store::limits::CHANGES_WAITING_MAX;
use wigwag_store::{Batch, Change, Changes, Clock as _, ErrorKind, Memory, OpenSettings, Store, System, open};

use crate::kit::{Kit, answer, writable};
use crate::s3::SECRET;

const TOKEN: &str = "a token of the tests";

/// Opens the server's store by its URL alone.
fn remote(kit: &Kit) -> Arc<dyn Store> {
    with_keys(kit, "wigwag", "wigwag")
}

fn with_keys(kit: &Kit, id: &str, secret: &str) -> Arc<dyn Store> {
    let mut settings = OpenSettings::default();
    settings.bucket.keys = Some((id.to_owned(), secret.to_owned()));
    open(&kit.url("/s3"), &settings).unwrap().store
}

/// Returns the next notification; without one, the test hangs and is killed.
async fn next(changes: &mut Changes) -> Change {
    changes.next().await
}

/// Waits until the condition holds.
async fn until(so: impl Fn() -> bool) {
    while !so() {
        System.sleep(Duration::from_millis(5)).await;
    }
}

/// Follows all keys, and returns once the stream is connected.
async fn connected(store: &Arc<dyn Store>) -> Changes {
    let mut all = store.changes("");
    assert_eq!(next(&mut all).await, Change::Missed, "earlier changes count as missed");
    until(|| store.traits().notifications.is_complete()).await;
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remote_store_with_nudges_keeps_the_promises() {
    let kit = Kit::with(|server| server.settings(writable())).await;
    let store = remote(&kit);
    assert!(!store.traits().notifications.is_complete(), "nobody follows yet");
    let _all = connected(&store).await;
    conformance::check(Arc::clone(&store), Quirks { nudges_lag: true, ..Quirks::default() }).await;
    assert!(store.traits().notifications.is_complete());
}

#[tokio::test]
async fn puts_on_both_sides_are_told_and_a_wider_follower_is_served_too() {
    let kit = Kit::with(|server| server.settings(writable())).await;
    let store = remote(&kit);
    let mut due = store.changes("due/");
    assert_eq!(next(&mut due).await, Change::Missed);
    kit.store.write(Batch::new().put("other", "x").put("due/1", "x")).await.unwrap();
    assert_eq!(next(&mut due).await, Change::Put("due/1".into()));
    // The stream contains only `due/` until a subscriber needs more; then it ends, and another begins.
    let mut done = store.changes("done/");
    assert_eq!(next(&mut done).await, Change::Missed);
    until(|| store.traits().notifications.is_complete()).await;
    for changes in [&mut due, &mut done] {
        while let Some(change) = changes.next().now_or_never() {
            assert_eq!(change, Change::Missed);
        }
    }
    store.write(Batch::new().put("done/1", "x").put("due/2", "x")).await.unwrap();
    assert_eq!(next(&mut done).await, Change::Put("done/1".into()));
    assert_eq!(next(&mut due).await, Change::Put("due/2".into()));
}

#[tokio::test]
async fn a_follower_that_falls_behind_is_told_so() {
    let kit = Kit::with(|server| server.settings(writable())).await;
    let store = remote(&kit);
    let mut all = connected(&store).await;
    let mut slow = store.changes("k/");
    let many = (0..=CHANGES_WAITING_MAX).map(|number| format!("k/{number:05}"));
    for key in many {
        kit.store.write(Batch::new().put(&key, "x")).await.unwrap();
        // This client keeps up.
        assert_eq!(next(&mut all).await, Change::Put(key));
    }
    assert_eq!(next(&mut slow).await, Change::Missed);
}

#[tokio::test]
async fn after_a_restart_of_the_server_nudges_come_again() {
    let kit = Kit::with(|server| server.settings(writable())).await;
    let store = remote(&kit);
    let mut all = connected(&store).await;
    let Kit { engine, server, store: near, .. } = kit;
    let addr = server.addr();
    server.stop().await;
    assert_eq!(next(&mut all).await, Change::Missed);
    assert!(!store.traits().notifications.is_complete(), "until it is back, the store is one like any bucket");
    near.write(Batch::new().put("unseen", "x")).await.unwrap();
    let server = Server::builder(engine.client()).settings(writable()).bind(addr).start().await.unwrap();
    assert_eq!(next(&mut all).await, Change::Missed, "a subscriber gets a gap and lists");
    until(|| store.traits().notifications.is_complete()).await;
    near.write(Batch::new().put("seen", "x")).await.unwrap();
    assert_eq!(next(&mut all).await, Change::Put("seen".into()));
    server.stop().await;
}

#[tokio::test]
async fn an_access_key_is_enough_and_a_wrong_one_costs_only_the_nudges() {
    let keys = S3Keys::new().full("worker", SECRET).unwrap().read_only("viewer", SECRET).unwrap();
    let auth = Auth::new().token("ada", TOKEN, [Scope::Admin]).unwrap();
    let auth = auth.token("bob", "another token of the tests", [Scope::RunsRead]).unwrap();
    let kit = Kit::with(|server| server.s3(keys).auth(auth)).await;
    for id in ["worker", "viewer"] {
        let store = with_keys(&kit, id, SECRET);
        let _all = connected(&store).await;
    }
    let asked = |authorization: Option<&str>| {
        let request = kit.http.get(kit.url("/v1/changes"));
        match authorization {
            Some(value) => request.header("authorization", value),
            None => request,
        }
    };
    answer(asked(None)).await.problem("not_authenticated");
    answer(asked(Some("Basic nonsense"))).await.problem("not_authenticated");
    answer(asked(Some("Basic d29ya2VyOndyb25n"))).await.problem("not_authenticated");
    answer(asked(Some("Bearer another token of the tests"))).await.problem("not_allowed");
    let bearer = asked(Some(&format!("Bearer {TOKEN}"))).send().await.unwrap();
    assert_eq!(
        (bearer.status().as_u16(), bearer.headers()["content-type"].to_str().unwrap()),
        (200, "text/event-stream")
    );
    let elsewhere = kit.http.get(kit.url("/v1/runs")).basic_auth("worker", Some(SECRET));
    answer(elsewhere).await.problem("not_authenticated");

    let stranger = with_keys(&kit, "worker", "another secret that is long enough");
    let _changes = stranger.changes("");
    assert_eq!(stranger.get("a").await.unwrap_err().kind(), ErrorKind::Denied);
    assert!(!stranger.traits().notifications.is_complete());
}

#[tokio::test]
async fn a_store_that_cannot_tell_says_so_and_works_without() {
    let kit = Kit::on(Arc::new(Memory::bucket()), |server| server.settings(writable())).await;
    assert_eq!(answer(kit.http.get(kit.url("/v1/changes"))).await.status, 204);
    let store = remote(&kit);
    let _changes = store.changes("");
    store.write(Batch::new().put("a", "1")).await.unwrap();
    assert_eq!(store.get("a").await.unwrap().unwrap().body, "1");
    assert!(!store.traits().notifications.is_complete());
}

#[tokio::test]
async fn a_stream_says_that_it_ends_when_the_server_stops() {
    let kit = Kit::with(|server| server.settings(writable())).await;
    let mut stream = kit.http.get(kit.url("/v1/changes?prefix=a/")).send().await.unwrap();
    kit.store.write(Batch::new().put("a/1", "x").put("b", "x").put("a/2", "x")).await.unwrap();
    let mut said = String::new();
    while !said.contains("a/2") {
        said.push_str(&String::from_utf8_lossy(&stream.chunk().await.unwrap().unwrap()));
    }
    let Kit { server, .. } = kit;
    let stop = tokio::spawn(server.stop());
    while let Some(more) = stream.chunk().await.unwrap() {
        said.push_str(&String::from_utf8_lossy(&more));
    }
    stop.await.unwrap();
    assert!(said.starts_with("event: put\ndata: a/1\n") && said.ends_with("event: end\ndata: stopped\n\n"), "{said}");
    assert!(!said.contains("data: b"), "{said}");
}

#[tokio::test]
async fn an_address_that_is_no_servers_store_is_refused_and_no_secret_shown() {
    for wrong in [
        "http://",
        "http:///s3",
        "http://host:7070",
        "http://host/s3/prefix",
        "http://id:hush@host/s3",
        "http://h h/s3",
    ] {
        let error = open(wrong, &OpenSettings::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong}");
        assert!(error.to_string().contains("http://host:port/s3") && !error.to_string().contains("hush"), "{error}");
    }
    let mut settings = OpenSettings::default();
    settings.bucket.endpoint = Some("http://127.0.0.1:1".into());
    let error = open("http://127.0.0.1:1/s3", &settings).unwrap_err();
    assert!(error.advice().is_some_and(|hint| hint.contains("--endpoint")), "{error}");
    settings.bucket.endpoint = None;
    settings.bucket.keys = Some(("id".into(), "hush".into()));
    let opened = open("http://127.0.0.1:1/s3/", &settings).unwrap();
    assert!(!format!("{:?}", opened.store).contains("hush"), "{:?}", opened.store);
}
