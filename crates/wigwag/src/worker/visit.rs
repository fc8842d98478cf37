//! Looking at one run that is due: it is claimed, completed, put off, or left to another worker.
//!
//! Holds: a hint is deleted only by whoever made sure that its run stands on another, or has ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tracing::{debug, warn};
use wigwag_core::mutation::{Mutation, is_mutated};
use wigwag_core::{
    Control, Definition, Family, Fault, Hint, Key, Look, Order, PauseCause, RunMigrated, RunPaused, RunRef, Status,
    Style, Time, look, version,
};
use wigwag_store::Batch;

use super::{DueHints, Visit};
use crate::error::{ErrorKind, Result};
use crate::inner::Inner;
use crate::log::{self, Loaded, Log, Lost};
use crate::turn::{Turn, complete_end, decide, index_of_closed, look_at_sources, patrol_after};
use crate::workflow::Workflow;

/// After how long a hint is followed again whose run another took at the same moment.
const LOST_AGAIN: Duration = Duration::from_millis(50);

/// A run that could not be stopped although its next entry can never be recorded is tried again after this.
const UNRECORDABLE_AGAIN: Duration = Duration::from_secs(600);

/// Restarts and migrations that are folded into one claim: all but one of them only say why they had no effect.
const EARLY_CONTROLS_MAX: usize = 100;

/// Looks at the run that these hints lead to.
pub(super) async fn visit(
    inner: &Arc<Inner>,
    families: &[Family],
    hints: &DueHints,
    permit: OwnedSemaphorePermit,
    patience: Option<Duration>,
) -> Result<Visit> {
    let now = inner.now().await?;
    if now.uncertainty > Duration::from_millis(2_500) {
        return Ok(Visit::Pass(now.at.after(Duration::from_secs(1))));
    }
    let Some((_, hint)) = hints.first() else { return Ok(Visit::Done) };
    let mut loaded = None;
    for family in families {
        let run = RunRef { family: *family, id: hint.run.clone() };
        match log::read(&*inner.store, &run).await {
            Ok(found) => loaded = found,
            Err(error) if error.kind() == ErrorKind::Gone => {
                inner.delete_all(keys_of(hints)).await?;
                return Ok(Visit::Done);
            }
            Err(error) => return Err(error),
        }
        if loaded.is_some() {
            break;
        }
    }
    let stands_on = |key: &String| loaded.as_ref().is_some_and(|loaded| loaded.run.due_hints().any(|hint| hint == key));
    let is_abandoned = hints.iter().any(|(key, _)| inner.is_abandoned(key) && stands_on(key));
    let lives = |peer: &str| if is_abandoned { Some(false) } else { inner.peer_lives(peer) };
    let verdict = look(loaded.as_ref().map(|loaded| &loaded.run), hint, now.at, now.uncertainty, lives);
    match (verdict, loaded) {
        (Look::Leave { until }, _) => Ok(Visit::Pass(until)),
        (Look::Orphan, _) => {
            let old = hints.iter().filter(|(_, other)| other.due == hint.due);
            inner.delete_all(old.map(|(key, _)| key.clone())).await?;
            Ok(Visit::Done)
        }
        (Look::Ended, Some(loaded)) => ended(inner, loaded, hints, permit).await,
        (Look::Free, Some(loaded)) => free(inner, loaded, hints, permit, patience, now.at).await,
        _ => {
            // Its starter is about to make it, or died.
            let young = now.at.since(hint.due) < Duration::from_secs(10);
            Ok(Visit::Pass(now.at.after(if young { Duration::from_millis(500) } else { Duration::from_secs(60) })))
        }
    }
}

fn keys_of(hints: &DueHints) -> impl Iterator<Item = String> {
    hints.iter().map(|(key, _)| key.clone())
}

