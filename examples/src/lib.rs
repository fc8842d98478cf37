//! Example workflows, one per module, each with a program of the same name.
//!
//! Their steps act on a simulated [`World`], so that the tests can observe them.

pub mod approval;
#[cfg(doctest)]
pub mod docs;
pub mod fan_out;
pub mod onboarding;
pub mod order_fulfilment;
mod place;
pub mod remote_worker;
mod world;

pub use place::Place;
pub use world::{Moment, Watch, World};
