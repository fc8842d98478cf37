//! Reads a body, whole or in chunks, up to the size limit of an object, and verifies its length, signature and checksums.
//!
//! Holds: too large a body is rejected before any of it is read. Received bytes count against
//! [`Settings::s3_bodies`](crate::Settings::s3_bodies). A body slower than
//! [`Settings::body_rate_min`](crate::Settings::body_rate_min) is cut off.

use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderMap;
use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::StreamExt as _;
use sha2::{Digest as _, Sha256};
use wigwag_store::{Clock as _, System};

use super::ask::Ask;
use super::checksum;
use super::fault::{Fault, Result};
use super::sign::{Caller, Payload, hex, same};
use crate::app::App;
use crate::limits::S3_CHUNK_HEAD_BYTES_MAX;
use crate::room::Share;

/// A body and its share of the memory budget.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) bytes: Bytes,
    _share: Share,
}

/// Initial capacity of a body's buffer; it grows as bytes arrive.
const FIRST_BYTES_MAX: usize = 1024 * 1024;

/// Reads the body of a request.
pub(super) async fn read(
    app: &App,
    ask: &Ask,
    caller: &mut Caller,
    (body, mut share): (Body, Share),
    bytes_max: usize,
) -> Result<Held> {
    let expected = Expected::read(ask, &caller.payload)?;
    if expected.bytes > bytes_max || expected.sent.is_some_and(|sent| sent > expected.sent_max) {
        let what = format!("a body has at most {bytes_max} bytes here, got: {}", expected.bytes);
        return Err(Fault::new(400, "EntityTooLarge", what));
    }
    let raw = receive(app, body, &expected, &mut share).await?;
    let (bytes, trailers) = match &caller.payload {
        Payload::Chunks { .. } => unchunk(raw, expected.bytes, caller)?,
        Payload::Whole(hash) if !same(hash, &hex(&Sha256::digest(&raw))) => {
            let what = "the body does not match the signed SHA-256; send it again";
            return Err(Fault::new(400, "XAmzContentSHA256Mismatch", what));
        }
        _ => (raw, Vec::new()),
    };
    check(&ask.headers, &trailers, &bytes)?;
    Ok(Held { bytes, _share: share })
}

/// Expected length of a body.
struct Expected {
    /// Length of the object.
    bytes: usize,
    /// Length of the transfer, if announced; it includes the heads of chunks.
    sent: Option<usize>,
    sent_max: usize,
}

impl Expected {
    fn read(ask: &Ask, payload: &Payload) -> Result<Self> {
        let number = |name: &str| {
            let wrong = |_| Fault::argument(format!("`{name}` is not a length"));
            ask.header(name).map(|value| value.parse::<usize>().map_err(wrong)).transpose()
        };
        let missing =
            |name: &str| Fault::new(411, "MissingContentLength", format!("say how long the body is, in `{name}`"));
        let sent = number("content-length")?;
        if !matches!(payload, Payload::Chunks { .. }) {
            let bytes = sent.ok_or_else(|| missing("Content-Length"))?;
            return Ok(Self { bytes, sent, sent_max: bytes });
        }
        let name = "x-amz-decoded-content-length";
        let bytes = number(name)?.ok_or_else(|| missing(name))?;
        // A chunk of 8 KiB has a head of about a hundred bytes.
        Ok(Self { bytes, sent, sent_max: bytes.saturating_add(bytes / 64 + 64 * 1024) })
    }
}

/// Receives the body. Its deadline is `body_timeout` plus the time that the received bytes take at the minimum rate.
async fn receive(app: &App, body: Body, expected: &Expected, share: &mut Share) -> Result<Bytes> {
    let (span, rate) = (app.settings.body_timeout, app.settings.body_rate_min.max(1));
    let began = System.boot();
    let mut frames = body.into_data_stream();
    let mut bytes = BytesMut::with_capacity(expected.bytes.min(FIRST_BYTES_MAX));
    loop {
        let earned = Duration::from_millis((bytes.len() as u64).saturating_mul(1_000) / rate as u64);
        let left = (began + span + earned).saturating_sub(System.boot());
        match tokio::time::timeout(left, frames.next()).await {
            Ok(Some(Ok(frame))) if bytes.len() + frame.len() <= expected.sent_max => {
                let full = |full: crate::room::Full| Fault::new(503, "SlowDown", full.detail());
                share.grow(frame.len()).await.map_err(full)?;
                bytes.extend_from_slice(&frame);
            }
            Ok(Some(Ok(_))) => return Err(Fault::new(400, "IncompleteBody", "the body is longer than announced")),
            Ok(Some(Err(_))) => return Err(Fault::new(400, "IncompleteBody", "the body broke off")),
            Ok(None) => break,
            Err(_) => {
                let what = format!(
                    "the body arrives too slowly: after {span:?} at least {rate} bytes per second are required"
                );
                return Err(Fault::new(400, "RequestTimeout", what));
            }
        }
    }
    match expected.sent {
        Some(sent) if sent != bytes.len() => {
            let what = format!("want a body of {sent} bytes, got: {}", bytes.len());
            Err(Fault::new(400, "IncompleteBody", what))
        }
        _ => Ok(bytes.freeze()),
    }
}

