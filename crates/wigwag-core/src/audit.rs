//! Checks a log against the guarantees: one function per guarantee.
//!
//! The simulator runs these checks on every faulty world, `wigwag doctor` on the logs of a live store. They read the
//! events of the log independently of [`Run::apply`], so that one mistake cannot hide in both.

use std::collections::BTreeSet;
use std::fmt;

use crate::limits::UNCERTAINTY_MAX;
use crate::version::name_after;
use crate::{Entry, Event, Path, Point, Refusal, Run, RunRef, SignalReceived, Time, stamp_of};

/// The guarantees, numbered as in `docs/internals/guarantees.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Promise {
    /// An acknowledged signal is consumed once, or visibly buffered or superseded; it is never lost.
    AcknowledgedIsKept = 1,
    /// A wait that ended consumes nothing.
    OverTakesNothing = 2,
    /// Requests with the same idempotency key have the same outcome.
    SameKeySameOutcome = 3,
    /// Signals of one sender, to one name of one run, are consumed in order.
    SendersInOrder = 4,
    /// Nothing is visible before it is durable.
    DurableFirst = 5,
    /// There is one run per id.
    OneRunPerId = 6,
    /// A recorded result never changes, and its step never runs again, until an explicit restart.
    RecordedStays = 7,
    /// A writer without the turn cannot commit.
    OwnerWrites = 8,
    /// A wait has exactly one closing event; timers never fire early.
    ClosedOnce = 9,
    /// A final status stays final until an explicit restart.
    FinalIsFinal = 10,
    /// Indexes and snapshots can be derived from the logs.
    IndexesFollow = 11,
    /// An object that a stalled writer could re-create is not deleted while the writer could do so.
    NothingRevived = 12,
    /// Every run that can proceed is woken up.
    WokenUp = 13,
    /// Compensations run in reverse order and are recorded once each.
    UndoneInReverse = 14,
}

impl Promise {
    /// Number of the guarantee, as in `docs/internals/guarantees.md`.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// A violated guarantee, with the evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Breach {
    /// The violated guarantee.
    pub promise: Promise,
    /// Description of the violation.
    pub what: String,
}

impl Breach {
    /// Creates a breach of a guarantee.
    #[must_use]
    pub fn new(promise: Promise, what: impl Into<String>) -> Self {
        Self { promise, what: what.into() }
    }
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "promise {}: {}", self.promise.number(), self.what)
    }
}

/// A whole log and the run that it folds to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Told {
    /// State of the run after the last entry.
    pub run: Run,
    /// All entries of the log.
    pub log: Vec<Entry>,
}

impl Told {
    /// Folds a log. Returns an error if its entries contradict each other.
    pub fn fold(run: &RunRef, log: Vec<Entry>) -> Result<Self, Refusal> {
        let Some(first) = log.first() else { return Err(Refusal::new(format!("`{run}` has no entry"))) };
        let mut folded = Run::begin(run.clone(), first)?;
        for entry in &log[1..] {
            folded.apply(entry)?;
        }
        Ok(Self { run: folded, log })
    }

    /// State of the run after the given number of entries.
    #[must_use]
    pub fn at(&self, seq: u64) -> Option<Run> {
        let mut run = Run::begin(self.run.run.clone(), self.log.first()?).ok()?;
        for entry in self.log.get(1..usize::try_from(seq).ok()?)? {
            run.apply(entry).ok()?;
        }
        Some(run)
    }

    /// Visits every entry with the run before and after it: the result of `before` is passed to `after`. This avoids
    /// a copy of a long run for each entry.
    fn replay<T>(&self, mut before: impl FnMut(&Run, &Entry) -> T, mut after: impl FnMut(T, &Run, &Entry)) {
        let Some(mut run) = self.log.first().and_then(|first| Run::begin(self.run.run.clone(), first).ok()) else {
            return;
        };
        for entry in &self.log[1..] {
            let taken = before(&run, entry);
            if run.apply(entry).is_err() {
                return;
            }
            after(taken, &run, entry);
        }
    }

    fn events(&self) -> impl Iterator<Item = (&Entry, &Event)> {
        self.log.iter().flat_map(|entry| entry.events.iter().map(move |event| (entry, event)))
    }
}

