//! State of a run: its steps, signals and timers, folded from its log.
//!
//! ```text
//! pending ──claimed──► running ◄──claimed/parked──► waiting_signal
//!    │                  │  ▲ │
//!    │           paused─┘  └─resumed       running ──► completed
//!    │                  │                  running ──► failed
//!    └── cancelled ◄────┴── compensating ──► failed | cancelled
//! any ──restarted──► running
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    Children, Closing, Data, Ending, Fault, Inbox, Key, Name, Parent, Path, PauseCause, Refusal, Requests, RunId,
    RunRef, TaskSpec, Time, TypeName, Wait, kind_of,
};

/// Status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// No worker has claimed the run yet.
    Pending,
    /// Steps run, or a time, a child or a task is waited for.
    Running,
    /// No step starts until a resume.
    Paused,
    /// A signal is waited for and nothing runs.
    WaitingSignal,
    /// Completed steps are being compensated.
    Compensating,
    /// The run completed with a result.
    Completed,
    /// The run ended with an error.
    Failed,
    /// The run was cancelled.
    Cancelled,
}

impl Status {
    /// All statuses, in the order of declaration.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Running,
        Self::Paused,
        Self::WaitingSignal,
        Self::Compensating,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Whether nothing more will happen, but for an explicit restart.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// The table of moves. A restart is no move of this table: it leads from anywhere to `running`.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        use Status::{Cancelled, Compensating, Completed, Failed, Paused, Pending, Running, WaitingSignal};
        match self {
            Pending => matches!(next, Running | Paused | Failed | Cancelled),
            Running => matches!(next, Paused | WaitingSignal | Compensating | Completed | Failed | Cancelled),
            WaitingSignal => matches!(next, Running | Paused | Compensating | Cancelled),
            Paused => matches!(next, Running | Compensating | Cancelled),
            Compensating => matches!(next, Failed | Cancelled),
            Completed | Failed | Cancelled => false,
        }
    }

    /// Name of the status in stored forms and displays.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::WaitingSignal => "waiting_signal",
            Self::Compensating => "compensating",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Status {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        Self::ALL.into_iter().find(|status| status.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(|status| format!("`{status}`")).join(", ");
            Refusal::new(format!("not a status (want {names}): `{}`", text.escape_debug()))
        })
    }
}

/// Kind of a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PointKind {
    /// Code is run.
    #[default]
    Step,
    /// A time is waited for.
    Sleep,
    /// A signal is waited for.
    Wait,
    /// Other runs are waited for.
    Child,
    /// Marks changed code.
    Mark,
}

impl fmt::Display for PointKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Step => "step",
            Self::Sleep => "sleep",
            Self::Wait => "wait",
            Self::Child => "child",
            Self::Mark => "mark",
        })
    }
}

/// Status of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PointStatus {
    /// Its code runs, or it waits for an outcome.
    Running,
    /// An attempt failed, and a retry follows.
    Retrying,
    /// The step returned a result.
    Completed,
    /// The step failed, and no retry follows.
    Failed,
    /// A step that was skipped.
    Skipped,
}

impl PointStatus {
    /// Whether nothing more happens to it.
    #[must_use]
    pub const fn is_settled(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Skipped)
    }
}

impl fmt::Display for PointStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Running => "running",
            Self::Retrying => "retrying",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        })
    }
}

/// A place in a run where something is recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
#[serde(from = "crate::stored::StoredPoint")]
pub struct Point {
    /// Kind of the step.
    #[serde(skip_serializing_if = "is_step")]
    pub kind: PointKind,
    /// Status of the step.
    pub status: PointStatus,
    /// Number of attempts.
    #[serde(skip_serializing_if = "is_one")]
    pub attempt: u32,
    /// Start of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// End of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// Result of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Data>,
    /// How it failed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
    /// Why it was closed before it had an outcome. The stored form has it in the words of `error`.
    #[serde(skip)]
    pub closing: Option<Closing>,
    /// End of a sleep, next attempt, or deadline of a wait or task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Whether that time was given as a duration, and so moves by the length of a pause.
    #[serde(skip_serializing_if = "is_false")]
    pub relative: bool,
    /// Whether the step has a compensation.
    #[serde(skip_serializing_if = "is_false")]
    pub compensate: bool,
    /// The runs it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children: Option<Children>,
    /// State of a wait: its settings and the consumed signals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait: Option<Box<Wait>>,
    /// Number of workers that died while they ran the step.
    #[serde(skip_serializing_if = "is_zero")]
    pub interrupted: u32,
    /// The entry that started it; for a settled step the entry that ended it.
    pub seq: u64,
    /// Index of the event in that entry.
    #[serde(skip_serializing_if = "is_zero")]
    pub place: u32,
}

