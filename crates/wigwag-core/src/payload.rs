//! Payloads of users: JSON text that is stored unchanged, inline or in a separate object.

use std::fmt;
use std::sync::Arc;

use serde::de::{DeserializeOwned, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::Refusal;
use crate::limits::{self, PAYLOAD_DEPTH_MAX};

/// JSON text, checked once and never changed; clones share it.
///
/// Whatever passed can be read: raw JSON text may still hold what no reader takes, such as the number `1e999`, half of a
/// surrogate pair, or a thousand brackets.
#[derive(Clone)]
pub struct Payload(Arc<RawValue>);

impl Payload {
    /// The payload `null`.
    #[must_use]
    pub fn null() -> Self {
        Self(Arc::from(RawValue::NULL.to_owned()))
    }

    /// Writes a value as JSON.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, Refusal> {
        let raw = serde_json::value::to_raw_value(value);
        let payload =
            raw.map(|raw| Self(Arc::from(raw))).map_err(|error| Refusal::new(format!("not JSON: {error}")))?;
        payload.checked()
    }

    /// Takes JSON text.
    pub fn parse(text: impl Into<String>) -> Result<Self, Refusal> {
        let raw = RawValue::from_string(text.into());
        raw.map(|raw| Self(Arc::from(raw))).map_err(|error| Refusal::new(format!("not JSON: {error}")))?.checked()
    }

    fn checked(self) -> Result<Self, Refusal> {
        let (bytes, max) = (self.text().len(), limits::current().payload_bytes_max);
        if bytes <= max {
            return sound(self.text(), PAYLOAD_DEPTH_MAX)
                .map(|()| self)
                .map_err(|error| Refusal::new(format!("not JSON: {error}")));
        }
        Err(Refusal::new(format!(
            "a payload has at most {max} bytes of JSON (store more elsewhere and pass where), got: {bytes}"
        )))
    }

    /// The JSON text.
    #[must_use]
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Reads it as a type.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        serde_json::from_str(self.text()).map_err(|error| {
            let want = std::any::type_name::<T>();
            let shown: String = self.text().chars().take(120).collect();
            Refusal::new(format!("does not read as `{want}`: {error}, got: `{shown}`"))
        })
    }

    /// Reads it as a JSON value.
    #[must_use]
    pub fn value(&self) -> serde_json::Value {
        serde_json::from_str(self.text()).expect("a payload was checked to be JSON")
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for Payload {}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(from)?;
        sound(raw.get(), PAYLOAD_DEPTH_MAX + DEPTH_OF_OURS).map_err(serde::de::Error::custom)?;
        Ok(Self(Arc::from(raw)))
    }
}

/// Payloads are gathered into arrays and reports, which are payloads too.
const DEPTH_OF_OURS: usize = 10;

/// Parses text as a JSON parser would, without building a value.
fn sound(text: &str, levels: usize) -> serde_json::Result<()> {
    Sound { levels }.deserialize(&mut serde_json::Deserializer::from_str(text))
}

/// A value with at most `levels` levels below it.
#[derive(Clone, Copy)]
struct Sound {
    levels: usize,
}

impl Sound {
    fn within<E: serde::de::Error>(self) -> Result<Self, E> {
        let levels = self.levels.checked_sub(1);
        levels
            .map(|levels| Self { levels })
            .ok_or_else(|| E::custom(format_args!("more than {PAYLOAD_DEPTH_MAX} arrays or objects within each other")))
    }
}

impl<'de> DeserializeSeed<'de> for Sound {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Sound {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        let within = self.within()?;
        while values.next_element_seed(within)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        let within = self.within()?;
        while values.next_key_seed(within)?.is_some() {
            values.next_value_seed(within)?;
        }
        Ok(())
    }
}

/// A payload in a record: inline, or a reference to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// A small payload, stored inline.
    Inline(Payload),
    /// Larger payloads are stored in a separate object.
    Blob(Blob),
}

/// Names the object that holds a payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blob {
    /// The last part of its key; the rest is the point's.
    #[serde(rename = "$blob")]
    pub nonce: String,
    /// Size of the payload.
    pub bytes: usize,
}

/// Prefix of a reference to an object; a payload with this prefix is never stored inline.
const MARK: &str = "{\"$blob\"";

impl Data {
    /// Whether a payload may be stored inline.
    #[must_use]
    pub fn fits(payload: &Payload) -> bool {
        payload.text().len() <= limits::current().inline_bytes_max && !looks_like_blob(payload.text())
    }

    /// The payload, if it is inline.
    #[must_use]
    pub fn inline(&self) -> Option<&Payload> {
        match self {
            Self::Inline(payload) => Some(payload),
            Self::Blob(_) => None,
        }
    }
}

fn looks_like_blob(text: &str) -> bool {
    let mut left = text.chars().filter(|letter| !letter.is_ascii_whitespace());
    MARK.chars().all(|letter| left.next() == Some(letter))
}

impl Serialize for Data {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Inline(payload) => payload.serialize(to),
            Self::Blob(blob) => blob.serialize(to),
        }
    }
}

/// Reads a payload that is there, for fields that may be absent: a payload may be `null`, which is not the same.
pub(crate) fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Data>, D::Error> {
    Data::deserialize(from).map(Some)
}

impl<'de> Deserialize<'de> for Data {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let payload = Payload::deserialize(from)?;
        if !looks_like_blob(payload.text()) {
            return Ok(Self::Inline(payload));
        }
        serde_json::from_str(payload.text()).map(Self::Blob).map_err(serde::de::Error::custom)
    }
}
