//! One WebSocket connection: opens the socket, writes while it has room, and reads while the inbox has room.

use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use futures_util::{Sink as _, Stream as _};
use http::header::AUTHORIZATION;
use http::{HeaderValue, Uri};
use tokio::net::TcpStream;
use tokio_websockets::upgrade::Error as Refused;
use tokio_websockets::{ClientBuilder, Connector, Error as WsError, Limits, MaybeTlsStream, Message, WebSocketStream};

use super::machine::{Lost, Machine, Now};
use crate::limits::FRAME_BYTES_MAX;

/// Progress of the socket.
#[derive(Debug)]
pub(super) enum Turn {
    Text(Message),
    /// The socket wrote frames or handled a control frame, or the machine has outputs.
    Moved,
    Lost(Lost),
}

#[derive(Debug)]
pub(super) struct Socket {
    stream: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// Whether written frames are not yet flushed.
    is_dirty: bool,
}

impl Socket {
    pub(super) async fn open(url: Uri, token: Option<String>) -> Result<Self, Lost> {
        // TLS needs a crypto provider. An error means that the application has already installed its choice.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let stream = connect(&url).await.map_err(|error| not_opened(&url, &error))?;
        let limits = Limits::default().max_payload_len(Some(FRAME_BYTES_MAX));
        let mut builder = ClientBuilder::from_uri(url.clone()).limits(limits);
        if let Some(token) = token {
            let header = bearer(&token).ok_or_else(|| lost(Some(4001), "the token has invalid characters"))?;
            builder = builder.add_header(AUTHORIZATION, header).map_err(|error| not_opened(&url, &error))?;
        }
        let (stream, _) = builder.connect_on(stream).await.map_err(|error| not_opened(&url, &error))?;
        Ok(Self { stream, is_dirty: false })
    }

    /// Writes the pending frames, and waits for an incoming frame if `may_read` allows it.
    pub(super) async fn turn<W>(&mut self, machine: &mut Machine<W>, may_read: bool, now: impl Fn() -> Now) -> Turn {
        std::future::poll_fn(|context| {
            let wrote = match self.poll_write(machine, &now, context) {
                Ok(wrote) => wrote,
                Err(error) => return Poll::Ready(Turn::Lost(lost(None, &error.to_string()))),
            };
            match self.poll_read(may_read, context) {
                // An oversized frame is not written; its call fails, which is an output.
                Poll::Pending if wrote || machine.has_output() => Poll::Ready(Turn::Moved),
                polled => polled,
            }
        })
        .await
    }

    fn poll_write<W>(
        &mut self,
        machine: &mut Machine<W>,
        now: &impl Fn() -> Now,
        context: &mut Context<'_>,
    ) -> Result<bool, WsError> {
        let mut stream = Pin::new(&mut self.stream);
        let mut wrote = false;
        while let Poll::Ready(ready) = stream.as_mut().poll_ready(context) {
            ready?;
            let Some(frame) = machine.next_frame(now()) else { break };
            stream.as_mut().start_send(Message::text(frame))?;
            (wrote, self.is_dirty) = (true, true);
        }
        if self.is_dirty
            && let Poll::Ready(flushed) = stream.poll_flush(context)
        {
            flushed?;
            self.is_dirty = false;
        }
        Ok(wrote)
    }

    fn poll_read(&mut self, may_read: bool, context: &mut Context<'_>) -> Poll<Turn> {
        if !may_read {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_next(context).map(|came| match came {
            Some(Ok(message)) => match message.as_close() {
                Some((code, reason)) => Turn::Lost(lost(Some(code.into()), reason)),
                None if message.is_text() => Turn::Text(message),
                None => Turn::Moved,
            },
            Some(Err(error)) => Turn::Lost(lost(None, &format!("lost the connection: {error}"))),
            None => Turn::Lost(lost(None, "lost the connection")),
        })
    }

    /// Completes the closing handshake.
    pub(super) async fn finish(mut self) {
        let mut stream = pin!(&mut self.stream);
        let _ = std::future::poll_fn(|context| stream.as_mut().poll_close(context)).await;
    }
}

/// Connects to the server. If the host name resolves to several addresses, each is tried in turn.
async fn connect(url: &Uri) -> Result<MaybeTlsStream<TcpStream>, WsError> {
    let is_tls = url.scheme_str() == Some("wss");
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let tcp = TcpStream::connect((host, port)).await?;
    // Messages are small and their senders wait for answers, so Nagle's algorithm would only add latency.
    tcp.set_nodelay(true)?;
    let connector = if is_tls { Connector::new()? } else { Connector::Plain };
    connector.wrap(host, tcp).await
}

fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn lost(code: Option<u16>, what: &str) -> Lost {
    let what = if what.is_empty() { "no reason was given" } else { what };
    Lost { code, what: what.to_owned() }
}

/// Describes why the socket could not be opened. A status of 401 or 403 counts as close code
/// 4001: the token was rejected.
fn not_opened(url: &Uri, error: &WsError) -> Lost {
    match error {
        WsError::Upgrade(Refused::DidNotSwitchProtocols(status @ (401 | 403))) => {
            lost(Some(4001), &format!("`{url}` answered with status {status}"))
        }
        WsError::Upgrade(Refused::DidNotSwitchProtocols(status)) => {
            lost(None, &format!("`{url}` is not a hub: it answered with status {status}"))
        }
        WsError::Upgrade(refused) => lost(None, &format!("`{url}` is not a hub: {refused}")),
        error => lost(None, &format!("cannot reach `{url}`: {error}")),
    }
}
