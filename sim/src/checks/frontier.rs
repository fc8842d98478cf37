//! Liveness, checked for each run against its definition: after the calm phase no run is left that could proceed.

use std::collections::BTreeMap;
use std::time::Duration;

use wigwag::Status;
use wigwag_core::audit::Told;
use wigwag_core::{
    Definition, Event, Frontier, Key, NodeKind, OnFailure, PauseCause, PointKind, PointStatus, RunId, RunRef, Time,
};
use wigwag_store::{Memory, Store as _};

use super::events;
use crate::clock::BEGINNING;
use crate::watch::keys_below;
use crate::world::Known;

/// Maximum delay after a due time.
const LATE: Duration = Duration::from_secs(120);

async fn now(memory: &Memory) -> Time {
    Time::from_micros(memory.now().await.expect("memory has a time").at.micros())
}

fn goes_on(told: &Told) -> bool {
    !told.run.status.is_final() && told.run.pause.is_none() && told.run.cancel.is_none() && told.run.chain.is_none()
}

/// No step of a graph is ready and not started, no graph is settled and not ended, and the failure of every step is handled.
pub(super) async fn graphs_go_on(memory: &Memory, runs: &[Told]) -> Vec<String> {
    let mut wrong = Vec::new();
    for told in runs.iter().filter(|told| goes_on(told) && told.run.version.is_none() && told.run.task.is_none()) {
        let (run, id) = (&told.run, &told.run.run.id);
        let key = Key::Definition { of: run.of.clone(), hash: run.definition_hash.clone() }.to_string();
        let Ok(Some(object)) = memory.get(&key).await else { continue };
        let Ok(definition) = serde_json::from_slice::<Definition>(&object.body) else { continue };
        let frontier = Frontier::new(&definition, run);
        if frontier.is_done() {
            wrong.push(format!("all steps of `{id}` are settled, and it is `{}`", run.status));
        }
        for node in frontier.ready(&definition) {
            let point = run.points.get(&node.name);
            let delayed = run.points.get(&node.name.delay()).is_some_and(|delay| !delay.status.is_settled());
            if point.is_none() && !delayed {
                let kind = if node.kind == NodeKind::Signal { "signal" } else { "step" };
                wrong.push(format!("{kind} `{}` of `{id}` is ready and was not begun: `{}`", node.name, run.status));
            }
            if point.is_some_and(|point| point.status == PointStatus::Failed) && node.on_failure != OnFailure::Continue
            {
                wrong.push(format!("step `{}` of `{id}` failed, and the run is `{}`", node.name, run.status));
            }
        }
    }
    wrong
}

/// No sleep, retry or task deadline is open long after its time.
pub(super) async fn nothing_is_open_after_its_time(memory: &Memory, runs: &[Told]) -> Vec<String> {
    let now = now(memory).await;
    let mut wrong = Vec::new();
    for told in runs.iter().filter(|told| goes_on(told)) {
        let open = told.run.open.iter().filter_map(|path| told.run.points.get_key_value(path));
        let timed = open.filter(|(_, point)| point.kind != PointKind::Wait);
        for (path, point) in timed.filter(|(_, point)| point.until.is_some_and(|until| now.since(until) > LATE)) {
            let (id, until) = (&told.run.run.id, point.until);
            wrong.push(format!("`{path}` of `{id}` ({:?}) is open long after {until:?}", point.kind));
        }
    }
    wrong
}

/// No overdue wake-up is left: the worker that handles one deletes it, or writes a later one.
pub(super) async fn wake_ups_are_followed(memory: &Memory, runs: &[Told]) -> Vec<String> {
    let now = now(memory).await;
    let known: BTreeMap<&RunId, Status> = runs.iter().map(|told| (&told.run.run.id, told.run.status)).collect();
    let mut wrong = Vec::new();
    for key in keys_below(memory, "due/").await {
        let Ok(Key::Due(hint)) = key.parse::<Key>() else { continue };
        let Some(status) = known.get(&hint.run) else { continue };
        if now.since(hint.due) > LATE {
            wrong.push(format!("`{key}` is due since {:?}, and `{}` is `{status}`", now.since(hint.due), hint.run));
        }
    }
    wrong
}

/// Every acknowledged control object is recorded by an event, or was too late for a run that ended; and none
/// is left in the store.
pub(super) async fn acknowledged_controls_are_recorded(memory: &Memory, runs: &[Told], known: &Known) -> Vec<String> {
    let mut wrong = Vec::new();
    for (run, control, at) in known.controls.iter().filter(|(run, ..)| !known.removed.contains(run)) {
        let Some(told) = runs.iter().find(|told| told.run.run == *run) else { continue };
        let is_recorded =
            events(told).any(|(_, event)| control_of(event).is_some_and(|suffix| suffix.ends_with(control)));
        // A control object without effect on an ended run is deleted without an event.
        let has_ended = events(told)
            .any(|(_, event)| matches!(event, Event::RunCompleted(_) | Event::RunFailed(_) | Event::RunCancelled(_)));
        if !is_recorded && !has_ended {
            let status = told.run.status;
            wrong.push(format!(
                "control `{control}` of `{run}` was acknowledged at {at:?}, and has no event: `{status}`"
            ));
        }
        if let Some(left) = left_over(memory, run, control, *at).await {
            wrong.push(format!("`{left}` was acknowledged at {at:?} and is still there: `{}`", told.run.status));
        }
    }
    wrong
}

/// Returns the key of a control object that still exists. A bucket may have written it again after its deletion: the answer to
/// the first write was lost, the retry was acknowledged, and then the first write was applied late.
async fn left_over(memory: &Memory, run: &RunRef, control: &str, acknowledged: Duration) -> Option<String> {
    let page = memory.list(&format!("{run}/signals/.control/"), "", 1_000).await.expect("memory lists");
    let left = page.entries.into_iter().find(|listed| listed.key.contains(control))?;
    let is_late = !memory.traits().atomic && left.modified > BEGINNING.after(acknowledged);
    (!is_late).then_some(left.key)
}

fn control_of(event: &Event) -> Option<&str> {
    match event {
        Event::RunPaused(event) if event.why == PauseCause::ByHand => event.control.as_deref(),
        Event::RunResumed(event) => event.control.as_deref(),
        Event::RunCancelRequested(event) => Some(&event.control),
        Event::RunRestarted(event) => Some(&event.control),
        Event::RunMigrated(event) => event.control.as_deref(),
        _ => None,
    }
}
