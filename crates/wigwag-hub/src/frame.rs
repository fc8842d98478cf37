//! Frames as they go out.

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::address::HUB;
use crate::envelope::Text;
use crate::settings::Millis;

/// Writes a JSON text.
pub(crate) fn push_text(out: &mut Vec<u8>, text: &str) {
    let plain = text.bytes().all(|byte| byte >= 0x20 && byte != b'"' && byte != b'\\');
    if plain {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        // A text can always be written.
        let _ = serde_json::to_writer(out, text);
    }
}

/// Writes a number.
pub(crate) fn push_number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut place = digits.len();
    loop {
        place -= 1;
        digits[place] = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[place..]);
}

/// Everything of a frame but its payload and metadata, which are written as they are.
pub(crate) struct Head<'a> {
    pub(crate) id: &'a str,
    pub(crate) from: &'a str,
    pub(crate) to: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) is_ask: bool,
    pub(crate) correlation: Option<&'a str>,
    pub(crate) timestamp: Millis,
    pub(crate) ttl: Option<u64>,
    pub(crate) signature: Option<&'a RawValue>,
    pub(crate) extra: &'a [(Text<'a>, &'a RawValue)],
}

/// Writes a frame; the closures write payload and the entries of its metadata.
pub(crate) fn write(
    head: &Head<'_>,
    room: usize,
    payload: impl FnOnce(&mut Vec<u8>),
    metadata: impl FnOnce(&mut Vec<u8>),
) -> Bytes {
    let mut out = Vec::with_capacity(256 + room);
    out.extend_from_slice(b"{\"id\":");
    push_text(&mut out, head.id);
    out.extend_from_slice(b",\"from\":");
    push_text(&mut out, head.from);
    out.extend_from_slice(b",\"to\":");
    push_text(&mut out, head.to);
    out.extend_from_slice(b",\"type\":");
    push_text(&mut out, head.kind);
    out.extend_from_slice(if head.is_ask { b",\"pattern\":\"ask\"" } else { b",\"pattern\":\"tell\"" });
    out.extend_from_slice(b",\"correlationId\":");
    match head.correlation {
        Some(id) => push_text(&mut out, id),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"timestamp\":");
    push_number(&mut out, head.timestamp);
    out.extend_from_slice(b",\"payload\":");
    payload(&mut out);
    out.extend_from_slice(b",\"metadata\":{");
    metadata(&mut out);
    out.extend_from_slice(b"},\"ttl\":");
    match head.ttl {
        Some(ttl) => push_number(&mut out, ttl),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"signature\":");
    out.extend_from_slice(head.signature.map_or(b"null", |signature| signature.get().as_bytes()));
    for (key, value) in head.extra {
        out.push(b',');
        push_text(&mut out, key.as_str());
        out.push(b':');
        out.extend_from_slice(value.get().as_bytes());
    }
    out.push(b'}');
    Bytes::from(out)
}

/// Writes something that the hub says.
pub(crate) fn said(
    id: &str,
    to: &str,
    kind: &str,
    correlation: Option<&str>,
    now: Millis,
    payload: &Value,
    trace: &str,
) -> Bytes {
    let head = Head {
        id,
        from: HUB,
        to,
        kind,
        is_ask: false,
        correlation,
        timestamp: now,
        ttl: None,
        signature: None,
        extra: &[],
    };
    let write_payload = |out: &mut Vec<u8>| _ = serde_json::to_writer(out, payload);
    write(&head, 256, write_payload, |out| out.extend_from_slice(trace.as_bytes()))
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
