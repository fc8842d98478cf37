//! Checks a run that is due: claims it, completes its end, postpones its wake-up, or leaves it to another worker.
//!
//! Holds: a wake-up is deleted only after its run has another, or has ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join;
use tokio::sync::OwnedSemaphorePermit;
use tracing::{debug, warn};
use wigwag_core::deliberate_bug;
use wigwag_core::{
    Control, Definition, Family, Fault, Hint, Key, Look, Order, PauseCause, RunMigrated, RunPaused, RunRef, Status,
    Style, Time, look, version,
};
use wigwag_store::Batch;

use super::{CheckOutcome, DueHints};
use crate::engine_core::{EngineCore, Stop};
use crate::error::{ErrorKind, Result};
use crate::limits::{
    ABOUT_TO_START_AGE_MAX, ABOUT_TO_START_RETRY_DELAY, CLAIM_UNCERTAINTY_MAX, EARLY_CONTROLS_MAX,
    LOST_CLAIM_RETRY_DELAY, STARTING_RUN_AGE_MAX, STARTING_RUN_RETRY_DELAY, UNCERTAIN_TIME_RETRY_DELAY,
    UNRECORDABLE_RETRY_DELAY, UNSTARTED_RUN_RETRY_DELAY,
};
use crate::log::{self, CommitError, Loaded, Log};
use crate::turn::{
    EarlyList, Found, NewLease, Turn, complete_end, decide, index_of_closed, look_at_sources, patrol_after,
};
use crate::workflow::Workflow;

/// Checks the run of these wake-ups, and claims it if there is work.
pub(super) async fn check(
    inner: &Arc<EngineCore>,
    families: &[Family],
    hints: &DueHints,
    permit: OwnedSemaphorePermit,
    patience: Option<Duration>,
) -> Result<CheckOutcome> {
    let now = inner.now().await?;
    if now.uncertainty > CLAIM_UNCERTAINTY_MAX {
        return Ok(CheckOutcome::Pass(now.at.after(UNCERTAIN_TIME_RETRY_DELAY)));
    }
    let Some((_, hint)) = hints.first() else { return Ok(CheckOutcome::Done) };
    let (loaded, early) = match read_any(inner, families, hint).await {
        Ok((None, _)) => read_about_to_start(inner, families, hint, now.at).await?,
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::Gone => {
            inner.delete_all(keys_of(hints)).await?;
            return Ok(CheckOutcome::Done);
        }
        Err(error) => return Err(error),
    };
    let stands_on = |key: &String| loaded.as_ref().is_some_and(|loaded| loaded.run.due_hints().any(|hint| hint == key));
    let is_abandoned = hints.iter().any(|(key, _)| inner.is_abandoned(key) && stands_on(key));
    let lives = |peer: &str| if is_abandoned { Some(false) } else { inner.peer_lives(peer) };
    let verdict = look(loaded.as_ref().map(|loaded| &loaded.run), hint, now.at, now.uncertainty, lives);
    match (verdict, loaded) {
        (Look::Leave { until }, _) => Ok(CheckOutcome::Pass(until)),
        (Look::Orphan, _) => {
            let old = hints.iter().filter(|(_, other)| other.due == hint.due);
            inner.delete_all(old.map(|(key, _)| key.clone())).await?;
            Ok(CheckOutcome::Done)
        }
        (Look::Ended, Some(loaded)) => ended(inner, loaded, early, hints, permit).await,
        (Look::Free, Some(loaded)) => {
            let mut lease = None;
            let outcome =
                free(inner, loaded, early, &mut lease, Checked { hints, permit, patience, now: now.at }).await;
            // Left over where the run was not claimed.
            NewLease::abandon(inner, lease).await?;
            outcome
        }
        _ => {
            // Its starter is about to create it, or died.
            let young = now.at.since(hint.due) < STARTING_RUN_AGE_MAX;
            Ok(CheckOutcome::Pass(now.at.after(if young {
                STARTING_RUN_RETRY_DELAY
            } else {
                UNSTARTED_RUN_RETRY_DELAY
            })))
        }
    }
}

