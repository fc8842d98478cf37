//! One simulated world: workers that die and come back, senders, operators, and a time after which nothing goes wrong.

use std::collections::BTreeMap;
use std::future::{Future, IntoFuture as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use wigwag::{Client, Engine, Settings};
use wigwag_core::Time;
use wigwag_core::mutation::{Mutation, mutate};
use wigwag_store::{Batch, Clock as _, Faults, Faulty, LAYOUT_KEY, Memory, Retry, RetrySettings, Store};

use crate::checks;
use crate::clock::SimClock;
use crate::store::{Network, Process, SimStore};
use crate::workload::{GRAPHS, Ledger, NAMES, equip, program};

/// How long things go wrong.
const TROUBLE: Duration = Duration::from_secs(60);

/// How long the world is given to come to rest after that.
const REST: Duration = Duration::from_secs(900);

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Everything is drawn from it.
    pub seed: u64,
    /// A deliberate bug in the engine.
    pub mutation: Option<Mutation>,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Promises that were broken.
    pub broken: Vec<String>,
    /// Every operation, in order.
    pub trace: String,
    /// The logs of all runs, as they are in the end.
    pub logs: String,
    /// How many runs, acknowledged signals and deaths there were.
    pub counts: Counts,
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Runs.
    pub runs: usize,
    /// Signals that were acknowledged.
    pub signals: usize,
    /// Workers that died.
    pub deaths: usize,
    /// Operations of the store.
    pub operations: usize,
}

/// A signal that somebody tried to send.
#[derive(Clone, Debug)]
pub struct Sent {
    /// To which run.
    pub run: String,
    /// Of which name.
    pub name: String,
    /// By whom.
    pub sender: usize,
    /// The how manieth of that sender to that run.
    pub number: usize,
    /// Under which key.
    pub key: Option<String>,
    /// The last part of its key in the store, if it was acknowledged.
    pub suffix: Option<String>,
    /// When it was first acknowledged.
    pub at: Option<Time>,
}

/// What is known outside of the system.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Runs whose start was acknowledged, with their type and input.
    pub started: BTreeMap<String, (String, Value)>,
    /// Signals.
    pub sent: Vec<Sent>,
    /// What was seen to be wrong while it happened.
    pub wrong: Vec<String>,
    /// Workers that died.
    pub deaths: usize,
}

/// Simulates one world.
#[must_use]
pub fn simulate(options: Options) -> Outcome {
    // The engine draws from the thread's own generator.
    fastrand::seed(options.seed);
    mutate(options.mutation);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime of one thread").block_on(async move {
        let world = World::new(options).await;
        world.run().await
    })
}

/// One simulated world.
#[derive(Clone)]
struct World {
    options: Options,
    clock: SimClock,
    memory: Memory,
    network: Arc<Network>,
    ledger: Ledger,
    known: Arc<Mutex<Known>>,
    faulty: Arc<Mutex<Vec<Faulty<SimStore>>>>,
}

impl World {
    async fn new(options: Options) -> Self {
        let clock = SimClock::new();
        let as_bucket = options.seed.is_multiple_of(2);
        let memory =
            if as_bucket { Memory::bucket_with_clock(Arc::new(clock)) } else { Memory::with_clock(Arc::new(clock)) };
        let layout = format!("{{\"layout\":1,\"shards\":{}}}", if as_bucket { 2 } else { 1 });
        memory.write(Batch::new().put(LAYOUT_KEY, layout)).await.expect("memory takes it");
        let mut chance = fastrand::Rng::with_seed(options.seed ^ 0x5eed);
        let network = Network::new(options.seed, chance.f64() * 0.006, chance.u64(100..20_000));
        let ledger = Ledger::new(memory.clone());
        Self { options, clock, memory, network, ledger, known: Arc::default(), faulty: Arc::default() }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chance(&self, salt: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt)
    }

    /// The store as a process sees it, with all that can go wrong on the way.
    fn store(&self, process: &Arc<Process>, salt: u64) -> Arc<dyn Store> {
        let mut chance = self.chance(salt);
        let faults = Faults {
            refused: chance.f64() * 0.04,
            answer_lost: chance.f64() * 0.04,
            request_lost: chance.f64() * 0.02,
            late: if self.memory.traits().atomic { 0.0 } else { chance.f64() * 0.02 },
            slow: chance.f64() * 0.08,
            slow_for: Duration::from_millis(chance.u64(100..8_000)),
        };
        // On one machine all share its clock; elsewhere each process knows the store's time by so much.
        let skew = if self.memory.traits().atomic { 0 } else { chance.i64(-1_000_000..=1_000_000) };
        let seat = SimStore::new(self.memory.clone(), Arc::clone(&self.network), Arc::clone(process), self.clock, skew);
        let faulty = Faulty::with_clock(seat, faults, chance.u64(..), Arc::new(self.clock));
        if self.clock.elapsed() >= TROUBLE {
            faulty.calm_down();
        }
        self.faulty.lock().unwrap_or_else(PoisonError::into_inner).push(faulty.clone());
        Arc::new(Retry::with_clock(faulty, RetrySettings::default(), Arc::new(self.clock)))
    }

