//! Identity at the hub and on event streams: authentication, expiry, and which senders count as one.

use std::net::SocketAddr;
use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use wigwag_server::{Auth, BodyBounds, Credentials, Rate, S3Keys, Scope, Settings};
use wigwag_store::{Clock as _, System};

use crate::hub_socket::{Socket, now};
use crate::jwt::jwt;
use crate::kit::{Kit, with};

const ADA: &str = "ada-token-0123456789";
const BOB: &str = "bob-token-0123456789";
const WRONG: &str = "a-wrong-token-0123456789";
const HS256: &[u8] = b"a secret of thirty-two bytes, at least";
const KEY_SECRET: &str = "a secret of the tests, long enough";
const PATIENCE: Duration = Duration::from_secs(20);

fn scopes(texts: &[&str]) -> Vec<Scope> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn hello(token: &str) -> Value {
    json!({"protocolVersion": "0.1.0", "token": token})
}

async fn join(kit: &Kit, token: &str) -> Socket {
    let mut socket = Socket::open(kit.server.addr()).await;
    let got = socket.connect(hello(token)).await.unwrap();
    assert_eq!(got["type"], "hub:connected", "{got}");
    socket
}

#[tokio::test]
async fn one_person_does_not_fill_a_quorum_by_any_mix_of_ways() {
    let voter = || scopes(&["signals:vote", "runs:read", "hub:own:@(ada/*)", "hub:send:@(workflow/*)"]);
    let auth = Auth::new()
        .token("ada", ADA, voter())
        .and_then(|auth| auth.token("bob", BOB, voter()))
        .and_then(|auth| auth.jwt_hs256(HS256))
        .unwrap()
        .any_audience();
    let kit = Kit::with(|server| server.auth(auth)).await;
    kit.client().start("vote", &json!(null)).id("v").await.unwrap();
    let post = |path: &'static str, body| with(&kit, ADA, Method::POST, path, Some(body));
    post("/v1/runs/v/signals/vote", json!({"payload": "first"})).await.ok(200);
    post("/v1/runs/v/signals/vote", json!({"payload": "own name", "by": "ada"})).await.ok(200);
    post("/v1/runs/v/signals/vote", json!({"by": "bob"})).await.problem("not_allowed");
    let many = json!({"signals": [{"run": "v", "name": "vote", "key": "a"}, {"run": "v", "name": "vote", "key": "b"}]});
    post("/v1/signals", many).await.ok(200);
    for once in [false, true] {
        let link = post("/v1/links", json!({"run": "v", "name": "vote", "once": once})).await.ok(201);
        kit.post(link["path"].as_str().unwrap(), json!({"payload": "link"})).await.ok(200);
    }
    // Two sessions, one with the session's address and one with a registered address.
    for address in [None, Some("@(ada/one)")] {
        let mut hub = join(&kit, ADA).await;
        if let Some(address) = address {
            let got = hub.ask("hub:register", json!({"actorAddress": address})).await;
            assert_eq!(got["type"], "hub:registered", "{got}");
            address.clone_into(&mut hub.own);
        }
        let got = hub.ask("hub:send", json!({"to": "@(workflow/v)", "type": "vote", "data": "hub"})).await;
        assert_eq!(got["type"], "hub:delivery_ack", "{got}");
    }
    let claims = json!({"sub": "ada", "exp": now() / 1_000 + 60, "scope": "signals:vote"});
    let other = jwt("HS256", HS256, &claims);
    with(&kit, &other, Method::POST, "/v1/runs/v/signals/vote", Some(json!({"payload": "jwt"}))).await.ok(200);
    // A sender without a name, with access to the store.
    kit.client().signal("v", "vote", &json!("nameless")).await.unwrap();
    let vote = json!({"payload": "bob", "wait": "30s"});
    with(&kit, BOB, Method::POST, "/v1/runs/v/signals/vote", Some(vote)).await.ok(200);
    let result = with(&kit, ADA, Method::GET, "/v1/runs/v/result?timeout=30s", None).await.ok(200);
    assert_eq!(result, json!(["first", "bob"]));
}

