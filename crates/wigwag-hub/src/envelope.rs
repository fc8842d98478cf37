//! Frames as they come in: read in one pass, borrowed, and what is only passed on is never taken apart.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// An id or type is a word, not a document.
const WORD_BYTES_MAX: usize = 128;

/// A text of the frame, borrowed if nothing in it is escaped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Text<'_> {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

/// Whether the sender wants an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// At most once, no answer.
    Tell,
    /// At least once, answered.
    Ask,
}

/// One message as a client sent it.
#[derive(Clone, Debug)]
pub struct Envelope<'a> {
    /// Chosen by the sender.
    pub id: Text<'a>,
    /// As whom it is sent.
    pub from: Text<'a>,
    /// The hub.
    pub to: Text<'a>,
    /// What it is.
    pub kind: Text<'a>,
    /// Whether an answer is wanted.
    pub pattern: Pattern,
    /// By the sender's clock.
    pub timestamp: u64,
    /// What kinds of messages need.
    pub payload: Payload<'a>,
    /// What goes along with it.
    pub metadata: Metadata<'a>,
    /// For how long it is of use.
    pub ttl: Option<u64>,
    /// Carried, not read.
    pub signature: Option<&'a RawValue>,
    /// Keys that the protocol does not know, carried.
    pub extra: Vec<(Text<'a>, &'a RawValue)>,
}

/// A frame that was read.
#[derive(Clone, Debug)]
pub enum Frame<'a> {
    /// A message.
    Message(Box<Envelope<'a>>),
    /// `{"type":"ping"}`.
    Ping,
}

/// Why a frame is not a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// What is wrong, and where.
    pub what: String,
    /// The message's id, if that much could be read.
    pub id: Option<String>,
}

/// Everything that a payload of the hub's messages may hold. One pass over the frame reads all of it.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(missing_docs, reason = "the protocol page says what they are")]
pub struct Payload<'a> {
    #[serde(borrow)]
    pub protocol_version: Option<Text<'a>>,
    pub token: Option<Text<'a>>,
    pub resume: Option<Resume<'a>>,
    #[serde(borrow)]
    pub timestamp: Option<&'a RawValue>,
    pub actor_address: Option<Text<'a>>,
    pub capabilities: Option<Vec<Text<'a>>>,
    pub metadata: Option<&'a RawValue>,
    pub ttl_seconds: Option<u64>,
    pub renewal_token: Option<Text<'a>>,
    pub pattern: Option<Text<'a>>,
    pub capability: Option<Text<'a>>,
    pub limit: Option<u64>,
    pub after: Option<&'a RawValue>,
    pub target_address: Option<Text<'a>>,
    pub message: Option<Inner<'a>>,
    pub to: Option<Text<'a>>,
    #[serde(rename = "type")]
    pub kind: Option<Text<'a>>,
    pub data: Option<&'a RawValue>,
    pub expect_reply: Option<bool>,
    pub message_id: Option<Text<'a>>,
    pub in_reply_to: Option<Text<'a>>,
    pub exclude_self: Option<bool>,
    pub topic: Option<Text<'a>>,
    pub subscription_id: Option<Text<'a>>,
}

/// Which session to go on with.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resume<'a> {
    /// Its secret id.
    #[serde(borrow)]
    pub session_id: Text<'a>,
}

/// The message inside a message.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Inner<'a> {
    /// What it is.
    #[serde(borrow, rename = "type")]
    pub kind: Text<'a>,
    /// What it says.
    #[serde(borrow, default)]
    pub payload: Option<&'a RawValue>,
    /// The same by its other name.
    #[serde(borrow, default)]
    pub data: Option<&'a RawValue>,
}

/// What goes along with a message: what the hub looks at, and all of it to pass on.
#[derive(Clone, Debug, Default)]
pub struct Metadata<'a> {
    /// `requireAck`.
    pub require_ack: bool,
    /// `queue`.
    pub queue: bool,
    /// Everything but what the hub itself adds.
    pub entries: Vec<(Text<'a>, &'a RawValue)>,
}

/// What the hub adds to a message's metadata, and nobody else.
const ADDED: [&str; 4] = ["originalMessageId", "topic", "epoch", "seq"];

