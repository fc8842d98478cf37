//! Durable workflows that wait for signals, on nothing but a bucket.
//!
//! A workflow is a set of steps that must all happen, across crashes, deploys and months of waiting. It is written as a
//! [`Graph`] of steps, or as an async function with a [`Ctx`]. An [`Engine`] runs it; all state is in a store: a
//! directory on one machine, or any S3-compatible bucket.
//!
//! ```
//! use std::time::Duration;
//! use wigwag::{Ctx, Engine, Failure};
//!
//! async fn greet(ctx: Ctx, name: String) -> Result<String, Failure> {
//!     let greeting = ctx.step("write", || async { Ok(format!("hello {name}")) }).await?;
//!     ctx.sleep("breathe", Duration::from_millis(10)).await?;
//!     ctx.step("shout", || async { Ok(greeting.to_uppercase()) }).await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), wigwag::Error> {
//! let engine = Engine::open("memory:")?.function("greet", 1, greet).start().await?;
//! let run = engine.client().start("greet", "ada").id("greeting-1").await?;
//! assert_eq!(run.result::<String>().await?, "HELLO ADA");
//! engine.stop().await;
//! # Ok(()) }
//! ```
//!
//! The guarantee: a recorded step never runs again; until its result is recorded it may run more than once, with the
//! same idempotency key. Any process may be killed at any time, and its runs continue on another.

mod audit;
mod body;
mod client;
mod context;
mod durations;
mod engine;
mod error;
mod failure;
mod graph;
mod keys;
mod link;
mod settings;
mod spans;
#[cfg(feature = "testing")]
pub mod testing;
mod workflow;

mod engine_core;
mod limits;
mod log;
mod mailbox;
mod misfits;
mod pages;
mod panics;
mod remote;
mod schema;
mod scope;
mod service;
mod tally;
mod turn;
mod waiting;
mod worker;

pub use audit::{Audit, AuditOptions};
pub use client::{
    Asked, Cancel, Client, Consumed, Counts, Filter, Follow, Listing, Migrate, OpenWait, Receipt, Restart, Resume,
    RunHandle, RunView, SignalAndWait, SignalCall, SignalState, SignalView, SignalViews, StartCall, SubmitCall,
    Summary, TaskOptions, TypeCounts, WaitingRun, WaitingRuns, open_waits,
};
pub use context::{Ctx, Elsewhere, FanOut, Joined, Map, Point, Step, StepCtx, StepInfo, TaskEnd};
pub use durations::{days, hours, mins, secs};
pub use engine::{Builder, Engine, concerns_others};
pub use error::{Error, ErrorKind, FieldError, Result};
pub use failure::{Failure, permanent, retryable};
pub use graph::{Graph, Names};
pub use keys::{Signal, SignalKey, StartKey, TypedRun, WaitKey, Workflow, WorkflowKey};
pub use link::{Link, LinkSecret, NewLink, RevokeLink};
pub use service::retention::{PruneOptions, Pruned};
pub use service::sweeper::Swept;
pub use settings::Settings;
pub use tally::dollars;
pub use waiting::{Received, TimedWait, TimedWaitAny, Wait, WaitAll, WaitAny};

pub use schemars;
pub use wigwag_core::{Fate, Mode, OnFailure, Payload, Retry, RunId, Status, Time};

/// Code of workflows and tasks on JSON, for other languages and for definitions that are made while a program runs.
pub mod dynamic {
    pub use crate::workflow::{FunctionHandler, StepHandler, UndoHandler};
}

/// The data model of a run, as stored in its log and snapshots: statuses, steps, events.
pub mod record {
    pub use wigwag_core::audit::{Breach, Promise};
    pub use wigwag_core::{
        Compensated, Definition, Entry, Event, Explanation, Family, Fault, Misfit, Name, OpenPoint, Path, Point,
        PointKind, PointStatus, Refusal, Requests, Run, RunRef, Source, TypeName,
    };
}

/// Stores and their clocks; the crate `wigwag-store` has the rest.
pub mod store {
    pub use wigwag_store::{
        Batch, Clock, Cost, Error, ErrorKind, Memory, Notices, OpenSettings, Opened, Store, System, Usage, open,
    };
}
