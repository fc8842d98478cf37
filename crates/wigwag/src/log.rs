//! Reading a run and writing its log: the only writer of entries.
//!
//! What if we die here? An entry is there or not, and decides. What stands before it in a batch (hints, large payloads)
//! is harmless without it: a hint too many, an object nobody names. What stands after it (snapshot, index objects,
//! deleted hints) is done again by whoever takes over. Where the store is atomic, a batch is one commit; elsewhere the
//! entry lands alone and the snapshot follows under the version last read, so that a stalled worker's old snapshot
//! never replaces a newer one.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{FutureExt as _, try_join_all};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tracing::debug;
use wigwag_core::mutation::{Mutation, is_mutated};
use wigwag_core::{
    Blob, Chunk, Data, Entry, Event, Fate, Key, Mode, Name, Path, Payload, Requests, Rolled, Run, RunRef, Time,
    Tombstone, chunk_to_json, limits, read_chunk, read_entry, read_state, state_to_json,
};
use wigwag_store::{Batch, Clear, Stamp, Store, Version};

use crate::error::{Error, ErrorKind, Result};
use crate::inner::Inner;
use crate::tally::Tally;

const _: () = assert!(limits::BATCH_OPERATIONS_MAX == wigwag_store::limits::BATCH_OPERATIONS_MAX);
const _: () = assert!(limits::BODY_BYTES_MAX == wigwag_store::limits::BODY_BYTES_MAX);

/// Objects that are put before an entry at the same time: with so many, [`limits::ENTRY_PUTS_MAX`] take two round trips.
const PUTS_AT_ONCE: usize = 64;

/// A run as it was read.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) run: Run,
    /// The snapshot that was read, if there was one.
    pub(crate) snapshot: Option<Version>,
}

/// Reads a run: its snapshot, and the entries after it, 1, 2, 4, 8 at a time until one is absent.
pub(crate) async fn read(store: &dyn Store, run: &RunRef) -> Result<Option<Loaded>> {
    let mut snapshot = None;
    let mut folded = None;
    let key = Key::State { run: run.clone() }.to_string();
    if let Some(object) = store.get(&key).await? {
        folded = Some(read_state(run.clone(), &object.body).map_err(|refusal| {
            Error::unreadable(&key, refusal)
                .hint("it is a copy of what the log of the run says: once it is deleted, the log is read instead")
        })?);
        snapshot = Some(object.version);
    }
    catch_up(store, run, &mut folded).await?;
    Ok(folded.map(|run| Loaded { run, snapshot }))
}

/// Folds what was added to the log since.
pub(crate) async fn catch_up(store: &dyn Store, run: &RunRef, folded: &mut Option<Run>) -> Result<()> {
    let mut width = 1;
    loop {
        let next = folded.as_ref().map_or(1, |run| run.seq + 1);
        let (entries, tombstone) = read_to_tombstone(store, run, next, next + width).await?;
        let found = entries.len();
        for entry in entries {
            // These change points that may have left the snapshot.
            let reaches_back = |event: &Event| match event {
                _ if is_mutated(Mutation::RolledForgotten) => false,
                Event::RunRestarted(_) | Event::RunMigrated(_) => true,
                Event::StepStarted(started) => started.attempt > 1,
                Event::CompensationStarted(_) | Event::CompensationCompleted(_) | Event::CompensationFailed(_) => true,
                _ => false,
            };
            if let Some(folded) = folded.as_mut().filter(|_| entry.events.iter().any(reaches_back)) {
                make_whole(store, folded).await?;
            }
            fold(run, folded, &entry)?;
        }
        if let Some((key, tombstone)) = tombstone {
            return Err(match folded {
                Some(run) if !run.status.is_final() => {
                    Error::unreadable(&key, "a tombstone, and the run has not ended")
                }
                _ => gone(run, &tombstone),
            });
        }
        if (found as u64) < width {
            return Ok(());
        }
        width = (width * 2).min(8);
    }
}

/// The same for a run that is there.
pub(crate) async fn catch_up_run(store: &dyn Store, run: &mut Run) -> Result<()> {
    let of = run.run.clone();
    let mut folded = Some(run.take());
    let outcome = catch_up(store, &of, &mut folded).await;
    if let Some(folded) = folded {
        *run = folded;
    }
    outcome
}

