//! The stored forms, version 1: entries, snapshots, chunks. Golden files keep them as they are.
//!
//! Holds: reading what was written gives what was there. A form that this version does not know is refused by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    CancelRequest, Chain, CompensationError, Data, Event, Fault, Inbox, Lease, Name, Parent, Path, Pause, Point,
    Refusal, Rolled, Run, RunRef, Status, TaskSpec, Time, TypeName,
};

/// One commit of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number, from 1.
    pub seq: u64,
    /// Unique to who wrote it, so that a writer knows its own after a lost answer.
    pub by: String,
    /// When, by the store's clock.
    pub at: Time,
    /// What happened.
    pub events: Vec<Event>,
}

impl Entry {
    /// Its bytes.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        line(self)
    }
}

/// What stands in place of entry 1 once retention took the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tombstone {
    /// When the run was taken.
    pub gone_at: Time,
    /// How it had ended.
    pub status: Status,
}

impl Tombstone {
    /// Its bytes.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        line(self)
    }
}

/// Reads what is stored as an entry; over the first may lie a tombstone.
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

/// `state.json`: the fields people look for first come first.
#[derive(Serialize, Deserialize)]
struct State {
    v: u32,
    id: crate::RunId,
    #[serde(rename = "type")]
    of: TypeName,
    definition_hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    status: Status,
    #[serde(default)]
    current_steps: Vec<Path>,
    data: Map<String, Value>,
    steps: BTreeMap<Path, Point>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    signals: BTreeMap<Name, Inbox>,
    #[serde(default)]
    waits: Vec<Path>,
    error: Option<Fault>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    compensation_errors: Vec<CompensationError>,
    created_at: Time,
    updated_at: Time,
    seq: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    lease: Option<Lease>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_at: Option<Time>,
    input: Data,
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::payload::present")]
    result: Option<Data>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    not_before: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<Parent>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task: Option<TaskSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cancel: Option<CancelRequest>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pause: Option<Pause>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compensation: Option<Chain>,
    #[serde(default)]
    restarts: u32,
    #[serde(default)]
    parked: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hints: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    controls: BTreeMap<String, Time>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    chunks: Vec<Rolled>,
    /// Unique to who wrote it: some buckets take equal bytes for no change.
    by: String,
}

/// The bytes of a snapshot. Points that were rolled out are left out.
#[must_use]
pub fn state_to_json(run: &Run, by: &str) -> Vec<u8> {
    let kept = run.open.iter().chain(&run.unrolled);
    let steps = kept.filter_map(|path| Some((path.clone(), run.points.get(path)?.clone()))).collect();
    let state = State {
        v: VERSION,
        id: run.run.id.clone(),
        of: run.of.clone(),
        definition_hash: run.definition_hash.clone(),
        version: run.version,
        status: run.status,
        current_steps: run.open.iter().cloned().collect(),
        data: run.data.clone(),
        steps,
        signals: run.signals.clone(),
        waits: run.waits().map(|(path, _)| path.clone()).collect(),
        error: run.error.clone(),
        compensation_errors: run.compensation_errors.clone(),
        created_at: run.created_at,
        updated_at: run.updated_at,
        seq: run.seq,
        lease: run.lease.clone(),
        next_at: run.next_at,
        input: run.input.clone(),
        result: run.result.clone(),
        not_before: run.not_before,
        parent: run.parent.clone(),
        task: run.task.clone(),
        cancel: run.cancel.clone(),
        pause: run.pause.clone(),
        compensation: run.chain.clone(),
        restarts: run.restarts,
        parked: run.parked,
        hints: run.hints.clone(),
        controls: run.controls.clone(),
        chunks: run.rolled.clone(),
        by: by.into(),
    };
    line(&state)
}

/// Reads a snapshot. Points that were rolled out are missing until [`Run::unroll`].
pub fn read_state(run: RunRef, body: &[u8]) -> Result<Run, Refusal> {
    let state: State =
        serde_json::from_slice(body).map_err(|error| Refusal::new(format!("not a snapshot of `{run}`: {error}")))?;
    if state.v != VERSION || state.id != run.id {
        let (v, id) = (state.v, state.id);
        return Err(Refusal::new(format!("not a snapshot of `{run}` in version {VERSION}: of `{id}` in version {v}")));
    }
    let open =
        state.steps.iter().filter(|(_, point)| !point.status.is_settled()).map(|(path, _)| path.clone()).collect();
    let mut settled: Vec<(&Path, &Point)> = state.steps.iter().filter(|(_, point)| point.status.is_settled()).collect();
    settled.sort_by_key(|(_, point)| (point.seq, point.place));
    let unrolled = settled.into_iter().map(|(path, _)| path.clone()).collect();
    Ok(Run {
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
        created_at: state.created_at,
        updated_at: state.updated_at,
    })
}

/// Points that left the snapshot: those that were settled in a range of entries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    /// Where they were in the log.
    pub range: Rolled,
    /// The points.
    pub steps: BTreeMap<Path, Point>,
}

/// The bytes of a chunk: the same whoever writes it, because they follow from the log alone.
#[must_use]
pub fn chunk_to_json(chunk: &Chunk) -> Vec<u8> {
    line(chunk)
}

/// Reads a chunk.
pub fn read_chunk(body: &[u8]) -> Result<Chunk, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::new(format!("not a chunk: {error}")))
}

impl Run {
    /// Takes all settled points out of the snapshot into a chunk; `None` when there are none.
    ///
    /// The chunk must be written before the snapshot that leaves them out.
    #[must_use]
    pub fn roll(&mut self) -> Option<Chunk> {
        if self.unrolled.is_empty() {
            return None;
        }
        let from = self.rolled.last().map_or(1, |last| last.to + 1);
        let paths = std::mem::take(&mut self.unrolled);
        let steps: BTreeMap<Path, Point> =
            paths.into_iter().filter_map(|path| Some((path.clone(), self.points.get(&path)?.clone()))).collect();
        let range = Rolled { from, to: self.seq, points: steps.len() };
        self.rolled.push(range);
        Some(Chunk { range, steps })
    }

    /// Puts back what a chunk holds.
    pub fn unroll(&mut self, chunk: Chunk) {
        self.points.extend(chunk.steps);
    }
}
