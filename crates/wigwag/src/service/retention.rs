//! Retention: removes finished runs after a time, in two phases, so that a stalled writer can never revive an id.
//!
//! The order: a tombstone as the entry after the last, created only if it is absent, so that either the removal or a
//! concurrent restart wins and the loser notices; a tombstone over entry 1 (the id then counts as gone); then all objects
//! between them, the highest entry first. A day later the tombstones are deleted, entry 1 last, and the id is free.
//!
//! What if we die here? After the first tombstone every reader of the run gets the error `Gone`, and the next pass finds
//! the remaining objects by the key in `done/`, which is deleted last. An unfinished run is never removed: retention reads
//! the run itself and does not trust `done/`.
//!
//! A sender reads a run twice within a short time, and both reads must find the same entries. So a run that ended within
//! the last minute only gets its tombstones, and a later pass removes its objects. A slow sender reads the run from scratch.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use wigwag_core::deliberate_bug;
use wigwag_core::limits::{self, RETENTION_RECENT};
use wigwag_core::{Family, Key, Run, RunRef, Status, Time, Tombstone, prefix, read_entry};
use wigwag_store::{Batch, Listed};

use super::tick;
use crate::client::Client;
use crate::engine_core::EngineCore;
use crate::error::{ErrorKind, Result};
use crate::limits::{PRUNE_DELETES_MAX, PRUNED_AT_ONCE, RETENTION_INTERVAL, TOMBSTONE_AGE};
use crate::log;
use crate::pages::Pages;

/// Selects the finished runs to remove.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PruneOptions {
    /// Runs that ended longer ago than this.
    pub older_than: Duration,
    /// Only runs with this final status.
    pub status: Option<Status>,
    /// Report the runs to remove, but remove nothing.
    pub dry_run: bool,
}

impl PruneOptions {
    /// Selects all runs that ended longer ago than this.
    #[must_use]
    pub fn older_than(age: Duration) -> Self {
        Self { older_than: age, status: None, dry_run: false }
    }
}

/// Result of a removal of finished runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Pruned {
    /// Runs whose records were removed.
    pub runs: usize,
    /// Objects of these runs that were removed.
    pub objects: usize,
    /// Ids that are free again, because their tombstone was a day old.
    pub freed: usize,
}

impl Pruned {
    fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.objects += other.objects;
        self.freed += other.freed;
    }
}

pub(crate) async fn run(inner: Arc<EngineCore>, keep: Duration) {
    while tick(&inner, RETENTION_INTERVAL).await {
        match prune_once(&inner, &PruneOptions::older_than(keep), |_| {}).await {
            Ok(pruned) if pruned.runs > 0 => info!(?pruned, "removed old runs"),
            Ok(_) => {}
            Err(error) => warn!(%error, "old runs could not be removed; next in about {RETENTION_INTERVAL:?}"),
        }
    }
}

impl Client {
    /// Counts the finished runs that these options select, from keys alone: a LIST request for each thousand of them.
    pub async fn prunable(&self, options: &PruneOptions) -> Result<usize> {
        let (now, mut count) = (self.inner.now().await?.at, 0);
        let mut pages = Pages::new(&*self.inner.store, "done/");
        while let Some(entries) = pages.next().await? {
            let (old, is_last) = select(entries, now, options);
            count += old.len();
            if is_last {
                break;
            }
        }
        Ok(count)
    }

    /// Removes old finished runs.
    pub async fn prune(&self, options: &PruneOptions) -> Result<Pruned> {
        prune_once(&self.inner, options, |_| {}).await
    }

    /// Like [`Client::prune`]; `progress` is called with the result so far.
    pub async fn prune_with(&self, options: &PruneOptions, progress: impl FnMut(&Pruned)) -> Result<Pruned> {
        prune_once(&self.inner, options, progress).await
    }
}

async fn prune_once(
    inner: &Arc<EngineCore>,
    options: &PruneOptions,
    mut progress: impl FnMut(&Pruned),
) -> Result<Pruned> {
    let now = inner.now().await?.at;
    let mut pruned = Pruned::default();
    let mut pages = Pages::new(&*inner.store, "done/");
    while let Some(entries) = pages.next().await? {
        let (old, is_last) = select(entries, now, options);
        // Runs do not depend on each other: many at once share the commits of an embedded store.
        let each = old.into_iter().map(|done| prune_ended(inner, done, now, options));
        let mut each = stream::iter(each).buffer_unordered(PRUNED_AT_ONCE);
        while let Some(one) = each.next().await {
            pruned.add(&one?);
            progress(&pruned);
        }
        if is_last {
            break;
        }
    }
    Ok(pruned)
}

