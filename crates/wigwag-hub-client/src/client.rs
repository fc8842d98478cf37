//! The handle in front: cheap to clone, each call a message to the loop behind it.

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

/// A session with a hub, kept up: it reconnects, registers, subscribes and repeats by itself.
///
/// Clones share one connection. It closes with [`Client::close`], or when the last clone is dropped, with everything
/// that was made from them.
#[derive(Clone, Debug)]
pub struct Client {
    work: mpsc::Sender<Command>,
    pub(super) shared: Arc<Shared>,
}

/// A connection to be made; `await` it.
#[must_use = "it connects when it is awaited"]
pub struct Connect {
    url: String,
    tokens: Tokens,
    registrations: Vec<Registration>,
    settings: Settings,
}

impl std::fmt::Debug for Connect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Tokens are nobody's to see.
        f.debug_struct("Connect").field("url", &self.url).field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Connect {
    /// The token that the server wants.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        let token = token.into();
        self.tokens = Arc::new(move || Some(token.clone()));
        self
    }

    /// Where tokens come from, asked for each connection: one that has run out is replaced so.
    pub fn token_from(mut self, tokens: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        self.tokens = Arc::new(tokens);
        self
    }

    /// Owns an address from the start, and again after each reconnect; others find it by its capabilities. The first
    /// address is the sender of what is sent without another.
    pub fn register<C: Into<String>>(
        mut self,
        address: impl Into<String>,
        capabilities: impl IntoIterator<Item = C>,
    ) -> Self {
        let capabilities = capabilities.into_iter().map(Into::into).collect();
        self.registrations.push(Registration { address: address.into(), capabilities, metadata: Map::new() });
        self
    }

    /// How it behaves.
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
        _ => Err(wrong("it begins with `ws://` or `wss://` and a host")),
    }
}

/// An address that is owned.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Registered {
    /// Which.
    #[serde(rename = "actorAddress")]
    pub address: String,
    /// Until when it holds without renewal, in milliseconds since 1970. The client renews it in time.
    pub expires_at: u64,
    /// It grows with each registration of the address, whoever makes it: a fencing token.
    pub version: u64,
}

impl Client {
    /// Connects to a hub, such as `ws://127.0.0.1:7070/hub`. A first connection that fails is told; later ones are made
    /// again for as long as the hub does not forbid it.
    pub fn connect(url: impl Into<String>) -> Connect {
        let tokens: Tokens = Arc::new(|| None);
        Connect { url: url.into(), tokens, registrations: Vec::new(), settings: Settings::default() }
    }

    /// The session's own address, under which it can be reached while it lives.
    #[must_use]
    pub fn address(&self) -> String {
        self.shared.address().unwrap_or_default()
    }

