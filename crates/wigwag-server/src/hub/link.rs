//! One socket: frames in, frames out.
//!
//! Holds: reading and writing never wait for each other, so that two peers that both write first do not deadlock. A
//! session whose outbox is full is not read until it has drained. A frame counts as written when the socket has accepted all of it.
//!
//! Unfragmented texts are read without the WebSocket library, which took an eighth of the CPU time. From the first other
//! frame on, the library reads the connection.

use std::io;
use std::pin::Pin;
use std::str;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::{SinkExt as _, Stream as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio_websockets::{CloseCode, Error, Message, WebSocketStream};
use tracing::debug;
use wigwag_hub::{Access, Came, Close, Frame, SessionId, Unreadable};
use wigwag_store::{Clock as _, System};

use crate::app::App;
use crate::peer::ClientAddress;
use crate::serve::Place;

use super::budget::Budget;
use super::door::{FRAME_BYTES_MAX, HELLO_BYTES_MAX};
use super::frames::Room;
use super::wire::{self, Wire};
use super::{Bell, Shell, now};

/// Frames that are written, or read by the library, before other connections may use the hub.
const BATCH: usize = 64;

/// Maximum frames and bytes per lock acquisition: the hub copies them under the lock.
const TOGETHER: usize = 32;
const TOGETHER_BYTES: usize = 64 * 1024;

/// Batches per poll before other tasks run.
const ROUNDS: usize = 8;

/// Time for the peer to complete the closing handshake.
const GOODBYE: Duration = Duration::from_secs(2);

/// Time for a slow consumer to read the close frame.
const SLOW_GOODBYE: Duration = Duration::from_secs(30);

/// Maximum number of lingering connections.
const LINGERING_MAX: usize = 1_024;

/// Bytes that are discarded at a time.
const LINGER_BUFFER: usize = 16 * 1024;

pub(super) struct Link<S> {
    shell: Shell,
    app: App,
    session: SessionId,
    bell: Arc<Bell>,
    socket: WebSocketStream<Wire<S>>,
    /// Whether only unfragmented texts were received so far.
    is_plain: bool,
    /// Frames that the wire has buffered and may not have written.
    unwritten: usize,
    /// Whether the peer has sent a close frame.
    is_leaving: bool,
    /// Authenticated: larger frames are allowed.
    is_connected: bool,
    guest: Guest,
    budget: Budget,
    /// Delays the response to a failed authentication; nothing is read or written during the delay.
    penalty: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// An authentication failed: the session is about to end.
    is_denied: bool,
    /// Permissions of the token in `hub:connect`, until the session has them.
    shown: Option<Access>,
    /// Texts that were read and wait for room in the outbox.
    backlog: Vec<Vec<u8>>,
    /// The same for messages that the library has read.
    unread: Vec<Message>,
}

/// The client of a connection, before it has authenticated.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) from: ClientAddress,
    /// Its slot among the connections of its address; released once it is authenticated.
    pub(super) place: Option<Arc<Place>>,
    /// Whether the opening request has authenticated it, or the server has no tokens.
    pub(super) is_known: bool,
}

/// Result of one poll.
enum Turn {
    /// Some frames were read or written.
    Moved,
    /// There was nothing to do.
    Still,
    /// The connection ends.
    Over(End),
}

