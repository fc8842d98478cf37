//! Decides when a turn parks the run, and its next action otherwise.

use std::collections::BTreeSet;
use std::time::Duration;

use super::ending::is_held_by_pause;
use super::phase::{Phase, Stop};
use crate::{Path, PointKind, Run, Status, Time};

/// A body as far as parking is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyView {
    /// Whether the body compensates a step: such a body is never dropped.
    pub compensates: bool,
    /// Whether the body has seen every reply and continues nothing on its own.
    pub is_idle: bool,
    /// Number of points that it waits for.
    pub waits: usize,
    /// Whether one of the bodies is a running step.
    pub runs_step: bool,
    /// Whether the function reached a step that is recorded as another kind.
    pub mismatched: bool,
}

impl BodyView {
    /// Whether the body may be dropped: it only waits for points, none of which runs, and is run again from its top.
    #[must_use]
    pub fn is_parkable(&self) -> bool {
        !self.compensates && self.is_idle && (self.waits > 0 || self.mismatched) && !self.runs_step
    }
}

/// Everything that determines whether a turn parks.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// How far the engine has been stopped.
    pub stop: Stop,
    /// Goal of the turn.
    pub phase: &'a Phase,
    /// State of the run.
    pub run: &'a Run,
    /// The staged entry has reached a limit: more is ready than it has room for.
    pub is_full: bool,
    /// Requests of users' code were not handled yet, or code was offered a signal and has not decided.
    pub is_pending: bool,
    /// Every body may be dropped.
    pub is_parkable: bool,
    /// Whether the function reached a step that is recorded as another kind.
    pub mismatched: bool,
    /// Time of the next due timer.
    pub next_at: Option<Time>,
    /// Current time of the turn.
    pub now: Time,
    /// A run for which something is due this soon stays with its turn.
    pub park_after: Duration,
}

impl Situation<'_> {
    /// Whether nothing can proceed now, or soon.
    #[must_use]
    pub fn may_park(&self) -> bool {
        if self.stop >= Stop::Now {
            return true;
        }
        if self.is_full || self.is_pending || self.phase.is_completing() || !self.is_parkable {
            return false;
        }
        if self.phase.is_ending() && self.run.chain.is_none() && !is_held_by_pause(self.run) {
            return false;
        }
        let is_far = self.next_at.is_none_or(|at| at > self.now.after(self.park_after));
        self.mismatched || self.stop == Stop::Drain || is_far
    }
}

/// Returns when something is due next in a run in which no code continues. `deadline` is that of the open waits.
#[must_use]
pub fn next_at(run: &Run, timers: &BTreeSet<(Time, Path)>, deadline: Option<Time>) -> Option<Time> {
    if let Some(chain) = &run.chain {
        return chain.current.as_ref().and_then(|current| current.retry_at);
    }
    if run.status == Status::Paused {
        return None;
    }
    let is_current = |(at, path): &&(Time, Path)| run.points.get(path).is_some_and(|point| point.until == Some(*at));
    timers.iter().find(is_current).map(|(at, _)| *at).into_iter().chain(deadline).min()
}

/// Returns the due times of open steps; deadlines of waits come from [`super::waits`].
#[must_use]
pub fn timers_of(run: &Run) -> BTreeSet<(Time, Path)> {
    let timed = |path: &Path| run.points.get(path).filter(|point| point.kind != PointKind::Wait)?.until;
    run.open.iter().filter_map(|path| Some((timed(path)?, path.clone()))).collect()
}

/// Whether no further step may start.
#[must_use]
pub fn is_held_up(run: &Run, phase: &Phase, stop: Stop) -> bool {
    run.status == Status::Paused
        || phase.is_ending()
        || phase.is_releasing()
        || run.cancel.is_some()
        || run.chain.is_some()
        || stop != Stop::No
}

/// Action of a turn before it gathers ready steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Abandons the turn without a write.
    Abandon,
    /// Renews the lease, then starts over.
    Renew,
    /// Checks for outside changes, then starts over.
    Check,
    /// Completes the end of the run.
    End,
    /// Releases the run.
    Release,
    /// Gathers the ready steps.
    Gather,
}

impl Before {
    /// Decides from the state of a turn. Code with endless requests must not keep the turn from renewing its lease.
    #[must_use]
    pub fn of(stop: Stop, is_staged: bool, renewal_due: bool, notified: bool, run: &Run, phase: &Phase) -> Self {
        match () {
            () if stop == Stop::Dead => Self::Abandon,
            () if renewal_due && !is_staged => Self::Renew,
            () if notified && !is_staged => Self::Check,
            () if run.status.is_final() => Self::End,
            () if phase.is_releasing() => Self::Release,
            () => Self::Gather,
        }
    }
}

/// Action of a turn after it gathered the ready steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The run has ended.
    End,
    /// Commits the staged entry.
    Commit,
    /// Parks the run, with the staged entry.
    Park,
    /// Scans the inboxes: waits were recorded after the last scan.
    Scan,
    /// Waits for a request, a notification or a time.
    Wait,
}

impl After {
    /// Decides from the state of a turn. Events recorded while nothing can continue share the entry that parks the run.
    #[must_use]
    pub fn of(is_final: bool, is_staged: bool, lets_code_continue: bool, may_park: bool, needs_scan: bool) -> Self {
        match () {
            () if is_final => Self::End,
            () if is_staged && (lets_code_continue || !may_park) => Self::Commit,
            () if may_park => Self::Park,
            () if needs_scan => Self::Scan,
            () => Self::Wait,
        }
    }
}
