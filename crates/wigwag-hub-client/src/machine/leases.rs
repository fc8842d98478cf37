//! Registrations: made, renewed at a third of their time, made again after a reconnect.

use std::time::Duration;

use serde_json::{Map, Value};

/// An address to be owned, and what others find under it.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) address: String,
    pub(crate) capabilities: Vec<String>,
    pub(crate) metadata: Map<String, Value>,
}

/// How far a registration is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is to be asked for as soon as that can be.
    Wanted,
    Asked,
    Held {
        token: String,
        renew_at: Duration,
    },
    Renewing,
}

#[derive(Debug)]
pub(super) struct Lease<W> {
    pub(super) registration: Registration,
    pub(super) state: State,
    /// Who waits for the first answer.
    pub(super) waiter: Option<W>,
}

impl<W> Lease<W> {
    /// The session owns the address.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.state, State::Held { .. } | State::Renewing)
    }

    pub(super) fn renew_at(&self) -> Option<Duration> {
        match self.state {
            State::Held { renew_at, .. } => Some(renew_at),
            _ => None,
        }
    }
}
