//! Worker processes that share a bucket are killed under load: on each S3 server that `cargo xtask test` starts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::check::{self, Slack};
use crate::fleet::{self, Fleet, Told};
use crate::{ledger, load};
use wigwag::{Client, Engine, Settings};
use wigwag_store::{Store, conformance};

const LEASE: Duration = Duration::from_secs(6);

/// The bucket's time is known to a second or two; a step that ran again after a takeover would be later than that.
const SLACK: Slack = Slack { clocks: Duration::from_secs(3), commit: Duration::from_secs(3) };

/// A server and how much it can bear.
#[derive(Clone, Copy, Debug)]
struct Server {
    name: &'static str,
    runs: usize,
    kinds: usize,
}

/// What a test has at hand.
struct Bench {
    told: Told,
    store: Arc<dyn Store>,
    client: Client,
    started: Vec<load::Started>,
    kinds: usize,
    folder: tempfile::TempDir,
}

impl Bench {
    /// A corner of the server's bucket; or a loud word that the test is skipped.
    async fn new(server: Server) -> Option<Self> {
        let Ok(endpoint) = std::env::var(format!("WIGWAG_TEST_{}", server.name)) else {
            conformance::skip(&format!("{} does not run; `cargo xtask test` starts it", server.name));
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let mut settings = Settings::default();
        (settings.lease, settings.look_max, settings.turns_max) = (LEASE, Duration::from_millis(500), 3);
        let url = format!("s3://wigwag/kill-{:016x}", fastrand::u64(..));
        let ledger = fleet::ledger_folder(folder.path());
        let told = Told { url, endpoint, ledger, takes: Duration::from_millis(100), settings };
        let store = told.open().store;
        let client = Engine::builder(Arc::clone(&store)).client().await.unwrap();
        Some(Self { told, store, client, started: Vec::new(), kinds: server.kinds, folder })
    }

    async fn start_one(&mut self) {
        self.started.push(load::start(&self.client, self.started.len(), self.kinds).await);
    }

    /// In how many runs each process had the last word.
    fn last_words(&self) -> BTreeMap<u32, usize> {
        let mut last = BTreeMap::new();
        for line in ledger::read(&self.told.ledger) {
            last.insert(line.key.split(':').next().unwrap().to_owned(), line.process);
        }
        let mut words = BTreeMap::new();
        for process in last.into_values() {
            *words.entry(process).or_default() += 1;
        }
        words
    }

    async fn check(&self, fleet: &Fleet) {
        let began = Instant::now();
        check::ends(&*self.store, &self.client, &self.started, LEASE * 6).await;
        eprintln!("{} runs ended {:?} after the last kill or later", self.started.len(), began.elapsed());
        check::nothing_is_left(&*self.store, &self.client, LEASE * 3).await;
        let evidence = check::evidence(&self.client, &ledger::read(&self.told.ledger)).await;
        eprintln!("{:?}, {} kills", evidence.check(&fleet.kills, SLACK), fleet.kills.len());
    }
}

/// Two workers share the load; one is killed within a step, and the other goes on with it.
async fn one_of_two_is_killed(server: Server) {
    let Some(mut bench) = Bench::new(server).await else { return };
    let until = bench.folder.path().join("until");
    let long = bench.client.start(load::LONG, &until).id(load::LONG).await.unwrap();
    let mut fleet = Fleet::start(bench.told.clone(), 2);
    let workers = fleet.processes();
    let owner = ledger::begun(&bench.told.ledger, load::LONG_STEP, &[], LEASE * 3).await.process;
    let began = Instant::now();
    // One that lists none of the index's parts as its own takes part only when the other is full, or looks all over.
    while bench.started.len() < server.runs || !workers.iter().all(|worker| bench.last_words().contains_key(worker)) {
        assert!(began.elapsed() < LEASE * 4, "only some of {workers:?} take part: {:?}", bench.last_words());
        bench.start_one().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    eprintln!("{}: {} runs, by worker {:?}", server.name, bench.started.len(), bench.last_words());
    let killed = fleet.kill(owner);
    let again = ledger::begun(&bench.told.ledger, load::LONG_STEP, &[owner], LEASE * 4).await;
    let span = Duration::from_micros(again.at.saturating_sub(killed));
    eprintln!("{}: begun again by the other after {span:?}", server.name);
    std::fs::write(&until, "").unwrap();
    long.wait_for(LEASE * 4).await.unwrap();
    bench.check(&fleet).await;
    assert!(span <= LEASE * 2 + Duration::from_secs(3), "two leases of {LEASE:?} and some looking: {span:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_seaweedfs_one_of_two_workers_is_killed() {
    one_of_two_is_killed(Server { name: "SEAWEEDFS", runs: 15, kinds: 5 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_ministack_one_of_two_workers_is_killed() {
    one_of_two_is_killed(Server { name: "MINISTACK", runs: 10, kinds: 5 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_moto_one_of_two_workers_is_killed() {
    one_of_two_is_killed(Server { name: "MOTO", runs: 3, kinds: 3 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s3_seaweedfs_no_run_is_lost_over_10_kills() {
    let Some(mut bench) = Bench::new(Server { name: "SEAWEEDFS", runs: 0, kinds: 5 }).await else { return };
    bench.start_one().await;
    let mut fleet = Fleet::start(bench.told.clone(), 2);
    for _ in 0..10 {
        for _ in 0..4 {
            bench.start_one().await;
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(200..1_200))).await;
        fleet.replace(fastrand::usize(..2));
    }
    bench.check(&fleet).await;
}
