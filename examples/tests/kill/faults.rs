//! A temporary fault of a bucket under load, caused by a proxy in front of the real server.
//!
//! During the fault, a client gets an error with its cause and advice; no acknowledged request is lost; afterwards,
//! all processes recover without a restart.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use wigwag::{Engine, ErrorKind};
use wigwag_store::{Clock as _, System};

use crate::check::{Scene, Slack, Tidy};
use crate::clients::{self, Word};
use crate::fleet::Told;
use crate::proxy::{Fault, Proxy};
use crate::{load, s3};

const LEASE: Duration = Duration::from_secs(4);
/// Time limit of every wait in these tests.
const PATIENCE: Duration = Duration::from_secs(30);

/// While the store is unavailable, a step may complete without being recorded and then run again:
/// this is not checked.
pub(crate) const SLACK: Slack = Slack { clocks: Duration::from_secs(3), commit: None };

/// The error that a client gets while no request succeeds.
#[derive(Clone, Copy, Debug)]
struct Answer {
    kind: ErrorKind,
    what: &'static str,
    advice: &'static str,
}

/// Workers and clients in this process, each with its own connection.
pub(crate) struct Crew {
    engines: Vec<Engine>,
    clients: Vec<JoinHandle<()>>,
}

impl Crew {
    pub(crate) async fn start(told: &Told) -> Self {
        let mut crew = Self { engines: Vec::new(), clients: Vec::new() };
        for _ in 0..2 {
            crew.engines.push(told.builder().start().await.unwrap());
        }
        for seat in ["a", "b"] {
            let client = told.client().await;
            let manner = told.manner();
            crew.clients.push(tokio::spawn(async move { clients::work(client, &manner, seat).await }));
        }
        crew
    }

    /// Lets the clients finish their current cases.
    pub(crate) async fn dismiss_clients(&mut self, told: &Told) {
        std::fs::write(told.manner().stop(), "").unwrap();
        for client in self.clients.drain(..) {
            let ended = tokio::time::timeout(PATIENCE, client).await;
            ended.unwrap_or_else(|_| panic!("a client does not finish")).unwrap();
        }
        assert_eq!(self.engines.len(), 2, "the engines ran without a restart");
    }
}

/// Counts the clients' answers that match.
fn answers(ledger: &Path, is: impl Fn(&Word) -> bool) -> usize {
    clients::all_notes(ledger).iter().filter(|note| is(&note.word)).count()
}

