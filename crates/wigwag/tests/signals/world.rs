//! Shared parts of all tests: an engine on either kind of store, gates that hold a request, and final invariants.

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, IntoFuture};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use wigwag::testing::{Kit, ManualClock};
use wigwag::{Builder, Client, Ctx, Engine, ErrorKind, Failure, Result, RunHandle, SignalView, Status, Time};
use wigwag_core::{
    Control, Event, Family, Fate, Key, Name, Order, Payload, RunId, RunRef, Signal, SignalReceived, Source, suffix,
};
use wigwag_store::{
    Batch, Changes, Clock as _, Memory, Now, Object, Page, Peers, Receipt as Written, Result as Stored, Store, Traits,
};

pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const HOUR: Duration = Duration::from_secs(3_600);
pub(crate) const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Kind of the store under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Batches land as a whole, stamps are drawn inside the commit, and waiting callers are notified.
    Atomic,
    /// Like a bucket: batches land in order, stamps are drawn beforehand, and there are no notifications.
    Bucket,
}

pub(crate) const KINDS: [Kind; 2] = [Kind::Atomic, Kind::Bucket];

/// Kind of request that a gate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// A write that has not landed yet.
    BeforeWrite,
    /// A write that has landed, before its response.
    AfterWrite,
    /// A listing, before its response.
    AfterList,
}

/// Holds the first matching request until the gate is opened.
#[derive(Debug)]
pub(crate) struct Gate {
    hold: Hold,
    key_part: String,
    reached: Notify,
    opened: Notify,
}

impl Gate {
    /// Waits until a request is held.
    pub(crate) async fn reached(&self) {
        within(self.reached.notified()).await;
    }

    /// Lets the held request continue.
    pub(crate) fn open(&self) {
        self.opened.notify_one();
    }
}

/// A store in memory with gates before it.
#[derive(Clone, Debug)]
pub(crate) struct Gated {
    memory: Memory,
    gates: Arc<Mutex<Vec<Arc<Gate>>>>,
    uncertainty_micros: Arc<AtomicU64>,
}

impl Gated {
    async fn pass(&self, hold: Hold, keys: &[&str]) {
        let held = {
            let mut gates = self.gates.lock().unwrap();
            let fits = |gate: &Arc<Gate>| gate.hold == hold && keys.iter().any(|key| key.contains(&gate.key_part));
            gates.iter().position(fits).map(|place| gates.remove(place))
        };
        if let Some(gate) = held {
            gate.reached.notify_one();
            gate.opened.notified().await;
        }
    }
}

#[async_trait::async_trait]
impl Store for Gated {
    async fn get(&self, key: &str) -> Stored<Option<Object>> {
        self.memory.get(key).await
    }
    async fn write(&self, batch: Batch) -> Stored<Written> {
        let kept = batch.clone();
        let keys: Vec<&str> = kept.puts().map(|put| put.key.as_str()).collect();
        self.pass(Hold::BeforeWrite, &keys).await;
        let written = self.memory.write(batch).await;
        self.pass(Hold::AfterWrite, &keys).await;
        written
    }
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Stored<Page> {
        let page = self.memory.list(prefix, after, limit).await;
        self.pass(Hold::AfterList, &[prefix]).await;
        page
    }
    async fn now(&self) -> Stored<Now> {
        let uncertainty = Duration::from_micros(self.uncertainty_micros.load(Ordering::SeqCst));
        Ok(Now { uncertainty, ..self.memory.now().await? })
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

/// Limits a future in real time, so that a hang fails the test.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("it hangs")
}

/// An engine on a store of one kind.
pub(crate) struct World {
    pub(crate) kind: Kind,
    pub(crate) store: Gated,
    kit: Option<Kit>,
}

impl Drop for World {
    #[expect(clippy::print_stderr, reason = "a test that fails says on which kind of store")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("on a store of kind {:?}", self.kind);
        }
    }
}

