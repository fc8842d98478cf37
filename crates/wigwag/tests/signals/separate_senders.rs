//! Senders in processes of their own, each with its own idea of the bucket's time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use wigwag::store::{Batch, Changes, Memory, Now, Object, Page, Peers, Receipt, Result, Stamp, Store, Traits};
use wigwag::testing::{Kit, ManualClock};
use wigwag::{Client, Ctx, Engine, Failure};

/// A bucket as a process sees it whose estimate of the time is off by so many microseconds.
#[derive(Debug)]
struct OffBy {
    memory: Memory,
    micros: i64,
    uncertainty: Duration,
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
        self.memory.list(prefix, after, limit).await
    }
    async fn now(&self) -> Result<Now> {
        let at = self.memory.now().await?.at.micros().saturating_add_signed(self.micros);
        Ok(Now { at: Stamp::from_micros(at), uncertainty: self.uncertainty })
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

/// A new process.
async fn process(memory: &Memory, clock: &ManualClock, micros: i64, uncertainty: Duration) -> Client {
    let store = Arc::new(OffBy { memory: memory.clone(), micros, uncertainty });
    Engine::builder(store).clock(Arc::new(clock.clone())).client().await.unwrap()
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
    // A process may know the time well or badly; all that is promised is that the truth is within its uncertainty.
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