/// Verifies all checksums of the body in headers and trailers.
fn check(headers: &HeaderMap, trailers: &[(String, String)], body: &[u8]) -> Result<()> {
    for (name, value) in headers {
        let value = value.to_str().unwrap_or("?");
        checksum::check(name.as_str(), value, body)?;
    }
    for (name, value) in trailers {
        checksum::check(name, value, body)?;
    }
    Ok(())
}

type Unchunked = (Bytes, Vec<(String, String)>);

/// Decodes the chunks of a body (`aws-chunked`). Returns the body with its trailers.
fn unchunk(mut raw: Bytes, decoded: usize, caller: &mut Caller) -> Result<Unchunked> {
    let signed = caller.payload == Payload::Chunks { signed: true };
    let mut body = BytesMut::with_capacity(decoded);
    loop {
        let head = line(&mut raw)?;
        let (size, rest) = head.split_once(';').unwrap_or((head.as_str(), ""));
        let size = usize::from_str_radix(size.trim(), 16).map_err(|_| broken("a chunk has no size"))?;
        if size > decoded - body.len() || size > raw.len() {
            return Err(Fault::new(400, "IncompleteBody", "the length of the chunks differs from the announced one"));
        }
        let data = raw.split_to(size);
        if let Some(chain) = caller.chain.as_mut().filter(|_| signed) {
            let given = rest.trim().strip_prefix("chunk-signature=").unwrap_or_default();
            if !same(&chain.chunk(&data), given) {
                return Err(Fault::new(403, "SignatureDoesNotMatch", "a chunk's signature is not that of the chunk"));
            }
            given.clone_into(&mut chain.last);
        }
        if size == 0 {
            break;
        }
        body.extend_from_slice(&data);
        if !line(&mut raw)?.is_empty() {
            return Err(broken("a chunk is longer than its size"));
        }
    }
    if body.len() != decoded {
        return Err(Fault::new(400, "IncompleteBody", "the length of the chunks differs from the announced one"));
    }
    let trailers = trailers(raw, caller, signed)?;
    Ok((body.freeze(), trailers))
}

fn trailers(mut raw: Bytes, caller: &Caller, signed: bool) -> Result<Vec<(String, String)>> {
    let (mut found, mut lines, mut signature) = (Vec::new(), String::new(), String::new());
    while !raw.is_empty() {
        let text = line(&mut raw)?;
        if text.is_empty() {
            break;
        }
        let (name, value) = text.split_once(':').ok_or_else(|| broken("a trailer without a name"))?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
        if name == "x-amz-trailer-signature" {
            signature = value;
        } else {
            lines.push_str(&format!("{name}:{value}\n"));
            found.push((name, value));
        }
    }
    if let Some(chain) = caller.chain.as_ref().filter(|_| signed && !found.is_empty())
        && !same(&chain.trailers(&lines), &signature)
    {
        return Err(Fault::new(403, "SignatureDoesNotMatch", "the signature of the trailers is not theirs"));
    }
    Ok(found)
}

/// Returns the next line, without its line break.
fn line(raw: &mut Bytes) -> Result<String> {
    let near = &raw[..raw.len().min(S3_CHUNK_HEAD_BYTES_MAX)];
    let end = near.windows(2).position(|pair| pair == b"\r\n").ok_or_else(|| broken("a line has no end"))?;
    let text = String::from_utf8(raw.split_to(end).to_vec()).map_err(|_| broken("a line is not text"))?;
    raw.advance(2);
    Ok(text)
}

fn broken(what: &str) -> Fault {
    Fault::new(400, "InvalidRequest", format!("the body is not `aws-chunked`: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::s3::keys::Access;

    fn unsigned(raw: &'static str, decoded: usize) -> Result<Unchunked> {
        let payload = Payload::Chunks { signed: false };
        let mut caller = Caller { id: None, access: Access::all(true), payload, chain: None };
        unchunk(Bytes::from_static(raw.as_bytes()), decoded, &mut caller)
    }

    #[test]
    fn chunks_and_trailers_are_taken_apart() {
        let (body, trailers) =
            unsigned("3\r\nabc\r\n2\r\nde\r\n0\r\nX-Amz-Checksum-Crc32: y/Q5Jg==\r\n\r\n", 5).unwrap();
        assert_eq!(body, "abcde");
        assert_eq!(trailers, [("x-amz-checksum-crc32".to_owned(), "y/Q5Jg==".to_owned())]);
        assert_eq!(unsigned("0\r\n\r\n", 0).unwrap().0, "");
    }

    #[test]
    fn chunks_that_are_broken_are_refused_whatever_is_broken() {
        for (raw, decoded) in [
            ("", 0),
            ("3\r\nabc\r\n", 3),
            ("3\r\nabcd\r\n0\r\n\r\n", 3),
            ("4\r\nabc\r\n0\r\n\r\n", 4),
            ("3\r\nabc\r\n0\r\n\r\n", 4),
            ("3\r\nabc\r\n0\r\n\r\n", 2),
            ("zz\r\nabc\r\n0\r\n\r\n", 3),
            ("-3\r\nabc\r\n0\r\n\r\n", 3),
            ("ffffffffffffffff\r\nabc\r\n0\r\n\r\n", 3),
            ("0\r\nno name\r\n\r\n", 0),
        ] {
            assert!(unsigned(raw, decoded).is_err(), "{raw:?}");
        }
    }
}
