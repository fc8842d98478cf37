//! A minimal HTTP/1.1 client over one persistent connection: the load generator shares its cores with the servers.

use std::net::SocketAddr;

use httparse::Status::{Complete, Partial};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::Result;

/// More headers than any server here sends.
const HEADERS_MAX: usize = 32;

/// One connection, for sequential requests.
#[derive(Debug)]
pub(crate) struct Connection {
    addr: SocketAddr,
    stream: TcpStream,
    /// Data that was read and not yet used.
    read: Vec<u8>,
}

/// A complete response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Returns the body, if the response has this status.
    pub(crate) fn expect(self, status: u16) -> Result<Vec<u8>> {
        match self.status == status {
            true => Ok(self.body),
            false => Err(format!("want {status}, got {}: {}", self.status, self.text()).into()),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// The way in which the end of a body is determined.
#[derive(Clone, Copy, Debug)]
enum Length {
    Bytes(usize),
    Chunks,
}

impl Connection {
    pub(crate) async fn open(addr: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        Ok(Self { addr, stream, read: Vec::new() })
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<Answer> {
        self.send("GET", path, "").await?;
        self.receive().await
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Result<Answer> {
        self.send("POST", path, body).await?;
        self.receive().await
    }

    /// Sends a request; its response must be received before the next one is sent.
    pub(crate) async fn send(&mut self, method: &str, path: &str, body: &str) -> Result<()> {
        let (host, length) = (self.addr, body.len());
        let about = match method {
            "POST" => format!("content-type: application/json\r\ncontent-length: {length}\r\n"),
            _ => String::new(),
        };
        let text = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\naccept: application/json\r\n{about}\r\n{body}");
        Ok(self.stream.write_all(text.as_bytes()).await?)
    }

    pub(crate) async fn receive(&mut self) -> Result<Answer> {
        let (status, length, head) = loop {
            match head(&self.read)? {
                Some(found) => break found,
                None => self.read_more().await?,
            }
        };
        self.read.drain(..head);
        let body = match length {
            Length::Bytes(bytes) => self.take(bytes).await?,
            Length::Chunks => self.chunks().await?,
        };
        Ok(Answer { status, body })
    }

    async fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let (line, size) = loop {
                match httparse::parse_chunk_size(&self.read).map_err(|_| "a chunk without a size")? {
                    Complete(found) => break found,
                    Partial => self.read_more().await?,
                }
            };
            self.read.drain(..line);
            let size = usize::try_from(size)?;
            // Each chunk, including the last empty one, ends with a line break.
            let chunk = self.take(size + 2).await?;
            if size == 0 {
                return Ok(body);
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    async fn take(&mut self, bytes: usize) -> Result<Vec<u8>> {
        while self.read.len() < bytes {
            self.read_more().await?;
        }
        let rest = self.read.split_off(bytes);
        Ok(std::mem::replace(&mut self.read, rest))
    }

    async fn read_more(&mut self) -> Result<()> {
        match self.stream.read_buf(&mut self.read).await? {
            0 => Err(format!("`{}` hung up", self.addr).into()),
            _ => Ok(()),
        }
    }
}

/// Parses the status, the length of the body, and the length of the head; `None` if the head is incomplete.
fn head(read: &[u8]) -> Result<Option<(u16, Length, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let Complete(bytes) = response.parse(read)? else { return Ok(None) };
    let status = response.code.ok_or("an answer without a status")?;
    let find = |name: &str| response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    let length = match find("content-length") {
        Some(header) => Length::Bytes(std::str::from_utf8(header.value)?.parse()?),
        None if find("transfer-encoding").is_some() => Length::Chunks,
        None => Length::Bytes(0),
    };
    Ok(Some((status, length, bytes)))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Returns a connection whose response arrives byte by byte.
    async fn read_of(text: &'static str) -> (Connection, tokio::task::JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let sender = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            for byte in text.as_bytes() {
                stream.write_all(&[*byte]).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        (Connection::open(addr).await.unwrap(), sender)
    }

    #[tokio::test]
    async fn answers_are_read_whole_however_they_are_cut() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n42HTTP/1.1 202 Accepted\r\n\
            transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
        let (mut connection, sender) = read_of(text).await;
        assert_eq!(connection.receive().await.unwrap().expect(200).unwrap(), b"42");
        assert_eq!(connection.receive().await.unwrap().expect(202).unwrap(), b"abcde");
        let empty = connection.receive().await.unwrap();
        assert_eq!((empty.status, empty.body.len()), (204, 0));
        sender.await.unwrap();
        assert!(connection.receive().await.is_err(), "there is no more");
    }
}
