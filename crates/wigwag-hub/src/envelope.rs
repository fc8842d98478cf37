//! Parses incoming frames in one pass, borrowed; fields that are only forwarded stay unparsed.

use std::borrow::Cow;
use std::fmt;

use serde::de::{self, Deserialize, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::address::HUB;
use crate::plain::Plain;
use crate::refusal::{self, Refusal};

/// Maximum length of an id or a type.
const WORD_BYTES_MAX: usize = 128;

/// A string of the frame, borrowed unless it contains escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Text<'a>(pub Cow<'a, str>);

impl Text<'_> {
    /// Returns the string.
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

/// Whether the sender expects an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Delivered at most once, without an answer.
    #[default]
    Tell,
    /// Delivered at least once, with an answer.
    Ask,
}

/// One message as a client sent it.
#[derive(Clone, Debug, Default)]
pub struct Envelope<'a> {
    /// Message id, chosen by the sender.
    pub id: Text<'a>,
    /// The sender's address.
    pub from: Text<'a>,
    /// The hub's address.
    pub to: Text<'a>,
    /// The message type.
    pub kind: Text<'a>,
    /// Whether the sender expects an answer.
    pub pattern: Pattern,
    /// Send time by the sender's clock.
    pub timestamp: u64,
    /// The message's fields, which depend on its type.
    pub payload: Fields<'a>,
    /// Delivery flags, and entries that are forwarded to the target.
    pub metadata: Metadata<'a>,
    /// Time to live in milliseconds.
    pub ttl: Option<u64>,
    /// The signature, which is forwarded unchecked.
    pub signature: Option<&'a str>,
    /// Keys unknown to the protocol, which are forwarded.
    pub extra: Vec<(&'a str, &'a str)>,
}

impl Envelope<'_> {
    /// Whether this frame takes the hub much longer than a message. Such frames are handled one at a time.
    #[must_use]
    pub fn is_heavy(&self) -> bool {
        matches!(
            self.kind.as_str(),
            "hub:discover" | "hub:list_actors" | "hub:list_topics" | "hub:subscribe" | "hub:broadcast"
        )
    }
}

/// A parsed frame.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are messages, and a box for each takes longer than a move")]
pub enum Frame<'a> {
    /// A message envelope.
    Message(Envelope<'a>),
    /// `{"type":"ping"}`.
    Ping,
}

/// A frame that could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The error and its location.
    pub what: String,
    /// The message's id, if it could be parsed.
    pub id: Option<String>,
}

/// The fields of an object as raw JSON. `null` counts as absent.
///
/// The first `FEW` fields are stored inline, without an allocation.
#[derive(Clone, Debug)]
pub struct Fields<'a, const FEW: usize = 4> {
    few: [(&'a str, &'a str); FEW],
    few_count: usize,
    more: Vec<(&'a str, &'a str)>,
}

impl<const FEW: usize> Default for Fields<'_, FEW> {
    fn default() -> Self {
        Self { few: [("", ""); FEW], few_count: 0, more: Vec::new() }
    }
}

impl<'a, const FEW: usize> Fields<'a, FEW> {
    fn push(&mut self, key: &'a str, raw: &'a str) {
        match self.few.get_mut(self.few_count) {
            Some(free) => {
                *free = (key, raw);
                self.few_count += 1;
            }
            None => self.more.push((key, raw)),
        }
    }

