//! Folds log entries into a run. Folding is the only thing that changes a run.
//!
//! Holds: an entry that was folded before changes nothing, so that a lost response and a lost race share one path. An
//! entry that contradicts the state folded so far is rejected, and the error names the entry and the event.

mod points;
mod steps;
mod waits;

use crate::event::*;
use crate::{
    Data, Entry, Event, Family, Lease, Path, Pause, PauseCause, PointKind, PointStatus, Refusal, Requests, Run, RunRef,
    Status, Time, limits,
};

impl Run {
    /// Creates a run from its first entry.
    pub fn begin(run: RunRef, entry: &Entry) -> Result<Self, Refusal> {
        let [Event::RunStarted(started), rest @ ..] = &entry.events[..] else {
            return Err(Refusal::new(format!("the log of `{run}` does not begin with `run.started`")));
        };
        if entry.seq != 1 {
            return Err(Refusal::new(format!("the log of `{run}` begins with entry {}", entry.seq)));
        }
        if started.task.is_some() != (run.family == Family::Task) {
            return Err(Refusal::new(format!("`{run}` is not what its log says")));
        }
        let mut begun = Self::new(run, started, entry.at);
        begun.fold_all(rest, 1, entry)?;
        Ok(begun)
    }

    fn new(run: RunRef, started: &RunStarted, at: Time) -> Self {
        Self {
            run,
            of: started.of.clone(),
            definition_hash: started.definition_hash.clone(),
            version: started.version,
            seq: 1,
            status: Status::Pending,
            input: started.input.clone(),
            data: initial_data(&started.input),
            points: Default::default(),
            open: Default::default(),
            unrolled: Vec::new(),
            rolled: Vec::new(),
            lease: None,
            hints: started.hints.clone(),
            parked: false,
            next_at: started.not_before,
            not_before: started.not_before,
            parent: started.parent.clone(),
            task: started.task.clone(),
            cancel: None,
            pause: None,
            chain: None,
            restarts: 0,
            controls: Default::default(),
            signals: Default::default(),
            error: None,
            compensation_errors: Vec::new(),
            result: None,
            requests: Requests::default(),
            created_at: at,
            updated_at: at,
        }
    }

    /// Folds the next entry. An entry that was folded before changes nothing.
    ///
    /// An error means that the log is broken; the run may then hold part of that entry and must be discarded.
    pub fn apply(&mut self, entry: &Entry) -> Result<(), Refusal> {
        if entry.seq <= self.seq {
            return Ok(());
        }
        if entry.seq != self.seq + 1 || entry.seq > limits::ENTRIES_MAX {
            let (run, seq) = (&self.run, self.seq);
            return Err(Refusal::new(format!("entry {} of `{run}` does not follow entry {seq}", entry.seq)));
        }
        self.fold_all(&entry.events, 0, entry)
    }

    /// Adds an event to a new entry and folds it. The result is the same as applying the finished entry.
    ///
    /// The entry must be the next one. It is not durable until it is written; if the store rejects the entry, discard
    /// the run with the staged events.
    pub fn stage(&mut self, entry: &mut Entry, event: Event) -> Result<(), Refusal> {
        if entry.events.is_empty() && (entry.seq != self.seq + 1 || entry.seq > limits::ENTRIES_MAX) {
            return Err(Refusal::new(format!(
                "entry {} of `{}` does not follow entry {}",
                entry.seq, self.run, self.seq
            )));
        }
        (self.seq, self.updated_at) = (entry.seq, entry.at);
        let place = u32::try_from(entry.events.len()).unwrap_or(u32::MAX);
        let outcome = self.fold(&event, Here { seq: entry.seq, place, at: entry.at });
        outcome.map_err(|refusal| {
            Refusal::new(format!("`{}` cannot happen to `{}`: {refusal}", event.name(), self.run))
        })?;
        entry.events.push(event);
        Ok(())
    }

