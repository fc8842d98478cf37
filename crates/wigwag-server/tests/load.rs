//! A hostile load over HTTP and on the hub, at small size: all attacks at once, and the server answers `GET /v1/health` throughout.
//!
//! A separate test binary, because it measures latency and memory. The latency limit is extended by the time that threads of this
//! process waited for a processor during the request: on a busy machine that is the machine's delay, not the server's. A
//! server that is blocked by a lock, or busy with one client, does not wait for a processor and gets no extension.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

#[expect(dead_code, reason = "the other tests use the rest")]
#[path = "it/hub_socket.rs"]
mod hub_socket;
#[expect(dead_code, reason = "the other tests use the rest")]
#[path = "it/kit.rs"]
mod kit;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use wigwag_server::{Auth, BodyBounds, Metrics, S3Keys, Scope, Settings};
use wigwag_store::{Clock as _, System};

use crate::hub_socket::Socket;
use crate::kit::Kit;

const TOKEN: &str = "a-token-of-the-tests-0123456789";
/// The token of attackers that are not limited by the bounds of the others.
const HISTORIAN: &str = "a-historian-of-the-tests-0123456789";
const SECRET: &str = "a secret of the tests, long enough";

/// Duration of the attack.
const SPAN: Duration = Duration::from_secs(5);

/// Latency limit of a health check, on top of the machine's scheduling delay.
const ANSWER_MAX: Duration = Duration::from_millis(100);

/// Maximum latency of the few that may take longer; a server that a client can freeze takes seconds.
const HANG_MAX: Duration = Duration::from_secs(1);

/// Body budget of the server; the attackers send a multiple of it.
const BODIES_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Outbox limit of a hub session; a session is read until half of it waits.
const OUTBOX_BYTES_MAX: usize = 4 * 1024 * 1024;

/// History limit of all topics together.
const HISTORY_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Limit of the longest hold of the hub's lock. The hub's own work per hold is bounded by tests that count it; this time
/// includes the time for which the thread had no processor.
const HOLD_MAX: Duration = Duration::from_secs(1);

/// Limit of memory growth during the attack: the budgets of bodies and frames, the history, four outboxes, the connections'
/// buffers, and what the attackers themselves hold, who are in the same process.
const GROWTH_KIB_MAX: u64 = 112 * 1024;

async fn from(address: [u8; 4], server: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((address, 0).into())?;
    socket.connect(server).await
}

fn head(method: &str, path: &str, length: usize) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n"
    )
}

/// One kind of attack: a first write, then the same write repeated with a pause.
#[derive(Clone)]
struct Attack {
    address: [u8; 4],
    first: Vec<u8>,
    then: Vec<u8>,
    pause: Duration,
    /// Whether it reads responses.
    reads: bool,
}

impl Attack {
    /// Attacks until stopped; reconnects whenever the server closes the connection.
    async fn run(self, server: SocketAddr, stop: Arc<AtomicBool>) {
        while !stop.load(Ordering::Relaxed) {
            let Ok(socket) = from(self.address, server).await else {
                System.sleep(Duration::from_millis(20)).await;
                continue;
            };
            let (mut read, mut write) = socket.into_split();
            let reads = self.reads;
            let reading = tokio::spawn(async move {
                let mut buffer = vec![0; 16 * 1024];
                if !reads {
                    std::future::pending::<()>().await;
                }
                while matches!(read.read(&mut buffer).await, Ok(1..)) {}
            });
            if write.write_all(&self.first).await.is_ok() {
                while !stop.load(Ordering::Relaxed)
                    && !reading.is_finished()
                    && write.write_all(&self.then).await.is_ok()
                {
                    System.sleep(self.pause).await;
                }
            }
            reading.abort();
        }
    }
}

/// The request that opens a hub session.
const HUB: &str = "GET /hub HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: Upgrade\r\n\
                   sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";

/// Head of a text frame of that length, masked with zeros.
fn frame_head(length: usize) -> Vec<u8> {
    let length = u16::try_from(length).unwrap().to_be_bytes();
    [&[0x81, 0x80 | 126][..], &length, &[0; 4]].concat()
}

