//! Signal against park, timeout, cancel and the death of a worker: every order of their store operations, and every
//! moment at which a worker can die.
//!
//! Two actors share a store that lets one operation pass at a time. All orders of the first operations of both are
//! tried, one after the other; then all operations may pass, and the invariants are checked.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]
#![expect(clippy::print_stdout, reason = "a failure is printed")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::IntoFuture as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use wigwag::testing::ManualClock;
use wigwag::{Client, Ctx, Engine, Failure, RunHandle, Settings, Status};
use wigwag_core::Event;
use wigwag_store::{Batch, Changes, LAYOUT_KEY, Memory, Now, Object, Page, Peers, Receipt, Result, Store, Traits};

const WORKER: usize = 0;
const OTHER: usize = 1;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Queues of store operations that wait for their turn.
#[derive(Debug, Default)]
struct Desk {
    closed: bool,
    waiting: BTreeMap<usize, VecDeque<oneshot::Sender<()>>>,
    /// Number of operations that the worker has begun; `dies_at` is the one at which it dies, before it or after it.
    begun: usize,
    dies_at: Option<(usize, bool)>,
    is_dead: bool,
}

/// The store as one actor sees it.
#[derive(Clone, Debug)]
struct Seat {
    memory: Memory,
    actor: usize,
    desk: Arc<Mutex<Desk>>,
}

impl Seat {
    /// Waits for the operation's turn; returns whether the worker dies after the operation.
    async fn turn(&self) -> bool {
        let (ticket, dies_after) = {
            let mut desk = self.desk.lock().unwrap();
            let mut dies_after = false;
            if self.actor == WORKER {
                let here = desk.dies_at.filter(|(at, _)| *at == desk.begun);
                desk.begun += 1;
                desk.is_dead |= here.is_some_and(|(_, after)| !after);
                dies_after = here.is_some_and(|(_, after)| after);
            }
            let ticket = desk.closed.then(|| {
                let (pass, ticket) = oneshot::channel();
                desk.waiting.entry(self.actor).or_default().push_back(pass);
                ticket
            });
            (ticket, dies_after)
        };
        self.live_on(false).await;
        if let Some(ticket) = ticket {
            let _ = ticket.await;
        }
        dies_after
    }

    /// Returns if the actor lives; the operations of a dead worker never continue.
    async fn live_on(&self, dies: bool) {
        let dead = {
            let mut desk = self.desk.lock().unwrap();
            desk.is_dead |= dies;
            self.actor == WORKER && desk.is_dead
        };
        if dead {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait::async_trait]
impl Store for Seat {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        let dies = self.turn().await;
        let found = self.memory.get(key).await;
        self.live_on(dies).await;
        found
    }
    async fn write(&self, batch: Batch) -> Result<Receipt> {
        if self.memory.traits().atomic {
            let dies = self.turn().await;
            let receipt = self.memory.write(batch).await;
            self.live_on(dies).await;
            return receipt;
        }
        // On a bucket every put and delete is a separate operation.
        let mut receipt = Receipt::default();
        for operation in batch.operations() {
            let dies = self.turn().await;
            let one = match operation {
                wigwag_store::Operation::Put(put) => {
                    Batch::new().put_when(put.key.clone(), put.body.clone(), put.when.clone())
                }
                wigwag_store::Operation::Delete(delete) => Batch::new().delete(delete.key.clone()),
                _ => unreachable!("there is no other operation"),
            };
            let written = self.memory.write(one).await;
            self.live_on(dies).await;
            let written = written?;
            receipt.stamp = written.stamp.or(receipt.stamp);
            receipt.versions.extend(written.versions);
        }
        Ok(receipt)
    }
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        let dies = self.turn().await;
        let page = self.memory.list(prefix, after, limit).await;
        self.live_on(dies).await;
        page
    }
    async fn now(&self) -> Result<Now> {
        self.memory.now().await
    }
    fn changes(&self, prefix: &str) -> Changes {
        self.memory.changes(prefix)
    }
    fn traits(&self) -> Traits {
        self.memory.traits()
    }
    fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.memory.peers()
    }
}

