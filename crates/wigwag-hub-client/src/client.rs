//! The client handle: cheap to clone; each call sends a command to the driver task.

use std::collections::HashMap;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::Uri;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, TryAcquireError, broadcast, mpsc, oneshot};

use super::directory::{Actors, Find};
use super::driver::{Command, Driver, Sink, Tokens, Waiter, now};
use super::error::{Error, ErrorKind, Result};
use super::event::Event;
use super::frame::{self, Incoming, Pattern, raw, read};
use super::limits::INBOX_STRETCH;
use super::machine::{Call, Item, Machine, Position, Registration};
use super::messages::Message;
use super::messages::Messages;
use super::sending::{Published, Receipt, Sending, Sent};
use super::settings::Settings;
use super::shared::Shared;
use super::subscription::Subscribe;

/// A session with a hub that reconnects, renews registrations, resumes subscriptions and retries asks automatically.
///
/// Clones share one connection. It closes on [`Client::close`], or once all clones and the messages and subscriptions
/// received through them are dropped.
#[derive(Clone, Debug)]
pub struct Client {
    work: mpsc::Sender<Command>,
    pub(super) shared: Arc<Shared>,
}

/// Builder of a connection; `await` it to connect.
#[must_use = "a client connects only when this is awaited"]
pub struct Connect {
    url: String,
    tokens: Tokens,
    registrations: Vec<Registration>,
    settings: Settings,
}

impl std::fmt::Debug for Connect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Tokens are secrets and stay out of debug output.
        f.debug_struct("Connect").field("url", &self.url).field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Connect {
    /// Sets the token that authenticates the client.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        let token = token.into();
        self.tokens = Arc::new(move || Some(token.clone()));
        self
    }

    /// Sets a function that returns the token. It runs before each connection, so that an
    /// expired token can be replaced.
    pub fn token_from(mut self, tokens: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.tokens = Arc::new(tokens);
        self
    }

    /// Registers an address on connecting and again after each reconnect; other clients can find it by its
    /// capabilities. The first address is the default sender of messages.
    pub fn register<C: Into<String>>(
        mut self,
        address: impl Into<String>,
        capabilities: impl IntoIterator<Item = C>,
    ) -> Self {
        let capabilities = capabilities.into_iter().map(Into::into).collect();
        self.registrations.push(Registration { address: address.into(), capabilities, metadata: Map::new() });
        self
    }

    /// Replaces the default settings.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    async fn open(self) -> Result<Client> {
        self.settings.validate()?;
        for registration in &self.registrations {
            frame::address(&registration.address)?;
        }
        let url = url(&self.url)?;
        let (work, commands) = mpsc::channel(self.settings.buffer);
        let (inbox, messages) = mpsc::channel(self.settings.inbox * INBOX_STRETCH);
        let driver = Driver {
            home: url.clone(),
            url,
            tokens: self.tokens,
            machine: Machine::new(self.settings.clone(), fastrand::Rng::new(), now()),
            connect_timeout: self.settings.connect_timeout,
            shared: Arc::new(Shared::new(self.settings, messages)),
            work: commands,
            inbox,
            sinks: HashMap::new(),
            is_deserted: false,
        };
        let client = Client { work, shared: Arc::clone(&driver.shared) };
        tokio::spawn(driver.run());
        client.shared.first_session().await?;
        for registration in self.registrations {
            client.register_as(registration).await?;
        }
        Ok(client)
    }
}

impl IntoFuture for Connect {
    type Output = Result<Client>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Client>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}

pub(super) fn url(text: &str) -> Result<Uri> {
    let wrong = |why: &str| {
        Error::invalid(format!("invalid hub URL: `{text}`: {why}"))
            .hint("use a URL such as `ws://127.0.0.1:7070/hub`, or `wss://` for TLS")
    };
    let uri: Uri = text.parse().map_err(|error: http::uri::InvalidUri| wrong(&error.to_string()))?;
    match (uri.scheme_str(), uri.host()) {
        (Some("ws" | "wss"), Some(host)) if !host.is_empty() => Ok(uri),
        _ => Err(wrong("it must begin with `ws://` or `wss://` and a host")),
    }
}

/// A registered address and its lease.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Registered {
    /// The registered address.
    #[serde(rename = "actorAddress")]
    pub address: String,
    /// When the registration expires without renewal, in milliseconds since 1970. The client renews it in time.
    pub expires_at: u64,
    /// Fencing token: it grows with each registration of the address by any client.
    pub version: u64,
}

impl Client {
    /// Connects to a hub, such as `ws://127.0.0.1:7070/hub`. If the first connection fails, the call fails; later the
    /// client reconnects by itself unless the hub forbids it.
    pub fn connect(url: impl Into<String>) -> Connect {
        let tokens: Tokens = Arc::new(|| None);
        Connect { url: url.into(), tokens, registrations: Vec::new(), settings: Settings::default() }
    }

