//! The closed list of events of a run. These are the stored forms too: a log consists of them.
//!
//! Holds: an event contains everything that [`crate::Run::apply`] needs, so that folding a log calls
//! no user code.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::time::span;
use crate::{Data, Fault, Mode, Name, Path, Retry, RunId, RunRef, Taken, Time, TypeName};

macro_rules! events {
    ($($(#[$doc:meta])* $name:ident = $text:literal { $($(#[$field_meta:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            pub struct $name {
                $($(#[$field_meta])* pub $field: $type,)*
            }

            impl From<$name> for Event {
                fn from(event: $name) -> Self {
                    Self::$name(event)
                }
            }
        )*

        /// One recorded fact.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(tag = "type")]
        #[non_exhaustive]
        pub enum Event {
            $($(#[$doc])* #[serde(rename = $text)] $name($name),)*
        }

        impl Event {
            /// Name of the event type in the log and in displays.
            #[must_use]
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$name(_) => $text,)*
                }
            }

            fn read(name: &str, text: &str) -> Result<Self, String> {
                match name {
                    $($text => serde_json::from_str(text).map(Self::$name).map_err(|error| format!("`{name}`: {error}")),)*
                    _ => Err(format!("no event is called `{name}`")),
                }
            }
        }
    };
}

impl<'de> Deserialize<'de> for Event {
    /// Reads the name first and then the rest, because payloads are kept as raw text.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Named<'a> {
            #[serde(rename = "type", borrow)]
            name: std::borrow::Cow<'a, str>,
        }
        let raw = Box::<RawValue>::deserialize(from)?;
        let named: Named<'_> = serde_json::from_str(raw.get()).map_err(serde::de::Error::custom)?;
        Self::read(&named.name, raw.get()).map_err(serde::de::Error::custom)
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

events! {
    /// The run was created. Always the first event of entry 1.
    RunStarted = "run.started" {
        /// Workflow or task of the run.
        of: TypeName,
        /// Hash of the definition at the start.
        definition_hash: String,
        /// Version of the function at the start.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u32>,
        /// Input of the run.
        input: Data,
        /// Start time; at once if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_before: Option<Time>,
        /// The step of the parent that waits for this run.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<Parent>,
        /// Settings of a task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskSpec>,
        /// Wake-ups that cover the run until it is claimed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        hints: Vec<String>,
    }
    /// A worker claimed the turn, or renewed its lease.
    RunClaimed = "run.claimed" {
        /// Id of the worker.
        owner: String,
        /// Process of the worker, if it has a liveness record.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer: Option<String>,
        /// End of the lease.
        until: Time,
        /// Wake-ups that cover the turn.
        hints: Vec<String>,
    }
    /// The worker gave up the turn, because nothing can proceed before a time or a signal.
    RunParked = "run.parked" {
        /// Time of the next due timer, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_at: Option<Time>,
        /// Wake-ups that cover the run until it is claimed again.
        hints: Vec<String>,
    }
    /// The run was paused: no further step starts until a resume.
    RunPaused = "run.paused" {
        /// Cause of the pause.
        why: PauseCause,
        /// Error that needs a fix before the resume, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Fault>,
        /// Reason given by the caller.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Control object of the request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        control: Option<String>,
        /// Why the request was rejected, if it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
        /// Name of the authenticated caller.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    }
    /// The run was resumed.
    RunResumed = "run.resumed" {
        /// Duration by which relative timers moved.
        #[serde(with = "span")]
        shift: Duration,
        /// Control object of the request.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        control: Option<String>,
        /// Why the request was rejected, if it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
        /// Name of the authenticated caller.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    }
    /// A caller requested cancellation.
    RunCancelRequested = "run.cancel_requested" {
        /// Reason given by the caller.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// Control object of the request.
        control: String,
        /// Why the request was rejected, if it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
        /// Name of the authenticated caller.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    }
    /// The run was restarted, from the beginning or from a step.
    RunRestarted = "run.restarted" {
        /// First step to run again; the whole run if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Path>,
        /// Steps of a graph that run again. [`crate::Run::dropped_by`] lists the records that this drops.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        steps: Vec<Path>,
        /// Control object of the request.
        control: String,
        /// Why the request was rejected, if it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
        /// Name of the authenticated caller.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    }
    /// The run switched to another definition.
    RunMigrated = "run.migrated" {
        /// Hash of the new definition.
        definition_hash: String,
        /// Version of the function; absent for other styles.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u32>,
        /// New paths of renamed steps; they apply to everything below them too.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        renamed: BTreeMap<Path, Path>,
        /// Paths of skipped steps.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        skipped: Vec<Path>,
        /// Control object of the request; absent when the code matched without one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        control: Option<String>,
        /// Why the request was rejected, if it was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
        /// Name of the authenticated caller.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    }
    /// The run completed.
    RunCompleted = "run.completed" {
        /// Result of the run.
        result: Data,
    }
    /// The run failed.
    RunFailed = "run.failed" {
        /// Error that ended the run.
        error: Fault,
    }
    /// The run was cancelled.
    RunCancelled = "run.cancelled" {
        /// Reason given by the caller.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    }
    /// An attempt of a step starts.
    StepStarted = "step.started" {
        /// Path of the step.
        point: Path,
        /// Attempt number, starting at 1.
        attempt: u32,
        /// Whether the step has a compensation.
        #[serde(default, skip_serializing_if = "is_false")]
        compensate: bool,
        /// Task that runs the step on another worker.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<RunId>,
        /// Time by which a worker must have claimed that task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Time>,
    }
    /// A step completed.
    StepCompleted = "step.completed" {
        /// Path of the step.
        point: Path,
        /// Time of the event.
        at: Time,
        /// Result of the step.
        result: Data,
        /// Merge patch of the run's data: top-level fields, `null` for a removed one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        patch: Option<Map<String, Value>>,
        /// Whether this is a marker of changed code instead of a step.
        #[serde(default, skip_serializing_if = "is_false")]
        mark: bool,
    }
    /// An attempt of a step failed.
    StepFailed = "step.failed" {
        /// Path of the step.
        point: Path,
        /// Attempt number, starting at 1.
        attempt: u32,
        /// Time of the event.
        at: Time,
        /// Error of the attempt.
        error: Fault,
        /// Time of the next attempt; none follows if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Time>,
        /// Whether the failure pauses the run, and a resume retries the step.
        #[serde(default, skip_serializing_if = "is_false")]
        held: bool,
    }
    /// A step was skipped.
    StepSkipped = "step.skipped" {
        /// Path of the step.
        point: Path,
    }
    /// A sleep started.
    SleepStarted = "sleep.started" {
        /// Path of the step.
        point: Path,
        /// End of the sleep.
        until: Time,
        /// Whether the sleep was given as a duration: its end then moves by the length of a pause.
        #[serde(default, skip_serializing_if = "is_false")]
        relative: bool,
    }
    /// A sleep ended.
    SleepFired = "sleep.fired" {
        /// Path of the step.
        point: Path,
        /// Time at which the worker recorded it.
        at: Time,
    }
    /// Child runs were started, and the step waits for their end.
    ChildStarted = "child.started" {
        /// Path of the step.
        point: Path,
        /// The child runs.
        children: Children,
        /// Deadline of the wait for them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Time>,
    }
    /// All children of a step ended.
    ChildCompleted = "child.completed" {
        /// Path of the step.
        point: Path,
        /// Time at which the worker recorded it.
        at: Time,
        /// Result, joined if there are several children.
        result: Data,
    }
    /// A child failed, and the step with it.
    ChildFailed = "child.failed" {
        /// Path of the step.
        point: Path,
        /// Time at which the worker recorded it.
        at: Time,
        /// Error of the child.
        error: Fault,
    }
    /// An attempt of a compensation starts.
    CompensationStarted = "compensation.started" {
        /// Path of the step.
        point: Path,
        /// Attempt number, starting at 1.
        attempt: u32,
        /// Why the run compensates; only in the first such event.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<Ending>,
    }
    /// A compensation completed.
    CompensationCompleted = "compensation.completed" {
        /// Path of the step.
        point: Path,
    }
    /// An attempt of a compensation failed.
    CompensationFailed = "compensation.failed" {
        /// Path of the step.
        point: Path,
        /// Attempt number, starting at 1.
        attempt: u32,
        /// Error of the attempt.
        error: Fault,
        /// Time of the next attempt; if absent, the remaining compensations continue without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Time>,
    }
    /// A function dropped a step: it lost a race, and its outcome is ignored from now on.
    PointDropped = "point.dropped" {
        /// Path of the step.
        point: Path,
        /// Time of the event.
        at: Time,
    }
    /// A wait was opened.
    SignalWaiting = "signal.waiting" {
        /// Path of the step.
        point: Path,
        /// Name of the signal.
        name: Name,
        /// Deadline of the wait.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Time>,
        /// Whether the deadline was given as a duration.
        #[serde(default, skip_serializing_if = "is_false")]
        relative: bool,
        /// Which signals of that name the wait consumes.
        #[serde(default, skip_serializing_if = "Mode::is_queue")]
        mode: Mode,
        /// Number of different senders needed.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        quorum: u32,
        /// Whether only signals of authenticated senders count.
        #[serde(default, skip_serializing_if = "is_false")]
        authenticated: bool,
        /// First step of the race that the wait belongs to.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        race: Option<Path>,
        /// JSON Schema of the payload, unless the definition contains one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<Value>,
        /// One line for the person who answers.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        about: Option<String>,
    }
    /// A wait consumed its signal, or all signals of its quorum.
    SignalReceived = "signal.received" {
        /// Path of the wait.
        point: Path,
        /// Name of the signal.
        name: Name,
        /// The consumed signals.
        signals: Vec<Taken>,
        /// Time of the event.
        at: Time,
        /// Payload of the signal; an array of payloads for a quorum.
        payload: Data,
        /// Merge patch of the run's data.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        patch: Option<Map<String, Value>>,
        /// Position up to which the inbox was read.
        cursor: String,
        /// Position up to which the inbox needs no further scan.
        floor: String,
    }
    /// A handler failed on a signal. The signal stays in the inbox, and the handler is retried.
    SignalRefused = "signal.refused" {
        /// Path of the wait.
        point: Path,
        /// Attempt number, starting at 1.
        attempt: u32,
        /// Time of the event.
        at: Time,
        /// Error of the attempt.
        error: Fault,
        /// Time of the next attempt.
        retry_at: Time,
    }
    /// A wait timed out.
    SignalTimeout = "signal.timeout" {
        /// Path of the step.
        point: Path,
        /// Time at which the worker recorded it.
        at: Time,
        /// Error of the step; if absent, the run continues.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Fault>,
        /// Merge patch of the run's data.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        patch: Option<Map<String, Value>>,
    }
    /// A wait was closed for another reason.
    SignalClosed = "signal.closed" {
        /// Path of the wait.
        point: Path,
        /// Reason of the closing.
        why: Closing,
        /// Time of the event.
        at: Time,
    }
    /// A slow sender reports a signal that scans may have skipped.
    SignalLate = "signal.late" {
        /// Name of the signal.
        name: Name,
        /// Last part of the signal's key.
        signal: String,
        /// Control object of the report.
        control: String,
        /// Why the signal is not offered to waits; absent if it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    }
}

fn one() -> u32 {
    1
}
fn is_one(number: &u32) -> bool {
    *number == 1
}

/// Why a wait was closed without a signal or a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Closing {
    /// The run was cancelled.
    Cancelled,
    /// Another wait won the race, or the code no longer waits.
    Lost,
    /// The run ended.
    Finished,
}

/// The step of a parent that waits for a run's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Reference of the parent run.
    pub run: RunRef,
    /// Path of the step.
    pub point: Path,
}

/// Settings that only tasks have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Queue of the task.
    pub queue: Name,
    /// Retry policy of the task.
    pub retry: Retry,
    /// Timeout of one attempt.
    #[serde(with = "span")]
    pub timeout: Duration,
    /// The task fails if no worker claimed it by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

/// Runs started by a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Children {
    /// One run, whose result is the step's result.
    One(RunRef),
    /// Tasks with the given ids.
    Tasks(Vec<RunId>),
    /// Tasks whose ids are derived from the step's path, their number and the restart count.
    Numbered {
        /// Number of tasks.
        count: u32,
        /// Restart count of the run at their start.
        #[serde(default, skip_serializing_if = "crate::run::is_zero")]
        restarts: u32,
    },
}

/// Cause of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseCause {
    /// A caller requested it.
    ByHand,
    /// The code does not match the run.
    Version,
    /// A step failed whose failure pauses the run.
    Failure,
}

/// How a run ends once all compensations ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The run fails with this error.
    Failed(Fault),
    /// The run is cancelled, with the given reason.
    Cancelled(Option<String>),
}