/// Reads the run of a wake-up. On a bucket its inboxes are listed while the entries after the snapshot are read, if the
/// snapshot says that no worker drives it.
async fn read_any(
    inner: &Arc<EngineCore>,
    families: &[Family],
    hint: &Hint,
) -> Result<(Option<Loaded>, Option<EarlyList>)> {
    let store = &*inner.store;
    for family in families {
        let run = RunRef { family: *family, id: hint.run.clone() };
        let snapshot = log::read_snapshot(store, &run).await?;
        let is_free = |(run, _): &(wigwag_core::Run, _)| run.lease.is_none() && !run.status.is_final();
        let (loaded, early) = match !store.traits().atomic && snapshot.as_ref().is_some_and(is_free) {
            true => {
                let (loaded, early) = (log::read_on(store, &run, snapshot), EarlyList::of(inner, &run));
                try_join(loaded, early).await.map(|(loaded, early)| (loaded, Some(early)))?
            }
            false => (log::read_on(store, &run, snapshot).await?, None),
        };
        if loaded.is_some() {
            return Ok((loaded, early));
        }
    }
    Ok((None, None))
}

/// Reads a run again whose wake-up was announced just now, and whose entry 1 follows the wake-up.
async fn read_about_to_start(
    inner: &Arc<EngineCore>,
    families: &[Family],
    hint: &Hint,
    now: Time,
) -> Result<(Option<Loaded>, Option<EarlyList>)> {
    let is_young = now.since(hint.due) < ABOUT_TO_START_AGE_MAX;
    let mut pause = ABOUT_TO_START_RETRY_DELAY;
    while !inner.store.traits().atomic && is_young && pause < ABOUT_TO_START_AGE_MAX && inner.stop() == Stop::No {
        inner.clock.sleep(pause).await;
        let found = read_any(inner, families, hint).await?;
        if found.0.is_some() {
            return Ok(found);
        }
        pause *= 2;
    }
    Ok((None, None))
}

fn keys_of(hints: &DueHints) -> impl Iterator<Item = String> {
    hints.iter().map(|(key, _)| key.clone())
}

/// Handles a run that has ended: restarts it if that was requested, else completes its end.
async fn ended(
    inner: &Arc<EngineCore>,
    mut loaded: Loaded,
    early: Option<EarlyList>,
    hints: &DueHints,
    permit: OwnedSemaphorePermit,
) -> Result<CheckOutcome> {
    let found = look_at_sources(inner, &loaded.run, early).await?;
    let Some(workflow) = inner.registry.find(&loaded.run.of, loaded.run.task.as_ref()).cloned() else {
        return Ok(CheckOutcome::Pass(inner.about_now().after(inner.settings.lease)));
    };
    let restart = found.controls.iter().find(|(_, control)| matches!(control.order, Order::Restart { .. })).cloned();
    // Other requests came too late, and must not reach a restarted run, except for late notes of acknowledged signals: the
    // restarted run would skip these signals.
    let is_heeded = |control: &Control| matches!(control.order, Order::Late { .. });
    let asked = found.controls.iter().filter(|(_, control)| !is_heeded(control)).map(|(suffix, _)| suffix.clone());
    let key_of = |suffix| Key::Control { run: loaded.run.run.clone(), suffix }.to_string();
    let stale: Vec<String> = asked.map(key_of).chain(found.folded.iter().cloned()).collect();
    let ended = |completed| {
        if completed { CheckOutcome::Done } else { CheckOutcome::Pass(inner.about_now().after(LOST_CLAIM_RETRY_DELAY)) }
    };
    let Some((suffix, control)) = restart else {
        return complete_end(inner, loaded, keys_of(hints), stale).await.map(ended);
    };
    log::make_whole(&*inner.store, &mut loaded.run).await?;
    let now = inner.now().await?.at;
    let run = loaded.run.run.clone();
    let events = loaded.run.fold_control(&suffix, &control, &workflow.definition, now);
    let others: Vec<&(String, Control)> = found
        .controls
        .iter()
        .filter(|(other, control)| *other != suffix && !is_heeded(control))
        .take(EARLY_CONTROLS_MAX)
        .collect();
    let late: Vec<wigwag_core::Event> = others
        .iter()
        .filter(|(_, control)| !matches!(control.order, Order::Restart { .. }))
        .flat_map(|(suffix, control)| loaded.run.fold_control(suffix, control, &workflow.definition, now))
        .collect();
    let refused =
        events.iter().any(|event| matches!(event, wigwag_core::Event::RunRestarted(event) if event.refused.is_some()));
    if refused {
        debug!(%run, "a restart came too late");
        return complete_end(inner, loaded, keys_of(hints), stale).await.map(ended);
    }
    let done = loaded.run.done_key();
    let mut log = Log::new(Arc::clone(inner), loaded);
    let live = inner.live(&log.run);
    let outcome = async {
        for event in events {
            log.stage(event, now)?;
        }
        // Other requests came too late, and the log records that.
        for event in late {
            log.stage(event, now)?;
        }
        for (suffix, control) in others.iter().filter(|(_, control)| matches!(control.order, Order::Restart { .. })) {
            for event in log.run.fold_control(suffix, control, &workflow.definition, now) {
                log.stage(event, now)?;
            }
        }
        let misfits = misfits(inner, &log.run, &workflow).await?;
        if !deliberate_bug!(RestartKeepsDefinition) {
            follow_or_pause(&mut log, &workflow, &misfits, now)?;
        }
        let mut turn = Turn::claim(Arc::clone(inner), workflow, log, permit, keys_of(hints), None).await?;
        turn.put_before(live);
        turn.with_snapshot();
        turn.delete_after(done.to_string());
        for key in stale {
            turn.delete_after(key);
        }
        turn.launch().await
    };
    settle(inner, &run, hints, outcome.await).await
}