/// Checks one guarantee of a log; returns one text per breach.
type Check = fn(&Told) -> Vec<String>;

/// Runs all checks that need only the log.
#[must_use]
pub fn of_log(told: &Told) -> Vec<Breach> {
    let checks: [(Promise, Check); 9] = [
        (Promise::AcknowledgedIsKept, no_signal_is_consumed_twice),
        (Promise::OverTakesNothing, a_wait_that_is_over_consumes_nothing),
        (Promise::OneRunPerId, one_run_per_id),
        (Promise::RecordedStays, a_recorded_result_never_changes),
        (Promise::OwnerWrites, a_writer_without_the_turn_cannot_commit),
        (Promise::ClosedOnce, every_wait_is_closed_once),
        (Promise::ClosedOnce, timers_are_never_early),
        (Promise::FinalIsFinal, final_is_final),
        (Promise::UndoneInReverse, compensation_runs_in_reverse),
    ];
    let ask = |(promise, check): (Promise, Check)| {
        check(told).into_iter().map(move |what| Breach::new(promise, format!("{what} (run `{}`)", told.run.run.id)))
    };
    checks.into_iter().flat_map(ask).collect()
}

/// Checks that each signal is consumed by one wait, once.
#[must_use]
pub fn no_signal_is_consumed_twice(told: &Told) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let received = told.events().filter_map(|(_, event)| match event {
        Event::SignalReceived(event) => Some(&event.signals),
        _ => None,
    });
    let twice = received.flatten().filter(|signal| !taken.insert(&signal.signal));
    twice.map(|signal| format!("signal `{}` is consumed twice", signal.signal)).collect()
}

/// Checks that a wait consumes no signal stamped after its deadline, and nothing after it was closed or lost a race.
#[must_use]
pub fn a_wait_that_is_over_consumes_nothing(told: &Told) -> Vec<String> {
    let mut wrong = Vec::new();
    told.replay(consumptions_by_ended_waits, |over, after, entry| {
        wrong.extend(over);
        for event in received_in(entry) {
            let open = after.losers_to(&event.point);
            if !open.is_empty() {
                wrong.push(format!("`{}` won its race, and {open:?} stay open", event.point));
            }
        }
    });
    wrong
}

fn received_in(entry: &Entry) -> impl Iterator<Item = &SignalReceived> {
    entry.events.iter().filter_map(|event| match event {
        Event::SignalReceived(event) => Some(event),
        _ => None,
    })
}

