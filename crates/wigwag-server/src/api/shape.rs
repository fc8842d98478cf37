//! What answers look like, for the API's description: they are sent as the engine stores or gives them.
#![expect(dead_code, reason = "these describe what is sent, and are never made")]

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde_json::{Map, Value};

/// How far a run is.
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
    /// The entry and the place in it; the last event, `end`, has none.
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
    /// When something is due next.
    next_at: Option<String>,
    /// The points that are under way, at most 20.
    current_steps: Vec<String>,
    /// What went wrong, in words.
    error: Option<String>,
}

/// A run as its `state.json` has it; fields that are of no use to most are left out here.
#[derive(JsonSchema)]
pub(crate) struct Run {
    /// Its id.
    id: String,
    /// What it is a run of.
    #[schemars(rename = "type")]
    of: String,
    status: Status,
    /// The points that are under way.
    current_steps: Vec<String>,
    /// The points at which it waits for a signal.
    waits: Vec<String>,
    /// What its steps share.
    data: Map<String, Value>,
    /// Its points that are at hand, by path; `steps` has all of a long run.
    steps: BTreeMap<String, Point>,
    /// What it was started with.
    input: Value,
    /// What it gave, if it completed.
    result: Option<Value>,
    error: Option<Fault>,
    created_at: String,
    updated_at: String,
    /// When something is due next, while it is parked.
    next_at: Option<String>,
    /// The number of its last log entry.
    seq: u64,
    /// How often it was restarted.
    restarts: u32,
    /// What its turns asked of the store so far, up to the last entry of each. Not in it: the requests of clients that send to
    /// it or watch it, and of workers that look for work.
    requests: Option<Requests>,
    /// What these requests cost on a bucket, in dollars at the list prices of S3 Standard, without storage and traffic. The
    /// embedded store asks nobody and costs nothing. Absent with `requests`.
    dollars: Option<f64>,
    /// Why the run may not proceed: no worker has registered its workflow, or that of a child it waits for. Absent if
    /// nothing is wrong.
    warnings: Option<Vec<String>>,
}

/// A place in a run where something is recorded.
#[derive(JsonSchema)]
pub(crate) struct Point {
    /// `step` if absent.
    kind: Option<PointKind>,
    status: PointStatus,
    /// How often it was tried; once if absent.
    attempt: Option<u32>,
    started_at: Option<String>,
    ended_at: Option<String>,
    /// What it gave.
    result: Option<Value>,
    error: Option<Fault>,
    /// The end of a sleep, the next try, the deadline of a wait or task.
    until: Option<String>,
    /// The log entry that began or ended it.
    seq: u64,
}

/// A point with its path.
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
    /// Its number, from 1.
    seq: u64,
    by: String,
    at: String,
    events: Vec<Event>,
    requests: Option<Requests>,
}

/// What was asked of the store for a run, as a bucket counts. A kind that is absent was not asked for.
#[derive(JsonSchema)]
pub(crate) struct Requests {
    /// Objects written.
    puts: Option<u64>,
    /// Objects read.
    gets: Option<u64>,
    /// Pages of keys listed.
    lists: Option<u64>,
    /// Objects deleted, which buckets do not charge for.
    deletes: Option<u64>,
}

/// One thing that happened.
#[derive(JsonSchema)]
pub(crate) struct Event {
    /// Such as `run.started`, `step.completed`, `signal.received`.
    #[schemars(rename = "type")]
    kind: String,
    #[schemars(flatten)]
    facts: Map<String, Value>,
}

/// A wait that is open.
#[derive(JsonSchema)]
pub(crate) struct OpenWait {
    /// The signal's name.
    name: String,
    /// Where the run waits.
    point: String,
    since: Option<String>,
    /// Until when; for ever if absent.
    deadline: Option<String>,
    /// `queue` or `latest`.
    mode: String,
    /// From how many senders it wants one each.
    quorum: u32,
    /// Whether it takes signals of authenticated senders only; absent if not.
    authenticated: Option<bool>,
    /// What payloads must look like.
    schema: Option<Value>,
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
}

/// A signal in a run's inbox, and what became of it.
#[derive(JsonSchema)]
pub(crate) struct Signal {
    id: String,
    /// Its place in the inbox.
    suffix: String,
    name: String,
    payload: Value,
    created_at: String,
    source: Source,
    /// The point it was addressed to.
    meant_for: Option<String>,
    fate: Fate,
    /// Which wait took it.
    point: Option<String>,
    /// When it was taken.
    at: Option<String>,
    /// Why the wait that is open does not take it.
    misfit: Option<String>,
}

/// Who sent a signal.
#[derive(JsonSchema)]
pub(crate) struct Source {
    by: Option<String>,
    via: Option<String>,
    /// Whether the server verified who it is; absent if not.
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

/// What a workflow type does.
#[derive(JsonSchema)]
pub(crate) struct Definition {
    #[schemars(rename = "type")]
    of: String,
    hash: String,
    #[schemars(flatten)]
    rest: Map<String, Value>,
}

/// What was removed.
#[derive(JsonSchema)]
pub(crate) struct Pruned {
    /// Runs whose records went.
    runs: u64,
    /// Objects that went with them.
    objects: u64,
    /// Ids that are free again: their tombstone was a day old.
    freed: u64,
}

/// What a sweep looked at and repaired.
#[derive(JsonSchema)]
pub(crate) struct Swept {
    /// Hints that were looked at.
    hints: u64,
    /// Hints without a run, removed.
    orphan_hints: u64,
    /// Index entries of runs that are no longer unfinished, removed.
    stale_live: u64,
    /// Unfinished runs that were looked at.
    runs: u64,
    /// Unfinished runs that changed too recently for every check; a later sweep judges them.
    too_young: u64,
    /// Unfinished runs that had no usable hint, and got one.
    lost_runs: u64,
    /// Waits in the index that are over, removed.
    stale_waits: u64,
    /// Open waits that were not in the index, put there.
    lost_waits: u64,
    /// Unfinished runs that were not in the index of those, put there.
    lost_live: u64,
}
