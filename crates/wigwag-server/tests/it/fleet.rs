//! Servers and workers on one bucket find each other in it and notify each other. The polling intervals are long, so
//! a fast test proves that notifications arrived.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use wigwag::{Client, Ctx, Engine, Failure, Settings as EngineSettings};
use wigwag_server::{Auth, Running, Scope, Server, Settings};
use wigwag_store::{Announced, Clock as _, Fleet, FleetSettings, Memory, Notices, Notifications, Store, System};

use crate::kit::answer;

const TOKEN: &str = "a token of the tests";

/// One process on the bucket, with its own notifications.
fn process(bucket: &Memory) -> (Arc<dyn Store>, Notices) {
    let (below, notices): (Arc<dyn Store>, _) = (Arc::new(bucket.clone()), Notices::new());
    let mut settings = FleetSettings::default();
    settings.interval = Duration::from_secs(2);
    settings.is_wanted = wigwag::concerns_others;
    Fleet::connect(Arc::clone(&below), &notices, settings).unwrap();
    (Arc::new(Announced::new(below, notices.clone())), notices)
}

/// Polling intervals so long that polling cannot explain a result.
fn settings() -> EngineSettings {
    let mut settings = EngineSettings::default();
    (settings.look_min, settings.look_max) = (Duration::from_secs(600), Duration::from_secs(600));
    settings.lease = Duration::from_secs(600);
    settings.grace = Duration::from_millis(200);
    settings
}

async fn server(bucket: &Memory, auth: Auth) -> (Running, Client) {
    let (store, notices) = process(bucket);
    let client = Engine::builder(store).notices(notices).settings(settings()).client().await.unwrap();
    let mut settings = Settings::default();
    // Reserves a free port, because the settings need the address before the server binds.
    let place = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    settings.advertise = Some(format!("http://{place}"));
    let server = Server::builder(client.clone()).bind(place).settings(settings).auth(auth);
    (server.start().await.unwrap(), client)
}

async fn worker(bucket: &Memory) -> Engine {
    let (store, notices) = process(bucket);
    let approve = |ctx: Ctx, _: Value| async move { ctx.wait::<Value>("approval").await };
    let engine = Engine::builder(store).notices(notices).settings(settings());
    let engine = engine
        .function("echo", 1, |_: Ctx, input: Value| async move { Ok::<_, Failure>(input) })
        .function("approve", 1, approve);
    engine.start().await.unwrap()
}

/// Waits until the condition holds.
async fn until(what: &str, so: impl Fn() -> bool) {
    for _ in 0..2_000 {
        if so() {
            return;
        }
        System.sleep(Duration::from_millis(5)).await;
    }
    panic!("never: {what}");
}

fn is_notified(client: &Client) -> bool {
    client.store().traits().notifications == Notifications::Fleet
}

fn http() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

