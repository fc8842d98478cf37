//! The stored forms, version 1: entries, snapshots, chunks. Golden files keep them as they are.
//!
//! Holds: a stored form decodes to the value that was encoded. An unknown format version is rejected by name.

use std::collections::BTreeMap;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::limits::{self, POINTS_MAX};
use crate::{
    CancelRequest, Chain, Closing, CompensationError, Data, Event, Fault, Inbox, Lease, Name, Parent, Path, Pause,
    Point, Refusal, Requests, Rolled, Run, RunRef, Status, TaskSpec, Time, TypeName, stamp_of,
};

/// One commit of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Number of the entry, starting at 1.
    pub seq: u64,
    /// Unique per writer, so that a writer recognises its own entry after a lost response.
    pub by: String,
    /// Time of the commit, by the store's clock.
    pub at: Time,
    /// Events of the commit.
    pub events: Vec<Event>,
    /// Store requests of the writer for this run since its previous entry, including those of this commit.
    #[serde(default, skip_serializing_if = "Requests::is_none")]
    pub requests: Requests,
}

impl Entry {
    /// Encodes the entry as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        line(self)
    }

    /// Returns the same bytes, made of events that were serialized before, with commas between them.
    #[must_use]
    pub fn to_json_with_events(&self, events: &[u8]) -> Vec<u8> {
        const HEAD: &str = "entries have text keys and no failing parts";
        let mut bytes = Vec::with_capacity(events.len() + 256);
        bytes.extend_from_slice(b"{\"seq\":");
        bytes.extend_from_slice(self.seq.to_string().as_bytes());
        bytes.extend_from_slice(b",\"by\":");
        serde_json::to_writer(&mut bytes, &self.by).expect(HEAD);
        bytes.extend_from_slice(b",\"at\":");
        serde_json::to_writer(&mut bytes, &self.at).expect(HEAD);
        bytes.extend_from_slice(b",\"events\":[");
        bytes.extend_from_slice(events);
        bytes.push(b']');
        if !self.requests.is_none() {
            bytes.extend_from_slice(b",\"requests\":");
            serde_json::to_writer(&mut bytes, &self.requests).expect(HEAD);
        }
        bytes.extend_from_slice(b"}\n");
        bytes
    }
}

/// The tombstone that replaces entry 1 once retention deleted the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// Time of the deletion.
    pub gone_at: Time,
    /// How it had ended.
    pub status: Status,
}

impl Tombstone {
    /// Encodes the tombstone as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        line(self)
    }
}

/// Decodes an entry; a tombstone may replace the first one.
pub fn read_entry(body: &[u8]) -> Result<Result<Entry, Tombstone>, Refusal> {
    match serde_json::from_slice::<Entry>(body) {
        Ok(entry) => Ok(Ok(entry)),
        Err(error) => match serde_json::from_slice::<Tombstone>(body) {
            Ok(tombstone) => Ok(Err(tombstone)),
            Err(_) => Err(Refusal::new(format!("not a log entry: {error}"))),
        },
    }
}

fn line<T: Serialize>(value: &T) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    serde_json::to_writer(&mut bytes, value).expect("stored forms have text keys and no failing parts");
    bytes.push(b'\n');
    bytes
}

/// The version of the snapshot's form.
const VERSION: u32 = 1;

/// `state.json` as it is decoded, without the fields for display only. It has a field for each stored one: the stored
/// form is flat.
#[derive(Deserialize)]
struct State {
    v: u32,
    id: crate::RunId,
    #[serde(rename = "type")]
    of: TypeName,
    definition_hash: String,
    #[serde(default)]
    version: Option<u32>,
    status: Status,
    data: Map<String, Value>,
    steps: BTreeMap<Path, Point>,
    #[serde(default)]
    signals: BTreeMap<Name, Inbox>,
    error: Option<Fault>,
    #[serde(default)]
    compensation_errors: Vec<CompensationError>,
    created_at: Time,
    updated_at: Time,
    seq: u64,
    #[serde(default)]
    lease: Option<Lease>,
    #[serde(default)]
    next_at: Option<Time>,
    input: Data,
    #[serde(default, deserialize_with = "crate::payload::present")]
    result: Option<Data>,
    #[serde(default)]
    not_before: Option<Time>,
    #[serde(default)]
    parent: Option<Parent>,
    #[serde(default)]
    task: Option<TaskSpec>,
    #[serde(default)]
    cancel: Option<CancelRequest>,
    #[serde(default)]
    pause: Option<Pause>,
    #[serde(default)]
    compensation: Option<Chain>,
    #[serde(default)]
    restarts: u32,
    #[serde(default)]
    parked: bool,
    #[serde(default)]
    hints: Vec<String>,
    #[serde(default)]
    controls: BTreeMap<String, Time>,
    #[serde(default)]
    chunks: Vec<Rolled>,
    #[serde(default)]
    requests: Requests,
}

