//! Checks that a store keeps the guarantees: the log, snapshot, signals, indexes and wake-ups of every run, by the
//! functions that the simulator uses ([`wigwag_core::audit`]).
//!
//! The audit only reads. A live store changes during the audit: writes of the last minute are not judged, and an
//! apparent breach is read a second time before it is reported.

mod progress;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use wigwag_core::audit::{Breach, Promise, Told, of_log};
use wigwag_core::limits::ORPHAN_AGE;
use wigwag_core::{
    Entry, Event, Family, Fate, Key, Name, Run, RunId, RunRef, Status, Time, prefix, read_entry, read_state,
};

use crate::client::Client;
use crate::client::inbox::definition_at_hand;
use crate::client::signal::KeyFacts;
use crate::engine_core::EngineCore;
use crate::error::{ErrorKind, Result};
use crate::limits::{AUDIT_READS_CONCURRENT, AUDIT_UNDER_WAY_AGE};
use crate::log;
use crate::pages::Pages;
use crate::turn::waiting_key;

/// Scope of an audit.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AuditOptions {
    /// Maximum number of runs; all if absent.
    pub limit: Option<usize>,
    /// No process uses the store: recent writes are judged too.
    pub at_rest: bool,
}

impl AuditOptions {
    /// An audit of a store that no process uses.
    #[must_use]
    pub fn at_rest() -> Self {
        Self { at_rest: true, ..Self::default() }
    }

    /// Limits the number of runs.
    #[must_use]
    pub fn limit(mut self, runs: usize) -> Self {
        self.limit = Some(runs);
        self
    }
}

/// Result of an audit.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Audit {
    /// Number of audited runs.
    pub runs: usize,
    /// Audited runs that have not ended.
    pub unfinished: usize,
    /// Ids of removed runs.
    pub gone: usize,
    /// Entries of their logs.
    pub entries: usize,
    /// Signals in their inboxes.
    pub signals: usize,
    /// Promises that are broken.
    pub broken: Vec<Breach>,
    /// Harmless remains of crashes, which the sweeper or a patrol removes; there should be few.
    pub untidy: Vec<Breach>,
    /// Runs that no worker moves on: wake-ups that are overdue, turns that are rejected or die each time.
    pub stuck: Vec<Breach>,
}

impl Client {
    /// Audits every run in the store; `progress` is called after each.
    pub async fn audit(&self, options: &AuditOptions, progress: impl FnMut(&Audit)) -> Result<Audit> {
        let auditor = Auditor { client: self, inner: &self.inner, options, now: self.inner.now().await?.at };
        auditor.audit(progress).await
    }
}

struct Auditor<'a> {
    client: &'a Client,
    inner: &'a EngineCore,
    options: &'a AuditOptions,
    now: Time,
}

/// The objects in a run's folder.
#[derive(Debug, Default)]
struct Folder {
    entries: BTreeSet<u64>,
    signals: BTreeSet<(Name, String)>,
    keys: BTreeSet<String>,
    /// Control objects, and when they were put.
    controls: Vec<(String, Time)>,
}

/// Evidence from one run.
#[derive(Debug, Default)]
struct Looked {
    told: Option<Told>,
    gone: bool,
    signals: usize,
    broken: Vec<Breach>,
    untidy: Vec<Breach>,
    stuck: Vec<Breach>,
    forgotten: Option<Forgotten>,
}

/// A run that seems to have no wake-up in time.
#[derive(Debug)]
struct Forgotten {
    run: Run,
    /// Latest time at which it needs attention.
    needed: Option<Time>,
    /// A signal that it waits for is stored.
    signalled: bool,
    /// A control object that it has not folded.
    unfolded: Option<String>,
}

impl Forgotten {
    fn is_seen_in_time(&self, due: Time, now: Time) -> bool {
        self.needed.is_none_or(|needed| due <= needed) && (!self.signalled && self.unfolded.is_none() || due <= now)
    }
}

/// When the wake-ups of each run are due, the earliest first.
type Hints = HashMap<RunId, BTreeSet<Time>>;

/// The earliest wake-up of a run.
fn earliest(hints: &Hints, run: &Run) -> Option<Time> {
    hints.get(&run.run.id)?.first().copied()
}

