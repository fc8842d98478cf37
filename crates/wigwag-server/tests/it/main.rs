//! Tests of the API over a real socket.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod crowd;
mod dashboard;
mod dashboard_size;
mod described;
mod doors;
mod edges;
mod events;
mod fleet;
mod gate;
mod hostile;
mod hub;
mod hub_cuts;
mod hub_doors;
mod hub_frames;
mod hub_promises;
mod hub_socket;
mod hub_waits;
mod jwt;
mod kit;
mod links;
mod nudges;
mod observed;
mod proxy;
mod runs;
mod s3;
mod s3_tools;
mod security;
mod signals;
mod tasks;
mod types;
mod upkeep;
