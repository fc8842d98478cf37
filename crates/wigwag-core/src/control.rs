//! Control requests to a run: an object beside the log, which the owner of the turn folds in.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::event::*;
use crate::failure::cut_to;
use crate::{
    Definition, Event, Mode, Name, Path, PauseCause, PointStatus, Refusal, Run, Status, Time, is_suffix, limits,
    version,
};

/// A control object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// Unique per sender.
    pub id: String,
    /// Time of the request.
    pub created_at: Time,
    /// Name of the caller, if the endpoint authenticated one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Kind of the request, with its arguments.
    #[serde(flatten)]
    pub order: Order,
}

/// A control request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Order {
    /// Cancels the run.
    Cancel {
        /// Reason given by the caller.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Starts no further step until a resume.
    Pause {
        /// Reason given by the caller.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Resumes a paused run.
    Resume,
    /// Restarts the run.
    Restart {
        /// First step to run again; the whole run if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Path>,
        /// Rejects the restart if the log has entries after this one.
        expected_seq: u64,
    },
    /// Switches to another definition and continues.
    Migrate {
        /// Hash of the new definition.
        definition_hash: String,
        /// New paths of renamed steps; `null` for steps to skip.
        mapping: BTreeMap<Path, Option<Path>>,
        /// Rejects the migration if the log has entries after this one.
        expected_seq: u64,
    },
    /// Offers a signal that may have been skipped because its sender was slow.
    Late {
        /// Name of the signal.
        name: Name,
        /// Last part of the signal's key.
        signal: String,
    },
}

impl Order {
    /// Whether the request arrived after the run had ended with this entry. A restart that expects that entry was sent
    /// after the end; a late note matters only if the run is restarted.
    #[must_use]
    pub fn is_late_for_end(&self, last: u64) -> bool {
        match self {
            Self::Restart { expected_seq, .. } => *expected_seq < last,
            Self::Late { .. } => false,
            Self::Cancel { .. } | Self::Pause { .. } | Self::Resume | Self::Migrate { .. } => true,
        }
    }
}

impl Control {
    /// Encodes the control object as JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec(self).expect("a control object is text and numbers");
        bytes.push(b'\n');
        bytes
    }

    /// Decodes a control object.
    pub fn read(body: &[u8]) -> Result<Self, Refusal> {
        serde_json::from_slice(body).map_err(|error| Refusal::new(format!("not a control object: {error}")))
    }
}

/// Truncates a reason to the size that an event allows. Clients reject a longer one.
fn bounded(reason: Option<&String>) -> Option<String> {
    reason.map(|reason| cut_to(reason.clone(), limits::current().reason_bytes_max))
}

/// Bytes that paths take in an event.
fn bytes_of<'a>(paths: impl IntoIterator<Item = &'a Path>) -> usize {
    paths.into_iter().map(|path| path.as_str().len() + 4).sum()
}

/// Records the caller in an event derived from a control object.
fn name_caller(event: &mut Event, caller: Option<&String>) {
    let by = match event {
        Event::RunCancelRequested(event) => &mut event.by,
        Event::RunPaused(event) => &mut event.by,
        Event::RunResumed(event) => &mut event.by,
        Event::RunRestarted(event) => &mut event.by,
        Event::RunMigrated(event) => &mut event.by,
        _ => return,
    };
    *by = caller.cloned();
}

impl Run {
    /// Derives the events of a control object. There is always at least one, so that the object is never folded twice.
    ///
    /// `definition` is the worker's definition of the workflow.
    #[must_use]
    pub fn fold_control(&self, suffix: &str, control: &Control, definition: &Definition, now: Time) -> Vec<Event> {
        let mut events = self.fold_order(suffix, control, definition, now);
        events.iter_mut().for_each(|event| name_caller(event, control.by.as_ref()));
        events
    }

    fn fold_order(&self, suffix: &str, control: &Control, definition: &Definition, now: Time) -> Vec<Event> {
        let id = suffix.to_owned();
        let ended = self.status.is_final().then(|| format!("the run is `{}`", self.status));
        match &control.order {
            Order::Cancel { reason } => {
                let reason = bounded(reason.as_ref());
                let refused = ended.or_else(|| self.cancel.as_ref().map(|_| "it is being cancelled".into()));
                vec![RunCancelRequested { reason, control: id, refused, by: None }.into()]
            }
            Order::Pause { reason } => {
                let busy = matches!(self.status, Status::Compensating | Status::Paused) || self.cancel.is_some();
                let refused = ended.or_else(|| busy.then(|| format!("the run is `{}`", self.status)));
                let why = PauseCause::ByHand;
                let reason = bounded(reason.as_ref());
                vec![RunPaused { why, error: None, reason, control: Some(id), refused, by: None }.into()]
            }
            Order::Resume => vec![self.fold_resume(id, definition, now)],
            Order::Restart { from, expected_seq } => {
                let restart = self.fold_restart(id, from.as_ref(), *expected_seq, definition);
                let dropped: BTreeSet<Path> = match &restart {
                    Event::RunRestarted(event) if event.refused.is_none() => {
                        self.dropped_by(event).into_iter().collect()
                    }
                    _ => BTreeSet::new(),
                };
                let closings = self.closings(|path| dropped.contains(path), Closing::Finished, now);
                closings.chain([restart]).collect()
            }
            Order::Migrate { definition_hash, mapping, expected_seq } => {
                self.fold_migrate(id, definition_hash, mapping, *expected_seq, definition, now)
            }
            Order::Late { name, signal } => {
                let refused = ended.or_else(|| self.passes_late(name, signal, definition));
                vec![SignalLate { name: name.clone(), signal: signal.clone(), control: id, refused }.into()]
            }
        }
    }

