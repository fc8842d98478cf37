//! The transport below a WebSocket: output is collected here and written in one piece, and unfragmented texts are read
//! here, many in one read.
//!
//! The library hands each frame to the kernel as two pieces, which for frames of a few hundred bytes takes longer than copying
//! them. The hub's frames are therefore appended here directly, each with its header; the library's own frames (pongs, its part of
//! closing) are written through [`AsyncWrite`] into the same buffer, so that no frame is ever inside another.
//!
//! The unread buffer always begins with a frame, so the library may take over at any time, and reads this buffer first.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_websockets::Message;

use super::frames::{Next, ROOM_BYTES, Rest, Room};

/// With this much unwritten output no more input is read, because it could require answers.
const FULL_BYTES: usize = 256 * 1024;

/// A frame up to this length is copied as it arrives; a longer one is collected in place.
const SHORT_BYTES: usize = 16 * 1024;

/// Maximum size of the buffer that is kept for the next connection.
const SPARE_BYTES_MAX: usize = 256 * 1024;

thread_local! {
    /// A spare write buffer of the thread, so that idle connections need none.
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

#[derive(Debug)]
pub(super) struct Wire<S> {
    stream: S,
    out: Vec<u8>,
    /// Number of bytes already written.
    at: usize,
    /// A frame boundary in the buffer, at or after `at`.
    boundary: usize,
    /// Whether the buffer or the stream may have unsent data.
    is_unflushed: bool,
    /// Data that was read and not handed over.
    rest: Vec<u8>,
    /// Length of the frame at its start, if that is known.
    rest_wants: Option<usize>,
    /// Bytes that the library has read of messages that it has not returned yet.
    in_library: usize,
    /// Maximum bytes of unfinished frames.
    allowance: usize,
    /// A read was refused because of that maximum.
    is_starved: bool,
}

/// Result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Came {
    /// Complete texts, or a part of one.
    Texts,
    /// Texts, followed by a frame that the library must read.
    Other,
    /// An unfinished frame is as large as the connection may hold; see [`Wire::allow`].
    Starved,
    /// End of the stream.
    End,
}

/// Progress of a read.
enum Filled {
    /// The room is filled up to here.
    To(usize),
    Starved,
    End,
}

/// Bytes that the library reads at a time. Bytes that it has read beyond a message are not counted.
const LIBRARY_BYTES: usize = 8 * 1024;

/// Head of a control frame from a client: two bytes and a mask.
const CONTROL_HEAD_BYTES: usize = 6;