impl Point {
    /// Returns about how many bytes the point takes in a snapshot.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let fault = |error: &Fault| error.message.len() + error.detail.as_ref().map_or(0, String::len);
        let wait = self.wait.as_deref().map_or(0, |wait| {
            let received =
                wait.received.iter().map(|one| 32 + one.signal.len() + one.by.as_ref().map_or(0, String::len));
            100 + received.sum::<usize>() + wait.schema.as_ref().map_or(0, |schema| schema.to_string().len())
        });
        let children = match &self.children {
            Some(Children::Tasks(ids)) => ids.iter().map(|id| id.as_str().len() + 3).sum(),
            _ => 0,
        };
        180 + wait
            + children
            + self.result.as_ref().and_then(Data::inline).map_or(0, |payload| payload.text().len())
            + self.error.as_ref().map_or(0, fault)
    }
}

fn is_step(kind: &PointKind) -> bool {
    *kind == PointKind::Step
}
fn is_one(number: &u32) -> bool {
    *number == 1
}
pub(crate) fn is_zero(number: &u32) -> bool {
    *number == 0
}
fn is_false(flag: &bool) -> bool {
    !flag
}

/// The exclusive right to write, until a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Id of the worker.
    pub owner: String,
    /// Its process, where processes prove that they live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// End of the lease.
    pub until: Time,
}

/// A request to cancel the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequest {
    /// Reason given by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time at which the request was folded.
    pub at: Time,
}

/// Since when and why a run is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Cause of the pause.
    pub why: PauseCause,
    /// Reason given by the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Start of the pause.
    pub at: Time,
}

/// Progress of the compensations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// Why the run compensates, which determines how it ends.
    pub cause: Ending,
    /// Number of steps of [`Run::undo_order`] whose compensation completed or failed for good.
    pub behind: usize,
    /// The step whose compensation is in progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<Undoing>,
}

/// A compensation in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undoing {
    /// Path of the step.
    pub point: Path,
    /// Attempt number, starting at 1.
    pub attempt: u32,
    /// Time of the next attempt after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Time>,
}

/// A step whose compensation failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompensationError {
    /// Path of the step.
    pub point: Path,
    /// Error of the last attempt.
    pub error: Fault,
}

/// A range of entries whose settled steps are in a separate object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rolled {
    /// The first entry.
    pub from: u64,
    /// The last entry.
    pub to: u64,
    /// Number of steps in the chunk.
    pub points: usize,
    /// The latest stamp of the signals that these steps consumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<Time>,
}

/// One execution of a workflow, folded from its log.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Run {
    /// Reference of the run.
    pub run: RunRef,
    /// Workflow or task of the run.
    pub of: TypeName,
    /// The hash of the definition it follows.
    pub definition_hash: String,
    /// The version of the function it follows.
    pub version: Option<u32>,
    /// Number of the last folded entry.
    pub seq: u64,
    /// Status of the run.
    pub status: Status,
    /// Input of the run.
    pub input: Data,
    /// Data shared by the steps; initially the input, if that is an object.
    pub data: Map<String, Value>,
    /// All recorded steps.
    pub points: BTreeMap<Path, Point>,
    /// Points that are not settled.
    pub open: BTreeSet<Path>,
    /// Settled points that are still in the snapshot, in the order they were settled.
    pub unrolled: Vec<Path>,
    /// Ranges of entries whose settled points left the snapshot.
    pub rolled: Vec<Rolled>,
    /// Lease of the worker that drives the run.
    pub lease: Option<Lease>,
    /// Wake-ups that cover the run.
    pub hints: Vec<String>,
    /// Whether the run is parked and has not been claimed since.
    pub parked: bool,
    /// Time of the next due timer, while the run is parked.
    pub next_at: Option<Time>,
    /// Not before this.
    pub not_before: Option<Time>,
    /// The step of the parent that waits for the run's end.
    pub parent: Option<Parent>,
    /// Settings of a task.
    pub task: Option<TaskSpec>,
    /// Pending cancel request.
    pub cancel: Option<CancelRequest>,
    /// Details of the pause, while the run is paused.
    pub pause: Option<Pause>,
    /// Progress of the compensations, once they have started.
    pub chain: Option<Chain>,
    /// Number of restarts.
    pub restarts: u32,
    /// Control objects that were folded lately.
    pub controls: BTreeMap<String, Time>,
    /// Read positions of the inboxes, by signal name.
    pub signals: BTreeMap<Name, Inbox>,
    /// Why it failed or is paused.
    pub error: Option<Fault>,
    /// Steps whose compensation failed.
    pub compensation_errors: Vec<CompensationError>,
    /// Result of the run.
    pub result: Option<Data>,
    /// Store requests of its turns, as recorded in the log.
    pub requests: Requests,
    /// Start time of the run.
    pub created_at: Time,
    /// Time of the last entry.
    pub updated_at: Time,
}

