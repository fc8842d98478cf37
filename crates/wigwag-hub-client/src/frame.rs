//! Wire format of frames, and validation of addresses, topics and ids.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::error::{Error, Result};
use crate::limits::{ID_BYTES_MAX, NAME_BYTES_MAX};

/// Protocol version of this client.
pub(super) const PROTOCOL: &str = "0.1.0";

/// Whether the sender expects an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Pattern {
    Tell,
    Ask,
}

/// A frame to the hub.
#[derive(Debug, Serialize)]
pub(super) struct Outgoing<'a> {
    pub(super) id: &'a str,
    pub(super) from: &'a str,
    pub(super) to: &'static str,
    #[serde(rename = "type")]
    pub(super) kind: &'a str,
    pub(super) pattern: Pattern,
    pub(super) timestamp: u64,
    pub(super) payload: &'a RawValue,
    pub(super) metadata: &'a Map<String, Value>,
    pub(super) ttl: Option<u64>,
}

impl Outgoing<'_> {
    pub(super) fn encode(&self) -> String {
        serde_json::to_string(self).expect("names, numbers and parsed JSON always serialize to JSON")
    }
}

/// A frame from the hub.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Incoming {
    #[serde(default)]
    pub(super) id: String,
    #[serde(default)]
    pub(super) from: String,
    #[serde(default)]
    pub(super) to: String,
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) pattern: String,
    #[serde(default)]
    pub(super) correlation_id: Option<String>,
    #[serde(default)]
    pub(super) timestamp: u64,
    #[serde(default = "null")]
    pub(super) payload: Box<RawValue>,
    #[serde(default)]
    pub(super) metadata: Option<Map<String, Value>>,
}

impl Incoming {
    /// Returns an empty frame, the placeholder answer of messages that get no answer.
    pub(super) fn nothing() -> Self {
        Self {
            id: String::new(),
            from: String::new(),
            to: String::new(),
            kind: String::new(),
            pattern: String::new(),
            correlation_id: None,
            timestamp: 0,
            payload: null(),
            metadata: None,
        }
    }

    pub(super) fn read(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|error| {
            Error::new(super::ErrorKind::Internal, format!("the hub sent an invalid message: {error}"))
        })
    }

    pub(super) fn is_marked(&self, name: &str) -> bool {
        self.metadata.as_ref().and_then(|metadata| metadata.get(name)) == Some(&Value::Bool(true))
    }

    /// Parses the payload as a type of the protocol.
    pub(super) fn payload<'a, T: Deserialize<'a>>(&'a self) -> Result<T> {
        read(&self.kind, &self.payload)
    }
}

/// Parses the payload of an answer from the hub.
pub(super) fn read<'a, T: Deserialize<'a>>(kind: &str, payload: &'a RawValue) -> Result<T> {
    serde_json::from_str(payload.get()).map_err(|error| {
        Error::new(super::ErrorKind::Internal, format!("cannot parse `{kind}` from the hub: {error}"))
            .hint("the server may have a different version than this client")
    })
}

pub(super) fn null() -> Box<RawValue> {
    RawValue::NULL.to_owned()
}

/// Serializes a value to JSON text.
pub(super) fn raw<T: Serialize + ?Sized>(data: &T) -> Result<Box<RawValue>> {
    serde_json::value::to_raw_value(data).map_err(|error| {
        Error::invalid(format!("cannot serialize the data to JSON: {error}")).hint("map keys must be strings")
    })
}

/// Validates an address such as `@(worker/a)`.
pub(super) fn address(text: &str) -> Result<()> {
    let inside = text.strip_prefix("@(").and_then(|rest| rest.strip_suffix(')'));
    match text.len() <= NAME_BYTES_MAX && inside.is_some_and(is_path) {
        true => Ok(()),
        false => Err(Error::invalid(format!("invalid address: `{text}`"))
            .hint("use the form `@(worker/a)`: segments of letters, digits and `._~:-`, 256 bytes at most")),
    }
}

/// Validates a topic such as `orders/new`.
pub(super) fn topic(text: &str) -> Result<()> {
    match text.len() <= NAME_BYTES_MAX && is_path(text) {
        true => Ok(()),
        false => Err(Error::invalid(format!("invalid topic: `{text}`"))
            .hint("use the form `orders/new`: segments of letters, digits and `._~:-`, 256 bytes at most")),
    }
}

/// Validates an id that the user chose.
pub(super) fn id(text: &str) -> Result<()> {
    match (1..=ID_BYTES_MAX).contains(&text.len()) {
        true => Ok(()),
        false => Err(Error::invalid(format!("invalid id: want 1 to {ID_BYTES_MAX} bytes, got: {}", text.len()))
            .hint("a repeat uses the same id; omit it to generate one")),
    }
}

fn is_path(text: &str) -> bool {
    let is_letter = |letter: u8| letter.is_ascii_alphanumeric() || b"._~:-".contains(&letter);
    text.split('/').all(|segment| !segment.is_empty() && segment.bytes().all(is_letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_before_they_leave() {
        for good in ["@(a)", "@(worker/a-1.b_c~d:e)", "@(session/x)"] {
            address(good).unwrap();
        }
        let long = format!("@({})", "a".repeat(254));
        for wrong in ["", "a", "@()", "@(a", "a)", "@(a//b)", "@(/a)", "@(a/)", "@(ä)", "@(a b)", "@(*)", &long] {
            assert!(address(wrong).unwrap_err().advice().unwrap().contains("@(worker/a)"), "{wrong}");
        }
        topic("run/order-17").unwrap();
        for wrong in ["", "@(a)", "a//b", "a b", &"a".repeat(257)] {
            assert!(topic(wrong).is_err(), "{wrong}");
        }
        assert!(id("").is_err() && id(&"x".repeat(129)).is_err() && id("x").is_ok());
    }

    #[test]
    fn a_frame_says_what_the_protocol_wants() {
        let metadata = Map::new();
        let payload = raw(&serde_json::json!({"a": 1})).unwrap();
        let frame = Outgoing {
            id: "i",
            from: "@(a)",
            to: "@(hub)",
            kind: "hub:send",
            pattern: Pattern::Ask,
            timestamp: 7,
            payload: &payload,
            metadata: &metadata,
            ttl: None,
        };
        let want = r#"{"id":"i","from":"@(a)","to":"@(hub)","type":"hub:send","pattern":"ask","timestamp":7,"payload":{"a":1},"metadata":{},"ttl":null}"#;
        assert_eq!(frame.encode(), want);
    }

    #[test]
    fn what_may_be_absent_may_be_absent() {
        let frame = Incoming::read(r#"{"type": "hub:resume"}"#).unwrap();
        assert_eq!((frame.payload.get(), frame.correlation_id), ("null", None));
        let frame = Incoming::read(
            r#"{"type":"a","payload":{"n": 12345678901234567890123},"metadata":{"requireAck":true},"x":1}"#,
        );
        let frame = frame.unwrap();
        assert_eq!(frame.payload.get(), r#"{"n": 12345678901234567890123}"#);
        assert!(frame.is_marked("requireAck") && !frame.is_marked("queue"));
        assert!(Incoming::read("7").is_err());
    }
}
