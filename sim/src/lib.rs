//! The real engine over a simulated store, clock and network, one thread, one seed.
//!
//! The guarantees are checked in `checks` and [`wigwag_core::audit`], one function each. Faults are in `store`
//! and `world`, the code of runs in `program`, `graphs` and `code`, the limits of a world in `bounds`. The same seed
//! gives the same trace, byte for byte.

pub mod bounds;
pub mod checks;
pub mod clock;
pub mod code;
pub mod graphs;
pub mod hub;
pub mod ledger;
pub mod notify;
pub mod options;
pub mod program;
pub mod store;
pub mod warnings;
pub mod watch;
pub mod world;

pub use hub::{HubOutcome, hub_totals, simulate_hub};
pub use options::{Ingredient, LimitsChoice, Options, shrink};
pub use world::{Counts, Outcome, simulate};
