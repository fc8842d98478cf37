//! Commits an entry: the batch plan it, and the read-back after an unknown outcome.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use futures_util::future::FutureExt as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tracing::debug;
use wigwag_core::{Entry, Event, Key, Requests, deliberate_bug, limits, read_entry, state_to_json};
use wigwag_store::{Batch, Clear, Stamp};

use super::writer::Log;
use crate::engine_core::{EngineCore, Stop};
use crate::error::{Error, Result};
use crate::limits::{COMMIT_RETRY_DELAY, COMMIT_RETRY_DELAY_MAX, PUTS_CONCURRENT, UNCLAIMED_RETRY_DELAY_MAX};

/// Why an entry was not committed. It ends the turn.
#[derive(Debug)]
pub(crate) enum CommitError {
    /// Nothing was written: another worker appended this entry, or a precondition failed.
    Taken,
    /// The lease ended. The entry may have been written.
    Lease,
    /// The store failed for longer than the lease lasted.
    Store(Error),
    /// The staged events can never be recorded: every repeat of the turn would be rejected.
    Unrecordable(Error),
}

impl From<Error> for CommitError {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<wigwag_store::Error> for CommitError {
    fn from(error: wigwag_store::Error) -> Self {
        Self::Store(error.into())
    }
}

/// The writes that accompany an entry.
#[derive(Debug, Default)]
pub(crate) struct CommitPlan {
    /// Objects to put before the entry: harmless without it.
    pub(crate) before: Vec<(String, Bytes)>,
    /// Objects to put after the entry.
    pub(crate) after: Vec<(String, Bytes)>,
    /// Keys to delete after the entry.
    pub(crate) delete: Vec<String>,
    /// Writes a snapshot even if none is due.
    pub(crate) snapshot: bool,
    /// Conditions of the commit; only where the store is atomic.
    pub(crate) terms: Option<Preconditions>,
}

/// Conditions under which an entry with inline delivery is written. The write is attempted once.
#[derive(Debug)]
pub(crate) struct Preconditions {
    /// Key ranges that must hold no unknown key.
    pub(crate) clear: Vec<Clear>,
    /// Least stamp of the commit.
    pub(crate) stamp_from: Stamp,
    /// Set before the write: from then on the entry may have been written.
    pub(crate) tried: Arc<AtomicBool>,
}

impl CommitPlan {
    /// Drops keys that one commit would both put and delete.
    pub(crate) fn leave_out_what_never_was(&mut self) {
        let put: Vec<String> = self.before.iter().map(|(key, _)| key.clone()).collect();
        self.before.retain(|(key, _)| !self.delete.contains(key));
        self.delete.retain(|key| !put.contains(key));
        self.delete.sort_unstable();
        self.delete.dedup();
    }
}

impl Log {
    /// Writes the staged entry. On return the entry is durable and ours.
    pub(crate) async fn commit(&mut self, plan: CommitPlan) -> Result<(), CommitError> {
        let Some(mut entry) = self.entry.take() else { return Ok(()) };
        let events = std::mem::take(&mut self.events);
        (self.places, self.blob_bytes) = (0, 0);
        let atomic = self.inner.store.traits().atomic;
        let wants_snapshot = plan.snapshot || self.snapshot_is_due();
        let mut before: Vec<(String, Bytes)> = self.blobs.drain(..).collect();
        if wants_snapshot && atomic {
            before.extend(self.roll());
        }
        before.extend(plan.before);
        // A wake-up may be listed more than once.
        let delete: BTreeSet<String> = plan.delete.into_iter().collect();
        let puts = before.len() as u64 + 1 + u64::from(wants_snapshot && atomic) + plan.after.len() as u64;
        self.count(&mut entry, Requests { puts, deletes: delete.len() as u64, ..Requests::default() });
        let body = Bytes::from(entry.to_json_with_events(&events));
        if body.len() > limits::current().entry_bytes_max {
            let what = format!("entry {} of `{}` has {} bytes", entry.seq, self.run.run, body.len());
            return Err(CommitError::Unrecordable(Error::invalid(what)));
        }
        let key = Key::Entry { run: self.run.run.clone(), seq: entry.seq }.to_string();
        let mut after = plan.after;
        if wants_snapshot && atomic {
            after.insert(
                0,
                (Key::State { run: self.run.run.clone() }.to_string(), state_to_json(&self.run, &entry.by).into()),
            );
            self.snapshot_written();
        }
        // A stale wake-up leads here again and is deleted then. Nothing revisits a stale index object or control object, so
        // those come first when the batch has no room for all.
        let mut delete: Vec<String> = delete.into_iter().collect();
        delete.sort_by_key(|key| key.starts_with("due/"));
        // On a bucket the turn continues while stale index keys are deleted.
        let forgotten: Vec<String> = match atomic {
            true => Vec::new(),
            false => delete.extract_if(.., |key| key.starts_with("due/") || key.starts_with("waiting/")).collect(),
        };
        let fixed = 1 + after.len();
        self.put_early(&mut before, fixed).await?;
        let room = limits::current().batch_operations_max.saturating_sub(fixed + before.len());
        let late = delete.split_off(room.min(delete.len()));
        let batch = before.into_iter().fold(Batch::new(), |batch, (key, body)| batch.put(key, body));
        let batch = batch.create(&key, body);
        let batch = after.into_iter().fold(batch, |batch, (key, body)| batch.put(key, body));
        let mut batch = delete.into_iter().fold(batch, Batch::delete);
        let mut once = None;
        if let Some(Preconditions { clear, stamp_from, tried }) = plan.terms {
            batch = clear.into_iter().fold(batch, Batch::only_if_clear).stamp_from(stamp_from);
            once = Some(tried);
        }
        self.write_entry(batch, &key, &entry.by, once.as_deref()).await?;
        self.delete_later(forgotten);
        metrics::counter!("wigwag_entries_total").increment(1);
        let received = entry.events.iter().filter(|event| matches!(event, Event::SignalReceived(_))).count();
        metrics::counter!("wigwag_signals_received_total").increment(received as u64);
        if !late.is_empty() && self.holds_lease() {
            self.inner.delete_all(late).await?;
        }
        if wants_snapshot && !atomic {
            self.write_snapshot().await?;
        }
        Ok(())
    }

