//! Explains the state of a run: each open step with its needs, its progress and the effect of its deadline.
//!
//! Holds: the text names steps, signals and senders in backticks and contains no times; times are separate fields, so
//! that every client formats them in its own time zone.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{
    Children, Definition, Ending, Family, Fault, Name, OnFailure, Path, PauseCause, Point, PointKind, PointStatus, Run,
    RunId, RunRef, Status, Time, Wait,
};

/// Maximum number of names in a sentence; the rest is counted.
const NAMES_SHOWN_MAX: usize = 4;

/// Explanation of a run's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Explanation {
    /// Id of the run.
    pub id: RunId,
    /// Status of the run.
    pub status: Status,
    /// Summary in one or two sentences.
    pub why: String,
    /// Open steps, in the order of their paths.
    pub points: Vec<OpenPoint>,
    /// Completed steps that a failure or a cancellation would compensate, in that order.
    pub would_compensate: Vec<Path>,
    /// Compensation of each step that was or is being compensated.
    pub compensated: Vec<Compensated>,
}

/// A step that has not ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenPoint {
    /// Path of the step.
    pub point: Path,
    /// Kind of the step.
    pub kind: PointKind,
    /// Start of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
    /// End of the sleep, next attempt, or deadline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Description of the wait by its workflow, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// What the step needs to end.
    pub needs: String,
    /// Progress towards that.
    pub have: String,
    /// Signals in the inbox that the wait does not accept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub misfits: Vec<Misfit>,
    /// Effect of a missing outcome or a passed deadline.
    pub then: String,
    /// Run that the step waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<RunRef>,
}

/// A signal in the inbox that no open wait accepts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Misfit {
    /// Name of the signal.
    pub name: Name,
    /// Sender of the signal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Time of the signal.
    pub at: Time,
    /// Why the wait does not accept it.
    pub reason: String,
}

/// A signal in the inbox that no wait has consumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Name of the signal.
    pub name: Name,
    /// Sender of the signal.
    pub by: Option<String>,
    /// Time of the signal.
    pub at: Time,
    /// Why the open wait for its name rejects it; `None` if it accepts it.
    pub misfit: Option<String>,
}

/// Compensation of one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Compensated {
    /// Path of the step.
    pub point: Path,
    /// `completed`, `failed` or `running`.
    pub status: PointStatus,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
}

impl Run {
    /// Returns the compensation of each step that was or is being compensated, in the order of compensation.
    #[must_use]
    pub fn compensated(&self) -> Vec<Compensated> {
        let Some(chain) = &self.chain else { return Vec::new() };
        let current = chain.current.as_ref().map(|current| &current.point);
        let behind = self.undo_order().into_iter().take(chain.behind);
        let ended = behind.filter(|point| Some(point) != current).map(|point| {
            let error = self.compensation_errors.iter().find(|error| error.point == point);
            let status = if error.is_some() { PointStatus::Failed } else { PointStatus::Completed };
            Compensated { point, status, error: error.map(|error| error.error.clone()) }
        });
        let running =
            current.map(|point| Compensated { point: point.clone(), status: PointStatus::Running, error: None });
        ended.chain(running).collect()
    }

    /// Explains the state of the run. `inbox` lists the signals that no wait has consumed.
    #[must_use]
    pub fn explain(&self, definition: Option<&Definition>, inbox: &[Arrived]) -> Explanation {
        let open = self.open.iter().filter_map(|path| self.points.get_key_value(path));
        let points: Vec<OpenPoint> =
            open.map(|(path, point)| self.explain_point(path, point, definition, inbox)).collect();
        let would_compensate = match self.chain.is_none() && !self.status.is_final() {
            true => self.undo_order(),
            false => Vec::new(),
        };
        let why = self.why(&points);
        let compensated = self.compensated();
        Explanation { id: self.run.id.clone(), status: self.status, why, points, would_compensate, compensated }
    }

