//! The archive of a run's log: the snapshot, and the chunks that hold settled points moved out of it.
//!
//! What if we die here? Chunks are put before the snapshot that names them and are harmless without it. A snapshot that is
//! missing or old only makes the next reader fold more entries.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use tracing::debug;
use wigwag_core::{
    Chunk, Key, Rolled, Run, chunk_to_json, deliberate_bug, limits, read_chunk, read_state, state_to_json,
};
use wigwag_store::{Batch, Store, Version};

use super::commit::CommitError;
use super::writer::Log;
use crate::error::{Error, Result};

/// The snapshot in the store, as this writer knows it.
#[derive(Debug)]
pub(super) struct SnapshotMark {
    /// Version that was read or written last; `None` if none is known to exist.
    pub(super) version: Option<Version>,
    /// Number of the last entry it holds.
    pub(super) seq: u64,
    /// Time of the write, by the clock that counts suspended time.
    pub(super) written_at: Duration,
}

/// Reads all chunks of the run and adds their points.
pub(crate) async fn make_whole(store: &dyn Store, run: &mut Run) -> Result<()> {
    if run.is_whole() {
        return Ok(());
    }
    let ranges = run.rolled.clone();
    unroll(store, run, &ranges).await
}

/// Reads the chunks that record the signals consumed lately, so that an inbox can be read.
pub(crate) async fn make_inboxes_whole(store: &dyn Store, run: &mut Run) -> Result<()> {
    let ranges = run.chunks_with_taken();
    unroll(store, run, &ranges).await
}

async fn unroll(store: &dyn Store, run: &mut Run, ranges: &[Rolled]) -> Result<()> {
    for ranges in ranges.chunks(16) {
        let keys =
            ranges.iter().map(|range| Key::Chunk { run: run.run.clone(), from: range.from, to: range.to }.to_string());
        let objects =
            try_join_all(keys.map(|key| async move { Ok::<_, Error>((store.get(&key).await?, key)) })).await?;
        for (object, key) in objects {
            let object =
                object.ok_or_else(|| Error::damaged(format!("`{key}` is missing, which the snapshot names")))?;
            run.unroll(read_chunk(&object.body).map_err(|refusal| Error::unreadable(&key, refusal))?);
        }
    }
    Ok(())
}

impl Log {
    pub(super) fn snapshot_is_due(&self) -> bool {
        let entries = self.run.seq.saturating_sub(self.snapshot.seq);
        entries >= limits::current().snapshot_entries
            || (entries > 0 && self.inner.clock.boot().saturating_sub(self.snapshot.written_at) >= limits::SNAPSHOT_AGE)
    }

    pub(super) fn snapshot_written(&mut self) {
        self.snapshot.seq = self.run.seq;
        self.snapshot.written_at = self.inner.clock.boot();
    }

    /// Makes the next [`Log::write_snapshot`] write, whatever the stored snapshot holds.
    pub(crate) fn run_snapshot_is_old(&mut self) {
        self.snapshot.seq = 0;
    }

    /// Writes the snapshot outside a commit, unless a newer one is stored.
    pub(crate) async fn write_snapshot(&mut self) -> Result<(), CommitError> {
        if self.snapshot.seq == self.run.seq {
            return Ok(());
        }
        for (key, body) in self.roll() {
            self.inner.store.write(Batch::new().put(key, body)).await?;
        }
        let key = Key::State { run: self.run.run.clone() }.to_string();
        let body = Bytes::from(state_to_json(&self.run, &self.inner.by()));
        for _ in 0..2 {
            let batch = match (&self.snapshot.version, self.inner.store.traits().update_if) {
                (Some(version), true) => Batch::new().update(&key, body.clone(), version.clone()),
                (None, true) => Batch::new().create(&key, body.clone()),
                (_, false) => Batch::new().put(&key, body.clone()),
            };
            let late = deliberate_bug!(LateSnapshot);
            let batch = if late { Batch::new().put(&key, body.clone()) } else { batch };
            let error = match self.inner.store.write(batch).await {
                Ok(receipt) => {
                    self.snapshot.version = receipt.versions.into_iter().next();
                    break;
                }
                Err(error) => error,
            };
            debug!(key, %error, "the snapshot was not written");
            // An older snapshot of another writer, such as the run's starter, is replaced; a newer one stays.
            let there = self.inner.store.get(&key).await?;
            let Some(there) = there else { break };
            let seq = read_state(self.run.run.clone(), &there.body).map_or(0, |run| run.seq);
            self.snapshot.version = Some(there.version);
            if seq >= self.run.seq {
                break;
            }
        }
        self.snapshot_written();
        Ok(())
    }

    /// Moves settled points into chunks once they take too much of the snapshot; returns the chunks to put.
    pub(super) fn roll(&mut self) -> Vec<(String, Bytes)> {
        let unrolled = self.run.unrolled.iter().filter_map(|path| self.run.points.get(path));
        let bytes: usize = unrolled.map(wigwag_core::Point::bytes).sum();
        if bytes < limits::current().snapshot_points_bytes_max {
            return Vec::new();
        }
        let run = self.run.run.clone();
        let key =
            |chunk: &Chunk| Key::Chunk { run: run.clone(), from: chunk.range.from, to: chunk.range.to }.to_string();
        self.run.roll().iter().map(|chunk| (key(chunk), chunk_to_json(chunk).into())).collect()
    }
}
