//! Bugs that the simulator found, each as small as it can be: what is lost, left behind or tried without end when workers
//! die, clocks differ and indexes are damaged.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod controls;
mod dispatch;
mod pace;
mod restarts;
mod seat;
mod sweeps;
mod waits;