    /// Why a signal of a late note is not offered; `None` if it is offered.
    fn passes_late(&self, name: &Name, signal: &str, definition: &Definition) -> Option<String> {
        if !is_suffix(signal) {
            return Some("it is no place in an inbox".into());
        }
        let inbox = self.signals.get(name);
        let taker = self.taker_of(signal).map(|(point, _)| format!("`{point}` has received it"));
        let taken = inbox.is_some_and(|inbox| inbox.taken.contains(signal)).then(|| "it was received".into());
        let latest = self.mode_of(name, Some(definition)) == Mode::Latest;
        let superseded = latest && inbox.is_some_and(|inbox| signal <= inbox.cursor.as_str());
        taker.or(taken).or_else(|| superseded.then(|| "a newer one has superseded it".into()))
    }

    /// Consumption mode of a signal name: from the definition, else from the last wait for the name.
    #[must_use]
    pub fn mode_of(&self, name: &Name, definition: Option<&Definition>) -> Mode {
        let waits = self.points.values().filter_map(|point| point.wait.as_ref()).filter(|wait| wait.name == *name);
        let last = waits.max_by_key(|wait| (wait.seq, wait.place)).map(|wait| wait.mode);
        definition.and_then(|definition| definition.signal(name)).map(|signal| signal.mode).or(last).unwrap_or_default()
    }

    /// Closes the waits below removed points first.
    fn closings(&self, gone: impl Fn(&Path) -> bool, why: Closing, at: Time) -> impl Iterator<Item = Event> {
        let open = self.waits().filter(|(path, _)| gone(path)).map(|(path, _)| path.clone());
        open.map(move |point| SignalClosed { point, why, at }.into()).collect::<Vec<Event>>().into_iter()
    }

    fn fold_resume(&self, control: String, definition: &Definition, now: Time) -> Event {
        let refused = match &self.pause {
            None => Some(format!("the run is `{}`", self.status)),
            // Only a replay can tell whether a function matches.
            Some(pause)
                if pause.why == PauseCause::Version
                    && self.definition_hash != definition.hash
                    && definition.style == crate::Style::Graph =>
            {
                let steps = self.error.iter().flat_map(|error| error.incompatible_steps.iter().take(10));
                let named = steps.map(|step| format!("`{step}`")).collect::<Vec<_>>().join(", ");
                Some(format!("the code still does not fit the run at {named}; migrate it"))
            }
            Some(_) => None,
        };
        let shift = self.pause.as_ref().map(|pause| now.since(pause.at)).unwrap_or_default();
        RunResumed { shift, control: Some(control), refused, by: None }.into()
    }

    fn fold_restart(&self, control: String, from: Option<&Path>, expected_seq: u64, definition: &Definition) -> Event {
        let wrong = |refused: String| {
            RunRestarted {
                from: from.cloned(),
                steps: Vec::new(),
                control: control.clone(),
                refused: Some(refused),
                by: None,
            }
            .into()
        };
        if self.seq != expected_seq {
            return wrong(format!("the run has moved on: entry {}, expected {expected_seq}", self.seq));
        }
        match from.map(|from| self.steps_to_restart(from, definition)).transpose() {
            Err(refusal) => wrong(refusal.to_string()),
            Ok(steps) => {
                let steps = steps.unwrap_or_default();
                RunRestarted { from: from.cloned(), steps, control, refused: None, by: None }.into()
            }
        }
    }

