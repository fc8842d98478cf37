//! The sweeper: repairs wake-ups without a run, unfinished runs without a wake-up, and wrong keys in the indexes of waits
//! and unfinished runs. In normal operation it finds nothing.
//!
//! In the background it finds a run by any object of an index that names it. [`Client::sweep`] also lists the runs
//! themselves, and so finds runs that no index names.
//!
//! What if we die here? Each repair is one write, and finding it again next time does no harm.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tracing::{info, warn};
use wigwag_core::{Family, Key, Run, RunRef, Time, limits::ORPHAN_AGE, prefix};
use wigwag_store::{Batch, limits::LIST_PAGE};

use super::tick;
use crate::client::Client;
use crate::client::inbox::run_of_index;
use crate::engine_core::{EngineCore, lock};
use crate::error::{ErrorKind, Result};
use crate::limits::{SWEEP_INTERVAL, SWEEP_MOVING_AGE, SWEEP_PAGE_PAUSE};
use crate::log;
use crate::pages::Pages;
use crate::turn::{waiting_facts, waiting_key};

/// Findings and repairs of a sweep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Swept {
    /// Wake-ups that were checked.
    pub hints: usize,
    /// Wake-ups without a run, removed.
    pub orphan_hints: usize,
    /// Index entries of runs that are no longer unfinished, removed.
    pub stale_live: usize,
    /// Unfinished runs that were checked.
    pub runs: usize,
    /// Unfinished runs that changed too recently for every check; a later sweep judges them.
    #[serde(default)]
    pub too_young: usize,
    /// Unfinished runs that had no usable wake-up, and got one.
    pub lost_runs: usize,
    /// Closed waits in the index, removed.
    pub stale_waits: usize,
    /// Open waits missing in the index, added.
    pub lost_waits: usize,
    /// Unfinished runs missing in the index of unfinished runs, added.
    #[serde(default)]
    pub lost_live: usize,
}

impl Swept {
    /// Number of repairs.
    #[must_use]
    pub fn repaired(&self) -> usize {
        self.orphan_hints + self.stale_live + self.lost_runs + self.stale_waits + self.lost_waits + self.lost_live
    }
}

pub(crate) async fn run(inner: Arc<EngineCore>, every: Duration) {
    let mut walk_at = inner.clock.boot() + every;
    while tick(&inner, every).await {
        let mut swept = Swept::default();
        let mut outcome = sweep_hints(&inner, false, &mut swept).await;
        if outcome.is_ok() {
            outcome = sweep_waits(&inner, false, ORPHAN_AGE + every * 2, &mut swept).await;
        }
        if outcome.is_ok() && inner.clock.boot() >= walk_at {
            outcome = sweep_waits(&inner, false, Duration::MAX, &mut swept).await;
            if outcome.is_ok() {
                outcome = sweep_lost_live(&inner, false, &mut swept).await.map(drop);
            }
            if outcome.is_ok() {
                outcome = sweep_live(&inner, false, SWEEP_PAGE_PAUSE, &mut swept).await;
            }
            walk_at = inner.clock.boot() + SWEEP_INTERVAL;
        }
        if let Err(error) = outcome {
            warn!(%error, "the sweep failed; next in about {every:?}");
        }
        if swept.repaired() > 0 {
            info!(?swept, "the sweeper repaired something");
        }
    }
}

impl Client {
    /// Checks all wake-ups and unfinished runs once and repairs errors; with `dry_run` only counts the errors.
    pub async fn sweep(&self, dry_run: bool) -> Result<Swept> {
        let mut swept = Swept::default();
        sweep_hints(&self.inner, dry_run, &mut swept).await?;
        sweep_waits(&self.inner, dry_run, Duration::MAX, &mut swept).await?;
        let known = sweep_lost_live(&self.inner, dry_run, &mut swept).await?;
        sweep_unlisted(&self.inner, dry_run, known, &mut swept).await?;
        sweep_live(&self.inner, dry_run, Duration::ZERO, &mut swept).await?;
        Ok(swept)
    }
}

