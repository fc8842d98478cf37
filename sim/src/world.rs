//! One simulated world: workers that die and come back, senders, operators, and a time after which nothing goes wrong.

use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, IntoFuture as _};
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use wigwag::{Client, Engine, ErrorKind, PruneOptions, Receipt, RunHandle, Settings, SignalCall};
use wigwag_core::audit::{Breach, Promise};
use wigwag_core::mutation::mutate;
use wigwag_core::{Family, PauseCause, RunRef, Time, prefix};
use wigwag_store::{Batch, Clock as _, Faults, Faulty, LAYOUT_KEY, Memory, Retry, RetrySettings, Store};

use crate::checks;
use crate::clock::SimClock;
use crate::options::{Ingredient, Options, RUNS_MAX};
use crate::store::{Network, Process, SimStore};
use crate::watch::{keys_below, objects_below};
use crate::workload::{Code, EVOLVING, GRAPHS, Ledger, NAMES, busy_program, equip, program};

/// How long the world is given to come to rest after that.
const REST: Duration = Duration::from_secs(900);

/// After so long retention frees the ids of the runs it took.
const TWO_DAYS: Duration = Duration::from_secs(48 * 3_600);

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Promises that were broken.
    pub broken: Vec<Breach>,
    /// Every operation, in order.
    pub trace: String,
    /// The logs of all runs, as they are in the end.
    pub logs: String,
    /// How much happened.
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
    /// Runs that were restarted.
    pub restarts: usize,
    /// Runs that were brought to changed code.
    pub migrations: usize,
    /// Runs that retention took.
    pub removed: usize,
    /// Times that the clock was set.
    pub clock_steps: usize,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.runs += other.runs;
        self.signals += other.signals;
        self.deaths += other.deaths;
        self.operations += other.operations;
        self.restarts += other.restarts;
        self.migrations += other.migrations;
        self.removed += other.removed;
        self.clock_steps += other.clock_steps;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, signals, deaths, operations, restarts, migrations, removed, clock_steps } = self;
        write!(
            f,
            "{runs} runs, {signals} signals, {operations} operations, {deaths} deaths, {restarts} restarts, \
             {migrations} migrations, {removed} removed runs, {clock_steps} clock steps"
        )
    }
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
    /// Meant for a wait that is open, and no other.
    pub strict: bool,
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
    pub wrong: Vec<Breach>,
    /// How much happened.
    pub counts: Counts,
}

/// Simulates one world.
#[must_use]
pub fn simulate(options: &Options) -> Outcome {
    // The engine draws from the thread's own generator.
    fastrand::seed(options.seed);
    mutate(options.mutation);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let options = options.clone();
    let outcome = runtime.expect("a runtime of one thread").block_on(async move {
        let world = World::new(options).await;
        world.run().await
    });
    mutate(None);
    outcome
}

/// What kind of world it is. Most have a little of everything; some have much of one thing.
#[derive(Clone, Copy, Debug)]
struct Style {
    /// Programs wait for the same name again and again, and many senders, some of them slow, send it.
    busy: bool,
    /// Some processes have no layer that repeats what failed.
    bare: bool,
    /// Processes of one machine know when one of them dies.
    peers: bool,
    sweeper: bool,
    retention: bool,
    clock_steps: bool,
    /// When new code is rolled out.
    deploy_at: Option<Duration>,
}

impl Style {
    fn draw(options: &Options, chance: &mut fastrand::Rng, atomic: bool) -> Self {
        let seconds = chance.u64(5..40);
        let mut has = |ingredient, of: u32| chance.u32(..of) == 0 && options.has(ingredient);
        let deploys = has(Ingredient::Deploys, 3);
        let (sweeper, retention) = (has(Ingredient::Sweeper, 6), has(Ingredient::Retention, 4));
        let clock_steps = has(Ingredient::ClockSteps, 3) && atomic;
        Self {
            busy: chance.u32(..3) == 0,
            bare: chance.u32(..3) == 0,
            peers: atomic && chance.bool(),
            sweeper,
            retention,
            clock_steps,
            deploy_at: deploys.then(|| Duration::from_secs(seconds)),
        }
    }
}