    /// Returns the steps of a graph that run again when the run goes back to a step; of a function none are named.
    ///
    /// Steps that the definition no longer contains run again too if they started later: their dependencies are unknown,
    /// and a single leftover step would match no definition.
    ///
    /// Rejects a step that the run never reached, and a graph with more such steps than an event can name.
    pub fn steps_to_restart(&self, from: &Path, definition: &Definition) -> Result<Vec<Path>, Refusal> {
        if !self.points.contains_key(from) {
            let known = self.points.keys().take(20).map(|path| format!("`{path}`")).collect::<Vec<_>>().join(", ");
            return Err(Refusal::new(format!("run `{}` never came to `{from}`; it has: {known}", self.id())));
        }
        if definition.style == crate::Style::Function {
            return Ok(Vec::new());
        }
        let mut steps = version::downstream(definition, from);
        let start = self.points[from].started_at;
        let is_known = |path: &Path| definition.steps.iter().any(|step| path.is_within(&step.name));
        let later = self.points.iter().filter(|(path, point)| point.started_at >= start && !is_known(path));
        steps.extend(later.map(|(path, _)| path.clone()));
        let steps: Vec<Path> = steps.into_iter().collect();
        let (bytes, max) = (bytes_of(&steps), limits::current().named_steps_bytes_max);
        if bytes > max {
            let what =
                format!("the names of the steps after `{from}` take {bytes} bytes, and an entry has room for {max}");
            return Err(Refusal::new(format!("{what}; restart the run from its beginning")));
        }
        Ok(steps)
    }

    /// Returns the points whose records a restart drops: those of the steps that run again, failed ones, waits and
    /// children that ended with the run, and steps that were compensated.
    #[must_use]
    pub fn dropped_by(&self, restart: &RunRestarted) -> Vec<Path> {
        let Some(from) = &restart.from else { return self.points.keys().cloned().collect() };
        let start = self.points.get(from).and_then(|point| point.started_at);
        let steps: BTreeSet<&str> = restart.steps.iter().map(Path::as_str).collect();
        let runs_again = |path: &Path| {
            let ends = path.as_str().match_indices('/').map(|(end, _)| end).chain([path.as_str().len()]);
            ends.into_iter().any(|end| steps.contains(&path.as_str()[..end]))
        };
        let is_after = |path: &Path, point: &crate::Point| match steps.is_empty() {
            true => point.started_at >= start,
            false => runs_again(path) || point.status == PointStatus::Failed,
        };
        // A wait that the end of the run closed is opened again; children that were cancelled with the run
        // are started again.
        let ended_with_run = |point: &crate::Point| {
            point.is_closed() || self.status.is_final() && point.children.is_some() && !point.status.is_settled()
        };
        let is_after = |path: &Path, point: &crate::Point| is_after(path, point) || ended_with_run(point);
        // The step whose compensation was in progress may be half compensated.
        let undone = self.chain.as_ref().map(|chain| chain.behind.saturating_add(usize::from(chain.current.is_some())));
        let undone: BTreeSet<Path> =
            undone.map(|behind| self.undo_order().into_iter().take(behind).collect()).unwrap_or_default();
        let dropped = self.points.iter().filter(|(path, point)| is_after(path, point) || undone.contains(*path));
        dropped.map(|(path, _)| path.clone()).collect()
    }

    fn fold_migrate(
        &self,
        control: String,
        hash: &str,
        mapping: &BTreeMap<Path, Option<Path>>,
        expected_seq: u64,
        definition: &Definition,
        now: Time,
    ) -> Vec<Event> {
        let moved = (self.seq != expected_seq).then(|| "the run has moved on".to_owned());
        let bytes = bytes_of(mapping.keys()) + bytes_of(mapping.values().flatten());
        let large = bytes > limits::current().named_steps_bytes_max;
        let moved = moved
            .or_else(|| large.then(|| format!("the mapping takes {bytes} bytes, more than an entry has room for")));
        let other = (definition.hash != hash).then(|| "this worker has other code".to_owned());
        let busy = self.status.is_final() || self.status == Status::Compensating;
        let busy = busy.then(|| format!("the run is `{}`", self.status));
        let checked = version::migrate(self, definition, mapping);
        let refused = moved.or(other).or(busy).or_else(|| checked.as_ref().err().map(ToString::to_string));
        let migrated = checked.ok().filter(|_| refused.is_none()).unwrap_or_default();
        let resumes = refused.is_none() && self.pause.is_some();
        let skipped = migrated.skipped.clone();
        let gone = |path: &Path| refused.is_none() && skipped.iter().any(|skipped| path.is_within(skipped));
        let mut events: Vec<Event> = self.closings(gone, Closing::Lost, now).collect();
        events.push(
            RunMigrated {
                definition_hash: hash.into(),
                version: definition.version,
                renamed: migrated.renamed,
                skipped: migrated.skipped,
                control: Some(control),
                refused,
                by: None,
            }
            .into(),
        );
        if resumes {
            let shift = self.pause.as_ref().map(|pause| now.since(pause.at)).unwrap_or_default();
            events.push(RunResumed { shift, control: None, refused: None, by: None }.into());
        }
        events
    }
}