/// A request to the hub as a frame.
fn frame(id: &str, from: &str, kind: &str, payload: &Value) -> Vec<u8> {
    let envelope = json!({"id": id, "from": from, "to": "@(hub)", "type": kind, "pattern": "ask", "timestamp": 0, "payload": payload});
    let text = envelope.to_string();
    [frame_head(text.len()), text.into_bytes()].concat()
}

/// Attacks on the hub.
fn hub_attacks() -> Vec<(&'static str, usize, Attack)> {
    let attack = |last, first: Vec<u8>, then: Vec<u8>, reads| {
        let pause = Duration::from_millis(20);
        Attack { address: [127, 0, 0, last], first: [HUB.as_bytes(), &first].concat(), then, pause, reads }
    };
    let connect = |token: &str| frame("c", "@(x)", "hub:connect", &json!({"protocolVersion": "0.1.0", "token": token}));
    let mut all = vec![("hub: wrong tokens", 10, attack(19, connect("a-wrong-token-0123456789"), Vec::new(), true))];
    // A hundred sockets, from more addresses than one may have connections.
    for last in [18, 21, 22] {
        let part = [frame_head(60_000), vec![b' '; 59_000]].concat();
        all.push(("hub: unfinished frames before authentication", 34, attack(last, part, Vec::new(), true)));
    }
    let part = [connect(TOKEN), frame_head(60_000), vec![b' '; 59_000]].concat();
    all.push(("hub: unfinished frames after authentication", 30, attack(23, part, Vec::new(), true)));
    for number in 0..2 {
        let mut first = connect(HISTORIAN);
        let from = format!("@(historian/{number})");
        first.extend(frame("r", "@(x)", "hub:register", &json!({"actorAddress": from})));
        let publish = |topic: u32| {
            let payload = json!({"topic": format!("t/{number}/{topic}"), "type": "n", "data": "x".repeat(50_000)});
            frame(&topic.to_string(), &from, "hub:publish", &payload)
        };
        let topics = (0..60).flat_map(publish).collect();
        all.push(("hub: the history of many topics", 1, attack(24, first, topics, true)));
    }
    for number in 0..4 {
        let mut first = connect(TOKEN);
        for place in 0..16 {
            let address = format!("@(attacker/{number}-{place})");
            let payload = json!({"actorAddress": address, "metadata": {"text": "x".repeat(4_000)}});
            first.extend(frame(&address, "@(x)", "hub:register", &payload));
        }
        let from = format!("@(attacker/{number}-0)");
        let pages =
            (0..50).flat_map(|page| frame(&page.to_string(), &from, "hub:list_actors", &json!({"limit": 1_000})));
        all.push(("hub: pages that are never read", 1, attack(20, first, pages.collect(), false)));
    }
    all
}

