//! Messages that came, and what is owed for them.

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

/// A message that came.
///
/// If [`requires_ack`](Self::requires_ack), call [`ack`](Self::ack) once it is dealt with: only then it counts as delivered.
/// Nothing is acknowledged by itself. One that is dropped unacknowledged is given again if the hub sends it again.
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

    /// The hub's id for it. It is the same if it comes twice, and then it is given once. Only if the server was killed
    /// before the sender was answered may it come under another: it has the same sender and `originalMessageId`.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.frame.id
    }

    /// Who sent it; the hub has checked it.
    #[must_use]
    pub fn from(&self) -> &str {
        &self.frame.from
    }

    /// To whom: an address of this client, `@(broadcast)`, or `@(topic/NAME)`.
    #[must_use]
    pub fn to(&self) -> &str {
        &self.frame.to
    }

    /// What it is.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.frame.kind
    }

    /// When the hub took it, in milliseconds since 1970.
    #[must_use]
    pub fn timestamp(&self) -> u64 {
        self.frame.timestamp
    }

    /// What it carries, as the type it should be.
    ///
    /// # Errors
    ///
    /// If it is not of that type.
    pub fn data<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(self.json()).map_err(|error| {
            Error::invalid(format!("the data of `{}` from `{}` cannot be decoded: {error}", self.kind(), self.from()))
        })
    }

    /// What it carries, as JSON text.
    #[must_use]
    pub fn json(&self) -> &str {
        RawValue::get(&self.frame.payload)
    }

    /// Something that the sender wrote beside the data; the hub adds `originalMessageId`.
    #[must_use]
    pub fn metadata(&self, name: &str) -> Option<&Value> {
        self.frame.metadata.as_ref()?.get(name)
    }

    /// Where it stands in its topic.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.position
    }

    /// The sender waits for a [`reply`](Self::reply).
    #[must_use]
    pub fn expects_reply(&self) -> bool {
        self.frame.pattern == "ask"
    }

    /// The sender waits for an [`ack`](Self::ack).
    #[must_use]
    pub fn requires_ack(&self) -> bool {
        self.frame.is_marked("requireAck")
    }

    /// Says that it was dealt with. A second time does nothing.
    pub fn ack(&self) {
        if self.requires_ack() && !self.is_settled.swap(true, Ordering::SeqCst) {
            self.client.shared.note(|notes| notes.acknowledged.push(self.frame.id.clone()));
        }
    }

    /// Extends the deadline for [`ack`](Self::ack) or [`reply`](Self::reply) to 30 s from now. Call it as often as needed.
    pub fn progress(&self) {
        if self.requires_ack() || self.expects_reply() {
            self.client.shared.note(|notes| notes.progressed.push(self.frame.id.clone()));
        }
    }

    /// Answers whoever made a [`request`](Client::request). It does not acknowledge.
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

/// The messages to a client's addresses, and broadcasts.
#[derive(Clone, Debug)]
pub struct Messages(Client);

impl Messages {
    pub(super) fn new(client: Client) -> Self {
        Self(client)
    }

    /// The next message; `None` once the client has ended.
    pub async fn next(&mut self) -> Option<Message> {
        let frame = self.0.shared.inbox.lock().await.recv().await?;
        Some(Message::new(self.0.clone(), frame, None))
    }

    /// The same as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Message> + Send {
        stream::unfold(self, |mut messages| async move { messages.next().await.map(|message| (message, messages)) })
    }
}
