//! The driver: the task behind a client, which owns the socket and the state machine
//! and executes the machine's outputs.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Uri;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use wigwag_store::{Clock as _, System};

use super::error::{Error, Result};
use super::event::Event;
use super::frame::Incoming;
use super::machine::{Call, Item, Lost, Machine, Now, Output, Phase, Position, Registration};
use super::shared::{Notes, Shared};
use super::socket::{Socket, Turn};
use crate::limits::{FINISH_TIMEOUT, FRAMES_PER_TURN, HOME_AFTER_FAILURES};

/// A request from a client handle to the driver.
#[derive(Debug)]
pub(super) enum Command {
    Tell(Call, Waiter),
    Ask(Call, Waiter),
    Register(Registration, Waiter),
    Unregister(String, Call, Waiter),
    Subscribe { key: u64, topic: String, after: Option<Position>, sink: Sink, waiter: Waiter },
}

/// The receiver of a call's answer, and the send buffer permit that the call holds until then.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) answer: Option<oneshot::Sender<Result<Incoming>>>,
    pub(super) room: OwnedSemaphorePermit,
}

/// The channel to a subscription.
#[derive(Debug)]
pub(super) struct Sink {
    pub(super) items: mpsc::Sender<Item>,
    /// Whether the subscriber is too slow; the subscriber clears it once it has caught up.
    pub(super) is_behind: Arc<AtomicBool>,
}

/// Source of tokens, called before each connection.
pub(super) type Tokens = Arc<dyn Fn() -> Option<String> + Send + Sync>;

type Opening = Pin<Box<dyn Future<Output = Result<Socket, Lost>> + Send>>;

/// The socket to the hub, if there is one.
enum Link {
    None,
    Opening(Opening),
    Open(Box<Socket>),
}

/// Progress of the link.
enum Moved {
    Opened(Box<Socket>),
    Turn(Turn),
}

pub(super) struct Driver {
    pub(super) url: Uri,
    /// The server that the client was created for.
    pub(super) home: Uri,
    pub(super) tokens: Tokens,
    pub(super) machine: Machine<Waiter>,
    pub(super) shared: Arc<Shared>,
    pub(super) work: mpsc::Receiver<Command>,
    pub(super) inbox: mpsc::Sender<Incoming>,
    pub(super) sinks: HashMap<u64, Sink>,
    pub(super) connect_timeout: Duration,
    pub(super) is_deserted: bool,
}

pub(super) fn now() -> Now {
    Now { boot: System.boot(), wall: System.wall().micros() / 1_000 }
}

impl Driver {
    pub(super) async fn run(mut self) {
        let mut link = Link::None;
        let error = loop {
            self.take_notes();
            self.take_work();
            self.hand_out();
            match self.machine.phase() {
                Phase::Ended(error) => break error.clone(),
                Phase::Down { .. } => link = Link::None,
                Phase::Dialing if matches!(link, Link::None) => {
                    link = self.dial();
                    continue;
                }
                _ => {}
            }
            self.step(&mut link).await;
        };
        self.shared.end(error);
        if let Link::Open(socket) = link {
            let _ = tokio::time::timeout(FINISH_TIMEOUT, socket.finish()).await;
        }
    }

    /// Waits for the first of: socket progress, a note, a command, space in the inbox, a deadline.
    async fn step(&mut self, link: &mut Link) {
        let may_read = self.may_read();
        let now_is = now();
        let deadline = self.machine.deadline(now_is);
        let wait = deadline.map(|deadline| deadline.saturating_sub(now_is.boot));
        let attention = Arc::clone(&self.shared);
        tokio::select! {
            biased;
            moved = turn(link, &mut self.machine, may_read) => self.moved(moved, link),
            () = attention.attention.notified() => {}
            command = self.work.recv(), if !self.is_deserted => match command {
                Some(command) => self.command(command),
                None => {
                    self.is_deserted = true;
                    self.machine.close();
                }
            },
            // The application received a message, so the inbox may have space again.
            () = room(&self.inbox, self.shared.inbox_soft), if !may_read => {}
            () = System.sleep(wait.unwrap_or_default()), if wait.is_some() => self.machine.tick(now()),
        }
    }

    fn dial(&mut self) -> Link {
        // The other server may be gone; the first server knows where the targets are now.
        if self.machine.tries() >= HOME_AFTER_FAILURES {
            self.url.clone_from(&self.home);
        }
        let token = (self.tokens)();
        self.machine.dial(token.clone());
        let (url, span) = (self.url.clone(), self.connect_timeout);
        Link::Opening(Box::pin(async move {
            let late = Lost { code: None, what: format!("`{url}` did not answer within {span:?}") };
            tokio::time::timeout(span, Socket::open(url, token)).await.unwrap_or(Err(late))
        }))
    }

    fn moved(&mut self, moved: Moved, link: &mut Link) {
        match moved {
            Moved::Opened(socket) => {
                *link = Link::Open(socket);
                self.machine.opened(now());
            }
            Moved::Turn(Turn::Text(message)) => {
                if let Some(text) = message.as_text() {
                    self.machine.frame(text, now());
                }
            }
            Moved::Turn(Turn::Moved) => {}
            Moved::Turn(Turn::Lost(lost)) => {
                if !matches!(link, Link::Open(_)) {
                    *link = Link::None;
                }
                self.machine.broke(lost, now());
            }
        }
    }