/// Removes wake-ups that have been due for more than an hour and lead to no run.
async fn sweep_hints(inner: &Arc<EngineCore>, dry_run: bool, swept: &mut Swept) -> Result<()> {
    let now = inner.now().await?.at;
    for shard in 0..inner.shards {
        let prefix = prefix::due(shard);
        let mut pages = Pages::new(&*inner.store, &prefix);
        'pages: while let Some(entries) = pages.next().await? {
            for listed in &entries {
                let Ok(Key::Due(hint)) = listed.key.parse::<Key>() else { continue };
                if now.since(hint.due) <= ORPHAN_AGE {
                    break 'pages;
                }
                swept.hints += 1;
                if !exists(inner, &listed.key).await? {
                    swept.orphan_hints += 1;
                    repair(inner, dry_run, "orphan_hint", Batch::new().delete(&listed.key)).await?;
                }
            }
        }
    }
    Ok(())
}

/// Removes closed waits that have been in the index for more than an hour. Younger waits may be about to be recorded.
///
/// Waits older than `up_to` were checked by an earlier sweep.
async fn sweep_waits(inner: &Arc<EngineCore>, dry_run: bool, up_to: Duration, swept: &mut Swept) -> Result<()> {
    let now = inner.now().await?.at;
    let mut pages = Pages::new(&*inner.store, "waiting/");
    let in_question = ORPHAN_AGE..up_to;
    while let Some(entries) = pages.next().await? {
        for listed in entries.iter().filter(|listed| in_question.contains(&now.since(listed_at(listed)))) {
            let Ok(Key::Waiting { name, run, seq }) = listed.key.parse::<Key>() else { continue };
            let Some(run) = run_of_index(inner, &listed.key, run).await? else { continue };
            let loaded = match log::read(&*inner.store, &run).await {
                Ok(loaded) => loaded,
                Err(error) if error.kind() == ErrorKind::Gone => None,
                Err(error) if error.kind() == ErrorKind::Damaged => continue,
                Err(error) => return Err(error),
            };
            let open = loaded.is_some_and(|loaded| {
                loaded.run.waits_in_order().iter().any(|(_, _, wait)| wait.name == name && wait.seq == seq)
            });
            if !open {
                swept.stale_waits += 1;
                repair(inner, dry_run, "stale_wait", Batch::new().delete(&listed.key)).await?;
            }
        }
    }
    Ok(())
}

/// Adds the open waits of a run that are missing in the index.
async fn sweep_waits_of(inner: &EngineCore, dry_run: bool, run: &Run, swept: &mut Swept) -> Result<()> {
    for (path, point, wait) in run.waits_in_order() {
        let key = waiting_key(run, wait);
        if inner.store.get(&key).await?.is_none() {
            swept.lost_waits += 1;
            repair(inner, dry_run, "lost_wait", Batch::new().put(key, waiting_facts(run, path, point))).await?;
        }
    }
    Ok(())
}

/// Adds unfinished runs that a wake-up or a wait names but the index of unfinished runs lacks. Returns the hashes of all
/// ids that it found.
async fn sweep_lost_live(inner: &Arc<EngineCore>, dry_run: bool, swept: &mut Swept) -> Result<HashSet<u64>> {
    let mut live = HashSet::new();
    let mut pages = Pages::new(&*inner.store, "live/");
    while let Some(entries) = pages.next().await? {
        live.extend(entries.iter().filter_map(|listed| listed.key.rsplit('/').next()).map(hash));
    }
    for below in ["due/", "waiting/"] {
        let mut pages = Pages::new(&*inner.store, below);
        while let Some(entries) = pages.next().await? {
            for listed in &entries {
                let run = match listed.key.parse::<Key>() {
                    Ok(Key::Due(hint)) => hint.run,
                    Ok(Key::Waiting { run, .. }) => run,
                    _ => continue,
                };
                if live.insert(hash(run.as_str())) {
                    let Some(run) = run_of_index(inner, &listed.key, run).await? else { continue };
                    put_live(inner, dry_run, &run, swept).await?;
                }
            }
        }
    }
    Ok(live)
}

