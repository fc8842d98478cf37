//! A layer: repeats what is safe to repeat, and says `Unknown` of the rest.
//!
//! | what happened | then |
//! |---|---|
//! | a read failed with `Unavailable` | repeated |
//! | nothing of an operation landed (`Unavailable`) | repeated from that operation on |
//! | an operation may have landed (`Unknown`), its key known beforehand | repeated: it writes the same bytes to the same key |
//! | the same, its key to be stamped inside the commit | `Unknown`: repeated, it would be a second object |
//! | a conditional put is refused after an attempt that may have landed | read back: our bytes → it had landed; a created key with other bytes → we lost; else (updated or deleted since) `Unknown` |
//! | time or tries run out | `Unknown` if any attempt may have landed or part of the batch did, else `Unavailable` |
//!
//! Where the store draws stamps beforehand ([`Traits::stamps_at_commit`] is false), this layer draws them once,
//! so that every attempt writes the same key.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tracing::debug;

use crate::{
    Batch, Changes, Clock, Error, ErrorKind, Now, Object, Operation, Page, Peers, Receipt, Result, Store, System,
    Traits, Version, When,
};

/// How often and how long a failed operation is repeated.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RetrySettings {
    /// Tries after the first.
    pub tries_max: u32,
    /// The pause before the second try; it doubles each time, and up to half of it is chance.
    pub pause_first: Duration,
    /// The longest pause.
    pub pause_max: Duration,
    /// No further try is begun after this long, nor waited for longer, whatever the server asks.
    pub time_max: Duration,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            tries_max: 8,
            pause_first: Duration::from_millis(50),
            pause_max: Duration::from_secs(2),
            time_max: Duration::from_secs(30),
        }
    }
}

impl RetrySettings {
    /// Settings with this many tries after the first, and this pause before the second.
    #[must_use]
    pub fn new(tries_max: u32, pause_first: Duration) -> Self {
        Self { tries_max, pause_first, ..Self::default() }
    }
}

/// A store that repeats what is safe to repeat.
#[derive(Clone, Debug)]
pub struct Retry<S> {
    inner: S,
    settings: RetrySettings,
    clock: Arc<dyn Clock>,
}

impl<S: Store> Retry<S> {
    /// Puts the layer around a store.
    pub fn new(inner: S, settings: RetrySettings) -> Self {
        Self::with_clock(inner, settings, Arc::new(System))
    }

    /// The same by another clock.
    pub fn with_clock(inner: S, settings: RetrySettings, clock: Arc<dyn Clock>) -> Self {
        Self { inner, settings, clock }
    }

    fn patience(&self) -> Patience<'_> {
        Patience { settings: &self.settings, clock: &*self.clock, since: self.clock.boot(), tries: 0 }
    }

    /// Reads back the conditional put that was refused.
    async fn read_back(&self, rest: &Batch, refusal: &Error) -> Result<ReadBack> {
        let Some(put) = rest.conditional().filter(|put| put.key == refusal.key()) else { return Ok(ReadBack::Theirs) };
        Ok(match self.get(&put.key).await? {
            Some(object) if object.body == put.body => ReadBack::Ours(object.version),
            // A key that was created once and holds other bytes was never ours: what is created is not replaced
            // by plain puts.
            Some(_) if put.when == When::Absent => ReadBack::Theirs,
            // Ours may have landed and been updated or deleted by another since.
            _ => ReadBack::Gone,
        })
    }
}

/// What was found where a conditional put was refused after an attempt that may have landed.
enum ReadBack {
    Ours(Version),
    Theirs,
    Gone,
}

/// How much longer to go on with one operation.
struct Patience<'a> {
    settings: &'a RetrySettings,
    clock: &'a dyn Clock,
    since: Duration,
    tries: u32,
}

impl Patience<'_> {
    /// Waits before another try, or says that there will be none.
    async fn again(&mut self, error: &Error) -> bool {
        let spent = self.clock.boot().saturating_sub(self.since);
        if self.tries >= self.settings.tries_max {
            return false;
        }
        let pause = self.settings.pause_first.saturating_mul(1 << self.tries.min(16)).min(self.settings.pause_max);
        let pause = pause.mul_f64(0.5 + fastrand::f64() / 2.0).max(error.retry_after().unwrap_or_default());
        if spent + pause > self.settings.time_max {
            return false;
        }
        self.tries += 1;
        debug!(%error, tries = self.tries, ?pause, "trying again");
        self.clock.sleep(pause).await;
        true
    }
}

