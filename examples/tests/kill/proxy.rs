//! A proxy in front of a real S3 server that injects faults while everything is running.
//!
//! Plain HTTP/1.1. The head of a request is forwarded verbatim, so that its signature stays valid.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use wigwag_store::{Clock as _, System};

/// Fault injected into a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The proxy answers with this error, without the server.
    Say(u16, &'static str),
    /// The same, for conditional puts only.
    SayToCreates(u16, &'static str),
    /// The request is delayed by this duration.
    Slow(Duration),
    /// The connection is cut before the request reaches the server.
    LoseRequest,
    /// The server processes the request, and the connection is cut before the answer.
    LoseAnswer,
    /// The server processes the request, and the connection is cut in the middle of the answer.
    HalfAnswer,
    /// The proxy does not accept connections.
    Refuse,
}

#[derive(Debug)]
struct State {
    upstream: String,
    /// The fault, and the share of requests that it affects.
    fault: Mutex<Option<(Fault, f64)>>,
    spoilt: AtomicUsize,
    listening: watch::Sender<bool>,
}

/// The proxy; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Proxy {
    state: Arc<State>,
    address: SocketAddr,
}

impl Proxy {
    pub(crate) async fn start(upstream: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let upstream = upstream.strip_prefix("http://").unwrap().to_owned();
        let (listening, _) = watch::channel(true);
        let state = Arc::new(State { upstream, fault: Mutex::new(None), spoilt: AtomicUsize::new(0), listening });
        tokio::spawn(Arc::clone(&state).listen(listener, address));
        Self { state, address }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Injects this fault into a share of all further requests.
    pub(crate) fn spoil(&self, fault: Fault, share: f64) {
        *self.state.fault.lock().unwrap() = Some((fault, share));
        self.state.listening.send_replace(fault != Fault::Refuse || share < 1.0);
    }

    /// Ends the fault.
    pub(crate) fn mend(&self) {
        *self.state.fault.lock().unwrap() = None;
        self.state.listening.send_replace(true);
    }

    /// Returns the number of requests spoilt so far.
    pub(crate) fn spoilt(&self) -> usize {
        self.state.spoilt.load(Ordering::Relaxed)
    }
}

impl State {
    async fn listen(self: Arc<Self>, first: TcpListener, address: SocketAddr) {
        let mut listening = self.listening.subscribe();
        let mut listener = Some(first);
        loop {
            if !*listening.borrow_and_update() {
                listener = None;
                listening.changed().await.unwrap();
                continue;
            }
            if listener.is_none() {
                listener = Some(TcpListener::bind(address).await.unwrap());
            }
            tokio::select! {
                accepted = listener.as_ref().unwrap().accept() => {
                    let (stream, _) = accepted.unwrap();
                    tokio::spawn(Arc::clone(&self).converse_while_open(stream));
                }
                _ = listening.changed() => {}
            }
        }
    }

    async fn converse_while_open(self: Arc<Self>, stream: TcpStream) {
        let mut listening = self.listening.subscribe();
        tokio::select! {
            _ = self.converse(stream) => {}
            _ = listening.wait_for(|listening| !listening) => {}
        }
    }

    fn fate(&self, head: &[String]) -> Option<Fault> {
        let (fault, share) = (*self.fault.lock().unwrap())?;
        let creates = head.iter().any(|line| line.to_lowercase().starts_with("if-none-match:"));
        if fastrand::f64() >= share || (matches!(fault, Fault::SayToCreates(..)) && !creates) {
            return None;
        }
        self.spoilt.fetch_add(1, Ordering::Relaxed);
        Some(fault)
    }

    /// Serves one connection: requests and answers in turn. Returns `None` when it is cut.
    async fn converse(&self, stream: TcpStream) -> Option<()> {
        let mut near = BufReader::new(stream);
        let mut far = None;
        loop {
            let (head, body) = read_message(&mut near, true).await?;
            let fault = self.fate(&head);
            match fault {
                Some(Fault::Say(status, code) | Fault::SayToCreates(status, code)) => {
                    near.write_all(&refusal(status, code)).await.ok()?;
                    continue;
                }
                Some(Fault::LoseRequest | Fault::Refuse) => return None,
                Some(Fault::Slow(span)) => System.sleep(span).await,
                Some(Fault::LoseAnswer | Fault::HalfAnswer) | None => {}
            }
            if far.is_none() {
                far = Some(BufReader::new(TcpStream::connect(&self.upstream).await.ok()?));
            }
            let server = far.as_mut()?;
            server.write_all(&message(&head, &body)).await.ok()?;
            let has_body = !head[0].starts_with("HEAD ");
            let (head, body) = read_message(server, has_body).await?;
            let mut answer = message(&head, &body);
            match fault {
                Some(Fault::LoseAnswer) => return None,
                Some(Fault::HalfAnswer) => {
                    answer.truncate(answer.len() - body.len().div_ceil(2).max(4));
                    near.write_all(&answer).await.ok()?;
                    return None;
                }
                _ => near.write_all(&answer).await.ok()?,
            }
        }
    }
}

fn refusal(status: u16, code: &str) -> Vec<u8> {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>as told</Message></Error>");
    format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn message(head: &[String], body: &[u8]) -> Vec<u8> {
    [format!("{}\r\n\r\n", head.join("\r\n")).as_bytes(), body].concat()
}

/// Reads a request or an answer: the lines of its head, and its raw body.
async fn read_message(stream: &mut BufReader<TcpStream>, has_body: bool) -> Option<(Vec<String>, Vec<u8>)> {
    let mut head = Vec::new();
    loop {
        let line = read_line(stream).await?;
        if line.is_empty() {
            break;
        }
        head.push(line);
    }
    let value = |name: &str| {
        let lines = head.iter().filter_map(|line| line.split_once(':'));
        lines.filter(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim().to_owned()).next()
    };
    let mut body = Vec::new();
    if !has_body {
        return Some((head, body));
    }
    if value("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
        read_chunks(stream, &mut body).await?;
    } else if let Some(length) = value("content-length") {
        body.resize(length.parse().ok()?, 0);
        stream.read_exact(&mut body).await.ok()?;
    }
    Some((head, body))
}

async fn read_chunks(stream: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> Option<()> {
    loop {
        let line = read_line(stream).await?;
        body.extend_from_slice(format!("{line}\r\n").as_bytes());
        let length = usize::from_str_radix(line.split(';').next()?.trim(), 16).ok()?;
        let start = body.len();
        body.resize(start + length + 2, 0);
        stream.read_exact(&mut body[start..]).await.ok()?;
        if length == 0 {
            return Some(());
        }
    }
}

/// Reads a line without its end; `None` at the end of the stream.
async fn read_line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    match stream.read_line(&mut line).await {
        Ok(1..) if line.ends_with('\n') => Some(line.trim_end().to_owned()),
        _ => None,
    }
}