/// The bytes of a snapshot. Points that were rolled out are left out.
#[must_use]
pub fn state_to_json(run: &Run, by: &str) -> Vec<u8> {
    line(&Snapshot { run, by, dollars: None })
}

/// The snapshot for display: with the cost of the run's requests.
#[must_use]
pub fn shown_to_json(run: &Run, by: &str, dollars: f64) -> Vec<u8> {
    line(&Snapshot { run, by, dollars: Some(dollars) })
}

/// A borrowed snapshot for encoding: nothing is copied.
struct Snapshot<'a> {
    run: &'a Run,
    by: &'a str,
    /// Not stored, because prices change.
    dollars: Option<f64>,
}

impl Serialize for Snapshot<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let run = self.run;
        let kept = run.open.iter().chain(&run.unrolled);
        let steps: BTreeMap<&Path, &Point> = kept.filter_map(|path| run.points.get_key_value(path)).collect();
        let waits: Vec<&Path> = run.waits().map(|(path, _)| path).collect();
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("v", &VERSION)?;
        map.serialize_entry("id", &run.run.id)?;
        map.serialize_entry("type", &run.of)?;
        map.serialize_entry("definition_hash", &run.definition_hash)?;
        some(&mut map, "version", run.version.as_ref())?;
        map.serialize_entry("status", &run.status)?;
        map.serialize_entry("current_steps", &run.open)?;
        map.serialize_entry("data", &run.data)?;
        map.serialize_entry("steps", &steps)?;
        some(&mut map, "signals", Some(&run.signals).filter(|signals| !signals.is_empty()))?;
        map.serialize_entry("waits", &waits)?;
        map.serialize_entry("error", &run.error)?;
        some(&mut map, "compensation_errors", Some(&run.compensation_errors).filter(|errors| !errors.is_empty()))?;
        map.serialize_entry("created_at", &run.created_at)?;
        map.serialize_entry("updated_at", &run.updated_at)?;
        map.serialize_entry("seq", &run.seq)?;
        some(&mut map, "lease", run.lease.as_ref())?;
        some(&mut map, "next_at", run.next_at.as_ref())?;
        map.serialize_entry("input", &run.input)?;
        some(&mut map, "result", run.result.as_ref())?;
        some(&mut map, "not_before", run.not_before.as_ref())?;
        some(&mut map, "parent", run.parent.as_ref())?;
        some(&mut map, "task", run.task.as_ref())?;
        some(&mut map, "cancel", run.cancel.as_ref())?;
        some(&mut map, "pause", run.pause.as_ref())?;
        some(&mut map, "compensation", run.chain.as_ref())?;
        map.serialize_entry("restarts", &run.restarts)?;
        map.serialize_entry("parked", &run.parked)?;
        some(&mut map, "hints", Some(&run.hints).filter(|hints| !hints.is_empty()))?;
        some(&mut map, "controls", Some(&run.controls).filter(|controls| !controls.is_empty()))?;
        some(&mut map, "chunks", Some(&run.rolled).filter(|chunks| !chunks.is_empty()))?;
        let requests = Some(&run.requests).filter(|requests| !requests.is_none());
        some(&mut map, "requests", requests)?;
        some(&mut map, "dollars", self.dollars.as_ref().filter(|_| requests.is_some()))?;
        // Unique per writer: some buckets treat a write of equal bytes as no change.
        map.serialize_entry("by", self.by)?;
        map.end()
    }
}

/// An optional field, omitted if empty.
fn some<M: SerializeMap, T: Serialize>(map: &mut M, name: &str, value: Option<&T>) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| map.serialize_entry(name, value))
}

