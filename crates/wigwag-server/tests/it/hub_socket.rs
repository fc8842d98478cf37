//! A minimal client of the hub: only frames.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use reqwest::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio_websockets::{ClientBuilder, Connector, MaybeTlsStream, Message, WebSocketStream};
use wigwag_store::{Clock as _, System};

/// Timeout of every operation.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Socket {
    inner: WebSocketStream<MaybeTlsStream<TcpStream>>,
    count: u64,
    /// The session's address, once it is connected.
    pub(crate) own: String,
    pub(crate) session: String,
}

pub(crate) fn now() -> u64 {
    System.wall().micros() / 1_000
}

impl Socket {
    pub(crate) async fn open(addr: std::net::SocketAddr) -> Self {
        Self::try_open(addr, &[]).await.unwrap()
    }

    pub(crate) async fn try_open(addr: std::net::SocketAddr, headers: &[(&str, &str)]) -> Result<Self, String> {
        let uri = format!("ws://{addr}/hub");
        let mut builder =
            ClientBuilder::new().uri(&uri).map_err(|error| error.to_string())?.connector(&Connector::Plain);
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
            let value = HeaderValue::from_str(value).map_err(|error| error.to_string())?;
            builder = builder.add_header(name, value).map_err(|error| error.to_string())?;
        }
        let connecting = tokio::time::timeout(PATIENCE, builder.connect()).await.map_err(|_| "no answer")?;
        let (inner, _) = connecting.map_err(|error| error.to_string())?;
        Ok(Self { inner, count: 0, own: String::new(), session: String::new() })
    }

    /// Opens and connects.
    pub(crate) async fn join(addr: std::net::SocketAddr) -> Self {
        let mut socket = Self::open(addr).await;
        socket.connect(json!({"protocolVersion": "0.1.0"})).await.unwrap();
        socket
    }

    /// Opens, connects and registers an address.
    pub(crate) async fn join_as(addr: std::net::SocketAddr, address: &str) -> Self {
        let mut socket = Self::join(addr).await;
        let got = socket.ask("hub:register", json!({"actorAddress": address})).await;
        assert_eq!(got["type"], "hub:registered", "{got}");
        socket
    }

    pub(crate) async fn connect(&mut self, payload: Value) -> Result<Value, String> {
        let frame = self.frame("hub:connect", "ask", payload);
        self.send(&frame).await?;
        let got = self.next().await?;
        let text = |name: &str| got["payload"][name].as_str().unwrap_or_default().to_owned();
        (self.own, self.session) = (text("address"), text("sessionId"));
        Ok(got)
    }

    #[expect(clippy::needless_pass_by_value, reason = "it is made where it is used")]
    pub(crate) fn frame(&mut self, kind: &str, pattern: &str, payload: Value) -> Value {
        self.count += 1;
        let from = if self.own.is_empty() { "@(x)" } else { &self.own };
        json!({
            "id": format!("{}-{}", self.own, self.count),
            "from": from,
            "to": "@(hub)",
            "type": kind,
            "pattern": pattern,
            "timestamp": now(),
            "payload": payload,
        })
    }

    pub(crate) async fn send(&mut self, frame: &Value) -> Result<(), String> {
        self.send_text(frame.to_string(), false).await
    }

    pub(crate) async fn send_text(&mut self, text: String, binary: bool) -> Result<(), String> {
        let message = if binary { Message::binary(text) } else { Message::text(text) };
        self.inner.send(message).await.map_err(|error| error.to_string())
    }

    /// Writes raw bytes without the library.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        self.inner.get_mut().write_all(bytes).await.unwrap();
    }

    /// Returns the next frame, or the close code.
    pub(crate) async fn next_or_close(&mut self) -> Result<Result<String, u16>, String> {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.inner.next()).await.map_err(|_| "nothing came")?;
            let message = next.ok_or("it ended")?.map_err(|error| error.to_string())?;
            if let Some((code, _)) = message.as_close() {
                return Ok(Err(code.into()));
            }
            if let Some(text) = message.as_text() {
                return Ok(Ok(text.to_owned()));
            }
        }
    }

    pub(crate) async fn next_text(&mut self) -> Result<String, String> {
        self.next_or_close().await?.map_err(|code| format!("it was closed with {code}"))
    }

    pub(crate) async fn next(&mut self) -> Result<Value, String> {
        let text = self.next_text().await?;
        serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
    }

    /// Returns how the socket was closed, after skipping earlier frames.
    pub(crate) async fn closed(&mut self) -> Result<u16, String> {
        loop {
            if let Err(code) = self.next_or_close().await? {
                return Ok(code);
            }
        }
    }

    /// Sends an ask and waits for the answer; earlier frames are skipped.
    pub(crate) async fn ask(&mut self, kind: &str, payload: Value) -> Value {
        let frame = self.frame(kind, "ask", payload);
        self.send(&frame).await.unwrap();
        self.answer(&frame).await
    }

    pub(crate) async fn answer(&mut self, frame: &Value) -> Value {
        loop {
            let got = self.next().await.unwrap();
            if got["correlationId"] == frame["id"] {
                return got;
            }
        }
    }

    pub(crate) async fn close(mut self) {
        let _ = self.inner.close().await;
    }
}
