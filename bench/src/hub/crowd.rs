//! Thousands of connections on one thread with plain `epoll`: the load generator must cost less than the server.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use memchr::memmem;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::dialect::{Ear, Got, Side, Who};
use super::wire::{self, Frame, Opcode, Template};
use crate::http::Result;

/// Size of the read buffer; no frame is longer.
const READ_BYTES: usize = 1 << 20;

/// Timeout after which a silent server has lost a message.
const PATIENCE: Duration = Duration::from_secs(20);

/// Maximum number of events per poll.
const EVENTS: usize = 1_024;

pub(crate) struct Crowd {
    side: Side,
    addr: SocketAddr,
    epoll: OwnedFd,
    sockets: Vec<Socket>,
    ear: Ear,
    read: Vec<u8>,
    events: Vec<epoll::Event>,
}

#[derive(Debug)]
struct Socket {
    stream: TcpStream,
    /// An incomplete frame.
    part: Vec<u8>,
    /// An incomplete message that spans several frames.
    said: Vec<u8>,
    out: Vec<u8>,
    /// Whether it waits to become writable.
    stuck: bool,
}

impl Crowd {
    pub(crate) fn new(side: Side, addr: SocketAddr) -> Result<Self> {
        Ok(Self {
            side,
            addr,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            sockets: Vec::new(),
            ear: Ear::new(side),
            read: vec![0; READ_BYTES],
            events: Vec::with_capacity(EVENTS),
        })
    }

