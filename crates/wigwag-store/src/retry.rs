//! A layer: retries idempotent requests, and returns `Unknown` for the rest.
//!
//! | event | consequence |
//! |---|---|
//! | a read failed with `Unavailable` | retried |
//! | no part of an operation landed (`Unavailable`) | retried from that operation on |
//! | an operation may have landed (`Unknown`), its key known beforehand | retried: it writes the same bytes to the same key |
//! | the same, its key to be stamped inside the commit | `Unknown`: a retry would create a second object |
//! | a conditional put is rejected after an attempt that may have landed | read back: our bytes → it had landed; a created key with other bytes → another writer won; else (updated or deleted since) `Unknown` |
//! | time or attempts are exhausted | `Unknown` if any attempt may have landed or part of the batch did, else `Unavailable` |
//!
//! Retries are limited by time, not by number: an outage shorter than [`RetrySettings::time_max`] causes no error. When
//! the store throttles any request (a response with `Retry-After`), all writes of this process to that store wait, and each
//! returns up to a quarter later at random, so that they do not all return at the same moment.
//!
//! Where the store draws stamps beforehand ([`Traits::stamps_at_commit`] is false), this layer draws them once,
//! so that every attempt writes the same key.

#[cfg(any(feature = "_bucket", test))]
use std::sync::Weak;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tracing::debug;

use crate::{
    Batch, Changes, Clock, Error, ErrorKind, Now, Object, Operation, Page, Peers, Receipt, Result, Store, System,
    Traits, Version, When,
};

/// Limits for retries of a failed operation.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RetrySettings {
    /// Attempts after the first; by default as many as fit the time.
    pub tries_max: u32,
    /// The delay before the second attempt; it doubles each time, with up to half of it random.
    pub pause_first: Duration,
    /// The longest pause.
    pub pause_max: Duration,
    /// No further attempt starts after this time, and no delay exceeds it, whatever the server demands.
    pub time_max: Duration,
    /// Source of jitter: returns numbers from 0 up to, but not including, 1.
    pub random: fn() -> f64,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            tries_max: u32::MAX,
            pause_first: Duration::from_millis(50),
            pause_max: Duration::from_secs(2),
            time_max: Duration::from_secs(60),
            random: fastrand::f64,
        }
    }
}

impl RetrySettings {
    /// Settings with this many attempts after the first, and this delay before the second.
    #[must_use]
    pub fn new(tries_max: u32, pause_first: Duration) -> Self {
        Self { tries_max, pause_first, ..Self::default() }
    }
}

/// A store that retries idempotent requests.
#[derive(Clone, Debug)]
pub struct Retry<S> {
    inner: S,
    settings: RetrySettings,
    clock: Arc<dyn Clock>,
    throttle: Arc<Throttle>,
}

/// Throttling by a store; shared by all layers of this process around that store.
#[derive(Debug, Default)]
struct Throttle {
    /// End of the throttling, by the monotonic clock.
    until: Mutex<Duration>,
}

/// Throttles of this process by the address of their store.
#[cfg(any(feature = "_bucket", test))]
static THROTTLES: Mutex<Vec<(String, Weak<Throttle>)>> = Mutex::new(Vec::new());

impl Throttle {
    /// Returns the one of a store's address.
    #[cfg(any(feature = "_bucket", test))]
    fn of(address: &str) -> Arc<Self> {
        let mut all = THROTTLES.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, throttle)| throttle.strong_count() > 0);
        let known = all.iter().find(|(known, _)| known == address).and_then(|(_, throttle)| throttle.upgrade());
        known.unwrap_or_else(|| {
            let throttle = Arc::new(Self::default());
            all.push((address.to_owned(), Arc::downgrade(&throttle)));
            throttle
        })
    }

    fn until(&self) -> MutexGuard<'_, Duration> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the delay that the store demands.
    fn note(&self, error: &Error, clock: &dyn Clock) {
        if let Some(span) = error.retry_after() {
            let mut until = self.until();
            *until = (*until).max(clock.boot() + span);
        }
    }

    /// Waits until the store accepts writes again, and a little longer ([`spread`]). Returns at once if that is not within
    /// `left`: the store decides about one more attempt.
    async fn pass(&self, clock: &dyn Clock, left: Duration, random: fn() -> f64) {
        let span = self.until().saturating_sub(clock.boot());
        if !span.is_zero() && span < left {
            clock.sleep(spread(span, random())).await;
        }
    }
}

/// A delay that the store demands, and up to a quarter of it longer, so that writers rejected together return at different
/// times and not as one burst.
fn spread(demanded: Duration, random: f64) -> Duration {
    demanded + demanded.mul_f64(random / 4.0)
}

/// The delay before the attempt after `tries` others: half to all of a backoff that doubles, or what the store demands.
fn pause(settings: &RetrySettings, tries: u32, demanded: Option<Duration>, random: f64) -> Duration {
    let backoff = settings.pause_first.saturating_mul(1 << tries.min(16)).min(settings.pause_max);
    backoff.mul_f64(0.5 + random / 2.0).max(spread(demanded.unwrap_or_default(), random))
}