impl World {
    pub(crate) async fn start(kind: Kind, code: impl FnOnce(Builder) -> Builder) -> Self {
        let clock = ManualClock::default();
        let shared = Arc::new(clock.clone());
        let memory = match kind {
            Kind::Atomic => Memory::with_clock(shared),
            Kind::Bucket => Memory::bucket_with_clock(shared),
        };
        let store = Gated { memory, gates: Arc::default(), uncertainty_micros: Arc::default() };
        let kit = Kit::on(Arc::new(store.clone()), clock, code).await.unwrap();
        Self { kind, store, kit: Some(kit) }
    }

    pub(crate) fn kit(&self) -> &Kit {
        self.kit.as_ref().unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        self.kit().client()
    }

    /// A client in a separate process, without workers and without the code.
    pub(crate) async fn stranger(&self) -> Client {
        let clock = Arc::new(self.kit().clock().clone());
        Engine::builder(Arc::new(self.store.clone())).clock(clock).client().await.unwrap()
    }

    pub(crate) fn run(&self, id: &str) -> RunHandle {
        self.client().run(id).unwrap()
    }

    fn handle(&self, run: &RunRef) -> RunHandle {
        match run.family {
            Family::Workflow => self.client().run(&run.id),
            Family::Task => self.client().task(&run.id),
        }
        .unwrap()
    }

    /// Starts a run and lets it proceed to its first wait.
    pub(crate) async fn begin(&self, of: &str, id: &str) -> RunHandle {
        self.begin_with(of, id, &Value::Null).await
    }

    pub(crate) async fn begin_with(&self, of: &str, id: &str, input: &Value) -> RunHandle {
        let run = self.client().start(of, input).id(id).await.unwrap();
        self.settle().await;
        run
    }

    /// Waits until no run can proceed without time or a signal, and checks that no turn was abandoned.
    pub(crate) async fn settle(&self) {
        within(self.kit().settle()).await.unwrap();
        for key in self.keys("live/").await {
            if let Ok(Key::Live { of, run }) = key.parse::<Key>() {
                let family = if of.is_task() { Family::Task } else { Family::Workflow };
                let run = self.handle(&RunRef { family, id: run }).get().await.unwrap();
                assert!(run.run().lease.is_none(), "the turn of `{}` was given up", run.id());
            }
        }
    }

    /// Advances the clock by a span and a millisecond: the store's time is some microseconds ahead of the clock.
    pub(crate) async fn advance(&self, span: Duration) {
        self.settle().await;
        self.move_clock(span + Duration::from_millis(1));
        self.settle().await;
    }

    pub(crate) async fn run_until_idle(&self) {
        within(self.kit().run_until_idle()).await.unwrap();
    }

    /// Advances the clock in small steps until the future is done.
    pub(crate) async fn while_time_passes<T>(&self, future: impl Future<Output = T>) -> T {
        let clock = self.kit().clock();
        let passing = async {
            loop {
                for _ in 0..20 {
                    tokio::task::yield_now().await;
                }
                clock.advance(Duration::from_millis(100));
            }
        };
        tokio::select! {
            biased;
            done = within(future) => done,
            () = passing => unreachable!("time passes without end"),
        }
    }

    /// Ends the engine as a crash would, and starts another.
    pub(crate) async fn crash(mut self, code: impl FnOnce(Builder) -> Builder) -> Self {
        let kit = self.kit.take().unwrap();
        self.kit = Some(kit.crash(code).await.unwrap());
        self.settle().await;
        self
    }

    pub(crate) fn now(&self) -> Time {
        Time::from_micros(self.kit().clock().wall().micros())
    }

    pub(crate) fn move_clock(&self, span: Duration) {
        self.kit().clock().advance(span);
    }

    /// Sets the uncertainty of the store's time from now on.
    pub(crate) fn set_uncertainty(&self, span: Duration) {
        self.store.uncertainty_micros.store(u64::try_from(span.as_micros()).unwrap(), Ordering::SeqCst);
    }

    /// Holds the next request of that kind whose key contains `key_part`.
    pub(crate) fn hold(&self, hold: Hold, key_part: &str) -> Arc<Gate> {
        let (reached, opened) = (Notify::new(), Notify::new());
        let gate = Arc::new(Gate { hold, key_part: key_part.into(), reached, opened });
        self.store.gates.lock().unwrap().push(Arc::clone(&gate));
        gate
    }

