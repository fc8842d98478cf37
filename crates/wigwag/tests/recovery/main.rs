//! Bugs found by the simulator, each reduced to a minimum: objects lost, left behind or retried without end when workers
//! die, clocks differ and indexes are damaged.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod controls;
mod dispatch;
mod pace;
mod restarts;
mod seat;
mod sweeps;
mod waits;
