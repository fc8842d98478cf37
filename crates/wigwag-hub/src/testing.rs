//! A hub with a store and clients around it, for tests and the simulator, and the vectors of `conformance/hub`.

mod vector;
mod world;

pub use vector::{Sockets, Vector};
pub use world::World;
