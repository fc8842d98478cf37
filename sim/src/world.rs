//! One simulated world: workers that die and restart, senders, operators, and a faulty phase followed by a calm one.

mod finale;
mod operators;
mod senders;
mod style;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use wigwag::{Builder, Client, Engine, ErrorKind, LinkSecret, Settings};
use wigwag_core::audit::{Breach, Promise};
use wigwag_core::limits::{self, Limits};
use wigwag_core::mutation::mutate;
use wigwag_core::{RunRef, Time};
use wigwag_store::{
    Announced, Batch, Clock as _, Faults, Faulty, LAYOUT_KEY, Memory, Notices, Retry, RetrySettings, Store,
};

use crate::bounds::Bounds;
use crate::checks;
use crate::clock::SimClock;
use crate::code::{EVOLVING, FORM, GRAPHS, PATCHED, REWRITTEN};
use crate::ledger::Ledger;
use crate::notify::{Exchange, Notification};
use crate::options::{Ingredient, Options, RUNS_MAX};
use crate::program::{busy_program, program, wide_program};
use crate::store::{Bounded, Network, NetworkSettings, Process, SimStore};
use crate::warnings::Warnings;
use style::Style;

/// Length of the calm phase, in which every run ends or parks.
const REST: Duration = Duration::from_secs(700);

/// Lease of the workers.
const LEASE: Duration = Duration::from_secs(8);

/// Outcome of a world.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Guarantees that the world violated.
    pub broken: Vec<Breach>,
    /// Every operation, in order, if the options ask for it.
    pub trace: String,
    /// The logs of all runs in the end, if the options ask for a trace.
    pub logs: String,
    /// Counts of events.
    pub counts: Counts,
}

