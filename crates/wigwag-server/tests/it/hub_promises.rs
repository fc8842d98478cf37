//! The hub's guarantees and limits over real sockets, against hostile clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use wigwag_core::Key;
use wigwag_server::{Auth, Builder, Metrics, Scope, Settings};
use wigwag_store::{Batch, Clock as _, Faults, Memory, Store, System};

use crate::gate::Gate;
use crate::hub_socket::Socket;
use crate::kit::Kit;

const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a change of the builder that sets these hub settings.
fn hub(change: impl FnOnce(&mut wigwag_hub::Settings)) -> impl FnOnce(Builder) -> Builder {
    let mut settings = Settings::default();
    change(&mut settings.hub);
    move |server| server.settings(settings)
}

/// Polls until the condition holds.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            System.sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("not so: {what}"));
}

/// The longest time that the hub's lock was held, according to the metrics.
async fn longest_hold(kit: &Kit) -> Option<Duration> {
    let text = kit.get("/metrics").await.text;
    let line = text.lines().find(|line| line.starts_with("wigwag_hub_lock_hold_max_seconds"))?;
    line.rsplit(' ').next()?.parse().ok().map(Duration::from_secs_f64)
}

/// Measures on a separate thread how long the machine delays a thread, until stopped.
struct Stalls {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Duration>,
}