    /// Iterates over all fields in the order of the frame.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&'a str, &'a str)> + '_ {
        self.few.iter().take(self.few_count).chain(&self.more).copied()
    }

    /// Returns a field as raw JSON; of repeated keys the last one counts.
    #[must_use]
    #[inline]
    pub fn raw(&self, name: &str) -> Option<&'a str> {
        let few = self.few.get(..self.few_count).unwrap_or_default();
        let found = self.more.iter().rev().find(|(key, _)| *key == name);
        let found = found.or_else(|| few.iter().rev().find(|(key, _)| *key == name));
        found.map(|(_, raw)| *raw).filter(|raw| *raw != "null")
    }

    /// Returns a field that must be a string.
    #[inline]
    pub(crate) fn text(&self, name: &str) -> Result<Option<Text<'a>>, Refusal> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        // Most strings contain no escapes.
        let inside = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let inside = inside.filter(|inside| memchr::memchr(b'\\', inside.as_bytes()).is_none());
        if let Some(inside) = inside {
            return Ok(Some(Text(Cow::Borrowed(inside))));
        }
        let read = serde_json::from_str(raw);
        read.map(Some).map_err(|_| refusal::invalid(&format!("`{name}` is not a text: {}", refusal::shown(raw))))
    }

    /// Returns a boolean field; `false` if it is absent.
    pub(crate) fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.raw(name) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(other) => Err(refusal::invalid(&format!("`{name}` is true or false, got: {}", refusal::shown(other)))),
        }
    }

    /// Parses a field into any other type.
    pub(crate) fn of<T: DeserializeOwned>(&self, name: &str, wanted: &str) -> Result<Option<T>, Refusal> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        let read = serde_json::from_str(raw);
        read.map(Some).map_err(|_| refusal::invalid(&format!("`{name}` is not {wanted}: {}", refusal::shown(raw))))
    }

    /// Returns a required string field.
    pub(crate) fn needed(&self, kind: &str, name: &str) -> Result<Text<'a>, Refusal> {
        self.text(name)?.ok_or_else(|| refusal::invalid(&format!("`{kind}` has no `{name}`")))
    }

    /// Returns the fields of a nested object.
    pub(crate) fn object(&self, name: &str) -> Result<Option<Fields<'a>>, Refusal> {
        let Some(raw) = self.raw(name) else { return Ok(None) };
        let read = serde_json::from_str(raw);
        read.map(Some).map_err(|_| refusal::invalid(&format!("`{name}` is not an object: {}", refusal::shown(raw))))
    }

    /// Returns a field if it is a string, for callers that inspect a frame before the hub validates it.
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
        let mut fields = Fields::default();
        while let Some(key) = next_key(&mut map)? {
            fields.push(key, map.next_value::<&'de RawValue>()?.get());
        }
        Ok(fields)
    }
}

/// Reads a key. Escapes are rejected, because an escaped key could spell one of the hub's own.
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

/// Metadata of a message: the flags that the hub reads, and all entries to forward.
#[derive(Clone, Debug, Default)]
pub struct Metadata<'a> {
    /// The flag `requireAck`: the target's client must acknowledge the message.
    pub require_ack: bool,
    /// The flag `queue`: the message is stored if its target is away.
    pub queue: bool,
    /// A flag that is not a boolean or is repeated.
    pub malformed: Option<&'static str>,
    /// All entries except the keys that only the hub adds.
    pub entries: Fields<'a, 0>,
}

/// Metadata keys that only the hub may add.
const ADDED: [&str; 4] = ["originalMessageId", "topic", "epoch", "seq"];

impl<'a> From<Fields<'a>> for Metadata<'a> {
    fn from(given: Fields<'a>) -> Self {
        let mut entries = Fields::default();
        let (mut require_ack, mut queue, mut malformed) = (None, None, None);
        for (key, raw) in given.iter().filter(|(key, _)| !ADDED.contains(key)) {
            entries.push(key, raw);
            let (name, flag) = match key {
                "requireAck" => ("requireAck", &mut require_ack),
                "queue" => ("queue", &mut queue),
                _ => continue,
            };
            let is_flag = matches!(raw, "true" | "false");
            if flag.replace(raw == "true").is_some() || !is_flag {
                malformed = Some(name);
            }
        }
        let (require_ack, queue) = (require_ack.unwrap_or_default(), queue.unwrap_or_default());
        Self { require_ack, queue, malformed, entries }
    }
}

/// An envelope while it is being parsed.
#[derive(Default)]
struct Partial<'a> {
    envelope: Envelope<'a>,
    given: Given,
    keys: usize,
}

/// Which of the required fields are present.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "one for each field")]
struct Given {
    id: bool,
    from: bool,
    to: bool,
    kind: bool,
    pattern: bool,
    timestamp: bool,
}

struct EnvelopeVisitor;

