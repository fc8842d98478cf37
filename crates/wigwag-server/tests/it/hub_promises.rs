//! The hub's promises and bounds over real sockets, against clients that mean no good.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use wigwag::store::{Clock as _, Memory, Store, System};
use wigwag_server::{Auth, Builder, Metrics, Scope, Settings};

use crate::hub_socket::Socket;
use crate::kit::Kit;

const PATIENCE: Duration = Duration::from_secs(60);

/// A server whose hub behaves like this.
fn hub(change: impl FnOnce(&mut wigwag_hub::Settings)) -> impl FnOnce(Builder) -> Builder {
    let mut settings = Settings::default();
    change(&mut settings.hub);
    move |server| server.settings(settings)
}

/// Asks until the answer is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            System.sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("not so: {what}"));
}

/// The longest that the hub's lock was held, as the metrics say.
async fn longest_hold(kit: &Kit) -> Option<Duration> {
    let text = kit.get("/metrics").await.text;
    let line = text.lines().find(|line| line.starts_with("wigwag_hub_lock_hold_max_seconds"))?;
    line.rsplit(' ').next()?.parse().ok().map(Duration::from_secs_f64)
}

/// Pipelines requests and does not read what is answered.
async fn flood(addr: std::net::SocketAddr, kind: &str, payload: Value, count: usize) -> Socket {
    let mut deaf = Socket::join(addr).await;
    for _ in 0..count {
        let frame = deaf.frame(kind, "ask", payload.clone());
        // Once the server does not read any more, nothing more goes out.
        if tokio::time::timeout(Duration::from_millis(200), deaf.send(&frame)).await.is_err() {
            break;
        }
    }
    deaf
}

/// 56 KB of pipelined requests for pages froze the server for seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_freezes_the_server_by_asking_for_pages_and_not_reading_them() {
    let metrics = Metrics::install().unwrap();
    let settings = hub(|hub| hub.rate = None);
    let kit = Kit::with(|server| settings(server).metrics(metrics)).await;
    let addr = kit.server.addr();
    let mut crowd = Vec::new();
    for number in 0..16 {
        let mut socket = Socket::join(addr).await;
        for address in 0..60 {
            let metadata = json!({"text": "x".repeat(4_000)});
            let payload = json!({"actorAddress": format!("@(w/{number}-{address})"), "metadata": metadata});
            assert_eq!(socket.ask("hub:register", payload).await["type"], "hub:registered");
        }
        crowd.push(socket);
    }
    let mut deaf = Vec::new();
    for (kind, payload) in [
        ("hub:list_actors", json!({"limit": 1_000})),
        ("hub:discover", json!({"pattern": "*", "limit": 1_000})),
        ("hub:queue_stats", json!({})),
        ("hub:broadcast", json!({"message": {"type": "x", "payload": "y".repeat(1_000)}})),
    ] {
        let flooding = flood(addr, kind, payload, 400);
        let asking = async {
            for _ in 0..20 {
                let begun = System.boot();
                kit.get("/v1/health").await.ok(200);
                let took = System.boot() - begun;
                assert!(took < Duration::from_millis(100 * SLOWER), "{kind}: health took {took:?}");
            }
        };
        deaf.push(tokio::join!(flooding, asking).0);
    }
    let mut other = Socket::join(addr).await;
    let figures = other.ask("hub:metrics", json!({})).await["payload"].clone();
    let waiting = figures["outboxBytes"].as_u64().unwrap();
    // A session is read until its outbox is half full, which is 8 MiB.
    assert!(waiting < 4 * 9 * 1_024 * 1_024, "{waiting}");
    until("the hub has shown its figures", async || longest_hold(&kit).await.is_some()).await;
    System.sleep(Duration::from_millis(1_100)).await;
    let longest = longest_hold(&kit).await.unwrap();
    println!("the longest hold of the hub's lock: {longest:?}");
    assert!(longest < Duration::from_millis(1) * u32::try_from(SLOWER * SLOWER).unwrap(), "{longest:?}");
}

/// Without optimisation, and beside other tests, everything takes longer.
const SLOWER: u64 = if cfg!(debug_assertions) { 10 } else { 1 };