#[async_trait]
impl<S: Store> Store for Retry<S> {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        let mut patience = self.patience();
        loop {
            match self.inner.get(key).await {
                Err(error) if is_passing(&error) && patience.again(&error).await => {}
                answer => return answer,
            }
        }
    }

    async fn write(&self, mut batch: Batch) -> Result<Receipt> {
        batch.check()?;
        let mut receipt = Receipt::default();
        if batch.wants_stamp() && !self.inner.traits().stamps_at_commit {
            let stamp = batch.stamp_at(self.now().await?.at)?;
            batch.fill(stamp);
            receipt.stamp = Some(stamp);
        }
        let mut attempt = Attempt { rest: batch, versions: Vec::new(), landed: 0, doubtful: false };
        let mut patience = self.patience();
        loop {
            let error = match self.inner.write(attempt.rest.clone()).await {
                Ok(rest) => {
                    attempt.versions.extend(rest.versions);
                    return Ok(Receipt { stamp: receipt.stamp.or(rest.stamp), versions: attempt.versions });
                }
                Err(error) => error,
            };
            attempt.advance(&error);
            if error.is_lost() && attempt.doubtful {
                match self.read_back(&attempt.rest, &error).await {
                    Ok(ReadBack::Ours(version)) => attempt.pass(&version, self.inner.traits().atomic),
                    Ok(ReadBack::Theirs) => return Err(attempt.give_up(error)),
                    Ok(ReadBack::Gone) => return Err(attempt.give_up(error.with_kind(ErrorKind::Unknown))),
                    Err(unread) => return Err(attempt.give_up(unread.with_kind(ErrorKind::Unknown))),
                }
                continue;
            }
            attempt.doubtful |= error.is_unknown();
            let safe = !(error.is_unknown() && attempt.rest.wants_stamp());
            if !(is_passing(&error) && safe && patience.again(&error).await) {
                return Err(attempt.give_up(error));
            }
        }
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        let mut patience = self.patience();
        loop {
            match self.inner.list(prefix, after, limit).await {
                Err(error) if is_passing(&error) && patience.again(&error).await => {}
                answer => return answer,
            }
        }
    }

    async fn now(&self) -> Result<Now> {
        let mut patience = self.patience();
        loop {
            match self.inner.now().await {
                Err(error) if is_passing(&error) && patience.again(&error).await => {}
                answer => return answer,
            }
        }
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

/// Whether another try may go better.
fn is_passing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown)
}

/// A batch on its way.
struct Attempt {
    /// What has not landed yet, as far as is known.
    rest: Batch,
    versions: Vec<Version>,
    landed: usize,
    /// An attempt at the operation at the head of `rest`, or after it, may have landed.
    doubtful: bool,
}

impl Attempt {
    /// Leaves behind what landed before the failure.
    fn advance(&mut self, error: &Error) {
        if error.landed() > 0 {
            self.versions.extend_from_slice(error.landed_versions());
            self.rest = self.rest.rest(error.landed());
            self.landed += error.landed();
            // What was in doubt stood before or at what is now known to have landed.
            self.doubtful = false;
        }
    }

    /// The conditional put turned out to be ours: on an atomic store all of the batch landed with it, elsewhere
    /// it stands at the head of the rest.
    fn pass(&mut self, version: &Version, atomic: bool) {
        let landed = if atomic { self.rest.operations.len() } else { 1 };
        for put in self.rest.operations[..landed].iter().filter_map(Operation::as_put) {
            self.versions.push(if put.when == When::Any { Version::lost() } else { version.clone() });
        }
        self.rest = self.rest.rest(landed);
        self.landed += landed;
        self.doubtful = false;
    }

    /// What the caller is told: never that nothing landed when something did, or may have.
    fn give_up(&self, error: Error) -> Error {
        let nothing_landed = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Full);
        let unsure = self.doubtful || (self.landed > 0 && nothing_landed);
        let told = if unsure && !error.is_lost() { error.with_kind(ErrorKind::Unknown) } else { error };
        told.after_landing(self.landed, self.versions.clone())
    }
}