impl<'de> Visitor<'de> for EnvelopeVisitor {
    type Value = Partial<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an envelope: a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Partial<'de>, A::Error> {
        let mut all = Partial::default();
        let (envelope, given) = (&mut all.envelope, &mut all.given);
        while let Some(key) = next_key(&mut map)? {
            all.keys += 1;
            match key {
                "id" => envelope.id = once(&mut given.id, "id", &mut map)?,
                "from" => envelope.from = once(&mut given.from, "from", &mut map)?,
                "to" => envelope.to = once(&mut given.to, "to", &mut map)?,
                "type" => envelope.kind = once(&mut given.kind, "type", &mut map)?,
                "pattern" => envelope.pattern = once(&mut given.pattern, "pattern", &mut map)?,
                "timestamp" => envelope.timestamp = once(&mut given.timestamp, "timestamp", &mut map)?,
                "payload" => envelope.payload = map.next_value()?,
                "metadata" => envelope.metadata = map.next_value::<Fields<'de>>()?.into(),
                "ttl" => envelope.ttl = map.next_value()?,
                "signature" => {
                    envelope.signature = Some(map.next_value::<&'de RawValue>()?.get()).filter(|raw| *raw != "null")
                }
                "correlationId" => _ = map.next_value::<Option<Text<'de>>>()?,
                _ => envelope.extra.push((key, map.next_value::<&'de RawValue>()?.get())),
            }
        }
        Ok(all)
    }
}

fn once<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    given: &mut bool,
    name: &'static str,
    map: &mut A,
) -> Result<T, A::Error> {
    if std::mem::replace(given, true) {
        return Err(de::Error::duplicate_field(name));
    }
    map.next_value()
}

impl<'de: 'a, 'a> Deserialize<'de> for Partial<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EnvelopeVisitor)
    }
}

impl Partial<'_> {
    /// Reports the first field that is missing or malformed.
    fn check(&self) -> Result<(), Unreadable> {
        let (envelope, given) = (&self.envelope, &self.given);
        let is_word = |text: &Text<'_>| is_word(text.as_str());
        let is_whole = given.from && given.to && given.pattern && given.timestamp;
        if is_whole && is_word(&envelope.id) && is_word(&envelope.kind) {
            return Ok(());
        }
        let all = [
            ("type", given.kind, Some(&envelope.kind)),
            ("from", given.from, None),
            ("to", given.to, None),
            ("pattern", given.pattern, None),
            ("timestamp", given.timestamp, None),
            ("id", given.id, Some(&envelope.id)),
        ];
        let what = all.into_iter().find_map(|(name, is_given, word)| match word.filter(|word| !is_word(word)) {
            _ if !is_given => Some(format!("the envelope has no `{name}`")),
            Some(long) => Some(format!("`{name}` has 1 to {WORD_BYTES_MAX} bytes, got: {}", long.as_str().len())),
            None => None,
        });
        let id = Some(&envelope.id).filter(|id| is_word(id)).map(|id| id.as_str().to_owned());
        Err(Unreadable { what: what.unwrap_or_default(), id })
    }
}

/// Fast path for envelopes in the usual form; others are left to `serde_json`.
fn plain<'a>(text: &'a str, all: &mut Partial<'a>) -> Option<()> {
    let mut from = Plain::of(text)?;
    from.object(|from| {
        all.keys += 1;
        plain_field(from, all)
    })?;
    from.is_over().then_some(())
}