impl<S: AsyncWrite + Unpin> Wire<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            out: Vec::new(),
            at: 0,
            boundary: 0,
            is_unflushed: false,
            rest: Vec::new(),
            rest_wants: None,
            in_library: 0,
            allowance: 0,
            is_starved: false,
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.out.len() - self.at > FULL_BYTES
    }

    /// Appends a text frame to the buffer (RFC 6455, 5.2: final, not masked).
    pub(super) fn put(&mut self, text: &[u8]) {
        const FINAL_TEXT: u8 = 0x81;
        self.make_room();
        match (u8::try_from(text.len()), u16::try_from(text.len())) {
            (Ok(length @ ..126), _) => self.out.extend_from_slice(&[FINAL_TEXT, length]),
            (_, Ok(length)) => {
                let [high, low] = length.to_be_bytes();
                self.out.extend_from_slice(&[FINAL_TEXT, 126, high, low]);
            }
            _ => {
                self.out.extend_from_slice(&[FINAL_TEXT, 127]);
                self.out.extend_from_slice(&(text.len() as u64).to_be_bytes());
            }
        }
        self.out.extend_from_slice(text);
    }

    fn make_room(&mut self) {
        self.is_unflushed = true;
        if self.out.capacity() == 0 {
            self.out = SPARE.take();
        }
        // A buffer that is never empty must still drop its written part.
        if self.at > FULL_BYTES {
            self.find_boundary();
            self.out.drain(..self.at);
            self.boundary -= self.at;
            self.at = 0;
        }
    }

    /// Finds the end of a partly written frame.
    fn find_boundary(&mut self) {
        while self.boundary < self.at {
            let Some(length) = self.out.get(self.boundary..).and_then(frame_length) else {
                self.boundary = self.out.len();
                return;
            };
            self.boundary += length;
        }
    }

    /// Drops all unsent frames, except a partly sent one, and appends a last text and a close frame.
    pub(super) fn say_goodbye(&mut self, last: &[u8], code: u16, reason: &str) {
        const FINAL_CLOSE: u8 = 0x88;
        self.find_boundary();
        self.out.truncate(self.boundary);
        if !last.is_empty() {
            self.put(last);
        }
        self.make_room();
        let reason = reason.get(..reason.len().min(120)).unwrap_or_default();
        let length = u8::try_from(2 + reason.len()).unwrap_or(2);
        self.out.extend_from_slice(&[FINAL_CLOSE, length]);
        self.out.extend_from_slice(&code.to_be_bytes());
        self.out.extend_from_slice(reason.as_bytes());
    }

    /// Writes the whole buffer.
    pub(super) fn poll_drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_unflushed {
            return Poll::Ready(Ok(()));
        }
        while self.at < self.out.len() {
            match ready!(Pin::new(&mut self.stream).poll_write(context, &self.out[self.at..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.at += written,
            }
        }
        // Ten thousand idle connections need no buffer.
        let mut out = std::mem::take(&mut self.out);
        if out.capacity() <= SPARE_BYTES_MAX {
            out.clear();
            SPARE.set(out);
        }
        (self.at, self.boundary) = (0, 0);
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.is_unflushed = false;
        Poll::Ready(Ok(()))
    }
}

/// Returns the length of the frame that begins here, head and payload, as a server writes it (RFC 6455, 5.2: not masked).
fn frame_length(bytes: &[u8]) -> Option<usize> {
    let (head, length) = match bytes.get(1)? & 0x7F {
        126 => (4, u64::from(u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?))),
        127 => (10, u64::from_be_bytes(*bytes.get(2..)?.first_chunk()?)),
        short => (2, u64::from(short)),
    };
    Some(head + usize::try_from(length).ok()?)
}

impl<S: AsyncRead + Unpin> Wire<S> {
    /// Whether the unread buffer begins with an unfragmented text frame.
    pub(super) fn next_is_text(&self) -> bool {
        self.rest.first() == Some(&0x81)
    }

    /// Returns the bytes of unfinished frames, including those of the next read.
    pub(super) fn needs(&self) -> usize {
        let ahead = match self.rest_wants {
            Some(wants) if wants > SHORT_BYTES => wants.saturating_sub(self.rest.len()).min(ROOM_BYTES),
            _ if self.is_starved => 2 * LIBRARY_BYTES,
            _ => 0,
        };
        self.rest.len() + self.in_library + ahead
    }

    /// Sets the maximum bytes of unfinished frames.
    pub(super) fn allow(&mut self, bytes: usize) {
        self.allowance = bytes;
        self.is_starved = false;
    }

    /// Whether a read was refused since the last [`Wire::allow`].
    pub(super) fn is_starved(&self) -> bool {
        self.is_starved
    }

    /// Records that the library has returned a message.
    pub(super) fn returned(&mut self, message: &Message) {
        let is_control = message.is_ping() || message.is_pong() || message.is_close();
        let counted = if is_control { CONTROL_HEAD_BYTES + message.as_payload().len() } else { usize::MAX };
        // A control frame may be inside a fragmented message, which is still incomplete.
        self.in_library = self.in_library.saturating_sub(counted);
    }

    /// Reads and discards. Returns true at the end of the stream.
    pub(super) fn poll_discard(&mut self, context: &mut Context<'_>, room: &mut Room) -> Poll<io::Result<bool>> {
        self.rest.clear();
        let count = ready!(poll_into(&mut self.stream, context, &mut room.bytes))?;
        Poll::Ready(Ok(count == 0))
    }