#[tokio::test]
async fn failed_authentications_at_the_hub_are_slowed_down_and_good_ones_are_not() {
    let mut settings = Settings::default();
    settings.failed_auth_rate = Some(Rate { per_second: 5, burst: 5 });
    let auth = Auth::new().token("ada", ADA, [Scope::Admin]).unwrap();
    let kit = Kit::with(|server| server.auth(auth).settings(settings)).await;
    let addr = kit.server.addr();
    let began = System.boot();
    for place in 0..10 {
        let mut socket = Socket::open(addr).await;
        let payload = if place % 2 == 0 { hello(WRONG) } else { json!({"protocolVersion": "0.1.0"}) };
        assert_eq!(socket.connect(payload).await.unwrap()["type"], "hub:unauthorized");
        assert_eq!(socket.closed().await, Ok(4001));
    }
    let took = System.boot() - began;
    assert!(took >= Duration::from_millis(900), "five at once, five at five a second: {took:?}");
    // As many concurrent requests as fit into the longest delay: the last one waits for seconds.
    let wrong = tokio::spawn(async move {
        futures_util::future::join_all((0..20).map(|_| async move {
            let mut socket = Socket::open(addr).await;
            socket.connect(hello(WRONG)).await.unwrap()["type"].clone()
        }))
        .await
    });
    join(&kit, ADA).await;
    assert!(!wrong.is_finished(), "while they wait, who knows the token does not");
    assert!(wrong.await.unwrap().iter().all(|kind| kind == "hub:unauthorized"));
    // A wrong token in the header counts as well.
    let began = System.boot();
    let header = format!("Bearer {WRONG}");
    for _ in 0..8 {
        drop(Socket::try_open(addr, &[("authorization", &header)]).await.unwrap());
    }
    let took = System.boot() - began;
    assert!(took >= Duration::from_millis(400), "{took:?}");
}

/// Opens a hub socket from this address, and sends nothing. `None` if the connection is closed.
async fn silent(address: [u8; 4], server: SocketAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((address, 0).into()).unwrap();
    let mut socket = socket.connect(server).await.unwrap();
    let ask = "GET /hub HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
               sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";
    socket.write_all(ask.as_bytes()).await.ok()?;
    let mut said = [0; 1_024];
    let read = tokio::time::timeout(PATIENCE, socket.read(&mut said)).await.expect("neither served nor closed").ok()?;
    let said = String::from_utf8_lossy(&said[..read]).into_owned();
    (read > 0).then(|| {
        assert!(said.starts_with("HTTP/1.1 101"), "{said}");
        socket
    })
}

/// The first bytes of a masked text frame of this length.
fn part(length: u32, sent: usize) -> Vec<u8> {
    let mut part = match u16::try_from(length) {
        Ok(short) => [&[0x81, 0x80 | 126][..], &short.to_be_bytes()].concat(),
        Err(_) => [&[0x81, 0x80 | 127, 0, 0, 0, 0][..], &length.to_be_bytes()].concat(),
    };
    part.extend([0; 4]);
    part.resize(part.len() + sent, b' ');
    part
}

/// Returns the code with which the server closes a socket.
async fn close_code(mut socket: TcpStream) -> Option<u16> {
    let mut said = Vec::new();
    tokio::time::timeout(PATIENCE, socket.read_to_end(&mut said)).await.expect("it is closed").ok()?;
    let place = said.iter().rposition(|byte| *byte == 0x88)?;
    Some(u16::from_be_bytes([*said.get(place + 2)?, *said.get(place + 3)?]))
}

