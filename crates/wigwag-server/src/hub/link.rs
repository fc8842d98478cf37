//! One socket: frames in, frames out.
//!
//! Holds: reading and writing never wait for each other, so that two sides that both write first do not stand still; a
//! session whose answers pile up is not read again until they are fewer. A frame counts as written when the socket has taken all of it.
//!
//! Plain texts are read without the WebSocket library, which took an eighth of all the time there is. From the first other
//! frame on the library reads, and everything is as it says.

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

use crate::app::App;

use super::door::{FRAME_BYTES_MAX, HELLO_BYTES_MAX};
use super::frames::Room;
use super::wire::{self, Wire};
use super::{Bell, Shell, now};

/// So many frames are written, or read by the library, before others have a turn at the hub.
const BATCH: usize = 64;

/// Maximum frames and bytes per lock acquisition: the hub copies them under the lock.
const TOGETHER: usize = 32;
const TOGETHER_BYTES: usize = 64 * 1024;

/// So many batches before other tasks have one.
const ROUNDS: usize = 8;

/// How long the other side may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(2);

/// Time for a slow consumer to read the close frame.
const SLOW_GOODBYE: Duration = Duration::from_secs(30);

/// Maximum number of lingering connections.
const LINGERING_MAX: usize = 1_024;

/// So much is thrown away at a time.
const LINGER_BUFFER: usize = 16 * 1024;

pub(super) struct Link<S> {
    shell: Shell,
    app: App,
    session: SessionId,
    bell: Arc<Bell>,
    socket: WebSocketStream<Wire<S>>,
    /// Nothing but plain texts has come.
    is_plain: bool,
    /// Frames that the wire has and may not have written.
    unwritten: usize,
    /// The other side has said goodbye.
    is_leaving: bool,
    /// Authenticated: larger frames are allowed.
    is_connected: bool,
    /// Texts that were read and wait for room in the outbox.
    backlog: Vec<Vec<u8>>,
    /// The same for messages that the library has read.
    unread: Vec<Message>,
}

/// What became of a turn.
enum Turn {
    /// Something was done.
    Moved,
    /// There is nothing to do.
    Still,
    /// The connection ends so.
    Over(End),
}

/// How a connection ends.
enum End {
    /// It is gone.
    Gone,
    /// What came is too large, or no WebSocket's.
    Refused(CloseCode),
    /// The hub closes it.
    Close(Close),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Link<S> {
    pub(super) fn new(
        shell: Shell,
        app: App,
        session: SessionId,
        bell: Arc<Bell>,
        socket: WebSocketStream<Wire<S>>,
    ) -> Self {
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
            backlog: Vec::new(),
            unread: Vec::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let end = std::future::poll_fn(|context| self.poll(context)).await;
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
            debug!("a client did not say goodbye");
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

    /// Writes all that the hub still has to say.
    fn poll_last_words(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let wire = self.socket.get_mut();
            ready!(wire.poll_drain(context))?;
            // Nothing may follow our answer to a goodbye.
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

    /// Says why, and takes what is still on its way for a moment: a connection that is closed with something unread takes our
    /// last frame along.
    async fn refuse(mut self, code: CloseCode) {
        let mut buffer = vec![0; LINGER_BUFFER];
        let taking = async {
            // Some refusals the library has in its queue already.
            let _ = self.socket.send(Message::close(Some(code), "")).await;
            let _ = self.socket.flush().await;
            while matches!(self.socket.get_mut().read(&mut buffer).await, Ok(1..)) {}
        };
        let _ = tokio::time::timeout(GOODBYE, taking).await;
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<End> {
        self.bell.waker.register(context.waker());
        // Those who have something to send come first: then there is more for one write, and whoever reads it is woken less often.
        if self.bell.is_rung.swap(false, Ordering::AcqRel) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        for _ in 0..ROUNDS {
            let (wrote, may_read) = self.write(context);
            let read = match wrote {
                Turn::Over(end) => return Poll::Ready(end),
                // Nothing is written after a goodbye, so that its outbox never empties.
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

    /// Writes what waits for this session. Says also whether it may be read.
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
        // Nothing may follow our answer to a goodbye.
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

    /// The socket takes no more for now. Who is closed is given as long for it as for a goodbye, and no longer.
    fn stuck(&self) -> (Turn, bool) {
        let core = self.shell.lock();
        match core.hub.closing(self.session) {
            Some(close) => (Turn::Over(End::Close(close)), false),
            None => (Turn::Still, core.hub.may_read(self.session) && !self.socket.get_ref().is_full()),
        }
    }

    /// Reads what has come.
    fn read(&mut self, context: &mut Context<'_>) -> Turn {
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
            Poll::Ready(Ok(came)) => {
                let turn = self.receive_texts(room.texts());
                // A long text right after the greeting is allowed once that is processed.
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
        let mut over = None;
        // Before authentication one frame at a time, because the size limit grows with the greeting.
        let max = if self.is_connected { BATCH } else { 1 };
        while messages.len() < max {
            match Pin::new(&mut self.socket).poll_next(context) {
                Poll::Ready(Some(Ok(message))) => {
                    self.is_leaving |= message.is_close();
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
    fn receive_messages(&self, messages: &[Message], last: bool) -> usize {
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

    /// Reads a message before anybody waits for it.
    fn came<'a>(&self, message: &'a Message) -> Came<'a> {
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

    fn came_text<'a>(&self, text: &'a str) -> Came<'a> {
        let frame = wigwag_hub::read(text);
        let access = frame.as_ref().ok().and_then(|frame| self.shown(frame));
        Came::Frame(frame, access)
    }

    /// Who it is, as far as the token in a frame shows.
    fn shown(&self, frame: &Frame<'_>) -> Option<Access> {
        let Frame::Message(envelope) = frame else { return None };
        if envelope.kind.as_str() != "hub:connect" {
            return None;
        }
        let token = envelope.payload.word("token").or_else(|| envelope.metadata.entries.word("token"))?;
        Some(self.app.access(Some(token.as_str())))
    }
}

fn is_heavy(came: &Came<'_>) -> bool {
    matches!(came, Came::Frame(Ok(Frame::Message(envelope)), _) if envelope.is_heavy())
}

fn broken(error: &io::Error) -> Turn {
    debug!(%error, "a socket broke");
    Turn::Over(End::Gone)
}