    /// Fails if the server has closed any of the connections.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        (0..self.sockets.len()).try_for_each(|at| self.hear(at, &mut |_, _| Ok(())))
    }

    /// Connects and identifies one more client. Returns its index.
    pub(crate) fn join(&mut self, who: &Who) -> Result<usize> {
        self.join_and(who, &mut |got| match got {
            Got::Ack(_) => Ok(()),
            got => Err(format!("unexpected message while joining: {got:?}").into()),
        })
    }

    /// The same; other frames are passed to `on`.
    pub(crate) fn join_and(&mut self, who: &Who, on: &mut impl FnMut(Got<'_>) -> Result<()>) -> Result<usize> {
        let mut stream = TcpStream::connect(self.addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let part = wire::handshake(&mut stream, self.side.path())?;
        let at = self.sockets.len();
        self.sockets.push(Socket { stream, part, said: Vec::new(), out: Vec::new(), stuck: false });
        for (text, answer) in self.side.greeting(who) {
            self.ask(at, &text, answer, on)?;
        }
        let stream = &self.sockets[at].stream;
        stream.set_nonblocking(true)?;
        epoll::add(&self.epoll, stream, epoll::EventData::new_u64(at as u64), epoll::EventFlags::IN)?;
        Ok(at)
    }

    /// Sends a text and waits for the answer; used outside of measurements.
    fn ask(&mut self, at: usize, text: &str, answer: &str, on: &mut impl FnMut(Got<'_>) -> Result<()>) -> Result<()> {
        wire::write_once(self.side.opcode(), text, &mut self.sockets[at].out);
        self.flush(at)?;
        let mut answered = false;
        while !answered {
            self.hear(at, &mut |_, got| match got {
                Got::Word(word) if is_answer(word, answer) => {
                    answered = true;
                    Ok(())
                }
                Got::Word(word) if word.starts_with(b"INFO ") => Ok(()),
                Got::Word(word) => Err(unexpected(word)),
                got => on(got),
            })?;
        }
        Ok(())
    }

    /// Appends a message to the write buffer.
    pub(crate) fn put(&mut self, at: usize, template: &Template, number: u64) {
        template.write(number, &mut self.sockets[at].out);
    }

    /// Writes the buffer until the socket is full.
    pub(crate) fn flush(&mut self, at: usize) -> Result<()> {
        let socket = &mut self.sockets[at];
        match socket.stream.write(&socket.out) {
            Ok(written) if written == socket.out.len() => socket.out.clear(),
            Ok(written) => _ = socket.out.drain(..written),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
        let stuck = !socket.out.is_empty();
        if stuck != socket.stuck {
            socket.stuck = stuck;
            let flags = if stuck { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
            epoll::modify(&self.epoll, &socket.stream, epoll::EventData::new_u64(at as u64), flags)?;
        }
        Ok(())
    }

    /// Waits for input, and passes all complete messages to `on`.
    pub(crate) fn turn(&mut self, on: &mut impl FnMut(usize, Got<'_>) -> Result<()>) -> Result<()> {
        let patience = Timespec::try_from(PATIENCE)?;
        let mut events = std::mem::take(&mut self.events);
        events.clear();
        epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&patience))?;
        if events.is_empty() {
            return Err(format!("the server says nothing for {PATIENCE:?}").into());
        }
        for event in &events {
            let (at, flags) = (usize::try_from(event.data.u64())?, event.flags);
            if flags.contains(epoll::EventFlags::OUT) {
                self.flush(at)?;
            }
            if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
                self.hear(at, on)?;
            }
        }
        self.events = events;
        Ok(())
    }

    /// Reads once from a connection, and passes on all complete messages.
    fn hear(&mut self, at: usize, on: &mut impl FnMut(usize, Got<'_>) -> Result<()>) -> Result<()> {
        let socket = &mut self.sockets[at];
        let kept = socket.part.len();
        self.read[..kept].copy_from_slice(&socket.part);
        socket.part.clear();
        let count = match socket.stream.read(&mut self.read[kept..]) {
            Ok(0) => return Err("the server has closed a connection".into()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        let (mut bytes, mut pong) = (&self.read[..kept + count], false);
        while let Some(Frame { opcode, payload, length }) = wire::first_frame(bytes)? {
            bytes = &bytes[length..];
            match opcode {
                Opcode::Text | Opcode::Binary if self.ear.is_stream() => {
                    pong |= stream(&self.ear, &mut socket.said, payload, &mut |got| on(at, got))?;
                }
                Opcode::Text | Opcode::Binary => on(at, self.ear.hear(payload))?,
                Opcode::Ping => wire::write_once(Opcode::Pong, std::str::from_utf8(payload)?, &mut socket.out),
                Opcode::Pong => {}
                Opcode::Close => return Err(unexpected(payload)),
            }
        }
        socket.part.extend_from_slice(bytes);
        if pong {
            wire::write_once(Opcode::Binary, "PONG\r\n", &mut socket.out);
        }
        if !socket.out.is_empty() && !socket.stuck {
            self.flush(at)?;
        }
        Ok(())
    }
}

/// Passes on messages of a byte stream that ignores frames. Returns whether the server has sent a ping.
fn stream(ear: &Ear, said: &mut Vec<u8>, payload: &[u8], on: &mut impl FnMut(Got<'_>) -> Result<()>) -> Result<bool> {
    if said.is_empty() {
        let (used, ping) = all_of(ear, payload, on)?;
        said.extend_from_slice(&payload[used..]);
        return Ok(ping);
    }
    said.extend_from_slice(payload);
    let (used, ping) = all_of(ear, said, on)?;
    said.drain(..used);
    Ok(ping)
}

fn all_of(ear: &Ear, text: &[u8], on: &mut impl FnMut(Got<'_>) -> Result<()>) -> Result<(usize, bool)> {
    let (mut used, mut ping) = (0, false);
    while let Some((got, length)) = ear.hear_first(&text[used..])? {
        used += length;
        match got {
            Got::Word(b"PING") => ping = true,
            got => on(got)?,
        }
    }
    Ok((used, ping))
}

fn is_answer(word: &[u8], answer: &str) -> bool {
    memmem::find(word, answer.as_bytes()).is_some() && memmem::find(word, br#""error":{"#).is_none()
}

/// Returns an error that shows an unexpected message.
pub(crate) fn unexpected(word: &[u8]) -> Box<dyn std::error::Error + Send + Sync> {
    format!("unexpected message of the server: {}", String::from_utf8_lossy(word)).into()
}
