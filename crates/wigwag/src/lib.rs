//! Durable workflows that wait for signals, on nothing but a bucket.
//!
//! A workflow is a set of steps that must all happen, across crashes, deploys and months of waiting. It is written as a
//! [`Graph`] of steps, or as a function of its own with a [`Ctx`]. An [`Engine`] runs it; all state is in a store: a
//! directory on one machine, or any S3-compatible bucket.
//!
//! ```
//! use std::time::Duration;
//! use wigwag::{Ctx, Engine, Failure};
//!
//! async fn greet(ctx: Ctx, name: String) -> Result<String, Failure> {
//!     let greeting = ctx.step("write", || async { Ok::<_, Failure>(format!("hello {name}")) }).await?;
//!     ctx.sleep("breathe", Duration::from_millis(10)).await?;
//!     ctx.step("shout", || async { Ok::<_, Failure>(greeting.to_uppercase()) }).await
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
//! What is promised: a recorded step never runs again; until its result is recorded it may run more than once, under
//! the same idempotency key. Any process may be killed at any time, and its runs go on elsewhere.

mod audit;
mod client;
mod context;
mod engine;
mod error;
mod failure;
mod graph;
#[cfg(feature = "hub")]
pub mod hub;
mod link;
mod settings;
mod spans;
#[cfg(feature = "testing")]
pub mod testing;
mod workflow;

mod inner;
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
    Asked, Cancel, Client, Consumed, Filter, Follow, Listing, Migrate, OpenWait, Receipt, Restart, Resume, RunHandle,
    RunView, SignalAndWait, SignalCall, SignalState, SignalView, SignalViews, StartCall, SubmitCall, Summary,
    TaskOptions, WaitingRun, WaitingRuns,
};
pub use context::{Ctx, FanOut, Joined, Map, Point, Step, StepCtx, StepInfo, TaskEnd};
pub use engine::{Builder, Engine};
pub use error::{Error, ErrorKind, Result};
pub use failure::{Failure, permanent, retryable};
pub use graph::{Graph, Names};
pub use link::{Link, LinkSecret, NewLink};
pub use service::retention::{PruneOptions, Pruned};
pub use service::sweeper::Swept;
pub use settings::Settings;
pub use tally::dollars;
pub use waiting::{Received, TimedWait, TimedWaitAny, Wait, WaitAll, WaitAny};
pub use workflow::{FunctionHandler, StepHandler, UndoHandler};

pub use schemars;
/// What a run is made of: statuses, points, events, times.
pub use wigwag_core as core;
pub use wigwag_core::{Fate, Mode, OnFailure, Payload, Retry, RunId, Status, Time};
/// Stores.
pub use wigwag_store as store;