/// Returns the run's object in the index of unfinished runs if it is missing: a worker that completed the end of the run
/// while it was restarted, and died then, has deleted it. Only on stores whose batches are not atomic.
async fn live_again(inner: &EngineCore, run: &wigwag_core::Run) -> Result<Option<(String, bytes::Bytes)>> {
    if run.restarts == 0 || inner.store.traits().atomic {
        return Ok(None);
    }
    let (key, body) = inner.live(run);
    Ok(inner.store.get(&key).await?.is_none().then_some((key, body)))
}

/// Returns why a parked run could continue, if it could. Steps in chunks are read before one counts as not begun.
async fn overlooked_work(
    inner: &EngineCore,
    run: &mut wigwag_core::Run,
    workflow: &Workflow,
) -> Result<Option<String>> {
    if run.definition_hash != workflow.definition.hash || run.overlooked_work(&workflow.definition).is_none() {
        return Ok(None);
    }
    log::make_whole(&*inner.store, run).await?;
    Ok(run.overlooked_work(&workflow.definition))
}

/// Work for a run that no worker drives.
struct Work {
    found: Found,
    /// Reason why the run could continue although it is parked.
    overlooked: Option<String>,
    /// A wait can consume a signal, or has timed out.
    signalled: bool,
    /// A timer of the run is due.
    timer: bool,
    /// The run is parked, or its start is delayed.
    waits: bool,
}

/// Looks for work. On a bucket the lease's wake-up is put beside what the claim still needs to read.
async fn look_for_work(
    inner: &Arc<EngineCore>,
    loaded: &mut Loaded,
    early: Option<EarlyList>,
    lease: &mut Option<NewLease>,
    workflow: &Workflow,
    now: Time,
) -> Result<Work> {
    log::make_inboxes_whole(&*inner.store, &mut loaded.run).await?;
    let waits = loaded.run.parked || loaded.run.not_before.is_some_and(|at| at > now) && loaded.run.lease.is_none();
    let timer = loaded.run.next_at.is_some_and(|at| at <= now);
    let is_asked = early.as_ref().is_some_and(|early| early.has_controls(&loaded.run));
    let (mut found, prepared) = match !waits || timer || is_asked {
        true => try_join(look_at_sources(inner, &loaded.run, early), NewLease::prepare(inner, &loaded.run)).await?,
        false => (look_at_sources(inner, &loaded.run, early).await?, None),
    };
    *lease = prepared;
    let overlooked = overlooked_work(inner, &mut loaded.run, workflow).await?;
    let run = &loaded.run;
    let heeds = run.pause.is_none() && run.chain.is_none();
    let is_led_to = lease.is_none() && (heeds && found.has_unread() || !found.is_empty());
    let deciding = async {
        match heeds {
            true => decide(inner, run, &mut found.inboxes, |_| true).await,
            false => Ok(None),
        }
    };
    let signalled = match is_led_to {
        true => {
            let (decision, prepared) = try_join(deciding, NewLease::prepare(inner, run)).await?;
            *lease = prepared;
            decision.is_some()
        }
        false => deciding.await?.is_some(),
    };
    Ok(Work { found, overlooked, signalled, timer, waits })
}

