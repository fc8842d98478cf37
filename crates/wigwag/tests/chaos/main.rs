//! Engines that crash and restart on one store with faults: every run ends correctly, and no signal is lost.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]
#![expect(clippy::print_stdout, reason = "a failure is printed")]

mod runs;
mod signals;

use std::sync::Arc;
use std::time::Duration;

use wigwag::testing::ManualClock;
use wigwag_store::{Batch, Changes, Memory, Now, Object, Page, Peers, Receipt, Store, Traits};

/// A store that lets other tasks run before and after each request, like a store with real latency.
#[derive(Clone, Debug)]
struct Yielding(Memory);

async fn others() {
    for _ in 0..fastrand::u32(..4) {
        tokio::task::yield_now().await;
    }
}

#[async_trait::async_trait]
impl Store for Yielding {
    async fn get(&self, key: &str) -> wigwag_store::Result<Option<Object>> {
        others().await;
        let found = self.0.get(key).await;
        others().await;
        found
    }
    async fn write(&self, batch: Batch) -> wigwag_store::Result<Receipt> {
        others().await;
        let receipt = self.0.write(batch).await;
        others().await;
        receipt
    }
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> wigwag_store::Result<Page> {
        others().await;
        self.0.list(prefix, after, limit).await
    }
    async fn now(&self) -> wigwag_store::Result<Now> {
        self.0.now().await
    }
    fn changes(&self, prefix: &str) -> Changes {
        self.0.changes(prefix)
    }
    fn traits(&self) -> Traits {
        self.0.traits()
    }
    fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.0.peers()
    }
}

async fn pump(clock: &ManualClock, span: Duration) {
    clock.advance(span);
    for _ in 0..40 {
        tokio::task::yield_now().await;
    }
}

/// Prints the stored objects of a failed run.
async fn dump(memory: &Memory, run: &str) {
    for prefix in [format!("workflow/{run}/"), "due/".to_owned()] {
        for listed in memory.list(&prefix, "", 1_000).await.unwrap().entries {
            let body = memory.get(&listed.key).await.unwrap().unwrap().body;
            println!("{} {}", listed.key, String::from_utf8_lossy(&body).trim());
        }
    }
}

/// Waits for a future while the clock continues.
async fn patient<T: Send + 'static>(clock: &ManualClock, what: impl Future<Output = T> + Send + 'static) -> T {
    let task = tokio::spawn(what);
    while !task.is_finished() {
        pump(clock, Duration::from_millis(20)).await;
    }
    task.await.unwrap()
}

fn seeds() -> std::ops::Range<u64> {
    let first = std::env::var("WIGWAG_SEED").ok().and_then(|seed| seed.parse().ok());
    let count = std::env::var("WIGWAG_SEEDS").ok().and_then(|count| count.parse().ok());
    first.map_or(0..count.unwrap_or(12), |first| first..first + 1)
}
