//! Types that several requests and responses share.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use wigwag::Time;
use wigwag_core::limits::SPAN_MAX;

use crate::limits::{CURSOR_BYTES_MAX, PAGE, PAGE_MAX};
use crate::problem::{Code, Problem, Result};

/// A page of items with the cursor of the next page.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Page<T> {
    /// The items of this page.
    pub(crate) items: Vec<T>,
    /// Cursor of the next page, for `after`; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
}

/// Limit and cursor of a page.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct Paging {
    /// Most items on the page: 50 by default, 1000 at most.
    pub(crate) limit: Option<usize>,
    /// Cursor: `next` of the page before.
    pub(crate) after: Option<String>,
}

pub(crate) fn limit(given: Option<usize>) -> Result<usize> {
    match given.unwrap_or(PAGE) {
        limit @ 1..=PAGE_MAX => Ok(limit),
        other => Err(Problem::new(Code::InvalidQuery, format!("`limit` is 1 to {PAGE_MAX}, got: {other}"))),
    }
}

pub(crate) fn cursor(given: Option<String>) -> Result<Option<String>> {
    match given {
        Some(text) if !is_cursor(&text) => {
            Err(Problem::new(Code::InvalidQuery, "`after` must be the `next` of the previous page"))
        }
        given => Ok(given),
    }
}

/// Cursors consist of keys and times, which have no other characters.
fn is_cursor(text: &str) -> bool {
    (1..=CURSOR_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns a page of a complete, ordered list.
pub(crate) fn page<T>(items: Vec<T>, paging: &Paging, place: impl Fn(&T) -> String) -> Result<Page<T>> {
    let (limit, after) = (limit(paging.limit)?, cursor(paging.after.clone())?);
    let mut rest = items.into_iter().filter(|item| after.as_ref().is_none_or(|after| place(item) > *after));
    let items: Vec<T> = rest.by_ref().take(limit).collect();
    let next = rest.next().and_then(|_| items.last().map(&place));
    Ok(Page { items, next })
}

/// A span of time: seconds as a number, or text such as `90s`, `15m`, `2h`, `7d`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span(pub(crate) Duration);

const SPAN_WANT: &str = "a span of time: seconds as a number, or text such as `90s`, `15m`, `2h`, `7d`";

/// The documented texts. Some others are accepted as well, such as `PT1H30M`.
const SPAN_PATTERN: &str = "^[0-9]{1,4}(ms|s|m|h|d)$";

impl Span {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(seconds) = text.parse::<f64>() {
            return Self::seconds(seconds);
        }
        let span = text.parse::<jiff::Span>().ok()?;
        let exact = span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).ok()?;
        Duration::try_from(exact).ok().filter(|span| *span <= SPAN_MAX).map(Self)
    }

    fn seconds(seconds: f64) -> Option<Self> {
        Duration::try_from_secs_f64(seconds).ok().filter(|span| *span <= SPAN_MAX).map(Self)
    }
}

struct SpanVisitor;

impl Visitor<'_> for SpanVisitor {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(SPAN_WANT)
    }

    fn visit_u64<E: serde::de::Error>(self, seconds: u64) -> std::result::Result<Span, E> {
        let span = Duration::from_secs(seconds);
        if span <= SPAN_MAX { Ok(Span(span)) } else { Err(E::custom("a duration of at most 100 years")) }
    }

    fn visit_f64<E: serde::de::Error>(self, seconds: f64) -> std::result::Result<Span, E> {
        Span::seconds(seconds).ok_or_else(|| E::custom(format!("want {SPAN_WANT}")))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> std::result::Result<Span, E> {
        Span::parse(text).ok_or_else(|| E::custom(format!("want {SPAN_WANT}")))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        from.deserialize_any(SpanVisitor)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "number"],
            "pattern": SPAN_PATTERN,
            "minimum": 0,
            "maximum": SPAN_MAX.as_secs(),
            "description": SPAN_WANT,
            "examples": ["90s", "2h", 30],
        })
    }
}

/// A value that is deserialized only from an object: a struct would also accept an array, field by field, which is not documented.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = T;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, fields: A) -> std::result::Result<T, A::Error> {
                T::deserialize(MapAccessDeserializer::new(fields))
            }
        }

        from.deserialize_map(Fields(PhantomData)).map(Self)
    }
}

/// A whole number, which JSON may write as `3.0`.
pub(crate) fn whole<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<Option<u32>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(from)? else { return Ok(None) };
    let exact = number.as_u64().or_else(|| number.as_f64().filter(|real| real.fract() == 0.0).map(|real| real as u64));
    let sign = number.as_f64().is_some_and(|real| real >= 0.0);
    let found = exact.filter(|_| sign).and_then(|exact| u32::try_from(exact).ok());
    found
        .map(Some)
        .ok_or_else(|| D::Error::custom(format!("want a whole number from 0 to {}, got: {number}", u32::MAX)))
}

/// A time in RFC 3339 format, with any offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment(pub(crate) Time);

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(from)?;
        let want = "want a time such as `2026-01-28T12:00:00Z` or `2026-01-28T13:00:00+01:00`";
        let at = text.parse::<jiff::Timestamp>().map_err(|_| D::Error::custom(want))?;
        // A time before 1970 is due immediately.
        Ok(Self(Time::from_micros(u64::try_from(at.as_microsecond()).unwrap_or_default())))
    }
}

impl JsonSchema for Moment {
    fn schema_name() -> Cow<'static, str> {
        "Moment".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

/// A response of JSON text as it is stored.
#[derive(Debug)]
pub(crate) struct Raw(pub(crate) StatusCode, pub(crate) Vec<u8>);

impl Raw {
    pub(crate) fn ok(text: impl Into<Vec<u8>>) -> Self {
        Self(StatusCode::OK, text.into())
    }
}

impl IntoResponse for Raw {
    fn into_response(self) -> Response {
        let kind = (CONTENT_TYPE, HeaderValue::from_static("application/json"));
        (self.0, [kind], self.1).into_response()
    }
}

/// Serializes a JSON response.
pub(crate) fn json<T: Serialize>(status: u16, value: &T) -> Result<Raw> {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    match serde_json::to_vec(value) {
        Ok(text) => Ok(Raw(status, text)),
        Err(error) => Err(Problem::new(Code::Internal, format!("cannot serialize the response: {error}"))),
    }
}
