//! A bucket that misbehaves under load, and then no more: a proxy before the real server spoils requests.
//!
//! While it lasts a client is told what is wrong and what to do; nothing acknowledged is lost; and when it is over all
//! goes on by itself, without anything being started again.

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
/// How long anything is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Steps may be done and not recorded while the store is away, and are then done again: that is not judged.
pub(crate) const SLACK: Slack = Slack { clocks: Duration::from_secs(3), commit: None };

/// What a client is told while nothing gets through.
#[derive(Clone, Copy, Debug)]
struct Answer {
    kind: ErrorKind,
    what: &'static str,
    advice: &'static str,
}

/// Workers and clients in this process, each with a connection of its own.
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

    /// Lets the clients finish what they have begun.
    pub(crate) async fn dismiss_clients(&mut self, told: &Told) {
        std::fs::write(told.manner().stop(), "").unwrap();
        for client in self.clients.drain(..) {
            let ended = tokio::time::timeout(PATIENCE, client).await;
            ended.unwrap_or_else(|_| panic!("a client does not come to its end")).unwrap();
        }
        assert_eq!(self.engines.len(), 2, "they have worked all the while");
    }
}

/// How many answers clients were given of which this is so.
fn answers(ledger: &Path, is: impl Fn(&Word) -> bool) -> usize {
    clients::all_notes(ledger).iter().filter(|note| is(&note.word)).count()
}

/// Waits for so many more acknowledgements than there are.
pub(crate) async fn acknowledged(ledger: &Path, more: usize) {
    let (began, before) = (Instant::now(), answers(ledger, Word::is_acknowledged));
    while answers(ledger, Word::is_acknowledged) < before + more {
        assert!(began.elapsed() < PATIENCE, "clients do not get on");
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

/// Some of the requests are spoilt, then all, then none.
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
        (None, Ok(_)) => eprintln!("{fault:?}: answered all the same after {:?}", began.elapsed()),
        (Some(answer), Err(error)) => {
            eprintln!("{fault:?}: told after {:?}: {error} (hint: {:?})", began.elapsed(), error.advice());
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
    // And once more, at a bad moment.
    proxy.spoil(fault, 1.0);
    until("a spoilt request", || proxy.spoilt() >= spoilt + 20 || fault == Fault::Refuse).await;
    proxy.mend();
    acknowledged(&told.ledger, 30).await;
    // It may have been started, or not: asked again it is the same run.
    ask().await.unwrap().wait_for(PATIENCE).await.unwrap();
    eprintln!("{fault:?}: {} requests spoilt; 60 more acknowledged {:?} after", proxy.spoilt(), mended.elapsed());
    crew.dismiss_clients(&told).await;
    let scene = scene(&told, &endpoint).await;
    scene.check(&[]).await;
    check_words(&told.ledger, answer);
}

/// What the clients were told while it lasted names what is wrong, and nothing else went wrong.
fn check_words(ledger: &Path, answer: Option<Answer>) {
    for note in clients::all_notes(ledger) {
        if let Word::Failed { kind, what, advice } = &note.word {
            let Some(answer) = answer else { panic!("nobody should notice: {note:?}") };
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
        Some(Answer { what: "answered 503 SlowDown", advice: "fewer requests", ..AWAY }),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_fault_throttled_with_429() {
    comes_and_goes(
        Fault::Say(429, "TooManyRequests"),
        Some(Answer { what: "answered 429", advice: "fewer requests", ..AWAY }),
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
    let answer = Answer { kind: ErrorKind::Invalid, what: "there is no bucket", advice: "make the bucket" };
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
    comes_and_goes(Fault::Refuse, Some(Answer { what: "cannot reach", advice: "check that the server runs", ..AWAY }))
        .await;
}