/// Returns the entries of a page that are old enough, and whether the pages after it are too young.
fn select(page: Vec<Listed>, now: Time, options: &PruneOptions) -> (Vec<String>, bool) {
    let mut old = Vec::new();
    for listed in page {
        let Ok(Key::Done { at, status, .. }) = listed.key.parse::<Key>() else { continue };
        // Days are listed in order, and within them times: the rest is younger.
        if now.since(at) <= options.older_than {
            return (old, true);
        }
        if options.status.is_none_or(|wanted| wanted == status) {
            old.push(listed.key);
        }
    }
    (old, false)
}

/// Prunes the run that a key in `done/` names.
async fn prune_ended(inner: &Arc<EngineCore>, done: String, now: Time, options: &PruneOptions) -> Result<Pruned> {
    let facts = inner.store.get(&done).await?;
    let facts: serde_json::Value =
        facts.and_then(|object| serde_json::from_slice(&object.body).ok()).unwrap_or_default();
    let run = facts["run"].as_str().and_then(|run| run.parse().ok());
    let run: RunRef = run.unwrap_or_else(|| RunRef { family: Family::Workflow, id: run_id(&done) });
    let mut pruned = Pruned::default();
    prune_run(inner, &run, &done, now, options, &mut pruned).await?;
    Ok(pruned)
}

fn run_id(done: &str) -> wigwag_core::RunId {
    match done.parse::<Key>() {
        Ok(Key::Done { run, .. }) => run,
        _ => "unknown".parse().expect("a plain id"),
    }
}

