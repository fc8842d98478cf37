//! The bare relay: uses the same WebSocket library as the hub, forwards each frame unchanged and acknowledges it.
//!
//! It is optimised for speed: one thread, one task for each connection, no lock, no copy of forwarded frames, and all
//! frames that wait for a connection written at once. Unlike a hub, it does not parse frames.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io::Read as _;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use futures_util::{Sink as _, SinkExt as _, Stream as _, StreamExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_websockets::{Config, Message, ServerBuilder, WebSocketStream};

use crate::http::Result;
use crate::http::process::raise_files;

/// Acknowledgement to the sender of a frame.
pub(crate) const ACK: &str = r#"{"type":"ack"}"#;

/// The same, with the length of our hub's acknowledgement.
pub(crate) const LONG_ACK: &str = r#"{"id":"h-mwjfe1cv-2a","from":"@(hub)","to":"@(bench/a0)","type":"hub:delivery_ack","pattern":"tell","correlationId":"m-0000000000000042","timestamp":1763251200000,"payload":{"messageId":"m-0000000000000042","deliveredAt":1763251200000,"status":"delivered"},"metadata":{},"ttl":null,"signature":null}"#;

/// Answer to the first frame of a connection.
pub(crate) const JOINED: &str = r#"{"type":"joined"}"#;

/// Size of the library's write buffer.
const FLUSH_BYTES: usize = 64 * 1_024;

/// Serves until it is killed, or until the parent process has ended.
pub(crate) fn serve() -> Result<()> {
    raise_files()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(tokio::task::LocalSet::new().run_until(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("listening {}", listener.local_addr()?);
        let orphaned = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        tokio::select! {
            accepted = accept(&listener) => accepted,
            _ = orphaned => Ok(()),
        }
    }))
}

async fn accept(listener: &TcpListener) -> Result<()> {
    let lines = Rc::<Lines>::default();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::task::spawn_local(connection(stream, Rc::clone(&lines)));
    }
}

/// The connections by name.
#[derive(Default)]
struct Lines(RefCell<HashMap<String, Named>>);

/// All connections with one name; subscribers share a name.
type Named = Rc<RefCell<Vec<Rc<Line>>>>;

impl Lines {
    fn of(&self, name: &str) -> Named {
        Rc::clone(self.0.borrow_mut().entry(name.to_owned()).or_default())
    }
}

/// Frames that wait to be written to a connection.
#[derive(Default)]
struct Line {
    waiting: RefCell<VecDeque<Message>>,
    waker: Cell<Option<Waker>>,
}

impl Line {
    fn push(&self, message: Message) {
        self.waiting.borrow_mut().push_back(message);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

/// The first frame is `NAME TO`, `NAME TO ack` or `NAME TO long-ack`: its name, its target, and the acknowledgement for
/// each of its frames.
async fn connection(stream: TcpStream, lines: Rc<Lines>) -> Result<()> {
    let config = Config::default().flush_threshold(FLUSH_BYTES);
    let (_, mut socket) = ServerBuilder::new().config(config).accept(stream).await?;
    let first = socket.next().await.ok_or("nothing was said")??;
    let mut words = first.as_text().unwrap_or_default().split(' ');
    let (Some(name), Some(to)) = (words.next(), words.next()) else { return Err("want `NAME TO`".into()) };
    let mut relay = Relay { line: Rc::default(), to: lines.of(to), ack: ack_of(words.next())?, owed: 0 };
    lines.of(name).borrow_mut().push(Rc::clone(&relay.line));
    socket.send(Message::text(JOINED)).await?;
    let ended = poll_fn(|context| relay.poll(&mut socket, context)).await;
    lines.of(name).borrow_mut().retain(|line| !Rc::ptr_eq(line, &relay.line));
    ended
}

fn ack_of(word: Option<&str>) -> Result<Option<&'static str>> {
    match word {
        None => Ok(None),
        Some("ack") => Ok(Some(ACK)),
        Some("long-ack") => Ok(Some(LONG_ACK)),
        Some(other) => Err(format!("want `ack` or `long-ack`, got: {other}").into()),
    }
}

struct Relay {
    line: Rc<Line>,
    to: Named,
    ack: Option<&'static str>,
    /// Number of frames to acknowledge.
    owed: usize,
}

impl Relay {
    /// Reads all available input before writing, so that all resulting frames are written at once.
    fn poll(&mut self, socket: &mut WebSocketStream<TcpStream>, context: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            match Pin::new(&mut *socket).poll_next(context) {
                Poll::Pending => break,
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error.into())),
                Poll::Ready(Some(Ok(message))) if message.is_text() => self.forward(message),
                Poll::Ready(Some(Ok(_))) => {}
            }
        }
        // Set before the queue is checked, so that later frames wake this task again.
        self.line.waker.set(Some(context.waker().clone()));
        self.write(socket, context)
    }

    fn forward(&mut self, message: Message) {
        self.owed += usize::from(self.ack.is_some());
        if let [one] = &**self.to.borrow() {
            return one.push(message);
        }
        for line in &*self.to.borrow() {
            line.push(message.clone());
        }
    }

    fn write(&mut self, socket: &mut WebSocketStream<TcpStream>, context: &mut Context<'_>) -> Poll<Result<()>> {
        let mut socket = Pin::new(socket);
        let mut waiting = self.line.waiting.borrow_mut();
        while self.owed > 0 || !waiting.is_empty() {
            std::task::ready!(socket.as_mut().poll_ready(context))?;
            let message = waiting.pop_front().unwrap_or_else(|| {
                self.owed -= 1;
                Message::text(self.ack.unwrap_or_default())
            });
            socket.as_mut().start_send(message)?;
        }
        std::task::ready!(socket.as_mut().poll_flush(context))?;
        Poll::Pending
    }
}