    async fn client(&self, name: &str, salt: u64) -> Client {
        let process = Process::immortal(name);
        loop {
            let store = self.store(&process, salt);
            if let Ok(client) = Engine::builder(store).clock(Arc::new(self.clock)).client().await {
                return client;
            }
        }
    }

    async fn calm_client(&self) -> Client {
        let store = Arc::new(self.memory.clone());
        Engine::builder(store).clock(Arc::new(self.clock)).client().await.expect("nothing goes wrong in memory")
    }

    async fn run(self) -> Outcome {
        let mut tasks = Vec::new();
        for number in 0..self.chance(1).usize(1..4) {
            tasks.push(tokio::spawn(self.clone().keep_worker(number)));
        }
        let plans = self.plan();
        for (number, (id, of, input)) in plans.into_iter().enumerate() {
            tasks.push(tokio::spawn(self.clone().attend(number, id, of, input)));
        }
        self.clock.sleep(TROUBLE).await;
        self.network.calm_down();
        for faulty in self.faulty.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            faulty.calm_down();
        }
        let calm = self.calm_client().await;
        self.clock.sleep(REST).await;
        let mut known = self.known().clone();
        known.wrong.append(&mut self.ledger.noted().wrong);
        let broken = checks::all(&self.memory, &calm, &known).await;
        for task in tasks {
            task.abort();
        }
        let trace = self.network.trace();
        let counts = Counts {
            runs: known.started.len(),
            signals: known.sent.iter().filter(|sent| sent.suffix.is_some()).count(),
            deaths: known.deaths,
            operations: trace.lines().count(),
        };
        let logs = checks::logs(&self.memory).await;
        Outcome { broken, trace, logs, counts }
    }

    fn plan(&self) -> Vec<(String, String, Value)> {
        let mut chance = self.chance(2);
        let count = chance.usize(2..7);
        let plan = |number: usize| match chance.u32(..3) {
            0 => (format!("g{number}"), GRAPHS[chance.usize(..GRAPHS.len())].to_owned(), json!({})),
            _ => (format!("s{number}"), "script".to_owned(), json!(program(&mut chance, 0))),
        };
        (0..count).map(plan).collect()
    }

    /// A worker's machine: whenever the worker dies, another is started after a while.
    async fn keep_worker(self, number: usize) {
        let mut chance = self.chance(100 + number as u64);
        for generation in 0_u64.. {
            let calm = self.clock.elapsed() >= TROUBLE;
            let name = format!("w{number}.{generation}");
            let process = if calm { Process::immortal(name) } else { Process::mortal(name) };
            let store = self.store(&process, 1_000 + number as u64 * 100 + generation);
            let mut settings = Settings::default();
            settings.lease = Duration::from_secs(8);
            // It would repair what must not break.
            settings.sweep_every = None;
            let builder = Engine::builder(store).settings(settings).clock(Arc::new(self.clock));
            let starting = equip(builder, &self.ledger, self.options.seed).start();
            let engine = self.unless_dead(&process, starting).await.and_then(Result::ok);
            while engine.is_some() && !process.is_dead() {
                self.clock.sleep(Duration::from_millis(100)).await;
                if self.clock.elapsed() < TROUBLE {
                    match chance.u32(..2_000) {
                        0..6 => process.kill(),
                        // Its machine was suspended: it wakes after its lease.
                        6..14 => process.stall(self.clock.elapsed() + Duration::from_secs(chance.u64(1..20))),
                        _ => {}
                    }
                }
            }
            if process.is_dead() {
                self.known().deaths += 1;
            }
            drop(engine);
            self.clock.sleep(Duration::from_millis(chance.u64(50..3_000))).await;
        }
    }

    async fn unless_dead<T>(&self, process: &Process, what: impl Future<Output = T>) -> Option<T> {
        let death = async {
            while !process.is_dead() {
                self.clock.sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            biased;
            done = what => Some(done),
            () = death => None,
        }
    }

    /// Starts a run, and lets senders and operators loose on it.
    async fn attend(self, number: usize, id: String, of: String, input: Value) {
        let mut chance = self.chance(200 + number as u64);
        self.clock.sleep(Duration::from_millis(chance.u64(..15_000))).await;
        let client = self.client(&format!("c{number}"), 2_000 + number as u64).await;
        while client.start(&of, &input).id(&id).await.is_err() {
            self.clock.sleep(Duration::from_millis(300)).await;
        }
        let first = self.memory.get(&format!("workflow/{id}/log/0000000001.json")).await;
        if !matches!(first, Ok(Some(_))) {
            self.known().wrong.push(format!("the start of `{id}` was acknowledged before it was durable"));
        }
        self.known().started.insert(id.clone(), (of, input));
        let mut tasks = Vec::new();
        for sender in 0..chance.usize(1..5) {
            let client = self.client(&format!("c{number}.{sender}"), 3_000 + number as u64 * 10 + sender as u64).await;
            tasks.push(tokio::spawn(self.clone().send(client, id.clone(), sender, number as u64)));
        }
        tasks.push(tokio::spawn(self.clone().operate(client, id.clone(), number as u64)));
        for task in tasks {
            let _ = task.await;
        }
    }

    /// One sender: each signal is sent after the one before was acknowledged or given up.
    async fn send(self, client: Client, run: String, sender: usize, salt: u64) {
        let mut chance = self.chance(400 + salt * 10 + sender as u64);
        for number in 0..chance.usize(1..8) {
            self.clock.sleep(Duration::from_millis(chance.u64(..5_000))).await;
            // Most are of one name, so that they meet.
            let name = if chance.u32(..3) > 0 { NAMES[0] } else { NAMES[chance.usize(..NAMES.len())] };
            let payload = json!({"sender": sender, "number": number});
            let key = chance.bool().then(|| format!("k{sender}-{number}"));
            let mut repeats = if key.is_some() { chance.u32(..3) } else { 0 };
            let mut sent =
                Sent { run: run.clone(), name: name.into(), sender, number, key: key.clone(), suffix: None, at: None };
            loop {
                let call = client.signal(&run, name, &payload).by(format!("sender-{sender}"));
                let call = match &key {
                    Some(key) => call.key(key),
                    None => call,
                };
                let answer = call.into_future().await;
                let refused = answer.as_ref().is_err_and(|error| error.kind() == wigwag::ErrorKind::NotRunning);
                if let Ok(receipt) = answer {
                    self.note_receipt(&mut sent, &receipt.suffix).await;
                }
                // Without a key nobody knows whether it arrived; with one it is repeated until it has.
                let again = key.is_some() && (sent.suffix.is_none() || repeats > 0) && !refused;
                if !again {
                    break;
                }
                repeats = repeats.saturating_sub(1);
                self.clock.sleep(Duration::from_millis(chance.u64(..7_000))).await;
            }
            self.known().sent.push(sent);
        }
    }

    async fn note_receipt(&self, sent: &mut Sent, suffix: &str) {
        let place = format!("workflow/{}/signals/{}/{suffix}.json", sent.run, sent.name);
        if !matches!(self.memory.get(&place).await, Ok(Some(_))) {
            self.known().wrong.push(format!("`{place}` was acknowledged before it was durable"));
        }
        match &sent.suffix {
            Some(first) if first != suffix => {
                self.known().wrong.push(format!("one key gave two signals: `{first}` and `{suffix}`"));
            }
            Some(_) => {}
            None => {
                sent.suffix = Some(suffix.to_owned());
                sent.at = self.memory.now().await.ok().map(|now| Time::from_micros(now.at.micros()));
            }
        }
    }

    /// Somebody who cancels, pauses and resumes.
    async fn operate(self, client: Client, id: String, salt: u64) {
        let mut chance = self.chance(600 + salt);
        let Ok(run) = client.run(&id) else { return };
        self.clock.sleep(Duration::from_millis(chance.u64(..30_000))).await;
        match chance.u32(..6) {
            0 => _ = run.cancel().reason("somebody did").await,
            1 | 2 => {
                let _ = run.pause().await;
                self.clock.sleep(Duration::from_millis(chance.u64(..20_000))).await;
                for _ in 0..50 {
                    match run.resume().await {
                        Ok(_) => break,
                        // It may not have been paused yet.
                        Err(_) => self.clock.sleep(Duration::from_millis(1_500)).await,
                    }
                }
            }
            _ => {}
        }
    }
}