/// Waits for a signal with a timeout, and after the timeout for another without one.
async fn patient(ctx: Ctx, (): ()) -> std::result::Result<String, Failure> {
    if let Some(word) = ctx.wait::<String>("go").timeout(TIMEOUT).await? {
        return Ok(format!("in time: {word}"));
    }
    Ok(format!("late: {}", ctx.wait::<String>("go").await?))
}

struct World {
    clock: ManualClock,
    memory: Memory,
    desk: Arc<Mutex<Desk>>,
    calm: Client,
    other: Client,
    _engine: Engine,
}

impl World {
    async fn new(as_bucket: bool) -> Self {
        let clock = ManualClock::default();
        let shared = Arc::new(clock.clone());
        let memory = if as_bucket { Memory::bucket_with_clock(shared) } else { Memory::with_clock(shared) };
        memory.write(Batch::new().put(LAYOUT_KEY, "{\"layout\":1,\"shards\":1}")).await.unwrap();
        let desk = Arc::new(Mutex::new(Desk::default()));
        let calm = client(Arc::new(memory.clone()), &clock).await;
        let other = client(Arc::new(Seat { memory: memory.clone(), actor: OTHER, desk: Arc::clone(&desk) }), &clock);
        let other = other.await;
        let seat = Seat { memory: memory.clone(), actor: WORKER, desk: Arc::clone(&desk) };
        let engine = engine(Arc::new(seat), &clock).await;
        let world = Self { clock, memory, desk, calm, other, _engine: engine };
        world.quiet().await;
        world
    }

    async fn quiet(&self) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }

    async fn pump(&self, span: Duration) {
        self.clock.advance(span);
        self.quiet().await;
    }

    /// Lets all operations pass in the order of their arrival.
    async fn let_go(&self) {
        {
            let mut desk = self.desk.lock().unwrap();
            desk.closed = false;
            for pass in std::mem::take(&mut desk.waiting).into_values().flatten() {
                let _ = pass.send(());
            }
        }
        self.quiet().await;
    }

    /// Lets operations pass one by one in the order of `choices`, after its end the worker's first. Returns each choice
    /// and the number of alternatives.
    async fn follow(&self, choices: &[usize], depth: usize) -> Vec<(usize, usize)> {
        let mut made = Vec::new();
        loop {
            self.quiet().await;
            let mut desk = self.desk.lock().unwrap();
            let actors: Vec<usize> =
                desk.waiting.iter().filter(|(_, queue)| !queue.is_empty()).map(|(actor, _)| *actor).collect();
            if actors.is_empty() {
                return made;
            }
            let choice = choices.get(made.len()).copied().unwrap_or(0);
            let options = if made.len() < depth { actors.len() } else { 1 };
            made.push((choice, options));
            let pass = desk.waiting.get_mut(&actors[choice]).and_then(VecDeque::pop_front);
            let _ = pass.unwrap().send(());
        }
    }
}

async fn client(store: Arc<dyn Store>, clock: &ManualClock) -> Client {
    Engine::builder(store).clock(Arc::new(clock.clone())).client().await.unwrap()
}

async fn engine(store: Arc<dyn Store>, clock: &ManualClock) -> Engine {
    let mut settings = Settings::default();
    (settings.linger, settings.sweep_every) = (Duration::ZERO, None);
    let builder = Engine::builder(store).settings(settings).clock(Arc::new(clock.clone()));
    builder.function("patient", 1, patient).start().await.unwrap()
}

/// Requests of clients while the worker runs.
type Outside = fn(Client) -> BoxFuture<'static, Vec<(&'static str, bool)>>;

fn sends(client: Client) -> BoxFuture<'static, Vec<(&'static str, bool)>> {
    Box::pin(async move { vec![("go", client.signal("r", "go", "ada").await.is_ok())] })
}

fn sends_under_a_key(client: Client) -> BoxFuture<'static, Vec<(&'static str, bool)>> {
    Box::pin(async move { vec![("go", client.signal("r", "go", "ada").key("k").await.is_ok())] })
}

fn sends_strictly(client: Client) -> BoxFuture<'static, Vec<(&'static str, bool)>> {
    Box::pin(async move {
        let _ = client.signal("r", "go", "ada").only_if_waiting().await;
        vec![]
    })
}

