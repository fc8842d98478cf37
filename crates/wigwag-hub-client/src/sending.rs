//! Messages to be sent: what they say, to whom, and what is waited for.

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

/// A message to be sent; `await` it. `T` is what is waited for: a [`Receipt`] of the hub, the [`Message`] that is the
/// target's reply, what became of it in a topic ([`Published`]) or of a broadcast ([`Sent`]), or nothing.
#[must_use = "it is sent when it is awaited"]
#[derive(Debug)]
pub struct Sending<'a, T> {
    client: &'a Client,
    draft: Draft,
    read: fn(&Client, Incoming) -> Result<T>,
}

/// A message as far as it is known.
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

/// The payload as the protocol has it; what is absent is left out.
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

/// What became of a message.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Receipt {
    /// The id it was sent with.
    #[serde(default)]
    pub message_id: String,
    /// When, in milliseconds since 1970 by the hub's clock.
    #[serde(default)]
    pub delivered_at: Option<u64>,
    /// Whether it is there.
    pub status: Status,
}

/// Whether a message is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    /// It was written to the target's connection; with [`Sending::require_ack`](Sending#method.require_ack), the target has dealt with it.
    Delivered,
    /// The target is away; it gets it when it comes back. A run has it, and does not wait for it yet.
    Queued,
}

/// What became of a message to a topic.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Published {
    /// Which topic.
    pub topic: String,
    /// Where in the topic it stands.
    #[serde(flatten)]
    pub position: Position,
    /// How many get it now.
    pub subscriber_count: u64,
}

/// What became of a broadcast.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Sent {
    /// The broadcast's id.
    #[serde(default)]
    pub message_id: String,
    /// To how many connections it was handed.
    pub delivered_count: u64,
    /// To how many of these it has yet to be written, since they are behind.
    pub queued_count: u64,
    /// How many did not get it, since they read too slowly.
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

    /// The frame that it becomes, or what is wrong with it.
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
    /// Remembers the first thing that is wrong.
    fn check(mut self, checked: Result<()>) -> Self {
        self.draft.wrong = self.draft.wrong.or(checked.err());
        self
    }

    /// The id of the message: what is sent again with the same is done once. Else one is made.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        let id = id.into();
        let checked = frame::id(&id);
        self.draft.id = Some(id);
        self.check(checked)
    }

    /// Which of this client's addresses sends it. Else it is the one that was registered first, or the session's own.
    pub fn from(mut self, address: impl Into<String>) -> Self {
        let address = address.into();
        let checked = frame::address(&address);
        self.draft.from = Some(address);
        self.check(checked)
    }

    /// After this it is not delivered any more. For a reply or an acknowledgement it is how long is waited: else 30 s,
    /// 300 s at most.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.draft.ttl = Some(ttl);
        self
    }

    /// Something beside the data that the target can read, such as `traceId`.
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.draft.metadata.insert(name.into(), value.into());
        self
    }

    /// The same without waiting for an answer.
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

    /// If the target is away it is kept until that comes back, as an ask is.
    pub fn queue(self) -> Self {
        self.metadata("queue", true)
    }

    /// Sends it if there is room in the send buffer, instead of waiting for room.
    ///
    /// # Errors
    ///
    /// [`BufferFull`](super::ErrorKind::BufferFull) if there is none.
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

    /// It counts as delivered only when the target has acknowledged it: see [`Message::ack`].
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

    /// The target is to acknowledge it too: see [`Message::ack`].
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

    /// Without waiting for the hub's answer: at most once.
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

    /// Not to this client's own addresses.
    pub fn exclude_self(mut self) -> Self {
        self.draft.body.exclude_self = true;
        self
    }

    /// Only to actors that name this capability.
    pub fn capability(mut self, name: impl Into<String>) -> Self {
        self.draft.body.capability = Some(name.into());
        self
    }

    /// Without waiting for the hub's answer: at most once.
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