/// Adds unfinished runs that no index names, by listing the runs themselves. Only runs that are neither known nor in the
/// index of finished runs are read.
///
/// A page of keys may hold many runs or a part of one; the next page begins behind the last run of the page before, so
/// that the objects of a long run are not listed.
async fn sweep_unlisted(
    inner: &Arc<EngineCore>,
    dry_run: bool,
    mut known: HashSet<u64>,
    swept: &mut Swept,
) -> Result<()> {
    let mut pages = Pages::new(&*inner.store, "done/");
    while let Some(entries) = pages.next().await? {
        known.extend(entries.iter().filter_map(|listed| listed.key.rsplit('~').next()).map(hash));
    }
    for family in [Family::Workflow, Family::Task] {
        let below = prefix::family(family);
        let mut after = String::new();
        loop {
            let page = inner.store.list(below, &after, LIST_PAGE).await?;
            let ids = page.entries.iter().filter_map(|listed| listed.key[below.len()..].split('/').next());
            let mut last = "";
            for id in ids {
                if id != last
                    && known.insert(hash(id))
                    && let Ok(id) = id.parse()
                {
                    put_live(inner, dry_run, &RunRef { family, id }, swept).await?;
                }
                last = id;
            }
            if !page.more {
                break;
            }
            // `0` follows `/`.
            after = format!("{below}{last}0");
        }
    }
    Ok(())
}

/// Puts an unfinished run into the index, unless it was just created or is about to end.
async fn put_live(inner: &Arc<EngineCore>, dry_run: bool, run: &RunRef, swept: &mut Swept) -> Result<()> {
    let loaded = match log::read(&*inner.store, run).await {
        Ok(loaded) => loaded,
        Err(error) if matches!(error.kind(), ErrorKind::Gone | ErrorKind::Damaged) => None,
        Err(error) => return Err(error),
    };
    let now = inner.now().await?.at;
    let is_settled = |run: &Run| !run.status.is_final() && now.since(run.updated_at) >= Duration::from_secs(60);
    if let Some(loaded) = loaded.filter(|loaded| is_settled(&loaded.run)) {
        swept.lost_live += 1;
        let (key, body) = inner.live(&loaded.run);
        repair(inner, dry_run, "lost_live", Batch::new().put(key, body)).await?;
    }
    Ok(())
}

/// Whether the run of a wake-up exists; the wake-up's body contains the family of the run.
async fn exists(inner: &EngineCore, hint: &str) -> Result<bool> {
    let Some(object) = inner.store.get(hint).await? else { return Ok(true) };
    let facts: serde_json::Value = serde_json::from_slice(&object.body).unwrap_or_default();
    let Some(run) = facts["run"].as_str().and_then(|run| run.parse::<RunRef>().ok()) else { return Ok(true) };
    match log::read(&*inner.store, &run).await {
        Ok(loaded) => Ok(loaded.is_some()),
        Err(error) if error.kind() == ErrorKind::Gone => Ok(false),
        Err(error) if error.kind() == ErrorKind::Damaged => Ok(true),
        Err(error) => Err(error),
    }
}

async fn repair(inner: &EngineCore, dry_run: bool, what: &'static str, batch: Batch) -> Result<()> {
    if !dry_run {
        metrics::counter!("wigwag_sweeper_repairs_total", "what" => what).increment(1);
        inner.store.write(batch).await?;
    }
    Ok(())
}

/// Checks the unfinished runs in the index: each needs a wake-up no later than its next work.
async fn sweep_live(inner: &Arc<EngineCore>, dry_run: bool, pause: Duration, swept: &mut Swept) -> Result<()> {
    let mut hinted = Hinted::default();
    let mut pages = Pages::new(&*inner.store, "live/");
    while let Some(entries) = pages.next().await? {
        for listed in &entries {
            if let Ok(Key::Live { of, run }) = listed.key.parse::<Key>() {
                let family = if of.is_task() { Family::Task } else { Family::Workflow };
                let found = Found { key: &listed.key, run: RunRef { family, id: run }, put: listed_at(listed) };
                sweep_run(inner, dry_run, &found, &mut hinted, swept).await?;
            }
        }
        if !pause.is_zero() {
            inner.clock.sleep(pause).await;
        }
    }
    Ok(())
}

