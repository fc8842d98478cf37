//! Processes that share a bucket are killed under load, on each S3 server that `cargo xtask test` starts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wigwag::{Client, Engine};
use wigwag_store::{Store, conformance};

use crate::cases::{Case, Kind, case};
use crate::check::{self, Scene, Slack, Tidy};
use crate::fleet::{Fleet, Told};
use crate::ledger::{self, Gauge};
use crate::{how_many, load};

const LEASE: Duration = Duration::from_secs(6);

/// The bucket's clock is known to a second or two; a step repeated after a takeover would be later than that.
pub(crate) const SLACK: Slack = Slack { clocks: Duration::from_secs(3), commit: Some(Duration::from_secs(3)) };

/// A server and the load that it can handle.
#[derive(Clone, Copy, Debug)]
struct Server {
    name: &'static str,
    runs: usize,
    kinds: usize,
}

/// Returns the server's endpoint, or `None` with a message that the test is skipped.
pub(crate) fn endpoint(server: &str) -> Option<String> {
    let endpoint = std::env::var(format!("WIGWAG_TEST_{server}")).ok();
    if endpoint.is_none() {
        conformance::skip(&format!("{server} does not run; `cargo xtask test` starts it"));
    }
    endpoint
}

/// Returns the parameters for an unused prefix of the server's bucket.
pub(crate) fn told(folder: &std::path::Path, endpoint: String) -> Told {
    Told {
        url: format!("s3://wigwag/kill-{:016x}", fastrand::u64(..)),
        endpoint,
        ledger: folder.join("ledger"),
        takes: Duration::from_millis(100),
        lease: LEASE,
        look_max: Duration::from_millis(500),
        turns_max: 3,
        light: true,
        lanes: 2,
        pause: Duration::from_secs(1),
        off: None,
        seat: None,
    }
}

/// State of one test.
struct Bench {
    told: Told,
    store: Arc<dyn Store>,
    client: Client,
    started: Vec<Case>,
    kinds: usize,
    folder: tempfile::TempDir,
}

impl Bench {
    async fn new(server: Server) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let told = told(folder.path(), endpoint(server.name)?);
        let store = told.open().store;
        let client = Engine::builder(Arc::clone(&store)).client().await.unwrap();
        Some(Self { told, store, client, started: Vec::new(), kinds: server.kinds, folder })
    }

    async fn start_one(&mut self) {
        let case = case(&Kind::PLAIN[..self.kinds], "x", self.started.len());
        self.client.start(case.of, &case.input).id(&case.id).await.unwrap();
        self.started.push(case);
    }

    /// Counts for each process the runs whose last entry it wrote.
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
        eprintln!("{} runs have ended; the check waited {:?} for them", self.started.len(), began.elapsed());
        check::nothing_is_left(&*self.store, &self.client, LEASE * 3).await;
        let evidence = check::evidence(&self.client, &ledger::read(&self.told.ledger)).await;
        eprintln!("{:?}, {} kills", evidence.check(&fleet.kills, SLACK), fleet.kills.len());
    }
}

/// Two workers share the load; one is killed within a step, and the other resumes its run.
async fn one_of_two_is_killed(server: Server) {
    let Some(mut bench) = Bench::new(server).await else { return };
    let until = bench.folder.path().join("until");
    let long = bench.client.start(load::LONG, &until).id(load::LONG).await.unwrap();
    let mut fleet = Fleet::start(bench.told.clone(), 2);
    let workers = fleet.processes();
    let owner = ledger::begun(&bench.told.ledger, load::LONG_STEP, &[], LEASE * 3).await.process;
    let began = Instant::now();
    // A worker that owns none of the index's partitions takes part only when the other is full, or in its full scans.
    while bench.started.len() < server.runs || !workers.iter().all(|worker| bench.last_words().contains_key(worker)) {
        assert!(began.elapsed() < LEASE * 4, "only some of {workers:?} take part: {:?}", bench.last_words());
        bench.start_one().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    eprintln!("{}: {} runs, by worker {:?}", server.name, bench.started.len(), bench.last_words());
    let killed = fleet.kill(owner);
    let again = ledger::begun(&bench.told.ledger, load::LONG_STEP, &[owner], LEASE * 4).await;
    let span = Duration::from_micros(again.at.saturating_sub(killed));
    eprintln!("{}: step restarted by the other worker after {span:?}", server.name);
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
async fn s3_seaweedfs_nothing_acknowledged_is_lost_over_50_kills() {
    let mut kills = 0;
    for _ in 0..how_many(1, 4) {
        let Some(killed) = one_round(how_many(54, 130)).await else { return };
        kills += killed;
    }
    eprintln!("{kills} kills in all");
    assert!(kills >= how_many(50, 500));
}

/// Kills workers and clients, waits for all runs to end, and checks the invariants.
async fn one_round(kills: usize) -> Option<usize> {
    let folder = tempfile::tempdir().unwrap();
    let told = Told { lease: Duration::from_secs(4), turns_max: 8, ..told(folder.path(), endpoint("SEAWEEDFS")?) };
    let store = told.open().store;
    let client = Engine::builder(Arc::clone(&store)).client().await.unwrap();
    let gauge = Gauge::start(folder.path());
    let mut fleet = Fleet::start(told.clone(), 2);
    ["a", "b"].iter().for_each(|seat| fleet.add_client(seat));
    let began = Instant::now();
    while fleet.kills.len() < kills {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(100..900))).await;
        // Clients are busy from the start; a worker has to find work first.
        let places = fleet.places(fastrand::u8(..5) < 3);
        let place = places[fastrand::usize(..places.len())];
        if fastrand::bool() {
            fleet.catch_at_work(place).await;
        }
        fleet.replace(place);
    }
    eprintln!("{} kills in {:?}", fleet.kills.len(), began.elapsed());
    fleet.dismiss_clients(told.lease * 6).await;
    let scene = Scene {
        store,
        client,
        ledger: told.ledger.clone(),
        kinds: told.manner().kinds,
        slack: SLACK.and(gauge.longest()),
        // A wake-up whose run was stored more than ten seconds later, because of an outage, is
        // checked after a minute.
        patience: told.lease * 6 + Duration::from_secs(60),
        tidy: Tidy::Harmless,
        tidy_within: told.lease * 3,
    };
    let (counted, answered) = scene.check(&fleet.kills).await;
    eprintln!("all invariants hold after {:?}; longest disk stall {:?}", began.elapsed(), gauge.longest());
    assert!(counted.held > 3, "workers were killed with leases: {counted:?}");
    assert!(answered.cut_off > 3, "clients were killed within requests: {answered:?}");
    assert!(answered.signals > 20 && answered.timeouts > 0 && answered.cancels > 0, "{answered:?}");
    Some(fleet.kills.len())
}