    /// Reads once. The complete texts, none longer than `max`, are in the room.
    pub(super) fn poll_texts(
        &mut self,
        context: &mut Context<'_>,
        room: &mut Room,
        max: usize,
    ) -> Poll<io::Result<Came>> {
        let is_long = self.rest_wants.is_some_and(|wants| wants > SHORT_BYTES);
        let filled = ready!(if is_long { self.poll_long(context, room) } else { self.poll_short(context, room) })?;
        let filled = match filled {
            Filled::To(filled) => filled,
            Filled::Starved => return Poll::Ready(Ok(Came::Starved)),
            Filled::End => return Poll::Ready(Ok(Came::End)),
        };
        let Rest { begin, next } = room.find(filled, max);
        // A connection without a partial frame keeps no buffer.
        self.rest = room.bytes[begin..filled].to_vec();
        self.rest_wants = None;
        if let Next::Part(wants) = next {
            self.rest_wants = wants;
        }
        Poll::Ready(Ok(if next == Next::Other { Came::Other } else { Came::Texts }))
    }

    /// Reads after the existing data. Returns the total length.
    fn poll_short(&mut self, context: &mut Context<'_>, room: &mut Room) -> Poll<io::Result<Filled>> {
        let before = self.rest.len();
        room.bytes[..before].copy_from_slice(&self.rest);
        let count = ready!(poll_into(&mut self.stream, context, &mut room.bytes[before..]))?;
        Poll::Ready(Ok(if count > 0 { Filled::To(before + count) } else { Filled::End }))
    }

    /// Reads the rest of the incomplete frame, and no byte beyond it.
    fn poll_long(&mut self, context: &mut Context<'_>, room: &mut Room) -> Poll<io::Result<Filled>> {
        let wants = self.rest_wants.unwrap_or_default();
        while self.rest.len() < wants {
            let before = self.rest.len();
            if before >= self.allowance {
                self.is_starved = true;
                return Poll::Ready(Ok(Filled::Starved));
            }
            self.rest.resize(wants.min(before + ROOM_BYTES).min(self.allowance), 0);
            let read = poll_into(&mut self.stream, context, &mut self.rest[before..]);
            let count = if let Poll::Ready(Ok(count)) = read { count } else { 0 };
            self.rest.truncate(before + count);
            if ready!(read)? == 0 {
                return Poll::Ready(Ok(Filled::End));
            }
        }
        room.bytes = std::mem::take(&mut self.rest);
        Poll::Ready(Ok(Filled::To(wants)))
    }
}