    /// Puts a signal directly, like a sender that dies before it puts a wake-up; returns its suffix.
    pub(crate) async fn put_signal(&self, run: &str, name: &str, stamp: Time, payload: &Value) -> String {
        let id = format!("{:032x}", stamp.micros());
        let signal = Signal {
            id: id.clone(),
            name: Name::new(name).unwrap(),
            payload: Payload::of(payload).unwrap(),
            created_at: stamp,
            source: Source::new(None, "hand"),
            only: None,
            point: None,
        };
        let place = suffix(stamp, &id);
        let run = RunRef::workflow(RunId::new(run).unwrap());
        let key = Key::Signal { run, name: signal.name.clone(), suffix: place.clone() }.to_string();
        self.store.write(Batch::new().put(key, signal.to_json())).await.unwrap();
        place
    }

    /// Puts a late note directly, like a slow sender.
    pub(crate) async fn put_late_note(&self, run: &RunHandle, name: &str, signal: &str) {
        let (id, name) = (format!("{:x}", self.keys("").await.len()), Name::new(name).unwrap());
        let order = Order::Late { name, signal: signal.into() };
        let control = Control { id: id.clone(), created_at: self.now(), by: None, order };
        let run_ref = RunRef::workflow(run.id().clone());
        let key = Key::Control { run: run_ref, suffix: suffix(self.now(), &id) }.to_string();
        self.store.write(Batch::new().put(key, control.to_json())).await.unwrap();
        self.hint(run).await;
    }

    /// Puts a wake-up, like every sender.
    pub(crate) async fn hint(&self, run: &RunHandle) {
        let view = run.get().await.unwrap();
        let kind = wigwag_core::kind_of(&view.run().index_type());
        let key = format!("due/00/{}~{kind}~{}~by-hand", self.now(), run.id());
        let body = json!({"type": view.of(), "run": format!("workflow/{}", run.id())});
        self.store.write(Batch::new().put(key, body.to_string())).await.unwrap();
    }

    /// Returns all keys below a prefix.
    pub(crate) async fn keys(&self, prefix: &str) -> Vec<String> {
        let mut keys: Vec<String> = Vec::new();
        loop {
            let after = keys.last().cloned().unwrap_or_default();
            let page = self.store.list(prefix, &after, 1_000).await.unwrap();
            keys.extend(page.entries.into_iter().map(|listed| listed.key));
            if !page.more {
                return keys;
            }
        }
    }

    /// Ends a test: checks that the log of each run and the indexes agree.
    pub(crate) async fn end(self) {
        self.settle().await;
        let mut indexed = BTreeSet::new();
        for key in [self.keys("workflow/").await, self.keys("task/").await].concat() {
            if let Ok(Key::Entry { run, seq: 1 }) = key.parse::<Key>() {
                let run = self.handle(&run);
                match run.get().await {
                    Err(error) if error.kind() == ErrorKind::Gone => {}
                    _ => indexed.extend(check_waits(&run).await),
                }
            }
        }
        let listed: BTreeSet<String> = self.keys("waiting/").await.into_iter().collect();
        assert_eq!(listed, indexed, "the index holds the open waits and nothing else");
        let swept = self.client().sweep(true).await.unwrap();
        assert_eq!(swept.repaired(), 0, "the sweeper has nothing to do: {swept:?}");
    }
}

/// Checks that one closing event follows each `signal.waiting` and no signal is consumed twice; returns the index
/// keys of open waits.
async fn check_waits(run: &RunHandle) -> Vec<String> {
    let mut open: BTreeMap<String, String> = BTreeMap::new();
    let mut taken = BTreeSet::new();
    for entry in run.history(1, 100_000).await.unwrap() {
        for event in &entry.events {
            match event {
                Event::SignalWaiting(event) => {
                    let place = format!("waiting/{}/{}~{:010}", event.name, run.id(), entry.seq);
                    let before = open.insert(event.point.to_string(), place);
                    assert_eq!(before, None, "`{}` is opened while it is open", event.point);
                }
                Event::SignalReceived(event) => {
                    assert!(open.remove(event.point.as_str()).is_some(), "`{}` is not open: {event:?}", event.point);
                    for signal in &event.signals {
                        let once = taken.insert((event.name.clone(), signal.signal.clone()));
                        assert!(once, "taken twice: {signal:?}");
                    }
                }
                Event::SignalTimeout(event) => {
                    assert!(open.remove(event.point.as_str()).is_some(), "`{}` is not open: {event:?}", event.point);
                }
                Event::SignalClosed(event) => {
                    assert!(open.remove(event.point.as_str()).is_some(), "`{}` is not open: {event:?}", event.point);
                }
                _ => {}
            }
        }
    }
    let view = run.get().await.unwrap();
    if view.status().is_final() {
        assert!(open.is_empty(), "the run has ended, and these waits were never closed: {open:?}");
    }
    let shown: BTreeSet<String> = run.waiting().await.unwrap().iter().map(|wait| wait.point.to_string()).collect();
    assert_eq!(shown, open.keys().cloned().collect::<BTreeSet<_>>(), "the run says what its log says");
    if view.run().parked { open.into_values().collect() } else { Vec::new() }
}