/// A check of a run: what led to it, and since when it is known that the run does not fit.
struct Checked<'a> {
    hints: &'a DueHints,
    permit: OwnedSemaphorePermit,
    patience: Option<Duration>,
    now: Time,
}

/// Handles a run that no worker drives: claims it if there is work.
async fn free(
    inner: &Arc<EngineCore>,
    mut loaded: Loaded,
    early: Option<EarlyList>,
    lease: &mut Option<NewLease>,
    Checked { hints, permit, patience, now }: Checked<'_>,
) -> Result<CheckOutcome> {
    let Some(workflow) = inner.registry.find(&loaded.run.of, loaded.run.task.as_ref()).cloned() else {
        return Ok(CheckOutcome::Pass(now.after(inner.settings.lease)));
    };
    let live = live_again(inner, &loaded.run).await?;
    let Work { mut found, overlooked, signalled, timer, waits } =
        look_for_work(inner, &mut loaded, early, lease, &workflow, now).await?;
    let run = &loaded.run;
    if let Some(why) = &overlooked {
        warn!(run = %run.run, why, "a parked run could continue; it is claimed");
    }
    if waits && !timer && !signalled && found.is_empty() && overlooked.is_none() {
        if let Some((key, body)) = live {
            inner.store.write(Batch::new().put(key, body)).await?;
        }
        inner.delete_all(found.folded).await?;
        return put_off(inner, loaded, hints, now).await;
    }
    // These deletes come first: later the run may no longer record that it folded these objects.
    inner.delete_all(std::mem::take(&mut found.folded)).await?;
    log::make_whole(&*inner.store, &mut loaded.run).await?;
    let misfits = misfits(inner, &loaded.run, &workflow).await?;
    if !misfits.is_empty() && loaded.run.status != Status::Paused && loaded.run.cancel.is_none() {
        let since = patience.map(|since| inner.clock.boot().saturating_sub(since));
        if since.is_none_or(|since| since < inner.settings.lease) {
            // Another worker may have code that fits: a deploy is under way.
            let left = inner.settings.lease.saturating_sub(since.unwrap_or_default());
            return Ok(CheckOutcome::Misfit(now.after(left)));
        }
    }
    let run = loaded.run.run.clone();
    let mut log = Log::new(Arc::clone(inner), loaded);
    let outcome = async {
        // These name the entry they expect, and so are folded before anything else.
        let (mut early, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut found.controls)
            .into_iter()
            .partition(|(_, control)| matches!(control.order, Order::Restart { .. } | Order::Migrate { .. }));
        found.controls = rest;
        // Further requests that this entry has no room for are found by the next check.
        early.truncate(EARLY_CONTROLS_MAX);
        let mut closed = Vec::new();
        for (suffix, control) in &early {
            let events = log.run.fold_control(suffix, control, &workflow.definition, now);
            closed.extend(index_of_closed(&log.run, &events));
            for event in events {
                log.stage(event, now)?;
            }
        }
        let misfits = if early.is_empty() { misfits } else { self::misfits(inner, &log.run, &workflow).await? };
        follow_or_pause(&mut log, &workflow, &misfits, now)?;
        let mut turn = Turn::claim(Arc::clone(inner), workflow, log, permit, keys_of(hints), lease.take()).await?;
        live.into_iter().for_each(|live| turn.put_before(live));
        if early.len() == EARLY_CONTROLS_MAX {
            turn.look_again();
        }
        for (suffix, _) in early {
            turn.delete_after(Key::Control { run: run.clone(), suffix }.to_string());
        }
        closed.into_iter().for_each(|key| turn.delete_after(key));
        turn.take_found(found).await?;
        turn.launch().await
    };
    settle(inner, &run, hints, outcome.await).await
}

