//! Outgoing messages and their outcomes.

use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::client::Client;
use super::driver::now;
use super::error::{Error, Result};
use super::frame::{self, Incoming, Pattern, null, raw};
use super::machine::{Call, Position};
use super::messages::Message;
use crate::limits::{ANSWER_SLACK, TTL, TTL_MAX};

/// A message to send; `await` it. `T` is the result: the hub's [`Receipt`], the target's reply as a [`Message`], the
/// outcome of a publication ([`Published`]) or of a broadcast ([`Sent`]), or nothing.
#[must_use = "a message is sent only when it is awaited"]
#[derive(Debug)]
pub struct Sending<'a, T> {
    client: &'a Client,
    draft: Draft,
    read: fn(&Client, Incoming) -> Result<T>,
}

/// A message under construction, possibly with a validation error.
#[derive(Debug)]
struct Draft {
    frame: &'static str,
    pattern: Pattern,
    body: Body,
    data: Result<Box<RawValue>>,
    wrong: Option<Error>,
    id: Option<String>,
    from: Option<String>,
    ttl: Option<Duration>,
    metadata: Map<String, Value>,
    is_acknowledged: bool,
}

/// Payload of the frame; absent fields are omitted.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Body {
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_reply_to: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Inner>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    expect_reply: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    exclude_self: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    capability: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
struct Inner {
    #[serde(rename = "type")]
    kind: String,
    payload: Box<RawValue>,
}

/// Outcome of a direct message.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Receipt {
    /// Id of the message.
    #[serde(default)]
    pub message_id: String,
    /// When the hub delivered the message, in milliseconds since 1970 by the hub's clock.
    #[serde(default)]
    pub delivered_at: Option<u64>,
    /// Whether the hub delivered or queued the message.
    pub status: Status,
}

/// Delivery status of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// The hub wrote the message to the target's connection. With [`Sending::require_ack`](Sending#method.require_ack),
    /// the target also acknowledged it.
    Delivered,
    /// The target is disconnected and receives the message when it reconnects. If the target is a run, the signal is
    /// stored, and the run does not wait for it yet.
    Queued,
}

/// Outcome of a message to a topic.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Published {
    /// The topic's name.
    pub topic: String,
    /// Position of the message in the topic.
    #[serde(flatten)]
    pub position: Position,
    /// Number of current subscribers.
    pub subscriber_count: u64,
}

/// Outcome of a broadcast.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Sent {
    /// The broadcast's id.
    #[serde(default)]
    pub message_id: String,
    /// Number of connections that the hub handed the broadcast to.
    pub delivered_count: u64,
    /// Number of these connections for which the broadcast is still queued, because they read slowly.
    pub queued_count: u64,
    /// Number of connections that missed the broadcast, because they read too slowly.
    pub failed_count: u64,
}

impl Body {
    fn direct(to: &str, kind: &str) -> Self {
        Self { to: Some(to.to_owned()), kind: Some(kind.to_owned()), ..Self::default() }
    }
}

impl Draft {
    fn new<T: Serialize + ?Sized>(frame: &'static str, body: Body, data: &T) -> Self {
        Self {
            frame,
            pattern: Pattern::Ask,
            body,
            data: raw(data),
            wrong: None,
            id: None,
            from: None,
            ttl: None,
            metadata: Map::new(),
            is_acknowledged: false,
        }
    }

    /// Returns the call to send, or the first validation error.
    fn into_call(self, client: &Client) -> Result<Call> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let mut body = self.body;
        let reply = body.expect_reply;
        match &mut body.message {
            Some(message) => message.payload = self.data?,
            None => body.data = Some(self.data?),
        }
        let waits = reply || self.is_acknowledged;
        let ttl = self.ttl.unwrap_or(TTL).min(TTL_MAX);
        Ok(Call {
            kind: self.frame,
            id: self.id.unwrap_or_else(|| client.shared.new_id()),
            pattern: self.pattern,
            from: self.from,
            timestamp: now().wall,
            payload: raw(&body)?,
            metadata: self.metadata,
            ttl: self.ttl.map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            reply,
            patience: if waits { ttl + ANSWER_SLACK } else { Duration::ZERO },
        })
    }
}

impl<'a, T> Sending<'a, T> {
    /// Records the first validation error.
    fn check(mut self, checked: Result<()>) -> Self {
        self.draft.wrong = self.draft.wrong.or(checked.err());
        self
    }

    /// Sets the id of the message; a repeat with the same id takes effect once. By default, the client generates an id.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        let id = id.into();
        let checked = frame::id(&id);
        self.draft.id = Some(id);
        self.check(checked)
    }

    /// Sets the sender, one of this client's addresses. The default is the first registered address, or else
    /// the session's own address.
    pub fn from(mut self, address: impl Into<String>) -> Self {
        let address = address.into();
        let checked = frame::address(&address);
        self.draft.from = Some(address);
        self.check(checked)
    }

    /// Sets the time to live, after which the hub no longer delivers the message. It also limits the wait for a reply
    /// or an acknowledgement: 30 s by default, 300 s at most.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.draft.ttl = Some(ttl);
        self
    }

    /// Adds a metadata value for the target, such as `traceId`.
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.draft.metadata.insert(name.into(), value.into());
        self
    }

    /// Converts the message to a tell, which does not wait for an answer.
    fn into_tell(mut self) -> Sending<'a, ()> {
        self.draft.pattern = Pattern::Tell;
        Sending { client: self.client, draft: self.draft, read: |_, _| Ok(()) }
    }

    fn acknowledged(mut self) -> Self {
        self.draft.is_acknowledged = true;
        self.metadata("requireAck", true)
    }
}

