//! Watches the store during the simulation, for violations that are not visible at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use wigwag_core::PointStatus::Completed;
use wigwag_core::audit::{Breach, Promise};
use wigwag_core::{Event, Key, Path, PauseCause, Point, Run, RunRef, prefix, read_entry, read_state};
use wigwag_store::{Batch, Memory, Operation, Store as _};

/// The observations. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// Number of the entry of each run's snapshot.
    snapshots: BTreeMap<RunRef, u64>,
    /// Simulated time of each entry.
    entries: BTreeMap<(RunRef, u64), Duration>,
    /// Batches that were rejected because they exceed a drawn limit: the last one of each process.
    excesses: BTreeMap<String, String>,
    /// Simulated times at which a failure paused each run, by its id.
    stopped: BTreeMap<String, Vec<Duration>>,
    /// Every run, folded from its log so far.
    folded: BTreeMap<RunRef, Run>,
    /// Objects of runs at the time when retention removed them.
    attic: BTreeMap<RunRef, Vec<(String, Bytes)>>,
    /// Control objects that each process put, in order: the run and the control's id.
    controls: BTreeMap<String, Vec<(RunRef, String)>>,
    /// Number of reads of each run's snapshot by workers since its last entry, after the faults.
    visits: BTreeMap<RunRef, u32>,
    calm: bool,
    wrong: Vec<Breach>,
}

impl Watch {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts to count reads.
    pub fn calm_down(&self) {
        self.seen().calm = true;
    }

    /// Returns the observed violations.
    #[must_use]
    pub fn wrong(&self) -> Vec<Breach> {
        self.seen().wrong.clone()
    }

    /// Returns the runs that retention removed, with all their objects.
    #[must_use]
    pub fn attic(&self) -> BTreeMap<RunRef, Vec<(String, Bytes)>> {
        self.seen().attic.clone()
    }

    /// Whether retention removed the run.
    #[must_use]
    pub fn is_removed(&self, run: &RunRef) -> bool {
        self.seen().attic.contains_key(run)
    }

    /// Whether the result of a step is in the log, and was not dropped by a restart since.
    #[must_use]
    pub fn is_recorded(&self, run: &RunRef, step: &str) -> bool {
        let is_completed = |(path, point): (&Path, &Point)| path.as_str() == step && point.status == Completed;
        let seen = self.seen();
        let Ok(path) = Path::new(step) else { return false };
        seen.folded.get(run).and_then(|run| run.points.get_key_value(&path)).is_some_and(is_completed)
    }

    /// Simulated time of each entry.
    #[must_use]
    pub fn entries(&self) -> BTreeMap<(RunRef, u64), Duration> {
        self.seen().entries.clone()
    }

    /// Simulated times at which a failure paused each run, by its id.
    #[must_use]
    pub fn stopped(&self) -> BTreeMap<String, Vec<Duration>> {
        self.seen().stopped.clone()
    }

    /// Records that a batch of a process exceeds a drawn limit.
    pub fn refuse(&self, process: &str, excess: String) {
        self.seen().excesses.insert(process.to_owned(), excess);
    }

    /// Returns the rejected batches.
    #[must_use]
    pub fn excesses(&self) -> BTreeSet<String> {
        self.seen().excesses.values().cloned().collect()
    }

    /// Returns the control objects that a process has written so far.
    #[must_use]
    pub fn controls_by(&self, process: &str) -> Vec<(RunRef, String)> {
        self.seen().controls.get(process).cloned().unwrap_or_default()
    }

    /// Returns the runs whose snapshot workers read more than `max` times without appending an entry.
    #[must_use]
    pub fn visited_in_vain(&self, max: u32) -> Vec<(RunRef, u32)> {
        let seen = self.seen();
        let often = seen.visits.iter().filter(|(_, count)| **count > max);
        often.map(|(run, count)| (run.clone(), *count)).collect()
    }

    /// Records that a process reads an object.
    pub fn read(&self, process: &str, key: &str) {
        if !process.starts_with('w') || !key.ends_with("/state.json") {
            return;
        }
        let mut seen = self.seen();
        if seen.calm
            && let Ok(Key::State { run }) = key.parse::<Key>()
        {
            *seen.visits.entry(run).or_default() += 1;
        }
    }