impl<'a> Metadata<'a> {
    /// An entry as it was written.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.entries.iter().find(|(name, _)| name.as_str() == key).map(|(_, value)| *value)
    }

    /// An entry that is a text.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<Text<'a>> {
        self.get(key).and_then(|value| serde_json::from_str(value.get()).ok())
    }
}

struct MetadataVisitor;

impl<'de> Visitor<'de> for MetadataVisitor {
    type Value = Metadata<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object in `metadata`")
    }

    fn visit_unit<E>(self) -> Result<Metadata<'de>, E> {
        Ok(Metadata::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Metadata<'de>, A::Error> {
        let mut metadata = Metadata::default();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            if ADDED.contains(&key.as_str()) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value = map.next_value::<&'de RawValue>()?;
            match key.as_str() {
                "requireAck" => metadata.require_ack = value.get() == "true",
                "queue" => metadata.queue = value.get() == "true",
                _ => {}
            }
            metadata.entries.push((key, value));
        }
        Ok(metadata)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Metadata<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MetadataVisitor)
    }
}

/// What was read of an envelope so far.
#[derive(Default)]
struct Partial<'a> {
    id: Option<Text<'a>>,
    from: Option<Text<'a>>,
    to: Option<Text<'a>>,
    kind: Option<Text<'a>>,
    pattern: Option<Pattern>,
    timestamp: Option<u64>,
    payload: Option<Payload<'a>>,
    metadata: Metadata<'a>,
    ttl: Option<u64>,
    signature: Option<&'a RawValue>,
    extra: Vec<(Text<'a>, &'a RawValue)>,
    keys: usize,
}

struct EnvelopeVisitor;

impl<'de> Visitor<'de> for EnvelopeVisitor {
    type Value = Partial<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an envelope: a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Partial<'de>, A::Error> {
        let mut all = Partial::default();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            all.keys += 1;
            match key.as_str() {
                "id" => once(&mut all.id, "id", &mut map)?,
                "from" => once(&mut all.from, "from", &mut map)?,
                "to" => once(&mut all.to, "to", &mut map)?,
                "type" => once(&mut all.kind, "type", &mut map)?,
                "pattern" => once(&mut all.pattern, "pattern", &mut map)?,
                "timestamp" => once(&mut all.timestamp, "timestamp", &mut map)?,
                "payload" => all.payload = map.next_value()?,
                "metadata" => all.metadata = map.next_value()?,
                "ttl" => all.ttl = map.next_value()?,
                "signature" => all.signature = map.next_value()?,
                "correlationId" => _ = map.next_value::<Option<Text<'de>>>()?,
                _ => all.extra.push((key, map.next_value()?)),
            }
        }
        Ok(all)
    }
}

fn once<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    slot: &mut Option<T>,
    name: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    if slot.is_some() {
        return Err(de::Error::duplicate_field(name));
    }
    *slot = Some(map.next_value()?);
    Ok(())
}

impl<'de: 'a, 'a> Deserialize<'de> for Partial<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EnvelopeVisitor)
    }
}

/// Reads a frame.
pub fn read(text: &str) -> Result<Frame<'_>, Unreadable> {
    let all: Partial<'_> = serde_json::from_str(text).map_err(|error| unreadable(text, &error.to_string()))?;
    if all.keys == 1 && all.kind.as_ref().is_some_and(|kind| kind.as_str() == "ping") {
        return Ok(Frame::Ping);
    }
    all.complete().map(|envelope| Frame::Message(Box::new(envelope)))
}

/// Says what is wrong, and finds the id all the same if the rest can be read as JSON.
fn unreadable(text: &str, what: &str) -> Unreadable {
    #[derive(serde::Deserialize)]
    struct Id {
        id: Option<String>,
    }
    let id = serde_json::from_str::<Id>(text).ok().and_then(|found| found.id);
    Unreadable { what: what.to_owned(), id: id.filter(|id| is_word(id)) }
}

fn is_word(text: &str) -> bool {
    (1..=WORD_BYTES_MAX).contains(&text.len())
}