    fn explain_point(
        &self,
        path: &Path,
        point: &Point,
        definition: Option<&Definition>,
        inbox: &[Arrived],
    ) -> OpenPoint {
        let mut found = OpenPoint {
            point: path.clone(),
            kind: point.kind,
            since: point.started_at,
            until: point.until,
            about: point.wait.as_ref().and_then(|wait| wait.about.clone()),
            needs: String::new(),
            have: String::new(),
            misfits: Vec::new(),
            then: String::new(),
            child: None,
        };
        match (point.kind, point.wait.as_deref()) {
            (PointKind::Wait, Some(wait)) => {
                let mine = || inbox.iter().filter(|signal| signal.name == wait.name);
                let misfits = mine().filter_map(|Arrived { name, by, at, misfit }| {
                    Some(Misfit { name: name.clone(), by: by.clone(), at: *at, reason: misfit.clone()? })
                });
                found.misfits = misfits.collect();
                let arrived = mine().filter(|signal| signal.misfit.is_none()).filter_map(|signal| signal.by.clone());
                found.needs = wait_needs(wait);
                found.have = wait_has(wait, arrived.collect(), found.misfits.len());
                found.then = self.after_deadline(path, point, definition);
            }
            (PointKind::Sleep, _) => {
                found.needs = "the end of a sleep".into();
                found.then = "then the run continues".into();
            }
            (PointKind::Child, _) => self.explain_children(point, &mut found),
            _ => self.explain_step(path, point, definition, &mut found),
        }
        found
    }

    fn explain_step(&self, path: &Path, point: &Point, definition: Option<&Definition>, found: &mut OpenPoint) {
        let attempts = definition.and_then(|definition| definition.step(path)).map(|node| node.retry.attempts_max());
        let of = attempts.map(|attempts| format!(" of {attempts}")).unwrap_or_default();
        if point.status == PointStatus::Retrying {
            let error = point.error.as_ref().map_or("unknown error", |error| error.message.as_str());
            found.needs = format!("its next attempt, {}{of}", point.attempt.saturating_add(1));
            found.have = format!("attempt {} failed: {error}", point.attempt);
            found.then = self.after_failure(path, definition, "if every attempt fails");
            return;
        }
        found.needs = "its code to end".into();
        found.have = match &self.lease {
            Some(lease) => format!("attempt {}{of} runs on worker `{}`", point.attempt, lease.owner),
            None => format!("attempt {}{of} has begun, and no worker drives the run now", point.attempt),
        };
        found.then = self.after_failure(path, definition, "if it fails");
    }

    fn explain_children(&self, point: &Point, found: &mut OpenPoint) {
        found.then = "if it fails, the code of the run decides".into();
        match &point.children {
            Some(Children::One(run)) => {
                let what = if run.family == Family::Task { "task" } else { "run" };
                found.needs = format!("the end of {what} `{}`", run.id);
                found.child = Some(run.clone());
            }
            Some(Children::Tasks(ids)) => found.needs = format!("the end of {} tasks", ids.len()),
            Some(Children::Numbered { count, .. }) => found.needs = format!("the end of {count} tasks"),
            None => found.needs = "the end of a child".into(),
        }
    }

    /// Describes the effect of a passed deadline of a wait.
    fn after_deadline(&self, path: &Path, point: &Point, definition: Option<&Definition>) -> String {
        if point.until.is_none() && definition_timeout(path, definition).is_none() {
            return "it waits without a deadline".into();
        }
        match definition {
            Some(_) => {
                self.after_failure(path, definition, "if none arrives in time and the workflow does not handle that")
            }
            None => "if none arrives in time, the code of the run decides".into(),
        }
    }

    /// Describes the effect of a step's failure on the run.
    fn after_failure(&self, path: &Path, definition: Option<&Definition>, condition: &str) -> String {
        let on_failure = definition.and_then(|definition| definition.step(path)).map(|node| node.on_failure);
        match on_failure {
            Some(OnFailure::Pause) => format!("{condition}, the run is paused"),
            Some(OnFailure::Continue) => format!("{condition}, the run continues without it"),
            None if self.task.is_none() && definition.is_none() => format!("{condition}, the code of the run decides"),
            _ => match names(&self.undo_order()) {
                None => format!("{condition}, the run fails"),
                Some((names, many)) => {
                    format!("{condition}, the run fails, and {names} {} compensated", if many { "are" } else { "is" })
                }
            },
        }
    }