/// The reason why a connection ends.
enum End {
    /// The connection is lost.
    Gone,
    /// A frame is too large, or violates the protocol.
    Refused(CloseCode),
    /// The hub closes the connection.
    Close(Close),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Link<S> {
    pub(super) fn new(
        shell: Shell,
        app: App,
        guest: Guest,
        (session, bell): (SessionId, Arc<Bell>),
        socket: WebSocketStream<Wire<S>>,
    ) -> Self {
        let budget = Budget::new(app.limits.hub_frames.share(guest.from.0, None));
        Self {
            shell,
            app,
            session,
            bell,
            socket,
            is_plain: true,
            unwritten: 0,
            is_leaving: false,
            is_connected: false,
            guest,
            budget,
            penalty: None,
            is_denied: false,
            shown: None,
            backlog: Vec::new(),
            unread: Vec::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let end = std::future::poll_fn(|context| self.poll(context)).await;
        // Input is only discarded from now on.
        self.socket.get_mut().allow(usize::MAX);
        let close = match end {
            End::Gone => return,
            End::Refused(code) => return self.refuse(code).await,
            End::Close(Close::Slow) => return self.leave_slow().await,
            End::Close(close) => close,
        };
        let code = CloseCode::try_from(close.code()).unwrap_or(CloseCode::NORMAL_CLOSURE);
        let goodbye = async {
            let _ = std::future::poll_fn(|context| self.poll_last_words(context)).await;
            if self.socket.send(Message::close(Some(code), close.reason())).await.is_ok() {
                while let Some(Ok(_)) = self.socket.next().await {}
            }
        };
        if tokio::time::timeout(GOODBYE, goodbye).await.is_err() {
            debug!("a client did not complete the closing handshake");
        }
    }

    /// Closes the connection of a slow consumer: completes the frame in progress, then sends `hub:disconnect` and the close code. Incoming data is
    /// discarded, because closing a socket with unread data resets it and loses the close frame.
    async fn leave_slow(mut self) {
        let mut last = Vec::new();
        loop {
            let (session, written) = (self.session, std::mem::take(&mut self.unwritten));
            self.unwritten = self.shell.act(|hub| {
                let now = now();
                hub.written(session, written, now);
                hub.take(session, BATCH, now, |frame| {
                    last.clear();
                    last.extend_from_slice(frame);
                })
            });
            if self.unwritten == 0 {
                break;
            }
        }
        // The session is over; release its connection slot.
        self.shell.close(self.session);
        let shell = self.shell.clone();
        if shell.0.lingering.fetch_add(1, Ordering::Relaxed) < LINGERING_MAX {
            self.say_why(&last).await;
        }
        shell.0.lingering.fetch_sub(1, Ordering::Relaxed);
    }

    async fn say_why(&mut self, last: &[u8]) {
        let wire = self.socket.get_mut();
        wire.say_goodbye(last, Close::Slow.code(), Close::Slow.reason());
        let mut room = Room::take();
        let goodbye = std::future::poll_fn(|context| {
            // The peer closes after reading the close frame.
            let ended = loop {
                match wire.poll_discard(context, &mut room) {
                    Poll::Ready(Ok(false)) => {}
                    Poll::Ready(_) => break true,
                    Poll::Pending => break false,
                }
            };
            match wire.poll_drain(context) {
                Poll::Ready(Err(_)) => Poll::Ready(()),
                _ if ended => Poll::Ready(()),
                _ => Poll::Pending,
            }
        });
        if tokio::time::timeout(SLOW_GOODBYE, goodbye).await.is_err() {
            debug!("a slow consumer did not read why it is closed");
        }
        room.give_back();
    }

    /// Writes the remaining frames of the hub.
    fn poll_last_words(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let wire = self.socket.get_mut();
            ready!(wire.poll_drain(context))?;
            // No frame may follow our answer to a close frame.
            let max = if self.is_leaving { 0 } else { BATCH };
            let (session, written) = (self.session, std::mem::take(&mut self.unwritten));
            self.unwritten = self.shell.act(|hub| {
                let now = now();
                hub.written(session, written, now);
                hub.take(session, max, now, |frame| wire.put(frame))
            });
            if self.unwritten == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Sends the close code, and reads incoming frames for a moment: closing a connection with unread data would
    /// discard our last frame.
    async fn refuse(mut self, code: CloseCode) {
        let mut buffer = vec![0; LINGER_BUFFER];
        let taking = async {
            // The library has already queued some close frames itself.
            let _ = self.socket.send(Message::close(Some(code), "")).await;
            let _ = self.socket.flush().await;
            while matches!(self.socket.get_mut().read(&mut buffer).await, Ok(1..)) {}
        };
        let _ = tokio::time::timeout(GOODBYE, taking).await;
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        self.bell.waker.register(context.waker());
        // Connections with input come first: then one write has more frames, and its receiver is woken less often.
        if self.bell.is_rung.swap(false, Ordering::AcqRel) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        for _ in 0..ROUNDS {
            if let Some(penalty) = &mut self.penalty {
                ready!(penalty.as_mut().poll(context));
                self.penalty = None;
            }
            let (wrote, may_read) = self.write(context);
            let read = match wrote {
                Turn::Over(end) => return Poll::Ready(end),
                // No frame is written after a close frame, so the outbox would never drain.
                _ if may_read || self.is_leaving => self.read(context),
                _ => Turn::Still,
            };
            match (wrote, read) {
                (_, Turn::Over(end)) => return Poll::Ready(end),
                (Turn::Still, Turn::Still) => return Poll::Pending,
                _ => {}
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Writes the frames of this session. Also returns whether the socket may be read.
    fn write(&mut self, context: &mut Context<'_>) -> (Turn, bool) {
        let wire = self.socket.get_mut();
        match wire.poll_drain(context) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::TimedOut => {
                self.shell.act(|hub| hub.stalled(self.session, now()));
                return (Turn::Over(End::Close(Close::Slow)), false);
            }
            Poll::Ready(Err(error)) => return (broken(&error), false),
            Poll::Pending => return self.stuck(),
        }
        // No frame may follow our answer to a close frame.
        let max = if self.is_leaving { 0 } else { BATCH };
        let (session, written) = (self.session, std::mem::take(&mut self.unwritten));
        let ((taken, close, may_read, room, is_connected), for_itself) = self.shell.act_as(Some(session), |hub| {
            let now = now();
            hub.written(session, written, now);
            let taken = hub.take(session, max, now, |frame| wire.put(frame));
            let close = hub.closing(session).filter(|_| taken == 0 && !hub.has_frames(session));
            (taken, close, hub.may_read(session), hub.has_room(session), hub.is_connected(session))
        });
        if is_connected && !std::mem::replace(&mut self.is_connected, true) {
            self.socket.limits_mut().set_max_payload_len(Some(FRAME_BYTES_MAX));
            self.guest.place = None;
            // From now on its frames count for its token, too.
            let token = self.shell.lock().hub.token_name(self.session).map(str::to_owned);
            self.budget = Budget::new(self.app.limits.hub_frames.share(self.guest.from.0, token.as_deref()));
            self.hold();
            // The token may have been revoked between its check and now.
            if let Some(access) = self.shown.take() {
                self.shell.recheck_one(self.session, &access, &self.app.known.get());
            }
        }
        if written > 0 && room {
            self.bell.room.notify_waiters();
        }
        self.unwritten = taken;
        match (close, self.unwritten) {
            (Some(close), _) => (Turn::Over(End::Close(close)), false),
            (None, 0) if !for_itself => (Turn::Still, may_read),
            (None, _) => (Turn::Moved, may_read),
        }
    }

    /// The socket accepts no more data for now. A connection that is being closed has the time of a closing handshake.
    fn stuck(&self) -> (Turn, bool) {
        let core = self.shell.lock();
        match core.hub.closing(self.session) {
            Some(close) => (Turn::Over(End::Close(close)), false),
            None => (Turn::Still, core.hub.may_read(self.session) && !self.socket.get_ref().is_full()),
        }
    }

    /// Counts the bytes of unfinished and of unprocessed frames.
    fn hold(&mut self) {
        let backlog: usize = self.backlog.iter().map(Vec::len).sum();
        let unread: usize = self.unread.iter().map(|message| message.as_payload().len()).sum();
        let wire = self.socket.get_mut();
        self.budget.hold(wire.needs() + backlog + unread);
        wire.allow(self.budget.granted().saturating_sub(backlog + unread));
    }

    /// Reads from the socket once its unfinished frames have room.
    fn read(&mut self, context: &mut Context<'_>) -> Turn {
        match self.budget.poll(context) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(full)) => {
                debug!(?full, "no room for an unfinished frame");
                return Turn::Over(End::Refused(CloseCode::SERVICE_OVERLOAD));
            }
            Poll::Pending => return Turn::Still,
        }
        self.socket.get_mut().allow(self.budget.granted());
        let turn = self.read_some(context);
        let is_starved = self.socket.get_ref().is_starved();
        self.hold();
        // The next round waits for room.
        if is_starved && matches!(turn, Turn::Still) { Turn::Moved } else { turn }
    }

    fn read_some(&mut self, context: &mut Context<'_>) -> Turn {
        if !self.backlog.is_empty() {
            let backlog = std::mem::take(&mut self.backlog);
            return self.receive_texts(backlog.iter().map(Vec::as_slice));
        }
        if !self.is_plain {
            return self.read_by_library(context);
        }
        let mut room = Room::take();
        let max = if self.is_connected { self.shell.0.message_bytes_max } else { HELLO_BYTES_MAX };
        let turn = match self.socket.get_mut().poll_texts(context, &mut room, max) {
            Poll::Pending => Turn::Still,
            Poll::Ready(Err(error)) => broken(&error),
            Poll::Ready(Ok(wire::Came::End)) => Turn::Over(End::Gone),
            Poll::Ready(Ok(wire::Came::Starved)) => Turn::Moved,
            Poll::Ready(Ok(came)) => {
                let turn = self.receive_texts(room.texts());
                // A long text right after `hub:connect` is allowed once that is processed.
                let is_long_text = !self.is_connected && self.socket.get_ref().next_is_text();
                let is_greeted = is_long_text && self.shell.lock().hub.is_connected(self.session);
                self.is_plain = came == wire::Came::Texts || is_greeted;
                turn
            }
        };
        room.give_back();
        turn
    }

    /// Passes texts to the hub in small batches. Keeps the rest in the backlog if the outbox fills up.
    fn receive_texts<'a>(&mut self, mut texts: impl Iterator<Item = &'a [u8]>) -> Turn {
        let (mut frames, mut bytes) = (Vec::new(), 0);
        while let Some(text) = texts.next() {
            let Ok(valid) = simdutf8::basic::from_utf8(text) else {
                self.bring(frames);
                debug!("a text is not UTF-8");
                return Turn::Over(End::Refused(CloseCode::INVALID_FRAME_PAYLOAD_DATA));
            };
            let frame = self.came_text(valid);
            let is_alone = is_heavy(&frame);
            let is_full = frames.len() == TOGETHER || bytes + text.len() > TOGETHER_BYTES || is_alone;
            if is_full && !frames.is_empty() && !self.bring(std::mem::take(&mut frames)) {
                self.backlog = std::iter::once(text).chain(texts).map(<[u8]>::to_vec).collect();
                return Turn::Moved;
            }
            bytes = if is_full { text.len() } else { bytes + text.len() };
            frames.push(frame);
            if is_alone && !self.bring(std::mem::take(&mut frames)) {
                self.backlog = texts.map(<[u8]>::to_vec).collect();
                return Turn::Moved;
            }
        }
        if !frames.is_empty() {
            self.bring(frames);
        }
        Turn::Moved
    }

    fn read_by_library(&mut self, context: &mut Context<'_>) -> Turn {
        let mut messages = std::mem::take(&mut self.unread);
        let mut bytes: usize = messages.iter().map(|message| message.as_payload().len()).sum();
        let mut over = None;
        // Before authentication one frame at a time, because the size limit grows after `hub:connect`.
        let max = if self.is_connected { BATCH } else { 1 };
        while messages.len() < max && bytes < TOGETHER_BYTES {
            match Pin::new(&mut self.socket).poll_next(context) {
                Poll::Ready(Some(Ok(message))) => {
                    self.is_leaving |= message.is_close();
                    self.socket.get_mut().returned(&message);
                    bytes += message.as_payload().len();
                    messages.push(message);
                }
                Poll::Ready(Some(Err(error))) => {
                    debug!(%error, "a socket ends");
                    over = Some(Turn::Over(match error {
                        Error::Io(_) => End::Gone,
                        Error::PayloadTooLong { .. } => End::Refused(CloseCode::MESSAGE_TOO_BIG),
                        _ => End::Refused(CloseCode::PROTOCOL_ERROR),
                    }));
                    break;
                }
                Poll::Ready(None) => {
                    over = Some(Turn::Over(End::Gone));
                    break;
                }
                Poll::Pending => break,
            }
        }
        let passed = self.receive_messages(&messages, over.is_some() || self.is_leaving);
        let moved = passed > 0;
        self.unread = messages.split_off(passed);
        over.unwrap_or(if moved { Turn::Moved } else { Turn::Still })
    }

    /// Passes messages to the hub in small batches. Returns how many: all if they are the `last`, fewer if the outbox fills up.
    fn receive_messages(&mut self, messages: &[Message], last: bool) -> usize {
        let mut frames = Vec::new();
        for (place, message) in messages.iter().enumerate() {
            let frame = self.came(message);
            let is_alone = is_heavy(&frame) || message.as_payload().len() > TOGETHER_BYTES / TOGETHER;
            let is_full = !frames.is_empty() && (is_alone || frames.len() == TOGETHER);
            if is_full && !self.bring(std::mem::take(&mut frames)) && !last {
                return place;
            }
            frames.push(frame);
            if is_alone && !self.bring(std::mem::take(&mut frames)) && !last {
                return place + 1;
            }
        }
        if !frames.is_empty() {
            self.bring(frames);
        }
        messages.len()
    }

    /// Passes frames to the hub. Returns whether the outbox has room for more answers.
    fn bring(&self, frames: Vec<Came<'_>>) -> bool {
        let bring = |hub: &mut wigwag_hub::Hub| {
            hub.receive(self.session, frames, now());
            hub.may_read(self.session)
        };
        self.shell.act_as(Some(self.session), bring).0
    }

    /// Parses a message outside the lock.
    fn came<'a>(&mut self, message: &'a Message) -> Came<'a> {
        let payload = message.as_payload();
        if !message.is_text() && !message.is_binary() {
            return Came::Sign;
        }
        if payload.len() > self.shell.0.message_bytes_max {
            return Came::TooLarge(payload.len());
        }
        match message.as_text().map_or_else(|| str::from_utf8(payload), Ok) {
            Ok(text) => self.came_text(text),
            Err(error) => {
                Came::Frame(Err(Unreadable { what: format!("the frame is not UTF-8: {error}"), id: None }), None)
            }
        }
    }