    /// Records requests in the new entry and in the run. The result is the same as applying the finished entry.
    pub fn stage_requests(&mut self, entry: &mut Entry, requests: Requests) {
        entry.requests = entry.requests.and(requests);
        self.requests = self.requests.and(requests);
    }

    fn fold_all(&mut self, events: &[Event], first: usize, entry: &Entry) -> Result<(), Refusal> {
        self.seq = entry.seq;
        self.updated_at = entry.at;
        self.requests = self.requests.and(entry.requests);
        for (place, event) in events.iter().enumerate() {
            let here = Here { seq: entry.seq, place: u32::try_from(first + place).unwrap_or(u32::MAX), at: entry.at };
            self.fold(event, here).map_err(|refusal| {
                Refusal::new(format!("entry {} of `{}` is broken: `{}`: {refusal}", entry.seq, self.run, event.name()))
            })?;
        }
        Ok(())
    }

    fn fold(&mut self, event: &Event, here: Here) -> Result<(), Refusal> {
        match event {
            Event::RunStarted(_) => return Err(Refusal::new("a run is started once")),
            Event::RunClaimed(event) => self.fold_claimed(event)?,
            Event::RunParked(event) => self.fold_parked(event)?,
            Event::RunPaused(event) => self.fold_paused(event, here)?,
            Event::RunResumed(event) => self.fold_resumed(event, here)?,
            Event::RunCancelRequested(event) => self.fold_cancel_requested(event, here),
            Event::RunRestarted(event) => self.fold_restarted(event, here),
            Event::RunMigrated(event) => self.fold_migrated(event, here)?,
            Event::RunCompleted(RunCompleted { result }) => {
                self.end(Status::Completed)?;
                self.result = Some(result.clone());
                self.error = None;
            }
            Event::RunFailed(RunFailed { error }) => {
                self.end(Status::Failed)?;
                self.error = Some(error.clone());
            }
            Event::RunCancelled(_) => self.end(Status::Cancelled)?,
            Event::StepStarted(event) => self.fold_step_started(event, here)?,
            Event::StepCompleted(event) => self.fold_step_completed(event, here)?,
            Event::StepFailed(event) => self.fold_step_failed(event, here)?,
            Event::StepSkipped(StepSkipped { point }) => {
                self.open_point(point, PointKind::Step, here)?;
                self.settle(point, PointStatus::Skipped, here.at, here)?;
            }
            Event::SleepStarted(SleepStarted { point, until, relative }) => {
                let open = self.open_point(point, PointKind::Sleep, here)?;
                (open.until, open.relative) = (Some(*until), *relative);
            }
            Event::SleepFired(SleepFired { point, at }) => {
                self.of_kind(point, PointKind::Sleep)?;
                self.settle(point, PointStatus::Completed, *at, here)?;
            }
            Event::ChildStarted(ChildStarted { point, children, deadline }) => {
                let open = self.open_point(point, PointKind::Child, here)?;
                (open.children, open.until) = (Some(children.clone()), *deadline);
            }
            Event::ChildCompleted(ChildCompleted { point, at, result }) => {
                self.of_kind(point, PointKind::Child)?.result = Some(result.clone());
                self.settle(point, PointStatus::Completed, *at, here)?;
            }
            Event::ChildFailed(ChildFailed { point, at, error }) => {
                self.of_kind(point, PointKind::Child)?.error = Some(error.clone());
                self.settle(point, PointStatus::Failed, *at, here)?;
            }
            Event::PointDropped(PointDropped { point, at }) => {
                let Some(open) = self.points.get_mut(point).filter(|open| !open.status.is_settled()) else {
                    return Err(Refusal::new(format!("there is no open point `{point}`")));
                };
                // The progress of an interrupted step is unknown, so compensation treats it as failed.
                let status = if open.kind == PointKind::Step { PointStatus::Failed } else { PointStatus::Skipped };
                open.close(Closing::Lost);
                self.settle(point, status, *at, here)?;
            }
            Event::CompensationStarted(event) => self.fold_compensation_started(event)?,
            Event::CompensationCompleted(CompensationCompleted { point }) => self.undone(point)?,
            Event::CompensationFailed(event) => self.fold_compensation_failed(event)?,
            Event::SignalWaiting(_)
            | Event::SignalReceived(_)
            | Event::SignalRefused(_)
            | Event::SignalTimeout(_)
            | Event::SignalClosed(_)
            | Event::SignalLate(_) => self.fold_signal(event, here)?,
        }
        Ok(())
    }

