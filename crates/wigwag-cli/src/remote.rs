//! A server, asked over HTTP.
//!
//! Holds: only what may be done twice is sent twice. A request that creates carries a key, or the id of what it creates,
//! so that a repeat after a lost answer does nothing new; what has neither is repeated only if it never left.

mod api;
mod events;
mod http;

pub(crate) use http::{Remote, Token};
