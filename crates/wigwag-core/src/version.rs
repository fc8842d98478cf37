//! Checks whether new code matches an old run, and migrates runs.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Definition, NodeKind, Path, Point, PointKind, Refusal, Run, Style};

/// Lists the steps that prevent a run of `old` from continuing with `new`; empty if it may continue.
///
/// The compatibility rules: an added step that is not passed yet is allowed, and so is a removed step that completed.
/// Rejected are a removed step that has not run, and a step with changed dependencies (including a new step before a
/// finished one). A renamed step counts as removed and added, and so does a step whose kind changed.
#[must_use]
pub fn misfits(run: &Run, old: &Definition, new: &Definition) -> Vec<Path> {
    if old.hash == new.hash || old.style != Style::Graph || new.style != Style::Graph {
        return Vec::new();
    }
    let passed = |path: &Path| run.points.get(path).is_some_and(|point| point.status.is_settled());
    let mut misfits = BTreeSet::new();
    for step in &old.steps {
        match new.step(&step.name) {
            None if passed(&step.name) => {}
            Some(now)
                if (now.kind == step.kind || passed(&step.name))
                    && depends_on(&step.after, old, new, &passed) == now.after.iter().collect() => {}
            _ => _ = misfits.insert(step.name.clone()),
        }
    }
    // A new step can no longer precede a step that depends on it and has already started.
    for step in new.steps.iter().filter(|step| old.step(&step.name).is_none()) {
        let late =
            new.steps.iter().any(|later| later.after.contains(&step.name) && run.points.contains_key(&later.name));
        if late {
            misfits.insert(step.name.clone());
        }
    }
    misfits.into_iter().collect()
}

/// Dependencies of a step, without steps that were removed after they completed.
fn depends_on<'a>(
    after: &'a [Path],
    old: &Definition,
    new: &Definition,
    passed: &impl Fn(&Path) -> bool,
) -> BTreeSet<&'a Path> {
    let gone = |name: &Path| old.step(name).is_some() && new.step(name).is_none() && passed(name);
    after.iter().filter(|name| !gone(name)).collect()
}

/// Changes that a migration makes to the steps of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migration {
    /// Points that have another name.
    pub renamed: BTreeMap<Path, Path>,
    /// Paths of skipped steps.
    pub skipped: Vec<Path>,
}

/// Checks that a run matches `new` once its steps are renamed (`old → new`) or skipped (`removed → null`).
pub fn migrate(run: &Run, new: &Definition, mapping: &BTreeMap<Path, Option<Path>>) -> Result<Migration, Refusal> {
    let mut migration = Migration::default();
    for (old, target) in mapping {
        match target {
            Some(target) if new.style == Style::Graph && new.step(target).is_none() => {
                return Err(Refusal::new(format!(
                    "`{old}` cannot become `{target}`, which is no step of `{}`",
                    new.of
                )));
            }
            Some(target) if run.points.keys().any(|path| path.is_within(target)) => {
                return Err(Refusal::new(format!("`{old}` cannot become `{target}`, which the run has already")));
            }
            Some(target) if mapping.get(target) == Some(&None) => {
                return Err(Refusal::new(format!("`{old}` cannot become `{target}`, which is passed over")));
            }
            Some(target) => rename(run, old, target, &mut migration)?,
            None => migration.skipped.push(old.clone()),
        }
    }
    let unknown = mapping.keys().find(|old| !run.points.contains_key(*old) && new.step(old).is_some());
    if let Some(unknown) = unknown.filter(|old| mapping[*old].is_some()) {
        return Err(Refusal::new(format!(
            "`{unknown}` was not run and is a step of `{}`: there is nothing to rename",
            new.of
        )));
    }
    check_fit(run, new, &migration)?;
    Ok(migration)
}