    fn become_status(&mut self, next: Status) -> Result<(), Refusal> {
        if self.status == next {
            return Ok(());
        }
        if !self.status.may_become(next) {
            return Err(Refusal::new(format!("a run that is `{}` cannot become `{next}`", self.status)));
        }
        self.status = next;
        Ok(())
    }

    fn end(&mut self, status: Status) -> Result<(), Refusal> {
        if self.status == status {
            return Err(Refusal::new(format!("a run that is `{status}` cannot become so again")));
        }
        self.become_status(status)?;
        (self.lease, self.parked, self.next_at, self.pause) = (None, false, None, None);
        Ok(())
    }

    fn fold_claimed(&mut self, event: &RunClaimed) -> Result<(), Refusal> {
        if self.status.is_final() {
            return Err(Refusal::new(format!("a run that is `{}` is not claimed", self.status)));
        }
        if matches!(self.status, Status::Pending | Status::WaitingSignal) {
            self.become_status(Status::Running)?;
        }
        // The lease of another worker was taken over: the worker died or was presumed dead.
        if self.lease.as_ref().is_some_and(|lease| lease.owner != event.owner) {
            for path in &self.open {
                if let Some(point) = self.points.get_mut(path).filter(|point| point.kind == PointKind::Step) {
                    let died = point.status == PointStatus::Running && point.children.is_none();
                    point.interrupted = point.interrupted.saturating_add(u32::from(died));
                }
            }
        }
        let RunClaimed { owner, peer, until, hints } = event.clone();
        self.lease = Some(Lease { owner, peer, until });
        (self.hints, self.parked, self.next_at) = (hints, false, None);
        Ok(())
    }

    fn fold_parked(&mut self, event: &RunParked) -> Result<(), Refusal> {
        if self.status.is_final() {
            return Err(Refusal::new(format!("a run that is `{}` is not parked", self.status)));
        }
        if self.status == Status::Running && self.waits().next().is_some() {
            self.become_status(Status::WaitingSignal)?;
        }
        (self.lease, self.parked) = (None, true);
        (self.hints, self.next_at) = (event.hints.clone(), event.next_at);
        Ok(())
    }

    fn fold_paused(&mut self, event: &RunPaused, here: Here) -> Result<(), Refusal> {
        self.remember(event.control.as_ref(), here);
        if event.refused.is_some() {
            return Ok(());
        }
        self.become_status(Status::Paused)?;
        let pause =
            self.pause.get_or_insert_with(|| Pause { why: event.why, reason: event.reason.clone(), at: here.at });
        if event.why == PauseCause::Version {
            // Whatever the reason for the pause, the run cannot continue before the code matches.
            pause.why = PauseCause::Version;
        }
        if event.error.is_some() {
            self.error.clone_from(&event.error);
        }
        Ok(())
    }

    fn fold_resumed(&mut self, event: &RunResumed, here: Here) -> Result<(), Refusal> {
        self.remember(event.control.as_ref(), here);
        if event.refused.is_some() {
            return Ok(());
        }
        self.become_status(Status::Running)?;
        let paused_at = self.pause.take().map(|pause| pause.at);
        self.error = None;
        for path in &self.open {
            if let Some(point) = self.points.get_mut(path).filter(|point| point.relative) {
                // A wait whose own timeout paused the run may still be satisfied until the resume.
                let least = paused_at.filter(|_| point.kind == PointKind::Wait).unwrap_or_default();
                point.until = point.until.map(|until| until.max(least).after(event.shift));
            }
        }
        Ok(())
    }