#[tokio::test]
async fn unfinished_frames_before_authentication_are_bounded_in_total_and_for_each_address() {
    let mut settings = Settings::default();
    settings.hub_frames = BodyBounds::new(160 * 1024, 96 * 1024, 96 * 1024);
    let auth = Auth::new().token("ada", ADA, [Scope::Admin]).unwrap();
    let kit = Kit::with(|server| server.auth(auth).settings(settings)).await;
    let server = kit.server.addr();
    let hold = async |address| {
        let mut socket = silent(address, server).await.unwrap();
        socket.write_all(&part(60_000, 40_000)).await.unwrap();
        socket
    };
    // Two of an address fit (of 48 KiB each, in steps of 16 KiB), and one of another address.
    let held = [hold([127, 0, 0, 2]).await, hold([127, 0, 0, 2]).await, hold([127, 0, 0, 3]).await];
    for address in [[127, 0, 0, 2], [127, 0, 0, 4]] {
        assert_eq!(close_code(hold(address).await).await, Some(1013), "{address:?}");
    }
    // Small frames need no room.
    join(&kit, ADA).await;
    // Closed connections release theirs.
    drop(held);
    let mut again = hold([127, 0, 0, 2]).await;
    again.write_all(&[b' '; 20_000]).await.unwrap();
    let mut said = [0; 64];
    let read = tokio::time::timeout(PATIENCE, again.read(&mut said)).await.expect("an answer").unwrap();
    assert_eq!(said[0], 0x81, "the frame is read and answered: {:?}", &said[..read]);
}

#[tokio::test]
async fn unfinished_frames_after_authentication_are_bounded_for_each_token() {
    let mut settings = Settings::default();
    settings.hub_frames = BodyBounds::new(4_000_000, 4_000_000, 400_000);
    let auth =
        Auth::new().token("ada", ADA, [Scope::Admin]).and_then(|auth| auth.token("bob", BOB, [Scope::Admin])).unwrap();
    let kit = Kit::with(|server| server.auth(auth).settings(settings)).await;
    let mut held = join(&kit, ADA).await;
    held.send_bytes(&part(1_000_000, 300_000)).await;
    // Once as one text, which the server reads itself, and once in fragments, which the library reads.
    for fragmented in [false, true] {
        let mut refused = join(&kit, ADA).await;
        let mut bytes = part(1_000_000, 300_000);
        if fragmented {
            bytes[0] = 0x01;
        }
        refused.send_bytes(&bytes).await;
        assert_eq!(refused.closed().await, Ok(1013), "fragmented: {fragmented}");
        let mut other = join(&kit, BOB).await;
        let large = json!({"to": "@(nobody)", "type": "note", "data": "x".repeat(300_000)});
        assert_eq!(other.ask("hub:send", large).await["type"], "hub:unknown_actor", "another token has room");
    }
}

#[tokio::test]
async fn a_long_message_is_read_within_a_small_budget() {
    let mut settings = Settings::default();
    settings.hub_frames = BodyBounds::new(600_000, 600_000, 600_000);
    let kit = Kit::with(|server| server.settings(settings)).await;
    let mut socket = Socket::join(kit.server.addr()).await;
    for binary in [false, true] {
        for length in [1_000, 20_000, 100_000, 500_000] {
            let large = json!({"to": "@(nobody)", "type": "note", "data": "x".repeat(length)});
            let frame = socket.frame("hub:send", "ask", large);
            socket.send_text(frame.to_string(), binary).await.unwrap();
            assert_eq!(socket.answer(&frame).await["type"], "hub:unknown_actor", "{length}");
        }
    }
}

#[tokio::test]
async fn sockets_that_do_not_authenticate_count_as_connections_of_their_address() {
    let mut settings = Settings::default();
    settings.address_connections_max = 4;
    let auth = Auth::new().token("ada", ADA, [Scope::Admin]).unwrap();
    let kit = Kit::with(|server| server.auth(auth).settings(settings)).await;
    let server = kit.server.addr();
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(silent([127, 0, 0, 2], server).await.expect("there is a place"));
    }
    assert!(silent([127, 0, 0, 2], server).await.is_none(), "one address has as many sockets as it likes");
    assert!(silent([127, 0, 0, 3], server).await.is_some());
    // Sessions with a token count against the limit of the token, not of the address.
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(join(&kit, ADA).await);
    }
    drop(open);
    for _ in 0..500 {
        if silent([127, 0, 0, 2], server).await.is_some() {
            return;
        }
        System.sleep(Duration::from_millis(10)).await;
    }
    panic!("the places never come back");
}