macro_rules! counts {
    ($($(#[doc = $doc:literal])* $name:ident $text:literal,)*) => {
        /// Counts of events.
        #[derive(Clone, Copy, Debug, Default)]
        pub struct Counts {
            $($(#[doc = $doc])* pub $name: usize,)*
        }

        impl AddAssign for Counts {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }

        impl fmt::Display for Counts {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let all = [$((self.$name, $text),)*].map(|(count, text)| format!("{count} {text}"));
                f.write_str(&all.join(", "))
            }
        }
    };
}

counts! {
    /// Worlds whose limits were drawn.
    drawn "worlds with drawn limits",
    /// Runs whose start was acknowledged.
    runs "runs",
    /// Signals that were acknowledged.
    signals "signals",
    /// Operations on the store.
    operations "operations",
    /// Workers that died or left.
    deaths "deaths",
    /// Control objects that were acknowledged.
    controls "controls",
    /// Runs that were restarted.
    restarts "restarts",
    /// Runs that were migrated to changed code.
    migrations "migrations",
    /// Runs that stay paused because of a failure.
    paused "paused runs",
    /// Runs that retention removed.
    removed "removed runs",
    /// Times that the clock was set.
    clock_steps "clock steps",
    /// Index objects and wake-ups that were deleted on purpose.
    damaged "damaged objects",
}

/// A signal that a sender tried to send.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The receiving run.
    pub run: String,
    /// The signal's name.
    pub name: String,
    /// Number of the sender.
    pub sender: usize,
    /// Number of the signal among those of its sender.
    pub number: usize,
    /// Whether only an open wait may consume it.
    pub strict: bool,
    /// Whether it is addressed to one step.
    pub addressed: bool,
    /// Whether its payload matches the schema of waits that have one.
    pub fits: bool,
    /// Idempotency key of the signal.
    pub key: Option<String>,
    /// The last part of its key in the store, if it was acknowledged.
    pub suffix: Option<String>,
    /// The store's time when it was first acknowledged.
    pub at: Option<Time>,
    /// Simulated time when it was first sent.
    pub began: Duration,
    /// Simulated time when it was first acknowledged.
    pub acknowledged: Option<Duration>,
}

/// Knowledge about a world that is kept outside the engine.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Runs whose start was acknowledged, with their type and input.
    pub started: BTreeMap<String, (String, Value)>,
    /// Signals of all senders.
    pub sent: Vec<Sent>,
    /// Control objects that were acknowledged, by their ids, with the simulated time.
    pub controls: Vec<(RunRef, String, Duration)>,
    /// Violations that were observed during the simulation.
    pub wrong: Vec<Breach>,
    /// Number of starts of code, by run and step, in a world without faults.
    pub begun: BTreeMap<(String, String), u32>,
    /// Number of calls of `on_receive`, by run, step and signal, in a world without faults.
    pub received: BTreeMap<(String, String, String), u32>,
    /// Runs that an operator paused or restarted.
    pub touched: BTreeSet<String>,
    /// Simulated time of each entry.
    pub entries: BTreeMap<(RunRef, u64), Duration>,
    /// Runs that retention removed.
    pub removed: BTreeSet<RunRef>,
    /// The clocks of some senders are off by more than the uncertainty that they declare.
    pub wild_clocks: bool,
    /// Counts of events.
    pub counts: Counts,
}

/// Simulates one world.
#[must_use]
pub fn simulate(options: &Options) -> Outcome {
    // The engine uses the thread's random generator.
    fastrand::seed(options.seed);
    mutate(options.mutation);
    let bounds = Bounds::of(options);
    limits::set(bounds.limits);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let options = options.clone();
    let outcome = runtime.expect("a runtime of one thread").block_on(async move {
        let world = World::new(options, bounds).await;
        let warnings = world.warnings.subscriber(&world.clock);
        let _collecting = tracing::subscriber::set_default(warnings);
        world.run().await
    });
    mutate(None);
    limits::set(Limits::REAL);
    outcome
}

/// A worker's process and its client.
type Worker = (Arc<Process>, Client);

/// One simulated world.
#[derive(Clone)]
struct World {
    options: Arc<Options>,
    bounds: Bounds,
    style: Style,
    clock: SimClock,
    memory: Memory,
    network: Arc<Network>,
    notification: Notification,
    exchange: Arc<Exchange>,
    ledger: Ledger,
    warnings: Warnings,
    known: Arc<Mutex<Known>>,
    faulty: Arc<Mutex<Vec<Faulty<SimStore>>>>,
    /// The workers' clients: signals sent through them may be delivered inline.
    workers: Arc<Mutex<Vec<Worker>>>,
}

/// A run to start.
#[derive(Clone, Debug)]
struct Plan {
    id: String,
    of: String,
    input: Value,
}

impl World {
    async fn new(options: Options, bounds: Bounds) -> Self {
        let clock = SimClock::new();
        let as_bucket = options.seed.is_multiple_of(2);
        let wall = Arc::new(clock.clone());
        let memory = if as_bucket { Memory::bucket_with_clock(wall) } else { Memory::with_clock(wall) };
        let layout = format!("{{\"layout\":1,\"shards\":{}}}", if as_bucket { 2 } else { 1 });
        memory.write(Batch::new().put(LAYOUT_KEY, layout)).await.expect("memory takes it");
        let mut chance = fastrand::Rng::with_seed(options.seed ^ 0x5eed);
        let deaths = chance.f64() * 0.006;
        let latency = chance.u64(100..20_000);
        let style = Style::draw(&options, &mut chance, !as_bucket);
        let deaths = if style.has(&options, Ingredient::Deaths) { deaths } else { 0.0 };
        let put_latency = if style.slow_puts { chance.u64(..LEASE.as_micros() as u64 / 10) } else { 0 };
        let (page, traced) = (bounds.page, options.traced);
        let network =
            Network::new(options.seed, NetworkSettings { deaths, latency, put_latency, steady: false, page, traced });
        let ledger = Ledger::new(network.watch.clone());
        let (known, faulty, workers, warnings) = Default::default();
        let notification = if as_bucket { Notification::draw(options.seed) } else { Notification::None };
        let lost = if let Notification::Fleet { lost } = notification { lost } else { 0 };
        let exchange = Exchange::new(options.seed, clock.clone(), lost);
        let options = Arc::new(options);
        Self {
            options,
            bounds,
            style,
            clock,
            memory,
            network,
            notification,
            exchange,
            ledger,
            warnings,
            known,
            faulty,
            workers,
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wrong(&self, promise: Promise, what: impl Into<String>) {
        self.known().wrong.push(Breach::new(promise, what));
    }

    fn has(&self, ingredient: Ingredient) -> bool {
        self.style.has(&self.options, ingredient)
    }

    fn chance(&self, salt: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt)
    }

    /// Length of the faulty phase. Retention keeps runs that ended within the last minute, so worlds with retention need more time.
    fn trouble(&self) -> Duration {
        self.options.trouble * if self.style.retention { 3 } else { 1 }
    }

    fn is_troubled(&self) -> bool {
        self.clock.elapsed() < self.trouble()
    }

    async fn pass(&self, millis: u64) {
        self.clock.sleep(Duration::from_millis(millis)).await;
    }

    /// Returns the store as a process sees it, with all faults.
    fn store(&self, process: &Arc<Process>, salt: u64, sender: bool) -> Arc<dyn Store> {
        let mut chance = self.chance(salt);
        let atomic = self.memory.traits().atomic;
        let often = |ingredient, often: f64| if self.has(ingredient) { often } else { 0.0 };
        // A sender that stalls between its timestamp and its put is overtaken by others.
        let (slow, slow_for) = match sender && self.style.busy {
            true => (chance.f64() * 0.3, [chance.u64(500..4_500), chance.u64(4_500..30_000)][chance.usize(..2)]),
            false => (chance.f64() * 0.08, chance.u64(100..8_000)),
        };
        // In some worlds workers sometimes get the answer that the bucket does not exist. Clients treat that answer as final.
        let is_worker = process.name.starts_with('w');
        let bucket_missing = if !atomic && is_worker && self.options.seed % 32 == 30 { 0.02 } else { 0.0 };
        let faults = Faults {
            bucket_missing: often(Ingredient::Refusals, bucket_missing),
            refused: often(Ingredient::Refusals, chance.f64() * 0.04),
            answer_lost: often(Ingredient::LostAnswers, chance.f64() * if self.style.bare { 0.1 } else { 0.04 }),
            request_lost: often(Ingredient::LostRequests, chance.f64() * 0.02),
            late: if atomic { 0.0 } else { often(Ingredient::LateWrites, chance.f64() * 0.02) },
            slow: often(Ingredient::SlowOperations, slow),
            slow_for: Duration::from_millis(slow_for),
        };
        let mut seat =
            SimStore::new(self.memory.clone(), Arc::clone(&self.network), Arc::clone(process), self.clock.clone());
        // On one machine all processes share its clock; otherwise each process estimates the store's time with an error.
        let mut skew = || chance.i64(-1_000_000..=1_000_000);
        let (before, after) = (skew(), skew());
        if !atomic && self.has(Ingredient::Skew) {
            seat = seat.skewed(before, Duration::from_secs(chance.u64(..60)), after);
        }
        // Twice the uncertainty that a process declares: readers look further back than that.
        let mut wild = self.chance(salt ^ 0x511D_0000);
        if self.style.wild_clocks && process.name.starts_with('c') && wild.bool() {
            seat = seat.skewed(wild.i64(-2_000_000..=2_000_000), Duration::ZERO, wild.i64(-2_000_000..=2_000_000));
        }
        if self.style.peers {
            seat = seat.peer();
        }
        let clock = Arc::new(self.clock.clone());
        let faulty = Faulty::with_clock(seat, faults, chance.u64(..), clock.clone());
        if !self.is_troubled() {
            faulty.calm_down();
        }
        self.faulty.lock().unwrap_or_else(PoisonError::into_inner).push(faulty.clone());
        let store: Arc<dyn Store> = match self.style.bare && chance.bool() {
            true => Arc::new(faulty),
            false => Arc::new(Retry::with_clock(faulty, RetrySettings::default(), clock)),
        };
        let store = Arc::new(Bounded::new(store, Arc::clone(&self.network), process, self.clock.clone()));
        match self.notification {
            Notification::None => store,
            Notification::Process => Arc::new(Announced::new(store, Notices::new())),
            Notification::Fleet { .. } => Arc::new(Announced::new(store, self.exchange.join(process))),
        }
    }

    /// Returns the builder of an engine on the store of a process.
    fn builder(&self, store: Arc<dyn Store>) -> Builder {
        let builder = Engine::builder(store).clock(Arc::new(self.clock.clone()));
        match self.notification {
            // By default, the engine notifies itself after each local write.
            Notification::None => builder.notices(Notices::new()),
            _ => builder,
        }
    }

    async fn client(&self, name: &str, salt: u64) -> Client {
        let process = Process::immortal(name);
        for again in 0.. {
            let store = self.store(&process, salt + again * 100_000_000, true);
            let mut settings = Settings::default();
            settings.link_secret = LinkSecret::new("sixteen letters and more to sign with").ok();
            let builder = self.builder(store).settings(settings);
            if let Ok(client) = builder.client().await {
                return client;
            }
            self.pass(50).await;
        }
        unreachable!("it retries without end")
    }

    /// Returns a client without faults.
    async fn calm_client(&self, memory: &Memory) -> Client {
        let store = Arc::new(memory.clone());
        let client = Engine::builder(store).clock(Arc::new(self.clock.clone())).client().await;
        client.expect("nothing goes wrong in memory")
    }

    async fn run(self) -> Outcome {
        let mut tasks = Vec::new();
        for number in 0..self.chance(1).usize(1..4) {
            tasks.push(tokio::spawn(self.clone().keep_worker(number)));
        }
        for (number, plan) in self.plan().into_iter().enumerate() {
            if self.options.has(Ingredient::Run(u8::try_from(number).unwrap_or(RUNS_MAX))) {
                tasks.push(tokio::spawn(self.clone().attend(number, plan)));
            }
        }
        if self.style.clock_steps {
            tasks.push(tokio::spawn(self.clone().set_the_clock()));
        }
        if self.style.sweeper || self.style.retention {
            tasks.push(tokio::spawn(self.clone().keep_house()));
        }
        self.clock.sleep(self.trouble()).await;
        self.network.calm_down();
        for faulty in self.faulty.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            faulty.calm_down();
        }
        self.clock.sleep(REST).await;
        let mut broken = self.breaches().await;
        if broken.is_empty() {
            broken = self.finale().await;
        }
        for task in tasks {
            task.abort();
        }
        if self.style.retention && self.network.livelock().is_none() {
            self.ids_are_free_in_the_end(&mut broken).await;
        }
        self.outcome(broken).await
    }

    /// Returns all violated guarantees after the calm phase.
    async fn breaches(&self) -> Vec<Breach> {
        let clock = self.clock.is_stuck().then(|| "a task reads the clock without end and lets no time pass".into());
        if let Some(livelock) = self.network.livelock().or(clock) {
            let mut broken = vec![Breach::new(Promise::WokenUp, livelock)];
            // A run that is rejected repeatedly makes the most operations.
            broken.extend(self.efforts_in_vain());
            return broken;
        }
        let whole = self.with_what_retention_took().await;
        let calm = self.calm_client(&whole).await;
        let mut known = self.known().clone();
        let mut noted = std::mem::take(&mut *self.ledger.noted());
        known.wrong.append(&mut noted.wrong);
        known.wrong.append(&mut self.network.watch.wrong());
        known.wrong.extend(self.efforts_in_vain());
        if self.style.peaceful {
            (known.begun, known.received) = (noted.begun, noted.received);
        }
        known.wild_clocks = self.style.wild_clocks;
        known.entries = self.network.watch.entries();
        known.removed = self.network.watch.attic().into_keys().collect();
        let mut broken = checks::all(&whole, &calm, &known).await;
        let lister = self.client("lister", 99).await;
        broken.extend(checks::lists_are_complete(&self.memory, &lister, &mut self.chance(98)).await);
        self.known().counts.paused += checks::paused_by_failure(&whole).await;
        broken
    }

    async fn outcome(&self, broken: Vec<Breach>) -> Outcome {
        let known = self.known().clone();
        let mut counts = known.counts;
        counts.drawn = usize::from(self.options.draws_limits());
        counts.runs = known.started.len();
        counts.signals = known.sent.iter().filter(|sent| sent.suffix.is_some()).count();
        counts.controls = known.controls.len();
        counts.removed = self.network.watch.attic().len();
        counts.operations = self.network.operations();
        let logs = if self.options.traced { checks::logs(&self.memory).await } else { String::new() };
        Outcome { broken, trace: self.network.trace(), logs, counts }
    }

    fn plan(&self) -> Vec<Plan> {
        let mut chance = self.chance(2);
        let count = chance.usize(2..7);
        let deploys = self.style.deploy_at.is_some();
        let plan = |number: usize| {
            let drawn = chance.u32(..12);
            let (kind, of, input) = match drawn {
                0..4 => ("g", GRAPHS[chance.usize(..GRAPHS.len())], Value::Null),
                4 if deploys => ("e", EVOLVING, Value::Null),
                5 if deploys => ("f", FORM, Value::Null),
                6 if deploys && chance.bool() => ("p", PATCHED, json!(chance.u32(..8))),
                6 if deploys => ("r", REWRITTEN, json!(chance.u32(1..45))),
                _ if self.style.busy => ("b", "script", json!(busy_program(&mut chance))),
                7..10 if self.style.wide => ("s", "script", json!(wide_program(&mut chance))),
                _ => ("s", "script", json!(program(&mut chance, 0))),
            };
            let id = format!("{kind}{number}");
            // The data of a graph contains the run's id, for code that has no context.
            let input = if input.is_null() { json!({"id": id}) } else { input };
            Plan { id, of: of.to_owned(), input }
        };
        (0..count).map(plan).collect()
    }

    /// Starts a run, with its senders and operators.
    async fn attend(self, number: usize, plan: Plan) {
        let mut chance = self.chance(200 + number as u64);
        self.pass(chance.u64(..15_000)).await;
        let rival = chance.u32(..4);
        let mut tasks = Vec::new();
        if rival < 2 && self.options.has(Ingredient::Rivals) {
            // Another client starts the same run, or a different one under the same id.
            let mut other = plan.clone();
            if rival == 1 {
                (other.of, other.input) = ("script".into(), json!([{"sleep": 10}]));
            }
            tasks.push(tokio::spawn(self.clone().start(format!("r{number}"), 2_500 + number as u64, other)));
        }
        let by_signal = chance.u32(..5) == 0;
        if !by_signal {
            self.clone().start(format!("c{number}"), 2_000 + number as u64, plan.clone()).await;
        }
        for sender in 0..chance.usize(1..5) + if self.style.busy { 2 } else { 0 } {
            let starts = by_signal.then(|| plan.clone());
            tasks.push(tokio::spawn(self.clone().send(plan.id.clone(), number, sender, starts)));
        }
        if by_signal {
            self.clone().start(format!("c{number}"), 2_000 + number as u64, plan.clone()).await;
        }
        if self.options.has(Ingredient::Operators) {
            tasks.push(tokio::spawn(self.clone().operate(plan.id.clone(), number as u64)));
            if self.style.meddlers {
                tasks.push(tokio::spawn(self.clone().meddle(plan.clone(), number as u64)));
            }
        }
        if self.style.signal_burst {
            tasks.push(tokio::spawn(self.clone().burst_of_signals(plan.clone(), number)));
        }
        tasks.push(tokio::spawn(self.clone().release_pauses(plan, number as u64)));
        for task in tasks {
            let _ = task.await;
        }
    }

    async fn start(self, name: String, salt: u64, plan: Plan) {
        let Plan { id, of, input } = plan;
        let client = self.client(&name, salt).await;
        while let Err(error) = client.start(&of, &input).id(&id).await {
            if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Gone | ErrorKind::Invalid) {
                return;
            }
            self.pass(300).await;
        }
        let first = self.memory.get(&format!("workflow/{id}/log/0000000001.json")).await;
        if !matches!(first, Ok(Some(_))) {
            self.wrong(Promise::DurableFirst, format!("the start of `{id}` was acknowledged before it was durable"));
        }
        let before = self.known().started.insert(id.clone(), (of.clone(), input.clone()));
        if before.is_some_and(|before| before != (of, input)) {
            self.wrong(Promise::OneRunPerId, format!("two different starts of `{id}` were acknowledged"));
        }
    }
}
