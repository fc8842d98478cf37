//! A test kit for workflows: weeks of waiting pass in milliseconds, and steps fail on request.
//!
//! ```
//! use std::time::Duration;
//! use wigwag::testing::Kit;
//! use wigwag::{Ctx, Failure, Status, retryable};
//!
//! async fn remind(ctx: Ctx, user: String) -> Result<String, Failure> {
//!     ctx.sleep("a-week", Duration::from_secs(7 * 24 * 3_600)).await?;
//!     ctx.step("mail", || async { Ok(format!("reminded {user}")) }).await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), wigwag::Error> {
//! let kit = Kit::start(|engine| engine.function("remind", 1, remind)).await?;
//! kit.fail("mail", [retryable("the mail server is down")]);
//! let run = kit.client().start("remind", "ada").await?;
//! kit.run_until_idle().await?;
//! assert_eq!(run.result::<String>().await?, "reminded ada");
//! assert!(kit.elapsed() >= Duration::from_secs(7 * 24 * 3_600));
//! # Ok(()) }
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;
use wigwag_core::{Family, Key, RunRef, Time};
use wigwag_store::{Clock, Memory, Stamp, Store};

use crate::client::Client;
use crate::engine::{Builder, Engine};
use crate::engine_core::lock;
use crate::error::{Error, ErrorKind, Result};
use crate::failure::Failure;
use crate::log;
use crate::settings::Settings;
use crate::worker::Ask;

/// A clock that is moved by hand. Clones are the same clock.
#[derive(Clone, Debug)]
pub struct ManualClock {
    state: Arc<Mutex<Hands>>,
}

#[derive(Debug)]
struct Hands {
    now: Stamp,
    count: u64,
    sleepers: BTreeMap<(Stamp, u64), oneshot::Sender<()>>,
}

const BEGINNING: Stamp = Stamp::from_micros(1_767_225_600_000_000);

impl Default for ManualClock {
    /// A clock set to the start of 2026.
    fn default() -> Self {
        let hands = Hands { now: BEGINNING, count: 0, sleepers: BTreeMap::new() };
        Self { state: Arc::new(Mutex::new(hands)) }
    }
}

impl ManualClock {
    /// Advances the clock, and wakes its sleepers.
    pub fn advance(&self, span: Duration) {
        let to = lock(&self.state).now.after(span);
        self.advance_to(to);
    }

    fn advance_to(&self, to: Stamp) {
        let mut hands = lock(&self.state);
        hands.now = hands.now.max(to);
        let later = hands.sleepers.split_off(&(to.after(Duration::from_micros(1)), 0));
        for sleeper in std::mem::replace(&mut hands.sleepers, later).into_values() {
            let _ = sleeper.send(());
        }
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn wall(&self) -> Stamp {
        lock(&self.state).now
    }

    fn boot(&self) -> Duration {
        lock(&self.state).now.since(Stamp::default())
    }

    async fn sleep(&self, span: Duration) {
        let woken = {
            let mut hands = lock(&self.state);
            let (wake, woken) = oneshot::channel();
            hands.count += 1;
            let (at, count) = (hands.now.after(span), hands.count);
            hands.sleepers.retain(|_, sleeper| !sleeper.is_closed());
            hands.sleepers.insert((at, count), wake);
            woken
        };
        let _ = woken.await;
    }
}

/// An engine on a store in memory, with a clock that is moved by hand.
#[derive(Debug)]
pub struct Kit {
    engine: Engine,
    store: Arc<dyn Store>,
    clock: ManualClock,
}

impl Kit {
    /// Starts an engine with the workflows that `configure` adds.
    pub async fn start(configure: impl FnOnce(Builder) -> Builder) -> Result<Self> {
        let clock = ManualClock::default();
        let store = Arc::new(Memory::with_clock(Arc::new(clock.clone())));
        Self::on(store, clock, configure).await
    }

    /// Like [`Self::start`], on a store of your own, such as one with injected faults, with the same clock.
    pub async fn on(
        store: Arc<dyn Store>,
        clock: ManualClock,
        configure: impl FnOnce(Builder) -> Builder,
    ) -> Result<Self> {
        // Without lingering, every wait parks the run, and the due index shows its next timer.
        let settings = Settings { linger: Duration::ZERO, sweep_every: None, ..Settings::default() };
        let builder = Engine::builder(Arc::clone(&store)).settings(settings).clock(Arc::new(clock.clone()));
        let engine = configure(builder).start().await?;
        Ok(Self { engine, store, clock })
    }

    /// Returns a client for starting, signalling and inspecting runs.
    #[must_use]
    pub fn client(&self) -> Client {
        self.engine.client()
    }

    /// The clock of the engine.
    #[must_use]
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// The store of the engine.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Total time by which the clock was advanced.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.clock.wall().since(BEGINNING)
    }

    /// Makes the next attempts of a step fail with these failures, in order, without running its code.
    pub fn fail(&self, step: &str, failures: impl IntoIterator<Item = Failure>) {
        let inner = &self.client().inner;
        lock(&inner.failures).entry(step.to_owned()).or_default().extend(failures);
    }

    /// Waits until no run can proceed without time or a signal.
    pub async fn settle(&self) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        let stopped = || Error::new(ErrorKind::Stopped, "the engine has stopped");
        self.engine.asks.send(Ask::Idle(answer)).await.map_err(|_| stopped())?;
        answered.await.map_err(|_| stopped())
    }

    /// Advances the clock, and waits until no run can proceed.
    pub async fn advance(&self, span: Duration) -> Result<()> {
        self.settle().await?;
        self.clock.advance(span);
        self.settle().await
    }

    /// Advances the clock from one due time to the next, until all runs have ended or wait for something
    /// other than time.
    pub async fn run_until_idle(&self) -> Result<()> {
        loop {
            self.settle().await?;
            let Some(next) = self.next_at().await? else { return Ok(()) };
            self.clock.advance_to(Stamp::from_micros(next.micros()));
        }
    }

    /// The next due time of a wake-up that is more than a patrol.
    pub async fn next_at(&self) -> Result<Option<Time>> {
        let mut after = String::new();
        loop {
            let page = self.store.list("due/", &after, 1_000).await?;
            for listed in &page.entries {
                let Ok(Key::Due(hint)) = listed.key.parse::<Key>() else { continue };
                for family in [Family::Workflow, Family::Task] {
                    let run = RunRef { family, id: hint.run.clone() };
                    let Some(loaded) = log::read(&*self.store, &run).await? else { continue };
                    let patrols = loaded.run.next_at.is_none();
                    let listed = loaded.run.hints.iter().any(|listed| hint.descends_from(listed));
                    let served = self.serves(&hint.kind);
                    if served && !loaded.run.status.is_final() && !(patrols && listed) {
                        return Ok(Some(hint.due));
                    }
                }
            }
            match page.entries.last() {
                Some(last) if page.more => after.clone_from(&last.key),
                _ => return Ok(None),
            }
        }
    }

    fn serves(&self, kind: &str) -> bool {
        !self.client().inner.registry.families(kind).is_empty()
    }

    /// Ends the engine as a crash would, and starts another on the same store.
    pub async fn crash(self, configure: impl FnOnce(Builder) -> Builder) -> Result<Self> {
        let Self { engine, store, clock } = self;
        drop(engine);
        // Without liveness records the death of a process cannot be detected: its leases must expire.
        clock.advance(Settings::default().lease * 2);
        Self::on(store, clock, configure).await
    }
}
