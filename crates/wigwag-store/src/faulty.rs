//! A layer that makes faults, drawn from a seed: for tests and the simulator.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::{
    Action, Batch, Changes, Clock, Error, ErrorKind, Now, Object, Page, Peers, Receipt, Result, Store, System, Traits,
};

/// Probability of each fault, from 0 (never) to 1 (always).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Nothing landed, and the caller gets an error: a throttle, a 503, S3's 409.
    pub refused: f64,
    /// The write landed and its response is lost.
    pub answer_lost: f64,
    /// The write did not land, and the caller gets an unknown outcome.
    pub request_lost: f64,
    /// The write lands only after the caller got an error with an unknown outcome.
    pub late: f64,
    /// The write is rejected as if the bucket did not exist.
    pub bucket_missing: f64,
    /// The operation takes as long as `slow_for`.
    pub slow: f64,
    /// Duration of a slow operation, and delay of a late one.
    pub slow_for: Duration,
}

/// A store that fails at times, the same way for the same seed and the same calls.
#[derive(Clone, Debug)]
pub struct Faulty<S> {
    inner: S,
    faults: Faults,
    chance: Arc<Mutex<fastrand::Rng>>,
    calm: Arc<AtomicBool>,
    clock: Arc<dyn Clock>,
}

impl<S: Store + Clone> Faulty<S> {
    /// Puts the layer around a store.
    pub fn new(inner: S, faults: Faults, seed: u64) -> Self {
        Self::with_clock(inner, faults, seed, Arc::new(System))
    }

    /// Like `new`, with another clock.
    pub fn with_clock(inner: S, faults: Faults, seed: u64, clock: Arc<dyn Clock>) -> Self {
        let chance = Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
        Self { inner, faults, chance, calm: Arc::default(), clock }
    }

    /// Disables all faults, for this layer and its clones.
    pub fn calm_down(&self) {
        self.calm.store(true, Ordering::Relaxed);
    }

    fn happens(&self, often: f64) -> bool {
        !self.calm.load(Ordering::Relaxed)
            && often > 0.0
            && self.chance.lock().unwrap_or_else(PoisonError::into_inner).f64() < often
    }

    async fn before(&self, action: Action, key: &str) -> Result<()> {
        if self.happens(self.faults.slow) {
            self.clock.sleep(self.faults.slow_for).await;
        }
        if self.happens(self.faults.refused) {
            let throttled = Error::new(ErrorKind::Unavailable, "injected: refused, nothing landed").on(action, key);
            return Err(throttled.wait(Some(Duration::from_millis(1))));
        }
        Ok(())
    }
}

impl<S: Store + Clone> Faulty<S> {
    async fn write_whole(&self, batch: Batch) -> Result<Receipt> {
        let key = batch.operations().first().map(|operation| operation.key().to_owned()).unwrap_or_default();
        self.before(Action::Write, &key).await?;
        if self.happens(self.faults.bucket_missing) {
            return Err(Error::invalid("injected: there is no bucket").on(Action::Write, &key).of_settings());
        }
        if self.happens(self.faults.request_lost) {
            return Err(lost(&key));
        }
        if self.happens(self.faults.late) {
            let (inner, clock, after) = (self.inner.clone(), Arc::clone(&self.clock), self.faults.slow_for);
            tokio::spawn(async move {
                clock.sleep(after).await;
                let _ = inner.write(batch).await;
            });
            return Err(lost(&key));
        }
        let receipt = self.inner.write(batch).await?;
        if self.happens(self.faults.answer_lost) { Err(lost(&key)) } else { Ok(receipt) }
    }
}

fn lost(key: &str) -> Error {
    Error::new(ErrorKind::Unknown, "injected: the answer was lost").on(Action::Write, key)
}

#[async_trait]
impl<S: Store + Clone> Store for Faulty<S> {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        self.before(Action::Get, key).await?;
        self.inner.get(key).await
    }

    async fn write(&self, mut batch: Batch) -> Result<Receipt> {
        batch.check()?;
        if self.inner.traits().atomic {
            return self.write_whole(batch).await;
        }
        batch.check_parts()?;
        // If a batch is executed in order, each operation draws a separate fault.
        let mut receipt = Receipt::default();
        if batch.wants_stamp() {
            let stamp = batch.stamp_at(self.inner.now().await?.at)?;
            batch.fill(stamp);
            receipt.stamp = Some(stamp);
        }
        for position in 0..batch.operations.len() {
            match self.write_whole(batch.only(position)).await {
                Ok(one) => receipt.versions.extend(one.versions),
                Err(error) => return Err(error.after_landing(position, receipt.versions)),
            }
        }
        Ok(receipt)
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        self.before(Action::List, prefix).await?;
        self.inner.list(prefix, after, limit).await
    }

    async fn now(&self) -> Result<Now> {
        self.before(Action::Now, "").await?;
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
