//! Writes outgoing frames.

use bytes::Bytes;
use serde_json::Value;

use crate::address::HUB;
use crate::id::OwnId;
use crate::plain::is_plain;
use crate::settings::Millis;

/// Writes a string as JSON, with escapes where needed.
pub(crate) fn push_text(out: &mut Vec<u8>, text: &str) {
    if is_plain(text) {
        push_plain(out, text);
    } else {
        // Serialising a string into memory cannot fail.
        let _ = serde_json::to_writer(out, text);
    }
}

/// Writes a string that needs no escapes, because the hub generated or checked it.
pub(crate) fn push_plain(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    out.extend_from_slice(text.as_bytes());
    out.push(b'"');
}

/// Writes a number in decimal.
pub(crate) fn push_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// All fields of a frame except payload and metadata, which are written verbatim.
pub(crate) struct Head<'a, 'f> {
    pub(crate) id: &'a OwnId,
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) is_ask: bool,
    pub(crate) correlation: Option<&'a str>,
    pub(crate) timestamp: Millis,
    pub(crate) ttl: Option<u64>,
    pub(crate) signature: Option<&'a str>,
    /// Keys unknown to the hub, written verbatim.
    pub(crate) extra: &'a [(&'f str, &'f str)],
}

impl<'a> Head<'a, '_> {
    /// Returns the head of a frame that the hub itself sends.
    pub(crate) fn from_hub(id: &'a OwnId, to: &'a str, kind: &'a str, timestamp: Millis) -> Self {
        Self {
            id,
            from: HUB,
            to,
            kind,
            is_ask: false,
            correlation: None,
            timestamp,
            ttl: None,
            signature: None,
            extra: &[],
        }
    }
}

/// Writes a frame; the closures write the payload and the metadata entries.
pub(crate) fn write(
    out: &mut Vec<u8>,
    head: &Head<'_, '_>,
    payload: impl FnOnce(&mut Vec<u8>),
    metadata: impl FnOnce(&mut Vec<u8>),
) {
    out.extend_from_slice(b"{\"id\":\"");
    out.extend_from_slice(head.id.as_bytes());
    out.extend_from_slice(b"\",\"from\":\"");
    out.extend_from_slice(head.from.as_bytes());
    out.extend_from_slice(b"\",\"to\":");
    push_text(out, head.to);
    out.extend_from_slice(b",\"type\":");
    push_text(out, head.kind);
    // Few long pieces, since the cost is per piece and hardly depends on its length.
    match (head.correlation, head.is_ask) {
        (None, false) => out.extend_from_slice(b",\"pattern\":\"tell\",\"correlationId\":null,\"timestamp\":"),
        (None, true) => out.extend_from_slice(b",\"pattern\":\"ask\",\"correlationId\":null,\"timestamp\":"),
        (Some(id), is_ask) => {
            let pattern = if is_ask { "ask" } else { "tell" };
            out.extend_from_slice(b",\"pattern\":");
            push_plain(out, pattern);
            out.extend_from_slice(b",\"correlationId\":");
            push_text(out, id);
            out.extend_from_slice(b",\"timestamp\":");
        }
    }
    push_number(out, head.timestamp);
    out.extend_from_slice(b",\"payload\":");
    payload(out);
    out.extend_from_slice(b",\"metadata\":{");
    metadata(out);
    match (head.ttl, head.signature) {
        (None, None) => out.extend_from_slice(b"},\"ttl\":null,\"signature\":null"),
        (ttl, signature) => {
            out.extend_from_slice(b"},\"ttl\":");
            match ttl {
                Some(ttl) => push_number(out, ttl),
                None => out.extend_from_slice(b"null"),
            }
            out.extend_from_slice(b",\"signature\":");
            out.extend_from_slice(signature.unwrap_or("null").as_bytes());
        }
    }
    for (key, value) in head.extra {
        push_field(out, key, value);
    }
    out.push(b'}');
}

/// Writes one more field with a raw JSON value.
pub(crate) fn push_field(out: &mut Vec<u8>, key: &str, raw: &str) {
    out.push(b',');
    push_plain(out, key);
    out.push(b':');
    out.extend_from_slice(raw.as_bytes());
}

/// Returns a frame as shared bytes, for several recipients or for storage.
pub(crate) fn kept(scratch: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    scratch.clear();
    write(scratch);
    Bytes::copy_from_slice(scratch)
}

/// Writes a frame that the hub itself sends.
#[expect(clippy::too_many_arguments, reason = "they are the parts of an envelope")]
pub(crate) fn said(
    out: &mut Vec<u8>,
    id: &OwnId,
    to: &str,
    kind: &str,
    correlation: Option<&str>,
    now: Millis,
    payload: &Value,
    trace: &str,
) {
    let head = Head { correlation, ..Head::from_hub(id, to, kind, now) };
    let write_payload = |out: &mut Vec<u8>| _ = serde_json::to_writer(out, payload);
    write(out, &head, write_payload, |out| out.extend_from_slice(trace.as_bytes()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_json() {
        for number in [0, 7, 10, 1_763_251_200_000, u64::MAX] {
            let mut out = Vec::new();
            push_number(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }
        for text in ["", "a", "\"", "\\", "\n", "ä€", "\u{7f}"] {
            let mut out = Vec::new();
            push_text(&mut out, text);
            assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
        }
    }
}