    /// Returns the session's own address, under which other clients reach it while the session lives.
    #[must_use]
    pub fn address(&self) -> String {
        self.shared.address().unwrap_or_default()
    }

    /// Sends a message without an answer, at most once. Completes once the message is in the send buffer.
    pub fn tell<T: Serialize + ?Sized>(&self, to: &str, kind: &str, data: &T) -> Sending<'_, ()> {
        Sending::told(self, to, kind, data)
    }

    /// Sends a message, with retries, until the hub reports its outcome. The hub drops
    /// the duplicates that retries cause.
    pub fn ask<T: Serialize + ?Sized>(&self, to: &str, kind: &str, data: &T) -> Sending<'_, Receipt> {
        Sending::ask(self, to, kind, data)
    }

    /// Sends a message and waits for the target's reply.
    pub fn request<T: Serialize + ?Sized>(&self, to: &str, kind: &str, data: &T) -> Sending<'_, Message> {
        Sending::request(self, to, kind, data)
    }

    /// Sends a message to all registered actors.
    pub fn broadcast<T: Serialize + ?Sized>(&self, kind: &str, data: &T) -> Sending<'_, Sent> {
        Sending::broadcast(self, kind, data)
    }

    /// Sends a message to all subscribers of a topic.
    pub fn publish<T: Serialize + ?Sized>(&self, topic: &str, kind: &str, data: &T) -> Sending<'_, Published> {
        Sending::publish(self, topic, kind, data)
    }

    /// Subscribes to the messages published to a topic from now on; the topic `run/RUN` starts at the
    /// beginning of the run's log.
    pub fn subscribe(&self, topic: &str) -> Subscribe<'_> {
        Subscribe::new(self, topic)
    }

    /// Returns a receiver of the messages to this client's addresses, and of broadcasts. With several receivers, each
    /// message goes to one of them. Before the first call, the client keeps messages only while the inbox has room.
    ///
    /// While the inbox is full, the client reads nothing from the connection, including answers. A handler that waits
    /// for answers should therefore run in a separate task, so that the receiver can continue with the next message.
    #[must_use]
    pub fn messages(&self) -> Messages {
        self.shared.is_taken.store(true, Ordering::SeqCst);
        Messages::new(self.clone())
    }

    /// Returns the events of the connection, including rejections of messages sent with [`tell`](Self::tell).
    #[must_use]
    pub fn events(&self) -> Events {
        Events { events: self.shared.events.subscribe(), is_over: false }
    }

    /// Registers an address, until it is unregistered or another session registers it.
    ///
    /// # Errors
    ///
    /// Fails if the address is invalid or the token does not allow it.
    pub async fn register<C: Into<String>>(
        &self,
        address: &str,
        capabilities: impl IntoIterator<Item = C>,
    ) -> Result<Registered> {
        let capabilities = capabilities.into_iter().map(Into::into).collect();
        self.register_as(Registration { address: address.to_owned(), capabilities, metadata: Map::new() }).await
    }

    /// Registers an address together with metadata that other clients can read.
    ///
    /// # Errors
    ///
    /// Fails if the address is invalid or the token does not allow it.
    pub async fn register_with(
        &self,
        address: &str,
        capabilities: Vec<String>,
        metadata: Map<String, Value>,
    ) -> Result<Registered> {
        self.register_as(Registration { address: address.to_owned(), capabilities, metadata }).await
    }

    async fn register_as(&self, registration: Registration) -> Result<Registered> {
        frame::address(&registration.address)?;
        let answer = self.answered(|waiter| Command::Register(registration, waiter)).await?;
        answer.payload()
    }

    /// Unregisters an address of this client.
    ///
    /// # Errors
    ///
    /// Fails if the address is not registered by this client.
    pub async fn unregister(&self, address: &str) -> Result<()> {
        frame::address(address)?;
        let call = self.call("hub:unregister", &json!({"actorAddress": address}))?;
        self.answered(|waiter| Command::Unregister(address.to_owned(), call, waiter)).await.map(drop)
    }

    /// Finds the registered actors whose addresses match a pattern, in which `*` matches any text.
    pub fn discover(&self, pattern: &str) -> Find<'_> {
        Find::new(self, Some(pattern))
    }

    /// Lists the registered actors that this client may send to, and its own addresses.
    pub fn actors(&self) -> Find<'_> {
        Find::new(self, None)
    }

    pub(super) async fn page(&self, kind: &'static str, payload: &Value) -> Result<Actors> {
        let answer = self.answered_call(self.call(kind, payload)?).await?;
        answer.payload()
    }

    /// Returns the hub's queue statistics as JSON: the lengths of queues, and the dropped messages by reason.
    ///
    /// # Errors
    ///
    /// Fails if the hub does not answer, or the token does not allow it.
    pub async fn queue_stats(&self) -> Result<Value> {
        self.answered_call(self.call("hub:queue_stats", &json!({}))?).await?.payload()
    }

    /// Returns the hub's throughput figures as JSON.
    ///
    /// # Errors
    ///
    /// Fails if the hub does not answer, or the token does not allow it.
    pub async fn metrics(&self) -> Result<Value> {
        self.answered_call(self.call("hub:metrics", &json!({}))?).await?.payload()
    }

    /// Sends the buffered messages, disconnects, and waits for the end. Calls that still wait for
    /// an answer fail with [`ErrorKind::Closed`].
    pub async fn close(&self) {
        self.shared.note(|notes| notes.is_closing = true);
        self.shared.ended().await;
    }

    /// Waits until the client has ended and returns the reason: it was closed, another session registered its address,
    /// or the hub rejects it.
    pub async fn closed(&self) -> Error {
        self.shared.ended().await
    }

    fn call(&self, kind: &'static str, payload: &Value) -> Result<Call> {
        Ok(Call {
            kind,
            id: self.shared.new_id(),
            pattern: Pattern::Ask,
            from: None,
            timestamp: now().wall,
            payload: raw(payload)?,
            metadata: Map::new(),
            ttl: None,
            reply: false,
            patience: Duration::ZERO,
        })
    }

    pub(super) async fn subscribed(
        &self,
        key: u64,
        topic: &str,
        after: Option<Position>,
        sink: Sink,
    ) -> Result<Position> {
        let topic = topic.to_owned();
        let answer = self.answered(|waiter| Command::Subscribe { key, topic, after, sink, waiter }).await?;
        read(&answer.kind, &answer.payload)
    }

    pub(super) fn sink(&self) -> (Sink, mpsc::Receiver<Item>) {
        let (items, taken) = mpsc::channel(self.shared.settings.topic_buffer);
        (Sink { items, is_behind: Arc::default() }, taken)
    }

    /// Waits for space in the send buffer, then queues the message.
    pub(super) async fn told(&self, call: Call) -> Result<()> {
        let waiter = Waiter { answer: None, room: self.room().await? };
        self.hand_over(Command::Tell(call, waiter))
    }

    /// Queues the message, or fails if the send buffer is full.
    pub(super) fn try_told(&self, call: Call) -> Result<()> {
        let room = match Arc::clone(&self.shared.room).try_acquire_owned() {
            Ok(room) => room,
            Err(TryAcquireError::Closed) => return Err(self.shared.error()),
            Err(TryAcquireError::NoPermits) => {
                let most = self.shared.settings.buffer;
                let what = format!("the send buffer is full: {most} messages wait to be sent or answered");
                return Err(Error::new(ErrorKind::BufferFull, what).hint("`await` it to wait for space, or drop it"));
            }
        };
        self.hand_over(Command::Tell(call, Waiter { answer: None, room }))
    }

    pub(super) async fn answered_call(&self, call: Call) -> Result<Incoming> {
        self.answered(|waiter| Command::Ask(call, waiter)).await
    }

    async fn answered(&self, command: impl FnOnce(Waiter) -> Command) -> Result<Incoming> {
        let (answer, answered) = oneshot::channel();
        let waiter = Waiter { answer: Some(answer), room: self.room().await? };
        self.hand_over(command(waiter))?;
        answered.await.unwrap_or_else(|_| Err(self.shared.error()))
    }

    async fn room(&self) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.shared.room).acquire_owned().await.map_err(|_| self.shared.error())
    }

    /// Queues a command for the driver. The channel has a slot for each permit of the send buffer, so it is never full.
    fn hand_over(&self, command: Command) -> Result<()> {
        self.work.try_send(command).map_err(|_| self.shared.error())
    }
}