fn listed_at(listed: &wigwag_store::Listed) -> Time {
    crate::engine_core::time(listed.modified)
}

/// An index entry of an unfinished run.
struct Found<'a> {
    key: &'a str,
    run: RunRef,
    put: Time,
}

async fn sweep_run(
    inner: &Arc<EngineCore>,
    dry_run: bool,
    found: &Found<'_>,
    hinted: &mut Hinted,
    swept: &mut Swept,
) -> Result<()> {
    let Found { key, run, put } = found;
    let now = inner.now().await?.at;
    swept.runs += 1;
    let loaded = match log::read(&*inner.store, run).await {
        Ok(loaded) => loaded,
        Err(error) if error.kind() == ErrorKind::Gone => None,
        Err(error) if error.kind() == ErrorKind::Damaged => {
            // An unreadable run does not stop the sweep of the others.
            warn!(%run, %error, "skipped an unreadable run");
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    // A starter that lost the race for an id to a run of another type leaves its key behind.
    let is_true = |run: &Run| !run.status.is_final() && inner.live(run).0 == *key;
    let Some(loaded) = loaded.filter(|loaded| is_true(&loaded.run)) else {
        // A caller may be about to create the run, or its end may be under way.
        if now.since(*put) > ORPHAN_AGE {
            swept.stale_live += 1;
            repair(inner, dry_run, "stale_live", Batch::new().delete(*key)).await?;
        } else {
            swept.too_young += 1;
        }
        return Ok(());
    };
    let age = now.since(loaded.run.updated_at);
    let unjudged_waits = age <= ORPHAN_AGE && loaded.run.waits().next().is_some();
    if age > ORPHAN_AGE {
        sweep_waits_of(inner, dry_run, &loaded.run, swept).await?;
    }
    let mut usable = false;
    for hint in loaded.run.due_hints() {
        usable |= inner.store.get(hint).await?.is_some();
    }
    // A run that changed within the last minute has an active worker, which may be replacing its wake-ups right now. A
    // successor of a listed wake-up has another key.
    let unjudged_hint = !usable && age < SWEEP_MOVING_AGE;
    swept.too_young += usize::from(unjudged_waits || unjudged_hint);
    if usable || unjudged_hint || hinted.has(inner, run).await? {
        return Ok(());
    }
    swept.lost_runs += 1;
    // A successor of the lost wake-up: a worker that finds no work for the run then puts the next successor.
    let (new, body) = inner.hint(&loaded.run.index_type(), run, now);
    let lost = loaded.run.due_hints().find_map(|listed| match listed.parse() {
        Ok(Key::Due(hint)) if loaded.run.lease.is_none() => Some(hint),
        _ => None,
    });
    let hint = lost.map_or(new, |lost: wigwag_core::Hint| lost.successor(now));
    repair(inner, dry_run, "lost_run", Batch::new().put(Key::Due(hint).to_string(), body)).await?;
    lock(&inner.caches.wakes).remove(run);
    Ok(())
}

/// Runs with a wake-up, listed once for all checks of a sweep. Hashes, because there may be millions.
#[derive(Debug, Default)]
struct Hinted(Option<HashSet<u64>>);

impl Hinted {
    async fn has(&mut self, inner: &EngineCore, run: &RunRef) -> Result<bool> {
        if self.0.is_none() {
            self.0 = Some(Self::list(inner).await?);
        }
        Ok(self.0.as_ref().is_some_and(|ids| ids.contains(&hash(run.id.as_str()))))
    }

    async fn list(inner: &EngineCore) -> Result<HashSet<u64>> {
        let mut ids = HashSet::new();
        for shard in 0..inner.shards {
            let prefix = prefix::due(shard);
            let mut pages = Pages::new(&*inner.store, &prefix);
            while let Some(entries) = pages.next().await? {
                let found = entries.iter().filter_map(|listed| listed.key.split('~').nth(2));
                ids.extend(found.map(hash));
            }
        }
        Ok(ids)
    }
}

fn hash(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}
