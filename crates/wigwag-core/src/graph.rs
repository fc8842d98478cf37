//! Computes the ready steps of a graph incrementally, so that the cost of a step does not grow with the graph.

use std::collections::{BTreeMap, BTreeSet};

use crate::{Definition, Node, OnFailure, Path, PointStatus, Run, Style};

/// The steps of a graph that may start.
#[derive(Clone, Debug)]
pub struct Frontier {
    place: BTreeMap<Path, usize>,
    dependents: Vec<Vec<usize>>,
    /// Number of unfinished dependencies of each step.
    waiting: Vec<usize>,
    ready: BTreeSet<usize>,
    /// Finished steps, and the number of unfinished ones.
    behind: Vec<bool>,
    unsettled: usize,
}

impl Frontier {
    /// Computes the frontier of a run.
    #[must_use]
    pub fn new(definition: &Definition, run: &Run) -> Self {
        let steps = &definition.steps;
        let place: BTreeMap<Path, usize> =
            steps.iter().enumerate().map(|(place, node)| (node.name.clone(), place)).collect();
        let mut dependents = vec![Vec::new(); steps.len()];
        let mut waiting = vec![0; steps.len()];
        for (here, node) in steps.iter().enumerate() {
            let after: BTreeSet<&Path> = node.after.iter().collect();
            waiting[here] = after.len();
            for name in after {
                dependents[place[name]].push(here);
            }
        }
        let behind = vec![false; steps.len()];
        let mut frontier = Self { place, dependents, waiting, ready: BTreeSet::new(), behind, unsettled: steps.len() };
        frontier.ready = (0..steps.len()).filter(|here| frontier.waiting[*here] == 0).collect();
        for node in steps.iter().filter(|node| is_passed(node, run)) {
            frontier.passed(&node.name);
        }
        frontier
    }

    /// Lists the steps that may start or continue, in the order of declaration.
    pub fn ready<'a>(&'a self, definition: &'a Definition) -> impl Iterator<Item = &'a Node> {
        self.ready.iter().map(|place| &definition.steps[*place])
    }

    /// Whether all steps have ended.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.unsettled == 0
    }

    /// Marks a step as ended: completed, skipped, or failed without effect on the run. Order does not matter, and
    /// repeated calls have no effect.
    pub fn passed(&mut self, step: &Path) {
        let Some(&here) = self.place.get(step).filter(|here| !self.behind[**here]) else { return };
        self.behind[here] = true;
        self.ready.remove(&here);
        self.unsettled -= 1;
        for next in std::mem::take(&mut self.dependents[here]) {
            self.waiting[next] -= 1;
            if self.waiting[next] == 0 && !self.behind[next] {
                self.ready.insert(next);
            }
        }
    }
}

impl Run {
    /// Names a reason why a parked run could continue without outside input; `None` if there is none.
    ///
    /// A turn parks only when nothing is left to do, so a reason is always a bug. The doctor reports such runs, and a
    /// worker that checks one claims it.
    #[must_use]
    pub fn overlooked_work(&self, definition: &Definition) -> Option<String> {
        if !self.parked || self.lease.is_some() || self.status.is_final() || self.pause.is_some() {
            return None;
        }
        if let Some(chain) = &self.chain {
            let retries = chain.current.as_ref().is_some_and(|current| current.retry_at.is_some());
            return (!retries).then(|| "its compensation has not ended, and nothing continues it".into());
        }
        if self.cancel.is_some() {
            return Some("it is being cancelled, and nothing continues that".into());
        }
        if definition.style != Style::Graph {
            return None;
        }
        let frontier = Frontier::new(definition, self);
        if frontier.is_done() {
            return Some("all its steps are done, and it has not ended".into());
        }
        let is_new = |node: &&Node| {
            let delay = self.points.get(&node.name.delay()).is_some_and(|point| !point.status.is_settled());
            !self.points.contains_key(&node.name) && !delay
        };
        let fails = |node: &&Node| {
            let failed = self.points.get(&node.name).is_some_and(|point| point.status == PointStatus::Failed);
            failed && node.on_failure == OnFailure::Fail
        };
        if let Some(node) = frontier.ready(definition).find(fails) {
            return Some(format!("step `{}` has failed, and the run has not", node.name));
        }
        let ready = frontier.ready(definition).find(is_new)?;
        Some(format!("step `{}` is ready, and has not begun", ready.name))
    }
}

/// Whether dependent steps need not wait for this one any more.
#[must_use]
fn is_passed(node: &Node, run: &Run) -> bool {
    run.points.get(&node.name).is_some_and(|point| match point.status {
        PointStatus::Completed | PointStatus::Skipped => true,
        PointStatus::Failed => node.on_failure == OnFailure::Continue,
        PointStatus::Running | PointStatus::Retrying => false,
    })
}