fn mac(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Head of a signed upload of an object. The signature does not cover the body, so the server reads the body.
fn signed_put(path: &str, length: usize) -> String {
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let (day, names) = (&now[..8], "host;x-amz-content-sha256;x-amz-date");
    let headers = format!("host:localhost\nx-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:{now}\n");
    let canonical = format!("PUT\n{path}\n\n{headers}\n{names}\nUNSIGNED-PAYLOAD");
    let scope = format!("{day}/us-east-1/s3/aws4_request");
    let text = format!("AWS4-HMAC-SHA256\n{now}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
    let first = mac(format!("AWS4{SECRET}").as_bytes(), day);
    let key = ["us-east-1", "s3", "aws4_request"].iter().fold(first, |key, part| mac(&key, part));
    let signature = hex(&mac(&key, &text));
    format!(
        "PUT {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\nx-amz-date: {now}\r\n\
         x-amz-content-sha256: UNSIGNED-PAYLOAD\r\n\
         authorization: AWS4-HMAC-SHA256 Credential=worker/{scope},SignedHeaders={names},Signature={signature}\r\n\r\n"
    )
}

/// Checks that the body of a signed upload is awaited: an attack whose signature is refused would test nothing.
async fn assert_drips_are_read(server: SocketAddr) {
    let mut socket = from([127, 0, 0, 1], server).await.unwrap();
    socket.write_all(signed_put("/s3/wigwag/a", 60_000_000).as_bytes()).await.unwrap();
    socket.write_all(b" ").await.unwrap();
    let mut said = vec![0; 4 * 1024];
    let read = socket.read(&mut said).await.unwrap();
    let said = String::from_utf8_lossy(&said[..read]);
    assert!(said.contains("RequestTimeout"), "{said}");
}

fn attacks() -> Vec<(&'static str, usize, Attack)> {
    let large = vec![b' '; 256 * 1024];
    let attack = |last, first: String, then: &[u8], pause| {
        let pause = Duration::from_millis(pause);
        Attack { address: [127, 0, 0, last], first: first.into_bytes(), then: then.to_vec(), pause, reads: true }
    };
    let wrong = "GET /v1/runs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer a-wrong-token-0123456789\r\n\r\n";
    let authorized = format!("{}authorization: Bearer {TOKEN}\r\n\r\n", head("POST", "/v1/runs", 1_000_000));
    vec![
        ("link posts with large bodies", 30, attack(10, head("POST", "/v1/links/a.b", 1_000_000) + "\r\n", &large, 5)),
        ("bodies that stay away", 30, attack(11, authorized.clone(), b" ", 50)),
        ("bodies as large as may be", 30, attack(12, authorized, &large, 20)),
        ("objects that drip", 30, attack(13, signed_put("/s3/wigwag/a", 60_000_000), b" ", 50)),
        ("heads that never end", 30, attack(14, "GET / HTTP/1.1\r\n".into(), b"x: y\r\n", 50)),
        ("wrong tokens", 10, attack(15, String::new(), wrong.as_bytes(), 1)),
        ("connections that do nothing", 60, attack(16, String::new(), b"", 50)),
        ("answers that are asked for and asked for", 5, {
            let ask =
                format!("GET /v1/openapi.json HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {TOKEN}\r\n\r\n");
            attack(17, String::new(), ask.as_bytes(), 2)
        }),
    ]
}

/// Resident memory of the process in KiB.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Time that the threads of this process have waited for a processor, in total.
fn waited_for_processor() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").unwrap();
    let delays = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().nth(1)?.parse::<u64>().ok()
    });
    Duration::from_nanos(delays.sum())
}

/// Measures how late a plain thread wakes up, which detects a stall of the whole machine.
#[derive(Default)]
struct Machine {
    late_micros: AtomicU64,
    rounds: AtomicU64,
}

impl Machine {
    fn watch(self: &Arc<Self>, stop: &Arc<AtomicBool>) {
        let (machine, stop) = (Arc::clone(self), Arc::clone(stop));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let began = System.boot();
                std::thread::sleep(Duration::from_millis(5));
                let late = (System.boot() - began).saturating_sub(Duration::from_millis(5));
                machine.late_micros.fetch_max(u64::try_from(late.as_micros()).unwrap(), Ordering::Relaxed);
                machine.rounds.fetch_add(1, Ordering::Release);
            }
        });
    }

    /// The longest delay since this was called last, including a sleep that is still in progress.
    async fn longest(&self) -> Duration {
        let round = self.rounds.load(Ordering::Acquire);
        while self.rounds.load(Ordering::Acquire) == round {
            System.sleep(Duration::from_millis(1)).await;
        }
        Duration::from_micros(self.late_micros.swap(0, Ordering::Relaxed))
    }
}

