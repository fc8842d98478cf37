//! Received messages, with their acknowledgements and replies.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::{Stream, stream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::client::Client;
use super::error::{Error, Result};
use super::frame::Incoming;
use super::machine::Position;
use super::sending::{Receipt, Sending};

/// A message received from the hub.
///
/// If [`requires_ack`](Self::requires_ack) is true, call [`ack`](Self::ack) after processing the message: only then it
/// counts as delivered. The client acknowledges nothing by itself. After a message is dropped without an
/// acknowledgement, a redelivery by the hub reaches the application again.
#[derive(Debug)]
pub struct Message {
    client: Client,
    frame: Box<Incoming>,
    position: Option<Position>,
    is_settled: AtomicBool,
}

impl Message {
    pub(super) fn new(client: Client, frame: Incoming, position: Option<Position>) -> Self {
        Self { client, frame: Box::new(frame), position, is_settled: AtomicBool::new(false) }
    }

    /// Returns the hub's id of the message. The client delivers each id once. If the server crashes before it answers
    /// the sender, a repeat may arrive under another id, with the same sender and `originalMessageId`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.frame.id
    }

    /// Returns the sender's address, which the hub has verified.
    #[must_use]
    pub fn from(&self) -> &str {
        &self.frame.from
    }

    /// Returns the recipient: an address of this client, `@(broadcast)`, or `@(topic/NAME)`.
    #[must_use]
    pub fn to(&self) -> &str {
        &self.frame.to
    }

    /// Returns the message's type.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.frame.kind
    }

    /// Returns when the hub accepted the message, in milliseconds since 1970.
    #[must_use]
    pub fn timestamp(&self) -> u64 {
        self.frame.timestamp
    }

    /// Returns the data, decoded as `T`.
    ///
    /// # Errors
    ///
    /// Fails if the data does not decode as `T`.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(self.json()).map_err(|error| {
            Error::invalid(format!("the data of `{}` from `{}` cannot be decoded: {error}", self.kind(), self.from()))
        })
    }

    /// Returns the data as JSON text.
    #[must_use]
    pub fn json(&self) -> &str {
        RawValue::get(&self.frame.payload)
    }

    /// Returns a metadata value that the sender set; the hub adds `originalMessageId`.
    #[must_use]
    pub fn metadata(&self, name: &str) -> Option<&Value> {
        self.frame.metadata.as_ref()?.get(name)
    }

    /// Returns the position in the topic, if the message was published to a topic.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// Whether the sender waits for a [`reply`](Self::reply).
    #[must_use]
    pub fn expects_reply(&self) -> bool {
        self.frame.pattern == "ask"
    }

    /// Whether the sender waits for an [`ack`](Self::ack).
    #[must_use]
    pub fn requires_ack(&self) -> bool {
        self.frame.is_marked("requireAck")
    }

    /// Acknowledges the message as processed. Further calls do nothing.
    pub fn ack(&self) {
        if self.requires_ack() && !self.is_settled.swap(true, Ordering::SeqCst) {
            self.client.shared.note(|notes| notes.acknowledged.push(self.frame.id.clone()));
        }
    }

    /// Extends the deadline for [`ack`](Self::ack) or [`reply`](Self::reply) to 30 s from now. Call
    /// it as often as needed.
    pub fn progress(&self) {
        if self.requires_ack() || self.expects_reply() {
            self.client.shared.note(|notes| notes.progressed.push(self.frame.id.clone()));
        }
    }

    /// Replies to a [`request`](Client::request). A reply does not acknowledge the message.
    pub fn reply<T: Serialize + ?Sized>(&self, kind: &str, data: &T) -> Sending<'_, Receipt> {
        let sending = Sending::reply(&self.client, self, kind, data);
        match self.to() {
            "@(broadcast)" => sending,
            to => sending.from(to),
        }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if self.requires_ack() && !*self.is_settled.get_mut() {
            self.client.shared.note(|notes| notes.forgotten.push(std::mem::take(&mut self.frame.id)));
        }
    }
}

/// A receiver of the messages to a client's addresses, and of broadcasts.
#[derive(Clone, Debug)]
pub struct Messages(Client);

impl Messages {
    pub(super) fn new(client: Client) -> Self {
        Self(client)
    }

    /// Returns the next message; `None` once the client has ended.
    pub async fn next(&mut self) -> Option<Message> {
        let frame = self.0.shared.inbox.lock().await.recv().await?;
        Some(Message::new(self.0.clone(), frame, None))
    }

    /// Converts the receiver into a stream.
    pub fn into_stream(self) -> impl Stream<Item = Message> + Send {
        stream::unfold(self, |mut messages| async move { messages.next().await.map(|message| (message, messages)) })
    }
}
