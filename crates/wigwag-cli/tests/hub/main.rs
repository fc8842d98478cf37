//! The hub's client in Rust and `wigwag hub`, against real servers over real sockets.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod client;
mod commands;
#[path = "../common/mod.rs"]
mod common;
#[expect(dead_code, reason = "tests of runs use the rest")]
#[path = "../common/place.rs"]
mod place;
#[path = "../common/process.rs"]
mod process;
mod relay;
