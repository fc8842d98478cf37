//! What users put in and get out: JSON text that is passed on as it came, inline or in an object of its own.

use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::Refusal;
use crate::limits::{INLINE_BYTES_MAX, PAYLOAD_BYTES_MAX};

/// JSON text, checked once and never changed; clones share it.
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
        let bytes = self.text().len();
        if bytes <= PAYLOAD_BYTES_MAX {
            return Ok(self);
        }
        Err(Refusal::new(format!(
            "a payload has at most {PAYLOAD_BYTES_MAX} bytes of JSON (store more elsewhere and pass where), got: {bytes}"
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
        Box::<RawValue>::deserialize(from).map(|raw| Self(Arc::from(raw)))
    }
}

/// A payload where it is recorded: in place, or named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Small ones are in place.
    Inline(Payload),
    /// Others are an object of their own.
    Blob(Blob),
}

/// Names the object that holds a payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Blob {
    /// The last part of its key; the rest is the point's.
    #[serde(rename = "$blob")]
    pub nonce: String,
    /// How long it is.
    pub bytes: usize,
}

/// How a reference to an object begins; a payload that begins so is never put in place.
const MARK: &str = "{\"$blob\"";

impl Data {
    /// Whether a payload may stand in place.
    #[must_use]
    pub fn fits(payload: &Payload) -> bool {
        payload.text().len() <= INLINE_BYTES_MAX && !looks_like_blob(payload.text())
    }

    /// The payload, if it is in place.
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
