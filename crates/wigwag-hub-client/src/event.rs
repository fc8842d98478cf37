//! What happens to a client without being asked for.

use std::time::Duration;

use super::error::Error;

/// What happened to the connection, a registration, or a message that was told.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A session began.
    Connected {
        /// The session's own address.
        address: String,
        /// It is the one from before: the hub knows which asks it has answered.
        resumed: bool,
    },
    /// The connection ended. The client comes back by itself.
    Disconnected {
        /// Why.
        error: Error,
        /// When it tries again.
        retry_in: Duration,
    },
    /// The client moves to another server, because the target of a message is connected there.
    Moved {
        /// Where it is.
        url: String,
    },
    /// An address is registered, for the first time or again.
    Registered {
        /// Which.
        address: String,
        /// It grows with each registration of the address, whoever makes it: a fencing token.
        version: u64,
    },
    /// An address could not be registered again, and is not this client's any more.
    Unregistered {
        /// Which.
        address: String,
        /// Why.
        error: Error,
    },
    /// A message that was told, not asked, was refused.
    Refused {
        /// The id it was sent with, if the hub could read it.
        id: Option<String>,
        /// Why.
        error: Error,
    },
    /// The hub asked to send nothing until it says so; messages wait in the buffer.
    Paused {
        /// Whose messages are too many.
        address: Option<String>,
    },
    /// Sending goes on.
    Resumed,
    /// The client has ended, and does not come back: it was closed, taken over, or is not let in any more.
    Ended {
        /// Why.
        error: Error,
    },
}