/// Parses one field of an envelope. The most frequent values are compared as a whole, which avoids a
/// search for their end.
#[inline(always)]
fn plain_field<'a>(from: &mut Plain<'a>, all: &mut Partial<'a>) -> Option<()> {
    let (envelope, given) = (&mut all.envelope, &mut all.given);
    let once = |given: &mut bool| (!std::mem::replace(given, true)).then_some(());
    // Dispatches on the first letter of the key, and on the next two where several keys start alike.
    match (from.ahead(1)?, from.ahead(2)?, from.ahead(3)?) {
        (b'i', ..) if from.next_is(r#""id":"#) => {
            once(&mut given.id)?;
            envelope.id = plain_text(from)?;
        }
        (b'f', ..) if from.next_is(r#""from":"#) => {
            once(&mut given.from)?;
            envelope.from = plain_text(from)?;
        }
        (b't', b'o', _) if from.next_is(r#""to":"#) => {
            once(&mut given.to)?;
            envelope.to = if from.next_is(r#""@(hub)""#) { Text(Cow::Borrowed(HUB)) } else { plain_text(from)? };
        }
        (b't', b'y', _) if from.next_is(r#""type":"#) => {
            once(&mut given.kind)?;
            envelope.kind =
                if from.next_is(r#""hub:send""#) { Text(Cow::Borrowed("hub:send")) } else { plain_text(from)? };
        }
        (b't', b'i', _) if from.next_is(r#""timestamp":"#) => {
            once(&mut given.timestamp)?;
            envelope.timestamp = from.number()?;
        }
        (b't', b't', _) if from.next_is(r#""ttl":"#) => {
            envelope.ttl = if from.next_is("null") { None } else { Some(from.number()?) };
        }
        (b'p', _, b't') if from.next_is(r#""pattern":"#) => {
            once(&mut given.pattern)?;
            envelope.pattern = if from.next_is(r#""ask""#) { Pattern::Ask } else { plain_tell(from)? };
        }
        (b'p', _, b'y') if from.next_is(r#""payload":"#) => envelope.payload = plain_fields(from)?,
        (b'm', ..) if from.next_is(r#""metadata":"#) => envelope.metadata = plain_fields(from)?.into(),
        _ => return None,
    }
    Some(())
}

fn plain_tell(from: &mut Plain<'_>) -> Option<Pattern> {
    from.next_is(r#""tell""#).then_some(Pattern::Tell)
}

fn plain_text<'a>(from: &mut Plain<'a>) -> Option<Text<'a>> {
    from.string().map(|text| Text(Cow::Borrowed(text)))
}

fn plain_fields<'a>(from: &mut Plain<'a>) -> Option<Fields<'a>> {
    let mut fields = Fields::default();
    if !from.next_is("null") {
        from.object(|from| {
            fields.push(from.key()?, from.value()?);
            Some(())
        })?;
    }
    Some(fields)
}

/// Parses a frame.
pub fn read(text: &str) -> Result<Frame<'_>, Unreadable> {
    let mut all = Partial::default();
    if plain(text, &mut all).is_none() {
        all = serde_json::from_str(text).map_err(|error| unreadable(text, &error.to_string()))?;
    }
    if all.keys == 1 && all.envelope.kind.as_str() == "ping" {
        return Ok(Frame::Ping);
    }
    all.check()?;
    Ok(Frame::Message(all.envelope))
}

