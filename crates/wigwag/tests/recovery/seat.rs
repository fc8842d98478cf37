//! A store as a process sees it whose death, answers and clock a test decides.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wigwag::testing::{Kit, ManualClock};
use wigwag::{Builder, Client, Engine};
use wigwag_store::{
    Batch, Changes, Error, ErrorKind, Memory, Now, Object, Page, Peers, Receipt, Result, Store, Traits,
};

/// What happens to a write that a test looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The process dies before it.
    DiesBefore,
    /// The process dies after it.
    DiesAfter,
    /// It is applied, and its answer lost.
    AnswerLost,
}

/// The store of one process.
#[derive(Debug)]
pub(crate) struct Seat {
    memory: Memory,
    /// The first write that puts a body with this text meets the fault.
    fault: Mutex<Option<(&'static str, Fault)>>,
    dead: AtomicBool,
    /// How far off the process's idea of the time may be.
    pub(crate) uncertainty: Duration,
    /// Clock that advances by this duration with each write of an entry.
    pub(crate) tick: Option<(ManualClock, Duration)>,
    writing: AtomicUsize,
    /// Most writes that were under way at the same time.
    pub(crate) most_writing: AtomicUsize,
    /// While true, inboxes are not listed: turns hang.
    pub(crate) hangs: AtomicBool,
    /// Turns hang from the moment on that a run is parked.
    pub(crate) hangs_when_parked: bool,
    /// Listings of wake-ups.
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

/// A store, its clock and a client to whom nothing happens.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) memory: Memory,
    pub(crate) client: Client,
}

impl World {
    /// On a store whose batches are atomic.
    pub(crate) async fn new() -> Self {
        let clock = ManualClock::default();
        let memory = Memory::with_clock(Arc::new(clock.clone()));
        Self::on(clock, memory).await
    }

    /// On a bucket.
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

    /// A worker that lives on.
    pub(crate) async fn worker(&self, configure: impl FnOnce(Builder) -> Builder) -> Kit {
        self.worker_on(Arc::new(self.memory.clone()), configure).await
    }

    pub(crate) async fn worker_on(&self, store: Arc<dyn Store>, configure: impl FnOnce(Builder) -> Builder) -> Kit {
        Kit::on(store, self.clock.clone(), configure).await.unwrap()
    }

    /// A worker that drives runs until it dies.
    pub(crate) async fn doomed(&self, seat: &Arc<Seat>, configure: impl FnOnce(Builder) -> Builder) {
        let kit = self.worker_on(Arc::clone(seat) as Arc<dyn Store>, configure).await;
        for _ in 0..10_000 {
            if seat.is_dead() {
                drop(kit);
                // Its lease runs out.
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

/// Lets everything happen that can happen now; fails if that has no end.
pub(crate) async fn settle(kit: &Kit) {
    tokio::time::timeout(Duration::from_secs(30), kit.settle()).await.expect("the engine comes to rest").unwrap();
}
