//! The API over a real socket.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod edges;
mod gate;
mod kit;
mod links;
mod runs;
mod signals;
mod tasks;
