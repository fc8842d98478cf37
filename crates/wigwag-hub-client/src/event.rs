//! Events of a client's connection, registrations and messages.

use std::time::Duration;

use super::error::Error;

/// An event of the connection, a registration, or a message sent with [`tell`](crate::Client::tell).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A session with the hub started.
    Connected {
        /// The session's own address.
        address: String,
        /// Whether the earlier session was resumed, so that the hub still knows which asks it has answered.
        resumed: bool,
    },
    /// The connection ended. The client reconnects by itself.
    Disconnected {
        /// Why the connection ended.
        error: Error,
        /// Delay before the client reconnects.
        retry_in: Duration,
    },
    /// The client moves to another server, because the target of a message is connected there.
    Moved {
        /// URL of the other server.
        url: String,
    },
    /// An address is registered, for the first time or again.
    Registered {
        /// The registered address.
        address: String,
        /// Fencing token: it grows with each registration of the address by any client.
        version: u64,
    },
    /// The client lost an address, because it could not be registered again.
    Unregistered {
        /// The lost address.
        address: String,
        /// Why the registration failed.
        error: Error,
    },
    /// A message sent with [`tell`](crate::Client::tell) was rejected.
    Refused {
        /// Id of the message, if the hub could read it.
        id: Option<String>,
        /// Why the message was rejected.
        error: Error,
    },
    /// The hub applies backpressure: messages wait in the send buffer until [`Event::Resumed`] or a reconnect.
    Paused {
        /// Address of the slow target, if the hub names one.
        address: Option<String>,
    },
    /// The backpressure has ended and the client sends again.
    Resumed,
    /// The client has ended and does not reconnect: it was closed, another session registered its address,
    /// or the hub rejects it.
    Ended {
        /// Why the client ended.
        error: Error,
    },
}