/// Waits for this many further acknowledgements.
pub(crate) async fn acknowledged(ledger: &Path, more: usize) {
    let (began, before) = (Instant::now(), answers(ledger, Word::is_acknowledged));
    while answers(ledger, Word::is_acknowledged) < before + more {
        assert!(began.elapsed() < PATIENCE, "clients make no progress");
        System.sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) async fn until(what: &str, mut is: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is() {
        assert!(began.elapsed() < PATIENCE, "{what} does not come");
        System.sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) async fn scene(told: &Told, endpoint: &str) -> Scene {
    let direct = Told { endpoint: endpoint.to_owned(), ..told.clone() };
    let store = direct.open().store;
    Scene {
        client: Engine::builder(Arc::clone(&store)).client().await.unwrap(),
        store,
        ledger: told.ledger.clone(),
        kinds: told.manner().kinds,
        slack: SLACK,
        patience: PATIENCE,
        tidy: Tidy::Harmless,
        tidy_within: PATIENCE,
    }
}

/// Spoils some requests, then all, then none.
async fn comes_and_goes(fault: Fault, answer: Option<Answer>) {
    let Some(endpoint) = s3::endpoint("SEAWEEDFS") else { return };
    let folder = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(&endpoint).await;
    let corner = s3::told(folder.path(), proxy.endpoint());
    let told = Told {
        lease: LEASE,
        takes: Duration::from_millis(20),
        turns_max: 64,
        lanes: 3,
        pause: Duration::from_millis(300),
        ..corner
    };
    let mut crew = Crew::start(&told).await;
    let probe = told.client().await;
    let ask = || probe.start(load::SHORT, &()).id("probe");
    probe.start(load::SHORT, &()).id("probe-before").await.unwrap();
    acknowledged(&told.ledger, 10).await;

    proxy.spoil(fault, 0.25);
    let spoilt = proxy.spoilt();
    until("a spoilt request", || proxy.spoilt() >= spoilt + 30).await;

    proxy.spoil(fault, 1.0);
    let began = Instant::now();
    match (answer, ask().await) {
        (None, Ok(_)) => eprintln!("{fault:?}: answered despite the fault after {:?}", began.elapsed()),
        (Some(answer), Err(error)) => {
            eprintln!("{fault:?}: error after {:?}: {error} (hint: {:?})", began.elapsed(), error.advice());
            assert_eq!(error.kind(), answer.kind, "{error:?}");
            assert!(error.to_string().contains(answer.what), "{error}");
            assert!(error.advice().unwrap_or_default().contains(answer.advice), "{:?}", error.advice());
        }
        (expected, given) => panic!("{fault:?}: expected {expected:?}, got {given:?}"),
    }
    until("a spoilt request", || proxy.spoilt() >= spoilt + 60 || fault == Fault::Refuse).await;

    proxy.mend();
    let mended = Instant::now();
    acknowledged(&told.ledger, 30).await;
    let spoilt = proxy.spoilt();
    // Repeat the fault while a start is in progress.
    proxy.spoil(fault, 1.0);
    until("a spoilt request", || proxy.spoilt() >= spoilt + 20 || fault == Fault::Refuse).await;
    proxy.mend();
    acknowledged(&told.ledger, 30).await;
    // The run may have been started or not; a retry gets the same run.
    ask().await.unwrap().wait_for(PATIENCE).await.unwrap();
    eprintln!("{fault:?}: {} requests spoilt; 60 more acknowledged {:?} after", proxy.spoilt(), mended.elapsed());
    crew.dismiss_clients(&told).await;
    let scene = scene(&told, &endpoint).await;
    scene.check(&[]).await;
    check_words(&told.ledger, answer);
}

/// The errors during the fault name its cause, and there are no other errors.
fn check_words(ledger: &Path, answer: Option<Answer>) {
    for note in clients::all_notes(ledger) {
        if let Word::Failed { kind, what, advice } = &note.word {
            let Some(answer) = answer else { panic!("no client should get an error: {note:?}") };
            assert_eq!(*kind, format!("{:?}", answer.kind), "{note:?}");
            assert!(what.contains(answer.what) && advice.contains(answer.advice), "{note:?}");
        }
    }
}

const AWAY: Answer = Answer { kind: ErrorKind::Unavailable, what: "", advice: "" };
const BROKEN: Answer = Answer { what: "the connection to", ..AWAY };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_fault_throttled_with_503() {
    comes_and_goes(
        Fault::Say(503, "SlowDown"),
        Some(Answer { what: "answered 503 SlowDown", advice: "throttling requests", ..AWAY }),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_fault_throttled_with_429() {
    comes_and_goes(
        Fault::Say(429, "TooManyRequests"),
        Some(Answer { what: "answered 429", advice: "throttling requests", ..AWAY }),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_fault_the_server_is_broken() {
    comes_and_goes(Fault::Say(500, "InternalError"), Some(Answer { what: "answered 500 InternalError", ..AWAY })).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_fault_permission_is_lost() {
    let answer = Answer { what: "answered 403 AccessDenied", advice: "check the credentials", ..AWAY };
    comes_and_goes(Fault::Say(403, "AccessDenied"), Some(answer)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_fault_the_bucket_is_gone_and_back() {
    let answer = Answer { what: "bucket not found", advice: "create the bucket", ..AWAY };
    comes_and_goes(Fault::Say(404, "NoSuchBucket"), Some(answer)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_fault_conditional_writes_collide() {
    let answer = Answer { what: "another conditional write was under way", ..AWAY };
    comes_and_goes(Fault::SayToCreates(409, "ConditionalRequestConflict"), Some(answer)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_fault_everything_is_slow() {
    comes_and_goes(Fault::Slow(Duration::from_millis(700)), None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_fault_requests_are_lost() {
    comes_and_goes(Fault::LoseRequest, Some(BROKEN)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_fault_answers_are_lost() {
    comes_and_goes(Fault::LoseAnswer, Some(BROKEN)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_fault_answers_break_off() {
    comes_and_goes(Fault::HalfAnswer, Some(Answer { what: "broke", ..AWAY })).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_fault_nobody_listens() {
    comes_and_goes(
        Fault::Refuse,
        Some(Answer { what: "cannot reach", advice: "check that the server is running", ..AWAY }),
    )
    .await;
}