/// Starts a run through one server that waits for a signal, sends that through the other, and waits at the first.
async fn round(http: &reqwest::Client, one: &Running, other: &Running, id: &str) {
    let url = |server: &Running, path: &str| format!("http://{}{path}", server.addr());
    let start = http.post(url(one, "/v1/runs")).json(&json!({"type": "approve", "id": id}));
    answer(start).await.ok(201);
    let waiting = async {
        loop {
            let found = answer(http.get(url(other, &format!("/v1/runs/{id}/waiting")))).await.ok(200);
            if found["items"] != json!([]) {
                return;
            }
            System.sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("the worker is notified of the start");
    let result = tokio::spawn(http.get(url(one, &format!("/v1/runs/{id}/result?timeout=20s"))).send());
    let signal = http.post(url(other, &format!("/v1/runs/{id}/signals/approval"))).json(&json!({"payload": "yes"}));
    answer(signal).await;
    let result =
        tokio::time::timeout(Duration::from_secs(10), result).await.expect("the waiter is notified of the end");
    assert_eq!(result.unwrap().unwrap().text().await.unwrap(), "\"yes\"");
}

#[tokio::test(flavor = "multi_thread")]
async fn start_signal_and_wait_go_through_any_server_without_a_poll_and_a_server_may_leave() {
    let bucket = Memory::bucket();
    let (one, here) = server(&bucket, Auth::new()).await;
    let engine = worker(&bucket).await;
    until("the worker follows the first server", || is_notified(&engine.client())).await;
    let (other, there) = server(&bucket, Auth::new()).await;
    // Subscriptions, so that the servers request notifications.
    let _follows = [here.store().changes("done/"), there.store().changes("done/")];
    until("both servers are notified", || is_notified(&here) && is_notified(&there)).await;
    let http = http();
    for (number, (from, to)) in [(&one, &other), (&other, &one), (&one, &one)].into_iter().enumerate() {
        round(&http, from, to, &format!("run-{number}")).await;
    }
    one.stop().await;
    until("the remaining server is enough", || is_notified(&engine.client()) && is_notified(&there)).await;
    round(&http, &other, &other, "run-alone").await;
    other.stop().await;
    until("no server relays any more", || engine.client().store().traits().notifications == Notifications::Process)
        .await;
    let left = bucket.list("servers/", "", 10).await.unwrap();
    assert!(left.entries.is_empty(), "a server that stops leaves no record: {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_the_record_grants_notifications_and_nothing_else() {
    let bucket = Memory::bucket();
    let auth = Auth::new().token("reader", TOKEN, [Scope::RunsRead]).unwrap();
    let (running, _client) = server(&bucket, auth).await;
    let record = async {
        loop {
            let page = bucket.list("servers/", "", 1).await.unwrap();
            if let Some(listed) = page.entries.first() {
                let body = bucket.get(&listed.key).await.unwrap().unwrap().body;
                return serde_json::from_slice::<Value>(&body).unwrap();
            }
            System.sleep(Duration::from_millis(5)).await;
        }
    };
    let record = record.await;
    let (key, http) = (record["key"].as_str().unwrap().to_owned(), http());
    let url = |path: &str| format!("http://{}{path}", running.addr());
    assert_eq!(record["url"], url(""));
    let post = |token: &str, body: Value| http.post(url("/v1/notify")).bearer_auth(token).json(&body);

    answer(post("wrong wrong wrong", json!({"keys": []}))).await.problem("not_authenticated");
    answer(post(TOKEN, json!({"keys": []}))).await.problem("not_allowed");
    answer(http.get(url("/v1/runs")).bearer_auth(&key)).await.problem("not_authenticated");
    for wrong in [
        json!({"keys": ["a//b"]}),
        json!({"keys": vec!["k"; 4_097]}),
        json!({"keys": vec!["k".repeat(200); 400]}),
        json!({"keys": "k"}),
        json!({"key": []}),
    ] {
        answer(post(&key, wrong)).await.problem("invalid_body");
    }

    let changes = http.get(url("/v1/changes?prefix=due/&partial=true")).bearer_auth(&key).send().await.unwrap();
    assert_eq!(changes.headers()["wigwag-notifications"], "partial");
    let mut changes = changes;
    let mut text = String::new();
    for (body, event) in [(json!({"keys": ["other", "due/1"]}), "due/1"), (json!({"keys": [], "gap": true}), "missed")]
    {
        assert_eq!(answer(post(&key, body)).await.status, 204);
        while !text.contains(event) {
            text.push_str(std::str::from_utf8(&changes.chunk().await.unwrap().unwrap()).unwrap());
        }
    }
    assert!(text.contains("data: due/1") && !text.contains("other"), "{text}");
    assert!(bucket.get("due/1").await.unwrap().is_none(), "nothing is stored");
    let unasked = http.get(url("/v1/changes")).bearer_auth(&key).send().await.unwrap();
    assert_eq!(unasked.status(), 204, "a client that wants all of it lists");
}