/// A worker: what lives and dies, and its client.
type Worker = (Arc<Process>, Client);

/// One simulated world.
#[derive(Clone)]
struct World {
    options: Arc<Options>,
    style: Style,
    clock: SimClock,
    memory: Memory,
    network: Arc<Network>,
    ledger: Ledger,
    known: Arc<Mutex<Known>>,
    faulty: Arc<Mutex<Vec<Faulty<SimStore>>>>,
    /// The clients that workers have: what is sent through them, the worker may go on with at once.
    workers: Arc<Mutex<Vec<Worker>>>,
}

impl World {
    async fn new(options: Options) -> Self {
        let clock = SimClock::new();
        let as_bucket = options.seed.is_multiple_of(2);
        let wall = Arc::new(clock.clone());
        let memory = if as_bucket { Memory::bucket_with_clock(wall) } else { Memory::with_clock(wall) };
        let layout = format!("{{\"layout\":1,\"shards\":{}}}", if as_bucket { 2 } else { 1 });
        memory.write(Batch::new().put(LAYOUT_KEY, layout)).await.expect("memory takes it");
        let mut chance = fastrand::Rng::with_seed(options.seed ^ 0x5eed);
        let deaths = chance.f64() * 0.006;
        let deaths = if options.has(Ingredient::Deaths) { deaths } else { 0.0 };
        let network = Network::new(options.seed, deaths, chance.u64(100..20_000));
        let style = Style::draw(&options, &mut chance, !as_bucket);
        let ledger = Ledger::new(memory.clone());
        let (known, faulty, workers) = Default::default();
        Self { options: Arc::new(options), style, clock, memory, network, ledger, known, faulty, workers }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wrong(&self, promise: Promise, what: impl Into<String>) {
        self.known().wrong.push(Breach::new(promise, what));
    }

    fn chance(&self, salt: u64) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.options.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt)
    }

    /// How long things go wrong. Retention takes nothing that ended within a minute: it needs more time to meet trouble.
    fn trouble(&self) -> Duration {
        self.options.trouble * if self.style.retention { 3 } else { 1 }
    }

    fn is_troubled(&self) -> bool {
        self.clock.elapsed() < self.trouble()
    }

    async fn pass(&self, millis: u64) {
        self.clock.sleep(Duration::from_millis(millis)).await;
    }

    /// The store as a process sees it, with all that can go wrong on the way.
    fn store(&self, process: &Arc<Process>, salt: u64, sender: bool) -> Arc<dyn Store> {
        let mut chance = self.chance(salt);
        let atomic = self.memory.traits().atomic;
        let often = |ingredient, often: f64| if self.options.has(ingredient) { often } else { 0.0 };
        // A sender that stalls between its stamp and its put is overtaken by others.
        let (slow, slow_for) = match sender && self.style.busy {
            true => (chance.f64() * 0.3, [chance.u64(500..4_500), chance.u64(4_500..30_000)][chance.usize(..2)]),
            false => (chance.f64() * 0.08, chance.u64(100..8_000)),
        };
        let faults = Faults {
            refused: often(Ingredient::Refusals, chance.f64() * 0.04),
            answer_lost: often(Ingredient::LostAnswers, chance.f64() * if self.style.bare { 0.1 } else { 0.04 }),
            request_lost: often(Ingredient::LostRequests, chance.f64() * 0.02),
            late: if atomic { 0.0 } else { often(Ingredient::LateWrites, chance.f64() * 0.02) },
            slow: often(Ingredient::SlowOperations, slow),
            slow_for: Duration::from_millis(slow_for),
        };
        let mut seat =
            SimStore::new(self.memory.clone(), Arc::clone(&self.network), Arc::clone(process), self.clock.clone());
        // On one machine all share its clock; elsewhere each process knows the store's time by so much.
        let mut skew = || chance.i64(-1_000_000..=1_000_000);
        let (before, after) = (skew(), skew());
        if !atomic && self.options.has(Ingredient::Skew) {
            seat = seat.skewed(before, Duration::from_secs(chance.u64(..60)), after);
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
        if self.style.bare && chance.bool() {
            return Arc::new(faulty);
        }
        Arc::new(Retry::with_clock(faulty, RetrySettings::default(), clock))
    }

    async fn client(&self, name: &str, salt: u64) -> Client {
        let process = Process::immortal(name);
        for again in 0.. {
            let store = self.store(&process, salt + again * 100_000, true);
            if let Ok(client) = Engine::builder(store).clock(Arc::new(self.clock.clone())).client().await {
                return client;
            }
            self.pass(50).await;
        }
        unreachable!("it is tried for ever")
    }

    /// A client to whom nothing happens.
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
        let whole = self.with_what_retention_took().await;
        let calm = self.calm_client(&whole).await;
        let mut known = self.known().clone();
        known.wrong.append(&mut self.ledger.noted().wrong);
        known.wrong.append(&mut self.network.watch.wrong());
        let mut broken = checks::all(&whole, &calm, &known).await;
        for task in tasks {
            task.abort();
        }
        if self.style.retention {
            self.ids_are_free_in_the_end(&mut broken).await;
        }
        let trace = self.network.trace();
        let mut counts = known.counts;
        counts.runs = known.started.len();
        counts.signals = known.sent.iter().filter(|sent| sent.suffix.is_some()).count();
        counts.removed = self.network.watch.attic().len();
        counts.operations = trace.lines().count();
        let logs = checks::logs(&whole).await;
        Outcome { broken, trace, logs, counts }
    }

    /// The store as it would be if retention had taken nothing: what is promised holds for removed runs too.
    async fn with_what_retention_took(&self) -> Memory {
        let attic = self.network.watch.attic();
        if attic.is_empty() {
            return self.memory.clone();
        }
        let whole = match self.memory.traits().atomic {
            true => Memory::with_clock(Arc::new(self.clock.clone())),
            false => Memory::bucket_with_clock(Arc::new(self.clock.clone())),
        };
        let gone: Vec<String> = attic.keys().map(prefix::run).collect();
        let there = objects_below(&self.memory, "").await;
        let there = there.into_iter().filter(|(key, _)| !gone.iter().any(|gone| key.starts_with(gone)));
        for (key, body) in there.chain(attic.into_values().flatten()) {
            whole.write(Batch::new().put(key, body)).await.expect("memory takes it");
        }
        whole
    }

    /// A day after it was removed nothing is left of a run, and its id can be used again.
    async fn ids_are_free_in_the_end(&self, broken: &mut Vec<Breach>) {
        self.clock.sleep(TWO_DAYS).await;
        let client = self.calm_client(&self.memory).await;
        for run in self.network.watch.attic().keys().filter(|run| run.family == Family::Workflow) {
            let mut failed = client.prune(&PruneOptions::older_than(Duration::ZERO)).await.err();
            let left = keys_below(&self.memory, &prefix::run(run)).await;
            if left.is_empty() {
                failed = client.start("script", &json!([])).id(run.id.as_str()).await.err();
            }
            if failed.is_some() || !left.is_empty() {
                let what = format!("`{run}` was removed two days ago; left: {left:?}; {failed:?}");
                broken.push(Breach::new(Promise::NothingRevived, what));
            }
        }
    }

    fn plan(&self) -> Vec<Plan> {
        let mut chance = self.chance(2);
        let count = chance.usize(2..7);
        let plan = |number: usize| {
            let (kind, of, input) = match chance.u32(..6) {
                0 | 1 => ("g", GRAPHS[chance.usize(..GRAPHS.len())], json!({})),
                2 if self.style.deploy_at.is_some() => ("e", EVOLVING, json!({})),
                _ if self.style.busy => ("b", "script", json!(busy_program(&mut chance))),
                _ => ("s", "script", json!(program(&mut chance, 0))),
            };
            Plan { id: format!("{kind}{number}"), of: of.to_owned(), input }
        };
        (0..count).map(plan).collect()
    }

    fn code(&self) -> Code {
        match self.style.deploy_at {
            Some(at) if self.clock.elapsed() >= at => Code::New,
            _ => Code::Old,
        }
    }

    /// A worker's machine: whenever the worker dies, another is started after a while.
    async fn keep_worker(self, number: usize) {
        let mut chance = self.chance(100 + number as u64);
        for generation in 0_u64.. {
            let name = format!("w{number}g{generation}");
            let process = if self.is_troubled() { Process::mortal(name) } else { Process::immortal(name) };
            let store = self.store(&process, 1_000 + number as u64 * 100 + generation, false);
            let mut settings = Settings::default();
            settings.lease = Duration::from_secs(8);
            // It would repair what must not break.
            settings.sweep_every = None;
            let builder = Engine::builder(store).settings(settings).clock(Arc::new(self.clock.clone()));
            let code = self.code();
            let starting = equip(builder, &self.ledger, self.options.seed, code).start();
            let engine = self.unless_dead(&process, starting).await.and_then(Result::ok);
            if let Some(engine) = &engine {
                let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
                workers.retain(|(process, _)| !process.is_dead());
                workers.push((process.clone(), engine.client()));
            }
            while engine.is_some() && !process.is_dead() && code == self.code() {
                self.pass(if self.is_troubled() { 100 } else { 10_000 }).await;
                self.happen_to(&process, &mut chance);
            }
            // New code comes by a stop that lets steps finish, or by none.
            if let Some(engine) = engine.filter(|_| !process.is_dead() && chance.bool()) {
                let _ = self.unless_dead(&process, engine.stop()).await;
            }
            process.kill();
            self.known().counts.deaths += 1;
            self.pass(chance.u64(50..3_000)).await;
        }
    }

    fn happen_to(&self, process: &Process, chance: &mut fastrand::Rng) {
        if !self.is_troubled() {
            return;
        }
        let drawn = chance.u32(..2_000);
        let for_long = Duration::from_secs(chance.u64(1..20));
        match drawn {
            0..6 if self.options.has(Ingredient::Deaths) => process.kill(),
            // Its machine was suspended: it wakes after its lease.
            6..14 if self.options.has(Ingredient::Stalls) => process.stall(self.clock.elapsed() + for_long),
            _ => {}
        }
    }

    async fn unless_dead<T>(&self, process: &Process, what: impl Future<Output = T>) -> Option<T> {
        let death = async {
            while !process.is_dead() {
                self.pass(50).await;
            }
        };
        tokio::select! {
            biased;
            done = what => Some(done),
            () = death => None,
        }
    }

    /// Somebody sets the machine's clock.
    async fn set_the_clock(self) {
        let mut chance = self.chance(7);
        while self.is_troubled() {
            self.pass(chance.u64(2_000..30_000)).await;
            self.clock.set_by(chance.i64(-30_000_000..30_000_000));
            self.known().counts.clock_steps += 1;
        }
    }

    /// The sweeper and retention, far more eager than they are.
    async fn keep_house(self) {
        let mut chance = self.chance(8);
        let age = Duration::from_secs(chance.u64(..40));
        loop {
            self.pass(chance.u64(1_000..20_000) * if self.is_troubled() { 1 } else { 10 }).await;
            let client = self.client("house", 9).await;
            if self.style.sweeper && self.is_troubled() {
                let _ = client.sweep(false).await;
            }
            if self.style.retention && self.clock.elapsed() < REST / 2 {
                let _ = client.prune(&PruneOptions::older_than(age)).await;
            }
        }
    }

    /// Starts a run, and lets senders and operators loose on it.
    async fn attend(self, number: usize, plan: Plan) {
        let mut chance = self.chance(200 + number as u64);
        self.pass(chance.u64(..15_000)).await;
        let id = plan.id.clone();
        let rival = chance.u32(..4);
        let mut rivals = Vec::new();
        if rival < 2 && self.options.has(Ingredient::Rivals) {
            // Another starts the same, or something else under the same id.
            let mut other = plan.clone();
            if rival == 1 {
                (other.of, other.input) = ("script".into(), json!([{"sleep": 10}]));
            }
            rivals.push(tokio::spawn(self.clone().start(format!("r{number}"), 2_500 + number as u64, other)));
        }
        self.clone().start(format!("c{number}"), 2_000 + number as u64, plan).await;
        let client = self.client(&format!("o{number}"), 2_700 + number as u64).await;
        let mut tasks = rivals;
        for sender in 0..chance.usize(1..5) + if self.style.busy { 2 } else { 0 } {
            let client = self.client(&format!("c{number}s{sender}"), 3_000 + number as u64 * 10 + sender as u64).await;
            tasks.push(tokio::spawn(self.clone().send(client, id.clone(), sender, number as u64)));
        }
        if self.options.has(Ingredient::Operators) {
            tasks.push(tokio::spawn(self.clone().operate(client.clone(), id.clone(), number as u64)));
        }
        if id.starts_with('e') {
            tasks.push(tokio::spawn(self.clone().migrate(client, id)));
        }
        for task in tasks {
            let _ = task.await;
        }
    }

    async fn start(self, name: String, salt: u64, plan: Plan) {
        let Plan { id, of, input } = plan;
        let client = self.client(&name, salt).await;
        while let Err(error) = client.start(&of, &input).id(&id).await {
            if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Gone) {
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

    /// A worker that lives, and its client.
    fn worker(&self, chance: &mut fastrand::Rng) -> Option<Worker> {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let living: Vec<_> = workers.iter().filter(|(process, _)| !process.is_dead()).collect();
        (!living.is_empty()).then(|| living[chance.usize(..living.len())].clone())
    }

    /// Sends a signal by a client of its own, or through a worker; no answer if that dies.
    async fn sent(
        &self,
        through: Option<&Worker>,
        client: &Client,
        call: impl FnOnce(&Client) -> SignalCall,
    ) -> Option<wigwag::Result<Receipt>> {
        match through {
            Some((process, client)) => self.unless_dead(process, call(client).into_future()).await,
            None => Some(call(client).await),
        }
    }

    /// One sender: each signal is sent after the one before was acknowledged or given up.
    async fn send(self, client: Client, run: String, sender: usize, salt: u64) {
        let mut chance = self.chance(400 + salt * 10 + sender as u64);
        let mut by_worker = self.chance(500_000 + salt * 10 + sender as u64);
        let mut through = None;
        let (most, pause) = if self.style.busy { (12, 7_000) } else { (8, 5_000) };
        for number in 0..chance.usize(1..most) {
            self.pass(chance.u64(..pause)).await;
            // The order of what one sends is that of one client: it stays with the worker that it begins with.
            // On a bucket a worker does nothing else with what it sends than any other does.
            if number == 0 && self.memory.traits().atomic && by_worker.bool() {
                through = self.worker(&mut by_worker);
            }
            // One of old comes back when the run is long over.
            if self.style.retention && chance.u32(..4) == 0 {
                self.pass(chance.u64(..60_000)).await;
            }
            // Most are of one name, so that they meet.
            let name =
                if self.style.busy || chance.u32(..3) > 0 { NAMES[0] } else { NAMES[chance.usize(..NAMES.len())] };
            let payload = json!({"sender": sender, "number": number});
            let key = chance.bool().then(|| format!("k{sender}-{number}"));
            let strict = chance.u32(..8) == 0;
            let mut repeats = if key.is_some() { chance.u32(..3) } else { 0 };
            let (run_id, name_sent, key_sent) = (run.clone(), name.to_owned(), key.clone());
            let mut sent =
                Sent { run: run_id, name: name_sent, sender, number, strict, key: key_sent, suffix: None, at: None };
            loop {
                let call = |client: &Client| {
                    let call = client.signal(&run, name, &payload).by(format!("sender-{sender}"));
                    let call = match &key {
                        Some(key) => call.key(key),
                        None => call,
                    };
                    if strict { call.only_if_waiting() } else { call }
                };
                let Some(answer) = self.sent(through.as_ref(), &client, call).await else {
                    // What a process that died has sent may land at any time: nothing may be sent after it.
                    self.known().sent.push(sent);
                    return;
                };
                let refused = answer.as_ref().is_err_and(|error| {
                    use ErrorKind::{Gone, NotFound, NotRunning, NotWaiting};
                    matches!(error.kind(), NotRunning | Gone | NotFound | NotWaiting)
                });
                if let Ok(receipt) = answer {
                    self.note_receipt(&mut sent, &receipt.suffix).await;
                }
                // Without a key nobody knows whether it arrived; with one it is repeated until it has.
                let again = key.is_some() && (sent.suffix.is_none() || repeats > 0) && !refused;
                if !again {
                    break;
                }
                repeats = repeats.saturating_sub(1);
                self.pass(chance.u64(..7_000)).await;
            }
            self.known().sent.push(sent);
        }
    }

    async fn note_receipt(&self, sent: &mut Sent, suffix: &str) {
        let place = format!("workflow/{}/signals/{}/{suffix}.json", sent.run, sent.name);
        let run = RunRef::workflow(sent.run.parse().expect("ids of the simulator are legal"));
        let removed = self.network.watch.attic().contains_key(&run);
        if !removed && !matches!(self.memory.get(&place).await, Ok(Some(_))) {
            self.wrong(Promise::DurableFirst, format!("`{place}` was acknowledged before it was durable"));
        }
        match &sent.suffix {
            Some(first) if first != suffix => {
                let what = format!("one key gave two signals: `{first}` and `{suffix}`");
                self.wrong(Promise::SameKeySameOutcome, what);
            }
            Some(_) => {}
            None => {
                sent.suffix = Some(suffix.to_owned());
                sent.at = self.memory.now().await.ok().map(|now| Time::from_micros(now.at.micros()));
            }
        }
    }

    /// Somebody who cancels, pauses, resumes and restarts.
    async fn operate(self, client: Client, id: String, salt: u64) {
        let mut chance = self.chance(600 + salt);
        let Ok(run) = client.run(&id) else { return };
        self.pass(chance.u64(..if self.style.retention { 150_000 } else { 30_000 })).await;
        let what = chance.u32(..8);
        if matches!(what, 0 | 3) {
            let _ = run.cancel().reason("somebody did").await;
        }
        if matches!(what, 1 | 2) {
            let _ = run.pause().await;
            self.pass(chance.u64(..20_000)).await;
            for _ in 0..50 {
                match run.resume().await {
                    Ok(_) => break,
                    // It may not have been paused yet.
                    Err(_) => self.pass(1_500).await,
                }
            }
        }
        if matches!(what, 3..=5) {
            for _ in 0..chance.usize(1..4) {
                self.restart(&run, &id, &mut chance).await;
            }
        }
    }

    /// Restarts a run once it has ended.
    async fn restart(&self, run: &RunHandle, id: &str, chance: &mut fastrand::Rng) {
        for _ in 0..30 {
            let restart = if id.starts_with('g') && chance.bool() { run.restart().from("n0") } else { run.restart() };
            if restart.await.is_ok() {
                self.known().counts.restarts += 1;
                self.pass(chance.u64(..8_000)).await;
                return;
            }
            self.pass(chance.u64(..3_000)).await;
        }
    }

    /// Somebody who brings runs that changed code does not fit to the new code, for as long as it takes.
    async fn migrate(self, client: Client, id: String) {
        let Ok(run) = client.run(&id) else { return };
        loop {
            self.pass(if self.is_troubled() { 2_000 } else { 60_000 }).await;
            let Ok(view) = run.get().await else { continue };
            if view.run().pause.as_ref().is_some_and(|pause| pause.why == PauseCause::Version) {
                match run.migrate().rename("e1", "f1").await {
                    Ok(_) => self.known().counts.migrations += 1,
                    // One with old code, which is gone by now, may have paused it.
                    Err(_) => _ = run.resume().await,
                }
            }
        }
    }
}

/// A run that is to be started.
#[derive(Clone, Debug)]
struct Plan {
    id: String,
    of: String,
    input: Value,
}
