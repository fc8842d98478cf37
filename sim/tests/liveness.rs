//! How soon a parked run consumes a signal on a bucket, in operations that follow each other: every operation takes one unit
//! of simulated time, so that time is depth.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use wigwag::{Client, Ctx, Engine, Settings};
use wigwag_sim::clock::SimClock;
use wigwag_sim::notify::Exchange;
use wigwag_sim::store::{Network, NetworkSettings, Process, SimStore};
use wigwag_store::{Announced, Batch, Clock as _, LAYOUT_KEY, Memory, Store as _};

/// How long an operation takes.
const UNIT: Duration = Duration::from_millis(15);

/// Operations in a row from the call to the entry that consumes the signal.
const DEPTH: u32 = 8;

/// The longest that a notification takes in the simulation.
const NOTIFIED_WITHIN: Duration = Duration::from_millis(40);

/// Some workers and a client of one bucket.
struct Fleet {
    memory: Memory,
    clock: SimClock,
    network: Arc<Network>,
    exchange: Arc<Exchange>,
    chance: fastrand::Rng,
}

impl Fleet {
    async fn new(seed: u64, lost: u8) -> Self {
        let clock = SimClock::new();
        let memory = Memory::bucket_with_clock(Arc::new(clock.clone()));
        memory.write(Batch::new().put(LAYOUT_KEY, "{\"layout\":1,\"shards\":2}")).await.unwrap();
        let latency = u64::try_from(UNIT.as_micros()).unwrap();
        let network = Network::new(
            seed,
            NetworkSettings { deaths: 0.0, latency, put_latency: 0, steady: true, page: 1_000, traced: false },
        );
        let exchange = Exchange::new(seed, clock.clone(), lost);
        Self { memory, clock, network, exchange, chance: fastrand::Rng::with_seed(seed) }
    }

    fn builder(&self, name: &str) -> wigwag::Builder {
        let process = Process::immortal(name);
        let store =
            SimStore::new(self.memory.clone(), Arc::clone(&self.network), Arc::clone(&process), self.clock.clone());
        let notices = self.exchange.join(&process);
        let store = Announced::new(store, notices.clone());
        Engine::builder(Arc::new(store)).notices(notices).clock(Arc::new(self.clock.clone())).settings(settings())
    }

    async fn worker(&self, name: &str) -> Engine {
        let waits = |ctx: Ctx, (): ()| async move { ctx.wait::<Value>("go").await };
        self.builder(name).function("waits", 1, waits).start().await.unwrap()
    }

    async fn pass(&self, span: Duration) {
        self.clock.sleep(span).await;
    }

    /// How long it takes until a parked run has consumed a signal.
    async fn consumed_after(&mut self, client: &Client, id: &str) -> Duration {
        let run = client.start("waits", &()).id(id).await.unwrap();
        let log =
            |seq: u64| wigwag_core::Key::Entry { run: format!("workflow/{id}").parse().unwrap(), seq }.to_string();
        let mut seq = 1;
        while run.waiting().await.unwrap().is_empty() {
            self.pass(UNIT).await;
        }
        // Parked, with all of its writes done; and at any moment between two polls.
        let moment = Duration::from_millis(self.chance.u64(..40_000));
        self.pass(Duration::from_secs(20) + moment).await;
        while self.memory.get(&log(seq)).await.unwrap().is_some() {
            seq += 1;
        }
        let begun = self.clock.elapsed();
        let sending = tokio::spawn(async move { run.signal("go", &json!(1)).await.unwrap() });
        while self.memory.get(&log(seq)).await.unwrap().is_none() {
            self.pass(Duration::from_millis(1)).await;
        }
        let took = self.clock.elapsed() - begun;
        sending.await.unwrap();
        took
    }
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.lease = Duration::from_secs(60);
    settings.sweep_every = None;
    settings
}

async fn slowest(seed: u64, lost: u8) -> Duration {
    let mut fleet = Fleet::new(seed, lost).await;
    let mut workers = Vec::new();
    for number in 0..fleet.chance.usize(1..4) {
        workers.push(fleet.worker(&format!("w{number}")).await);
    }
    let client = fleet.builder("client").client().await.unwrap();
    let mut slowest = Duration::ZERO;
    for number in 0..4 {
        slowest = slowest.max(fleet.consumed_after(&client, &format!("r-{number}")).await);
    }
    slowest
}

fn in_virtual_time<T>(doing: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(doing)
}

#[test]
fn a_signal_is_consumed_within_8_operations_in_a_row_when_notifications_arrive() {
    for seed in 0..40 {
        let took = in_virtual_time(slowest(seed, 0));
        // A step of the test's own clock beside it.
        let bound = UNIT * DEPTH + NOTIFIED_WITHIN + Duration::from_millis(2);
        assert!(took <= bound, "seed {seed}: {took:?}, want at most {bound:?}");
        assert!(took >= UNIT * DEPTH, "seed {seed}: {took:?} is less than it can be");
    }
}

#[test]
fn a_signal_is_consumed_within_the_poll_interval_when_all_notifications_are_lost() {
    // Workers that believe they are notified poll four times more rarely than others.
    let poll = settings().look_max * 4;
    for seed in 0..40 {
        let took = in_virtual_time(slowest(seed, 100));
        let bound = poll + UNIT * (DEPTH + 2);
        assert!(took <= bound, "seed {seed}: {took:?}, want at most {bound:?}");
    }
}
