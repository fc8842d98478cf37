//! A client of the hub: JSON messages between named actors, over WebSocket.
//!
//! A wigwag server serves its hub at `/hub`. A client registers addresses such as `@(worker/a)`, and sends messages to
//! other addresses: [`tell`](Client::tell) sends at most once, [`ask`](Client::ask) retries until the hub confirms the
//! outcome, and [`request`](Client::request) waits for the target's reply. A client can also
//! [`publish`](Client::publish) to the [subscribers](Client::subscribe) of a topic, and
//! [`broadcast`](Client::broadcast) to all sessions.
//!
//! ```no_run
//! use wigwag_hub_client::Client;
//!
//! # async fn example() -> wigwag_hub_client::Result<()> {
//! let worker = Client::connect("ws://127.0.0.1:7070/hub").register("@(worker/a)", ["add"]).await?;
//! tokio::spawn(async move {
//!     let mut messages = worker.messages();
//!     while let Some(message) = messages.next().await {
//!         let (a, b): (i64, i64) = message.data()?;
//!         message.reply("sum", &(a + b)).await?;
//!     }
//!     Ok::<_, wigwag_hub_client::Error>(())
//! });
//!
//! let client = Client::connect("ws://127.0.0.1:7070/hub").await?;
//! let reply = client.request("@(worker/a)", "add", &(2, 3)).await?;
//! assert_eq!(reply.data::<i64>()?, 5);
//! client.close().await;
//! # Ok(()) }
//! ```
//!
//! Automatic behaviour of a client:
//!
//! - It reconnects with increasing delays when the connection breaks, unless the hub forbids it: a session whose
//!   address was registered by another one ends, and [`Client::closed`] returns the reason. Addresses are registered
//!   again before anything else is sent, and renewed in time; subscriptions resume at their position.
//! - An ask is repeated with the same id until it is answered, immediately after a reconnect. The hub processes it once.
//! - Duplicate messages are delivered once.
//! - If the hub signals backpressure, sending waits. The buffer is bounded: beyond [`Settings::buffer`] sending waits
//!   for space, or fails with [`ErrorKind::BufferFull`] for [`Sending::try_send`].
//!
//! Left to the caller: only [`Message::ack`] acknowledges a message that needs an acknowledgement. The caller also
//! handles each [`Gap`], which reports lost messages of a topic.

mod backoff;
mod client;
mod directory;
mod driver;
mod error;
mod event;
mod frame;
mod limits;
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
