//! Types that describe responses in the API's description; the responses themselves are sent as the engine stores or returns them.
#![expect(dead_code, reason = "these describe what is sent, and are never made")]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::{Map, Value};

/// Status of a run.
#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub(crate) enum Status {
    Pending,
    Running,
    Paused,
    WaitingSignal,
    Compensating,
    Completed,
    Failed,
    Cancelled,
}

/// One server-sent event.
#[derive(JsonSchema)]
#[schemars(rename = "ServerSentEvent")]
pub(crate) struct Sse {
    /// The entry and the position in it; absent in the last event, `end`.
    id: Option<String>,
    /// The event's type.
    event: String,
    /// JSON: `{seq, place, count, at, by, requests, event}`.
    data: String,
}

/// A run in a list.
#[derive(JsonSchema)]
pub(crate) struct Summary {
    id: String,
    #[schemars(rename = "type")]
    of: String,
    status: Status,
    created_at: String,
    updated_at: String,
    /// Time of the next timer.
    next_at: Option<String>,
    /// Steps in progress, at most 20.
    current_steps: Vec<String>,
    /// Message of the error.
    error: Option<String>,
}

/// A run as in its `state.json`, without the internal fields.
#[derive(JsonSchema)]
pub(crate) struct Run {
    /// Id of the run or task.
    id: String,
    /// Name of the workflow.
    #[schemars(rename = "type")]
    of: String,
    status: Status,
    /// Steps in progress.
    current_steps: Vec<String>,
    /// Steps that wait for a signal.
    waits: Vec<String>,
    /// Data shared by its steps.
    data: Map<String, Value>,
    /// Its recent step records, by path; the operation `steps` lists all steps of a long run.
    steps: BTreeMap<String, Point>,
    /// Input of the run.
    input: Value,
    /// Result, if it completed.
    result: Option<Value>,
    error: Option<Fault>,
    created_at: String,
    updated_at: String,
    /// Time of the next timer, while it is parked.
    next_at: Option<String>,
    /// Number of its last log entry.
    seq: u64,
    /// Number of restarts.
    restarts: u32,
    /// Store requests of its turns so far, up to the last entry of each. Not counted: requests of clients that send to
    /// it or watch it, and scans of workers for work.
    requests: Option<Requests>,
    /// Price of these requests on a bucket, in dollars at the list prices of S3 Standard, without storage and traffic. The
    /// embedded store makes no requests and costs nothing. Absent with `requests`.
    dollars: Option<f64>,
    /// Compensation of each step that was or is being compensated, by path. Absent if there is none.
    undo: Option<BTreeMap<String, Undo>>,
    /// Why the run may not proceed: no worker has registered its workflow, or that of a child it waits for. Absent if
    /// nothing is wrong.
    warnings: Option<Vec<String>>,
}

/// The record of a step.
#[derive(JsonSchema)]
pub(crate) struct Point {
    /// Kind of the step; `step` if absent.
    kind: Option<PointKind>,
    status: PointStatus,
    /// Number of attempts; 1 if absent.
    attempt: Option<u32>,
    started_at: Option<String>,
    ended_at: Option<String>,
    /// Result of the step.
    result: Option<Value>,
    error: Option<Fault>,
    /// End of a sleep, time of the next attempt, or deadline of a wait or task.
    until: Option<String>,
    /// Log entry that started or ended it.
    seq: u64,
}

/// Compensation of one step.
#[derive(JsonSchema)]
pub(crate) struct Undo {
    point: String,
    status: PointStatus,
    /// Error of the compensation.
    error: Option<Fault>,
}

/// Explains why a run does not proceed. Texts name steps and signals in backticks and contain no times.
#[derive(JsonSchema)]
pub(crate) struct Explanation {
    id: String,
    status: Status,
    /// Explanation in one or two sentences.
    why: String,
    /// The open steps of the run.
    points: Vec<OpenPoint>,
    /// Steps that a failure or a cancellation would compensate, in that order.
    would_compensate: Vec<String>,
    compensated: Vec<Undo>,
}

/// A step that has not ended.
#[derive(JsonSchema)]
pub(crate) struct OpenPoint {
    point: String,
    kind: PointKind,
    since: Option<String>,
    /// End of the sleep, next attempt, or deadline.
    until: Option<String>,
    /// Description of the wait by its workflow, in one line.
    about: Option<String>,
    /// What the step needs to end.
    needs: String,
    /// Which of these requirements are met.
    have: String,
    /// Signals in the inbox that the wait does not accept.
    misfits: Option<Vec<Misfit>>,
    /// Next action if the requirements are not met.
    then: String,
    /// Run that the step waits for: `workflow/ID` or `task/ID`.
    child: Option<String>,
}

/// A signal that no open wait accepts.
#[derive(JsonSchema)]
pub(crate) struct Misfit {
    name: String,
    by: Option<String>,
    at: String,
    reason: String,
}