impl Stalls {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut longest = Duration::ZERO;
            while !stopped.load(Ordering::Relaxed) {
                let begun = System.boot();
                std::thread::sleep(Duration::from_millis(1));
                longest = longest.max(System.boot() - begun);
            }
            longest
        });
        Self { stop, thread }
    }

    fn longest(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Pipelines requests and does not read the answers.
async fn flood(addr: std::net::SocketAddr, kind: &str, payload: Value, binary: bool) -> Socket {
    let mut deaf = Socket::join(addr).await;
    for _ in 0..400 {
        let frame = deaf.frame(kind, "ask", payload.clone());
        // Once the server stops reading, no more data can be sent.
        let sending = deaf.send_text(frame.to_string(), binary);
        if tokio::time::timeout(Duration::from_millis(200), sending).await.is_err() {
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
    let (mut deaf, stalls) = (Vec::new(), Stalls::start());
    for (kind, payload, binary) in [
        ("hub:list_actors", json!({"limit": 1_000}), false),
        ("hub:list_actors", json!({"limit": 1_000}), true),
        ("hub:discover", json!({"pattern": "*", "limit": 1_000}), false),
        ("hub:queue_stats", json!({}), false),
        ("hub:broadcast", json!({"message": {"type": "x", "payload": "y".repeat(1_000)}}), false),
    ] {
        let flooding = flood(addr, kind, payload, binary);
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
    assert!(waiting < 5 * 9 * 1_024 * 1_024, "{waiting}");
    until("the hub has shown its figures", async || longest_hold(&kit).await.is_some()).await;
    System.sleep(Duration::from_millis(1_100)).await;
    let longest = longest_hold(&kit).await.unwrap();
    // A thread that holds the lock may have to wait for a processor.
    let stalled = stalls.longest();
    let max = Duration::from_millis(SLOWER) + 2 * stalled;
    assert!(longest < max, "{longest:?}, and a thread waited up to {stalled:?} for a processor");
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
    // It reads late: the frames in flight, then the reason, then the close code.
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
    // After `hub:connect` a client may send more frames immediately, of either kind.
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

/// Starts two servers on one store.
async fn two() -> (Kit, Kit) {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let settings = || hub(|hub| hub.peer_interval = 300);
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
    // The actor was registered here before, and moved.
    let gone = Socket::join_as(one.server.addr(), "@(c)").await;
    gone.close().await;
    let _moved = Socket::join_as(two.server.addr(), "@(c)").await;
    let answer = asker.ask("hub:send", json!({"to": "@(c)", "type": "note"})).await;
    assert_eq!(answer["payload"]["code"], "elsewhere", "{answer}");
    let keys: Vec<String> =
        one.store.list("hub/c/", "", 100).await.unwrap().entries.into_iter().map(|listed| listed.key).collect();
    assert_eq!(keys, ["hub/c/actor.json"], "no unused object is left");
    // At the actor's server the message is delivered; once that server has stopped, it is queued.
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

/// Returns all frames up to the answer to a frame, or another frame about it.
async fn up_to(socket: &mut Socket, frame: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    loop {
        let next = tokio::time::timeout(PATIENCE, socket.next()).await.expect("a frame comes").unwrap();
        let is_it = next["correlationId"] == frame["id"];
        all.push(next);
        if is_it {
            return all;
        }
    }
}

/// Registers an address and leaves.
async fn was_here(addr: std::net::SocketAddr, address: &str) {
    let mut socket = Socket::join_as(addr, address).await;
    let gone = socket.ask("hub:unregister", json!({"actorAddress": address})).await;
    assert_eq!(gone["type"], "hub:unregistered");
    socket.close().await;
}

fn question(to: &str, data: i64) -> Value {
    json!({"to": to, "type": "note", "data": data, "expectReply": true})
}

#[tokio::test]
async fn a_question_that_is_refused_does_not_time_out_and_its_repeat_is_delivered_once() {
    let kit = Kit::with(hub(|hub| (hub.answer_within, hub.queue_max) = (300, 1))).await;
    let addr = kit.server.addr();
    was_here(addr, "@(b)").await;
    let mut asker = Socket::join_as(addr, "@(a)").await;
    let mut silent = Socket::join_as(addr, "@(silent)").await;
    let first = asker.ask("hub:send", json!({"to": "@(b)", "type": "note", "data": 1})).await;
    assert_eq!(first["payload"]["status"], "queued");
    let refused = asker.frame("hub:send", "ask", question("@(b)", 2));
    asker.send(&refused).await.unwrap();
    assert_eq!(asker.answer(&refused).await["payload"]["code"], "queue_full");
    // Reads all frames up to the timeout of a later request without a reply.
    let unanswered = asker.frame("hub:send", "ask", question("@(silent)", 3));
    asker.send(&unanswered).await.unwrap();
    assert_eq!(asker.answer(&unanswered).await["payload"]["status"], "delivered");
    let until = up_to(&mut asker, &unanswered).await;
    assert_eq!(until.last().unwrap()["payload"]["code"], "timeout", "{until:?}");
    assert_eq!(until.len(), 1, "nothing follows the refusal: {until:?}");
    let mut target = Socket::join_as(addr, "@(b)").await;
    assert_eq!(target.next().await.unwrap()["payload"], 1);
    for _ in 0..2 {
        asker.send(&refused).await.unwrap();
        assert_eq!(asker.answer(&refused).await["payload"]["status"], "delivered");
    }
    asker.ask("hub:send", json!({"to": "@(b)", "type": "note", "data": 4})).await;
    assert_eq!(target.next().await.unwrap()["payload"], 2);
    assert_eq!(target.next().await.unwrap()["payload"], 4, "the repeat is not delivered");
    silent.next().await.unwrap();
}

#[tokio::test]
async fn the_sender_of_a_message_that_expires_in_the_queue_is_told_and_so_is_its_repeat() {
    let kit = Kit::new().await;
    let addr = kit.server.addr();
    was_here(addr, "@(b)").await;
    let mut sender = Socket::join_as(addr, "@(a)").await;
    let mut frame = sender.frame("hub:send", "ask", json!({"to": "@(b)", "type": "note"}));
    frame["ttl"] = json!(500);
    sender.send(&frame).await.unwrap();
    assert_eq!(sender.answer(&frame).await["payload"]["status"], "queued");
    let told = up_to(&mut sender, &frame).await;
    assert_eq!(told.last().unwrap()["payload"]["code"], "message_expired", "{told:?}");
    sender.send(&frame).await.unwrap();
    let repeated = up_to(&mut sender, &frame).await;
    assert_eq!(repeated.last().unwrap()["payload"]["code"], "message_expired", "{repeated:?}");
    until("nothing is stored", async || {
        let listed = kit.store.list("hub/b/", "", 10).await.unwrap().entries;
        listed.iter().all(|listed| listed.key == "hub/b/actor.json")
    })
    .await;
}

#[tokio::test]
async fn a_message_keeps_its_id_when_it_is_tried_again_and_a_late_acknowledgement_counts() {
    let kit = Kit::with(hub(|hub| hub.answer_within = 300)).await;
    let addr = kit.server.addr();
    let mut sender = Socket::join_as(addr, "@(a)").await;
    let mut target = Socket::join_as(addr, "@(b)").await;
    let mut frame = sender.frame("hub:send", "ask", json!({"to": "@(b)", "type": "note"}));
    frame["metadata"] = json!({"requireAck": true});
    let mut ids = Vec::new();
    for _ in 0..2 {
        sender.send(&frame).await.unwrap();
        ids.push(target.next().await.unwrap()["id"].clone());
        assert_eq!(sender.answer(&frame).await["payload"]["code"], "timeout");
    }
    assert_eq!(ids[0], ids[1]);
    let acknowledge = target.frame("hub:ack", "tell", json!({"messageId": ids[0]}));
    target.send(&acknowledge).await.unwrap();
    assert_eq!(sender.answer(&frame).await["payload"]["status"], "delivered", "late");
}

#[tokio::test]
async fn a_repeat_of_a_queued_message_that_was_delivered_is_known_after_a_restart() {
    let kit = Kit::new().await;
    let addr = kit.server.addr();
    was_here(addr, "@(b)").await;
    let mut sender = Socket::join_as(addr, "@(a)").await;
    let mut frame = sender.frame("hub:send", "ask", json!({"to": "@(b)", "type": "note", "data": 1}));
    // Session addresses end with the server.
    frame["from"] = json!("@(a)");
    sender.send(&frame).await.unwrap();
    let queued = sender.answer(&frame).await["payload"].clone();
    assert_eq!(queued["status"], "queued");
    let mut target = Socket::join_as(addr, "@(b)").await;
    assert_eq!(target.next().await.unwrap()["payload"], 1);
    target.close().await;
    sender.close().await;
    let store = Arc::clone(&kit.store);
    until("it is removed from the queue", async || {
        let keys = store.list("hub/b/", "", 10).await.unwrap().entries;
        keys.len() == 2 && keys.iter().any(|listed| listed.key.starts_with("hub/b/seen/"))
    })
    .await;
    kit.server.stop().await;
    let kit = Kit::on(store, |server| server).await;
    let mut sender = Socket::join_as(kit.server.addr(), "@(a)").await;
    sender.send(&frame).await.unwrap();
    assert_eq!(sender.answer(&frame).await["payload"], queued, "the first answer");
    let mut target = Socket::join_as(kit.server.addr(), "@(b)").await;
    sender.ask("hub:send", json!({"to": "@(b)", "type": "note", "data": 2})).await;
    assert_eq!(target.next().await.unwrap()["payload"], 2, "the repeat is not delivered");
}

/// On a bucket ends are found by listing. The key of a slow worker's end sorts before keys that were announced.
#[tokio::test]
async fn an_end_whose_key_is_written_late_is_announced_on_a_bucket() {
    let kit = Kit::on(Arc::new(Memory::bucket()), |server| server).await;
    kit.client().start("echo", &json!(1)).id("r1").await.unwrap();
    let mut socket = Socket::join(kit.server.addr()).await;
    assert_eq!(socket.ask("hub:subscribe", json!({"topic": "runs"})).await["type"], "hub:subscribed");
    kit.client().run("r1").unwrap().wait().await.unwrap();
    // Runs that end before the first listing are not announced.
    for number in 2.. {
        kit.client().start("echo", &json!(1)).id(format!("r{number}")).await.unwrap();
        if let Ok(told) = tokio::time::timeout(Duration::from_secs(5), socket.next()).await {
            assert_eq!(told.unwrap()["type"], "run:ended");
            break;
        }
        assert!(number < 10, "no end is announced");
    }
    let keys = kit.store.list("done/", "", 10).await.unwrap().entries;
    let key = keys.iter().map(|listed| &listed.key).find(|key| key.ends_with("~r1")).unwrap();
    // The same end, ten seconds before.
    let Ok(Key::Done { at, kind, status, run }) = key.parse() else { panic!("{key}") };
    let late = Key::Done { at: at.before(Duration::from_secs(10)), kind, status, run }.to_string();
    kit.store.write(Batch::new().put(late, "")).await.unwrap();
    until("it is announced", async || socket.next().await.unwrap()["payload"]["id"] == "r1").await;
}

/// Two servers behind a load balancer, or at the same loopback address of two machines.
#[tokio::test]
async fn servers_with_the_same_url_know_each_other() {
    let store: Arc<dyn Store> = Arc::new(Memory::new());
    let settings = || {
        let mut settings = Settings::default();
        (settings.public_url, settings.insecure) = (Some("http://balancer".into()), true);
        settings.hub.peer_interval = 300;
        move |server: Builder| server.settings(settings)
    };
    let one = Kit::on(Arc::clone(&store), settings()).await;
    let two = Kit::on(store, settings()).await;
    let mut asker = Socket::join_as(one.server.addr(), "@(a)").await;
    let _actor = Socket::join_as(two.server.addr(), "@(b)").await;
    // Each has seen the other's record change.
    for number in 0..5 {
        let answer = asker.ask("hub:send", json!({"to": "@(b)", "type": "note", "data": number})).await;
        assert_eq!(answer["payload"]["code"], "elsewhere", "{answer}");
        assert_eq!(answer["payload"]["details"]["url"], "ws://balancer/hub");
        System.sleep(Duration::from_millis(300)).await;
    }
}

/// Others take a server for dead whose heartbeats fail, and queue messages for its actors.
#[tokio::test]
async fn a_server_that_was_taken_for_dead_closes_its_sessions_so_that_they_get_what_was_queued() {
    let gate = Gate::new(Faults { refused: 1.0, ..Faults::default() });
    let settings = || hub(|hub| hub.peer_interval = 300);
    let one = Kit::on(Arc::clone(&gate) as Arc<dyn Store>, settings()).await;
    let two = Kit::on(gate.calm(), settings()).await;
    let mut asker = Socket::join_as(two.server.addr(), "@(a)").await;
    let mut actor = Socket::join_as(one.server.addr(), "@(b)").await;
    let note = json!({"to": "@(b)", "type": "note", "data": 1});
    assert_eq!(asker.ask("hub:send", note.clone()).await["payload"]["code"], "elsewhere");
    gate.shut(true);
    until("it is taken for dead", async || asker.ask("hub:send", note.clone()).await["payload"]["status"] == "queued")
        .await;
    gate.shut(false);
    assert_eq!(tokio::time::timeout(PATIENCE, actor.closed()).await.unwrap(), Ok(1001));
    let mut actor = Socket::join_as(one.server.addr(), "@(b)").await;
    assert_eq!(actor.next().await.unwrap()["payload"], 1);
}
