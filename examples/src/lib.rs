//! Workflows to begin from, one to a module, each with a program of the same name.
//!
//! Their steps act on a [`World`] that is only pretended, so that the tests can watch it.

pub mod approval;
pub mod fan_out;
pub mod onboarding;
pub mod order_fulfilment;
mod place;
pub mod remote_worker;
mod world;

pub use place::Place;
pub use world::{Moment, Watch, World};
