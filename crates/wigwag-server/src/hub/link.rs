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

use super::frames::Room;
use super::wire::{self, Wire};
use super::{Bell, Shell, now};

/// So many frames are written, or read by the library, before others have a turn at the hub.
const BATCH: usize = 64;

/// So many frames are brought to the hub together.
const TOGETHER: usize = 32;

/// So many batches before other tasks have one.
const ROUNDS: usize = 8;

/// How long the other side may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(2);

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
        Self { shell, app, session, bell, socket, is_plain: true, unwritten: 0, is_leaving: false }
    }

    pub(super) async fn run(mut self) {
        let end = std::future::poll_fn(|context| self.poll(context)).await;
        let close = match end {
            End::Gone => return,
            End::Refused(code) => return self.refuse(code).await,
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
                _ if may_read => self.read(context),
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
            Poll::Ready(Err(error)) => return (broken(&error), false),
            Poll::Pending => return self.stuck(),
        }
        // Nothing may follow our answer to a goodbye.
        let max = if self.is_leaving { 0 } else { BATCH };
        let (session, written) = (self.session, std::mem::take(&mut self.unwritten));
        let ((taken, close, may_read, room), for_itself) = self.shell.act_as(Some(session), |hub| {
            let now = now();
            hub.written(session, written, now);
            let taken = hub.take(session, max, now, |frame| wire.put(frame));
            let close = hub.closing(session).filter(|_| taken == 0 && !hub.has_frames(session));
            (taken, close, hub.may_read(session), hub.has_room(session))
        });
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
        if !self.is_plain {
            return self.read_by_library(context);
        }
        let mut room = Room::take();
        let max = self.shell.0.message_bytes_max;
        let turn = match self.socket.get_mut().poll_texts(context, &mut room, max) {
            Poll::Pending => Turn::Still,
            Poll::Ready(Err(error)) => broken(&error),
            Poll::Ready(Ok(wire::Came::End)) => Turn::Over(End::Gone),
            Poll::Ready(Ok(came)) => {
                self.is_plain = came == wire::Came::Texts;
                self.receive_texts(&room)
            }
        };
        room.give_back();
        turn
    }

    fn receive_texts(&self, room: &Room) -> Turn {
        let mut texts = room.texts();
        while texts.len() > 0 {
            let mut is_text = true;
            let valid = texts.by_ref().take(TOGETHER).map_while(|text| {
                let text = simdutf8::basic::from_utf8(text);
                is_text = text.is_ok();
                text.ok()
            });
            let frames = valid.map(|text| self.came_text(text)).collect();
            self.bring(frames);
            if !is_text {
                debug!("a text is not UTF-8");
                return Turn::Over(End::Refused(CloseCode::INVALID_FRAME_PAYLOAD_DATA));
            }
        }
        Turn::Moved
    }

    fn read_by_library(&mut self, context: &mut Context<'_>) -> Turn {
        let mut messages: Vec<Message> = Vec::new();
        let mut over = None;
        while messages.len() < BATCH {
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
        let moved = !messages.is_empty();
        for some in messages.chunks(TOGETHER) {
            self.bring(some.iter().map(|message| self.came(message)).collect());
        }
        over.unwrap_or(if moved { Turn::Moved } else { Turn::Still })
    }

    fn bring(&self, frames: Vec<Came<'_>>) {
        self.shell.act_as(Some(self.session), |hub| hub.receive(self.session, frames, now()));
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

fn broken(error: &io::Error) -> Turn {
    debug!(%error, "a socket broke");
    Turn::Over(End::Gone)
}