/// All events of a run, in order.
pub(crate) async fn events(run: &RunHandle) -> Vec<Event> {
    run.history(1, 100_000).await.unwrap().into_iter().flat_map(|entry| entry.events).collect()
}

/// Names of the run's events.
pub(crate) async fn event_names(run: &RunHandle) -> Vec<&'static str> {
    events(run).await.iter().map(Event::name).collect()
}

/// Returns the number of events of that name in the log.
pub(crate) async fn count(run: &RunHandle, name: &str) -> usize {
    event_names(run).await.into_iter().filter(|found| *found == name).count()
}

/// The consumed signals, in order.
pub(crate) async fn received(run: &RunHandle) -> Vec<SignalReceived> {
    let all = events(run).await.into_iter();
    all.filter_map(|event| if let Event::SignalReceived(received) = event { Some(received) } else { None }).collect()
}

/// Outcome of each signal of a name, in order.
pub(crate) async fn fates(run: &RunHandle, name: &str) -> Vec<Fate> {
    run.signals(Some(name)).await.unwrap().into_iter().map(|view| view.fate).collect()
}

/// Returns the signal with this payload.
pub(crate) async fn signal_with(run: &RunHandle, payload: impl Into<Value>) -> SignalView {
    let payload = payload.into();
    let all = run.signals(None).await.unwrap();
    let found = all.into_iter().find(|view| view.payload.value() == payload);
    found.unwrap_or_else(|| panic!("no signal carries {payload}"))
}

/// Returns the outcome of the signal with this payload.
pub(crate) async fn fate_of(run: &RunHandle, payload: impl Into<Value>) -> Fate {
    signal_with(run, payload).await.fate
}

/// Whether the step `at` consumed the signal.
pub(crate) fn took(fate: &Fate, at: &str) -> bool {
    matches!(fate, Fate::Consumed { point, .. } if point.as_str() == at)
}

/// The result of a run that has completed.
pub(crate) async fn result(run: &RunHandle) -> Value {
    let view = run.get().await.unwrap();
    assert_eq!(view.status(), Status::Completed, "{:?}", view.run().error);
    within(run.result_payload()).await.unwrap().value()
}

/// Sends in a separate task.
pub(crate) fn spawn<C>(call: C) -> JoinHandle<Result<C::Answer>>
where
    C: Call,
{
    tokio::spawn(call.into_future())
}

/// A call that sends a request when awaited.
pub(crate) trait Call: IntoFuture<Output = Result<Self::Answer>, IntoFuture: Send + 'static> {
    type Answer: Send + 'static;
}

impl Call for wigwag::SignalCall {
    type Answer = wigwag::Receipt;
}

impl Call for wigwag::SignalAndWait {
    type Answer = wigwag::Consumed;
}

/// Consumes this many signals of one name, with a sleep after each.
pub(crate) async fn numbers(ctx: Ctx, count: usize) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(ctx.wait("number").await?);
        ctx.sleep("nap", HOUR).await?;
    }
    Ok(all)
}

/// Like [`numbers`], with the newest price each time.
pub(crate) async fn prices(ctx: Ctx, count: usize) -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(ctx.wait("price").latest().await?);
        ctx.sleep("nap", HOUR).await?;
    }
    Ok(all)
}
