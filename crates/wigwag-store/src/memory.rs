//! The store in memory: an ordered map, and the specification of the others.
//!
//! [`Memory::new`] is atomic and stamps at commit, like the embedded store. [`Memory::bucket`] behaves like
//! a bucket: batches land in order and stop at the first failure, stamps are drawn beforehand, and there
//! are no notifications.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::batch::Operation;
use crate::changes::Followers;
use crate::{
    Batch, Changes, Clear, Clock, Error, Listed, Notifications, Now, Object, Page, Peers, Put, Receipt, Result, Stamp,
    Store, System, Traits, Version, When,
};

/// A store in memory, shared by its clones.
#[derive(Clone, Debug)]
pub struct Memory {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    followers: Followers,
    as_bucket: bool,
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<String, Kept>,
    last: Stamp,
}

#[derive(Debug)]
struct Kept {
    body: Bytes,
    stamp: Stamp,
}

impl Memory {
    /// A store like the embedded one: atomic, stamping at commit, nudging.
    #[must_use]
    pub fn new() -> Self {
        Self::with_clock(Arc::new(System))
    }

    /// Like [`Memory::new`], with another clock.
    #[must_use]
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self::build(clock, false)
    }

    /// A store like a bucket: in order instead of atomic, and silent.
    #[must_use]
    pub fn bucket() -> Self {
        Self::bucket_with_clock(Arc::new(System))
    }

    /// Like [`Memory::bucket`], with another clock.
    #[must_use]
    pub fn bucket_with_clock(clock: Arc<dyn Clock>) -> Self {
        Self::build(clock, true)
    }

    fn build(clock: Arc<dyn Clock>, as_bucket: bool) -> Self {
        let shared = Shared { state: Mutex::default(), clock, followers: Followers::default(), as_bucket };
        Self { shared: Arc::new(shared) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// The time, strictly increasing.
    fn tick(&mut self, wall: Stamp) -> Stamp {
        self.last = wall.max(self.last.next());
        self.last
    }

    fn refusal(&self, put: &Put) -> Option<Error> {
        let here = self.objects.get(&put.key);
        match (&put.when, here) {
            (When::Absent, Some(_)) => Some(Error::exists(&put.key)),
            (When::Version(version), here) if here.map(Kept::version).as_ref() != Some(version) => {
                Some(Error::changed(&put.key))
            }
            _ => None,
        }
    }

    /// The first key that violates the precondition.
    fn in_the_way(&self, clear: &Clear) -> Option<Error> {
        let from = Bound::Included(clear.begin());
        let there = self.objects.range::<str, _>((from, Bound::Unbounded)).map(|(key, _)| key);
        let mut below = there.take_while(|key| key.starts_with(&clear.prefix));
        below.find(|key| clear.forbids(key)).map(|key| Error::not_clear(key))
    }

    fn carry_out(&mut self, operation: &Operation, stamp: Stamp) -> Option<Version> {
        match operation {
            Operation::Put(put) => {
                let kept = Kept { body: put.body.clone(), stamp };
                let version = kept.version();
                self.objects.insert(put.key.clone(), kept);
                Some(version)
            }
            Operation::Delete(delete) => {
                self.objects.remove(&delete.key);
                None
            }
        }
    }
}

impl Kept {
    fn version(&self) -> Version {
        Version::stamp(self.stamp)
    }
}

#[async_trait]
impl Store for Memory {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        crate::check_key(key)?;
        let state = self.state();
        Ok(state.objects.get(key).map(|kept| Object {
            body: kept.body.clone(),
            version: kept.version(),
            modified: kept.stamp,
        }))
    }

    async fn write(&self, mut batch: Batch) -> Result<Receipt> {
        batch.check()?;
        if self.shared.as_bucket {
            batch.check_parts()?;
        }
        let mut receipt = Receipt::default();
        {
            let mut state = self.state();
            let now = state.tick(self.shared.clock.wall());
            let mut stamp = batch.stamp_at(now)?;
            state.last = stamp;
            if batch.wants_stamp() {
                batch.fill(stamp);
                receipt.stamp = Some(stamp);
            }
            let refusal = batch.conditional().and_then(|put| state.refusal(put));
            let refusal = refusal.or_else(|| batch.clear.iter().find_map(|clear| state.in_the_way(clear)));
            if let Some(refusal) = refusal.as_ref().filter(|_| !self.shared.as_bucket) {
                return Err(refusal.clone());
            }
            for (position, operation) in batch.operations.iter().enumerate() {
                if let Some(refusal) = refusal.as_ref().filter(|refusal| refusal.key() == operation.key()) {
                    return Err(refusal.clone().after_landing(position, receipt.versions));
                }
                receipt.versions.extend(state.carry_out(operation, stamp));
                state.last = stamp;
                stamp = stamp.next();
            }
        }
        if !self.shared.as_bucket {
            self.shared.followers.tell(batch.puts().map(|put| put.key.as_str()));
        }
        Ok(receipt)
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        let state = self.state();
        let from = if after >= prefix { Bound::Excluded(after) } else { Bound::Included(prefix) };
        let mut found =
            state.objects.range::<str, _>((from, Bound::Unbounded)).take_while(|(key, _)| key.starts_with(prefix));
        let entries = found
            .by_ref()
            .take(limit)
            .map(|(key, kept)| Listed { key: key.clone(), size: kept.body.len() as u64, modified: kept.stamp })
            .collect();
        Ok(Page { entries, more: limit > 0 && found.next().is_some() })
    }

    async fn now(&self) -> Result<Now> {
        let at = self.state().tick(self.shared.clock.wall());
        Ok(Now { at, uncertainty: Duration::ZERO })
    }

    fn changes(&self, prefix: &str) -> Changes {
        if self.shared.as_bucket { Changes::silent() } else { self.shared.followers.follow(prefix) }
    }

    fn traits(&self) -> Traits {
        let own = !self.shared.as_bucket;
        let notifications = if own { Notifications::Complete } else { Notifications::Silent };
        Traits { kind: "memory", atomic: own, stamps_at_commit: own, update_if: true, notifications }
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        None
    }
}
