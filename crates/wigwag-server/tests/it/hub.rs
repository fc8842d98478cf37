//! Tests of the hub over real sockets.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use wigwag_hub::testing::{Sockets, Vector};
use wigwag_server::{Auth, Scope};

use crate::hub_socket::{Socket, now};
use crate::kit::Kit;

/// Real sockets for the vectors, whose runner is synchronous.
struct Real {
    runtime: tokio::runtime::Runtime,
    addr: std::net::SocketAddr,
    open: BTreeMap<String, Socket>,
}

impl Sockets for Real {
    fn open(&mut self, name: &str) {
        let socket = self.runtime.block_on(Socket::open(self.addr));
        self.open.insert(name.to_owned(), socket);
    }

    fn send(&mut self, name: &str, text: &str, binary: bool) {
        let socket = self.open.get_mut(name).expect("a socket of that name");
        // If the peer has closed the socket, the next read reports it.
        let _ = self.runtime.block_on(socket.send_text(text.to_owned(), binary));
    }

    fn receive(&mut self, name: &str) -> Result<String, String> {
        let socket = self.open.get_mut(name).expect("a socket of that name");
        self.runtime.block_on(socket.next_text())
    }

    fn close(&mut self, name: &str) {
        if let Some(socket) = self.open.remove(name) {
            self.runtime.block_on(socket.close());
        }
    }

    fn closed(&mut self, name: &str) -> Result<u16, String> {
        let socket = self.open.get_mut(name).expect("a socket of that name");
        self.runtime.block_on(socket.closed())
    }