impl<'a> Partial<'a> {
    fn complete(self) -> Result<Envelope<'a>, Unreadable> {
        let id = self.id.as_ref().map(|id| id.as_str().to_owned()).filter(|id| is_word(id));
        let wrong = |what: String| Unreadable { what, id: id.clone() };
        let missing = |name: &str| wrong(format!("the envelope has no `{name}`"));
        let word = |name: &str, text: Option<Text<'a>>| {
            let text = text.ok_or_else(|| missing(name))?;
            let long = || wrong(format!("`{name}` has 1 to {WORD_BYTES_MAX} bytes, got: {}", text.as_str().len()));
            if is_word(text.as_str()) { Ok(text) } else { Err(long()) }
        };
        Ok(Envelope {
            kind: word("type", self.kind)?,
            from: self.from.ok_or_else(|| missing("from"))?,
            to: self.to.ok_or_else(|| missing("to"))?,
            pattern: self.pattern.ok_or_else(|| missing("pattern"))?,
            timestamp: self.timestamp.ok_or_else(|| missing("timestamp"))?,
            id: word("id", self.id)?,
            payload: self.payload.unwrap_or_default(),
            metadata: self.metadata,
            ttl: self.ttl,
            signature: self.signature,
            extra: self.extra,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = r#"{"id":"1","from":"@(a)","to":"@(hub)","type":"hub:send","pattern":"ask","timestamp":5}"#;

    fn message(text: &str) -> Envelope<'_> {
        match read(text) {
            Ok(Frame::Message(envelope)) => *envelope,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_may_be_absent_reads_as_null_or_empty() {
        let envelope = message(LEAST);
        assert_eq!((envelope.ttl, envelope.metadata.entries.len(), envelope.extra.len()), (None, 0, 0));
        assert!(envelope.signature.is_none() && envelope.payload.topic.is_none());
        let nulls = LEAST.replace("5}", r#"5,"payload":null,"metadata":null,"ttl":null,"signature":null,"correlationId":null}"#);
        assert_eq!(message(&nulls).id.as_str(), "1");
    }

    #[test]
    fn a_frame_without_what_is_required_says_what_is_missing() {
        for name in ["id", "from", "to", "type", "pattern", "timestamp"] {
            let mut value: serde_json::Value = serde_json::from_str(LEAST).unwrap();
            value.as_object_mut().unwrap().remove(name);
            let text = value.to_string();
            assert_eq!(read(&text).unwrap_err().what, format!("the envelope has no `{name}`"));
        }
    }

    #[test]
    fn a_malformed_frame_says_where_and_keeps_its_id_if_it_can() {
        let broken = read("{\"id\":").unwrap_err();
        assert!(broken.what.contains("line 1 column"), "{}", broken.what);
        assert_eq!(broken.id, None);
        let text = LEAST.replace("\"ask\"", "\"shout\"");
        let wrong = read(&text).unwrap_err();
        assert!(wrong.what.contains("shout"), "{}", wrong.what);
        assert_eq!(wrong.id.as_deref(), Some("1"));
        for text in ["", "1", "[]", "\"x\"", "null", "{}", "{\"type\":\"pang\"}"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_inner_payload_is_borrowed_as_it_was_written() {
        let text = LEAST.replace("5}", r#"5,"payload":{"targetAddress":"@(b)","message":{"type":"t","payload":{"x": 1.0e3}}}}"#);
        let envelope = message(&text);
        let inner = envelope.payload.message.unwrap();
        assert_eq!(inner.payload.unwrap().get(), "{\"x\": 1.0e3}");
        assert!(matches!(inner.kind.0, Cow::Borrowed("t")));
    }

    #[test]
    fn nobody_but_the_hub_adds_what_the_hub_adds() {
        let text = LEAST.replace("5}", r#"5,"metadata":{"originalMessageId":"forged","requireAck":true,"a":1},"x":[2]}"#);
        let envelope = message(&text);
        assert!(envelope.metadata.require_ack);
        assert!(envelope.metadata.get("originalMessageId").is_none());
        assert_eq!(envelope.metadata.get("a").unwrap().get(), "1");
        assert_eq!(envelope.extra[0].1.get(), "[2]");
    }

    #[test]
    fn a_ping_is_a_type_alone() {
        assert!(matches!(read("{\"type\":\"ping\"}"), Ok(Frame::Ping)));
        assert!(read("{\"type\":\"ping\",\"id\":\"1\"}").is_err());
    }

    #[test]
    fn a_field_twice_is_no_envelope() {
        assert!(read(&LEAST.replace("5}", "5,\"from\":\"@(b)\"}")).is_err());
    }
}