/// Reads an object whose key is made of what is stored: if that is no key, what is stored is damaged.
pub(crate) async fn get_named(store: &dyn Store, key: &str) -> Result<Option<wigwag_store::Object>> {
    match store.get(key).await {
        Err(error) if error.kind() == wigwag_store::ErrorKind::Invalid => Err(Error::unreadable(key, error)),
        read => Ok(read?),
    }
}

/// Entries from `from` up to but without `to`, as far as there are any.
pub(crate) async fn read_entries(store: &dyn Store, run: &RunRef, from: u64, to: u64) -> Result<Vec<Entry>> {
    match read_to_tombstone(store, run, from, to).await? {
        (_, Some((_, tombstone))) => Err(gone(run, &tombstone)),
        (entries, None) => Ok(entries),
    }
}

/// The same; and where a tombstone stands, if one does.
async fn read_to_tombstone(
    store: &dyn Store,
    run: &RunRef,
    from: u64,
    to: u64,
) -> Result<(Vec<Entry>, Option<(String, Tombstone)>)> {
    let reads = (from..to.min(limits::ENTRIES_MAX + 1)).map(|seq| async move {
        let key = Key::Entry { run: run.clone(), seq }.to_string();
        Ok::<_, Error>((seq, store.get(&key).await?, key))
    });
    let mut entries = Vec::new();
    for (seq, object, key) in try_join_all(reads).await? {
        let Some(object) = object else { break };
        match read_entry(&object.body).map_err(|refusal| Error::unreadable(&key, refusal))? {
            Ok(entry) if entry.seq == seq => entries.push(entry),
            Ok(entry) => return Err(Error::unreadable(&key, format_args!("it says that it is entry {}", entry.seq))),
            Err(tombstone) => return Ok((entries, Some((key, tombstone)))),
        }
    }
    Ok((entries, None))
}

fn gone(run: &RunRef, tombstone: &Tombstone) -> Error {
    let (at, status) = (tombstone.gone_at, tombstone.status);
    let what = format!("run `{}` is gone: it ended as `{status}` and was removed on {}", run.id, at.day());
    Error::new(ErrorKind::Gone, what)
}

/// What became of a signal, by the log itself: for runs whose points were dropped by a restart.
pub(crate) async fn fate_in_log(store: &dyn Store, run: &RunRef, name: &Name, signal: &str) -> Result<Option<Fate>> {
    let mut next = 1;
    let mut latest = BTreeSet::new();
    let mut superseded = false;
    loop {
        let entries = read_entries(store, run, next, next + 16).await?;
        next += entries.len() as u64;
        let last = entries.len() < 16;
        for event in entries.into_iter().flat_map(|entry| entry.events) {
            match event {
                Event::SignalWaiting(waiting) if waiting.name == *name && waiting.mode == Mode::Latest => {
                    latest.insert(waiting.point);
                }
                Event::SignalReceived(received) if received.name == *name => {
                    if received.signals.iter().any(|taken| taken.signal == signal) {
                        return Ok(Some(Fate::Consumed { point: received.point, at: received.at }));
                    }
                    superseded |= latest.contains(&received.point)
                        && received.signals.iter().any(|taken| taken.signal.as_str() > signal);
                }
                _ => {}
            }
        }
        if last {
            return Ok(superseded.then_some(Fate::Superseded));
        }
    }
}

/// Whether any point took a signal, by the log itself.
pub(crate) async fn is_taken_in_log(store: &dyn Store, run: &RunRef, name: &Name, signal: &str) -> Result<bool> {
    Ok(matches!(fate_in_log(store, run, name, signal).await?, Some(Fate::Consumed { .. })))
}

fn fold(run: &RunRef, folded: &mut Option<Run>, entry: &Entry) -> Result<()> {
    match folded {
        Some(folded) => folded.apply(entry),
        None => Run::begin(run.clone(), entry).map(|begun| *folded = Some(begun)),
    }
    .map_err(|refusal| {
        let key = Key::Entry { run: run.clone(), seq: entry.seq };
        Error::damaged(format!("`{key}` does not follow what is stored before it: {refusal}"))
    })
}