/// Reads an event stream to its end.
async fn rest(mut stream: reqwest::Response) -> String {
    let mut said = String::new();
    let reading = async {
        while let Some(more) = stream.chunk().await.unwrap() {
            said.push_str(&String::from_utf8_lossy(&more));
        }
    };
    assert!(tokio::time::timeout(PATIENCE, reading).await.is_ok(), "the stream continues: {said}");
    said
}

async fn follow(kit: &Kit, path: &str, token: &str) -> reqwest::Response {
    let stream = kit.request(Method::GET, path).bearer_auth(token).send().await.unwrap();
    assert_eq!(stream.status().as_u16(), 200);
    stream
}

fn credentials(auth: Auth, s3: S3Keys) -> Credentials {
    let mut credentials = Credentials::default();
    (credentials.auth, credentials.s3) = (auth, s3);
    credentials
}

#[tokio::test]
async fn a_reload_ends_sessions_and_streams_of_tokens_that_are_gone_and_no_others() {
    let bob = |scopes: Vec<Scope>| Auth::new().token("bob", BOB, scopes).unwrap();
    let both =
        bob(vec![Scope::Admin]).token("ada", ADA, [Scope::Admin]).and_then(|auth| auth.jwt_hs256(HS256)).unwrap();
    let keys = S3Keys::new().read_only("worker", KEY_SECRET).unwrap();
    let kit = Kit::with(|server| server.auth(both.any_audience()).s3(keys)).await;
    kit.client().start("approve", &json!(null)).id("a").await.unwrap();
    let claims = json!({"sub": "eve", "exp": now() / 1_000 + 600, "scope": "admin"});
    let signed = jwt("HS256", HS256, &claims);
    let mut ended = [join(&kit, ADA).await, join(&kit, &signed).await];
    let mut kept = join(&kit, BOB).await;
    let streams = [
        follow(&kit, "/v1/runs/a/events", ADA).await,
        follow(&kit, "/v1/changes?prefix=nothing/", ADA).await,
        follow(&kit, "/v1/runs/a/events", &signed).await,
    ];
    let request = kit.request(Method::GET, "/v1/changes?prefix=nothing/").basic_auth("worker", Some(KEY_SECRET));
    let by_key = request.send().await.unwrap();
    assert_eq!(by_key.status().as_u16(), 200);
    let of_bob = follow(&kit, "/v1/runs/a/events", BOB).await;

    kit.server.reload(credentials(bob(vec![Scope::Admin]), S3Keys::new())).unwrap();
    for socket in &mut ended {
        assert_eq!(socket.closed().await, Ok(4001), "a token that was removed still has a session");
    }
    for stream in streams.into_iter().chain([by_key]) {
        let said = rest(stream).await;
        assert!(said.contains("event: end") && said.contains("token_expired"), "{said}");
    }
    assert_eq!(kept.ask("hub:metrics", json!({})).await["type"], "hub:metrics", "the others stay");

    // Changed scopes take effect immediately: the session ends, and its client gets the new scopes when it reconnects.
    kit.server.reload(credentials(bob(scopes(&["runs:write"])), S3Keys::new())).unwrap();
    assert_eq!(kept.closed().await, Ok(4001));
    assert!(rest(of_bob).await.contains("token_expired"));
}

#[tokio::test]
async fn an_event_stream_ends_with_its_jwt() {
    let auth = Auth::new().jwt_hs256(HS256).unwrap().any_audience();
    let kit = Kit::with(|server| server.auth(auth)).await;
    kit.client().start("approve", &json!(null)).id("a").await.unwrap();
    // Within the leeway, and for three seconds more.
    let claims = json!({"sub": "ada", "exp": now() / 1_000 - 2, "scope": "runs:read"});
    let stream = follow(&kit, "/v1/runs/a/events", &jwt("HS256", HS256, &claims)).await;
    let said = rest(stream).await;
    assert!(said.contains("run.started") || said.contains("event:"), "{said}");
    assert!(said.contains("token_expired"), "{said}");
}
