//! The final entry of a run, and the writes that follow it.
//!
//! What if we die here? The final entry decides, and waiters are notified of it at once. A worker that finds the
//! wake-up of an ended run completes its end: the report to the parent, the snapshot and the place in `done/`, which on a
//! bucket are put at the same time, because none of them depends on another; then the parent is woken; then the place in
//! `live/` goes. Each of these may be done twice. The hint goes last: on a bucket in the same request as `live/`, behind it. A
//! server that dies within that request may leave `live/` without a hint, which the sweeper removes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join;
use serde::{Deserialize, Serialize};
use tracing::debug;
use wigwag_core::deliberate_bug;
use wigwag_core::{Control, Fault, Key, Payload, Run, RunRef, Status, limits, state_to_json};
use wigwag_store::Batch;

use super::Turn;
use super::scan::waiting_key;
use crate::engine_core::{EngineCore, facts, lock};
use crate::error::{ErrorKind, Result};
use crate::log::{self, CommitError as Lost, Loaded, Log};
use crate::pages::Pages;

impl Turn {
    /// Commits the final entry and completes the end.
    pub(super) async fn end(&mut self) -> Result<(), Lost> {
        let ended = self.commit_end().await?;
        self.complete(ended).await
    }

    /// Commits the final entry. On a bucket the waiters of the end are notified now, elsewhere when the end is complete.
    pub(super) async fn commit_end(&mut self) -> Result<Ended, Lost> {
        self.abort_bodies();
        let mut hints = vec![self.lease.hint.clone()];
        hints.extend(self.handle.take_hints());
        // Control objects that the last entries had no room for still exist.
        let was_asked = hints.len() > 1 || self.handle.is_poked();
        let ended = metrics::counter!("wigwag_runs_ended_total", "status" => self.log.run.status.name());
        if self.inner.store.traits().atomic && self.log.is_staged() {
            // One commit: the end, its snapshot, and its place in the indexes.
            let index = Index::of(&self.inner, &self.log.run);
            self.plan.around.snapshot = true;
            self.plan.around.after.push(index.done);
            let result = self.final_result().await?;
            self.plan.around.after.extend(report(&self.log.run, result));
            if !deliberate_bug!(LiveNotLeft) {
                self.plan.around.delete.push(index.live);
            }
            // A parked parent must be woken: until then the lease's wake-up stays, and leads another worker to the task.
            let given = hints.split_off(1);
            // It also stays until the control objects are deleted that this commit and earlier entries had no room for.
            let is_roomy = self.controls_to_delete() + given.len() + 2 <= self.room_for_deletes();
            if self.log.run.parent.is_none() && is_roomy && !was_asked {
                self.plan.around.delete.append(&mut hints);
                self.plan.around.delete.extend(given.iter().cloned());
            } else {
                hints.extend(given.iter().cloned());
            }
            self.plan.around.leave_out_what_never_was();
            if let Err(lost) = self.commit().await {
                // Other callers passed these wake-ups to the turn: they return to the dispatcher with it.
                given.iter().for_each(|hint| _ = self.handle.poke(Some(hint)));
                return Err(lost);
            }
        } else {
            self.commit().await?;
            // Later waiters read the log, because no further notification follows.
            self.handle.note_end();
            self.inner.tell_end(&self.log.run.run, || Some(self.log.run.clone()));
        }
        ended.increment(1);
        Ok(Ended { hints, was_asked })
    }

    /// Completes an end whose entry is durable.
    pub(super) async fn complete(&mut self, Ended { mut hints, was_asked }: Ended) -> Result<(), Lost> {
        let run = self.log.run.run.clone();
        let mut gone = Vec::new();
        if !self.inner.store.traits().atomic {
            if !self.log.holds_lease() {
                // A worker that follows the wake-up completes the end.
                return Err(Lost::Lease);
            }
            if deliberate_bug!(EndAfterHint) {
                let early = std::mem::take(&mut hints);
                self.inner.delete_all(early).await?;
            }
            let changes = IndexChanges::of(&self.inner, &self.log.run).await?;
            let puts = self.inner.put_all(changes.puts);
            let (snapshot, put) = join(self.log.write_snapshot(), puts).await;
            if let Err(error) = snapshot {
                debug!(%run, ?error, "the last snapshot was not written");
            }
            put?;
            if !self.log.holds_lease() {
                return Err(Lost::Lease);
            }
            gone = changes.deletes;
        }
        wake_parent(&self.inner, &self.log.run).await?;
        if was_asked {
            delete_late_controls(&self.inner, &self.log.run).await?;
        }
        gone.append(&mut hints);
        if !gone.is_empty() {
            self.inner.delete_all(gone).await?;
        }
        let inner = Arc::clone(&self.inner);
        // Later waiters read the log, because no further notification follows.
        inner.caches.misfits.forget(&run);
        inner.deactivate(&run, &self.handle);
        inner.tell_end(&run, || Some(self.log.run.take()));
        Ok(())
    }

