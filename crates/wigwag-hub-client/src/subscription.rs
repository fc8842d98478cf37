//! Subscriptions: the messages of a topic in order, with lost messages reported as gaps.

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use futures_util::Stream;
use tokio::sync::mpsc;

use super::client::Client;
use super::error::Result;
use super::frame;
use super::machine::{Gap, Item, Position};
use super::messages::Message;

/// Builder of a subscription; `await` it to subscribe.
#[must_use = "a subscription starts only when it is awaited"]
#[derive(Debug)]
pub struct Subscribe<'a> {
    client: &'a Client,
    topic: String,
    after: Option<Position>,
}

impl<'a> Subscribe<'a> {
    pub(super) fn new(client: &'a Client, topic: &str) -> Self {
        Self { client, topic: topic.to_owned(), after: None }
    }

    /// Starts right after this position, as far as the hub still has the messages.
    pub fn after(mut self, position: Position) -> Self {
        self.after = Some(position);
        self
    }

    async fn make(self) -> Result<Subscription> {
        frame::topic(&self.topic)?;
        let (sink, items) = self.client.sink();
        let is_behind = Arc::clone(&sink.is_behind);
        let key = self.client.shared.next_number();
        // A caller that stops waiting drops the guard, which ends the subscription.
        let guard = Dropped { client: self.client.clone(), key };
        let at = self.client.subscribed(key, &self.topic, self.after, sink).await?;
        // A subscription to a run starts at the beginning of its log.
        let first = if self.topic.starts_with("run/") { Position { seq: 0, ..at } } else { at };
        let position = self.after.unwrap_or(first);
        Ok(Subscription { topic: self.topic, position, items, is_behind, guard })
    }
}

impl<'a> IntoFuture for Subscribe<'a> {
    type Output = Result<Subscription>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<Subscription>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.make())
    }
}

/// An item of a subscription.
#[derive(Debug)]
#[non_exhaustive]
pub enum Delivery {
    /// A message published to the topic.
    Message(Message),
    /// Lost messages, which the hub no longer has.
    Gap(Gap),
    /// The hub ended the subscription for this reason, for example `ended` after the end of a run. No item follows.
    Ended(String),
}

/// A stream of the messages published to a topic. It survives reconnects and resumes at
/// its position. Dropping it unsubscribes.
#[derive(Debug)]
pub struct Subscription {
    topic: String,
    position: Position,
    items: mpsc::Receiver<Item>,
    is_behind: Arc<AtomicBool>,
    guard: Dropped,
}

impl Subscription {
    /// Returns the topic's name.
    #[must_use]
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Returns the position of the last received item, or the start. Another subscription can resume from it.
    #[must_use]
    pub fn position(&self) -> Position {
        self.position
    }

    /// Returns the next item; `None` once the client or the subscription has ended.
    pub async fn next(&mut self) -> Option<Delivery> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// Notifies the driver that there is space again, once the subscriber has received all buffered items.
    fn catch_up(&self) {
        if self.items.is_empty() && self.is_behind.swap(false, Ordering::SeqCst) {
            let key = self.guard.key;
            self.guard.client.shared.note(|notes| notes.caught_up.push(key));
        }
    }

    fn give(&mut self, item: Item) -> Delivery {
        match item {
            Item::Message(frame, at) => {
                self.position = at;
                Delivery::Message(Message::new(self.guard.client.clone(), frame, Some(at)))
            }
            Item::Gap(gap) => {
                self.position = Position { epoch: gap.epoch, seq: gap.to };
                Delivery::Gap(gap)
            }
            Item::End(why) => Delivery::Ended(why),
        }
    }
}

impl Stream for Subscription {
    type Item = Delivery;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let item = ready!(self.items.poll_recv(context));
        self.catch_up();
        Poll::Ready(item.map(|item| self.give(item)))
    }
}

/// Guard that ends the subscription when it is dropped.
#[derive(Debug)]
struct Dropped {
    client: Client,
    key: u64,
}

impl Drop for Dropped {
    fn drop(&mut self) {
        self.client.shared.note(|notes| notes.dropped.push(self.key));
    }
}