    /// Sends a message that is not answered: it arrives at most once. Done when it is in the send buffer.
    pub fn tell<T: Serialize + ?Sized>(&self, to: &str, kind: &str, data: &T) -> Sending<'_, ()> {
        Sending::told(self, to, kind, data)
    }

    /// Sends a message until the hub says what became of it: it arrives at least once, and the hub sees to it that it
    /// is once.
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

    /// Sends a message to whoever is subscribed to a topic.
    pub fn publish<T: Serialize + ?Sized>(&self, topic: &str, kind: &str, data: &T) -> Sending<'_, Published> {
        Sending::publish(self, topic, kind, data)
    }

    /// Takes what is published to a topic from now on; of `run/RUN`, the run's log from its beginning.
    pub fn subscribe(&self, topic: &str) -> Subscribe<'_> {
        Subscribe::new(self, topic)
    }

    /// Takes the messages to this client's addresses, and broadcasts. Several may take: each message goes to one of
    /// them. Until this is called for the first time, messages are kept as far as the inbox has room.
    ///
    /// Once the inbox is full nothing more is read, answers neither. Whoever asks others while it handles a message should do
    /// so in a task of its own, and take the next message meanwhile.
    #[must_use]
    pub fn messages(&self) -> Messages {
        self.shared.is_taken.store(true, Ordering::SeqCst);
        Messages::new(self.clone())
    }

    /// Takes what happens to the connection, and to what was told.
    #[must_use]
    pub fn events(&self) -> Events {
        Events { events: self.shared.events.subscribe(), is_over: false }
    }

    /// Owns an address, until it is unregistered or taken over.
    ///
    /// # Errors
    ///
    /// If it is no address, or the token does not allow it.
    pub async fn register<C: Into<String>>(
        &self,
        address: &str,
        capabilities: impl IntoIterator<Item = C>,
    ) -> Result<Registered> {
        let capabilities = capabilities.into_iter().map(Into::into).collect();
        self.register_as(Registration { address: address.to_owned(), capabilities, metadata: Map::new() }).await
    }

    /// The same, with something for others to read.
    ///
    /// # Errors
    ///
    /// If it is no address, or the token does not allow it.
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

    /// Owns an address no more.
    ///
    /// # Errors
    ///
    /// If it was not this client's.
    pub async fn unregister(&self, address: &str) -> Result<()> {
        frame::address(address)?;
        let call = self.call("hub:unregister", &json!({"actorAddress": address}))?;
        self.answered(|waiter| Command::Unregister(address.to_owned(), call, waiter)).await.map(drop)
    }

    /// The registered actors whose addresses match a pattern, in which `*` stands for anything.
    pub fn discover(&self, pattern: &str) -> Find<'_> {
        Find::new(self, Some(pattern))
    }

    /// All registered actors that this client may send to, and its own.
    pub fn actors(&self) -> Find<'_> {
        Find::new(self, None)
    }

    pub(super) async fn page(&self, kind: &'static str, payload: &Value) -> Result<Actors> {
        let answer = self.answered_call(self.call(kind, payload)?).await?;
        answer.payload()
    }

    /// What waits where, and what was dropped and why: figures of the hub, as JSON.
    ///
    /// # Errors
    ///
    /// If the hub does not answer, or the token does not allow it.
    pub async fn queue_stats(&self) -> Result<Value> {
        self.answered_call(self.call("hub:queue_stats", &json!({}))?).await?.payload()
    }

    /// How much goes through the hub, as JSON.
    ///
    /// # Errors
    ///
    /// If the hub does not answer, or the token does not allow it.
    pub async fn metrics(&self) -> Result<Value> {
        self.answered_call(self.call("hub:metrics", &json!({}))?).await?.payload()
    }

    /// Sends what waits in the buffer, says good-bye, and ends. Whoever waits for an answer is told that it is closed.
    pub async fn close(&self) {
        self.shared.note(|notes| notes.is_closing = true);
        self.shared.ended().await;
    }

    /// Waits until the client has ended, and says why: it was closed, taken over, or is not let in any more.
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

    /// Waits for room in the buffer, and hands the message over.
    pub(super) async fn told(&self, call: Call) -> Result<()> {
        let waiter = Waiter { answer: None, room: self.room().await? };
        self.hand_over(Command::Tell(call, waiter))
    }

    /// Hands the message over if there is room.
    pub(super) fn try_told(&self, call: Call) -> Result<()> {
        let room = match Arc::clone(&self.shared.room).try_acquire_owned() {
            Ok(room) => room,
            Err(TryAcquireError::Closed) => return Err(self.shared.error()),
            Err(TryAcquireError::NoPermits) => {
                let most = self.shared.settings.buffer;
                let what = format!("the send buffer is full: {most} messages wait to be sent or answered");
                return Err(Error::new(ErrorKind::BufferFull, what).hint("`await` it to wait for room, or drop it"));
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

    /// There is a place in the channel for whoever has room in the buffer.
    fn hand_over(&self, command: Command) -> Result<()> {
        self.work.try_send(command).map_err(|_| self.shared.error())
    }
}

/// What happens to a client without being asked for.
#[derive(Debug)]
pub struct Events {
    events: broadcast::Receiver<Event>,
    is_over: bool,
}

impl Events {
    /// The next event; `None` after the last. Whoever does not keep up misses the oldest.
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

    /// An event that has happened already, if there is one.
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