    async fn final_result(&self) -> Result<Option<Payload>> {
        match &self.log.run.result {
            Some(result) if self.log.run.parent.is_some() => Ok(Some(self.payload(None, result).await?)),
            _ => Ok(None),
        }
    }
}

/// Remaining work of a turn whose run has a durable final entry.
#[derive(Debug)]
pub(super) struct Ended {
    /// Wake-ups to delete once the end is complete.
    hints: Vec<String>,
    /// Whether a control request arrived while the run ended.
    was_asked: bool,
}

/// Deletes control objects that arrived too late for a run that ended.
async fn delete_late_controls(inner: &EngineCore, run: &Run) -> Result<()> {
    let below = wigwag_core::prefix::controls(&run.run);
    let mut pages = Pages::new(&*inner.store, &below);
    while let Some(entries) = pages.next().await? {
        let mut late = Vec::new();
        for listed in entries {
            let Some(object) = inner.store.get(&listed.key).await? else { continue };
            let order = Control::read(&object.body).map(|control| control.order);
            if order.is_ok_and(|order| order.is_late_for_end(run.seq)) {
                late.push(listed.key);
            }
        }
        inner.delete_all(late).await?;
    }
    Ok(())
}

/// The index objects of a run that ended.
struct Index {
    done: (String, Bytes),
    live: String,
}

impl Index {
    fn of(inner: &EngineCore, run: &Run) -> Self {
        let done = (run.done_key().to_string(), facts(&run.index_type(), &run.run));
        Self { done, live: inner.live(run).0 }
    }
}

/// A child's report to its parent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ChildEnd {
    pub(crate) child: RunRef,
    pub(crate) status: Status,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Payload>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<Fault>,
}

/// The object under the parent that says how its child ended, if it has a parent.
fn report(run: &Run, result: Option<Payload>) -> Option<(String, Bytes)> {
    let parent = run.parent.as_ref()?;
    let error = match run.status {
        Status::Completed => None,
        Status::Cancelled => Some(Fault::new("Cancelled", format!("`{}` was cancelled", run.run.id))),
        _ => run.error.clone(),
    };
    let end = ChildEnd { child: run.run.clone(), status: run.status, result, error };
    let mut body = serde_json::to_vec(&end).expect("a child's end is JSON");
    body.push(b'\n');
    let key = Key::Child { run: parent.run.clone(), child: run.run.id.clone() };
    Some((key.to_string(), body.into()))
}

/// Reports to the parent and moves the run from one index to the other. May be done twice.
async fn finish_index(inner: &EngineCore, run: &Run) -> Result<()> {
    inner.store.write(IndexChanges::of(inner, run).await?.batch()).await?;
    Ok(())
}

/// Changes to the indexes, and below the parent, at the end of a run.
struct IndexChanges {
    puts: Vec<(String, Bytes)>,
    deletes: Vec<String>,
}

impl IndexChanges {
    async fn of(inner: &EngineCore, run: &Run) -> Result<Self> {
        let index = Index::of(inner, run);
        let result = match &run.result {
            Some(result) if run.parent.is_some() => Some(inner.payload(&run.run, None, result).await?),
            _ => None,
        };
        let puts = report(run, result).into_iter().chain([index.done]).collect();
        // Waits that ended with the run leave their index, also if the worker died before it deleted their keys.
        let last = run.points.values().filter(|point| point.seq == run.seq).filter_map(|point| point.wait.as_deref());
        let waits: BTreeSet<String> = last.map(|wait| waiting_key(run, wait)).collect();
        Ok(Self { puts, deletes: [index.live].into_iter().chain(waits).collect() })
    }

    fn batch(self) -> Batch {
        let puts = self.puts.into_iter().fold(Batch::new(), |batch, (key, body)| batch.put(key, body));
        self.deletes.into_iter().fold(puts, Batch::delete)
    }
}