impl<S: Store> Retry<S> {
    /// Puts the layer around a store.
    pub fn new(inner: S, settings: RetrySettings) -> Self {
        Self::with_clock(inner, settings, Arc::new(System))
    }

    /// Like `new`, with another clock.
    pub fn with_clock(inner: S, settings: RetrySettings, clock: Arc<dyn Clock>) -> Self {
        Self { inner, settings, clock, throttle: Arc::default() }
    }

    /// Shares throttling with all layers of this process around the store of this address.
    #[cfg(any(feature = "_bucket", test))]
    pub(crate) fn throttled_with(self, address: &str) -> Self {
        Self { throttle: Throttle::of(address), ..self }
    }

    fn patience(&self) -> Patience<'_> {
        let (settings, clock, throttle) = (&self.settings, &*self.clock, &*self.throttle);
        Patience { settings, clock, throttle, since: clock.boot(), tries: 0 }
    }

    /// Reads back the rejected conditional put.
    async fn read_back(&self, rest: &Batch, refusal: &Error) -> Result<ReadBack> {
        let Some(put) = rest.conditional().filter(|put| put.key == refusal.key()) else { return Ok(ReadBack::Theirs) };
        Ok(match self.get(&put.key).await? {
            Some(object) if object.body == put.body => ReadBack::Ours(object.version),
            // A created key with other bytes was never ours: plain puts do not replace created objects.
            Some(_) if put.when == When::Absent => ReadBack::Theirs,
            // Ours may have landed and been updated or deleted by another since.
            _ => ReadBack::Gone,
        })
    }
}

/// Result of a read after a conditional put was rejected following an attempt that may have landed.
enum ReadBack {
    Ours(Version),
    Theirs,
    Gone,
}

/// Remaining time for retries of one operation.
struct Patience<'a> {
    settings: &'a RetrySettings,
    clock: &'a dyn Clock,
    throttle: &'a Throttle,
    since: Duration,
    tries: u32,
}

impl Patience<'_> {
    fn left(&self) -> Duration {
        self.settings.time_max.saturating_sub(self.clock.boot().saturating_sub(self.since))
    }

    /// Records throttling, and waits before another attempt; `false` if there will be none.
    async fn again(&mut self, error: &Error) -> bool {
        // A shorter demand is no longer than the delay that every rejected request makes anyway.
        if error.retry_after() >= Some(self.settings.pause_first) {
            self.throttle.note(error, self.clock);
        }
        let spent = self.clock.boot().saturating_sub(self.since);
        if self.tries >= self.settings.tries_max {
            return false;
        }
        let pause = pause(self.settings, self.tries, error.retry_after(), (self.settings.random)());
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
            self.throttle.pass(&*self.clock, patience.left(), self.settings.random).await;
            let error = match self.inner.write(attempt.rest.clone()).await {
                Ok(rest) => {
                    attempt.versions.extend(rest.versions);
                    return Ok(Receipt { stamp: receipt.stamp.or(rest.stamp), versions: attempt.versions });
                }
                Err(error) => error,
            };
            attempt.advance(&error);
            self.throttle.note(&error, &*self.clock);
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

/// Whether another attempt may succeed.
fn is_passing(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown)
}

/// A batch on its way.
struct Attempt {
    /// The operations that have not landed, as far as is known.
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
            // The operation in doubt precedes, or is, one that is now known to have landed.
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

    /// The error for the caller: it never claims that nothing landed if an operation did, or may have.
    fn give_up(&self, error: Error) -> Error {
        let nothing_landed = matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Full);
        let unsure = self.doubtful || (self.landed > 0 && nothing_landed);
        let told = if unsure && !error.is_lost() { error.with_kind(ErrorKind::Unknown) } else { error };
        told.after_landing(self.landed, self.versions.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::{Memory, Stamp};

    /// Time that passes only by waiting.
    #[derive(Debug, Default)]
    struct Waited(AtomicU64);

    #[async_trait]
    impl Clock for Waited {
        fn wall(&self) -> Stamp {
            Stamp::default().after(self.boot())
        }
        fn boot(&self) -> Duration {
            Duration::from_micros(self.0.load(Ordering::Relaxed))
        }
        async fn sleep(&self, span: Duration) {
            self.0.fetch_add(u64::try_from(span.as_micros()).unwrap(), Ordering::Relaxed);
        }
    }

    /// Rejects everything until a moment, and returns the remaining delay if it throttles.
    #[derive(Debug)]
    struct Down {
        memory: Memory,
        clock: Arc<Waited>,
        until: Duration,
        retry_after: Option<Duration>,
        asked: Arc<AtomicU64>,
    }

    impl Down {
        fn check(&self) -> Result<()> {
            self.asked.fetch_add(1, Ordering::Relaxed);
            match self.clock.boot() < self.until {
                true => Err(Error::of_kind(ErrorKind::Unavailable).wait(self.retry_after)),
                false => Ok(()),
            }
        }
    }

    #[async_trait]
    impl Store for Down {
        async fn get(&self, key: &str) -> Result<Option<Object>> {
            self.check()?;
            self.memory.get(key).await
        }
        async fn write(&self, batch: Batch) -> Result<Receipt> {
            self.check()?;
            self.memory.write(batch).await
        }
        async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
            self.check()?;
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
            None
        }
    }