/// A run that has ended: it is restarted if somebody asked, else its end is completed.
async fn ended(
    inner: &Arc<Inner>,
    mut loaded: Loaded,
    hints: &DueHints,
    permit: OwnedSemaphorePermit,
) -> Result<Visit> {
    let found = look_at_sources(inner, &loaded.run).await?;
    let Some(workflow) = inner.registry.find(&loaded.run.of, loaded.run.task.as_ref()).cloned() else {
        return Ok(Visit::Pass(inner.about_now().after(inner.settings.lease)));
    };
    let restart = found.controls.iter().find(|(_, control)| matches!(control.order, Order::Restart { .. })).cloned();
    // What else was asked came too late, and must not reach a run that is restarted; but for signals that were
    // acknowledged: whoever restarts it would look past them.
    let is_heeded = |control: &Control| matches!(control.order, Order::Late { .. });
    let asked = found.controls.iter().filter(|(_, control)| !is_heeded(control)).map(|(suffix, _)| suffix.clone());
    let key_of = |suffix| Key::Control { run: loaded.run.run.clone(), suffix }.to_string();
    let stale: Vec<String> = asked.map(key_of).chain(found.folded.iter().cloned()).collect();
    let ended = |completed| if completed { Visit::Done } else { Visit::Pass(inner.about_now().after(LOST_AGAIN)) };
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
        // What else was asked came too late, and the log says so.
        for event in late {
            log.stage(event, now)?;
        }
        for (suffix, control) in others.iter().filter(|(_, control)| matches!(control.order, Order::Restart { .. })) {
            for event in log.run.fold_control(suffix, control, &workflow.definition, now) {
                log.stage(event, now)?;
            }
        }
        let misfits = misfits(inner, &log.run, &workflow).await?;
        if !is_mutated(Mutation::RestartKeepsDefinition) {
            follow_or_pause(&mut log, &workflow, &misfits, now)?;
        }
        let mut turn = Turn::claim(Arc::clone(inner), workflow, log, permit, keys_of(hints)).await?;
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

/// Somebody who completed the end of a run while it was restarted, and died before it saw that, has taken the run out of
/// the index: its place there, if it is missing. Only where a batch lands in parts.
async fn live_again(inner: &Inner, run: &wigwag_core::Run) -> Result<Option<(String, bytes::Bytes)>> {
    if run.restarts == 0 || inner.store.traits().atomic {
        return Ok(None);
    }
    let (key, body) = inner.live(run);
    Ok(inner.store.get(&key).await?.is_none().then_some((key, body)))
}

/// Why a parked run could continue, if it could. Steps that were rolled out of the snapshot are read before one counts as not
/// begun.
async fn overlooked_work(inner: &Inner, run: &mut wigwag_core::Run, workflow: &Workflow) -> Result<Option<String>> {
    if run.definition_hash != workflow.definition.hash || run.overlooked_work(&workflow.definition).is_none() {
        return Ok(None);
    }
    log::make_whole(&*inner.store, run).await?;
    Ok(run.overlooked_work(&workflow.definition))
}

/// A run that nobody drives: it is claimed if there is something to do.
async fn free(
    inner: &Arc<Inner>,
    mut loaded: Loaded,
    hints: &DueHints,
    permit: OwnedSemaphorePermit,
    patience: Option<Duration>,
    now: Time,
) -> Result<Visit> {
    let Some(workflow) = inner.registry.find(&loaded.run.of, loaded.run.task.as_ref()).cloned() else {
        return Ok(Visit::Pass(now.after(inner.settings.lease)));
    };
    let live = live_again(inner, &loaded.run).await?;
    log::make_inboxes_whole(&*inner.store, &mut loaded.run).await?;
    let mut found = look_at_sources(inner, &loaded.run).await?;
    let overlooked = overlooked_work(inner, &mut loaded.run, &workflow).await?;
    let run = &loaded.run;
    let heeds = run.pause.is_none() && run.chain.is_none();
    let signalled = heeds && decide(inner, run, &mut found.inboxes, |_| true).await?.is_some();
    let timer = run.next_at.is_some_and(|at| at <= now);
    if let Some(why) = &overlooked {
        warn!(run = %run.run, why, "a parked run could continue; it is claimed");
    }
    let waits = run.parked || run.not_before.is_some_and(|at| at > now) && run.lease.is_none();
    if waits && !timer && !signalled && found.is_empty() && overlooked.is_none() {
        if let Some((key, body)) = live {
            inner.store.write(Batch::new().put(key, body)).await?;
        }
        inner.delete_all(found.folded).await?;
        return put_off(inner, &loaded, hints, now).await;
    }
    // First of all, so that none of them is left when the run no longer remembers that it was folded.
    inner.delete_all(std::mem::take(&mut found.folded)).await?;
    log::make_whole(&*inner.store, &mut loaded.run).await?;
    let misfits = misfits(inner, &loaded.run, &workflow).await?;
    if !misfits.is_empty() && loaded.run.status != Status::Paused && loaded.run.cancel.is_none() {
        let since = patience.map(|since| inner.clock.boot().saturating_sub(since));
        if since.is_none_or(|since| since < inner.settings.lease) {
            // Another worker may have code that fits: a deploy is under way.
            let left = inner.settings.lease.saturating_sub(since.unwrap_or_default());
            return Ok(Visit::Misfit(now.after(left)));
        }
    }
    let run = loaded.run.run.clone();
    let mut log = Log::new(Arc::clone(inner), loaded);
    let outcome = async {
        // These name the entry they expect, and so come before anything else.
        let (mut early, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut found.controls)
            .into_iter()
            .partition(|(_, control)| matches!(control.order, Order::Restart { .. } | Order::Migrate { .. }));
        found.controls = rest;
        // Those for which this entry has no room are found again.
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
        let mut turn = Turn::claim(Arc::clone(inner), workflow, log, permit, keys_of(hints)).await?;
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

/// A run that the worker's code fits follows it from here on; one that it does not fit is paused.
fn follow_or_pause(log: &mut Log, workflow: &Workflow, misfits: &[wigwag_core::Path], now: Time) -> Result<(), Lost> {
    let may_pause = !matches!(log.run.status, Status::Compensating) && log.run.cancel.is_none();
    let is_paused_for_it = log.run.pause.as_ref().is_some_and(|pause| pause.why == PauseCause::Version);
    // Whether a function fits, only running it again can tell.
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

/// The run follows the worker's definition from here on: it fits.
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

/// The steps at which the worker's code does not fit the run. The stored definition of the run says what changed.
async fn misfits(inner: &Inner, run: &wigwag_core::Run, workflow: &Workflow) -> Result<Vec<wigwag_core::Path>> {
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
        // Without it, what was recorded must at least be there.
        None => run.points.keys().filter(|path| workflow.definition.step(path).is_none()).cloned().collect(),
    })
}

async fn settle(inner: &Arc<Inner>, run: &RunRef, hints: &DueHints, outcome: Result<(), Lost>) -> Result<Visit> {
    match outcome {
        Ok(()) => Ok(Visit::Done),
        // The winner does not know of this hint: soon it leads to a turn here, to an end, or to another's lease.
        Err(Lost::Taken | Lost::Lease) => Ok(Visit::Pass(inner.about_now().after(LOST_AGAIN))),
        Err(Lost::Store(error)) => Err(error),
        Err(Lost::Unrecordable(error)) => match stop_unrecordable(inner, run, hints, &error).await {
            Ok(()) => Ok(Visit::Done),
            Err(Lost::Store(error)) => Err(error),
            Err(lost) => {
                warn!(%run, %error, ?lost, "the next entry of the run can never be recorded, nor that it stops");
                Ok(Visit::Pass(inner.about_now().after(UNRECORDABLE_AGAIN)))
            }
        },
    }
}

/// Stops a run whose claim could not be recorded, with a claim that holds nothing else.
async fn stop_unrecordable(
    inner: &Arc<Inner>,
    run: &RunRef,
    hints: &DueHints,
    error: &crate::Error,
) -> Result<(), Lost> {
    warn!(%run, %error, "an entry of the run can never be recorded; the run is stopped");
    let Some(loaded) = log::read_whole(&*inner.store, run).await? else { return Err(Lost::Taken) };
    // The claim itself may be recorded, and only what should have followed it was rejected: then the lease is our own.
    let is_own = |owner: &str| owner == inner.worker && inner.active(run).is_none();
    let is_free = !loaded.run.status.is_final() && loaded.run.lease.as_ref().is_none_or(|lease| is_own(&lease.owner));
    let drives = inner.can_drive(&loaded.run.of, loaded.run.task.as_ref());
    let Some((workflow, permit)) = drives.filter(|_| is_free) else { return Err(Lost::Taken) };
    let log = Log::new(Arc::clone(inner), loaded);
    let mut turn = Turn::claim(Arc::clone(inner), workflow, log, permit, keys_of(hints)).await?;
    turn.stage_stop(error).await?;
    turn.launch().await
}

/// Parked with nothing to do: the hint the run stands on gets a successor first; any other just goes.
async fn put_off(inner: &Inner, loaded: &Loaded, hints: &DueHints, now: Time) -> Result<Visit> {
    let run = &loaded.run;
    let successor = successor(run, hints, now).map(|hint| Key::Due(hint).to_string());
    if let Some(successor) = &successor {
        inner.store.write(Batch::new().put(successor, crate::inner::facts(&run.index_type(), &run.run))).await?;
    }
    // If the clock went back, another worker may have put this very successor, and it led here.
    inner.delete_all(keys_of(hints).filter(|key| Some(key) != successor.as_ref())).await?;
    Ok(Visit::Done)
}

/// Returns the hint that follows those that led here, if the run stands on any of them.
fn successor(run: &wigwag_core::Run, hints: &DueHints, now: Time) -> Option<Hint> {
    let stands_on = |hint: &&Hint| run.hints.iter().any(|listed| hint.descends_from(listed));
    let last = hints.iter().map(|(_, hint)| hint).filter(stands_on).max_by_key(|hint| hint.generation())?;
    let due = run.next_at.or(run.not_before).filter(|at| *at > now);
    Some(last.successor(due.unwrap_or_else(|| now.after(patrol_after(Some(last))))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two workers put a run off at the same time, and somebody sets the clock back: the successor that one put leads the
    /// other here again.
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