/// Reads a snapshot. Points that were rolled out are missing until [`Run::unroll`].
pub fn read_state(run: RunRef, body: &[u8]) -> Result<Run, Refusal> {
    let state: State =
        serde_json::from_slice(body).map_err(|error| Refusal::new(format!("not a snapshot of `{run}`: {error}")))?;
    if state.v != VERSION || state.id != run.id {
        let (v, id) = (state.v, state.id);
        return Err(Refusal::new(format!("not a snapshot of `{run}` in version {VERSION}: of `{id}` in version {v}")));
    }
    check_counts(&run, &state)?;
    let open =
        state.steps.iter().filter(|(_, point)| !point.status.is_settled()).map(|(path, _)| path.clone()).collect();
    let mut settled: Vec<(&Path, &Point)> = state.steps.iter().filter(|(_, point)| point.status.is_settled()).collect();
    settled.sort_by_key(|(_, point)| (point.seq, point.place));
    let unrolled = settled.into_iter().map(|(path, _)| path.clone()).collect();
    let mut run = Run {
        run,
        of: state.of,
        definition_hash: state.definition_hash,
        version: state.version,
        seq: state.seq,
        status: state.status,
        input: state.input,
        data: state.data,
        points: state.steps,
        open,
        unrolled,
        rolled: state.chunks,
        lease: state.lease,
        hints: state.hints,
        parked: state.parked,
        next_at: state.next_at,
        not_before: state.not_before,
        parent: state.parent,
        task: state.task,
        cancel: state.cancel,
        pause: state.pause,
        chain: state.compensation,
        restarts: state.restarts,
        controls: state.controls,
        signals: state.signals,
        error: state.error,
        compensation_errors: state.compensation_errors,
        result: state.result,
        requests: state.requests,
        created_at: state.created_at,
        updated_at: state.updated_at,
    };
    for inbox in run.signals.values_mut() {
        inbox.taken.clone_from(&inbox.taken_by_dropped);
    }
    restore_taken(&mut run.signals, run.points.values());
    Ok(run)
}

/// Records the signals consumed by these steps in the inboxes.
fn restore_taken<'a>(signals: &mut BTreeMap<Name, Inbox>, points: impl Iterator<Item = &'a Point>) {
    for wait in points.filter_map(|point| point.wait.as_deref()) {
        if let Some(inbox) = signals.get_mut(&wait.name) {
            wait.received.iter().for_each(|taken| inbox.restore(taken));
        }
    }
}

/// Rejects counters that no log can produce: later numbers would derive from them.
fn check_counts(run: &RunRef, state: &State) -> Result<(), Refusal> {
    let entries = 1..=limits::ENTRIES_MAX;
    let fits = |rolled: &Rolled| {
        entries.contains(&rolled.from) && (rolled.from..=state.seq).contains(&rolled.to) && rolled.points <= POINTS_MAX
    };
    if entries.contains(&state.seq) && state.chunks.iter().all(fits) {
        return Ok(());
    }
    Err(Refusal::new(format!("not a snapshot of `{run}`: no log has such an entry or chunk: {}", state.seq)))
}

/// Settled steps moved out of the snapshot, for a range of entries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    /// Range of entries in which they settled.
    pub range: Rolled,
    /// The steps by path.
    pub steps: BTreeMap<Path, Point>,
}

impl Chunk {
    fn new(from: u64, to: u64, steps: BTreeMap<Path, Point>) -> Self {
        let received = steps.values().filter_map(|point| point.wait.as_deref()).flat_map(|wait| &wait.received);
        let taken = received.filter_map(|taken| stamp_of(&taken.signal)).max();
        Self { range: Rolled { from, to, points: steps.len(), taken }, steps }
    }
}

/// Encodes a chunk. The bytes follow from the log alone, so every writer produces the same.
#[must_use]
pub fn chunk_to_json(chunk: &Chunk) -> Vec<u8> {
    line(chunk)
}

/// Reads a chunk.
pub fn read_chunk(body: &[u8]) -> Result<Chunk, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::new(format!("not a chunk: {error}")))
}