/// Reports a parse error, with the message's id if the frame is otherwise valid JSON.
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
    fn absent_optional_fields_read_as_null_or_empty() {
        let envelope = message(LEAST);
        assert_eq!((envelope.ttl, envelope.metadata.entries.iter().count(), envelope.extra.len()), (None, 0, 0));
        assert!(envelope.signature.is_none() && envelope.payload.raw("topic").is_none());
        let nulls = LEAST
            .replace("5}", r#"5,"payload":null,"metadata":null,"ttl":null,"signature":null,"correlationId":null}"#);
        assert_eq!(message(&nulls).id.as_str(), "1");
    }

    #[test]
    fn a_frame_without_a_required_field_is_an_error_that_names_it() {
        for name in ["id", "from", "to", "type", "pattern", "timestamp"] {
            let mut value: serde_json::Value = serde_json::from_str(LEAST).unwrap();
            value.as_object_mut().unwrap().remove(name);
            let text = value.to_string();
            assert_eq!(read(&text).unwrap_err().what, format!("the envelope has no `{name}`"));
        }
    }

    #[test]
    fn a_parse_error_has_its_position_and_the_id_if_possible() {
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
    fn metadata_keys_of_the_hub_are_rejected_from_clients() {
        let text =
            LEAST.replace("5}", r#"5,"metadata":{"originalMessageId":"forged","requireAck":true,"a":1},"x":[2]}"#);
        let envelope = message(&text);
        assert!(envelope.metadata.require_ack);
        assert!(envelope.metadata.entries.raw("originalMessageId").is_none());
        assert_eq!(envelope.metadata.entries.raw("a"), Some("1"));
        assert_eq!(envelope.extra, [("x", "[2]")]);
    }

    /// Flags are parsed the same everywhere: other values are rejected at the boundary.
    #[test]
    fn flags_are_true_or_false_and_given_once() {
        for (given, malformed) in [
            (r#"{"requireAck":true}"#, None),
            (r#"{"requireAck":false,"queue":true}"#, None),
            (r#"{"requireAck":null}"#, Some("requireAck")),
            (r#"{"requireAck":1}"#, Some("requireAck")),
            (r#"{"requireAck":"true"}"#, Some("requireAck")),
            (r#"{"requireAck":true,"requireAck":true}"#, Some("requireAck")),
            (r#"{"queue":[]}"#, Some("queue")),
        ] {
            let text = LEAST.replace("5}", &format!("5,\"metadata\":{given}}}"));
            assert_eq!(message(&text).metadata.malformed, malformed, "{given}");
        }
    }

    #[test]
    fn a_ping_is_a_type_alone() {
        assert!(matches!(read("{\"type\":\"ping\"}"), Ok(Frame::Ping)));
        assert!(read("{\"type\":\"ping\",\"id\":\"1\"}").is_err());
    }

    #[test]
    fn a_repeated_field_is_rejected() {
        assert!(read(&LEAST.replace("5}", "5,\"from\":\"@(b)\"}")).is_err());
    }

    /// Checks that the fast path and `serde_json` parse a text alike; returns whether the fast path accepted it.
    fn same_both_ways(text: &str) -> Result<bool, String> {
        let mut short = Partial::default();
        if plain(text, &mut short).is_none() {
            return Ok(false);
        }
        let long: Partial<'_> = serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))?;
        let shown = |all: &Partial<'_>| format!("{:?} {:?} {}", all.envelope, all.check(), all.keys);
        if shown(&short) == shown(&long) { Ok(true) } else { Err(format!("{}\n{}", shown(&short), shown(&long))) }
    }

    const FULL: &str = r#"{"id":"1","from":"@(a)","to":"@(hub)","type":"hub:send","pattern":"tell","timestamp":1763251200000,"payload":{"to":"@(b)","type":"t","data":{"a":[1,-2.5e+7,true,false,null,"x\\u00e4\\n",{}],"b":[]}},"metadata":{"queue":true},"ttl":5}"#;

    #[test]
    fn usual_frames_take_the_fast_path() {
        for text in
            [LEAST, FULL, &FULL.replace(':', ": ").replace(',', " , "), &FULL.replace("\"ttl\":5", "\"ttl\":null")]
        {
            assert_eq!(same_both_ways(text), Ok(true), "{text}");
        }
        for text in [
            &FULL.replace(',', ",\n"),
            &LEAST.replace("hub:send", "hub:s\\u0065nd"),
            &FULL.replace("\"1\"", "\"\\\"\""),
        ] {
            assert_eq!(same_both_ways(text), Ok(false), "{text}");
            assert!(read(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn other_texts_are_not_accepted_by_the_fast_path() {
        for text in ["", "  ", "null", "[]", "{", "1"] {
            assert_eq!(same_both_ways(text), Ok(false), "{text}");
        }
    }

    #[test]
    fn numbers_of_all_kinds_are_parsed_alike() {
        for number in [
            "0",
            "-0",
            "01",
            "-",
            "1.",
            ".5",
            "1.5",
            "1e",
            "1e5",
            "1E-5",
            "1e+",
            "+1",
            "18446744073709551616",
            "0x1",
            "1_0",
        ] {
            for text in [
                FULL.replace("-2.5e+7", number),
                FULL.replace("1763251200000", number),
                FULL.replace("\"ttl\":5", &format!("\"ttl\":{number}")),
            ] {
                assert!(same_both_ways(&text).is_ok(), "{:?}", same_both_ways(&text));
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn what_is_almost_right_is_read_the_same(edits in proptest::collection::vec((0_usize..400, 0_usize..4, 0_usize..60), 1..4)) {
            const PIECES: &[u8] = b"{}[]:,\"\\ 0123456789-+.eEtrufalsn/bx\n\t\x00\x7fidmo@(hub)";
            let mut text = FULL.as_bytes().to_vec();
            for (at, what, piece) in edits {
                let at = at % text.len();
                let piece = PIECES[piece % PIECES.len()];
                match what {
                    0 => text[at] = piece,
                    1 => text.insert(at, piece),
                    2 => _ = text.remove(at),
                    _ => text.swap(at, piece as usize % FULL.len().min(at + 1)),
                }
            }
            if let Ok(text) = String::from_utf8(text) {
                proptest::prop_assert!(same_both_ways(&text).is_ok(), "{:?}", same_both_ways(&text));
            }
        }
    }

    #[test]
    fn an_escaped_key_cannot_spell_one_of_the_hub() {
        assert!(read(&LEAST.replace("5}", "5,\"fr\\u006fm\":\"@(b)\"}")).is_err());
        assert!(read(&LEAST.replace("5}", "5,\"metadata\":{\"se\\u0071\":1}}")).is_err());
    }

    #[test]
    fn strings_are_unescaped() {
        let text = LEAST.replace("\"1\"", "\"\\u00e4\\n\"");
        assert_eq!(message(&text).id.as_str(), "ä\n");
        assert!(read(&LEAST.replace("\"1\"", "\"\\ud800\"")).is_err(), "half a character");
    }
}