#[tokio::test]
async fn a_slow_consumer_sees_why_it_is_closed() {
    let settings = hub(|hub| (hub.rate, hub.drain_within) = (None, 1_000));
    let kit = Kit::with(settings).await;
    let mut slow = Socket::join_as(kit.server.addr(), "@(slow)").await;
    let mut sender = Socket::join_as(kit.server.addr(), "@(sender)").await;
    let long = "x".repeat(100_000);
    let noise = async {
        while sender.ask("hub:metrics", json!({})).await["payload"]["closed"] != 1 {
            let frame = sender.frame("hub:send", "tell", json!({"to": "@(slow)", "type": "noise", "data": long}));
            sender.send(&frame).await.unwrap();
        }
    };
    tokio::time::timeout(PATIENCE, noise).await.expect("it is closed");
    // It reads on, late: what was on its way, then why, then the code.
    let mut last = Value::Null;
    let code = loop {
        match slow.next_or_close().await.unwrap() {
            Ok(text) => last = serde_json::from_str(&text).unwrap(),
            Err(code) => break code,
        }
    };
    assert_eq!(code, 4002);
    assert_eq!(last["payload"]["reason"], "slow_consumer");
}

#[tokio::test]
async fn a_connection_that_has_not_said_who_it_is_sends_little() {
    let kit = Kit::new().await;
    let addr = kit.server.addr();
    let mut socket = Socket::open(addr).await;
    let _ = socket.send_text(" ".repeat(70_000), false).await;
    assert_eq!(socket.closed().await, Ok(1009));
    // Whoever greets may send more at once, in frames of either kind.
    for binary in [false, true] {
        let mut socket = Socket::open(addr).await;
        let hello = socket.frame("hub:connect", "ask", json!({"protocolVersion": "0.1.0"}));
        socket.send_text(hello.to_string(), binary).await.unwrap();
        socket.send_text(format!("{{\"type\":\"ping\"}}{}", " ".repeat(500_000)), binary).await.unwrap();
        assert_eq!(socket.next().await.unwrap()["type"], "hub:connected");
        assert_eq!(socket.next_text().await.as_deref(), Ok("{\"type\":\"pong\"}"), "binary: {binary}");
    }
}

#[tokio::test]
async fn tasks_are_told_to_those_who_may_read_tasks() {
    let auth = Auth::new()
        .token("reader", "a token for reading runs", vec![Scope::RunsRead])
        .unwrap()
        .token("tasks", "a token for tasks alone", vec![Scope::Tasks])
        .unwrap();
    let kit = Kit::with(|server| server.auth(auth)).await;
    let addr = kit.server.addr();
    let mut sockets = Vec::new();
    for (token, may, may_not) in
        [("a token for reading runs", "runs", "tasks"), ("a token for tasks alone", "tasks", "runs")]
    {
        let mut socket = Socket::open(addr).await;
        socket.connect(json!({"token": token})).await.unwrap();
        assert_eq!(socket.ask("hub:subscribe", json!({"topic": may})).await["type"], "hub:subscribed");
        assert_eq!(socket.ask("hub:subscribe", json!({"topic": may_not})).await["type"], "hub:unauthorized");
        sockets.push(socket);
    }
    let task = kit.client().submit("double", &json!(2)).await.unwrap().id().to_string();
    kit.client().start("echo", &json!(1)).id("r1").await.unwrap();
    for (socket, prefix, id) in [(0, "run:", "r1"), (1, "task:", task.as_str())] {
        for event in ["started", "ended"] {
            let got = sockets[socket].next().await.unwrap();
            assert_eq!(got["type"], format!("{prefix}{event}"), "{got}");
            assert_eq!(got["payload"]["id"], id);
        }
    }
}

/// Two servers on one store.
async fn two() -> (Kit, Kit) {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let settings = || hub(|hub| hub.peer_interval = 100);
    let one = Kit::on(Arc::clone(&store), settings()).await;
    let two = Kit::on(store, settings()).await;
    (one, two)
}