impl<'a> Sending<'a, ()> {
    pub(super) fn told<D: Serialize + ?Sized>(client: &'a Client, to: &str, kind: &str, data: &D) -> Self {
        Sending::ask(client, to, kind, data).into_tell()
    }

    /// Queues the message for a disconnected target until it reconnects, like an ask.
    pub fn queue(self) -> Self {
        self.metadata("queue", true)
    }

    /// Sends the message without waiting for space in the send buffer.
    ///
    /// # Errors
    ///
    /// Fails with [`BufferFull`](super::ErrorKind::BufferFull) if the send buffer is full.
    pub fn try_send(self) -> Result<()> {
        let call = self.draft.into_call(self.client)?;
        self.client.try_told(call)
    }
}

impl<'a> Sending<'a, Receipt> {
    pub(super) fn ask<D: Serialize + ?Sized>(client: &'a Client, to: &str, kind: &str, data: &D) -> Self {
        let draft = Draft::new("hub:send", Body::direct(to, kind), data);
        Self { client, draft, read: |_, answer| answer.payload() }.check(frame::address(to))
    }

    pub(super) fn reply<D: Serialize + ?Sized>(client: &'a Client, to: &Message, kind: &str, data: &D) -> Self {
        let body = Body { in_reply_to: Some(to.id().to_owned()), kind: Some(kind.to_owned()), ..Body::default() };
        let draft = Draft::new("hub:reply", body, data);
        let nobody = || {
            Error::invalid(format!("no reply is expected to `{}`", to.id()))
                .hint("the sender waits only if it made a request")
        };
        let checked = if to.expects_reply() { Ok(()) } else { Err(nobody()) };
        Self { client, draft, read: |_, answer| answer.payload() }.check(checked)
    }

    /// Counts the message as delivered only once the target has acknowledged it: see [`Message::ack`].
    pub fn require_ack(self) -> Self {
        self.acknowledged()
    }
}

impl<'a> Sending<'a, Message> {
    pub(super) fn request<D: Serialize + ?Sized>(client: &'a Client, to: &str, kind: &str, data: &D) -> Self {
        let draft = Draft::new("hub:send", Body { expect_reply: true, ..Body::direct(to, kind) }, data);
        let read = |client: &Client, answer| Ok(Message::new(client.clone(), answer, None));
        Self { client, draft, read }.check(frame::address(to))
    }

    /// Requires an acknowledgement by the target in addition to the reply: see [`Message::ack`].
    pub fn require_ack(self) -> Self {
        self.acknowledged()
    }
}

impl<'a> Sending<'a, Published> {
    pub(super) fn publish<D: Serialize + ?Sized>(client: &'a Client, topic: &str, kind: &str, data: &D) -> Self {
        let body = Body { topic: Some(topic.to_owned()), kind: Some(kind.to_owned()), ..Body::default() };
        let draft = Draft::new("hub:publish", body, data);
        Self { client, draft, read: |_, answer| answer.payload() }.check(frame::topic(topic))
    }

    /// Sends without waiting for the hub's answer: at most once.
    pub fn tell(self) -> Sending<'a, ()> {
        self.into_tell()
    }
}

impl<'a> Sending<'a, Sent> {
    pub(super) fn broadcast<D: Serialize + ?Sized>(client: &'a Client, kind: &str, data: &D) -> Self {
        let message = Inner { kind: kind.to_owned(), payload: null() };
        let draft = Draft::new("hub:broadcast", Body { message: Some(message), ..Body::default() }, data);
        Self { client, draft, read: |_, answer| answer.payload() }
    }

    /// Excludes this client's own addresses from the broadcast.
    pub fn exclude_self(mut self) -> Self {
        self.draft.body.exclude_self = true;
        self
    }

    /// Restricts the broadcast to actors with this capability.
    pub fn capability(mut self, name: impl Into<String>) -> Self {
        self.draft.body.capability = Some(name.into());
        self
    }

    /// Sends without waiting for the hub's answer: at most once.
    pub fn tell(self) -> Sending<'a, ()> {
        self.into_tell()
    }
}

impl<'a, T: 'a> IntoFuture for Sending<'a, T> {
    type Output = Result<T>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<T>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        let Self { client, draft, read } = self;
        Box::pin(async move {
            let call = draft.into_call(client)?;
            let answer = match call.pattern {
                Pattern::Ask => client.answered_call(call).await?,
                Pattern::Tell => {
                    client.told(call).await?;
                    Incoming::nothing()
                }
            };
            read(client, answer)
        })
    }
}