/// Migrates a run to the worker's definition if it fits, and pauses it if not.
fn follow_or_pause(
    log: &mut Log,
    workflow: &Workflow,
    misfits: &[wigwag_core::Path],
    now: Time,
) -> Result<(), CommitError> {
    let may_pause = !matches!(log.run.status, Status::Compensating) && log.run.cancel.is_none();
    let is_paused_for_it = log.run.pause.as_ref().is_some_and(|pause| pause.why == PauseCause::Version);
    // Whether a function fits shows only when it is run again.
    let unknown = log.run.definition_hash.is_empty() || workflow.definition.style == Style::Graph;
    if !misfits.is_empty() && !is_paused_for_it && may_pause {
        let names = misfits.iter().map(ToString::to_string).collect();
        let error = Some(Fault::version_mismatch(&log.run.definition_hash, &workflow.definition.hash, names));
        let paused =
            RunPaused { why: PauseCause::Version, error, reason: None, control: None, refused: None, by: None };
        log.stage(paused, now)?;
    } else if misfits.is_empty()
        && log.run.definition_hash != workflow.definition.hash
        && unknown
        && log.run.task.is_none()
    {
        log.stage(follows(workflow), now)?;
    }
    Ok(())
}

/// Returns the event that migrates a run to the worker's definition.
fn follows(workflow: &Workflow) -> RunMigrated {
    RunMigrated {
        definition_hash: workflow.definition.hash.clone(),
        version: workflow.definition.version,
        renamed: BTreeMap::new(),
        skipped: Vec::new(),
        control: None,
        refused: None,
        by: None,
    }
}

/// Returns the steps at which the worker's code does not fit the run, by the stored definition of the run.
async fn misfits(inner: &EngineCore, run: &wigwag_core::Run, workflow: &Workflow) -> Result<Vec<wigwag_core::Path>> {
    let same = run.definition_hash.is_empty() || run.definition_hash == workflow.definition.hash;
    if same || workflow.definition.style != Style::Graph {
        return Ok(Vec::new());
    }
    let key = Key::Definition { of: run.of.clone(), hash: run.definition_hash.clone() }.to_string();
    let old = log::get_named(&*inner.store, &key)
        .await?
        .and_then(|object| serde_json::from_slice::<Definition>(&object.body).ok());
    Ok(match old {
        Some(old) => version::misfits(run, &old, &workflow.definition),
        // Without it, at least every recorded step must exist.
        None => run.points.keys().filter(|path| workflow.definition.step(path).is_none()).cloned().collect(),
    })
}

async fn settle(
    inner: &Arc<EngineCore>,
    run: &RunRef,
    hints: &DueHints,
    outcome: Result<(), CommitError>,
) -> Result<CheckOutcome> {
    match outcome {
        Ok(()) => Ok(CheckOutcome::Done),
        // The winner does not know this wake-up: the next check finds a turn here, an end, or another worker's lease.
        Err(CommitError::Taken | CommitError::Lease) => {
            Ok(CheckOutcome::Pass(inner.about_now().after(LOST_CLAIM_RETRY_DELAY)))
        }
        Err(CommitError::Store(error)) => Err(error),
        Err(CommitError::Unrecordable(error)) => match stop_unrecordable(inner, run, hints, &error).await {
            Ok(()) => Ok(CheckOutcome::Done),
            Err(CommitError::Store(error)) => Err(error),
            Err(lost) => {
                warn!(%run, %error, ?lost, "the next entry of the run can never be recorded, nor that it stops");
                Ok(CheckOutcome::Pass(inner.about_now().after(UNRECORDABLE_RETRY_DELAY)))
            }
        },
    }
}

