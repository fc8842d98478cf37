//! Frames as they come in: read in one pass, borrowed, and what is only passed on is never taken apart.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::refusal::{self, Refusal};

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
    /// What it says.
    pub payload: Fields<'a>,
    /// What goes along with it.
    pub metadata: Metadata<'a>,
    /// For how long it is of use.
    pub ttl: Option<u64>,
    /// Carried, not read.
    pub signature: Option<&'a str>,
    /// Keys that the protocol does not know, carried.
    pub extra: Fields<'a>,
}

/// A frame that was read.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are messages, and a box for each takes longer than a move")]
pub enum Frame<'a> {
    /// A message.
    Message(Envelope<'a>),
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

/// The fields of an object, as they were written. A null is as good as absent.
#[derive(Clone, Debug, Default)]
pub struct Fields<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    /// All of them, as they were written.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a str)> + '_ {
        self.0.iter().copied()
    }

    /// A field as it was written; the last of those that have this name.
    #[must_use]
    pub fn raw(&self, name: &str) -> Option<&'a str> {
        let found = self.0.iter().rev().find(|(key, _)| *key == name);
        found.map(|(_, raw)| *raw).filter(|raw| *raw != "null")
    }

    /// A field that is a text.
    pub(crate) fn text(&self, name: &str) -> Result<Option<Text<'a>>, Refusal> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        // Most are not escaped.
        let inside =
            raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).filter(|inside| !inside.contains('\\'));
        if let Some(inside) = inside {
            return Ok(Some(Text(Cow::Borrowed(inside))));
        }
        let read = serde_json::from_str(raw);
        read.map(Some).map_err(|_| refusal::invalid(&format!("`{name}` is not a text: {}", refusal::shown(raw))))
    }

    /// A field that is something else.
    pub(crate) fn of<T: DeserializeOwned>(&self, name: &str, wanted: &str) -> Result<Option<T>, Refusal> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        let read = serde_json::from_str(raw);
        read.map(Some).map_err(|_| refusal::invalid(&format!("`{name}` is not {wanted}: {}", refusal::shown(raw))))
    }

    /// A text that must be there.
    pub(crate) fn needed(&self, kind: &str, name: &str) -> Result<Text<'a>, Refusal> {
        self.text(name)?.ok_or_else(|| refusal::invalid(&format!("`{kind}` has no `{name}`")))
    }

    /// The fields of a field that is an object.
    pub(crate) fn object(&self, name: &str) -> Result<Option<Self>, Refusal> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        let read = serde_json::from_str(raw);
        read.map(Some).map_err(|_| refusal::invalid(&format!("`{name}` is not an object: {}", refusal::shown(raw))))
    }

    /// A text, if it is one: for those who look before the hub does.
    #[must_use]
    pub fn word(&self, name: &str) -> Option<Text<'a>> {
        self.text(name).ok().flatten()
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or null")
    }

    fn visit_unit<E>(self) -> Result<Fields<'de>, E> {
        Ok(Fields::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
        let mut fields = Vec::with_capacity(4);
        while let Some(key) = next_key(&mut map)? {
            fields.push((key, map.next_value::<&'de RawValue>()?.get()));
        }
        Ok(Fields(fields))
    }
}

/// A key that is escaped could mean one that is the hub's own.
fn next_key<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<&'de str>, A::Error> {
    match map.next_key::<Text<'de>>()? {
        None => Ok(None),
        Some(Text(Cow::Borrowed(key))) => Ok(Some(key)),
        Some(Text(Cow::Owned(_))) => Err(de::Error::custom("a key is written without escapes")),
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FieldsVisitor)
    }
}

/// What goes along with a message: what the hub looks at, and all of it to pass on.
#[derive(Clone, Debug, Default)]
pub struct Metadata<'a> {
    /// `requireAck`.
    pub require_ack: bool,
    /// `queue`.
    pub queue: bool,
    /// Everything but what the hub itself adds.
    pub entries: Fields<'a>,
}

/// What the hub adds to a message's metadata, and nobody else.
const ADDED: [&str; 4] = ["originalMessageId", "topic", "epoch", "seq"];

