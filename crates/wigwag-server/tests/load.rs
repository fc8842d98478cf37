//! A hostile load over HTTP, at small size: all attacks at once, and the server answers `GET /v1/health` throughout.
//!
//! A separate test binary, because it measures latency and memory.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

#[expect(dead_code, reason = "the other tests use the rest")]
#[path = "it/kit.rs"]
mod kit;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use wigwag::store::{Clock as _, System};
use wigwag_server::{Auth, BodyBounds, S3Keys, Scope, Settings};

use crate::kit::Kit;

const TOKEN: &str = "a-token-of-the-tests-0123456789";
const SECRET: &str = "a secret of the tests, long enough";

/// Duration of the attack.
const SPAN: Duration = Duration::from_secs(5);

/// Latency limit of a health check, on top of the machine's own scheduling delay.
const ANSWER_MAX: Duration = Duration::from_millis(100);

/// Body budget of the server; the attackers send a multiple of it.
const BODIES_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Limit of memory growth during the attack: both body budgets and the connections' buffers.
const GROWTH_KIB_MAX: u64 = 96 * 1024;

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
            let reading = tokio::spawn(async move {
                let mut buffer = vec![0; 16 * 1024];
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

fn attacks() -> Vec<(&'static str, usize, Attack)> {
    let large = vec![b' '; 256 * 1024];
    let attack = |last, first: String, then: &[u8], pause| {
        let pause = Duration::from_millis(pause);
        Attack { address: [127, 0, 0, last], first: first.into_bytes(), then: then.to_vec(), pause }
    };
    let wrong = "GET /v1/runs HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer a-wrong-token-0123456789\r\n\r\n";
    let authorized = format!("{}authorization: Bearer {TOKEN}\r\n\r\n", head("POST", "/v1/runs", 1_000_000));
    vec![
        ("link posts without a link", 30, attack(10, head("POST", "/v1/links/a.b", 1_000_000) + "\r\n", &large, 5)),
        ("bodies that stay away", 30, attack(11, authorized.clone(), b" ", 50)),
        ("bodies as large as may be", 30, attack(12, authorized, &large, 20)),
        ("objects that drip", 30, attack(13, head("PUT", "/s3/wigwag/a", 60_000_000) + "\r\n", b" ", 50)),
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

/// Measures the scheduling delay of a plain thread, to tell a busy machine from a slow server.
fn watch_machine(stop: &Arc<AtomicBool>) -> Arc<AtomicU64> {
    let (worst, stop) = (Arc::new(AtomicU64::new(0)), Arc::clone(stop));
    let seen = Arc::clone(&worst);
    std::thread::spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            let began = System.boot();
            std::thread::sleep(Duration::from_millis(5));
            let late = (System.boot() - began).saturating_sub(Duration::from_millis(5));
            seen.fetch_max(u64::try_from(late.as_micros()).unwrap(), Ordering::Relaxed);
        }
    });
    worst
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
    settings.header_timeout = Duration::from_secs(1);
    settings.body_timeout = Duration::from_secs(1);
    settings.address_connections_max = 40;
    settings
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_a_hostile_load_the_server_answers_and_its_memory_is_bounded() {
    let auth = Auth::new().token("ada", TOKEN, [Scope::Admin]).unwrap();
    let keys = S3Keys::new().full("worker", SECRET).unwrap();
    let kit = Kit::with(|server| server.auth(auth).s3(keys).settings(settings())).await;
    let server = kit.server.addr();
    health(server).await;
    let before = resident_kib();
    let stop = Arc::new(AtomicBool::new(false));
    let machine = watch_machine(&stop);
    // Attackers run on a separate thread and runtime.
    let attackers = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let mut all = JoinSet::new();
                for (_, count, attack) in attacks() {
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
        machine.store(0, Ordering::Relaxed);
        let took = health(server).await;
        let excuse = Duration::from_micros(machine.load(Ordering::Relaxed));
        // A request is scheduled several times, on both sides.
        if took > ANSWER_MAX + 8 * excuse {
            late.push((took, excuse));
        }
        answers += 1;
        most_kib = most_kib.max(resident_kib());
        System.sleep(Duration::from_millis(10)).await;
    }
    stop.store(true, Ordering::Relaxed);
    attackers.join().unwrap();
    assert!(answers >= 20, "only {answers} answers in {SPAN:?}");
    assert!(late.is_empty(), "{} of {answers} answers took longer than {ANSWER_MAX:?}: {late:?}", late.len());
    let growth = most_kib.saturating_sub(before);
    assert!(growth < GROWTH_KIB_MAX, "the process grew by {growth} KiB");
    // Authenticated requests are served right after the attack.
    let runs = kit.request(reqwest::Method::GET, "/v1/runs").bearer_auth(TOKEN).send().await.unwrap();
    assert_eq!(runs.status().as_u16(), 200);
}
