//! The API over a real socket.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod described;
mod edges;
mod events;
mod gate;
mod kit;
mod links;
mod observed;
mod runs;
mod security;
mod signals;
mod tasks;
mod upkeep;
