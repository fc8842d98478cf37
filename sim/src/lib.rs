//! The real engine over a simulated store, clock and network, one thread, one seed.
//!
//! What must hold is in `checks` and in [`wigwag_core::audit`], one function per promise; what goes wrong in `store`
//! and `world`; what the runs do in `workload`. The same seed gives the same trace, byte for byte.

pub mod checks;
pub mod clock;
pub mod hub;
pub mod options;
pub mod store;
pub mod watch;
pub mod workload;
pub mod world;

pub use hub::{HubOutcome, hub_totals, simulate_hub};
pub use options::{Ingredient, Options, shrink};
pub use world::{Counts, Outcome, simulate};
