//! Folds log entries into a run. Folding is the only thing that changes a run.
//!
//! Holds: an entry that was folded before changes nothing, so that a lost response and a lost race share one path. An
//! entry that contradicts the state folded so far is rejected, and the error names the entry and the event.

use crate::event::*;
use crate::{
    Chain, Children, CompensationError, Data, Ending, Entry, Event, Family, Lease, Mode, Path, Pause, PauseCause,
    Point, PointKind, PointStatus, Refusal, Requests, Run, RunRef, Status, Time, Undoing, Wait, limits,
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

    fn fold_step_started(&mut self, event: &StepStarted, here: Here) -> Result<(), Refusal> {
        self.forget_dropped_below(event);
        if let Some(point) = self.points.get_mut(&event.point).filter(|point| point.status == PointStatus::Retrying) {
            point.status = PointStatus::Running;
            (point.until, point.relative) = (event.deadline, false);
            point.attempt = event.attempt;
        } else {
            let point = self.open_point(&event.point, PointKind::Step, here)?;
            (point.attempt, point.compensate, point.until) = (event.attempt, event.compensate, event.deadline);
        }
        let children = event.task.clone().map(|id| Children::One(RunRef::task(id)));
        if let Some(point) = self.points.get_mut(&event.point) {
            point.children = children;
        }
        Ok(())
    }

    /// Forgets the waits that an earlier attempt of a step dropped: the next attempt may open them again.
    fn forget_dropped_below(&mut self, event: &StepStarted) {
        if event.attempt < 2 {
            return;
        }
        let below = |path: &Path| *path != event.point && path.is_within(&event.point);
        let dropped: Vec<Path> = self
            .points
            .iter()
            .filter(|(path, point)| below(path) && point.is_dropped())
            .map(|(path, _)| path.clone())
            .collect();
        if !dropped.is_empty() {
            dropped.iter().for_each(|path| self.forget(path));
            self.take_back();
        }
    }

    fn fold_step_completed(&mut self, event: &StepCompleted, here: Here) -> Result<(), Refusal> {
        let kind = if event.mark { PointKind::Mark } else { PointKind::Step };
        if event.mark {
            self.open_point(&event.point, kind, here)?;
        }
        self.of_kind(&event.point, kind)?.result = Some(event.result.clone());
        merge(&mut self.data, event.patch.as_ref());
        self.settle(&event.point, PointStatus::Completed, event.at, here)
    }

    fn fold_step_failed(&mut self, event: &StepFailed, here: Here) -> Result<(), Refusal> {
        let point = self.of_kind(&event.point, PointKind::Step)?;
        point.error = Some(event.error.clone());
        point.attempt = event.attempt;
        point.interrupted = 0;
        if event.retry_at.is_none() && !event.held {
            return self.settle(&event.point, PointStatus::Failed, event.at, here);
        }
        point.status = PointStatus::Retrying;
        (point.until, point.relative) = (event.retry_at, true);
        Ok(())
    }

    fn fold_compensation_started(&mut self, event: &CompensationStarted) -> Result<(), Refusal> {
        self.become_status(Status::Compensating)?;
        if self.chain.is_none() {
            let cause = event.cause.clone().ok_or_else(|| Refusal::new("the first says why"))?;
            if let Ending::Failed(error) = &cause {
                self.error = Some(error.clone());
            }
            self.chain = Some(Chain { cause, behind: 0, current: None });
            (self.pause, self.parked) = (None, false);
        }
        if !self.points.get(&event.point).is_some_and(|point| point.compensate) {
            return Err(Refusal::new(format!("`{}` cannot be undone", event.point)));
        }
        if let Some(chain) = &mut self.chain {
            chain.current = Some(Undoing { point: event.point.clone(), attempt: event.attempt, retry_at: None });
        }
        Ok(())
    }

    fn fold_compensation_failed(&mut self, event: &CompensationFailed) -> Result<(), Refusal> {
        if let Some(at) = event.retry_at {
            let current = self.chain.as_mut().and_then(|chain| chain.current.as_mut());
            let current = current.filter(|current| current.point == event.point);
            let current = current.ok_or_else(|| Refusal::new(format!("`{}` is not being undone", event.point)))?;
            current.retry_at = Some(at);
            return Ok(());
        }
        self.undone(&event.point)?;
        if self.compensation_errors.len() < limits::current().compensation_errors_max {
            let error = event.error.clone().at(&event.point);
            self.compensation_errors.push(CompensationError { point: event.point.clone(), error });
        }
        Ok(())
    }

    /// Records that a step was compensated.
    fn undone(&mut self, point: &Path) -> Result<(), Refusal> {
        match &mut self.chain {
            Some(chain) if chain.current.as_ref().is_some_and(|current| current.point == *point) => {
                chain.behind = chain.behind.saturating_add(1);
                chain.current = None;
                Ok(())
            }
            _ => Err(Refusal::new(format!("`{point}` is not being undone"))),
        }
    }

    fn fold_signal(&mut self, event: &Event, here: Here) -> Result<(), Refusal> {
        match event {
            Event::SignalWaiting(event) => {
                let SignalWaiting { point, name, deadline, relative, mode, quorum, authenticated, race, schema } =
                    event.clone();
                let wait = Wait {
                    name,
                    seq: here.seq,
                    place: here.place,
                    mode,
                    quorum,
                    authenticated,
                    race,
                    schema,
                    again: None,
                    received: Vec::new(),
                };
                let open = self.open_point(&point, PointKind::Wait, here)?;
                (open.wait, open.until, open.relative) = (Some(Box::new(wait)), deadline, relative);
            }
            Event::SignalReceived(event) => self.fold_received(event, here)?,
            Event::SignalRefused(SignalRefused { point, attempt, error, retry_at, .. }) => {
                let open = self.of_kind(point, PointKind::Wait)?;
                (open.attempt, open.error) = (*attempt, Some(error.clone()));
                if let Some(wait) = &mut open.wait {
                    wait.again = Some(*retry_at);
                }
            }
            Event::SignalTimeout(SignalTimeout { point, at, error, patch }) => {
                self.of_kind(point, PointKind::Wait)?.error.clone_from(error);
                merge(&mut self.data, patch.as_ref());
                let status = if error.is_some() { PointStatus::Failed } else { PointStatus::Completed };
                self.settle(point, status, *at, here)?;
            }
            Event::SignalClosed(SignalClosed { point, why, at }) => {
                self.of_kind(point, PointKind::Wait)?.close(*why);
                self.settle(point, PointStatus::Skipped, *at, here)?;
            }
            Event::SignalLate(SignalLate { name, signal, control, refused }) => {
                self.remember(Some(control), here);
                if refused.is_none() {
                    self.signals.entry(name.clone()).or_default().late.insert(signal.clone());
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn fold_received(&mut self, event: &SignalReceived, here: Here) -> Result<(), Refusal> {
        let SignalReceived { point, name, signals, at, payload, patch, cursor, floor } = event;
        let open = self.of_kind(point, PointKind::Wait)?;
        let wait = open.wait.as_deref().filter(|wait| wait.name == *name && !signals.is_empty());
        let mode = wait.ok_or_else(|| Refusal::new(format!("`{point}` does not wait for `{name}`")))?.mode;
        let inbox = self.signals.entry(name.clone()).or_default();
        let forgotten = deliberate_bug!(DedupForgotten);
        if let Some(twice) = signals.iter().find(|taken| inbox.taken.contains(&taken.signal)).filter(|_| !forgotten) {
            return Err(Refusal::new(format!("signal `{}` was taken before", twice.signal)));
        }
        inbox.take(signals, cursor, floor);
        if mode == Mode::Latest {
            inbox.late.retain(|late| *late > inbox.cursor);
        }
        let open = self.of_kind(point, PointKind::Wait)?;
        open.result = Some(payload.clone());
        if let Some(wait) = &mut open.wait {
            wait.received.clone_from(signals);
        }
        merge(&mut self.data, patch.as_ref());
        self.settle(point, PointStatus::Completed, *at, here)
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

    fn open_point(&mut self, path: &Path, kind: PointKind, here: Here) -> Result<&mut Point, Refusal> {
        let max = limits::current().points_max;
        if self.points.len() >= max {
            return Err(Refusal::new(format!("a run has at most {max} points")));
        }
        if let Some(point) = self.points.get(path) {
            return Err(Refusal::new(format!("point `{path}` is there already: {} {}", point.kind, point.status)));
        }
        self.open.insert(path.clone());
        let point = Point {
            kind,
            status: PointStatus::Running,
            attempt: 1,
            started_at: Some(here.at),
            ended_at: None,
            result: None,
            error: None,
            closing: None,
            until: None,
            relative: false,
            compensate: false,
            children: None,
            wait: None,
            interrupted: 0,
            seq: here.seq,
            place: here.place,
        };
        Ok(self.points.entry(path.clone()).or_insert(point))
    }

    /// Returns the open point at a path; an error if its kind differs.
    fn of_kind(&mut self, path: &Path, kind: PointKind) -> Result<&mut Point, Refusal> {
        match self.points.get_mut(path) {
            Some(point) if point.kind == kind && !point.status.is_settled() => Ok(point),
            Some(point) => {
                Err(Refusal::new(format!("point `{path}` is no open {kind}: {} {}", point.kind, point.status)))
            }
            None => Err(Refusal::new(format!("there is no point `{path}`"))),
        }
    }

    fn settle(&mut self, path: &Path, status: PointStatus, at: Time, here: Here) -> Result<(), Refusal> {
        let point = self.points.get_mut(path).filter(|point| !point.status.is_settled());
        let point = point.ok_or_else(|| Refusal::new(format!("there is no open point `{path}`")))?;
        point.status = status;
        point.ended_at = Some(at);
        (point.until, point.relative, point.interrupted) = (None, false, 0);
        (point.seq, point.place) = (here.seq, here.place);
        if status == PointStatus::Completed {
            point.error = None;
        }
        self.open.remove(path);
        self.unrolled.push(path.clone());
        Ok(())
    }

    /// Moves offloaded points back into the snapshot: they may have changed, and they are all in memory here.
    fn take_back(&mut self) {
        self.rolled.clear();
        let mut settled: Vec<(&Path, &Point)> =
            self.points.iter().filter(|(_, point)| point.status.is_settled()).collect();
        settled.sort_by_key(|(_, point)| (point.seq, point.place));
        self.unrolled = settled.into_iter().map(|(path, _)| path.clone()).collect();
    }

    /// Returns the recorded points at a path and below it.
    fn within(&self, path: &Path) -> Vec<Path> {
        let from = self.points.range(path.clone()..).map(|(point, _)| point);
        let alike = from.take_while(|point| point.as_str().starts_with(path.as_str()));
        alike.filter(|point| point.is_within(path)).cloned().collect()
    }

    /// Removes a record. The caller must call `take_back` for offloaded points.
    fn forget(&mut self, path: &Path) {
        if let Some(wait) = self.points.remove(path).and_then(|point| point.wait)
            && let Some(inbox) = self.signals.get_mut(&wait.name)
        {
            inbox.keep_taken(&wait.received);
        }
        self.open.remove(path);
    }

    /// Renames a record. The caller must call `take_back` for offloaded points.
    fn rename(&mut self, old: &Path, new: &Path) -> Result<(), Refusal> {
        if self.points.contains_key(new) {
            return Err(Refusal::new(format!("point `{new}` is there already")));
        }
        if let Some(point) = self.points.remove(old) {
            if self.open.remove(old) {
                self.open.insert(new.clone());
            }
            self.points.insert(new.clone(), point);
        }
        Ok(())
    }
}

impl Point {
    /// Closes the point before it has an outcome. The stored error gives the reason.
    fn close(&mut self, why: Closing) {
        (self.closing, self.error) = (Some(why), Some(why.fault()));
    }

    /// Whether this is a wait that was closed by the end of its run.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        matches!(self.closing, Some(Closing::Cancelled | Closing::Finished))
    }

    /// Whether the wait was closed because no step needed it any more.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.closing == Some(Closing::Lost)
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
