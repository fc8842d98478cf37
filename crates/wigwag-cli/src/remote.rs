//! The HTTP client of a server.
//!
//! Holds: only idempotent requests are retried. A request that creates something carries an idempotency key, or the
//! id of the new object, so that a retry after a lost answer has no further effect; a request with neither is retried
//! only if it was never sent.

mod api;
mod events;
mod http;

pub use events::Events;
pub use http::{Remote, Request, Token, new_id, new_key};