fn cancels(client: Client) -> BoxFuture<'static, Vec<(&'static str, bool)>> {
    Box::pin(async move {
        let _ = client.run("r").unwrap().cancel().await;
        vec![]
    })
}

/// State of the run at the moment when both actors start.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    /// The run was just started: the worker claims it and parks it.
    Begins,
    /// The run is parked and its deadline has come.
    TimesOut,
    /// The run is parked, and a signal was sent: the worker claims it.
    Resumes,
}

/// Tries all orders; returns their number.
async fn all_orders(when: When, outside: Outside, as_bucket: bool, depth: usize) -> usize {
    let mut choices: Vec<usize> = Vec::new();
    for count in 1.. {
        let made = one_order(when, outside, as_bucket, depth, &choices).await;
        let Some(last) = made.iter().rposition(|(choice, options)| choice + 1 < *options) else { return count };
        choices = made[..last].iter().map(|(choice, _)| *choice).chain([made[last].0 + 1]).collect();
    }
    0
}

async fn one_order(
    when: When,
    outside: Outside,
    as_bucket: bool,
    depth: usize,
    choices: &[usize],
) -> Vec<(usize, usize)> {
    let world = World::new(as_bucket).await;
    let mut acknowledged = Vec::new();
    if when != When::Begins {
        world.calm.start("patient", &()).id("r").await.unwrap();
        world.pump(Duration::from_secs(11)).await;
        assert_eq!(world.calm.run("r").unwrap().status().await.unwrap(), Status::WaitingSignal);
    }
    world.desk.lock().unwrap().closed = true;
    match when {
        When::Begins => _ = world.calm.start("patient", &()).id("r").await.unwrap(),
        When::TimesOut => world.clock.advance(TIMEOUT),
        When::Resumes => {
            world.calm.signal("r", "go", "bob").await.unwrap();
            acknowledged.push("bob");
        }
    }
    world.clock.advance(Duration::from_secs(11));
    let task = tokio::spawn(outside(world.other.clone()));
    let made = world.follow(choices, depth).await;
    world.let_go().await;
    // A wake-up, not a patrol, must wake a run whose signal or child has arrived.
    for _ in 0..6 {
        world.pump(Duration::from_secs(11)).await;
    }
    for (_, told) in task.await.unwrap() {
        acknowledged.extend(told.then_some("ada"));
    }
    let order: String = made.iter().map(|(choice, _)| if *choice == WORKER { 'w' } else { 'o' }).collect();
    check(&world, &acknowledged, &format!("{when:?} in the order {order}")).await;
    made
}

async fn check(world: &World, acknowledged: &[&str], what: &str) {
    let run = world.calm.run("r").unwrap();
    let status = run.status().await.unwrap();
    if status != Status::WaitingSignal && !status.is_final() {
        show(&world.memory).await;
        panic!("{what}: the run is {status}");
    }
    every_wait_is_closed_once(&run, status.is_final(), what).await;
    let signals = run.signals(None).await.unwrap();
    for word in acknowledged {
        let found: Vec<_> = signals.iter().filter(|signal| signal.payload.text() == format!("\"{word}\"")).collect();
        assert_eq!(found.len(), 1, "{what}: {word} is there once: {found:?}");
        let unheard = !matches!(found[0].fate, wigwag::Fate::Consumed { .. });
        // A run that waits although its signal is stored was not woken.
        if unheard && status == Status::WaitingSignal {
            show(&world.memory).await;
            panic!("{what}: {word} was acknowledged, the run waits for it, and nothing happens");
        }
    }
}

async fn every_wait_is_closed_once(run: &RunHandle, ended: bool, what: &str) {
    let mut open = BTreeSet::new();
    let mut taken = BTreeSet::new();
    for entry in run.history(1, 1_000).await.unwrap() {
        for event in entry.events {
            let closed = match event {
                Event::SignalWaiting(event) => {
                    assert!(open.insert(event.point.clone()), "{what}: {} is opened twice", event.point);
                    continue;
                }
                Event::SignalReceived(event) => {
                    for signal in event.signals {
                        assert!(taken.insert(signal.signal.clone()), "{what}: {} is consumed twice", signal.signal);
                    }
                    event.point
                }
                Event::SignalTimeout(event) => event.point,
                Event::SignalClosed(event) => event.point,
                _ => continue,
            };
            assert!(open.remove(&closed), "{what}: {closed} is closed, but was not open");
        }
    }
    assert!(!ended || open.is_empty(), "{what}: never closed: {open:?}");
}