    /// Deletes index objects that the entry has made stale, while the turn continues. The engine stops only after that.
    ///
    /// What if we die here? A stale wake-up leads to one more check; the index object of a closed wait is removed by the
    /// worker that completes the end of the run, or by the sweeper.
    fn delete_later(&self, keys: Vec<String>) {
        if keys.is_empty() {
            return;
        }
        let (inner, driven) = (Arc::clone(&self.inner), EngineCore::begin_to_drive(&self.inner));
        let deleting = self.tally.counts(async move {
            let mut pause = COMMIT_RETRY_DELAY;
            while let Err(error) = inner.delete_all(keys.iter().cloned()).await {
                if pause > COMMIT_RETRY_DELAY_MAX || inner.stop() != Stop::No {
                    debug!(%error, "stale index objects were left");
                    break;
                }
                inner.clock.sleep(pause).await;
                pause *= 2;
            }
            drop(driven);
        });
        tokio::spawn(deleting);
    }

    /// Puts the objects for which the batch of the entry has no room. On a bucket these are all of them: they are put
    /// concurrently, because one after the other they could take longer than the lease.
    ///
    /// What if we die here? They are harmless without the entry: spare wake-ups, and objects that nothing names.
    async fn put_early(&self, before: &mut Vec<(String, Bytes)>, fixed: usize) -> Result<(), CommitError> {
        let room = match self.inner.store.traits().atomic {
            true => limits::current().batch_operations_max.saturating_sub(fixed),
            false => 0,
        };
        if before.len() <= room {
            return Ok(());
        }
        // The objects that must be written with the entry are last.
        let keep = before.split_off(before.len() - room);
        let early = std::mem::replace(before, keep);
        let room = if self.inner.store.traits().atomic { limits::current().batch_operations_max } else { 1 };
        let batches = early.chunks(room).map(|puts| {
            let batch = puts.iter().fold(Batch::new(), |batch, (key, body)| batch.put(key, body.clone()));
            self.put_while_leased(batch).boxed()
        });
        stream::iter(batches.collect::<Vec<_>>()).buffer_unordered(PUTS_CONCURRENT).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    /// Puts objects, and retries while the lease lasts: putting them twice is harmless.
    async fn put_while_leased(&self, batch: Batch) -> Result<(), CommitError> {
        let mut pause = COMMIT_RETRY_DELAY;
        loop {
            if !self.holds_lease() {
                return Err(CommitError::Lease);
            }
            let Err(error) = self.inner.store.write(batch.clone()).await else { return Ok(()) };
            use wigwag_store::ErrorKind as Store;
            match error.kind() {
                Store::Unknown | Store::Unavailable => {}
                Store::Invalid if !error.concerns_settings() => return Err(CommitError::Unrecordable(error.into())),
                _ => return Err(CommitError::Store(error.into())),
            }
            if self.lease_ends.is_none() && pause > UNCLAIMED_RETRY_DELAY_MAX {
                return Err(CommitError::Store(error.into()));
            }
            self.inner.clock.sleep(pause).await;
            pause = (pause * 2).min(COMMIT_RETRY_DELAY_MAX);
        }
    }

    /// Records in the entry the store requests since the previous entry, including the requests of its commit.
    fn count(&mut self, entry: &mut Entry, commit: Requests) {
        let requests = self.tally.read().since(self.recorded).and(commit);
        self.recorded = self.recorded.and(requests);
        self.run.stage_requests(entry, requests);
    }

    /// Writes the batch. After `Exists` or `Unknown` the entry is read back: it is ours, another worker's, or absent.
    ///
    /// With `once` the write is not retried, and `once` is set when the entry may have been written.
    async fn write_entry(
        &mut self,
        mut batch: Batch,
        key: &str,
        by: &str,
        once: Option<&AtomicBool>,
    ) -> Result<(), CommitError> {
        let mut pause = COMMIT_RETRY_DELAY;
        loop {
            if !self.holds_lease() {
                return Err(CommitError::Lease);
            }
            if let Some(tried) = once {
                tried.store(true, Ordering::Release);
            }
            let Err(error) = self.inner.store.write(batch.clone()).await else {
                self.is_claimed = true;
                return Ok(());
            };
            use wigwag_store::ErrorKind as Store;
            if deliberate_bug!(NoReadBack) && error.kind() == Store::Unknown {
                return Ok(());
            }
            match error.kind() {
                Store::Exists | Store::Unknown => match self.inner.store.get(key).await {
                    Ok(Some(there)) if is_by(&there.body, by) => {
                        debug!(key, "an answer was lost, the entry is ours");
                        // On an atomic store the whole batch was written, and other workers may have continued from there.
                        if self.inner.store.traits().atomic && !deliberate_bug!(RepeatedAfterLanding) {
                            return Ok(());
                        }
                        batch = without_entry(&batch, key);
                        if batch.operations().is_empty() {
                            self.is_claimed = true;
                            return Ok(());
                        }
                    }
                    Ok(Some(_)) => return Err(CommitError::Taken),
                    Ok(None) | Err(_) => {}
                },
                // A precondition failed, or the stamp is too far ahead: nothing of the batch was written.
                Store::Changed | Store::Invalid if once.is_some() => return Err(CommitError::Taken),
                Store::Unavailable => {}
                Store::Invalid if !error.concerns_settings() => return Err(CommitError::Unrecordable(error.into())),
                Store::Full if self.is_claimed && once.is_none() => {}
                _ => return Err(CommitError::Store(error.into())),
            }
            // Before the claim there is no lease and abandoning loses nothing; an inline delivery responds at once.
            if once.is_some() || self.lease_ends.is_none() && pause > UNCLAIMED_RETRY_DELAY_MAX {
                return Err(CommitError::Store(error.into()));
            }
            self.inner.clock.sleep(pause).await;
            pause = (pause * 2).min(COMMIT_RETRY_DELAY_MAX);
        }
    }
}

pub(crate) fn is_by(body: &[u8], by: &str) -> bool {
    read_entry(body).is_ok_and(|entry| entry.is_ok_and(|entry| entry.by == by))
}

/// Returns the rest of a batch whose entry was written: idempotent puts and deletes.
fn without_entry(batch: &Batch, entry: &str) -> Batch {
    use wigwag_store::Operation;
    batch.operations().iter().fold(Batch::new(), |rest, operation| match operation {
        Operation::Put(put) if put.key == entry => rest,
        Operation::Put(put) => rest.put(&put.key, put.body.clone()),
        Operation::Delete(delete) => rest.delete(&delete.key),
        _ => rest,
    })
}