    fn now(&self) -> u64 {
        now()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_vector_holds_over_real_sockets() {
    let kit = Kit::new().await;
    let addr = kit.server.addr();
    let failed = tokio::task::spawn_blocking(move || {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/hub");
        let mut failed = Vec::new();
        for (number, vector) in Vector::all(&folder).iter().enumerate() {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let mut sockets = Real { runtime, addr, open: BTreeMap::new() };
            failed.extend(vector.run(&mut sockets, &format!("v{number}")).err());
        }
        failed
    });
    let failed = failed.await.unwrap();
    assert!(failed.is_empty(), "{} fail:\n{}", failed.len(), failed.join("\n\n"));
}

#[tokio::test]
async fn what_is_no_handshake_is_a_problem_that_says_what_is_missing() {
    let kit = Kit::new().await;
    let problem = kit.get("/hub").await.problem("invalid_header");
    assert!(problem["detail"].as_str().unwrap().contains("Upgrade"), "{problem}");
    kit.post("/hub", json!({})).await.problem("method_not_allowed");
}

#[tokio::test]
async fn a_page_from_elsewhere_is_refused_before_it_has_a_socket() {
    let kit = Kit::new().await;
    let addr = kit.server.addr();
    assert!(Socket::try_open(addr, &[("origin", "https://evil.example")]).await.is_err());
    let own = format!("http://{addr}");
    assert!(Socket::try_open(addr, &[("origin", &own)]).await.is_ok());
}

fn guarded(scopes: &[&str]) -> impl FnOnce(wigwag_server::Builder) -> wigwag_server::Builder {
    let scopes: Vec<Scope> = scopes.iter().map(|scope| scope.parse().unwrap()).collect();
    let auth = Auth::new().token("alice", TOKEN, scopes).unwrap().jwt_hs256(SECRET).unwrap().any_audience();
    |server| server.auth(auth)
}

const TOKEN: &str = "an unguessable token";
const SECRET: &[u8] = b"a secret that has more than 32 bytes, of course";

#[tokio::test]
async fn a_token_counts_in_the_request_or_in_connect_and_a_wrong_one_closes() {
    let kit = Kit::with(guarded(&["admin"])).await;
    let addr = kit.server.addr();
    let hello = |token: Option<&str>| json!({"protocolVersion": "0.1.0", "token": token});

    let mut socket = Socket::try_open(addr, &[("authorization", &format!("Bearer {TOKEN}"))]).await.unwrap();
    assert_eq!(socket.connect(hello(None)).await.unwrap()["type"], "hub:connected");
    let mut socket = Socket::open(addr).await;
    assert_eq!(socket.connect(hello(Some(TOKEN))).await.unwrap()["type"], "hub:connected");
    for wrong in [None, Some("wrong"), Some("")] {
        let mut socket = Socket::open(addr).await;
        assert_eq!(socket.connect(hello(wrong)).await.unwrap()["type"], "hub:unauthorized");
        assert_eq!(socket.closed().await, Ok(4001));
    }
}

#[tokio::test]
async fn scopes_say_what_a_token_may_do_here() {
    let scopes = ["hub:own:@(browser/*)", "hub:send:@(worker/*)", "hub:publish:chat/*", "hub:read:chat/*", "runs:read"];
    let kit = Kit::with(guarded(&scopes)).await;
    let mut socket = Socket::open(kit.server.addr()).await;
    socket.connect(json!({"protocolVersion": "0.1.0", "token": TOKEN})).await.unwrap();
    kit.client().start("approve", &json!(null)).id("r1").await.unwrap();
    for (kind, payload, answer) in [
        ("hub:register", json!({"actorAddress": "@(browser/1)"}), "hub:registered"),
        ("hub:register", json!({"actorAddress": "@(worker/1)"}), "hub:unauthorized"),
        ("hub:send", json!({"to": "@(worker/1)", "type": "x"}), "hub:unknown_actor"),
        ("hub:send", json!({"to": "@(browser/1)", "type": "x"}), "hub:unauthorized"),
        ("hub:send", json!({"to": "@(workflow/r1)", "type": "approval"}), "hub:unauthorized"),
        ("hub:publish", json!({"topic": "chat/1", "type": "x"}), "hub:published"),
        ("hub:publish", json!({"topic": "other", "type": "x"}), "hub:unauthorized"),
        ("hub:subscribe", json!({"topic": "chat/1"}), "hub:subscribed"),
        ("hub:subscribe", json!({"topic": "nudges"}), "hub:unauthorized"),
        ("hub:subscribe", json!({"topic": "run/r1"}), "hub:subscribed"),
        ("hub:subscribe", json!({"topic": "runs"}), "hub:subscribed"),
    ] {
        let got = socket.ask(kind, payload.clone()).await;
        assert_eq!(got["type"], answer, "{kind} {payload}: {got}");
    }
}

#[tokio::test]
async fn a_session_ends_when_its_jwt_does() {
    let kit = Kit::with(guarded(&["admin"])).await;
    // Within the leeway when it connects, and for three seconds more.
    let exp = now() / 1_000 - 2;
    let claims = json!({"sub": "bob", "exp": exp, "scope": "admin"});
    let token = crate::jwt::jwt("HS256", SECRET, &claims);
    let mut socket = Socket::open(kit.server.addr()).await;
    let hello = socket.connect(json!({"protocolVersion": "0.1.0", "token": token})).await.unwrap();
    assert_eq!(hello["type"], "hub:connected", "{hello}");
    assert_eq!(socket.next().await.unwrap()["payload"]["reason"], "token_expired");
    assert_eq!(socket.closed().await, Ok(4001));
    assert!(now() / 1_000 >= exp);
}

#[tokio::test]
async fn an_approval_over_the_hub_resumes_a_run_and_its_events_come_back() {
    let kit = Kit::with(guarded(&["hub:send:@(workflow/r1)", "hub:read:run/r1"])).await;
    kit.client().start("approve", &json!(null)).id("r1").await.unwrap();
    let mut page = Socket::open(kit.server.addr()).await;
    page.connect(json!({"protocolVersion": "0.1.0", "token": TOKEN})).await.unwrap();
    let subscribed = page.ask("hub:subscribe", json!({"topic": "run/r1"})).await;
    assert_eq!(subscribed["type"], "hub:subscribed", "{subscribed}");
    let mut seen = Vec::new();
    // Approves the run once it waits.
    while !seen.iter().any(|kind| kind == "signal.waiting") {
        let got = page.next().await.unwrap();
        assert_eq!(got["metadata"]["seq"], got["payload"]["seq"]);
        take_events(&mut seen, &got);
    }
    let frame =
        page.frame("hub:send", "ask", json!({"to": "@(workflow/r1)", "type": "approval", "data": {"yes": true}}));
    page.send(&frame).await.unwrap();
    let (mut status, mut last) = (Value::Null, 0);
    while !seen.iter().any(|kind| kind == "run.completed") {
        let got = page.next().await.unwrap();
        match got["correlationId"] == frame["id"] {
            true => status = got["payload"]["status"].clone(),
            false => {
                let seq = got["metadata"]["seq"].as_u64().unwrap();
                assert!(last == 0 || seq == last + 1, "no gap between {last} and {seq}");
                last = seq;
                take_events(&mut seen, &got);
            }
        }
    }
    assert_eq!(status, "delivered");
    let ended = page.next().await.unwrap();
    assert_eq!((&ended["type"], &ended["payload"]["reason"]), (&json!("hub:unsubscribed"), &json!("ended")));
    let output: Value = kit.client().run("r1").unwrap().result().await.unwrap();
    assert_eq!(output, json!({"yes": true}));
    let signals = kit.client().run("r1").unwrap().signals(None).await.unwrap();
    let source = &signals[0].source;
    assert_eq!((source.by.as_deref(), source.via.as_deref()), (Some("alice"), Some("hub")));
    assert!(source.authenticated, "it was sent with a token");
    // Once it has ended, the run is no actor any more.
    let refused = page.ask("hub:send", json!({"to": "@(workflow/r1)", "type": "approval"})).await;
    assert_eq!(refused["type"], "hub:unknown_actor", "{refused}");
    // A later subscriber sees all of it.
    let mut late = Socket::open(kit.server.addr()).await;
    late.connect(json!({"protocolVersion": "0.1.0", "token": TOKEN})).await.unwrap();
    let epoch = subscribed["payload"]["epoch"].clone();
    late.ask("hub:subscribe", json!({"topic": "run/r1", "after": {"epoch": epoch, "seq": 1}})).await;
    assert_eq!(late.next().await.unwrap()["metadata"]["seq"], 2);
}

fn take_events(seen: &mut Vec<String>, frame: &Value) {
    let events = frame["payload"]["events"].as_array().cloned().unwrap_or_default();
    seen.extend(events.iter().filter_map(|event| event["type"].as_str().map(str::to_owned)));
}

#[tokio::test]
async fn starts_and_ends_of_runs_are_told_and_what_becomes_due() {
    let kit = Kit::new().await;
    let mut socket = Socket::join(kit.server.addr()).await;
    for topic in ["runs", "nudges"] {
        assert_eq!(socket.ask("hub:subscribe", json!({"topic": topic})).await["type"], "hub:subscribed");
    }
    kit.client().start("approve", &json!(1)).id("r1").await.unwrap();
    kit.client().signal("r1", "approval", &json!(1)).await.unwrap();
    let mut told = Vec::new();
    let mut nudged = false;
    while told.len() < 2 || !nudged {
        let got = socket.next().await.unwrap();
        match got["type"].as_str().unwrap() {
            "store:put" => nudged |= got["payload"]["keys"].to_string().contains("~r1~"),
            _ => told.push((got["type"].clone(), got["payload"].clone())),
        }
    }
    assert_eq!(told[0], (json!("run:started"), json!({"id": "r1", "workflow": "approve"})));
    assert_eq!(told[1], (json!("run:ended"), json!({"id": "r1", "workflow": "approve", "status": "completed"})));
}

#[tokio::test]
async fn the_number_of_waits_is_told_when_it_changes_and_nobody_else_tells_it() {
    let kit = Kit::new().await;
    let mut socket = Socket::join(kit.server.addr()).await;
    assert_eq!(socket.ask("hub:subscribe", json!({"topic": "board"})).await["type"], "hub:subscribed");
    kit.waiting("r1").await;
    kit.waiting("r2").await;
    let want = json!({"exact": true, "waiting": 2, "signals": {"approval": 2}});
    loop {
        let told = socket.next().await.unwrap();
        assert_eq!(told["type"], "board:counts");
        if told["payload"] == want {
            break;
        }
    }
    for wrong in [json!({"topic": "board", "type": "board:counts", "data": {}}), json!({"topic": "board"}), json!({})] {
        let refused = socket.ask("hub:publish", wrong).await;
        assert_ne!(refused["type"], "hub:published", "{refused}");
    }
}

#[tokio::test]
async fn a_server_that_stops_says_so_and_keeps_what_was_asked() {
    let kit = Kit::new().await;
    let addr = kit.server.addr();
    Socket::join_as(addr, "@(b)").await.close().await;
    let mut socket = Socket::join_as(addr, "@(a)").await;
    let mut answer = Value::Null;
    while answer["payload"]["status"] != "queued" {
        answer = socket.ask("hub:send", json!({"to": "@(b)", "type": "note", "data": 1})).await;
    }
    let stopping = tokio::spawn(kit.server.stop());
    assert_eq!(socket.next().await.unwrap()["payload"]["reason"], "server_shutdown");
    assert_eq!(socket.closed().await, Ok(1001));
    stopping.await.unwrap();
    let again = Kit::on(kit.store, |server| server).await;
    let mut back = Socket::join_as(again.server.addr(), "@(b)").await;
    assert_eq!(back.next().await.unwrap()["payload"], 1);
}

#[tokio::test]
async fn more_connections_than_there_are_places_are_told_to_come_back() {
    let kit = Kit::with(|server| {
        let mut settings = wigwag_server::Settings::default();
        settings.hub_connections_max = 2;
        server.settings(settings)
    })
    .await;
    let addr = kit.server.addr();
    let first = Socket::join(addr).await;
    let _second = Socket::join(addr).await;
    assert!(Socket::try_open(addr, &[]).await.is_err());
    first.close().await;
    // Its slot is free once the server has noticed the close.
    let mut third = Socket::try_open(addr, &[]).await;
    while third.is_err() {
        third = Socket::try_open(addr, &[]).await;
    }
}

/// The hub closes a connection that does not read, even if frames keep arriving for it.
#[tokio::test]
async fn one_that_does_not_read_is_closed_though_more_comes_for_it() {
    let kit = Kit::with(|server| {
        let mut settings = wigwag_server::Settings::default();
        (settings.hub.rate, settings.hub.drain_within) = (None, 1_000);
        // The server's write timeout would also close the connection, later; this test is about the hub.
        settings.write_timeout = Duration::from_secs(600);
        server.settings(settings)
    })
    .await;
    let deaf = Socket::join_as(kit.server.addr(), "@(deaf)").await;
    let mut sender = Socket::join_as(kit.server.addr(), "@(sender)").await;
    let long = "x".repeat(100_000);
    let until_it_is_gone = async {
        while sender.ask("hub:metrics", json!({})).await["payload"]["sessions"] != 1 {
            let noise = json!({"to": "@(deaf)", "type": "noise", "data": long});
            let frame = sender.frame("hub:send", "tell", noise);
            sender.send(&frame).await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(60), until_it_is_gone).await.expect("it still has its place");
    drop(deaf);
}