fn poll_into(
    stream: &mut (impl AsyncRead + Unpin),
    context: &mut Context<'_>,
    into: &mut [u8],
) -> Poll<io::Result<usize>> {
    let mut into = ReadBuf::new(into);
    ready!(Pin::new(stream).poll_read(context, &mut into))?;
    Poll::Ready(Ok(into.filled().len()))
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.rest.is_empty() {
            let count = self.rest.len().min(into.remaining());
            into.put_slice(&self.rest[..count]);
            self.rest.drain(..count);
            self.in_library += count;
            return Poll::Ready(Ok(()));
        }
        let max = self.allowance.saturating_sub(self.in_library).min(into.remaining()).min(LIBRARY_BYTES);
        if max == 0 && into.remaining() > 0 {
            // The connection wakes itself once it may hold more.
            self.is_starved = true;
            return Poll::Pending;
        }
        let count = ready!(poll_into(&mut self.stream, context, into.initialize_unfilled_to(max)))?;
        into.advance(count);
        self.in_library += count;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.make_room();
        self.out.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_drain(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use futures_util::StreamExt as _;
    use tokio::io::AsyncWriteExt as _;
    use tokio_websockets::ClientBuilder;

    use super::*;

    /// The library is the reference: it must read frames of every length as they were put.
    #[tokio::test]
    async fn frames_of_all_lengths_are_read_as_they_were_put() {
        let lengths = [0, 1, 125, 126, 127, 4_096, 65_535, 65_536, 300_000];
        let (near, far) = tokio::io::duplex(10_000);
        let writing = async {
            let mut wire = Wire::new(near);
            for length in lengths {
                wire.put("x".repeat(length).as_bytes());
            }
            // A pong of the library between two frames.
            wire.write_all(&[0x8A, 1, b'p']).await.unwrap();
            wire.put(b"last");
            poll_fn(|context| wire.poll_drain(context)).await.unwrap();
            assert_eq!(wire.out.capacity(), 0, "nothing is kept");
            wire
        };
        let reading = async {
            let mut socket = ClientBuilder::new().take_over(far);
            for length in lengths {
                let message = socket.next().await.unwrap().unwrap();
                assert_eq!((message.is_text(), message.as_payload().len()), (true, length));
            }
            assert!(socket.next().await.unwrap().unwrap().is_pong());
            assert_eq!(socket.next().await.unwrap().unwrap().as_text(), Some("last"));
        };
        let _ = tokio::join!(writing, reading);
    }

    #[tokio::test]
    async fn what_does_not_go_out_is_kept_and_counts() {
        let (near, far) = tokio::io::duplex(1_000);
        let mut wire = Wire::new(near);
        wire.put(&vec![b'x'; FULL_BYTES / 2]);
        assert!(!wire.is_full());
        wire.put(&vec![b'x'; FULL_BYTES]);
        let drained = futures_util::poll!(std::pin::pin!(poll_fn(|context| wire.poll_drain(context))));
        assert!(drained.is_pending() && wire.at == 1_000 && wire.is_full());
        drop(far);
        assert!(poll_fn(|context| wire.poll_drain(context)).await.is_err());
    }

    /// The partly sent frame is completed, the others are dropped, and the close frame is complete.
    #[tokio::test]
    async fn a_goodbye_follows_the_frame_that_was_begun() {
        for written in [1, 2, 100, 102, 103, 300_000, 600_000] {
            let (near, far) = tokio::io::duplex(written);
            let mut wire = Wire::new(near);
            for length in [100, 300_000, 300_000, 300_000] {
                wire.put("x".repeat(length).as_bytes());
                // A part of it is written, cut anywhere.
                let _ = futures_util::poll!(std::pin::pin!(poll_fn(|context| wire.poll_drain(context))));
            }
            wire.say_goodbye(b"last", 4002, "slow_consumer");
            let reading = async {
                let mut socket = ClientBuilder::new().take_over(far);
                let mut texts = 0;
                loop {
                    let message = socket.next().await.unwrap().unwrap();
                    if let Some((code, reason)) = message.as_close() {
                        assert_eq!((u16::from(code), reason), (4002, "slow_consumer"));
                        return texts;
                    }
                    texts += 1;
                }
            };
            let (drained, texts) = tokio::join!(poll_fn(|context| wire.poll_drain(context)), reading);
            drained.unwrap();
            assert!((2..=5).contains(&texts), "{written}: {texts}");
        }
    }

    /// A client that reads just enough for the buffer never to become empty.
    #[tokio::test]
    async fn what_is_written_is_let_go_though_more_comes() {
        let (near, mut far) = tokio::io::duplex(64 * 1_024);
        let mut wire = Wire::new(near);
        let mut read = vec![0; 64 * 1_024];
        wire.put(&vec![b'x'; 100_000]);
        for _ in 0..100 {
            // Yields in each round, because a task that does too much in one poll is made to wait.
            tokio::task::yield_now().await;
            wire.put(&vec![b'x'; 64 * 1_024 - 4]);
            assert!(futures_util::poll!(std::pin::pin!(poll_fn(|context| wire.poll_drain(context)))).is_pending());
            tokio::io::AsyncReadExt::read_exact(&mut far, &mut read).await.unwrap();
        }
        assert!(wire.out.capacity() < 2_000_000, "{}", wire.out.capacity());
    }
}