    fn take_work(&mut self) {
        for _ in 0..FRAMES_PER_TURN {
            let Ok(command) = self.work.try_recv() else { break };
            self.command(command);
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Tell(call, waiter) => self.machine.tell(call, waiter),
            Command::Ask(call, waiter) => self.machine.ask(call, waiter, now()),
            Command::Register(registration, waiter) => self.machine.register(registration, waiter, now()),
            Command::Unregister(address, call, waiter) => {
                self.machine.disown(&address);
                self.machine.ask(call, waiter, now());
            }
            Command::Subscribe { sink, .. } if sink.items.is_closed() => {}
            Command::Subscribe { key, topic, after, sink, waiter } => {
                // An earlier subscription to the same topic may have been dropped just now.
                self.take_notes();
                self.sinks.insert(key, sink);
                self.machine.subscribe(key, topic, after, waiter, now());
            }
        }
    }

    fn take_notes(&mut self) {
        let Notes { acknowledged, progressed, forgotten, caught_up, dropped, is_closing } = self.shared.take_notes();
        progressed.into_iter().for_each(|id| self.machine.progress(id));
        acknowledged.into_iter().for_each(|id| self.machine.acknowledge(id));
        forgotten.iter().for_each(|id| self.machine.forget(id));
        caught_up.into_iter().for_each(|key| self.machine.caught_up(key, now()));
        for key in dropped {
            self.sinks.remove(&key);
            self.machine.unsubscribe(key, now());
        }
        if is_closing {
            self.machine.close();
        }
    }

    fn hand_out(&mut self) {
        while let Some(output) = self.machine.next_output() {
            match output {
                Output::Answer(waiter, outcome) => answer(waiter, outcome),
                Output::Direct(frame) => self.direct(frame),
                Output::Topic { key, item, before } => self.topic(key, item, before),
                Output::Event(event) => self.event(event),
                Output::Move(url) => self.move_to(&url),
            }
        }
    }

    /// Switches to another server for the next connection. Never downgrades from TLS.
    fn move_to(&mut self, url: &str) {
        let is_secure = |url: &Uri| url.scheme_str() == Some("wss");
        match super::client::url(url) {
            Ok(there) if is_secure(&there) || !is_secure(&self.url) => self.url = there,
            Ok(_) => tracing::warn!(url, "ignored a move to another server: it has no TLS, unlike the current server"),
            Err(error) => tracing::warn!(%error, "ignored a move to another server"),
        }
    }

    fn event(&self, event: Event) {
        tracing::debug!(?event, "hub");
        if let Event::Connected { address, .. } = &event {
            self.shared.connected(address);
        }
        // Sending fails only without a listener, which is allowed.
        let _ = self.shared.events.send(event);
    }

    /// Puts a message into the inbox. If the application receives no messages, a full inbox drops the message.
    fn direct(&mut self, frame: Incoming) {
        let is_full = self.inbox_len() >= self.shared.inbox_soft && !self.shared.is_taken.load(Ordering::SeqCst);
        let kept = if is_full { Err(TrySendError::Full(frame)) } else { self.inbox.try_send(frame) };
        if let Err(TrySendError::Full(frame) | TrySendError::Closed(frame)) = kept {
            tracing::warn!(id = frame.id, "dropped a message: the application does not receive messages");
            self.machine.forget(&frame.id);
        }
    }

    fn inbox_len(&self) -> usize {
        self.inbox.max_capacity() - self.inbox.capacity()
    }

    fn may_read(&self) -> bool {
        let is_wanted = self.shared.is_taken.load(Ordering::SeqCst);
        let most = if self.machine.is_asked() { self.inbox.max_capacity() } else { self.shared.inbox_soft };
        !is_wanted || self.inbox_len() < most
    }

    fn topic(&mut self, key: u64, item: Item, before: Option<Position>) {
        if matches!(item, Item::End(_)) {
            // The last item may wait for space in a separate task, because no other item follows.
            if let Some(sink) = self.sinks.remove(&key) {
                tokio::spawn(async move { sink.items.send(item).await });
            }
            return;
        }
        let Some(sink) = self.sinks.get(&key).filter(|_| self.machine.is_live(key)) else { return };
        match sink.items.try_send(item) {
            Ok(()) => {}
            Err(TrySendError::Closed(_)) => self.machine.unsubscribe(key, now()),
            Err(TrySendError::Full(_)) => {
                sink.is_behind.store(true, Ordering::SeqCst);
                self.machine.fell_behind(key, before);
                // The subscriber may have emptied the channel before it could see the flag; then
                // it would never clear it.
                if sink.items.capacity() == sink.items.max_capacity() && sink.is_behind.swap(false, Ordering::SeqCst) {
                    self.machine.caught_up(key, now());
                }
            }
        }
    }
}

/// Sends the outcome to a call's receiver, if it still waits, and releases the permit.
fn answer(waiter: Waiter, outcome: Result<Incoming, Error>) {
    let Waiter { answer, room } = waiter;
    drop(room);
    if let Some(answer) = answer {
        let _ = answer.send(outcome);
    }
}

/// Waits until the inbox holds fewer than `most` messages.
async fn room(inbox: &mpsc::Sender<Incoming>, most: usize) {
    let _ = inbox.reserve_many(inbox.max_capacity() - most + 1).await;
}

async fn turn(link: &mut Link, machine: &mut Machine<Waiter>, may_read: bool) -> Moved {
    match link {
        Link::None => std::future::pending().await,
        Link::Opening(opening) => match opening.await {
            Ok(socket) => Moved::Opened(Box::new(socket)),
            Err(lost) => Moved::Turn(Turn::Lost(lost)),
        },
        Link::Open(socket) => Moved::Turn(socket.turn(machine, may_read, now).await),
    }
}
