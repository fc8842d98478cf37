//! The writer of a run's log: stages events and payloads into the next entry.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use wigwag_core::{Blob, Data, Entry, Event, Key, Path, Payload, Requests, Run, RunRef, Time, deliberate_bug, limits};

use super::archive::SnapshotMark;
use super::commit::CommitError;
use super::reader::Loaded;
use crate::engine_core::EngineCore;
use crate::error::Result;
use crate::tally::Tally;

/// The log of a run that this worker has claimed, or is about to claim.
#[derive(Debug)]
pub(crate) struct Log {
    pub(super) inner: Arc<EngineCore>,
    pub(crate) run: Run,
    /// The staged entry.
    pub(super) entry: Option<Entry>,
    /// Events of the staged entry, serialized: its size must be known before it is full.
    pub(super) events: Vec<u8>,
    /// Objects in the index of waits that the staged entry needs.
    pub(super) places: usize,
    /// Large payloads of the staged entry.
    pub(super) blobs: Vec<(String, Bytes)>,
    pub(super) blob_bytes: usize,
    /// Input of the run while it is not stored yet.
    input: Option<Payload>,
    pub(super) snapshot: SnapshotMark,
    /// End of the lease by the clock that counts suspended time; nothing is written after it. `None` before the claim.
    pub(crate) lease_ends: Option<Duration>,
    /// The turn has committed an entry: later entries wait while the disk is full, instead of giving up.
    pub(super) is_claimed: bool,
    /// Counts the store requests of this run.
    pub(crate) tally: Arc<Tally>,
    /// Requests that committed entries already record.
    pub(super) recorded: Requests,
}

impl Log {
    pub(crate) fn new(inner: Arc<EngineCore>, loaded: Loaded) -> Self {
        let snapshot = SnapshotMark { version: loaded.snapshot, seq: loaded.run.seq, written_at: inner.clock.boot() };
        Self {
            inner,
            snapshot,
            run: loaded.run,
            entry: None,
            events: Vec::new(),
            places: 0,
            blobs: Vec::new(),
            blob_bytes: 0,
            input: None,
            lease_ends: None,
            is_claimed: false,
            tally: Tally::current(),
            recorded: Requests::default(),
        }
    }

    /// Creates the log of a new run; `first` is its entry 1, staged and not yet written.
    pub(crate) fn begin(
        inner: Arc<EngineCore>,
        run: RunRef,
        first: Entry,
        blobs: Vec<(String, Bytes)>,
        input: Payload,
    ) -> Result<Self> {
        let run = Run::begin(run, &first)?;
        let mut log = Self::new(inner, Loaded { run, snapshot: None, snapshot_seq: 0 });
        first.events.iter().for_each(|event| append(&mut log.events, event));
        (log.entry, log.blobs, log.snapshot.seq, log.input) = (Some(first), blobs, 0, Some(input));
        Ok(log)
    }

    /// Returns the input of the run.
    pub(crate) async fn input(&self) -> Result<Payload> {
        match &self.input {
            Some(input) => Ok(input.clone()),
            None => self.inner.payload(&self.run.run, None, &self.run.input).await,
        }
    }

    /// Returns whether an entry is staged.
    pub(crate) fn is_staged(&self) -> bool {
        self.entry.is_some()
    }

    /// Returns whether the staged entry has reached a limit.
    pub(crate) fn is_full(&self) -> bool {
        let limits = limits::current();
        let events = self.entry.as_ref().map_or(0, |entry| entry.events.len());
        events >= limits.entry_events_max
            || self.events.len() >= limits.entry_bytes_soft
            || self.blobs.len() + self.places >= limits.entry_puts_max
            || self.blob_bytes >= limits.entry_blob_bytes_max
    }

    /// Adds an event to the staged entry, and folds it into the run.
    pub(crate) fn stage(&mut self, event: impl Into<Event>, now: Time) -> Result<(), CommitError> {
        let entry = self.entry.get_or_insert_with(|| Entry {
            seq: self.run.seq + 1,
            by: self.inner.by(),
            at: now.max(self.run.updated_at),
            events: Vec::with_capacity(4),
            requests: Requests::default(),
        });
        let event = event.into();
        append(&mut self.events, &event);
        self.places += usize::from(matches!(event, Event::SignalWaiting(_)));
        Ok(self.run.stage(entry, event)?)
    }

    /// Returns the recorded form of a payload: inline, or an object that is put before the entry.
    pub(crate) fn data(&mut self, point: Option<&Path>, payload: &Payload) -> Data {
        if Data::fits(payload) {
            return Data::Inline(payload.clone());
        }
        let (data, put) = blob(&self.inner, &self.run.run, point, payload);
        self.blob_bytes += put.1.len();
        self.blobs.push(put);
        data
    }

    /// Returns whether the staged entry has large payloads.
    pub(crate) fn has_blobs(&self) -> bool {
        !self.blobs.is_empty() && self.run.seq > 1
    }

    /// Number of objects to put before the staged entry: large payloads, and chunks of the snapshot.
    pub(crate) fn puts(&self) -> usize {
        self.blobs.len() + self.run.unrolled.len()
    }

    pub(crate) fn staged_blob(&self, key: &str) -> Option<Bytes> {
        self.blobs.iter().find(|(put, _)| put == key).map(|(_, body)| body.clone())
    }

    pub(crate) fn holds_lease(&self) -> bool {
        deliberate_bug!(ZombieMayFinish) || self.lease_ends.is_none_or(|ends| self.inner.clock.boot() < ends)
    }
}

/// Appends an event to the serialized events of an entry.
fn append(events: &mut Vec<u8>, event: &Event) {
    if !events.is_empty() {
        events.push(b',');
    }
    serde_json::to_writer(events, event).expect("events have text keys and no failing parts");
}

/// Returns a payload as a separate object, with its key.
pub(crate) fn blob(
    inner: &EngineCore,
    run: &RunRef,
    point: Option<&Path>,
    payload: &Payload,
) -> (Data, (String, Bytes)) {
    let nonce = inner.by();
    let key = Key::blob(run, point, &nonce).to_string();
    let text = payload.text().to_owned();
    (Data::Blob(Blob { nonce, bytes: text.len() }), (key, text.into()))
}