/// Requests `/v1/health` over a new connection and returns the latency.
async fn health(server: SocketAddr) -> Duration {
    let began = System.boot();
    let mut socket = from([127, 0, 0, 1], server).await.unwrap();
    socket.write_all(b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    System.boot() - began
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    let bounds = BodyBounds::new(BODIES_BYTES_MAX, BODIES_BYTES_MAX / 2, BODIES_BYTES_MAX / 2);
    (settings.bodies, settings.s3_bodies) = (bounds, bounds);
    settings.hub_frames = BodyBounds::new(3 * BODIES_BYTES_MAX, BODIES_BYTES_MAX / 2, BODIES_BYTES_MAX / 2);
    settings.header_timeout = Duration::from_secs(1);
    settings.body_timeout = Duration::from_secs(1);
    settings.address_connections_max = 40;
    (settings.hub.rate, settings.hub.token_rate) = (None, None);
    settings.hub.history_total_bytes_max = HISTORY_BYTES_MAX;
    settings.hub.drop_bytes_above = OUTBOX_BYTES_MAX;
    settings
}

/// Returns the longest time that the hub's lock was held, by the server's metrics.
async fn longest_hold(kit: &Kit) -> Duration {
    let response = kit.request(reqwest::Method::GET, "/metrics").bearer_auth(TOKEN).send().await.unwrap();
    let text = response.text().await.unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("wigwag_hub_lock_hold_max_seconds "));
    Duration::from_secs_f64(line.expect("the metric of the hub's lock").parse().unwrap())
}

#[expect(clippy::print_stdout, reason = "the test prints its measurements")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_a_hostile_load_the_server_answers_and_its_memory_is_bounded() {
    let auth = Auth::new().token("ada", TOKEN, [Scope::Admin]).unwrap();
    let auth = auth.token("historian", HISTORIAN, [Scope::Admin]).unwrap();
    let keys = S3Keys::new().full("worker", SECRET).unwrap();
    let metrics = Metrics::install().unwrap();
    let kit = Kit::with(|server| server.auth(auth).s3(keys).settings(settings()).metrics(metrics)).await;
    let server = kit.server.addr();
    health(server).await;
    assert_drips_are_read(server).await;
    let before = resident_kib();
    let stop = Arc::new(AtomicBool::new(false));
    let machine = Arc::new(Machine::default());
    machine.watch(&stop);
    // Attackers run on a separate thread and runtime.
    let attackers = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let mut all = JoinSet::new();
                for (_, count, attack) in attacks().into_iter().chain(hub_attacks()) {
                    (0..count).for_each(|_| _ = all.spawn(attack.clone().run(server, Arc::clone(&stop))));
                }
                while !stop.load(Ordering::Relaxed) {
                    System.sleep(Duration::from_millis(20)).await;
                }
                all.shutdown().await;
            });
        }
    });
    let began = System.boot();
    let (mut answers, mut late, mut most_kib) = (0_u32, Vec::new(), 0);
    while System.boot() - began < SPAN {
        let waited = waited_for_processor();
        let took = health(server).await;
        let excuse = waited_for_processor().saturating_sub(waited);
        // A request is scheduled several times, on both sides.
        let excuse = excuse + 8 * machine.longest().await;
        if took > ANSWER_MAX + excuse {
            late.push((took, excuse));
        }
        answers += 1;
        most_kib = most_kib.max(resident_kib());
        System.sleep(Duration::from_millis(10)).await;
    }
    stop.store(true, Ordering::Relaxed);
    attackers.join().unwrap();
    assert!(answers >= 20, "only {answers} answers in {SPAN:?}");
    // The attackers share two processors with the server, so that a few answers come late on any machine; none may hang.
    let is_rare = late.len() * 10 <= answers as usize;
    assert!(is_rare, "{} of {answers} answers took longer than {ANSWER_MAX:?}: {late:?}", late.len());
    let hung = late.iter().filter(|(took, excuse)| *took > HANG_MAX + *excuse).count();
    assert_eq!(hung, 0, "answers took longer than {HANG_MAX:?}: {late:?}");
    let growth = most_kib.saturating_sub(before);
    assert!(growth < GROWTH_KIB_MAX, "the process grew by {growth} KiB");
    // The attacks reached the hub, and the outboxes of the attackers are bounded.
    let mut socket = Socket::open(server).await;
    socket.connect(json!({"protocolVersion": "0.1.0", "token": TOKEN})).await.unwrap();
    let figures = socket.ask("hub:metrics", json!({})).await["payload"].clone();
    assert!(figures["received"].as_u64().unwrap() > 4 * 17, "{figures}");
    assert!(figures["outboxBytes"].as_u64().unwrap() < 4 * OUTBOX_BYTES_MAX as u64, "{figures}");
    let history = figures["historyBytes"].as_u64().unwrap();
    assert!(history > HISTORY_BYTES_MAX as u64 / 2 && history <= HISTORY_BYTES_MAX as u64, "{figures}");
    let hold = longest_hold(&kit).await;
    println!("longest hold of the hub's lock: {hold:?}; memory grew by {growth} KiB; {answers} health checks");
    assert!(hold < HOLD_MAX, "the hub's lock was held for {hold:?}");
    // Authenticated requests are served right after the attack.
    let runs = kit.request(reqwest::Method::GET, "/v1/runs").bearer_auth(TOKEN).send().await.unwrap();
    assert_eq!(runs.status().as_u16(), 200);
}