    fn why(&self, points: &[OpenPoint]) -> String {
        match self.status {
            Status::Pending if self.not_before.is_some() => "Not started before its start time.".into(),
            Status::Pending => "No worker has claimed the run yet.".into(),
            Status::Paused => self.why_paused(),
            Status::Compensating => self.why_compensating(),
            Status::Completed => "The run completed.".into(),
            Status::Cancelled => match self.cancel.as_ref().and_then(|cancel| cancel.reason.as_ref()) {
                Some(reason) => format!("The run was cancelled: {reason}"),
                None => "The run was cancelled.".into(),
            },
            Status::Failed => match &self.error {
                Some(Fault { point: Some(point), message, .. }) => format!("`{point}` failed: {message}"),
                Some(fault) => fault.message.clone(),
                None => "The run failed.".into(),
            },
            Status::Running | Status::WaitingSignal => why_open(points),
        }
    }

    fn why_paused(&self) -> String {
        let Some(pause) = &self.pause else { return "The run is paused.".into() };
        let reason = pause.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        let error = self.error.as_ref().map(|error| error.message.as_str()).unwrap_or_default();
        match pause.why {
            PauseCause::ByHand => format!("Paused by hand{reason}. No step starts until it is resumed."),
            PauseCause::Version => format!("Paused because the code does not fit the run: {error}"),
            PauseCause::Failure => format!("Paused because a step failed: {error}. Resumed, the step is tried again."),
        }
    }

    fn why_compensating(&self) -> String {
        let Some(chain) = &self.chain else { return "Completed steps are being compensated.".into() };
        let cause = match &chain.cause {
            Ending::Failed(fault) => match &fault.point {
                Some(point) => format!("`{point}` failed: {}", fault.message),
                None => fault.message.clone(),
            },
            Ending::Cancelled(Some(reason)) => format!("the run was cancelled: {reason}"),
            Ending::Cancelled(None) => "the run was cancelled".into(),
        };
        let now = chain.current.as_ref().map(|current| match current.attempt {
            1 => format!(" Compensating `{}` now.", current.point),
            attempt => format!(" Compensating `{}` now, attempt {attempt}.", current.point),
        });
        format!("Completed steps are being compensated because {cause}.{}", now.unwrap_or_default())
    }
}

fn definition_timeout(path: &Path, definition: Option<&Definition>) -> Option<std::time::Duration> {
    definition?.step(path)?.signal.as_ref()?.timeout
}

fn wait_needs(wait: &Wait) -> String {
    let who = if wait.authenticated { " of an authenticated sender" } else { "" };
    match wait.quorum {
        0 | 1 => format!("one signal `{}`{who}", wait.name),
        quorum => format!("signals `{}` of {quorum} different senders", wait.name),
    }
}

fn wait_has(wait: &Wait, arrived: BTreeSet<String>, misfits: usize) -> String {
    let received = wait.received.iter().filter_map(|taken| taken.by.clone());
    let senders: BTreeSet<String> = arrived.into_iter().chain(received).collect();
    let words = match senders.len() {
        0 => "none has arrived".to_owned(),
        count => {
            let names: Vec<&str> = senders.iter().map(String::as_str).collect();
            format!("{count} of {}, from `{}`", wait.quorum.max(1), names.join("`, `"))
        }
    };
    match misfits {
        0 => words,
        1 => format!("{words}; 1 signal in the inbox does not fit"),
        many => format!("{words}; {many} signals in the inbox do not fit"),
    }
}