/// Lists waits that consume in this entry although they ended before it or the signals came after their deadline.
fn consumptions_by_ended_waits(before: &Run, entry: &Entry) -> Vec<String> {
    let is_restart = |event: &Event| matches!(event, Event::RunRestarted(event) if event.refused.is_none());
    if entry.events.iter().any(is_restart) {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for event in received_in(entry) {
        // A wait opened in this entry has no deadline yet that could have passed.
        let point = before.points.get(&event.point);
        let (over, open) = (point.filter(is_settled), point.filter(|point| !is_settled(point)));
        let reopened = entry.events.iter().any(|other| is_opening(other, &event.point));
        if over.is_some() && !reopened {
            wrong.push(format!("`{}` is over and consumes", event.point));
        }
        let until = open.and_then(|point| deadline_in(before, entry, point));
        let late = |stamp: Time| until.is_some_and(|until| stamp > until);
        let taken = event.signals.iter().filter(|taken| stamp_of(&taken.signal).is_some_and(late));
        wrong.extend(taken.map(|taken| format!("`{}` consumes `{}` after its time", event.point, taken.signal)));
    }
    wrong
}

fn is_settled(point: &&Point) -> bool {
    point.status.is_settled()
}

/// Deadline of a wait, moved by a pause that ends in this entry.
fn deadline_in(before: &Run, entry: &Entry, point: &Point) -> Option<Time> {
    let resumed = entry.events.iter().find_map(|event| match event {
        Event::RunResumed(event) if event.refused.is_none() => Some(event.shift),
        _ => None,
    });
    let until = point.until?;
    let paused_at = before.pause.as_ref().map(|pause| pause.at).unwrap_or_default();
    Some(resumed.filter(|_| point.relative).map_or(until, |shift| until.max(paused_at).after(shift)))
}

fn is_opening(event: &Event, point: &Path) -> bool {
    matches!(event, Event::SignalWaiting(event) if event.point == *point)
}

/// Checks that the log is one sequence with one start.
#[must_use]
pub fn one_run_per_id(told: &Told) -> Vec<String> {
    let mut wrong = Vec::new();
    for (place, entry) in told.log.iter().enumerate() {
        if entry.seq != place as u64 + 1 {
            wrong.push(format!("entry {} is the {}th of the log", entry.seq, place + 1));
        }
    }
    let births = told.events().filter(|(_, event)| matches!(event, Event::RunStarted(_))).count();
    if births != 1 {
        wrong.push(format!("it was started {births} times"));
    }
    let mut writers = BTreeSet::new();
    let twice = told.log.iter().filter(|entry| !writers.insert(&entry.by));
    wrong.extend(twice.map(|entry| format!("`{}` wrote two entries in one attempt", entry.by)));
    wrong
}

/// Checks that a step completes once and that a completed step is not started again.
#[must_use]
pub fn a_recorded_result_never_changes(told: &Told) -> Vec<String> {
    let mut completed: BTreeSet<Path> = BTreeSet::new();
    let mut wrong = Vec::new();
    // The records that a restart drops follow from the run before it; a log that contradicts itself has no such run.
    let mut before: Option<Run> = None;
    for entry in &told.log {
        let dropped = before.as_ref().map(|run| dropped_in(run, entry)).unwrap_or_default();
        for event in &entry.events {
            match event {
                Event::RunRestarted(event) if event.refused.is_none() => {
                    completed.retain(|path| event.from.is_some() && !dropped.contains(path));
                }
                Event::RunMigrated(event) if event.refused.is_none() => {
                    completed = completed.iter().map(|path| name_after(&event.renamed, path)).collect();
                }
                Event::StepCompleted(event) if !completed.insert(event.point.clone()) => {
                    wrong.push(format!("`{}` is recorded again in entry {}", event.point, entry.seq));
                }
                Event::StepStarted(event) if completed.contains(&event.point) => {
                    wrong.push(format!("`{}` is recorded, and begins again in entry {}", event.point, entry.seq));
                }
                _ => {}
            }
        }
        before = match before {
            None if entry.seq == 1 => Run::begin(told.run.run.clone(), entry).ok(),
            Some(mut run) => run.apply(entry).is_ok().then_some(run),
            None => None,
        };
    }
    wrong
}

/// Lists the records that a restart in this entry drops.
fn dropped_in(before: &Run, entry: &Entry) -> BTreeSet<Path> {
    let restarts = entry.events.iter().filter_map(|event| match event {
        Event::RunRestarted(event) if event.refused.is_none() => Some(event),
        _ => None,
    });
    restarts.flat_map(|restart| before.dropped_by(restart)).collect()
}

/// Checks that every entry is written by the owner of the turn, and that no worker claims while the lease of another
/// lasts, unless the process of that worker is known to be dead. Each worker knows the store's time with
/// a bounded error.
#[must_use]
pub fn a_writer_without_the_turn_cannot_commit(told: &Told) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut owner: Option<&str> = None;
    let mut lease: Option<(&str, Time)> = None;
    for entry in &told.log {
        let claim = entry.events.iter().find_map(|event| match event {
            Event::RunClaimed(event) => Some(event),
            _ => None,
        });
        if let (Some(claim), Some((holder, until))) = (claim, lease)
            && claim.owner != holder
            && entry.at.after(UNCERTAINTY_MAX * 2) < until
        {
            wrong.push(format!("`{}` claimed it while the lease of `{holder}` lasted", claim.owner));
        }
        // The lease of a process with a liveness record ends with the process; the log does not show when that was.
        let lasting = claim.filter(|claim| claim.peer.is_none());
        lease = lasting.map(|claim| (claim.owner.as_str(), claim.until)).or(lease.filter(|_| claim.is_none()));
        let writer = claim.map(|claim| claim.owner.as_str()).or(owner);
        if let Some(writer) = writer.filter(|_| entry.seq > 1)
            && !entry.by.strip_prefix(writer).is_some_and(|rest| rest.starts_with('.'))
        {
            wrong.push(format!("entry {} is by `{}`, but `{writer}` has the turn", entry.seq, entry.by));
        }
        owner = writer.filter(|_| claim.is_some() || owner.is_some());
        // A worker that parks or ends the run gives up the turn.
        use Event::{RunCancelled, RunCompleted, RunFailed, RunParked};
        let is_end = |event: &Event| matches!(event, RunParked(_) | RunCompleted(_) | RunFailed(_) | RunCancelled(_));
        if entry.events.iter().any(is_end) {
            (owner, lease) = (None, None);
        }
    }
    wrong
}

