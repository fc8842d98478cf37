//! All that can happen to a run: a closed list. These are the stored forms too: a log is made of them.
//!
//! Holds: an event says all that [`crate::Run::apply`] needs, so that folding a log calls nobody's code.

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

        /// One thing that happened.
        #[derive(Clone, Debug, PartialEq, Serialize)]
        #[serde(tag = "type")]
        #[non_exhaustive]
        pub enum Event {
            $($(#[$doc])* #[serde(rename = $text)] $name($name),)*
        }

        impl Event {
            /// What its type is called where it is stored and shown.
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
    /// Reads the name first and then the rest, because payloads are kept as the text they are.
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
    /// The run exists. Always the first event of entry 1.
    RunStarted = "run.started" {
        /// What it is a run of.
        of: TypeName,
        /// The hash of the definition it was started with.
        definition_hash: String,
        /// The version of the function it was started with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u32>,
        /// What it was started with.
        input: Data,
        /// Not before this.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        not_before: Option<Time>,
        /// Who waits for its end.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<Parent>,
        /// What it is as a task.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<TaskSpec>,
        /// The hints it stands on until it is claimed.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        hints: Vec<String>,
    }
    /// A worker took the turn, or goes on with it.
    RunClaimed = "run.claimed" {
        /// Which worker.
        owner: String,
        /// Its process, where processes prove that they live.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peer: Option<String>,
        /// How long it may go on without renewing.
        until: Time,
        /// The hints the turn stands on.
        hints: Vec<String>,
    }
    /// The worker gave up the turn, because nothing can proceed before a time or a signal.
    RunParked = "run.parked" {
        /// When something is due next, if anything is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_at: Option<Time>,
        /// The hints the run stands on until it is claimed again.
        hints: Vec<String>,
    }
    /// No further step begins until it is resumed.
    RunPaused = "run.paused" {
        /// Why.
        why: PauseCause,
        /// What must be mended first, if something must.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Fault>,
        /// What the one who paused it said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The control object that asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        control: Option<String>,
        /// Why it had no effect, if it had none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
        /// Name of the caller who asked for it, where the door knows one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    }
    /// Steps go on.
    RunResumed = "run.resumed" {
        /// By how much relative timers moved.
        #[serde(with = "span")]
        shift: Duration,
        /// The control object that asked for it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        control: Option<String>,
        /// Why it had no effect, if it had none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
        /// Name of the caller who asked for it, where the door knows one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    }
    /// Somebody wants it to end.
    RunCancelRequested = "run.cancel_requested" {
        /// What they said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        /// The control object that asked for it.
        control: String,
        /// Why it had no effect, if it had none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
        /// Name of the caller who asked for it, where the door knows one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    }
    /// It begins again, or goes back to a step.
    RunRestarted = "run.restarted" {
        /// Back to which step; from the start if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<Path>,
        /// Of a graph: the steps that run again. [`crate::Run::dropped_by`] says which records that drops.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        steps: Vec<Path>,
        /// The control object that asked for it.
        control: String,
        /// Why it had no effect, if it had none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
        /// Name of the caller who asked for it, where the door knows one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    }
    /// It follows another definition from here on.
    RunMigrated = "run.migrated" {
        /// The hash of that definition.
        definition_hash: String,
        /// The version of the function, if it is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u32>,
        /// Steps that have another name now, with everything below them.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        renamed: BTreeMap<Path, Path>,
        /// Points that are passed over.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        skipped: Vec<Path>,
        /// The control object that asked for it; absent when the code fitted by itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        control: Option<String>,
        /// Why it had no effect, if it had none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
        /// Name of the caller who asked for it, where the door knows one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<String>,
    }
    /// It ended well.
    RunCompleted = "run.completed" {
        /// What it gives.
        result: Data,
    }
    /// It ended badly.
    RunFailed = "run.failed" {
        /// Why.
        error: Fault,
    }
    /// It was ended.
    RunCancelled = "run.cancelled" {
        /// What the one who cancelled it said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    }
    /// A step is about to be run.
    StepStarted = "step.started" {
        /// Which.
        point: Path,
        /// For which time, from 1.
        attempt: u32,
        /// It can be undone.
        #[serde(default, skip_serializing_if = "is_false")]
        compensate: bool,
        /// The task that runs it elsewhere.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        task: Option<RunId>,
        /// When that task must have been taken.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Time>,
    }
    /// A step was done.
    StepCompleted = "step.completed" {
        /// Which.
        point: Path,
        /// When.
        at: Time,
        /// What it gave.
        result: Data,
        /// How it changed the run's data: top-level fields, `null` for one that it removed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        patch: Option<Map<String, Value>>,
        /// It is a mark of changed code, not a step.
        #[serde(default, skip_serializing_if = "is_false")]
        mark: bool,
    }
    /// A step went wrong.
    StepFailed = "step.failed" {
        /// Which.
        point: Path,
        /// For which time, from 1.
        attempt: u32,
        /// When.
        at: Time,
        /// How.
        error: Fault,
        /// When it is tried again; never if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Time>,
        /// It is tried again once the run, which its failure pauses, is resumed.
        #[serde(default, skip_serializing_if = "is_false")]
        held: bool,
    }
    /// A step is passed over.
    StepSkipped = "step.skipped" {
        /// Which.
        point: Path,
    }
    /// A time is waited for.
    SleepStarted = "sleep.started" {
        /// Where.
        point: Path,
        /// Until when.
        until: Time,
        /// Given as a span: it moves by as long as the run is paused.
        #[serde(default, skip_serializing_if = "is_false")]
        relative: bool,
    }
    /// The time came.
    SleepFired = "sleep.fired" {
        /// Where.
        point: Path,
        /// When it was noticed.
        at: Time,
    }
    /// Other runs were started, and their end is waited for.
    ChildStarted = "child.started" {
        /// Where.
        point: Path,
        /// Which.
        children: Children,
        /// Until when they are waited for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Time>,
    }
    /// They ended.
    ChildCompleted = "child.completed" {
        /// Where.
        point: Path,
        /// When it was noticed.
        at: Time,
        /// What came of them.
        result: Data,
    }
    /// It ended badly.
    ChildFailed = "child.failed" {
        /// Where.
        point: Path,
        /// When it was noticed.
        at: Time,
        /// How.
        error: Fault,
    }
    /// A step is about to be undone.
    CompensationStarted = "compensation.started" {
        /// Which.
        point: Path,
        /// For which time, from 1.
        attempt: u32,
        /// Why anything is undone; with the first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cause: Option<Ending>,
    }
    /// A step was undone.
    CompensationCompleted = "compensation.completed" {
        /// Which.
        point: Path,
    }
    /// Undoing a step went wrong.
    CompensationFailed = "compensation.failed" {
        /// Which.
        point: Path,
        /// For which time, from 1.
        attempt: u32,
        /// How.
        error: Fault,
        /// When it is tried again; never if absent, and the chain goes on without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_at: Option<Time>,
    }
    /// A point of a function is no longer waited for: it lost a race, and how it comes out is not heard any more.
    PointDropped = "point.dropped" {
        /// Which.
        point: Path,
        /// When.
        at: Time,
    }
    /// A signal is waited for.
    SignalWaiting = "signal.waiting" {
        /// Where.
        point: Path,
        /// Of which name.
        name: Name,
        /// Until when.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Time>,
        /// The deadline was given as a span.
        #[serde(default, skip_serializing_if = "is_false")]
        relative: bool,
        /// Which signals of that name it takes.
        #[serde(default, skip_serializing_if = "Mode::is_queue")]
        mode: Mode,
        /// From how many senders it wants one each.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        quorum: u32,
        /// It takes signals of authenticated senders only.
        #[serde(default, skip_serializing_if = "is_false")]
        authenticated: bool,
        /// The first point of those it races with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        race: Option<Path>,
        /// What payloads must look like, if the definition does not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<Value>,
    }
    /// A wait took its signal, or as many as it wanted.
    SignalReceived = "signal.received" {
        /// Which wait.
        point: Path,
        /// Of which name.
        name: Name,
        /// Which signals.
        signals: Vec<Taken>,
        /// When.
        at: Time,
        /// What it carries; of several an array.
        payload: Data,
        /// How it changed the run's data.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        patch: Option<Map<String, Value>>,
        /// How far the inbox is read now.
        cursor: String,
        /// Up to where it need not be looked at again.
        floor: String,
    }
    /// Users' code failed on a signal: it stays in the inbox, and the code is asked again.
    SignalRefused = "signal.refused" {
        /// Which wait.
        point: Path,
        /// For which time, from 1.
        attempt: u32,
        /// When.
        at: Time,
        /// How.
        error: Fault,
        /// When it is asked again.
        retry_at: Time,
    }
    /// No signal came in time.
    SignalTimeout = "signal.timeout" {
        /// Where.
        point: Path,
        /// When it was noticed.
        at: Time,
        /// The step fails so; without it the run goes on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<Fault>,
        /// How that changed the run's data.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        patch: Option<Map<String, Value>>,
    }
    /// The wait is over for another reason.
    SignalClosed = "signal.closed" {
        /// Where.
        point: Path,
        /// Why.
        why: Closing,
        /// When.
        at: Time,
    }
    /// A slow sender says that its signal may have been passed over.
    SignalLate = "signal.late" {
        /// Of which name.
        name: Name,
        /// Which: the last part of its key.
        signal: String,
        /// The control object that said it.
        control: String,
        /// Why it is not offered, if it is not.
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

/// Why a wait is over that took nothing and was not timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Closing {
    /// The run was cancelled.
    Cancelled,
    /// Another won the race, or the code no longer waits.
    Lost,
    /// The run ended.
    Finished,
}

/// Who waits for a run's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Which run.
    pub run: RunRef,
    /// Where in it.
    pub point: Path,
}

/// What a task has that other runs have not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// The queue whose workers take it.
    pub queue: Name,
    /// How often it is tried.
    pub retry: Retry,
    /// How long one try may take.
    #[serde(with = "span")]
    pub timeout: Duration,
    /// It fails if nobody took it by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

/// Runs that a point started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Children {
    /// One, whose result is the point's.
    One(RunRef),
    /// Tasks with these ids.
    Tasks(Vec<RunId>),
    /// Tasks with ids that follow from the point, their number and how often the run had been restarted.
    Numbered {
        /// How many.
        count: u32,
        /// How often the run had been restarted when they were started.
        #[serde(default, skip_serializing_if = "crate::run::is_zero")]
        restarts: u32,
    },
}

/// Why a run is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PauseCause {
    /// Somebody asked for it.
    ByHand,
    /// The code does not fit the run.
    Version,
    /// A step failed that pauses the run when it fails.
    Failure,
}

/// How a run ends once all is undone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It fails, for this reason.
    Failed(Fault),
    /// It is cancelled, for the reason given.
    Cancelled(Option<String>),
}