    fn down(seconds: u64, retry_after: Option<u64>) -> (Retry<Down>, Arc<Waited>, Arc<AtomicU64>) {
        let (clock, asked) = (Arc::new(Waited::default()), Arc::new(AtomicU64::new(0)));
        let (until, retry_after) = (Duration::from_secs(seconds), retry_after.map(Duration::from_secs));
        let store =
            Down { memory: Memory::bucket(), clock: Arc::clone(&clock), until, retry_after, asked: Arc::clone(&asked) };
        (Retry::with_clock(store, RetrySettings::default(), clock.clone()), clock, asked)
    }

    #[tokio::test]
    async fn an_outage_of_half_a_minute_causes_no_error() {
        let (store, clock, asked) = down(30, None);
        store.write(Batch::new().put("k", "v")).await.unwrap();
        assert!(clock.boot() < Duration::from_secs(33), "found soon after it came back: {:?}", clock.boot());
        assert!(asked.load(Ordering::Relaxed) < 60, "it is not asked all the time");
        for read in [down(30, None).0.get("k").await.is_ok(), down(30, None).0.list("", "", 1).await.is_ok()] {
            assert!(read);
        }
    }

    #[tokio::test]
    async fn a_store_that_does_not_come_back_in_time_is_unavailable() {
        let (store, clock, _) = down(1_000, None);
        assert_eq!(store.get("k").await.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!((58..=60).contains(&clock.boot().as_secs()), "{:?}", clock.boot());
    }

    #[test]
    fn delays_grow_and_no_two_writers_that_were_rejected_together_return_together() {
        let settings = RetrySettings::default();
        let ms = Duration::from_millis;
        for (tries, demanded, random, expected) in [
            (0, None, 0.0, ms(25)),
            (0, None, 1.0, ms(50)),
            (1, None, 1.0, ms(100)),
            (5, None, 0.5, ms(1_200)),
            (9, None, 1.0, ms(2_000)),
            (u32::MAX, None, 0.0, ms(1_000)),
            (0, Some(ms(8_000)), 0.0, ms(8_000)),
            (0, Some(ms(8_000)), 0.5, ms(9_000)),
            (0, Some(ms(8_000)), 1.0, ms(10_000)),
            // What the store demands is less than the backoff.
            (9, Some(ms(100)), 0.0, ms(1_000)),
        ] {
            assert_eq!(pause(&settings, tries, demanded, random), expected, "{tries} {demanded:?} {random}");
        }
    }

    #[tokio::test]
    async fn a_rejected_writer_returns_later_than_demanded_by_its_jitter() {
        for (random, expected) in [((|| 0.0) as fn() -> f64, 8_000), (|| 0.5, 9_000), (|| 1.0, 10_000)] {
            let (mut store, clock, asked) = down(8, Some(8));
            store.settings.random = random;
            store.write(Batch::new().put("k", "v")).await.unwrap();
            assert_eq!(asked.load(Ordering::Relaxed), 2, "the second attempt comes when the store demanded it");
            assert_eq!(clock.boot(), Duration::from_millis(expected));
        }
    }

    /// How a handle learns that the store throttles.
    #[derive(Clone, Copy, Debug)]
    enum Learns {
        Get,
        List,
        Write,
    }

    #[tokio::test]
    async fn throttling_of_any_request_slows_all_writers_of_the_process() {
        for how in [Learns::Get, Learns::List, Learns::Write] {
            let address = format!("s3://throttled by {how:?}");
            let (store, clock, _) = down(8, Some(8));
            let told = Retry { settings: RetrySettings::new(0, Duration::ZERO), ..store }.throttled_with(&address);
            let other = |address: &str| {
                let settings = RetrySettings { random: || 0.5, ..RetrySettings::default() };
                Retry::with_clock(Memory::bucket(), settings, clock.clone()).throttled_with(address)
            };
            let (same, elsewhere) = (other(&address), other("s3://another"));
            let failed = match how {
                Learns::Get => told.get("k").await.is_err(),
                Learns::List => told.list("", "", 1).await.is_err(),
                Learns::Write => told.write(Batch::new().put("k", "v")).await.is_err(),
            };
            assert!(failed, "{how:?}");
            for (writer, expected) in [(elsewhere, 0), (same.clone(), 9), (same, 9)] {
                writer.write(Batch::new().put("k", "v")).await.unwrap();
                assert_eq!(clock.boot(), Duration::from_secs(expected), "{how:?}");
            }
        }
    }
}
