//! A client of the hub: JSON messages between named actors, over WebSocket (feature `hub`).
//!
//! A hub is at `/hub` of a wigwag server. Whoever connects may own addresses such as `@(worker/a)`, and send to others:
//! one [`tell`](Client::tell) at most once, one [`ask`](Client::ask) until the hub says what became of it, one
//! [`request`](Client::request) until the target has replied; [`publish`](Client::publish) to all that
//! [`subscribe`](Client::subscribe) to a topic; [`broadcast`](Client::broadcast) to everybody.
//!
//! ```no_run
//! use wigwag::hub::Client;
//!
//! # async fn example() -> wigwag::hub::Result<()> {
//! let worker = Client::connect("ws://127.0.0.1:7070/hub").register("@(worker/a)", ["add"]).await?;
//! tokio::spawn(async move {
//!     let mut messages = worker.messages();
//!     while let Some(message) = messages.next().await {
//!         let (a, b): (i64, i64) = message.data()?;
//!         message.reply("sum", &(a + b)).await?;
//!     }
//!     Ok::<_, wigwag::hub::Error>(())
//! });
//!
//! let client = Client::connect("ws://127.0.0.1:7070/hub").await?;
//! let reply = client.request("@(worker/a)", "add", &(2, 3)).await?;
//! assert_eq!(reply.data::<i64>()?, 5);
//! client.close().await;
//! # Ok(()) }
//! ```
//!
//! What a client does by itself:
//!
//! - It comes back when the connection breaks, with waits that grow, unless the hub forbids it: a session whose address
//!   another one has registered ends, and [`Client::closed`] says so. Addresses are registered again before anything else is
//!   sent, and renewed in time; subscriptions go on where they were.
//! - An ask is repeated with the same id until it is answered, after a reconnect at once. The hub does it once.
//! - Messages that come twice are given once.
//! - If the hub says that it is too much, sending waits. What waits is bounded: beyond [`Settings::buffer`] sending waits for
//!   room, or fails with [`ErrorKind::BufferFull`] where it is [`Sending::try_send`].
//!
//! What it leaves to its user: a message that wants to be acknowledged is acknowledged by [`Message::ack`], and by nothing else.
//! A [`Gap`] says which messages of a topic are gone.

mod backoff;
mod client;
mod directory;
mod driver;
mod error;
mod event;
mod frame;
mod machine;
mod messages;
mod sending;
mod settings;
mod shared;
mod socket;
mod subscription;

pub use client::{Client, Connect, Events, Registered};
pub use directory::{Actor, Actors, Find};
pub use error::{Error, ErrorKind, Result};
pub use event::Event;
pub use machine::{Gap, Position};
pub use messages::{Message, Messages};
pub use sending::{Published, Receipt, Sending, Sent, Status};
pub use settings::Settings;
pub use subscription::{Delivery, Subscribe, Subscription};