impl Run {
    /// Moves all settled points out of the snapshot into chunks of a bounded size.
    ///
    /// The chunks must be written before the snapshot that leaves these points out. After a restart or a migration all
    /// points that are left are moved again, so there may be many chunks. Points that were settled by one entry share a
    /// chunk, so that a chunk is named by its range of entries.
    #[must_use]
    pub fn roll(&mut self) -> Vec<Chunk> {
        let max = limits::current().chunk_bytes_max;
        let mut from = self.rolled.last().map_or(1, |last| last.to + 1);
        let mut chunks = Vec::new();
        let mut steps: BTreeMap<Path, Point> = BTreeMap::new();
        let (mut bytes, mut last) = (0, from);
        for path in std::mem::take(&mut self.unrolled) {
            let Some(point) = self.points.get(&path) else { continue };
            if bytes >= max && point.seq > last {
                chunks.push(Chunk::new(from, last, std::mem::take(&mut steps)));
                (from, bytes) = (last + 1, 0);
            }
            bytes += point.bytes();
            last = last.max(point.seq);
            steps.insert(path, point.clone());
        }
        if !steps.is_empty() {
            chunks.push(Chunk::new(from, self.seq, steps));
        }
        self.rolled.extend(chunks.iter().map(|chunk| chunk.range));
        chunks
    }

    /// Puts back what a chunk holds.
    pub fn unroll(&mut self, chunk: Chunk) {
        restore_taken(&mut self.signals, chunk.steps.values());
        self.points.extend(chunk.steps);
    }

    /// Returns the chunks that must be read to know the consumed signals: those of steps that consumed signals above a
    /// floor. Empty once all steps are in memory.
    #[must_use]
    pub fn chunks_with_taken(&self) -> Vec<Rolled> {
        let floor = self.signals.values().map(Inbox::floor_at).min();
        let Some(floor) = floor.filter(|_| !self.is_whole()) else { return Vec::new() };
        self.rolled.iter().filter(|rolled| rolled.taken.is_some_and(|last| last >= floor)).copied().collect()
    }
}

/// A stored step: the reason of its closing is derived from its error.
#[derive(Deserialize)]
pub(crate) struct StoredPoint {
    #[serde(default)]
    kind: crate::PointKind,
    status: crate::PointStatus,
    #[serde(default = "one")]
    attempt: u32,
    #[serde(default)]
    started_at: Option<Time>,
    #[serde(default)]
    ended_at: Option<Time>,
    #[serde(default, deserialize_with = "crate::payload::present")]
    result: Option<Data>,
    #[serde(default)]
    error: Option<Fault>,
    #[serde(default)]
    until: Option<Time>,
    #[serde(default)]
    relative: bool,
    #[serde(default)]
    compensate: bool,
    #[serde(default)]
    children: Option<crate::Children>,
    #[serde(default)]
    wait: Option<Box<crate::Wait>>,
    #[serde(default)]
    interrupted: u32,
    seq: u64,
    #[serde(default)]
    place: u32,
}

fn one() -> u32 {
    1
}

impl From<StoredPoint> for Point {
    fn from(stored: StoredPoint) -> Self {
        let StoredPoint { kind, status, attempt, started_at, ended_at, result, error, until, relative, .. } = stored;
        let StoredPoint { compensate, children, wait, interrupted, seq, place, .. } = stored;
        let closing = error.as_ref().filter(|_| status.is_settled()).and_then(Closing::of_fault);
        Self {
            kind,
            status,
            attempt,
            started_at,
            ended_at,
            result,
            error,
            closing,
            until,
            relative,
            compensate,
            children,
            wait,
            interrupted,
            seq,
            place,
        }
    }
}

impl Closing {
    const ALL: [Self; 3] = [Self::Lost, Self::Cancelled, Self::Finished];

    /// Returns the error of a point that was closed for this reason.
    pub(crate) fn fault(self) -> Fault {
        match self {
            Self::Lost => Fault::new("Dropped", "it was no longer waited for"),
            Self::Cancelled => Fault::new("Closed", "the run was cancelled"),
            Self::Finished => Fault::new("Closed", "the run ended"),
        }
    }

    /// Returns the reason that a stored error represents. An error of users' code with the same name has another text.
    fn of_fault(fault: &Fault) -> Option<Self> {
        Self::ALL.into_iter().find(|why| why.fault() == *fault)
    }
}