    fn came_text<'a>(&mut self, text: &'a str) -> Came<'a> {
        let frame = wigwag_hub::read(text);
        let access = frame.as_ref().ok().and_then(|frame| self.shown(frame));
        Came::Frame(frame, access)
    }

    /// Access by the token in `hub:connect`. A failed authentication is logged, and its response delayed.
    fn shown(&mut self, frame: &Frame<'_>) -> Option<Access> {
        let Frame::Message(envelope) = frame else { return None };
        if envelope.kind.as_str() != "hub:connect" || self.is_connected || self.is_denied {
            return None;
        }
        let token = envelope.payload.word("token").or_else(|| envelope.metadata.entries.word("token"));
        let access = token.map(|token| self.app.access(Some(token.as_str())));
        let is_known = access.as_ref().map_or(self.guest.is_known, |access| !matches!(access, Access::Nobody));
        if !is_known {
            self.is_denied = true;
            let delay = self.app.deny_hub(self.guest.from);
            if !delay.is_zero() {
                self.penalty = Some(Box::pin(async move { System.sleep(delay).await }));
            }
        }
        self.shown.clone_from(&access);
        access
    }
}

fn is_heavy(came: &Came<'_>) -> bool {
    matches!(came, Came::Frame(Ok(Frame::Message(envelope)), _) if envelope.is_heavy())
}

fn broken(error: &io::Error) -> Turn {
    debug!(%error, "a socket broke");
    Turn::Over(End::Gone)
}