async fn show(memory: &Memory) {
    for listed in memory.list("", "", 1_000).await.unwrap().entries {
        let body = memory.get(&listed.key).await.unwrap().unwrap().body;
        println!("{} {}", listed.key, String::from_utf8_lossy(&body).trim());
    }
}

/// Number of operations of both actors that are tried in every order; `WIGWAG_DEPTH` tries more.
fn depth() -> usize {
    std::env::var("WIGWAG_DEPTH").ok().and_then(|depth| depth.parse().ok()).unwrap_or(12)
}

async fn on_both_kinds(when: When, outside: Outside) {
    for as_bucket in [false, true] {
        let orders = all_orders(when, outside, as_bucket, depth()).await;
        println!("{when:?}, {}: {orders} orders", if as_bucket { "bucket" } else { "atomic" });
        assert!(orders > 5, "{orders}");
    }
}

#[tokio::test]
async fn every_order_of_a_signal_and_a_run_that_parks() {
    on_both_kinds(When::Begins, sends).await;
}

#[tokio::test]
async fn every_order_of_a_signal_under_a_key_and_a_run_that_parks() {
    on_both_kinds(When::Begins, sends_under_a_key).await;
}

#[tokio::test]
async fn every_order_of_a_signal_and_a_timeout() {
    on_both_kinds(When::TimesOut, sends).await;
}

#[tokio::test]
async fn every_order_of_a_strict_signal_and_a_timeout() {
    on_both_kinds(When::TimesOut, sends_strictly).await;
}

#[tokio::test]
async fn every_order_of_a_cancel_and_a_consumed_signal() {
    on_both_kinds(When::Resumes, cancels).await;
}

#[tokio::test]
async fn every_order_of_a_cancel_and_a_timeout() {
    on_both_kinds(When::TimesOut, cancels).await;
}

#[tokio::test]
async fn every_order_of_two_signals_and_a_run_that_takes_one() {
    on_both_kinds(When::Resumes, sends).await;
}

/// The fixed script: a run is started, parks, times out, parks again, and gets a signal; the worker dies at one moment.
async fn one_death(as_bucket: bool, at: usize, after: bool) -> bool {
    let world = World::new(as_bucket).await;
    {
        let mut desk = world.desk.lock().unwrap();
        desk.dies_at = Some((desk.begun + at, after));
    }
    let what = format!("death {} operation {at}", if after { "after" } else { "before" });
    world.calm.start("patient", &()).id("r").await.unwrap();
    world.pump(Duration::from_secs(11)).await;
    world.pump(TIMEOUT).await;
    world.pump(Duration::from_secs(11)).await;
    let told = world.calm.signal("r", "go", "ada").into_future().await.is_ok();
    world.pump(Duration::from_secs(11)).await;
    let died = world.desk.lock().unwrap().is_dead;
    // Another worker starts; it waits at most until the lease of the dead worker ends.
    let _other = engine(Arc::new(world.memory.clone()), &world.clock).await;
    for _ in 0..12 {
        world.pump(Duration::from_secs(11)).await;
    }
    let acknowledged = if told { vec!["ada"] } else { vec![] };
    check(&world, &acknowledged, &what).await;
    assert!(told, "{what}: nothing keeps a sender from sending");
    assert_eq!(world.calm.run("r").unwrap().status().await.unwrap(), Status::Completed, "{what}");
    let waiting = world.memory.list("waiting/", "", 10).await.unwrap().entries.len();
    assert!(as_bucket || waiting == 0, "{what}: the index of waits is empty where writes are atomic");
    died
}

#[tokio::test]
async fn every_moment_at_which_a_worker_can_die() {
    for as_bucket in [false, true] {
        for after in [false, true] {
            let mut at = 0;
            while one_death(as_bucket, at, after).await {
                at += 1;
            }
            println!("{}: {at} moments", if as_bucket { "bucket" } else { "atomic" });
            assert!(at > 10, "{at}");
        }
    }
}