/// A step record with its path.
#[derive(JsonSchema)]
pub(crate) struct Step {
    path: String,
    #[schemars(flatten)]
    point: Point,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub(crate) enum PointKind {
    Step,
    Sleep,
    Wait,
    Child,
    Mark,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub(crate) enum PointStatus {
    Running,
    Retrying,
    Completed,
    Failed,
    Skipped,
}

/// An error as it is recorded.
#[derive(JsonSchema)]
pub(crate) struct Fault {
    /// `StepFailed`, `Permanent`, `Timeout`, `Panic`, `VersionMismatch`, …
    #[schemars(rename = "type")]
    kind: String,
    message: String,
    /// Causes and backtrace.
    detail: Option<String>,
    point: Option<String>,
}

/// One commit of a run's log.
#[derive(JsonSchema)]
pub(crate) struct Entry {
    /// Number of the entry, starting at 1.
    seq: u64,
    by: String,
    at: String,
    events: Vec<Event>,
    requests: Option<Requests>,
}

/// Store requests for a run, as a bucket counts them. An absent kind is zero.
#[derive(JsonSchema)]
pub(crate) struct Requests {
    /// Number of objects written.
    puts: Option<u64>,
    /// Number of objects read.
    gets: Option<u64>,
    /// Number of pages of keys listed.
    lists: Option<u64>,
    /// Number of objects deleted, which buckets do not charge for.
    deletes: Option<u64>,
}

/// An event of the log.
#[derive(JsonSchema)]
pub(crate) struct Event {
    /// Type of the event, such as `run.started`, `step.completed`, `signal.received`.
    #[schemars(rename = "type")]
    kind: String,
    #[schemars(flatten)]
    facts: Map<String, Value>,
}

/// An open wait.
#[derive(JsonSchema)]
pub(crate) struct OpenWait {
    /// Name of the signal.
    name: String,
    /// Step that waits.
    point: String,
    since: Option<String>,
    /// Deadline; absent if the wait has none.
    deadline: Option<String>,
    /// `queue` or `latest`.
    mode: String,
    /// Number of different senders that it needs signals from.
    quorum: u32,
    /// Whether it accepts signals of authenticated senders only; absent if not.
    authenticated: Option<bool>,
    /// JSON Schema of its payloads.
    schema: Option<Value>,
    /// Description by its workflow, in one line. Lists with `order` fall back to plain fields of the run's input.
    about: Option<String>,
}

/// A run that waits for a signal.
#[derive(JsonSchema)]
pub(crate) struct WaitingRun {
    id: String,
    /// `workflow/` or `task/`, and the id.
    run: String,
    #[schemars(rename = "type")]
    of: String,
    status: Status,
    #[schemars(flatten)]
    wait: OpenWait,
    /// Senders that a quorum has; absent if none, and without `order`.
    have: Option<Vec<String>>,
}

/// A signal in a run's inbox, and its outcome.
#[derive(JsonSchema)]
pub(crate) struct Signal {
    id: String,
    /// Position in the inbox.
    suffix: String,
    name: String,
    payload: Value,
    created_at: String,
    source: Source,
    /// Step that it was addressed to.
    meant_for: Option<String>,
    fate: Fate,
    /// Step whose wait consumed it.
    point: Option<String>,
    /// Time at which it was consumed.
    at: Option<String>,
    /// Why the open wait does not accept it.
    misfit: Option<String>,
}

/// Sender of a signal.
#[derive(JsonSchema)]
pub(crate) struct Source {
    by: Option<String>,
    via: Option<String>,
    /// Whether the server verified the sender; absent if not.
    authenticated: Option<bool>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
pub(crate) enum Fate {
    Unconsumed,
    Consumed,
    Superseded,
    Void,
    NeverConsumed,
    Unacknowledged,
}

/// Definition of a workflow.
#[derive(JsonSchema)]
pub(crate) struct Definition {
    #[schemars(rename = "type")]
    of: String,
    hash: String,
    #[schemars(flatten)]
    rest: Map<String, Value>,
}

/// Result of a prune.
#[derive(JsonSchema)]
pub(crate) struct Pruned {
    /// Number of deleted runs.
    runs: u64,
    /// Number of deleted objects.
    objects: u64,
    /// Ids that can be used again, because their tombstone was a day old.
    freed: u64,
}

/// Numbers of runs of one type.
#[derive(JsonSchema)]
pub(crate) struct TypeCounts {
    /// Number of unfinished runs.
    unfinished: u64,
    /// Number of completed runs.
    completed: u64,
    /// Number of failed runs.
    failed: u64,
    /// Number of cancelled runs.
    cancelled: u64,
}

/// Numbers of runs and waits.
#[derive(JsonSchema)]
pub(crate) struct Counts {
    /// Numbers of runs by type.
    types: BTreeMap<String, TypeCounts>,
    /// Open waits by name of the signal.
    waiting: BTreeMap<String, u64>,
}

/// Result of a sweep.
#[derive(JsonSchema)]
pub(crate) struct Swept {
    /// Number of checked wake-ups.
    hints: u64,
    /// Removed wake-ups without a run.
    orphan_hints: u64,
    /// Removed index entries of finished runs.
    stale_live: u64,
    /// Number of checked unfinished runs.
    runs: u64,
    /// Unfinished runs that changed too recently for every check; a later sweep checks them.
    too_young: u64,
    /// Unfinished runs without a usable wake-up, which got one.
    lost_runs: u64,
    /// Removed index entries of closed waits.
    stale_waits: u64,
    /// Open waits that were added to the index.
    lost_waits: u64,
    /// Unfinished runs that were added to their index.
    lost_live: u64,
}
