//! A hub with a store and clients, for tests and the simulator, and the test vectors of `conformance/hub`.

mod vector;
mod world;

pub use vector::{Sockets, Vector};
pub use world::World;
