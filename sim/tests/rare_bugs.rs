//! Deliberate bugs that random worlds find too rarely for a seed to be kept. Each has a scenario in which the engine keeps the
//! guarantee, and violates it with the bug.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use wigwag::testing::{Kit, ManualClock};
use wigwag::{AuditOptions, Ctx, Engine, Failure, PruneOptions, Status};
use wigwag_core::mutation::{Mutation, mutate};
use wigwag_store::{
    Batch, Changes, Error, ErrorKind, Memory, Now, Object, Page, Peers, Receipt, Result, Store, Traits,
};

/// When a write is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hold {
    /// Before it is applied.
    Before,
    /// After it was applied, until it is answered.
    After,
    /// After it was applied; then the answer is lost.
    AnswerLost,
}

/// Holds the first write of an object whose key and body contain these texts, until it is opened.
#[derive(Debug)]
struct Gate {
    hold: Hold,
    key_part: &'static str,
    body_part: &'static str,
    is_used: AtomicBool,
    reached: Notify,
    opened: Notify,
}

/// A store in memory with a gate.
#[derive(Clone, Debug)]
struct Gated {
    memory: Memory,
    gate: Arc<Gate>,
}

impl Gated {
    fn new(memory: &Memory, hold: Hold, key_part: &'static str, body_part: &'static str) -> Self {
        let (is_used, reached, opened) = Default::default();
        Self { memory: memory.clone(), gate: Arc::new(Gate { hold, key_part, body_part, is_used, reached, opened }) }
    }

    async fn hold(&self) {
        self.gate.reached.notify_one();
        self.gate.opened.notified().await;
    }
}

#[async_trait]
impl Store for Gated {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        self.memory.get(key).await
    }
    async fn write(&self, batch: Batch) -> Result<Receipt> {
        let Gate { hold, key_part, body_part, is_used, .. } = &*self.gate;
        let has = |body: &[u8]| String::from_utf8_lossy(body).contains(body_part);
        let fits = batch.puts().any(|put| put.key.contains(key_part) && has(&put.body));
        let held = fits && !is_used.swap(true, Ordering::SeqCst);
        if held && *hold == Hold::Before {
            self.hold().await;
        }
        let written = self.memory.write(batch).await;
        if held && *hold != Hold::Before {
            self.hold().await;
        }
        match held && *hold == Hold::AnswerLost {
            true => Err(Error::of_kind(ErrorKind::Unknown)),
            false => written,
        }
    }
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        self.memory.list(prefix, after, limit).await
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

/// Plays a scenario without a bug and with it.
fn is_caught<F: Future<Output = std::result::Result<(), String>>>(bug: Mutation, scenario: impl Fn() -> F) {
    let play = |bug| {
        mutate(bug);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let outcome = runtime.block_on(scenario());
        mutate(None);
        outcome
    };
    assert_eq!(play(None), Ok(()), "the engine keeps the guarantee");
    assert!(play(Some(bug)).is_err(), "{bug:?} is not found");
}

/// A worker is suspended while it waits for the answer to the entry that starts a step; at that time another one completes the
/// run. The code of the step is called once.
async fn a_suspended_worker_starts_no_step() -> std::result::Result<(), String> {
    let clock = ManualClock::default();
    let memory = Memory::bucket_with_clock(Arc::new(clock.clone()));
    let calls = Arc::new(AtomicU32::new(0));
    let code = {
        let calls = Arc::clone(&calls);
        move |ctx: Ctx, (): ()| {
            let calls = Arc::clone(&calls);
            async move {
                ctx.step("a", || async {
                    calls.fetch_add(1, Ordering::SeqCst);
                    Ok::<_, Failure>(())
                })
                .await
            }
        }
    };
    let store = Gated::new(&memory, Hold::After, "/log/", "step.started");
    let first = Kit::on(Arc::new(store.clone()), clock.clone(), |engine| engine.function("f", 1, code.clone()));
    let first = first.await.unwrap();
    let client = first.client();
    let starting = tokio::spawn(async move { client.start("f", &()).id("r").await });
    store.gate.reached.notified().await;
    clock.advance(Duration::from_secs(61));
    let second = Kit::on(Arc::new(memory), clock, |engine| engine.function("f", 1, code)).await.unwrap();
    second.run_until_idle().await.unwrap();
    assert_eq!(second.client().run("r").unwrap().status().await.unwrap(), Status::Completed);
    store.gate.opened.notify_one();
    _ = starting.await.unwrap();
    first.settle().await.unwrap();
    match calls.load(Ordering::SeqCst) {
        1 => Ok(()),
        calls => Err(format!("the step ran {calls} times")),
    }
}