async fn prune_run(
    inner: &EngineCore,
    run: &RunRef,
    done: &str,
    now: Time,
    options: &PruneOptions,
    pruned: &mut Pruned,
) -> Result<()> {
    let loaded = match log::read(&*inner.store, run).await {
        // The key may be left from an earlier end of a restarted run. If the run has ended again, its parent may not have
        // been woken yet: the run is removed by its current key, and this key is deleted once the run is gone.
        Ok(Some(loaded)) if loaded.run.done_key().to_string() != done => return Ok(()),
        Ok(loaded) => loaded,
        Err(error) if error.kind() == ErrorKind::Gone => None,
        Err(error) if error.kind() == ErrorKind::Damaged => {
            warn!(%run, %error, "skipped a damaged run");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    if options.dry_run {
        pruned.runs += usize::from(loaded.is_some());
        return Ok(());
    }
    match loaded {
        Some(loaded) if is_waited_for(inner, &loaded.run).await? => Ok(()),
        Some(loaded) => take(inner, &loaded.run, now, pruned).await,
        None => take_the_rest(inner, run, done, now, pruned).await,
    }
}

/// Whether the parent of a run may still have to be woken: a wake-up that leads a worker to this task is left.
async fn is_waited_for(inner: &EngineCore, run: &Run) -> Result<bool> {
    if run.parent.is_none() || deliberate_bug!(PruneBeforeReport) {
        return Ok(false);
    }
    for hint in run.due_hints() {
        if inner.store.get(hint).await?.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes a run that has ended.
async fn take(inner: &EngineCore, run: &Run, now: Time, pruned: &mut Pruned) -> Result<()> {
    let tombstone = Tombstone { gone_at: now, status: run.status }.to_json();
    let fence = Key::Entry { run: run.run.clone(), seq: run.seq + 1 }.to_string();
    let first = first_of(&run.run);
    let is_old = now.since(run.updated_at) > RETENTION_RECENT;
    let kept = [first, fence];
    // Where a batch is one commit, it also deletes the other objects, unless there are too many. Objects that are sent to
    // the run after this listing are removed when the id is freed.
    let with_it = match is_old && inner.store.traits().atomic {
        true => Some(keys_of(inner, &run.run, &kept).await?).filter(|keys| keys.len() + 2 <= batch_max()),
        false => None,
    };
    let [first, fence] = &kept;
    // In this order, on every store: the tombstone over entry 1 follows the fence that was created.
    let mut batch = Batch::new();
    if !deliberate_bug!(PruneWithoutFence) {
        batch = batch.create(fence, tombstone.clone());
    }
    if !deliberate_bug!(PruneWithoutTombstone) {
        batch = batch.put(first, tombstone);
    }
    batch = with_it.iter().flatten().fold(batch, Batch::delete);
    match inner.store.write(batch).await {
        Ok(_) => {}
        // A concurrent restart won.
        Err(error) if error.is_exists() => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    pruned.runs += 1;
    match with_it {
        Some(keys) => pruned.objects += keys.len(),
        None if is_old => pruned.objects += remove(inner, &run.run, &kept).await?,
        None => {}
    }
    Ok(())
}

/// Removes the objects of a gone run that an interrupted pass left, and after a day the tombstones too.
async fn take_the_rest(inner: &EngineCore, run: &RunRef, done: &str, now: Time, pruned: &mut Pruned) -> Result<()> {
    let first = first_of(run);
    let Some(object) = inner.store.get(&first).await? else {
        pruned.objects += remove(inner, run, &[]).await?;
        inner.store.write(Batch::new().delete(done)).await?;
        return Ok(());
    };
    let fence = fence_of(inner, run).await?;
    if let (Ok(Ok(_)), Some((_, tombstone))) = (read_entry(&object.body), &fence) {
        // The earlier pass stopped after it created the fence.
        inner.store.write(Batch::new().put(&first, tombstone.to_json())).await?;
        return Ok(());
    }
    let gone_for = now.since(crate::engine_core::time(object.modified));
    if gone_for <= RETENTION_RECENT {
        return Ok(());
    }
    let kept: Vec<String> = [first.clone()].into_iter().chain(fence.map(|(fence, _)| fence)).collect();
    pruned.objects += remove(inner, run, &kept).await?;
    if gone_for > TOMBSTONE_AGE {
        pruned.freed += 1;
        remove(inner, run, std::slice::from_ref(&first)).await?;
        inner.store.write(Batch::new().delete(first).delete(done)).await?;
    }
    Ok(())
}

fn first_of(run: &RunRef) -> String {
    Key::Entry { run: run.clone(), seq: 1 }.to_string()
}

/// Returns the fence of a run: the tombstone as its last entry, after which no entry can be written.
async fn fence_of(inner: &EngineCore, run: &RunRef) -> Result<Option<(String, Tombstone)>> {
    let mut last = None;
    let below = prefix::log(run);
    let mut pages = Pages::new(&*inner.store, &below);
    while let Some(entries) = pages.next().await? {
        last = entries.into_iter().next_back().or(last);
    }
    let Some(last) = last.filter(|listed| listed.key != first_of(run)) else { return Ok(None) };
    let Some(object) = inner.store.get(&last.key).await? else { return Ok(None) };
    Ok(read_entry(&object.body).ok().and_then(Result::err).map(|tombstone| (last.key, tombstone)))
}

/// Operations of one batch: a larger one would keep other writers waiting.
fn batch_max() -> usize {
    limits::current().batch_operations_max.min(PRUNE_DELETES_MAX)
}

/// Returns the keys of all objects of a run, except the kept ones.
async fn keys_of(inner: &EngineCore, run: &RunRef, kept: &[String]) -> Result<Vec<String>> {
    let prefix = prefix::run(run);
    let mut keys = Vec::new();
    let mut pages = Pages::new(&*inner.store, &prefix);
    while let Some(entries) = pages.next().await? {
        keys.extend(entries.into_iter().map(|listed| listed.key).filter(|key| !kept.contains(key)));
    }
    Ok(keys)
}

/// Removes all objects of a run, except the kept ones, the highest entry first.
async fn remove(inner: &EngineCore, run: &RunRef, kept: &[String]) -> Result<usize> {
    let keys = keys_of(inner, run, kept).await?;
    for some in keys.rchunks(batch_max()) {
        let batch = some.iter().rev().fold(Batch::new(), |batch, key| batch.delete(key));
        inner.store.write(batch).await?;
    }
    Ok(keys.len())
}