/// Completes the end of a run whose worker died after the final entry, so that the wake-up can be deleted. Returns
/// `false` if the run was restarted in between.
///
/// `stale` are control objects that arrived too late for the run.
pub(crate) async fn complete_end(
    inner: &Arc<EngineCore>,
    loaded: Loaded,
    hints: impl Iterator<Item = String>,
    stale: Vec<String>,
) -> Result<bool> {
    let run = if inner.store.traits().atomic {
        match finish_at_once(inner, loaded).await? {
            Some(run) => run,
            None => return Ok(false),
        }
    } else {
        let mut log = Log::new(Arc::clone(inner), loaded);
        log.run_snapshot_is_old();
        if let Err(error) = log.write_snapshot().await {
            debug!(?error, "the last snapshot was not written");
        }
        finish_index(inner, &log.run).await?;
        if !deliberate_bug!(EndOverRestart) && take_back_if_restarted(inner, &log.run).await? {
            return Ok(false);
        }
        log.run
    };
    wake_parent(inner, &run).await?;
    // Wake-ups go last: until then they lead a worker to the unfinished end. The wake-ups of this check may be gone already.
    let found: Vec<String> = hints.collect();
    let listed = run.due_hints().filter(|listed| !found.contains(*listed)).cloned();
    inner.delete_all(stale.into_iter().chain(listed).chain(found.iter().cloned())).await?;
    let of = run.run.clone();
    inner.tell_end(&of, || Some(run));
    Ok(true)
}

/// Completes the end in one commit, if the snapshot is still the loaded one. A restart writes a newer snapshot.
async fn finish_at_once(inner: &EngineCore, loaded: Loaded) -> Result<Option<Run>> {
    let Loaded { run, snapshot, .. } = loaded;
    let (key, body) = (Key::State { run: run.run.clone() }.to_string(), state_to_json(&run, &inner.by()));
    let batch = IndexChanges::of(inner, &run).await?.batch();
    let batch = match snapshot {
        _ if deliberate_bug!(EndOverRestart) => batch.put(key, body),
        Some(version) => batch.update(key, body, version),
        None => batch.create(key, body),
    };
    match inner.store.write(batch).await {
        Ok(_) => Ok(Some(run)),
        Err(error) if error.is_lost() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reverts the index changes of an end if the run was restarted in between; returns whether it was restarted.
///
/// What if we die here? The wake-up stays, and the worker that follows it restores the index (`live_again` in the worker).
pub(crate) async fn take_back_if_restarted(inner: &EngineCore, ended: &Run) -> Result<bool> {
    let mut now = ended.clone();
    match log::catch_up_run(&*inner.store, &mut now).await {
        Err(error) if error.kind() == ErrorKind::Gone => return Ok(false),
        caught_up => caught_up?,
    }
    if now.seq == ended.seq {
        return Ok(false);
    }
    let mut batch = Batch::new();
    if !now.status.is_final() {
        let (live, body) = inner.live(&now);
        batch = batch.put(live, body);
    }
    inner.store.write(batch.delete(Index::of(inner, ended).done.0)).await?;
    Ok(true)
}

/// Makes sure that a parked parent reads the report of its child.
///
/// The report is stored before the parent is read; a parent that is not parked scans once more after it parks.
pub(crate) async fn wake_parent(inner: &Arc<EngineCore>, run: &Run) -> Result<()> {
    let Some(parent) = run.parent.as_ref().map(|parent| &parent.run) else { return Ok(()) };
    if deliberate_bug!(ParentNotWoken) {
        return Ok(());
    }
    if let Some(handle) = inner.active(parent) {
        _ = handle.poke(None);
    }
    let now = inner.now().await?;
    // A wake-up that is not due yet leads to this report too. A wake-up due very soon might already be in a check.
    let ahead = now.at.after(now.uncertainty * 2 + Duration::from_millis(50));
    if lock(&inner.caches.wakes).get(parent).is_some_and(|due| *due > ahead) {
        return Ok(());
    }
    let loaded = match log::read(&*inner.store, parent).await {
        // Retention removed the parent: no run is left to wake.
        Err(error) if error.kind() == ErrorKind::Gone => return Ok(()),
        loaded => loaded?,
    };
    let Some(loaded) = loaded else { return Ok(()) };
    if !loaded.run.parked {
        return Ok(());
    }
    let open: usize = loaded.run.open.iter().filter_map(|path| loaded.run.points.get(path)).map(children_of).sum();
    let due = if open > limits::current().shared_wake_from { ahead.next_second() } else { now.at };
    let (hint, body) = inner.hint(&loaded.run.index_type(), parent, due);
    inner.store.write(Batch::new().put(Key::Due(hint).to_string(), body)).await?;
    if open > limits::current().shared_wake_from {
        let mut wakes = lock(&inner.caches.wakes);
        wakes.retain(|_, due| *due > now.at);
        wakes.insert(parent.clone(), due);
    }
    Ok(())
}

fn children_of(point: &wigwag_core::Point) -> usize {
    use wigwag_core::Children;
    match &point.children {
        None => 0,
        Some(Children::One(_)) => 1,
        Some(Children::Tasks(ids)) => ids.len(),
        Some(Children::Numbered { count, .. }) => *count as usize,
    }
}
