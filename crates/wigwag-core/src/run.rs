//! What a run is.
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
    Children, Data, Ending, Fault, Inbox, Key, Name, Parent, Path, PauseCause, Refusal, Requests, RunId, RunRef,
    TaskSpec, Time, TypeName, Wait, kind_of,
};

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Nobody has taken it yet.
    Pending,
    /// Steps run, or a time, a child or a task is waited for.
    Running,
    /// No step begins until it is resumed.
    Paused,
    /// A signal is waited for and nothing runs.
    WaitingSignal,
    /// What was done is being undone.
    Compensating,
    /// It ended well.
    Completed,
    /// It ended badly.
    Failed,
    /// It was ended.
    Cancelled,
}

impl Status {
    /// All of them.
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

    /// Its name where it is stored and shown.
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

/// What a point is.
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

/// How far a point is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PointStatus {
    /// Its code runs, or what it waits for has not come.
    Running,
    /// It failed and is tried again.
    Retrying,
    /// It gave a result.
    Completed,
    /// It failed for good.
    Failed,
    /// It was passed over.
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
pub struct Point {
    /// What it is.
    #[serde(default, skip_serializing_if = "is_step")]
    pub kind: PointKind,
    /// How far it is.
    pub status: PointStatus,
    /// How often it was tried.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub attempt: u32,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// What it gave.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "crate::payload::present")]
    pub result: Option<Data>,
    /// How it failed last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Fault>,
    /// What it waits for: the end of a sleep, the next try, the deadline of a wait or task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// That time was given as a span, and moves by as long as the run is paused.
    #[serde(default, skip_serializing_if = "is_false")]
    pub relative: bool,
    /// It can be undone.
    #[serde(default, skip_serializing_if = "is_false")]
    pub compensate: bool,
    /// The runs it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub children: Option<Children>,
    /// The signal it waits for, and what came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Box<Wait>>,
    /// How many workers died while they ran it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub interrupted: u32,
    /// The entry that began it; of a settled point the one that ended it.
    pub seq: u64,
    /// Which event of that entry.
    #[serde(default, skip_serializing_if = "is_zero")]
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
fn one() -> u32 {
    1
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

/// Who may write, until when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Which worker.
    pub owner: String,
    /// Its process, where processes prove that they live.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// Until when.
    pub until: Time,
}

/// Somebody wants the run to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequest {
    /// What they said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was folded in.
    pub at: Time,
}

/// Since when and why a run is paused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Why.
    pub why: PauseCause,
    /// What the one who paused it said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when.
    pub at: Time,
}

/// How far undoing is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// Why anything is undone, and so how the run ends.
    pub cause: Ending,
    /// So many of [`Run::undo_order`] are behind us, done or given up.
    pub behind: usize,
    /// The one that is being undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<Undoing>,
}

/// A step that is being undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Undoing {
    /// Which.
    pub point: Path,
    /// For which time, from 1.
    pub attempt: u32,
    /// When it is tried again, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<Time>,
}

/// A step that could not be undone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompensationError {
    /// Which.
    pub point: Path,
    /// Why.
    pub error: Fault,
}

/// A range of entries whose finished points are in an object of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rolled {
    /// The first entry.
    pub from: u64,
    /// The last entry.
    pub to: u64,
    /// How many points are in it.
    pub points: usize,
    /// The latest stamp of a signal that one of them took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken: Option<Time>,
}

/// One execution of a workflow, folded from its log.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Run {
    /// Which.
    pub run: RunRef,
    /// What it is a run of.
    pub of: TypeName,
    /// The hash of the definition it follows.
    pub definition_hash: String,
    /// The version of the function it follows.
    pub version: Option<u32>,
    /// The entry it is folded up to.
    pub seq: u64,
    /// How far it is.
    pub status: Status,
    /// What it was started with.
    pub input: Data,
    /// What its steps share; it begins as the input, if that is an object.
    pub data: Map<String, Value>,
    /// Everything recorded.
    pub points: BTreeMap<Path, Point>,
    /// Points that are not settled.
    pub open: BTreeSet<Path>,
    /// Settled points that are still in the snapshot, in the order they were settled.
    pub unrolled: Vec<Path>,
    /// Ranges of entries whose settled points left the snapshot.
    pub rolled: Vec<Rolled>,
    /// Who drives it.
    pub lease: Option<Lease>,
    /// The hints it stands on.
    pub hints: Vec<String>,
    /// It was parked and nobody has claimed it since.
    pub parked: bool,
    /// When something is due next, while it is parked.
    pub next_at: Option<Time>,
    /// Not before this.
    pub not_before: Option<Time>,
    /// Who waits for its end.
    pub parent: Option<Parent>,
    /// What it is as a task.
    pub task: Option<TaskSpec>,
    /// Somebody wants it to end.
    pub cancel: Option<CancelRequest>,
    /// It is paused.
    pub pause: Option<Pause>,
    /// How far undoing is.
    pub chain: Option<Chain>,
    /// How often it was restarted.
    pub restarts: u32,
    /// Control objects that were folded lately.
    pub controls: BTreeMap<String, Time>,
    /// How far its inboxes were read.
    pub signals: BTreeMap<Name, Inbox>,
    /// Why it failed or is paused.
    pub error: Option<Fault>,
    /// Steps that could not be undone.
    pub compensation_errors: Vec<CompensationError>,
    /// What it gave.
    pub result: Option<Data>,
    /// What its turns asked of the store, as far as the log says.
    pub requests: Requests,
    /// When it was started.
    pub created_at: Time,
    /// When its last entry was made.
    pub updated_at: Time,
}

impl Run {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.run.id
    }

    /// The hints it stands on. What is none, in a list that was damaged, is left out: whoever follows the list deletes what it
    /// names.
    pub fn due_hints(&self) -> impl Iterator<Item = &String> {
        self.hints.iter().filter(|hint| matches!(hint.parse(), Ok(Key::Due(_))))
    }

    /// Moves everything out; what is left has only its names.
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

    /// The points whose code runs or that are waited for.
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

    /// What a type is called in indexes: that of a task holds its queue.
    #[must_use]
    pub fn index_type(&self) -> TypeName {
        index_type(&self.of, self.task.as_ref())
    }

    /// Where a run that has ended stands in the index of those; one that is restarted ends at another place.
    #[must_use]
    pub fn done_key(&self) -> Key {
        let kind = kind_of(&self.index_type());
        Key::Done { at: self.updated_at, kind, status: self.status, run: self.run.id.clone() }
    }

    /// Whether any point can be undone.
    #[must_use]
    pub fn has_anything_to_undo(&self) -> bool {
        self.points.values().any(is_to_be_undone)
    }

    /// What is undone, in this order: first what may have had an effect that nobody knows (the failed step's own),
    /// the latest first; then what was completed, in reverse order of completion.
    #[must_use]
    pub fn undo_order(&self) -> Vec<Path> {
        let mut undo: Vec<(&Path, &Point)> = self.points.iter().filter(|(_, point)| is_to_be_undone(point)).collect();
        undo.sort_by_key(|(_, point)| {
            (point.status == PointStatus::Completed, std::cmp::Reverse((point.seq, point.place)))
        });
        if crate::mutation::is_mutated(crate::mutation::Mutation::UndoneInOrder) {
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

/// What a type is called in indexes: that of a task holds its queue.
#[must_use]
pub fn index_type(of: &TypeName, task: Option<&TaskSpec>) -> TypeName {
    match task {
        Some(task) => TypeName::of_task(&task.queue, of).unwrap_or_else(|_| of.clone()),
        None => of.clone(),
    }
}
