//! Warnings about unknown names: a workflow that no worker has registered, a signal that no step waits for.
//!
//! Both are accepted, because a worker with that workflow, or a new version of it, may start later. Far more often they
//! are typing errors, so the response lists the closest known names.

use std::collections::BTreeSet;

use wigwag_core::{Children, Definition, Key, Name, Run, RunRef, Style, TypeName};
use wigwag_store::limits::LIST_PAGE;

use super::{Client, RunHandle};
use crate::engine_core::{EngineCore, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{NAME_LISTS_MAX, SHOWN_CHILDREN_MAX, SHOWN_NAMES_MAX};
use crate::log;

impl RunHandle {
    /// Warnings about the call that returned this handle. A start warns if no worker has registered the workflow.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl Client {
    /// Returns the names of all workflows that workers have registered in this store.
    pub async fn workflow_names(&self) -> Result<Vec<String>> {
        Ok(known_workflows(&self.inner).await?.into_iter().collect())
    }

    /// Returns reasons why a run may not proceed that are not part of its state: its workflow, or that of a child it
    /// waits for, has never been registered by a worker.
    pub async fn diagnose(&self, run: &Run) -> Result<Vec<String>> {
        diagnose(&self.inner, run).await
    }
}

/// Returns reasons why a run may not proceed that are not part of its state.
pub(super) async fn diagnose(inner: &EngineCore, run: &Run) -> Result<Vec<String>> {
    if run.status.is_final() {
        return Ok(Vec::new());
    }
    let mut found: Vec<String> = unregistered(inner, run).await?.into_iter().collect();
    for child in children(run).into_iter().take(SHOWN_CHILDREN_MAX) {
        let Some(loaded) = log::read(&*inner.store, child).await? else { continue };
        if loaded.run.status.is_final() {
            continue;
        }
        let warning = unregistered(inner, &loaded.run).await?;
        found.extend(warning.map(|warning| format!("child `{}`: {warning}", child.id)));
    }
    Ok(found)
}

/// Child workflows that the run waits for. Tasks have no definition, so that nothing is known about their types.
fn children(run: &Run) -> Vec<&RunRef> {
    let open = run.open.iter().filter_map(|path| run.points.get(path)?.children.as_ref());
    open.filter_map(|children| match children {
        Children::One(run) if run.family == wigwag_core::Family::Workflow => Some(run),
        _ => None,
    })
    .collect()
}

/// Warns about a run that no worker has claimed yet and whose workflow no worker has registered.
async fn unregistered(inner: &EngineCore, run: &Run) -> Result<Option<String>> {
    match run.task.is_none() && run.definition_hash.is_empty() {
        true => unregistered_workflow(inner, &run.of).await,
        false => Ok(None),
    }
}

/// Whether a worker has registered the workflow.
async fn is_registered(inner: &EngineCore, of: &TypeName) -> Result<bool> {
    if inner.registry.workflow(of).is_some() || lock(&inner.caches.registered).contains(of) {
        return Ok(true);
    }
    let stored = inner.store.list(&format!("definition/{of}/"), "", 1).await?;
    let found = !stored.entries.is_empty();
    if found {
        // Definitions are never deleted.
        lock(&inner.caches.registered).insert(of.clone());
    }
    Ok(found)
}

/// Rejects an unknown workflow, if workers have registered any.
pub(super) async fn check_registered(inner: &EngineCore, of: &TypeName) -> Result<()> {
    if is_registered(inner, of).await? {
        return Ok(());
    }
    let known = closest_first(of.as_str(), known_workflows(inner).await?);
    let Some(closest) = known.first() else { return Ok(()) };
    let meant = match is_close(of.as_str(), closest) {
        true => format!("did you mean `{closest}`? "),
        false => String::new(),
    };
    let what = format!("no worker has registered workflow `{of}`; {meant}known: {}", listed(&known));
    Err(Error::invalid(what).hint("correct the name, or start a worker with that workflow first"))
}

/// Warns about a workflow that no worker has registered.
async fn unregistered_workflow(inner: &EngineCore, of: &TypeName) -> Result<Option<String>> {
    if is_registered(inner, of).await? {
        return Ok(None);
    }
    let known = known_workflows(inner).await?;
    let known = match known.is_empty() {
        true => "no workflow is registered yet".to_owned(),
        false => format!("known: {}", listed(&closest_first(of.as_str(), known))),
    };
    Ok(Some(format!("no worker has registered workflow `{of}`, so the run waits until one does; {known}")))
}

/// Warnings of a start. The run is started already: if the store does not respond now, there is no warning.
pub(super) async fn of_start(inner: &EngineCore, of: &TypeName) -> Vec<String> {
    unregistered_workflow(inner, of).await.ok().flatten().into_iter().collect()
}

/// Warning of a signal that is about to be sent.
pub(super) async fn of_signal(
    inner: &EngineCore,
    name: &Name,
    run: &Run,
    definition: Option<&Definition>,
) -> Option<String> {
    match definition {
        Some(_) => unknown_signal(name, run, definition),
        None => unregistered(inner, run).await.ok().flatten(),
    }
}

/// Rejects a signal that no step of the run's graph waits for.
pub(super) fn check_signal(name: &Name, run: &Run, definition: Option<&Definition>) -> Result<()> {
    match unknown_signal(name, run, definition) {
        Some(unknown) => {
            let what = format!("run `{}` does not wait for `{name}`: {unknown}", run.id());
            let hint = "correct the name; without `only_if_waiting` the signal is buffered, and no wait consumes it";
            Err(Error::new(ErrorKind::NotWaiting, what).hint(hint))
        }
        None => Ok(()),
    }
}

/// Warns about a signal that no step of the run's graph waits for. A function declares no signals, so there is no warning.
fn unknown_signal(name: &Name, run: &Run, definition: Option<&Definition>) -> Option<String> {
    let definition = definition.filter(|definition| definition.style == Style::Graph)?;
    if definition.signal(name).is_some() || run.waits().any(|(_, point)| waits_for(point, name)) {
        return None;
    }
    let known = definition.steps.iter().filter_map(|node| Some(node.signal.as_ref()?.name.to_string())).collect();
    let known = closest_first(name.as_str(), known);
    let of = &run.of;
    Some(match known.first() {
        Some(closest) if is_close(name.as_str(), closest) => {
            format!(
                "workflow `{of}` never waits for signal `{name}`; did you mean `{closest}`? known: {}",
                listed(&known)
            )
        }
        Some(_) => format!("workflow `{of}` never waits for signal `{name}`; known: {}", listed(&known)),
        None => format!("workflow `{of}` never waits for any signal"),
    })
}

fn waits_for(point: &wigwag_core::Point, name: &Name) -> bool {
    point.wait.as_ref().is_some_and(|wait| wait.name == *name)
}

/// Names of all workflows that workers have registered in this store.
async fn known_workflows(inner: &EngineCore) -> Result<BTreeSet<String>> {
    let mut known: BTreeSet<String> = inner.registry.workflows().map(|known| known.definition.of.to_string()).collect();
    let mut after = String::new();
    for _ in 0..NAME_LISTS_MAX {
        let page = inner.store.list("definition/", &after, LIST_PAGE).await?;
        let found = page.entries.iter().filter_map(|listed| match listed.key.parse() {
            Ok(Key::Definition { of, .. }) => Some(of.to_string()),
            _ => None,
        });
        known.extend(found);
        match page.entries.last() {
            // Skips the other definitions of the last workflow: `0` follows `/`.
            Some(last) if page.more => after = last.key.rsplit_once('/').map_or("", |(of, _)| of).to_owned() + "0",
            _ => break,
        }
    }
    Ok(known)
}

/// Sorts names by edit distance, then by name.
fn closest_first(name: &str, known: BTreeSet<String>) -> Vec<String> {
    let mut known: Vec<String> = known.into_iter().collect();
    known.sort_by_key(|known| distance(name, known));
    known
}

fn distance(name: &str, known: &str) -> usize {
    strsim::damerau_levenshtein(&name.to_lowercase(), &known.to_lowercase())
}

/// Whether a name is likely to be a typing error of another.
fn is_close(name: &str, known: &str) -> bool {
    distance(name, known) <= 1 + name.len().min(known.len()) / 4
}

fn listed(known: &[String]) -> String {
    let shown: Vec<String> = known.iter().take(SHOWN_NAMES_MAX).map(|known| format!("`{known}`")).collect();
    match known.len().saturating_sub(SHOWN_NAMES_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_name_comes_first() {
        let known: BTreeSet<String> = ["payment", "approval", "approve", "cancel"].map(str::to_owned).into();
        for (name, closest, close) in [
            ("aproval", "approval", true),
            ("apporval", "approval", true),
            ("Approve", "approve", true),
            ("paymnet", "payment", true),
            ("go", "approve", false),
        ] {
            let sorted = closest_first(name, known.clone());
            assert_eq!((sorted[0].as_str(), is_close(name, &sorted[0])), (closest, close), "{name}");
        }
        let many: Vec<String> = (0..12).map(|number| format!("w{number:02}")).collect();
        assert!(listed(&many).ends_with("`w09` and 2 more"), "{}", listed(&many));
    }
}
