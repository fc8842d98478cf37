//! Watches the store while things happen, for what cannot be seen in the end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use wigwag_core::audit::{Breach, Promise};
use wigwag_core::{Key, RunRef, prefix, read_entry, read_state};
use wigwag_store::{Batch, Memory, Operation, Store as _};

/// What was seen. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    /// The entry that each run's snapshot is of.
    snapshots: BTreeMap<RunRef, u64>,
    /// What runs were when retention took them.
    attic: BTreeMap<RunRef, Vec<(String, Bytes)>>,
    wrong: Vec<Breach>,
}

impl Watch {
    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was wrong.
    #[must_use]
    pub fn wrong(&self) -> Vec<Breach> {
        self.seen().wrong.clone()
    }

    /// Runs that retention took, with all that was theirs.
    #[must_use]
    pub fn attic(&self) -> BTreeMap<RunRef, Vec<(String, Bytes)>> {
        self.seen().attic.clone()
    }

    /// Before something is written: the runs that retention takes with it, as they are.
    pub async fn before(&self, memory: &Memory, batch: &Batch) -> Vec<(RunRef, Vec<(String, Bytes)>)> {
        let mut taken = Vec::new();
        for operation in batch.operations() {
            let Operation::Put(put) = operation else { continue };
            let Ok(Key::Entry { run, .. }) = put.key.parse::<Key>() else { continue };
            let is_tombstone = matches!(read_entry(&put.body), Ok(Err(_)));
            if is_tombstone && !self.seen().attic.contains_key(&run) {
                let objects = objects_below(memory, &prefix::run(&run)).await;
                taken.push((run, objects));
            }
        }
        taken
    }

    /// After something was written, and these were taken with it.
    pub fn after(&self, batch: &Batch, taken: Vec<(RunRef, Vec<(String, Bytes)>)>) {
        self.seen().attic.extend(taken);
        let mut seen = self.seen();
        for operation in batch.operations() {
            match (operation.key().parse::<Key>(), operation) {
                (Ok(Key::State { run }), Operation::Put(put)) => {
                    let Ok(state) = read_state(run.clone(), &put.body) else { continue };
                    let before = seen.snapshots.insert(run, state.seq).unwrap_or_default();
                    if before > state.seq {
                        let what = format!("`{}` went back from entry {before} to {}", put.key, state.seq);
                        seen.wrong.push(Breach::new(Promise::IndexesFollow, what));
                    }
                }
                (Ok(Key::Entry { run, seq: 1 }), Operation::Delete(_)) => {
                    // The id is free: what follows is another run.
                    seen.snapshots.remove(&run);
                }
                _ => {}
            }
        }
    }
}

/// All objects below a prefix.
pub async fn objects_below(memory: &Memory, below: &str) -> Vec<(String, Bytes)> {
    let mut objects = Vec::new();
    for key in keys_below(memory, below).await {
        if let Ok(Some(object)) = memory.get(&key).await {
            objects.push((key, object.body));
        }
    }
    objects
}

/// All keys below a prefix.
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