impl Auditor<'_> {
    async fn audit(&self, mut progress: impl FnMut(&Audit)) -> Result<Audit> {
        let mut audit = Audit::default();
        let hints = self.hints().await?;
        let mut runs = self.runs().await?;
        runs.truncate(self.options.limit.unwrap_or(usize::MAX));
        let mut expected = BTreeSet::new();
        let mut forgotten = Vec::new();
        let mut looks = stream::iter(&runs).map(|run| self.look(run, &hints)).buffered(AUDIT_READS_CONCURRENT);
        while let Some(looked) = looks.next().await {
            let mut looked = looked?;
            audit.broken.append(&mut looked.broken);
            audit.untidy.append(&mut looked.untidy);
            audit.stuck.append(&mut looked.stuck);
            forgotten.extend(looked.forgotten);
            audit.signals += looked.signals;
            audit.gone += usize::from(looked.gone);
            if let Some(told) = looked.told {
                audit.runs += 1;
                audit.unfinished += usize::from(!told.run.status.is_final());
                audit.entries += told.log.len();
                expected.extend(index_keys(&told.run).into_iter().filter(|_| !told.run.status.is_final()));
            }
            progress(&audit);
        }
        self.all_are_woken_up(forgotten, &mut audit).await?;
        if self.options.limit.is_none() {
            self.indexes_name_no_others(&expected, &mut audit).await?;
        }
        Ok(audit)
    }

    async fn keys(&self, below: &str, mut each: impl FnMut(&str, Time)) -> Result<()> {
        let mut pages = Pages::new(&*self.inner.store, below);
        while let Some(entries) = pages.next().await? {
            entries.iter().for_each(|listed| each(&listed.key, crate::engine_core::time(listed.modified)));
        }
        Ok(())
    }

    /// All runs: by their folders, and by the indexes, because some servers list nested folders incorrectly.
    async fn runs(&self) -> Result<Vec<RunRef>> {
        let mut runs = BTreeSet::new();
        for family in [Family::Workflow, Family::Task] {
            let folder = prefix::family(family);
            self.keys(folder, |key, _| {
                let id = key.strip_prefix(folder).and_then(|rest| rest.split('/').next()?.parse().ok());
                runs.extend(id.map(|id| RunRef { family, id }));
            })
            .await?;
        }
        self.keys("live/", |key, _| {
            if let Ok(Key::Live { of, run }) = key.parse::<Key>() {
                let family = if of.is_task() { Family::Task } else { Family::Workflow };
                runs.insert(RunRef { family, id: run });
            }
        })
        .await?;
        Ok(runs.into_iter().collect())
    }

    async fn hints(&self) -> Result<Hints> {
        let mut hints = Hints::new();
        for shard in 0..self.inner.shards {
            self.keys(&prefix::due(shard), |key, _| {
                if let Ok(Key::Due(hint)) = key.parse::<Key>() {
                    hints.entry(hint.run).or_default().insert(hint.due);
                }
            })
            .await?;
        }
        Ok(hints)
    }

    async fn look(&self, run: &RunRef, hints: &Hints) -> Result<Looked> {
        let folder = self.folder(run).await?;
        let mut looked = Looked { signals: folder.signals.len(), ..Looked::default() };
        let log = match self.log(run, &folder).await? {
            Ok(Some(log)) => log,
            Ok(None) => {
                looked.gone = folder.entries.contains(&1);
                return Ok(looked);
            }
            Err(breach) => {
                looked.broken.push(breach);
                return Ok(looked);
            }
        };
        match Told::fold(run, log) {
            Ok(told) => {
                looked.broken = of_log(&told);
                self.signals_are_kept(&told, &folder, &mut looked.broken).await?;
                self.a_key_is_one_signal(&told, &folder, &mut looked.broken).await?;
                self.the_snapshot_follows_from_the_log(&told, &mut looked).await?;
                self.indexes_name_it(&told.run, &mut looked).await?;
                self.nothing_is_overlooked(&told.run, &mut looked).await?;
                match progress::turns_in_vain(&told) {
                    Some(breach) => looked.stuck.push(breach),
                    None => self.wake_ups_move_it(&told, hints, &mut looked),
                }
                looked.forgotten = self.seems_forgotten(&told.run, &folder, hints).await?;
                looked.told = Some(told);
            }
            Err(refusal) => {
                let what = format!("the log of `{run}` contradicts itself: {refusal}");
                looked.broken.push(Breach::new(Promise::RecordedStays, what));
            }
        }
        Ok(looked)
    }

    async fn folder(&self, run: &RunRef) -> Result<Folder> {
        let mut folder = Folder::default();
        self.keys(&prefix::run(run), |key, put| match key.parse::<Key>() {
            Ok(Key::Control { suffix, .. }) => folder.controls.push((suffix, put)),
            Ok(Key::Entry { seq, .. }) => _ = folder.entries.insert(seq),
            Ok(Key::Signal { name, suffix, .. }) => _ = folder.signals.insert((name, suffix)),
            Ok(Key::Sent { .. }) => _ = folder.keys.insert(key.to_owned()),
            _ => {}
        })
        .await?;
        Ok(folder)
    }

    /// Returns all entries; `None` for a run that was removed or never created.
    async fn log(&self, run: &RunRef, folder: &Folder) -> Result<std::result::Result<Option<Vec<Entry>>, Breach>> {
        let Some(last) = folder.entries.last().copied() else { return Ok(Ok(None)) };
        let mut log = Vec::new();
        for seq in 1..=last {
            let key = Key::Entry { run: run.clone(), seq }.to_string();
            let Some(object) = self.inner.store.get(&key).await? else {
                // Retention may be removing the run.
                if seq > 1 && self.is_gone(run).await? {
                    return Ok(Ok(None));
                }
                if seq == 1 {
                    let what = format!("`{run}` has entry {last} and no first: a writer of old came after its removal");
                    return Ok(Err(Breach::new(Promise::NothingRevived, what)));
                }
                let what = format!("`{key}` is missing, but the log continues to entry {last}");
                return Ok(Err(Breach::new(Promise::OneRunPerId, what)));
            };
            match read_entry(&object.body) {
                Ok(Ok(entry)) => log.push(entry),
                Ok(Err(_)) => return Ok(Ok(None)),
                Err(refusal) => {
                    return Ok(Err(Breach::new(Promise::RecordedStays, format!("`{key}` cannot be read: {refusal}"))));
                }
            }
        }
        Ok(Ok(Some(log)))
    }

    async fn is_gone(&self, run: &RunRef) -> Result<bool> {
        let first = self.inner.store.get(&Key::Entry { run: run.clone(), seq: 1 }.to_string()).await?;
        Ok(first.is_none_or(|object| matches!(read_entry(&object.body), Ok(Err(_)))))
    }

    /// Checks that consumed signals are kept for inspection.
    async fn signals_are_kept(&self, told: &Told, folder: &Folder, broken: &mut Vec<Breach>) -> Result<()> {
        for event in told.log.iter().flat_map(|entry| &entry.events) {
            let Event::SignalReceived(received) = event else { continue };
            for taken in &received.signals {
                let kept = folder.signals.contains(&(received.name.clone(), taken.signal.clone()));
                if !kept && !self.is_gone(&told.run.run).await? {
                    let what = format!("signal `{}` of `{}` was consumed, and is gone", taken.signal, told.run.run.id);
                    broken.push(Breach::new(Promise::AcknowledgedIsKept, what));
                }
            }
        }
        Ok(())
    }

    /// Two keys of a sender never name the same signal.
    async fn a_key_is_one_signal(&self, told: &Told, folder: &Folder, broken: &mut Vec<Breach>) -> Result<()> {
        let mut named: BTreeMap<String, &String> = BTreeMap::new();
        for key in &folder.keys {
            let Some(object) = self.inner.store.get(key).await? else { continue };
            let Ok(KeyFacts { signal: suffix, .. }) = serde_json::from_slice(&object.body) else {
                let what = format!("`{key}` cannot be read");
                broken.push(Breach::new(Promise::SameKeySameOutcome, what));
                continue;
            };
            if let Some(other) = named.insert(suffix.clone(), key) {
                let what = format!("`{key}` and `{other}` of `{}` name the same signal `{suffix}`", told.run.run.id);
                broken.push(Breach::new(Promise::SameKeySameOutcome, what));
            }
        }
        Ok(())
    }

    /// The snapshot is the log folded up to some entry; that of a run that ended shows its end, unless that failed.
    async fn the_snapshot_follows_from_the_log(&self, told: &Told, looked: &mut Looked) -> Result<()> {
        let broken = &mut looked.broken;
        let key = Key::State { run: told.run.run.clone() }.to_string();
        let Some(object) = self.inner.store.get(&key).await? else { return Ok(()) };
        let mut snapshot = match read_state(told.run.run.clone(), &object.body) {
            Ok(snapshot) => snapshot,
            Err(refusal) => {
                broken.push(Breach::new(Promise::IndexesFollow, format!("`{key}` cannot be read: {refusal}")));
                return Ok(());
            }
        };
        match log::make_whole(&*self.inner.store, &mut snapshot).await {
            Err(error) if error.kind() == ErrorKind::Damaged => {
                broken.push(Breach::new(Promise::IndexesFollow, format!("`{key}`: {error}")));
                return Ok(());
            }
            made => made?,
        }
        // The snapshot may be newer than the log that was read.
        let Some(folded) = told.at(snapshot.seq) else { return Ok(()) };
        if told.run.status.is_final() && self.is_old(&told.run) && snapshot.seq < told.run.seq {
            let what = format!("`{key}` is of entry {}, and the run ended with {}", snapshot.seq, told.run.seq);
            looked.untidy.push(Breach::new(Promise::IndexesFollow, what));
        }
        let differs = beside_rolling(snapshot, &folded);
        if let Some(differs) = differs {
            let what = format!("`{key}` is not what the log folds to at entry {}: {differs}", folded.seq);
            broken.push(Breach::new(Promise::IndexesFollow, what));
        }
        Ok(())
    }

    fn is_old(&self, run: &Run) -> bool {
        self.options.at_rest || self.now.since(run.updated_at) > AUDIT_UNDER_WAY_AGE
    }

    /// Checks that an unfinished run is in `live/` and its waits in `waiting/`, and that an ended run is in `done/`.
    async fn indexes_name_it(&self, run: &Run, looked: &mut Looked) -> Result<()> {
        if !self.is_old(run) {
            return Ok(());
        }
        let mut missing = Vec::new();
        for key in index_keys(run) {
            if self.inner.store.get(&key).await?.is_none() {
                missing.push(key);
            }
        }
        if missing.is_empty() || self.has_moved(run).await? {
            return Ok(());
        }
        // On a bucket, the end before a restart may be completed late: the next worker that checks the run
        // repairs the index.
        let late = |key: &str| run.restarts > 0 && key.starts_with("live/") && !self.inner.store.traits().atomic;
        for key in missing {
            let what = format!("`{key}` is missing: run `{}` is `{}`", run.run.id, run.status);
            let breach = Breach::new(Promise::IndexesFollow, what);
            if late(&key) { looked.untidy.push(breach) } else { looked.broken.push(breach) }
        }
        Ok(())
    }

    /// Whether anything happened to the run since it was read.
    async fn has_moved(&self, run: &Run) -> Result<bool> {
        let next = Key::Entry { run: run.run.clone(), seq: run.seq + 1 }.to_string();
        Ok(self.inner.store.get(&next).await?.is_some() || self.is_gone(&run.run).await?)
    }

    /// A run is parked only while it waits for something.
    async fn nothing_is_overlooked(&self, run: &Run, looked: &mut Looked) -> Result<()> {
        if !run.parked || !self.is_old(run) {
            return Ok(());
        }
        let Some(definition) = definition_at_hand(self.inner, run).await? else { return Ok(()) };
        let same = definition.hash == run.definition_hash;
        if let Some(why) = run.overlooked_work(&definition).filter(|_| same)
            && !self.has_moved(run).await?
        {
            let what = format!("run `{}` ({}) is parked and could continue: {why}", run.run.id, run.status);
            looked.broken.push(Breach::new(Promise::WokenUp, what));
        }
        Ok(())
    }

    /// Checks that an unfinished run has a wake-up at or before the moment it needs attention; returns the run if it
    /// seems to have none.
    async fn seems_forgotten(&self, run: &Run, folder: &Folder, hints: &Hints) -> Result<Option<Forgotten>> {
        if run.status.is_final() || !self.is_old(run) {
            return Ok(None);
        }
        // A second is tolerated: wake-ups are written by clocks that differ by that much.
        let lease = run.lease.as_ref().map(|lease| lease.until);
        let needed = lease.or(run.next_at).map(|at| at.after(Duration::from_secs(1)));
        let signalled = lease.is_none() && self.is_satisfied(run).await?;
        let is_old = |put: Time| self.options.at_rest || self.now.since(put) > AUDIT_UNDER_WAY_AGE;
        let unfolded = folder.controls.iter().find(|(suffix, put)| !run.controls.contains_key(suffix) && is_old(*put));
        let unfolded = unfolded.filter(|_| lease.is_none()).map(|(suffix, _)| suffix.clone());
        let forgotten = Forgotten { run: run.clone(), needed, signalled, unfolded };
        let hinted = earliest(hints, run).is_some_and(|due| forgotten.is_seen_in_time(due, self.now));
        Ok(Some(forgotten).filter(|_| !hinted))
    }

    /// Checks again the runs that seemed to have no wake-up: their wake-ups may have been replaced since the listing.
    async fn all_are_woken_up(&self, forgotten: Vec<Forgotten>, audit: &mut Audit) -> Result<()> {
        if forgotten.is_empty() {
            return Ok(());
        }
        let hints = self.hints().await?;
        for one in forgotten {
            if self.has_moved(&one.run).await? {
                continue;
            }
            let said = |what: String| {
                Breach::new(Promise::WokenUp, format!("run `{}` ({}) {what}", one.run.run.id, one.run.status))
            };
            match (earliest(&hints, &one.run), one.needed) {
                (None, _) => audit.broken.push(said("has no wake-up: no worker will check it".into())),
                (Some(due), Some(needed)) if due > needed => {
                    audit.broken.push(said(format!("needs attention at {needed}, but its wake-up is due on {due}")));
                }
                (Some(due), _) if due > self.now && one.unfolded.is_some() => {
                    let control = one.unfolded.as_deref().unwrap_or_default();
                    audit
                        .broken
                        .push(said(format!("has a control object `{control}` that nothing folds before {due}")));
                }
                // The signal was not acknowledged: an acknowledged sender has written a wake-up.
                (Some(due), _) if !one.is_seen_in_time(due, self.now) => {
                    let what =
                        format!("waits for a signal that is there and was not acknowledged; it is seen on {due}");
                    audit.untidy.push(said(what));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether an open wait has a stored signal.
    async fn is_satisfied(&self, run: &Run) -> Result<bool> {
        let waits = run.waits_in_order();
        if waits.is_empty() || run.status == Status::Paused || run.run.family == Family::Task {
            return Ok(false);
        }
        let signals = match self.client.run(run.run.id.as_str())?.signals(None).await {
            // Unreadable objects are reported elsewhere.
            Err(error) if matches!(error.kind(), ErrorKind::Gone | ErrorKind::NotFound | ErrorKind::Damaged) => {
                return Ok(false);
            }
            signals => signals?,
        };
        let settled = |at: Time| self.options.at_rest || self.now.since(at) > AUDIT_UNDER_WAY_AGE;
        Ok(waits.into_iter().any(|(path, point, wait)| {
            let there = signals.iter().filter(|signal| {
                signal.name == wait.name
                    && signal.fate == Fate::Unconsumed
                    && signal.misfit.is_none()
                    && wait.rejects_sender(&signal.source).is_none()
                    && signal.meant_for.as_ref().is_none_or(|meant| meant == path)
                    && point
                        .until
                        .is_none_or(|until| wigwag_core::stamp_of(&signal.suffix).is_some_and(|stamp| stamp <= until))
                    && settled(signal.created_at)
            });
            let senders: BTreeSet<Option<&String>> = there.map(|signal| signal.source.by.as_ref()).collect();
            senders.len() >= wait.quorum.max(1) as usize
        }))
    }

    /// Checks that the indexes contain no unexpected entries.
    async fn indexes_name_no_others(&self, expected: &BTreeSet<String>, audit: &mut Audit) -> Result<()> {
        let mut extra = Vec::new();
        for below in ["live/", "waiting/"] {
            self.keys(below, |key, put| {
                let old = self.options.at_rest || self.now.since(put) > ORPHAN_AGE;
                if old && !expected.contains(key) {
                    extra.push(key.to_owned());
                }
            })
            .await?;
        }
        for key in extra {
            let what = format!("`{key}` names a run or a wait that is over; `wigwag sweep` removes it");
            audit.untidy.push(Breach::new(Promise::IndexesFollow, what));
        }
        Ok(())
    }
}

/// The keys that a run wants in the indexes.
fn index_keys(run: &Run) -> Vec<String> {
    if run.status.is_final() {
        return vec![run.done_key().to_string()];
    }
    let mut keys = vec![Key::Live { of: run.index_type(), run: run.run.id.clone() }.to_string()];
    keys.extend(run.waits_in_order().into_iter().map(|(_, _, wait)| waiting_key(run, wait)));
    keys
}

/// First difference between a snapshot and the fold, ignoring the set of offloaded steps.
fn beside_rolling(mut snapshot: Run, folded: &Run) -> Option<String> {
    snapshot.rolled.clone_from(&folded.rolled);
    snapshot.unrolled.clone_from(&folded.unrolled);
    if snapshot == *folded {
        return None;
    }
    let points = snapshot.points.keys().chain(folded.points.keys()).collect::<BTreeSet<_>>();
    let mut differing = points.into_iter().filter(|path| snapshot.points.get(*path) != folded.points.get(*path));
    Some(match differing.next() {
        Some(path) => format!("point `{path}` differs"),
        None if snapshot.status != folded.status => format!("`{}` against `{}`", snapshot.status, folded.status),
        None if snapshot.signals != folded.signals => "its inboxes differ".into(),
        None if snapshot.hints != folded.hints => "its hints differ".into(),
        None => "its fields other than the points differ".into(),
    })
}
