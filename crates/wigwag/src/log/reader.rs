//! Reads runs: the snapshot, the entries after it, and single entries for history and signal outcomes.

use std::collections::BTreeSet;

use futures_util::future::try_join_all;
use wigwag_core::{
    Entry, Event, Fate, Key, Mode, Name, Run, RunRef, Tombstone, deliberate_bug, limits, read_entry, read_state,
};
use wigwag_store::{Store, Version};

use super::archive::make_whole;
use crate::error::{Error, ErrorKind, Result};

/// A run and the version of the snapshot it was read from.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) run: Run,
    /// Version of the snapshot that was read, if there was one.
    pub(crate) snapshot: Option<Version>,
    /// Last entry of that snapshot; 0 without one.
    pub(crate) snapshot_seq: u64,
}

/// Reads a run: its snapshot, then the entries after it, 1, 2, 4, 8 at a time until one is absent.
pub(crate) async fn read(store: &dyn Store, run: &RunRef) -> Result<Option<Loaded>> {
    let snapshot = read_snapshot(store, run).await?;
    read_on(store, run, snapshot).await
}

/// Reads the snapshot of a run.
pub(crate) async fn read_snapshot(store: &dyn Store, run: &RunRef) -> Result<Option<(Run, Version)>> {
    let key = Key::State { run: run.clone() }.to_string();
    let Some(object) = store.get(&key).await? else { return Ok(None) };
    let folded = read_state(run.clone(), &object.body).map_err(|refusal| {
        Error::unreadable(&key, refusal)
            .hint("it is a copy of what the log of the run says: once it is deleted, the log is read instead")
    })?;
    Ok(Some((folded, object.version)))
}

/// Reads the entries after the snapshot of a run, or all of them.
pub(crate) async fn read_on(store: &dyn Store, run: &RunRef, from: Option<(Run, Version)>) -> Result<Option<Loaded>> {
    let (mut folded, snapshot) = from.unzip();
    let snapshot_seq = folded.as_ref().map_or(0, |run| run.seq);
    catch_up(store, run, &mut folded).await?;
    Ok(folded.map(|run| Loaded { run, snapshot, snapshot_seq }))
}

/// Reads a run with all its points, including those in chunks.
pub(crate) async fn read_whole(store: &dyn Store, run: &RunRef) -> Result<Option<Loaded>> {
    let Some(mut loaded) = read(store, run).await? else { return Ok(None) };
    make_whole(store, &mut loaded.run).await?;
    Ok(Some(loaded))
}

/// Reads and folds the entries that were appended since `folded` was read.
async fn catch_up(store: &dyn Store, run: &RunRef, folded: &mut Option<Run>) -> Result<()> {
    catch_up_until(store, run, folded, |_| false).await
}

/// Like [`catch_up`], for a caller that waits for the end: stops at a final entry.
pub(crate) async fn catch_up_to_end(store: &dyn Store, run: &RunRef, folded: &mut Option<Run>) -> Result<()> {
    catch_up_until(store, run, folded, |run| run.status.is_final()).await
}

async fn catch_up_until(
    store: &dyn Store,
    run: &RunRef,
    folded: &mut Option<Run>,
    is_enough: impl Fn(&Run) -> bool,
) -> Result<()> {
    let mut width = 1;
    loop {
        let next = folded.as_ref().map_or(1, |run| run.seq + 1);
        let (entries, tombstone) = read_to_tombstone(store, run, next, next + width).await?;
        let found = entries.len();
        for entry in entries {
            // These events change points that may have moved to a chunk.
            let reaches_back = |event: &Event| match event {
                _ if deliberate_bug!(RolledForgotten) => false,
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
        if (found as u64) < width || folded.as_ref().is_some_and(&is_enough) {
            return Ok(());
        }
        width = (width * 2).min(8);
    }
}

/// Reads and folds the entries that were appended since `run` was read.
pub(crate) async fn catch_up_run(store: &dyn Store, run: &mut Run) -> Result<()> {
    let of = run.run.clone();
    let mut folded = Some(run.take());
    let outcome = catch_up(store, &of, &mut folded).await;
    if let Some(folded) = folded {
        *run = folded;
    }
    outcome
}

/// Reads an object whose key was built from stored data. An invalid key means that the stored data is damaged.
pub(crate) async fn get_named(store: &dyn Store, key: &str) -> Result<Option<wigwag_store::Object>> {
    match store.get(key).await {
        Err(error) if error.kind() == wigwag_store::ErrorKind::Invalid => Err(Error::unreadable(key, error)),
        read => Ok(read?),
    }
}

/// Reads entries `from..to`, up to the first that is absent. A removed run is an error of kind `Gone`.
pub(crate) async fn read_entries(store: &dyn Store, run: &RunRef, from: u64, to: u64) -> Result<Vec<Entry>> {
    match read_to_tombstone(store, run, from, to).await? {
        (_, Some((_, tombstone))) => Err(gone(run, &tombstone)),
        (entries, None) => Ok(entries),
    }
}

/// Reads entries `from..to`, up to the first that is absent, and the tombstone with its key if there is one.
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

fn fold(run: &RunRef, folded: &mut Option<Run>, entry: &Entry) -> Result<()> {
    match folded {
        Some(folded) => folded.apply(entry),
        None => Run::begin(run.clone(), entry).map(|begun| *folded = Some(begun)),
    }
    .map_err(|refusal| {
        let key = Key::Entry { run: run.clone(), seq: entry.seq };
        Error::damaged(format!("`{key}` does not follow the entries stored before it: {refusal}"))
    })
}

/// Returns a signal's outcome from the log: for runs whose steps were dropped by a restart.
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

/// Returns whether the log records that a wait consumed the signal.
pub(crate) async fn is_taken_in_log(store: &dyn Store, run: &RunRef, name: &Name, signal: &str) -> Result<bool> {
    Ok(matches!(fate_in_log(store, run, name, signal).await?, Some(Fate::Consumed { .. })))
}