#[tokio::test]
async fn an_ask_for_an_actor_of_another_server_is_answered_with_where_it_is() {
    let (one, two) = two().await;
    let mut asker = Socket::join_as(one.server.addr(), "@(a)").await;
    let mut actor = Socket::join_as(two.server.addr(), "@(b)").await;
    let url = format!("ws://{}/hub", two.server.addr());
    let frame = asker.frame("hub:send", "ask", json!({"to": "@(b)", "type": "note", "data": 1}));
    asker.send(&frame).await.unwrap();
    let answer = asker.answer(&frame).await;
    assert_eq!(answer["payload"]["code"], "elsewhere", "{answer}");
    assert_eq!(answer["payload"]["details"], json!({"targetAddress": "@(b)", "url": url}));
    // It was here before, and moved.
    let gone = Socket::join_as(one.server.addr(), "@(c)").await;
    gone.close().await;
    let _moved = Socket::join_as(two.server.addr(), "@(c)").await;
    let answer = asker.ask("hub:send", json!({"to": "@(c)", "type": "note"})).await;
    assert_eq!(answer["payload"]["code"], "elsewhere", "{answer}");
    let keys: Vec<String> =
        one.store.list("hub/c/", "", 100).await.unwrap().entries.into_iter().map(|listed| listed.key).collect();
    assert_eq!(keys, ["hub/c/actor.json"], "nothing is left that nobody would come for");
    // At its server it is delivered; once that has stopped, it is queued for.
    let mut there = Socket::join(two.server.addr()).await;
    let delivered = there.ask("hub:send", json!({"to": "@(b)", "type": "note", "data": 1})).await;
    assert_eq!(delivered["payload"]["status"], "delivered");
    assert_eq!(actor.next().await.unwrap()["payload"], 1);
    drop((actor, there, _moved));
    two.server.stop().await;
    until("it is queued for", async || {
        let answer = asker.ask("hub:send", json!({"to": "@(b)", "type": "note", "data": 2})).await;
        answer["payload"]["status"] == "queued"
    })
    .await;
}

#[tokio::test]
async fn whoever_had_an_address_that_was_registered_at_another_server_is_told() {
    let (one, two) = two().await;
    let mut old = Socket::join_as(one.server.addr(), "@(b)").await;
    let _new = Socket::join_as(two.server.addr(), "@(b)").await;
    let told = old.next().await.unwrap();
    let url = format!("ws://{}/hub", two.server.addr());
    assert_eq!(told["payload"], json!({"reason": "duplicate_connection", "address": "@(b)", "url": url}));
    assert_eq!(old.closed().await, Ok(4000));
}

#[tokio::test]
async fn what_nobody_comes_for_is_swept_out_of_the_store() {
    let settings = hub(|hub| (hub.sweep_interval, hub.address_retention, hub.seen_for) = (50, 2_000, 100));
    let kit = Kit::with(settings).await;
    let addr = kit.server.addr();
    let mut sender = Socket::join_as(addr, "@(a)").await;
    for number in 0..20 {
        let mut socket = Socket::join_as(addr, &format!("@(w/{number})")).await;
        let gone = json!({"actorAddress": format!("@(w/{number})")});
        assert_eq!(socket.ask("hub:unregister", gone).await["type"], "hub:unregistered");
        socket.close().await;
        let mut frame = sender.frame("hub:send", "ask", json!({"to": format!("@(w/{number})"), "type": "note"}));
        frame["ttl"] = json!(1_000);
        sender.send(&frame).await.unwrap();
        assert_eq!(sender.answer(&frame).await["payload"]["status"], "queued");
    }
    until("only the address that is used is left", async || {
        let listed = kit.store.list("hub/", "", 1_000).await.unwrap().entries;
        let left: Vec<&str> =
            listed.iter().map(|listed| listed.key.as_str()).filter(|key| !key.contains('~')).collect();
        left == ["hub/a/actor.json"]
    })
    .await;
    let again = Socket::join_as(addr, "@(w/1)").await;
    drop(again);
    let body = kit.store.get("hub/w!2F1/actor.json").await.unwrap().unwrap().body;
    let record: Value = serde_json::from_slice(&body).unwrap();
    assert!(record["version"].as_u64().unwrap() > 1, "a version never goes back: {record}");
}
