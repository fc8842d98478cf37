//! The store as one process sees it: every operation has a latency, may kill the process, and is recorded in the trace.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use wigwag_core::limits;
use wigwag_store::{
    Batch, Changes, Clock as _, Error, ErrorKind, Memory, Now, Object, Operation, Page, Peers, Receipt, Result, Store,
    Traits,
};

use crate::clock::SimClock;
use crate::watch::Watch;

/// Operations within one instant of simulated time after which the world counts as livelocked.
const OPERATIONS_AT_ONE_INSTANT_MAX: u64 = 30_000;

/// Operations of a whole world after which it counts as livelocked: a hundred times what a busy one needs.
const OPERATIONS_MAX: u64 = 400_000;

/// State that all processes share: the random generator, the trace, and whether faults are enabled.
#[derive(Debug)]
pub struct Network {
    chance: Mutex<fastrand::Rng>,
    trace: Option<Mutex<String>>,
    calm: AtomicBool,
    load: Load,
    settings: NetworkSettings,
    /// Observer of all operations.
    pub watch: Watch,
    /// Processes that other processes of the same machine can detect as alive.
    living: Mutex<BTreeMap<String, Arc<Process>>>,
}

/// Settings of a network.
#[derive(Clone, Copy, Debug)]
pub struct NetworkSettings {
    /// Probability that a process dies at an operation.
    pub deaths: f64,
    /// Longest latency of an operation in microseconds; one in twenty operations is up to ten times slower.
    pub latency: u64,
    /// Longest additional latency of a put, in microseconds.
    pub put_latency: u64,
    /// Whether every operation takes exactly the latency: then time counts the operations that follow each other.
    pub steady: bool,
    /// Keys on a page of a listing.
    pub page: usize,
    /// Whether operations are written to the trace.
    pub traced: bool,
}

/// Number of operations, to detect a livelock.
#[derive(Debug, Default)]
struct Load {
    total: AtomicU64,
    /// The current instant, and the operations within it.
    instant: Mutex<(Duration, u64)>,
    livelock: Mutex<Option<String>>,
}

impl Network {
    /// Creates a network whose behaviour is drawn from the seed.
    #[must_use]
    pub fn new(seed: u64, settings: NetworkSettings) -> Arc<Self> {
        let chance = Mutex::new(fastrand::Rng::with_seed(seed));
        let trace = settings.traced.then(Mutex::default);
        let (load, watch, living) = Default::default();
        Arc::new(Self { chance, trace, calm: AtomicBool::new(false), load, settings, watch, living })
    }

    /// Ends all faults: no more deaths and no slow operations.
    pub fn calm_down(&self) {
        self.calm.store(true, Ordering::Relaxed);
        self.watch.calm_down();
    }

