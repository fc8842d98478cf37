//! The store of one process, with its death, lost responses and clock controlled by a test.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wigwag::testing::{Kit, ManualClock};
use wigwag::{Builder, Client, Engine};
use wigwag_store::{
    Batch, Changes, Error, ErrorKind, Memory, Now, Object, Page, Peers, Receipt, Result, Store, Traits,
};

/// Fault at a write that a test selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process dies before the write.
    DiesBefore,
    /// The process dies after the write.
    DiesAfter,
    /// The write is applied, but its response is lost.
    AnswerLost,
}

/// The store of one process.
#[derive(Debug)]
pub(crate) struct Seat {
    memory: Memory,
    /// The first write that puts a body with this text meets the fault.
    fault: Mutex<Option<(&'static str, Fault)>>,
    dead: AtomicBool,
    /// Uncertainty of the process's estimate of the time.
    pub(crate) uncertainty: Duration,
    /// Clock that advances by this duration with each write of an entry.
    pub(crate) tick: Option<(ManualClock, Duration)>,
    writing: AtomicUsize,
    /// Largest number of concurrent writes.
    pub(crate) most_writing: AtomicUsize,
    /// While true, inboxes are not listed: turns hang.
    pub(crate) hangs: AtomicBool,
    /// Turns hang as soon as a run is parked.
    pub(crate) hangs_when_parked: bool,
    /// Number of listings of wake-ups.
    pub(crate) due_lists: AtomicUsize,
}

impl Seat {
    pub(crate) fn new(memory: &Memory) -> Self {
        Self {
            memory: memory.clone(),
            fault: Mutex::default(),
            dead: AtomicBool::new(false),
            uncertainty: Duration::ZERO,
            tick: None,
            writing: AtomicUsize::new(0),
            most_writing: AtomicUsize::new(0),
            hangs: AtomicBool::new(false),
            hangs_when_parked: false,
            due_lists: AtomicUsize::new(0),
        }
    }

    pub(crate) fn with(memory: &Memory, text: &'static str, fault: Fault) -> Arc<Self> {
        let seat = Self::new(memory);
        seat.set_fault(text, fault);
        Arc::new(seat)
    }

    pub(crate) fn set_fault(&self, text: &'static str, fault: Fault) {
        *self.fault.lock().unwrap() = Some((text, fault));
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    async fn live_on(&self) {
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    fn fault_of(&self, batch: &Batch) -> Option<Fault> {
        let (text, fault) = (*self.fault.lock().unwrap())?;
        let mut bodies = batch.puts().map(|put| String::from_utf8_lossy(&put.body).into_owned());
        bodies.any(|body| body.contains(text)).then_some(fault)
    }
}

#[async_trait::async_trait]
impl Store for Seat {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        self.live_on().await;
        self.memory.get(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Receipt> {
        self.live_on().await;
        if let Some((clock, span)) = &self.tick
            && batch.puts().any(|put| put.key.contains("/log/"))
        {
            clock.advance(*span);
        }
        let writing = self.writing.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_writing.fetch_max(writing, Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.writing.fetch_sub(1, Ordering::SeqCst);
        let fault = self.fault_of(&batch);
        if fault == Some(Fault::DiesBefore) {
            self.dead.store(true, Ordering::SeqCst);
            self.live_on().await;
        }
        if self.hangs_when_parked
            && batch.puts().any(|put| String::from_utf8_lossy(&put.body).contains("\"run.parked\""))
        {
            self.hangs.store(true, Ordering::SeqCst);
        }
        let written = self.memory.write(batch).await;
        match fault {
            Some(Fault::DiesAfter) => {
                self.dead.store(true, Ordering::SeqCst);
                self.live_on().await;
                written
            }
            Some(Fault::AnswerLost) => Err(Error::of_kind(ErrorKind::Unknown)),
            _ => written,
        }
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        self.live_on().await;
        while prefix.ends_with("/signals/") && self.hangs.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        self.due_lists.fetch_add(usize::from(prefix.starts_with("due/")), Ordering::SeqCst);
        self.memory.list(prefix, after, limit).await
    }

    async fn now(&self) -> Result<Now> {
        let now = self.memory.now().await?;
        Ok(Now { uncertainty: self.uncertainty.max(now.uncertainty), ..now })
    }

    fn changes(&self, prefix: &str) -> Changes {
        self.memory.changes(prefix)
    }

    fn traits(&self) -> Traits {
        self.memory.traits()
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        None
    }
}

/// A store, its clock, and a client without faults.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) memory: Memory,
    pub(crate) client: Client,
}

impl World {
    /// Creates a world on a store with atomic batches.
    pub(crate) async fn new() -> Self {
        let clock = ManualClock::default();
        let memory = Memory::with_clock(Arc::new(clock.clone()));
        Self::on(clock, memory).await
    }

    /// Creates a world on a bucket.
    pub(crate) async fn bucket() -> Self {
        let clock = ManualClock::default();
        let memory = Memory::bucket_with_clock(Arc::new(clock.clone()));
        Self::on(clock, memory).await
    }

    async fn on(clock: ManualClock, memory: Memory) -> Self {
        let store = Arc::new(memory.clone());
        let client = Engine::builder(store).clock(Arc::new(clock.clone())).client().await.unwrap();
        Self { clock, memory, client }
    }

    /// Starts a worker without faults.
    pub(crate) async fn worker(&self, configure: impl FnOnce(Builder) -> Builder) -> Kit {
        self.worker_on(Arc::new(self.memory.clone()), configure).await
    }

    pub(crate) async fn worker_on(&self, store: Arc<dyn Store>, configure: impl FnOnce(Builder) -> Builder) -> Kit {
        Kit::on(store, self.clock.clone(), configure).await.unwrap()
    }

    /// Starts a worker, and waits until it dies.
    pub(crate) async fn doomed(&self, seat: &Arc<Seat>, configure: impl FnOnce(Builder) -> Builder) {
        let kit = self.worker_on(Arc::clone(seat) as Arc<dyn Store>, configure).await;
        for _ in 0..10_000 {
            if seat.is_dead() {
                drop(kit);
                // The lease of the dead worker expires.
                self.clock.advance(Duration::from_secs(120));
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("the worker did not come to the place where it dies");
    }

    pub(crate) async fn keys(&self, prefix: &str) -> Vec<String> {
        let page = self.memory.list(prefix, "", 1_000).await.unwrap();
        page.entries.into_iter().map(|listed| listed.key).collect()
    }

    pub(crate) async fn delete(&self, keys: impl IntoIterator<Item = String>) {
        let batch = keys.into_iter().fold(Batch::new(), Batch::delete);
        self.memory.write(batch).await.unwrap();
    }

    /// The log of a run as text.
    pub(crate) async fn log(&self, run: &str) -> String {
        let mut text = String::new();
        for key in self.keys(&format!("workflow/{run}/log/")).await {
            text.push_str(&String::from_utf8_lossy(&self.memory.get(&key).await.unwrap().unwrap().body));
        }
        text
    }
}

/// Waits until no run can proceed without time or a signal; fails if that state is never reached.
pub(crate) async fn settle(kit: &Kit) {
    tokio::time::timeout(Duration::from_secs(30), kit.settle()).await.expect("the engine comes to rest").unwrap();
}