impl Run {
    /// Id of the run.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.run.id
    }

    /// Wake-ups that cover the run. Skips texts of a damaged list that are no wake-ups: callers delete the objects
    /// that the list names.
    pub fn due_hints(&self) -> impl Iterator<Item = &String> {
        self.hints.iter().filter(|hint| matches!(hint.parse(), Ok(Key::Due(_))))
    }

    /// Moves everything out; only the names remain.
    #[must_use]
    pub fn take(&mut self) -> Self {
        Self {
            run: self.run.clone(),
            of: self.of.clone(),
            definition_hash: std::mem::take(&mut self.definition_hash),
            input: self.input.clone(),
            data: std::mem::take(&mut self.data),
            points: std::mem::take(&mut self.points),
            open: std::mem::take(&mut self.open),
            unrolled: std::mem::take(&mut self.unrolled),
            rolled: std::mem::take(&mut self.rolled),
            lease: self.lease.take(),
            hints: std::mem::take(&mut self.hints),
            parent: self.parent.take(),
            task: self.task.take(),
            cancel: self.cancel.take(),
            pause: self.pause.take(),
            chain: self.chain.take(),
            controls: std::mem::take(&mut self.controls),
            signals: std::mem::take(&mut self.signals),
            error: self.error.take(),
            compensation_errors: std::mem::take(&mut self.compensation_errors),
            result: self.result.take(),
            ..*self
        }
    }

    /// The steps that are running or waiting.
    #[must_use]
    pub fn current_steps(&self) -> Vec<&Path> {
        self.open.iter().collect()
    }

    /// The waits for signals that are open.
    pub fn waits(&self) -> impl Iterator<Item = (&Path, &Point)> {
        self.open
            .iter()
            .filter_map(|path| self.points.get_key_value(path))
            .filter(|(_, point)| point.kind == PointKind::Wait)
    }

    /// The type under which the run is indexed: a task's contains its queue.
    #[must_use]
    pub fn index_type(&self) -> TypeName {
        index_type(&self.of, self.task.as_ref())
    }

    /// Key of an ended run in the index of ended runs; a restarted run gets another one.
    #[must_use]
    pub fn done_key(&self) -> Key {
        let kind = kind_of(&self.index_type());
        Key::Done { at: self.updated_at, kind, status: self.status, run: self.run.id.clone() }
    }

    /// Whether any step has a compensation to run.
    #[must_use]
    pub fn has_anything_to_undo(&self) -> bool {
        self.points.values().any(is_to_be_undone)
    }

    /// The order of compensation: first steps whose effect is unknown (including the failed step), latest first; then
    /// completed steps in reverse order of completion.
    #[must_use]
    pub fn undo_order(&self) -> Vec<Path> {
        let mut undo: Vec<(&Path, &Point)> = self.points.iter().filter(|(_, point)| is_to_be_undone(point)).collect();
        undo.sort_by_key(|(_, point)| {
            (point.status == PointStatus::Completed, std::cmp::Reverse((point.seq, point.place)))
        });
        if deliberate_bug!(UndoneInOrder) {
            undo.reverse();
        }
        undo.into_iter().map(|(path, _)| path.clone()).collect()
    }

    /// Whether all its points are in memory.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let rolled: usize = self.rolled.iter().map(|rolled| rolled.points).sum();
        self.points.len() >= rolled + self.unrolled.len() + self.open.len()
    }
}

fn is_to_be_undone(point: &Point) -> bool {
    point.compensate && point.status != PointStatus::Skipped
}

/// The type under which a run is indexed: a task's contains its queue.
#[must_use]
pub fn index_type(of: &TypeName, task: Option<&TaskSpec>) -> TypeName {
    match task {
        Some(task) => TypeName::of_task(&task.queue, of).unwrap_or_else(|_| of.clone()),
        None => of.clone(),
    }
}