/// A receiver of a client's events.
#[derive(Debug)]
pub struct Events {
    events: broadcast::Receiver<Event>,
    is_over: bool,
}

impl Events {
    /// Returns the next event; `None` after the last. A slow receiver misses the oldest events.
    pub async fn next(&mut self) -> Option<Event> {
        while !self.is_over {
            match self.events.recv().await {
                Ok(event) => return Some(self.seen(event)),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => break,
            }
        }
        None
    }

    /// Returns the next event if one has already happened, without waiting.
    pub fn try_next(&mut self) -> Option<Event> {
        loop {
            match self.events.try_recv() {
                Ok(event) => return Some(self.seen(event)),
                Err(broadcast::error::TryRecvError::Lagged(_)) => {}
                Err(_) => return None,
            }
        }
    }

    fn seen(&mut self, event: Event) -> Event {
        self.is_over = matches!(event, Event::Ended { .. });
        event
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_leads_to_a_hub_is_taken_for_an_address_of_one() {
        for good in ["ws://127.0.0.1:7070/hub", "wss://wigwag.example.com/hub", "ws://[::1]:7070/hub"] {
            url(good).unwrap();
        }
        for wrong in ["", "127.0.0.1:7070", "http://127.0.0.1:7070/hub", "ws://", "ws:///hub", "ftp://a/hub"] {
            let error = url(wrong).unwrap_err();
            assert!(error.advice().unwrap().contains("ws://127.0.0.1:7070/hub"), "{wrong}");
        }
    }
}