/// Adds a renamed step, if the names of the points below it stay short enough.
fn rename(run: &Run, old: &Path, target: &Path, migration: &mut Migration) -> Result<(), Refusal> {
    if let Some((other, _)) = migration.renamed.iter().find(|(_, taken)| *taken == target) {
        return Err(Refusal::new(format!("`{other}` and `{old}` cannot both become `{target}`")));
    }
    for path in run.points.keys().filter(|path| path.is_within(old)) {
        Path::new(format!("{target}{}", &path.as_str()[old.as_str().len()..]))?;
    }
    migration.renamed.insert(old.clone(), target.clone());
    Ok(())
}

/// The path of a step after a migration: renaming a step renames the steps below it.
pub(crate) fn name_after(renamed: &BTreeMap<Path, Path>, path: &Path) -> Path {
    let from = renamed.iter().find(|(old, _)| path.is_within(old));
    let moved = from.and_then(|(old, new)| format!("{new}{}", &path.as_str()[old.as_str().len()..]).parse().ok());
    moved.unwrap_or_else(|| path.clone())
}

/// Requires that every recorded step is in the new definition, is skipped or has ended, and that no step that has
/// ended depends on one that has not.
fn check_fit(run: &Run, new: &Definition, migration: &Migration) -> Result<(), Refusal> {
    if new.style != Style::Graph {
        return Ok(());
    }
    let renamed = |path: &Path| name_after(&migration.renamed, path);
    let is_step = |path: &Path| !path.as_str().contains("/.delay");
    let steps = run.points.iter().filter(|(path, _)| is_step(path));
    let begun: BTreeMap<Path, &Point> = steps.map(|(path, point)| (renamed(path), point)).collect();
    let is_skipped = |path: &Path| migration.skipped.iter().any(|skipped| path.is_within(skipped));
    let is_behind = |path: &Path| begun.get(path).is_some_and(|point| point.status.is_settled()) || is_skipped(path);
    let mut misfits = Vec::new();
    for (path, point) in &begun {
        let step = new.step(path);
        let fits = match step {
            Some(step) => is_recorded_as(step.kind, point.kind),
            None => new.steps.iter().any(|step| path.is_within(&step.name)),
        };
        if !fits && !is_behind(path) {
            misfits.push(path.clone());
        }
        misfits.extend(step.into_iter().flat_map(|step| &step.after).filter(|name| !is_behind(name)).cloned());
    }
    misfits.sort();
    misfits.dedup();
    if misfits.is_empty() {
        return Ok(());
    }
    let named = misfits.iter().map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ");
    Err(Refusal::new(format!(
        "run `{}` still does not fit `{}` at {named}: rename or skip them in the mapping",
        run.id(),
        new.of
    )))
}

fn is_recorded_as(node: NodeKind, point: PointKind) -> bool {
    match node {
        NodeKind::Step => point == PointKind::Step,
        NodeKind::Signal => point == PointKind::Wait,
    }
}

/// A step and all steps that depend on it, directly or indirectly.
#[must_use]
pub fn downstream(definition: &Definition, from: &Path) -> BTreeSet<Path> {
    let top = definition.steps.iter().map(|step| &step.name).find(|name| from.is_within(name)).unwrap_or(from);
    let mut found = BTreeSet::from([top.clone()]);
    let mut grew = true;
    while grew {
        let next: Vec<Path> = definition
            .steps
            .iter()
            .filter(|step| !found.contains(&step.name) && step.after.iter().any(|name| found.contains(name)))
            .map(|step| step.name.clone())
            .collect();
        grew = !next.is_empty();
        found.extend(next);
    }
    found
}

/// Describes a recorded step that a function no longer reaches, or whose kind changed.
#[must_use]
pub fn describe(path: &Path, recorded: PointKind, found: Option<PointKind>) -> String {
    match found {
        Some(found) => format!("{path} (recorded as {recorded}, now a {found})"),
        None => format!("{path} (recorded as {recorded}, not reached)"),
    }
}