/// Puts back the points that were rolled out of the snapshot.
pub(crate) async fn make_whole(store: &dyn Store, run: &mut Run) -> Result<()> {
    if run.is_whole() {
        return Ok(());
    }
    let ranges = run.rolled.clone();
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

/// Reads a run with all its points.
pub(crate) async fn read_whole(store: &dyn Store, run: &RunRef) -> Result<Option<Loaded>> {
    let Some(mut loaded) = read(store, run).await? else { return Ok(None) };
    make_whole(store, &mut loaded.run).await?;
    Ok(Some(loaded))
}

/// Reads the chunks that say which signals were taken lately, so that an inbox can be read.
pub(crate) async fn make_inboxes_whole(store: &dyn Store, run: &mut Run) -> Result<()> {
    let ranges = run.chunks_with_taken();
    unroll(store, run, &ranges).await
}

/// Why a turn is over before the run parked or ended.
#[derive(Debug)]
pub(crate) enum Lost {
    /// What was staged never happened: another worker has the run, or what was to come with the entry cannot.
    Taken,
    /// The lease ended; whether what was staged happened may be in doubt.
    Lease,
    /// The store failed for longer than the lease.
    Store(Error),
    /// What was staged can never be recorded: the same turn would be refused again and again.
    Unrecordable(Error),
}

impl From<Error> for Lost {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<wigwag_store::Error> for Lost {
    fn from(error: wigwag_store::Error) -> Self {
        Self::Store(error.into())
    }
}

/// What is written with an entry.
#[derive(Debug, Default)]
pub(crate) struct CommitPlan {
    /// Put before it: harmless without it.
    pub(crate) before: Vec<(String, Bytes)>,
    /// Put after it.
    pub(crate) after: Vec<(String, Bytes)>,
    /// Deleted after it.
    pub(crate) delete: Vec<String>,
    /// With a snapshot, whether or not one is due.
    pub(crate) snapshot: bool,
    /// On what terms it lands; only where the store is atomic.
    pub(crate) terms: Option<Preconditions>,
}

/// What must hold for an entry to land that brings a signal with it. It is tried once.
#[derive(Debug)]
pub(crate) struct Preconditions {
    /// Where nothing may lie.
    pub(crate) clear: Vec<Clear>,
    /// What is stamped later gets no less.
    pub(crate) stamp_from: Stamp,
    /// Becomes true when it may have landed.
    pub(crate) tried: Arc<AtomicBool>,
}

impl CommitPlan {
    /// What would be put and deleted in one commit is not put at all.
    pub(crate) fn leave_out_what_never_was(&mut self) {
        let put: Vec<String> = self.before.iter().map(|(key, _)| key.clone()).collect();
        self.before.retain(|(key, _)| !self.delete.contains(key));
        self.delete.retain(|key| !put.contains(key));
        self.delete.sort_unstable();
        self.delete.dedup();
    }
}

/// A run whose turn we hold, or are about to.
#[derive(Debug)]
pub(crate) struct Log {
    inner: Arc<Inner>,
    pub(crate) run: Run,
    entry: Option<Entry>,
    /// The events of the entry that is being made, serialized: its size must be known before it is full.
    events: Vec<u8>,
    /// Places in the index of waits that the entry needs.
    places: usize,
    blobs: Vec<(String, Bytes)>,
    blob_bytes: usize,
    /// The input, while it is not in the store yet.
    input: Option<Payload>,
    snapshot: Option<Version>,
    snapshot_seq: u64,
    snapshot_at: Duration,
    /// By the clock that counts suspended time: after this we may not write. `None` before the claim.
    pub(crate) lease_ends: Option<Duration>,
    /// The turn has committed an entry: what it did since must not be lost because a disk is full for a while.
    is_claimed: bool,
    /// What is asked of the store for this run.
    pub(crate) tally: Arc<Tally>,
    /// What of that is in entries.
    told: Requests,
}

impl Log {
    pub(crate) fn new(inner: Arc<Inner>, loaded: Loaded) -> Self {
        let (snapshot_seq, snapshot_at) = (loaded.run.seq, inner.clock.boot());
        Self {
            inner,
            snapshot: loaded.snapshot,
            run: loaded.run,
            entry: None,
            events: Vec::new(),
            places: 0,
            blobs: Vec::new(),
            blob_bytes: 0,
            input: None,
            snapshot_seq,
            snapshot_at,
            lease_ends: None,
            is_claimed: false,
            tally: Tally::current(),
            told: Requests::default(),
        }
    }

    /// A log that does not exist yet; `first` is its entry 1.
    pub(crate) fn begin(
        inner: Arc<Inner>,
        run: RunRef,
        first: Entry,
        blobs: Vec<(String, Bytes)>,
        input: Payload,
    ) -> Result<Self> {
        let run = Run::begin(run, &first)?;
        let mut log = Self::new(inner, Loaded { run, snapshot: None });
        first.events.iter().for_each(|event| append(&mut log.events, event));
        (log.entry, log.blobs, log.snapshot_seq, log.input) = (Some(first), blobs, 0, Some(input));
        Ok(log)
    }

    /// What the run was started with.
    pub(crate) async fn input(&self) -> Result<Payload> {
        match &self.input {
            Some(input) => Ok(input.clone()),
            None => self.inner.payload(&self.run.run, None, &self.run.input).await,
        }
    }

    /// Whether an entry is being made.
    pub(crate) fn is_staged(&self) -> bool {
        self.entry.is_some()
    }

    /// Whether the entry that is being made takes no more.
    pub(crate) fn is_full(&self) -> bool {
        let limits = limits::current();
        let events = self.entry.as_ref().map_or(0, |entry| entry.events.len());
        events >= limits.entry_events_max
            || self.events.len() >= limits.entry_bytes_soft
            || self.blobs.len() + self.places >= limits.entry_puts_max
            || self.blob_bytes >= limits.entry_blob_bytes_max
    }

    /// Adds an event to the entry that is being made, and folds it.
    pub(crate) fn stage(&mut self, event: impl Into<Event>, now: Time) -> Result<(), Lost> {
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

    /// How a payload is recorded: in place, or in an object that is put before the entry.
    pub(crate) fn data(&mut self, point: Option<&Path>, payload: &Payload) -> Data {
        if Data::fits(payload) {
            return Data::Inline(payload.clone());
        }
        let (data, put) = blob(&self.inner, &self.run.run, point, payload);
        self.blob_bytes += put.1.len();
        self.blobs.push(put);
        data
    }

    /// Whether large payloads wait for the entry that is being made.
    pub(crate) fn has_blobs(&self) -> bool {
        !self.blobs.is_empty() && self.run.seq > 1
    }

    /// Number of objects that are put before the entry that is being made: large payloads, and chunks of the snapshot.
    pub(crate) fn puts(&self) -> usize {
        self.blobs.len() + self.run.unrolled.len()
    }

    pub(crate) fn staged_blob(&self, key: &str) -> Option<Bytes> {
        self.blobs.iter().find(|(put, _)| put == key).map(|(_, body)| body.clone())
    }

    pub(crate) fn holds_lease(&self) -> bool {
        is_mutated(Mutation::ZombieMayFinish) || self.lease_ends.is_none_or(|ends| self.inner.clock.boot() < ends)
    }

    /// Writes the entry that is being made. When it returns, the entry is durable and ours.
    pub(crate) async fn commit(&mut self, around: CommitPlan) -> Result<(), Lost> {
        let Some(mut entry) = self.entry.take() else { return Ok(()) };
        let events = std::mem::take(&mut self.events);
        (self.places, self.blob_bytes) = (0, 0);
        let atomic = self.inner.store.traits().atomic;
        let wants_snapshot = around.snapshot || self.snapshot_is_due();
        let mut before: Vec<(String, Bytes)> = self.blobs.drain(..).collect();
        if wants_snapshot && atomic {
            before.extend(self.roll());
        }
        before.extend(around.before);
        // A hint may have led here more than once.
        let delete: BTreeSet<String> = around.delete.into_iter().collect();
        let puts = before.len() as u64 + 1 + u64::from(wants_snapshot && atomic) + around.after.len() as u64;
        self.count(&mut entry, Requests { puts, deletes: delete.len() as u64, ..Requests::default() });
        let body = Bytes::from(entry.to_json_with_events(&events));
        if body.len() > limits::current().entry_bytes_max {
            let what = format!("entry {} of `{}` has {} bytes", entry.seq, self.run.run, body.len());
            return Err(Lost::Unrecordable(Error::invalid(what)));
        }
        let key = Key::Entry { run: self.run.run.clone(), seq: entry.seq }.to_string();
        let mut after = around.after;
        if wants_snapshot && atomic {
            after.insert(
                0,
                (Key::State { run: self.run.run.clone() }.to_string(), state_to_json(&self.run, &entry.by).into()),
            );
            self.snapshot_written();
        }
        let mut delete: Vec<String> = delete.into_iter().collect();
        let fixed = 1 + after.len();
        self.put_early(&mut before, fixed).await?;
        let room = limits::current().batch_operations_max.saturating_sub(fixed + before.len());
        let late = delete.split_off(room.min(delete.len()));
        let batch = before.into_iter().fold(Batch::new(), |batch, (key, body)| batch.put(key, body));
        let batch = batch.create(&key, body);
        let batch = after.into_iter().fold(batch, |batch, (key, body)| batch.put(key, body));
        let mut batch = delete.into_iter().fold(batch, Batch::delete);
        let mut once = None;
        if let Some(Preconditions { clear, stamp_from, tried }) = around.terms {
            batch = clear.into_iter().fold(batch, Batch::only_if_clear).stamp_from(stamp_from);
            once = Some(tried);
        }
        self.write_entry(batch, &key, &entry.by, once.as_deref()).await?;
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

    /// Puts what has no room in the batch of the entry. On a bucket that is all but one object: they are put at the same
    /// time, because one after the other they could take longer than the lease.
    ///
    /// What if we die here? They are harmless without the entry: hints too many, and objects that nothing names.
    async fn put_early(&self, before: &mut Vec<(String, Bytes)>, fixed: usize) -> Result<(), Lost> {
        let room = match self.inner.store.traits().atomic {
            true => limits::current().batch_operations_max.saturating_sub(fixed),
            false => 1,
        };
        if before.len() <= room {
            return Ok(());
        }
        // What must land with the entry stands last.
        let keep = before.split_off(before.len() - room);
        let early = std::mem::replace(before, keep);
        let room = if self.inner.store.traits().atomic { limits::current().batch_operations_max } else { 1 };
        let batches = early.chunks(room).map(|puts| {
            let batch = puts.iter().fold(Batch::new(), |batch, (key, body)| batch.put(key, body.clone()));
            self.put_while_leased(batch).boxed()
        });
        stream::iter(batches.collect::<Vec<_>>()).buffer_unordered(PUTS_AT_ONCE).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    /// Puts objects that may be put again, for as long as the lease lasts.
    async fn put_while_leased(&self, batch: Batch) -> Result<(), Lost> {
        let mut pause = Duration::from_millis(20);
        loop {
            if !self.holds_lease() {
                return Err(Lost::Lease);
            }
            let Err(error) = self.inner.store.write(batch.clone()).await else { return Ok(()) };
            use wigwag_store::ErrorKind as Store;
            match error.kind() {
                Store::Unknown | Store::Unavailable => {}
                Store::Invalid => return Err(Lost::Unrecordable(error.into())),
                _ => return Err(Lost::Store(error.into())),
            }
            if self.lease_ends.is_none() && pause > Duration::from_secs(1) {
                return Err(Lost::Store(error.into()));
            }
            self.inner.clock.sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    }

    /// Says in an entry what was asked since the one before it, and what its own commit asks, which is counted before it is.
    fn count(&mut self, entry: &mut Entry, commit: Requests) {
        let requests = self.tally.read().since(self.told).and(commit);
        self.told = self.told.and(requests);
        self.run.stage_requests(entry, requests);
    }

    fn snapshot_is_due(&self) -> bool {
        let entries = self.run.seq.saturating_sub(self.snapshot_seq);
        entries >= limits::current().snapshot_entries
            || (entries > 0 && self.inner.clock.boot().saturating_sub(self.snapshot_at) >= limits::SNAPSHOT_AGE)
    }

    fn snapshot_written(&mut self) {
        self.snapshot_seq = self.run.seq;
        self.snapshot_at = self.inner.clock.boot();
    }

    /// Refused or in doubt → read the entry back: it is mine, another's, or not there.
    ///
    /// What is tried `once` is not written again, and sets that when it may have landed.
    async fn write_entry(
        &mut self,
        mut batch: Batch,
        key: &str,
        by: &str,
        once: Option<&AtomicBool>,
    ) -> Result<(), Lost> {
        let mut pause = Duration::from_millis(20);
        loop {
            if !self.holds_lease() {
                return Err(Lost::Lease);
            }
            if let Some(tried) = once {
                tried.store(true, Ordering::Release);
            }
            let Err(error) = self.inner.store.write(batch.clone()).await else {
                self.is_claimed = true;
                return Ok(());
            };
            use wigwag_store::ErrorKind as Store;
            if is_mutated(Mutation::NoReadBack) && error.kind() == Store::Unknown {
                return Ok(());
            }
            match error.kind() {
                Store::Exists | Store::Unknown => match self.inner.store.get(key).await {
                    Ok(Some(there)) if is_by(&there.body, by) => {
                        debug!(key, "an answer was lost, the entry is ours");
                        // Where a batch is one commit, all of it landed, and others may have gone on from there.
                        if self.inner.store.traits().atomic && !is_mutated(Mutation::RepeatedAfterLanding) {
                            return Ok(());
                        }
                        batch = without_entry(&batch, key);
                    }
                    Ok(Some(_)) => return Err(Lost::Taken),
                    Ok(None) | Err(_) => {}
                },
                // Something is in the way, or its stamp too far ahead: the entry is not there, nor anything else of it.
                Store::Changed | Store::Invalid if once.is_some() => return Err(Lost::Taken),
                Store::Unavailable => {}
                Store::Invalid => return Err(Lost::Unrecordable(error.into())),
                Store::Full if self.is_claimed && once.is_none() => {}
                _ => return Err(Lost::Store(error.into())),
            }
            // Before the claim there is no lease to hold, and nothing lost by giving up; who brings something is told.
            if once.is_some() || self.lease_ends.is_none() && pause > Duration::from_secs(1) {
                return Err(Lost::Store(error.into()));
            }
            self.inner.clock.sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    }

    /// Nobody knows what the snapshot in the store says.
    pub(crate) fn run_snapshot_is_old(&mut self) {
        self.snapshot_seq = 0;
    }

    /// Writes the snapshot by itself, if none newer is there.
    pub(crate) async fn write_snapshot(&mut self) -> Result<(), Lost> {
        if self.snapshot_seq == self.run.seq {
            return Ok(());
        }
        for (key, body) in self.roll() {
            self.inner.store.write(Batch::new().put(key, body)).await?;
        }
        let key = Key::State { run: self.run.run.clone() }.to_string();
        let body = Bytes::from(state_to_json(&self.run, &self.inner.by()));
        for _ in 0..2 {
            let batch = match (&self.snapshot, self.inner.store.traits().update_if) {
                (Some(version), true) => Batch::new().update(&key, body.clone(), version.clone()),
                (None, true) => Batch::new().create(&key, body.clone()),
                (_, false) => Batch::new().put(&key, body.clone()),
            };
            let late = is_mutated(Mutation::LateSnapshot);
            let batch = if late { Batch::new().put(&key, body.clone()) } else { batch };
            let error = match self.inner.store.write(batch).await {
                Ok(receipt) => {
                    self.snapshot = receipt.versions.into_iter().next();
                    break;
                }
                Err(error) => error,
            };
            debug!(key, %error, "the snapshot was not written");
            // An older one by another, such as that of the run's starter, gives way; a newer one stays.
            let there = self.inner.store.get(&key).await?;
            let Some(there) = there else { break };
            let seq = read_state(self.run.run.clone(), &there.body).map_or(0, |run| run.seq);
            self.snapshot = Some(there.version);
            if seq >= self.run.seq {
                break;
            }
        }
        self.snapshot_written();
        Ok(())
    }

    /// Moves settled points out of the snapshot once they take too much of it; returns the chunks to put.
    fn roll(&mut self) -> Vec<(String, Bytes)> {
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

/// Adds an event to those that are serialized.
fn append(events: &mut Vec<u8>, event: &Event) {
    if !events.is_empty() {
        events.push(b',');
    }
    serde_json::to_writer(events, event).expect("events have text keys and no failing parts");
}

pub(crate) fn is_by(body: &[u8], by: &str) -> bool {
    read_entry(body).is_ok_and(|entry| entry.is_ok_and(|entry| entry.by == by))
}

/// The rest of a batch whose entry landed: puts and deletes that may be repeated.
fn without_entry(batch: &Batch, entry: &str) -> Batch {
    use wigwag_store::Operation;
    batch.operations().iter().fold(Batch::new(), |rest, operation| match operation {
        Operation::Put(put) if put.key == entry => rest,
        Operation::Put(put) => rest.put(&put.key, put.body.clone()),
        Operation::Delete(delete) => rest.delete(&delete.key),
        _ => rest,
    })
}

/// A payload as an object of its own.
pub(crate) fn blob(inner: &Inner, run: &RunRef, point: Option<&Path>, payload: &Payload) -> (Data, (String, Bytes)) {
    let nonce = inner.by();
    let key = Key::blob(run, point, &nonce).to_string();
    let text = payload.text().to_owned();
    (Data::Blob(Blob { nonce, bytes: text.len() }), (key, text.into()))
}