/// Checks that each `signal.waiting` has exactly one closing event, and that no wait is open in a finished run.
#[must_use]
pub fn every_wait_is_closed_once(told: &Told) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut open: BTreeSet<Path> = BTreeSet::new();
    for (_, event) in told.events() {
        let closed = match event {
            Event::SignalWaiting(event) => {
                if !open.insert(event.point.clone()) {
                    wrong.push(format!("wait `{}` is opened twice", event.point));
                }
                continue;
            }
            Event::RunMigrated(event) if event.refused.is_none() => {
                open = open.iter().map(|path| name_after(&event.renamed, path)).collect();
                continue;
            }
            Event::SignalReceived(event) => &event.point,
            Event::SignalTimeout(event) => &event.point,
            Event::SignalClosed(event) => &event.point,
            _ => continue,
        };
        if !open.remove(closed) {
            wrong.push(format!("wait `{closed}` is closed, but was not open"));
        }
    }
    if told.run.status.is_final() && !open.is_empty() {
        wrong.push(format!("it ended, and waits were never closed: {open:?}"));
    }
    wrong
}

/// Checks that no sleep and no wait ends before its deadline.
#[must_use]
pub fn timers_are_never_early(told: &Told) -> Vec<String> {
    let mut wrong = Vec::new();
    told.replay(what_is_early, |early, _, _| wrong.extend(early));
    wrong
}

fn what_is_early(before: &Run, entry: &Entry) -> Vec<String> {
    let early = |event: &Event| {
        let (point, at) = match event {
            Event::SleepFired(event) => (&event.point, event.at),
            Event::SignalTimeout(event) => (&event.point, event.at),
            _ => return None,
        };
        // A point opened in this entry is unknown before it and cannot end in it.
        let open = before.points.get(point).filter(|point| !point.status.is_settled());
        let until = open.and_then(|point| point.until).filter(|until| at < *until)?;
        Some(format!("`{point}` was over at {at}, before {until}"))
    };
    entry.events.iter().filter_map(early).collect()
}

/// Checks that only an explicit restart follows the end.
#[must_use]
pub fn final_is_final(told: &Told) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut ended = false;
    for (entry, event) in told.events() {
        match event {
            Event::RunRestarted(event) if event.refused.is_none() => ended = false,
            Event::RunRestarted(_) | Event::RunClaimed(_) | Event::RunParked(_) if ended => {}
            Event::RunCompleted(_) | Event::RunFailed(_) | Event::RunCancelled(_) if !ended => ended = true,
            _ if ended => wrong.push(format!("entry {} comes after the end", entry.seq)),
            _ => {}
        }
    }
    wrong
}

/// Checks that completed steps are compensated in reverse order of completion, once each.
#[must_use]
pub fn compensation_runs_in_reverse(told: &Told) -> Vec<String> {
    let (mut completed, mut undone): (Vec<&Path>, Vec<&Path>) = Default::default();
    for (_, event) in told.events() {
        match event {
            Event::RunRestarted(event) if event.refused.is_none() => {
                completed.clear();
                undone.clear();
            }
            Event::StepCompleted(event) => completed.push(&event.point),
            Event::CompensationCompleted(event) => undone.push(&event.point),
            Event::CompensationFailed(event) if event.retry_at.is_none() => undone.push(&event.point),
            _ => {}
        }
    }
    let place = |path: &Path| completed.iter().position(|step| *step == path);
    let places: Vec<usize> = undone.iter().filter_map(|path| place(path)).collect();
    match places.windows(2).all(|pair| pair[0] > pair[1]) {
        true => Vec::new(),
        false => vec![format!("it was done in the order {completed:?} and undone in the order {undone:?}")],
    }
}