#[test]
fn a_worker_that_continues_after_its_lease_is_caught() {
    is_caught(Mutation::ZombieMayFinish, a_suspended_worker_starts_no_step);
}

/// A sender is suspended before it stores its signal. The run ends then, and retention removes it: the signal must not be
/// acknowledged, because no run is left to consume it.
async fn a_signal_to_a_removed_run_is_rejected() -> std::result::Result<(), String> {
    let clock = ManualClock::default();
    let memory = Memory::with_clock(Arc::new(clock.clone()));
    let code = |ctx: Ctx, (): ()| async move { ctx.wait::<u32>("go").await };
    let kit = Kit::on(Arc::new(memory.clone()), clock.clone(), |engine| engine.function("f", 1, code)).await.unwrap();
    kit.client().start("f", &()).id("r").await.unwrap();
    kit.settle().await.unwrap();
    let store = Gated::new(&memory, Hold::Before, "/signals/go/", "");
    let sender = Engine::builder(Arc::new(store.clone())).clock(Arc::new(clock.clone())).client().await.unwrap();
    let sending = tokio::spawn(async move { sender.signal("r", "go", &1).await });
    store.gate.reached.notified().await;
    kit.client().signal("r", "go", &2).await.unwrap();
    kit.settle().await.unwrap();
    clock.advance(Duration::from_secs(3_600));
    let pruned = kit.client().prune(&PruneOptions::older_than(Duration::ZERO)).await.unwrap();
    assert_eq!(pruned.runs, 1);
    store.gate.opened.notify_one();
    match sending.await.unwrap() {
        Err(error) if error.kind() == wigwag::ErrorKind::Gone => Ok(()),
        answer => Err(format!("the signal was answered: {answer:?}")),
    }
}

#[test]
fn a_slow_sender_that_does_not_read_the_run_again_is_caught() {
    is_caught(Mutation::SlowSenderTrusts, a_signal_to_a_removed_run_is_rejected);
}

/// The answer to the entry that parks a run is lost, and another worker completes the run before the first one reads its entry
/// back. Nothing of the park is written again.
async fn a_landed_entry_is_not_repeated() -> std::result::Result<(), String> {
    let clock = ManualClock::default();
    let memory = Memory::with_clock(Arc::new(clock.clone()));
    let code = |ctx: Ctx, (): ()| async move { ctx.wait::<u32>("go").await };
    let store = Gated::new(&memory, Hold::AnswerLost, "/log/", "run.parked");
    let first = Kit::on(Arc::new(store.clone()), clock.clone(), |engine| engine.function("f", 1, code)).await.unwrap();
    let client = first.client();
    let starting = tokio::spawn(async move { client.start("f", &()).id("r").await });
    store.gate.reached.notified().await;
    let second =
        Kit::on(Arc::new(memory.clone()), clock.clone(), |engine| engine.function("f", 1, code)).await.unwrap();
    let client = second.client();
    client.signal("r", "go", &1).await.unwrap();
    second.settle().await.unwrap();
    assert_eq!(client.run("r").unwrap().status().await.unwrap(), Status::Completed);
    store.gate.opened.notify_one();
    while !starting.is_finished() {
        // A worker that writes again waits a moment before.
        clock.advance(Duration::from_millis(100));
        tokio::task::yield_now().await;
    }
    first.settle().await.unwrap();
    let audit = client.audit(&AuditOptions::at_rest(), |_| {}).await.unwrap();
    match audit.broken.iter().chain(&audit.untidy).next() {
        None => Ok(()),
        Some(breach) => Err(breach.to_string()),
    }
}

#[test]
fn a_commit_that_is_repeated_after_it_landed_is_caught() {
    is_caught(Mutation::RepeatedAfterLanding, a_landed_entry_is_not_repeated);
}
