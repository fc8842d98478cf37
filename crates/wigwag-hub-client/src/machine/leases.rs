//! Registrations of addresses, which are renewed after a third of their lease and repeated after a reconnect.

use std::time::Duration;

use serde_json::{Map, Value};

/// An address to register, with the capabilities and metadata that other clients can find.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) address: String,
    pub(crate) capabilities: Vec<String>,
    pub(crate) metadata: Map<String, Value>,
}

/// State of a registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The address is to be requested as soon as the connection allows.
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
    /// Receiver of the first answer.
    pub(super) waiter: Option<W>,
}

impl<W> Lease<W> {
    /// Whether the session owns the address.
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
