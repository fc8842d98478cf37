//! Whether new code fits an old run, and how a run is brought to fit.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Definition, NodeKind, Path, Point, PointKind, Refusal, Run, Style};

/// The steps of `old` and `new` that keep a run of `old` from going on by `new`; none if it may.
///
/// The table: a step that was added and not yet passed is fine, and so is one that was removed after it was completed.
/// A step that was removed and has not run, and one whose dependencies changed (a new step before a finished one is
/// that too), do not fit. A renamed step is a removed one and an added one, and so is one of another kind.
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
    // A new step that something already begun would have waited for can no longer come before it.
    for step in new.steps.iter().filter(|step| old.step(&step.name).is_none()) {
        let late =
            new.steps.iter().any(|later| later.after.contains(&step.name) && run.points.contains_key(&later.name));
        if late {
            misfits.insert(step.name.clone());
        }
    }
    misfits.into_iter().collect()
}

/// What a step depends on, without those that were removed after they were completed.
fn depends_on<'a>(
    after: &'a [Path],
    old: &Definition,
    new: &Definition,
    passed: &impl Fn(&Path) -> bool,
) -> BTreeSet<&'a Path> {
    let gone = |name: &Path| old.step(name).is_some() && new.step(name).is_none() && passed(name);
    after.iter().filter(|name| !gone(name)).collect()
}

/// What a migration does to the points of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Migration {
    /// Points that have another name.
    pub renamed: BTreeMap<Path, Path>,
    /// Points that are passed over.
    pub skipped: Vec<Path>,
}

/// Checks that a run fits `new` once its steps are renamed (`old → new`) or passed over (`removed → null`).
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

/// What a point is called after a migration: a step takes the points below it along.
pub(crate) fn name_after(renamed: &BTreeMap<Path, Path>, path: &Path) -> Path {
    let from = renamed.iter().find(|(old, _)| path.is_within(old));
    let moved = from.and_then(|(old, new)| format!("{new}{}", &path.as_str()[old.as_str().len()..]).parse().ok());
    moved.unwrap_or_else(|| path.clone())
}

/// Every recorded step must be one of the new definition, be passed over, or be behind us; and nothing that is behind
/// us may wait for something that is not.
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

/// A step and all that comes after it.
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

/// Names the recorded points that a function no longer comes to, or that are of another kind now.
#[must_use]
pub fn describe(path: &Path, recorded: PointKind, found: Option<PointKind>) -> String {
    match found {
        Some(found) => format!("{path} (recorded as {recorded}, now a {found})"),
        None => format!("{path} (recorded as {recorded}, not reached)"),
    }
}