    /// Returns the trace.
    #[must_use]
    pub fn trace(&self) -> String {
        let trace = self.trace.as_ref();
        trace.map(|trace| trace.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default()
    }

    /// Number of store operations so far.
    #[must_use]
    pub fn operations(&self) -> usize {
        usize::try_from(self.load.total.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Returns why the world counts as livelocked, if it does.
    #[must_use]
    pub fn livelock(&self) -> Option<String> {
        self.load.livelock.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds an event to the trace, if the world is traced.
    pub fn note(&self, clock: &SimClock, who: &str, what: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            let mut trace = trace.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = writeln!(trace, "{:>12.6} {who:<9} {}", clock.elapsed().as_secs_f64(), what());
        }
    }

    /// Makes the life of a process visible to other processes.
    pub fn watch_over(&self, process: &Arc<Process>) {
        let mut living = self.living.lock().unwrap_or_else(PoisonError::into_inner);
        living.insert(process.name.clone(), Arc::clone(process));
    }

    /// Counts an operation. Too many of them stop the whole network: the world would never end.
    fn count(&self, clock: &SimClock, who: &str, what: impl Fn() -> String) {
        let (now, total) = (clock.elapsed(), self.load.total.fetch_add(1, Ordering::Relaxed));
        let mut instant = self.load.instant.lock().unwrap_or_else(PoisonError::into_inner);
        *instant = if instant.0 == now { (now, instant.1 + 1) } else { (now, 1) };
        if instant.1 > OPERATIONS_AT_ONE_INSTANT_MAX || total > OPERATIONS_MAX {
            let mut livelock = self.load.livelock.lock().unwrap_or_else(PoisonError::into_inner);
            livelock.get_or_insert_with(|| {
                let count = if total > OPERATIONS_MAX { total } else { instant.1 };
                let within = if total > OPERATIONS_MAX { "by then" } else { "at that instant" };
                format!("livelock at {now:?}: {count} operations {within}, the last by `{who}`: {}", what())
            });
        }
    }

    fn happens(&self, often: f64) -> bool {
        !self.is_calm() && often > 0.0 && self.draw(|chance| chance.f64()) < often
    }

    fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.chance.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn delay(&self, is_put: bool) -> Duration {
        if self.is_calm() {
            return Duration::ZERO;
        }
        let NetworkSettings { latency, put_latency, steady, .. } = self.settings;
        if steady {
            return Duration::from_micros(latency);
        }
        let micros = self.draw(|chance| match chance.u32(..20) {
            0 => chance.u64(..=latency * 10),
            _ => chance.u64(..=latency),
        });
        let slow = if is_put && put_latency > 0 { self.draw(|chance| chance.u64(..=put_latency)) } else { 0 };
        Duration::from_micros(micros + slow)
    }
}

/// A process, which performs no operation after its death.
#[derive(Debug)]
pub struct Process {
    /// Its name in the trace.
    pub name: String,
    dead: AtomicBool,
    mortal: bool,
    /// End of its suspension, like that of a suspended machine.
    stalled: Mutex<Duration>,
}

impl Process {
    /// Creates a process that may die.
    #[must_use]
    pub fn mortal(name: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { name: name.into(), dead: AtomicBool::new(false), mortal: true, stalled: Mutex::default() })
    }

    /// Creates a process that never dies.
    #[must_use]
    pub fn immortal(name: impl Into<String>) -> Arc<Self> {
        Arc::new(Self { name: name.into(), dead: AtomicBool::new(false), mortal: false, stalled: Mutex::default() })
    }

    /// Whether it is dead.
    #[must_use]
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// Kills the process.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    /// Suspends it until this simulated time.
    pub fn stall(&self, until: Duration) {
        *self.stalled.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }

    fn stalled_until(&self) -> Duration {
        *self.stalled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The store as one process sees it.
#[derive(Clone, Debug)]
pub struct SimStore {
    memory: Memory,
    network: Arc<Network>,
    process: Arc<Process>,
    clock: SimClock,
    /// Error of its estimate of the store's time in microseconds: before and after a moment.
    skew: (i64, Duration, i64),
    /// Whether other processes on its machine can detect that it is alive.
    is_peer: bool,
}

/// The processes of one machine, seen by one of them.
#[derive(Debug)]
struct SimPeers {
    me: String,
    network: Arc<Network>,
}

impl Peers for SimPeers {
    fn me(&self) -> &str {
        &self.me
    }

    fn is_alive(&self, peer: &str) -> bool {
        let living = self.network.living.lock().unwrap_or_else(PoisonError::into_inner);
        living.get(peer).is_some_and(|process| !process.is_dead())
    }

    fn living(&self) -> Vec<String> {
        let living = self.network.living.lock().unwrap_or_else(PoisonError::into_inner);
        living.iter().filter(|(_, process)| !process.is_dead()).map(|(name, _)| name.clone()).collect()
    }
}

/// Uncertainty of a process's estimate of the store's time.
const UNCERTAINTY: Duration = Duration::from_secs(1);

impl SimStore {
    /// Creates the store as a process sees it.
    #[must_use]
    pub fn new(memory: Memory, network: Arc<Network>, process: Arc<Process>, clock: SimClock) -> Self {
        Self { memory, network, process, clock, skew: Default::default(), is_peer: false }
    }

    /// Sets the error of its estimate of the store's time in microseconds, before and after a moment.
    #[must_use]
    pub fn skewed(mut self, before: i64, until: Duration, after: i64) -> Self {
        self.skew = (before, until, after);
        self
    }

    /// Makes its life visible to the other processes of its machine.
    #[must_use]
    pub fn peer(mut self) -> Self {
        self.network.watch_over(&self.process);
        self.is_peer = true;
        self
    }

    /// Simulates the request: the process may die before the operation, or be suspended.
    async fn go(&self, what: impl Fn() -> String, is_put: bool) {
        self.network.count(&self.clock, &self.process.name, &what);
        if self.process.mortal && self.network.happens(self.network.settings.deaths / 2.0) {
            self.network.note(&self.clock, &self.process.name, || format!("dies before {}", what()));
            self.process.kill();
        }
        self.live_on().await;
        let delay = self.network.delay(is_put);
        if !delay.is_zero() {
            self.clock.sleep(delay).await;
        }
        let stalled = self.process.stalled_until().saturating_sub(self.clock.elapsed());
        if !stalled.is_zero() {
            self.clock.sleep(stalled).await;
        }
        self.live_on().await;
    }

    /// Simulates the response: the process may die before it gets the outcome.
    async fn come(&self, what: impl Fn() -> String, outcome: impl FnOnce() -> String) {
        self.network.note(&self.clock, &self.process.name, || format!("{} → {}", what(), outcome()));
        if self.process.mortal && self.network.happens(self.network.settings.deaths / 2.0) {
            self.network.note(&self.clock, &self.process.name, || format!("dies after {}", what()));
            self.process.kill();
        }
        self.live_on().await;
    }

    async fn live_on(&self) {
        if self.process.is_dead() || self.network.livelock().is_some() {
            std::future::pending::<()>().await;
        }
    }

    async fn write_one(&self, batch: Batch) -> Result<Receipt> {
        let what = || batch.operations().iter().map(name_of).collect::<Vec<_>>().join(", ");
        self.go(what, batch.puts().next().is_some()).await;
        let taken = self.network.watch.before(&self.memory, &batch).await;
        let written = self.memory.write(batch.clone()).await;
        if written.is_ok() {
            self.network.watch.after(&self.process.name, self.clock.elapsed(), &batch, taken);
        }
        let outcome = || written.as_ref().map_or_else(|error| format!("{:?}", error.kind()), |_| "ok".into());
        self.come(what, outcome).await;
        written
    }
}

fn name_of(operation: &Operation) -> String {
    match operation {
        Operation::Put(put) => format!("put {} ({} bytes)", put.key, put.body.len()),
        Operation::Delete(delete) => format!("delete {}", delete.key),
        _ => "something else".into(),
    }
}

#[async_trait]
impl Store for SimStore {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        let what = || format!("get {key}");
        self.go(what, false).await;
        let found = self.memory.get(key).await;
        self.network.watch.read(&self.process.name, key);
        let outcome = || match &found {
            Ok(Some(object)) => format!("{} bytes", object.body.len()),
            Ok(None) => "none".into(),
            Err(error) => format!("{:?}", error.kind()),
        };
        self.come(what, outcome).await;
        found
    }

    async fn write(&self, batch: Batch) -> Result<Receipt> {
        if self.memory.traits().atomic {
            return self.write_one(batch).await;
        }
        // On a bucket every put and delete is a separate operation, and a process may die between two.
        let mut receipt = Receipt::default();
        for operation in batch.operations() {
            let one = match operation {
                Operation::Put(put) => Batch::new().put_when(put.key.clone(), put.body.clone(), put.when.clone()),
                Operation::Delete(delete) => Batch::new().delete(delete.key.clone()),
                _ => continue,
            };
            let written = self.write_one(one).await?;
            receipt.stamp = written.stamp.or(receipt.stamp);
            receipt.versions.extend(written.versions);
        }
        Ok(receipt)
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        let what = || format!("list {prefix}");
        self.go(what, false).await;
        let page = self.memory.list(prefix, after, limit.min(self.network.settings.page)).await;
        let outcome = || match &page {
            Ok(page) => format!("{} keys{}", page.entries.len(), if page.more { " and more" } else { "" }),
            Err(error) => format!("{:?}", error.kind()),
        };
        self.come(what, outcome).await;
        page
    }

    async fn now(&self) -> Result<Now> {
        self.live_on().await;
        let now = self.memory.now().await?;
        if self.memory.traits().atomic {
            return Ok(now);
        }
        let (before, until, after) = self.skew;
        let skew = if self.clock.elapsed() < until { before } else { after };
        let at = wigwag_store::Stamp::from_micros(now.at.micros().saturating_add_signed(skew));
        Ok(Now { at, uncertainty: UNCERTAINTY })
    }

    fn changes(&self, prefix: &str) -> Changes {
        self.memory.changes(prefix)
    }

    fn traits(&self) -> Traits {
        self.memory.traits()
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        let peers = SimPeers { me: self.process.name.clone(), network: Arc::clone(&self.network) };
        self.is_peer.then(|| Arc::new(peers) as Arc<dyn Peers>)
    }
}

/// A layer that rejects batches and bodies beyond the drawn limits, as every store does with the real ones.
#[derive(Debug)]
pub struct Bounded {
    inner: Arc<dyn Store>,
    network: Arc<Network>,
    clock: SimClock,
    name: String,
}

impl Bounded {
    /// Wraps the store of a process.
    pub fn new(inner: Arc<dyn Store>, network: Arc<Network>, process: &Process, clock: SimClock) -> Self {
        Self { inner, network, clock, name: process.name.clone() }
    }
}

/// Returns why a batch exceeds the drawn limits, if it does.
fn excess(batch: &Batch) -> Option<String> {
    let limits = limits::current();
    let count = batch.operations().len();
    if count > limits.batch_operations_max {
        return Some(format!("a batch has at most {} operations, got: {count}", limits.batch_operations_max));
    }
    let large = batch.puts().find(|put| put.body.len() > limits.body_bytes_max)?;
    Some(format!("`{}` has at most {} bytes, got: {}", large.key, limits.body_bytes_max, large.body.len()))
}

#[async_trait]
impl Store for Bounded {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        self.inner.get(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Receipt> {
        if let Some(excess) = excess(&batch) {
            self.network.note(&self.clock, &self.name, || format!("refused: {excess}"));
            self.network.watch.refuse(&self.name, excess);
            return Err(Error::of_kind(ErrorKind::Invalid));
        }
        self.inner.write(batch).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        self.inner.list(prefix, after, limit).await
    }

    async fn now(&self) -> Result<Now> {
        self.inner.now().await
    }

    fn changes(&self, prefix: &str) -> Changes {
        self.inner.changes(prefix)
    }

    fn traits(&self) -> Traits {
        self.inner.traits()
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.inner.peers()
    }
}
