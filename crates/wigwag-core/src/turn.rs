//! Decisions of a turn, as values and functions: no clock, no I/O, no async, no types of users' code.
//!
//! A turn is one worker's exclusive drive of a run, from claim to park or end. The driver in `wigwag` feeds these machines
//! with requests of users' code, objects found beside the log, commits and the time, and executes the decisions. Each
//! module decides one subject:
//!
//! - [`body`]: the protocol between a turn and a piece of users' code, and when that code is idle;
//! - [`step`]: the life cycle of a step, the same for graphs, functions, map items and tasks;
//! - [`phase`]: the phases of a turn, with the state that it holds and its goal;
//! - [`ending`]: how a run ends, and which step is compensated next;
//! - [`park`]: when the run is parked, and what the turn does next otherwise;
//! - [`waits`]: when inboxes are scanned, and when a wait may be timed out.

pub mod body;
pub mod ending;
pub mod park;
pub mod phase;
pub mod step;
pub mod waits;