/// Clients of a crowd.
const CROWD: usize = 100;

/// Unread bytes of each client of a crowd, in its outbox.
const UNREAD_BYTES: usize = 500_000;

/// Lets a crowd connect and leave: each client registers with metadata, has an unfinished frame, and does not read.
async fn crowd(kit: &Kit) -> u64 {
    let server = kit.server.addr();
    let mut clients = Vec::new();
    for number in 0..CROWD {
        let mut socket = Socket::join(server).await;
        let address = format!("@(crowd/{number})");
        let payload = json!({"actorAddress": address, "metadata": {"text": "x".repeat(4_000)}});
        assert_eq!(socket.ask("hub:register", payload).await["type"], "hub:registered");
        socket.send_bytes(&[frame_head(60_000), vec![b' '; 20_000]].concat()).await;
        clients.push(socket);
    }
    let mut sender = Socket::join(server).await;
    for round in 0..UNREAD_BYTES / 50_000 {
        let message = json!({"message": {"type": "n", "payload": "x".repeat(50_000)}, "excludeSelf": true});
        let answer = sender.ask("hub:broadcast", message).await;
        assert_eq!(answer["payload"]["deliveredCount"], CROWD, "{round}: {answer}");
    }
    let most = resident_kib();
    drop(clients);
    until(&mut sender, |figures| figures["sessions"] == 1).await;
    most
}

/// Waits until the hub's figures are as wanted.
async fn until(socket: &mut Socket, wanted: impl Fn(&Value) -> bool) {
    let mut figures = Value::Null;
    for _ in 0..1_000 {
        figures = socket.ask("hub:metrics", json!({})).await["payload"].clone();
        if wanted(&figures) {
            return;
        }
        System.sleep(Duration::from_millis(10)).await;
    }
    panic!("{figures}");
}

#[expect(clippy::print_stdout, reason = "the test prints its measurements")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_given_back_after_a_crowd() {
    let mut settings = Settings::default();
    settings.hub.rate = None;
    // Room for the unfinished frames of one crowd, not of two.
    settings.hub_frames = BodyBounds::new(CROWD * 48 * 1024, CROWD * 48 * 1024, CROWD * 48 * 1024);
    let kit = Kit::with(|server| server.settings(settings)).await;
    let before = resident_kib();
    let first = crowd(&kit).await;
    let mut sizes = vec![first];
    for _ in 0..3 {
        sizes.push(crowd(&kit).await);
    }
    println!("{before} KiB before, {sizes:?} KiB with each crowd, {} KiB after", resident_kib());
    // The allocator may keep freed pages for itself, but the next crowd must fit into them.
    let most = sizes.into_iter().max().unwrap();
    let (grown, more) = (first.saturating_sub(before), most.saturating_sub(first));
    assert!(more < grown / 2 + 4 * 1024, "later crowds need {more} KiB more than the first, which needed {grown} KiB");
    let mut socket = Socket::join(kit.server.addr()).await;
    until(&mut socket, |figures| figures["outboxBytes"] == 0 && figures["actors"] == 0 && figures["sessions"] == 1)
        .await;
}