    fn fold_cancel_requested(&mut self, event: &RunCancelRequested, here: Here) {
        self.remember(Some(&event.control), here);
        if event.refused.is_none() {
            self.cancel.get_or_insert_with(|| crate::CancelRequest { reason: event.reason.clone(), at: here.at });
        }
    }

    fn fold_restarted(&mut self, event: &RunRestarted, here: Here) {
        self.remember(Some(&event.control), here);
        if event.refused.is_some() {
            return;
        }
        for path in self.dropped_by(event) {
            self.forget(&path);
        }
        if event.from.is_none() {
            self.data = initial_data(&self.input);
            // A restart from the beginning adopts the definition of the worker that runs it.
            if !deliberate_bug!(RestartKeepsDefinition) {
                (self.definition_hash, self.version) = Default::default();
            }
        }
        self.take_back();
        self.status = Status::Running;
        self.restarts = self.restarts.saturating_add(1);
        (self.cancel, self.pause, self.chain, self.error, self.result) = (None, None, None, None, None);
        self.compensation_errors.clear();
        (self.parked, self.next_at) = (false, None);
    }

    fn fold_migrated(&mut self, event: &RunMigrated, here: Here) -> Result<(), Refusal> {
        self.remember(event.control.as_ref(), here);
        if event.refused.is_some() {
            return Ok(());
        }
        for (old, new) in &event.renamed {
            for path in self.within(old) {
                let below = &path.as_str()[old.as_str().len()..];
                self.rename(&path, &Path::new(format!("{new}{below}"))?)?;
            }
        }
        for path in &event.skipped {
            self.within(path).iter().for_each(|point| self.forget(point));
            self.open_point(path, PointKind::Step, here)?;
            self.settle(path, PointStatus::Skipped, here.at, here)?;
        }
        if !event.renamed.is_empty() || !event.skipped.is_empty() {
            self.take_back();
        }
        self.definition_hash.clone_from(&event.definition_hash);
        self.version = event.version;
        Ok(())
    }

    /// Remembers a folded control object. The newest are kept regardless of age: if workers die before they delete the
    /// object, a later scan finds it again, and it must not be folded twice.
    fn remember(&mut self, control: Option<&String>, here: Here) {
        let Some(control) = control else { return };
        self.controls.insert(control.clone(), here.at);
        let limits = limits::current();
        let mut surplus = self.controls.len().saturating_sub(limits.controls_remembered_min);
        // Their names start with their creation time, so the oldest come first.
        self.controls.retain(|_, at| {
            let is_forgotten = surplus > 0 && here.at.since(*at) >= limits.control_memory;
            surplus -= usize::from(is_forgotten);
            !is_forgotten
        });
    }
}

/// Position of an event in the log.
#[derive(Clone, Copy, Debug)]
struct Here {
    seq: u64,
    place: u32,
    at: Time,
}

fn initial_data(input: &Data) -> serde_json::Map<String, serde_json::Value> {
    match input.inline().map(|payload| (payload.text().len(), payload.value())) {
        Some((bytes, serde_json::Value::Object(map))) if bytes <= limits::DATA_BYTES_MAX => map,
        _ => serde_json::Map::new(),
    }
}

/// Applies a merge patch to the top level: `null` removes a key.
fn merge(
    data: &mut serde_json::Map<String, serde_json::Value>,
    patch: Option<&serde_json::Map<String, serde_json::Value>>,
) {
    for (name, value) in patch.into_iter().flatten() {
        if value.is_null() {
            data.remove(name);
        } else {
            data.insert(name.clone(), value.clone());
        }
    }
}