/// Stops a run whose claim could not be recorded, by a claim that records nothing else.
async fn stop_unrecordable(
    inner: &Arc<EngineCore>,
    run: &RunRef,
    hints: &DueHints,
    error: &crate::Error,
) -> Result<(), CommitError> {
    warn!(%run, %error, "an entry of the run can never be recorded; the run is stopped");
    let Some(loaded) = log::read_whole(&*inner.store, run).await? else { return Err(CommitError::Taken) };
    // The claim itself may be recorded, and only what should have followed it was rejected: then the lease is our own.
    let is_own = |owner: &str| owner == inner.worker && inner.active(run).is_none();
    let is_free = !loaded.run.status.is_final() && loaded.run.lease.as_ref().is_none_or(|lease| is_own(&lease.owner));
    let drives = inner.can_drive(&loaded.run.of, loaded.run.task.as_ref());
    let Some((workflow, permit)) = drives.filter(|_| is_free) else { return Err(CommitError::Taken) };
    let log = Log::new(Arc::clone(inner), loaded);
    let mut turn = Turn::claim(Arc::clone(inner), workflow, log, permit, keys_of(hints), None).await?;
    turn.stage_stop(error).await?;
    turn.launch().await
}

/// Puts off a parked run without work: the wake-up that the run relies on gets a successor first; all others are deleted.
///
/// A worker that died between parking the run and writing its snapshot left an old one, which lists of waits read. It is
/// replaced here, while the dead worker's wake-up still leads to the run.
async fn put_off(inner: &Arc<EngineCore>, loaded: Loaded, hints: &DueHints, now: Time) -> Result<CheckOutcome> {
    let is_behind = loaded.snapshot_seq < loaded.run.seq;
    let mut log = Log::new(Arc::clone(inner), loaded);
    if is_behind && log.run.parked && !inner.store.traits().atomic {
        log.run_snapshot_is_old();
        if let Err(error) = log.write_snapshot().await {
            debug!(run = %log.run.run, ?error, "the snapshot of a parked run was not written");
            return Ok(CheckOutcome::Pass(now.after(LOST_CLAIM_RETRY_DELAY)));
        }
    }
    let run = &log.run;
    let successor = successor(run, hints, now).map(|hint| Key::Due(hint).to_string());
    if let Some(successor) = &successor {
        inner.store.write(Batch::new().put(successor, crate::engine_core::facts(&run.index_type(), &run.run))).await?;
    }
    // If the clock went back, another worker may have put this very successor, and this check may be for it.
    inner.delete_all(keys_of(hints).filter(|key| Some(key) != successor.as_ref())).await?;
    Ok(CheckOutcome::Done)
}

/// Returns the successor of these wake-ups, if the run relies on any of them.
fn successor(run: &wigwag_core::Run, hints: &DueHints, now: Time) -> Option<Hint> {
    let stands_on = |hint: &&Hint| run.hints.iter().any(|listed| hint.descends_from(listed));
    let last = hints.iter().map(|(_, hint)| hint).filter(stands_on).max_by_key(|hint| hint.generation())?;
    let due = run.next_at.or(run.not_before).filter(|at| *at > now);
    Some(last.successor(due.unwrap_or_else(|| now.after(patrol_after(Some(last))))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two workers postpone the wake-up of a run at the same time, and the clock is set back: the successor from one worker
    /// leads the other here again.
    #[test]
    fn a_hint_that_led_here_is_not_its_own_successor() {
        let key = "due/00/2026-01-01T00:00:39.739474Z~7b65e7c6~g2~w1.2";
        let Ok(Key::Due(first)) = key.parse::<Key>() else { panic!("{key} is a hint") };
        let (next_at, now) = (first.due, first.due.before(Duration::from_secs(1)));
        let mut run = wigwag_core::Run::begin(RunRef::workflow("g2".parse().unwrap()), &started(key, now)).unwrap();
        run.next_at = Some(next_at);
        let second = first.successor(next_at);
        let found: DueHints =
            [&first, &second].map(|hint| (Key::Due(hint.clone()).to_string(), hint.clone())).into_iter().collect();
        let third = successor(&run, &found, now).unwrap();
        assert!(third.generation() > second.generation(), "{third:?}");
        assert!(found.iter().all(|(key, _)| *key != Key::Due(third.clone()).to_string()));
    }

    fn started(hint: &str, at: Time) -> wigwag_core::Entry {
        let json = format!(
            r#"{{"seq":1,"by":"w1.1","at":"{at}","events":[{{"type":"run.started","of":"g","definition_hash":"","input":null,"hints":["{hint}"]}}]}}"#
        );
        wigwag_core::read_entry(json.as_bytes()).unwrap().unwrap()
    }
}