    /// Called before a write: returns the runs that it removes for retention, with their objects.
    pub async fn before(&self, memory: &Memory, batch: &Batch) -> Vec<(RunRef, Vec<(String, Bytes)>)> {
        let mut taken = Vec::new();
        for operation in batch.operations() {
            let Operation::Put(put) = operation else { continue };
            // A tombstone is far smaller than any entry, so most entries need not be parsed.
            if !put.key.contains("/log/") || put.body.len() > 512 {
                continue;
            }
            let Ok(Key::Entry { run, .. }) = put.key.parse::<Key>() else { continue };
            let is_tombstone = matches!(read_entry(&put.body), Ok(Err(_)));
            if is_tombstone && !self.is_removed(&run) {
                let objects = objects_below(memory, &prefix::run(&run)).await;
                taken.push((run, objects));
            }
        }
        taken
    }

    /// Called after a write of a process, with the runs that it removed.
    pub fn after(&self, process: &str, at: Duration, batch: &Batch, taken: Vec<(RunRef, Vec<(String, Bytes)>)>) {
        let mut seen = self.seen();
        seen.attic.extend(taken);
        for operation in batch.operations() {
            let key = operation.key();
            match operation {
                Operation::Put(put) if key.contains("/signals/.control/") => seen.control(process, &put.key),
                Operation::Put(put) if key.ends_with("/state.json") => seen.snapshot(key, &put.body),
                Operation::Put(put) if key.contains("/log/") => seen.entry(key, &put.body, at),
                Operation::Delete(_) if key.ends_with("/log/0000000001.json") => {
                    // The id is free: a later run with it is another one.
                    if let Ok(Key::Entry { run, .. }) = key.parse::<Key>() {
                        seen.snapshots.remove(&run);
                        seen.folded.remove(&run);
                    }
                }
                _ => {}
            }
        }
    }
}

impl Seen {
    fn control(&mut self, process: &str, key: &str) {
        let run = key.split_once("/signals/").and_then(|(run, _)| run.parse().ok());
        let id = key.rsplit_once('_').map(|(_, id)| id.trim_end_matches(".json").to_owned());
        self.controls.entry(process.to_owned()).or_default().extend(run.zip(id));
    }

    fn snapshot(&mut self, key: &str, body: &[u8]) {
        let Ok(Key::State { run }) = key.parse::<Key>() else { return };
        let Ok(state) = read_state(run.clone(), body) else { return };
        let before = self.snapshots.insert(run, state.seq).unwrap_or_default();
        if before > state.seq {
            let what = format!("`{key}` went back from entry {before} to {}", state.seq);
            self.wrong.push(Breach::new(Promise::IndexesFollow, what));
        }
    }

    fn entry(&mut self, key: &str, body: &[u8], at: Duration) {
        let Ok(Key::Entry { run, seq }) = key.parse::<Key>() else { return };
        self.visits.remove(&run);
        self.entries.insert((run.clone(), seq), at);
        let Ok(Ok(entry)) = read_entry(body) else { return };
        let stops = |event: &Event| matches!(event, Event::RunPaused(event) if event.why == PauseCause::Failure);
        if entry.events.iter().any(stops) {
            self.stopped.entry(run.id.to_string()).or_default().push(at);
        }
        // The audit reports logs that cannot be folded.
        match self.folded.get_mut(&run) {
            Some(folded) => _ = folded.apply(&entry),
            None => self.folded.extend(Run::begin(run.clone(), &entry).ok().map(|begun| (run, begun))),
        }
    }
}

/// Returns all objects below a prefix.
pub async fn objects_below(memory: &Memory, below: &str) -> Vec<(String, Bytes)> {
    let mut objects = Vec::new();
    for key in keys_below(memory, below).await {
        if let Ok(Some(object)) = memory.get(&key).await {
            objects.push((key, object.body));
        }
    }
    objects
}

/// Returns all keys below a prefix.
pub async fn keys_below(memory: &Memory, below: &str) -> Vec<String> {
    let mut keys = Vec::new();
    let mut after = String::new();
    loop {
        let page = memory.list(below, &after, 1_000).await.expect("memory lists");
        keys.extend(page.entries.iter().map(|listed| listed.key.clone()));
        match page.entries.last() {
            Some(last) if page.more => after.clone_from(&last.key),
            _ => return keys,
        }
    }
}