impl<'a> From<Fields<'a>> for Metadata<'a> {
    fn from(mut entries: Fields<'a>) -> Self {
        entries.0.retain(|(key, _)| !ADDED.contains(key));
        let is_true = |name: &str| entries.raw(name) == Some("true");
        Self { require_ack: is_true("requireAck"), queue: is_true("queue"), entries }
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
    payload: Fields<'a>,
    metadata: Metadata<'a>,
    ttl: Option<u64>,
    signature: Option<&'a str>,
    extra: Fields<'a>,
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
        while let Some(key) = next_key(&mut map)? {
            all.keys += 1;
            match key {
                "id" => once(&mut all.id, "id", &mut map)?,
                "from" => once(&mut all.from, "from", &mut map)?,
                "to" => once(&mut all.to, "to", &mut map)?,
                "type" => once(&mut all.kind, "type", &mut map)?,
                "pattern" => once(&mut all.pattern, "pattern", &mut map)?,
                "timestamp" => once(&mut all.timestamp, "timestamp", &mut map)?,
                "payload" => all.payload = map.next_value()?,
                "metadata" => all.metadata = map.next_value::<Fields<'de>>()?.into(),
                "ttl" => all.ttl = map.next_value()?,
                "signature" => {
                    all.signature = Some(map.next_value::<&'de RawValue>()?.get()).filter(|raw| *raw != "null")
                }
                "correlationId" => _ = map.next_value::<Option<Text<'de>>>()?,
                _ => all.extra.0.push((key, map.next_value::<&'de RawValue>()?.get())),
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

impl<'a> Partial<'a> {
    fn complete(self) -> Result<Envelope<'a>, Unreadable> {
        let id = self.id.clone();
        let own = || id.as_ref().map(|id| id.as_str().to_owned()).filter(|id| is_word(id));
        let wrong = |what: String| Unreadable { what, id: own() };
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
            payload: self.payload,
            metadata: self.metadata,
            ttl: self.ttl,
            signature: self.signature,
            extra: self.extra,
        })
    }
}

/// Reads a frame.
pub fn read(text: &str) -> Result<Frame<'_>, Unreadable> {
    let all: Partial<'_> = serde_json::from_str(text).map_err(|error| unreadable(text, &error.to_string()))?;
    if all.keys == 1 && all.kind.as_ref().is_some_and(|kind| kind.as_str() == "ping") {
        return Ok(Frame::Ping);
    }
    all.complete().map(Frame::Message)
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

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = r#"{"id":"1","from":"@(a)","to":"@(hub)","type":"hub:send","pattern":"ask","timestamp":5}"#;

    fn message(text: &str) -> Envelope<'_> {
        match read(text) {
            Ok(Frame::Message(envelope)) => envelope,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_may_be_absent_reads_as_null_or_empty() {
        let envelope = message(LEAST);
        assert_eq!(
            (envelope.ttl, envelope.metadata.entries.iter().count(), envelope.extra.iter().count()),
            (None, 0, 0)
        );
        assert!(envelope.signature.is_none() && envelope.payload.raw("topic").is_none());
        let nulls = LEAST
            .replace("5}", r#"5,"payload":null,"metadata":null,"ttl":null,"signature":null,"correlationId":null}"#);
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
        let text = LEAST
            .replace("5}", r#"5,"payload":{"targetAddress":"@(b)","message":{"type":"t","payload":{"x": 1.0e3}}}}"#);
        let envelope = message(&text);
        let inner = envelope.payload.object("message").unwrap().unwrap();
        assert_eq!(inner.raw("payload"), Some("{\"x\": 1.0e3}"));
        assert!(matches!(inner.text("type").unwrap().unwrap().0, Cow::Borrowed("t")));
    }

    #[test]
    fn nobody_but_the_hub_adds_what_the_hub_adds() {
        let text =
            LEAST.replace("5}", r#"5,"metadata":{"originalMessageId":"forged","requireAck":true,"a":1},"x":[2]}"#);
        let envelope = message(&text);
        assert!(envelope.metadata.require_ack);
        assert!(envelope.metadata.entries.raw("originalMessageId").is_none());
        assert_eq!(envelope.metadata.entries.raw("a"), Some("1"));
        assert_eq!(envelope.extra.raw("x"), Some("[2]"));
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

    #[test]
    fn a_key_that_is_escaped_is_no_way_to_what_the_hub_writes() {
        assert!(read(&LEAST.replace("5}", "5,\"fr\\u006fm\":\"@(b)\"}")).is_err());
        assert!(read(&LEAST.replace("5}", "5,\"metadata\":{\"se\\u0071\":1}}")).is_err());
    }

    #[test]
    fn texts_are_read_as_they_are_meant() {
        let text = LEAST.replace("\"1\"", "\"\\u00e4\\n\"");
        assert_eq!(message(&text).id.as_str(), "ä\n");
        assert!(read(&LEAST.replace("\"1\"", "\"\\ud800\"")).is_err(), "half a character");
    }
}