fn why_open(points: &[OpenPoint]) -> String {
    let waits: Vec<&OpenPoint> = points.iter().filter(|point| point.kind == PointKind::Wait).collect();
    let others: Vec<&OpenPoint> = points.iter().filter(|point| point.kind != PointKind::Wait).collect();
    let sentence = |point: &OpenPoint| match point.kind {
        PointKind::Sleep => format!("`{}` sleeps.", point.point),
        PointKind::Child => format!("`{}` waits for {}.", point.point, point.needs),
        PointKind::Wait => format!("Waits for {}: {}.", point.needs, point.have),
        _ => format!("`{}` waits for {}: {}.", point.point, point.needs, point.have),
    };
    match (&waits[..], &others[..]) {
        ([], []) => "A worker drives the run.".into(),
        ([one], []) => format!("{} {}.", sentence(one), capital(&one.then)),
        (waits, others) => {
            let shown: Vec<String> =
                waits.iter().chain(others).take(NAMES_SHOWN_MAX).map(|one| sentence(one)).collect();
            let rest = (waits.len() + others.len()).saturating_sub(NAMES_SHOWN_MAX);
            let rest = if rest > 0 { format!(" {rest} more steps are open.") } else { String::new() };
            format!("{}{rest}", shown.join(" "))
        }
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Lists names for a sentence, and whether there are several; `None` if there are none.
fn names(paths: &[Path]) -> Option<(String, bool)> {
    let shown: Vec<String> = paths.iter().take(NAMES_SHOWN_MAX).map(|path| format!("`{path}`")).collect();
    let rest = paths.len().saturating_sub(NAMES_SHOWN_MAX);
    let text = match (&shown[..], rest) {
        ([], _) => return None,
        ([one], 0) => one.clone(),
        ([first @ .., last], 0) => format!("{} and {last}", first.join(", ")),
        (all, rest) => format!("{} and {rest} more", all.join(", ")),
    };
    Some((text, paths.len() > 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_listed_as_in_a_sentence() {
        let paths = |count: usize| (1..=count).map(|n| Path::new(format!("s{n}")).unwrap()).collect::<Vec<_>>();
        let text = |count| names(&paths(count)).map(|(text, _)| text);
        assert_eq!(text(0), None);
        assert_eq!(text(1).as_deref(), Some("`s1`"));
        assert_eq!(text(3).as_deref(), Some("`s1`, `s2` and `s3`"));
        assert_eq!(text(6).as_deref(), Some("`s1`, `s2`, `s3`, `s4` and 2 more"));
    }

    /// Builds a run from parts of a snapshot.
    fn run(parts: &str) -> Run {
        let text = format!(
            r#"{{"v":1,"id":"r","type":"order","definition_hash":"","seq":3,"data":{{}},"waits":[],"input":null,"restarts":0,
            "parked":true,"created_at":"2026-01-01T00:00:00.000000Z","updated_at":"2026-01-01T00:00:00.000000Z","by":"x",{parts}}}"#
        );
        crate::read_state(RunRef::workflow("r".parse().unwrap()), text.as_bytes()).unwrap()
    }

    #[test]
    fn every_status_has_a_reason() {
        let fault = r#"{"type":"Permanent","message":"no stock","point":"ship"}"#;
        let table = [
            (r#""status":"pending","current_steps":[],"steps":{},"error":null"#.to_owned(), "No worker has claimed the run yet."),
            (r#""status":"completed","current_steps":[],"steps":{},"error":null"#.to_owned(), "The run completed."),
            (format!(r#""status":"failed","current_steps":[],"steps":{{}},"error":{fault}"#), "`ship` failed: no stock"),
            (
                r#""status":"paused","current_steps":[],"steps":{},"error":null,"pause":{"why":"by_hand","reason":"lunch","at":"2026-01-01T00:00:00.000000Z"}"#.to_owned(),
                "Paused by hand: lunch. No step starts until it is resumed.",
            ),
            (
                format!(r#""status":"compensating","current_steps":[],"steps":{{}},"error":null,"compensation":{{"cause":{{"failed":{fault}}},"behind":0,"current":{{"point":"charge","attempt":2}}}}"#),
                "Completed steps are being compensated because `ship` failed: no stock. Compensating `charge` now, attempt 2.",
            ),
            (
                format!(r#""status":"running","current_steps":["ship"],"steps":{{"ship":{{"status":"retrying","attempt":2,"seq":2,"error":{fault}}}}},"error":null"#),
                "`ship` waits for its next attempt, 3: attempt 2 failed: no stock.",
            ),
            (
                r#""status":"waiting_signal","current_steps":["ok"],"steps":{"ok":{"kind":"wait","status":"running","seq":2,"wait":{"name":"ok","seq":2,"quorum":2}}},"error":null"#.to_owned(),
                "Waits for signals `ok` of 2 different senders: 1 of 2, from `ada`; 1 signal in the inbox does not fit. It waits without a deadline.",
            ),
        ];
        let at = Time::default();
        let inbox = [("ada", None), ("bob", Some("too short".to_owned()))].map(|(by, misfit)| Arrived {
            name: "ok".parse().unwrap(),
            by: Some(by.into()),
            at,
            misfit,
        });
        for (parts, why) in table {
            assert_eq!(run(&parts).explain(None, &inbox).why, why);
        }
    }
}
