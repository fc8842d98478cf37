//! Senders in separate processes, each with a different estimate of the bucket's time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use wigwag::testing::{Kit, ManualClock};
use wigwag::{Client, Ctx, Engine, Failure};
use wigwag_store::{Batch, Changes, Memory, Now, Object, Page, Peers, Receipt, Result, Stamp, Store, Traits};

/// A bucket seen by a process whose estimate of the time is wrong by this many microseconds.
#[derive(Debug)]
struct OffBy {
    memory: Memory,
    micros: i64,
    uncertainty: Duration,
    /// Uncertainty of the estimate from the first listing on.
    after_list: Option<Duration>,
    has_listed: AtomicBool,
}

#[async_trait]
impl Store for OffBy {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        self.memory.get(key).await
    }
    async fn write(&self, batch: Batch) -> Result<Receipt> {
        self.memory.write(batch).await
    }
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        self.has_listed.store(true, Ordering::SeqCst);
        self.memory.list(prefix, after, limit).await
    }
    async fn now(&self) -> Result<Now> {
        let at = self.memory.now().await?.at.micros().saturating_add_signed(self.micros);
        let later = self.after_list.filter(|_| self.has_listed.load(Ordering::SeqCst));
        Ok(Now { at: Stamp::from_micros(at), uncertainty: later.unwrap_or(self.uncertainty) })
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

/// Returns the client of a new process.
async fn process(memory: &Memory, clock: &ManualClock, micros: i64, uncertainty: Duration) -> Client {
    process_on(off_by(memory, micros, uncertainty), clock).await
}

fn off_by(memory: &Memory, micros: i64, uncertainty: Duration) -> OffBy {
    OffBy { memory: memory.clone(), micros, uncertainty, after_list: None, has_listed: AtomicBool::new(false) }
}

async fn process_on(store: OffBy, clock: &ManualClock) -> Client {
    Engine::builder(Arc::new(store)).clock(Arc::new(clock.clone())).client().await.unwrap()
}

#[tokio::test]
async fn senders_that_wait_for_each_other_are_consumed_in_the_order_of_their_acknowledgements() {
    let clock = ManualClock::default();
    let memory = Memory::bucket_with_clock(Arc::new(clock.clone()));
    let code = |ctx: Ctx, count: usize| async move {
        let mut got = Vec::new();
        for _ in 0..count {
            got.push(ctx.wait::<usize>("n").await?);
        }
        Ok::<_, Failure>(got)
    };
    // Estimates of processes differ in quality; the only promise is that the true time is within the uncertainty.
    let second = Duration::from_secs(1);
    let offsets = [900_000, -900_000, 20_000, -20_000, 500_000, 0, -999_000, 999_000, -400_000, 15_000];
    let run = process(&memory, &clock, 0, second).await.start("f", &(2 * offsets.len())).id("r").await.unwrap();
    for (number, micros) in offsets.into_iter().chain(offsets.into_iter().rev()).enumerate() {
        let uncertainty = if micros < 30_000 && micros > -30_000 { Duration::from_millis(30) } else { second };
        let sender = process(&memory, &clock, micros, uncertainty).await;
        let call = sender.signal("r", "n", &number);
        let call = if number % 3 == 0 { call.key(format!("k{number}")) } else { call };
        call.await.unwrap();
        clock.advance(Duration::from_millis(20));
    }
    let kit = Kit::on(Arc::new(memory), clock, |engine| engine.function("f", 1, code)).await.unwrap();
    kit.run_until_idle().await.unwrap();
    let got = kit.client().run(run.id()).unwrap().result::<Vec<usize>>().await.unwrap();
    assert_eq!(got, (0..2 * offsets.len()).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_sender_whose_idea_of_the_time_becomes_less_certain_stamps_after_signals_that_it_did_not_list() {
    let clock = ManualClock::default();
    let memory = Memory::bucket_with_clock(Arc::new(clock.clone()));
    let code = |ctx: Ctx, (): ()| async move {
        let first: usize = ctx.wait("n").await?;
        let second: usize = ctx.wait("n").await?;
        Ok::<_, Failure>(vec![first, second])
    };
    let well = Duration::from_millis(10);
    let run = process(&memory, &clock, 0, well).await.start("f", &()).id("r").await.unwrap();
    process(&memory, &clock, 0, well).await.signal("r", "n", &1).await.unwrap();
    clock.advance(Duration::from_secs(1));
    // The sender lists the last 20 ms; then its estimate is so uncertain that its stamp might precede the first signal.
    let after_list = Some(Duration::from_millis(1_500));
    let wavering = process_on(OffBy { after_list, ..off_by(&memory, 0, well) }, &clock).await;
    wavering.signal("r", "n", &2).await.unwrap();
    let kit = Kit::on(Arc::new(memory), clock, |engine| engine.function("f", 1, code)).await.unwrap();
    kit.run_until_idle().await.unwrap();
    assert_eq!(kit.client().run(run.id()).unwrap().result::<Vec<usize>>().await.unwrap(), [1, 2]);
}
