//! Reads (whole or a range), puts and deletes of objects.

use axum::body::Body;
use axum::http::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, LAST_MODIFIED};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;
use bytes::Bytes;
use wigwag_store::{Batch, Object, STAMP, Store, Version, When, check_key};

use super::ask::{Ask, Operation};
use super::fault::{Fault, Result};
use super::keys::Access;
use super::xml::{self, Delete};
use super::{document, empty, time};

/// Maximum number of keys in one delete request, as in S3.
const DELETES_MAX: usize = 1_000;

pub(super) async fn get(store: &dyn Store, ask: &Ask) -> Result<Response> {
    // No object has an invalid key.
    if check_key(&ask.key).is_err() {
        return Err(Fault::no_key());
    }
    let object = store.get(&ask.key).await?.ok_or_else(Fault::no_key)?;
    if let Some(response) = unwanted(ask, &object)? {
        return Ok(response);
    }
    let size = object.body.len();
    let range = ask.header("range").and_then(|range| part(range, size)).transpose()?;
    let (status, body) = match &range {
        Some(range) => (StatusCode::PARTIAL_CONTENT, object.body.slice(range.clone())),
        None => (StatusCode::OK, object.body.clone()),
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    describe(response.headers_mut(), ask, &object);
    set(response.headers_mut(), CONTENT_LENGTH, &body.len().to_string());
    if let Some(range) = range {
        set(response.headers_mut(), CONTENT_RANGE, &format!("bytes {}-{}/{size}", range.start, range.end - 1));
    }
    if ask.operation == Operation::GetObject {
        *response.body_mut() = Body::from(body);
    }
    Ok(response)
}

fn describe(headers: &mut HeaderMap, ask: &Ask, object: &Object) {
    let kind = if ask.key.ends_with(".json") { "application/json" } else { "binary/octet-stream" };
    set(headers, CONTENT_TYPE, kind);
    set(headers, ACCEPT_RANGES, "bytes");
    set(headers, ETAG, &tag(&object.version));
    set(headers, LAST_MODIFIED, &time::http(object.modified));
}

pub(super) fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn tag(version: &Version) -> String {
    format!("\"{}\"", version.to_tag())
}

/// Whether the object is at one of the versions that a header names.
fn is_among(header: &str, object: &Object) -> bool {
    let own = object.version.to_tag();
    header
        .split(',')
        .map(|tag| tag.trim().trim_start_matches("W/").trim_matches('"'))
        .any(|tag| tag == "*" || tag == own)
}

/// Returns the response instead of the object if the request's conditions are not met.
fn unwanted(ask: &Ask, object: &Object) -> Result<Option<Response>> {
    let since = |name: &str| ask.header(name).and_then(|header| time::is_after(object.modified, header));
    match ask.header("if-match") {
        Some(header) if !is_among(header, object) => return Err(Fault::precondition()),
        None if since("if-unmodified-since") == Some(true) => return Err(Fault::precondition()),
        _ => {}
    }
    let known = match ask.header("if-none-match") {
        Some(header) => is_among(header, object),
        None => since("if-modified-since") == Some(false),
    };
    Ok(known.then(|| {
        let mut response = empty(304);
        describe(response.headers_mut(), ask, object);
        response.headers_mut().remove(CONTENT_TYPE);
        response
    }))
}

/// Returns the range of a `Range` header. An invalid header, or one with several ranges, is ignored: the whole object is returned.
fn part(header: &str, size: usize) -> Option<Result<std::ops::Range<usize>>> {
    let (from, to) = header.strip_prefix("bytes=").filter(|ranges| !ranges.contains(','))?.split_once('-')?;
    let (from, to) = (from.trim(), to.trim());
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if (from.is_empty() && to.is_empty()) || !digits(from) || !digits(to) {
        return None;
    }
    // A number that is too large to parse is larger than any size.
    let number = |text: &str| text.parse::<usize>().unwrap_or(usize::MAX);
    let range = match (from, to) {
        ("", last) => size.saturating_sub(number(last))..size,
        (from, "") => number(from)..size,
        (from, to) if number(from) > number(to) => return None,
        (from, to) => number(from)..number(to).saturating_add(1).min(size),
    };
    Some(if range.start >= range.end { Err(Fault::range(size)) } else { Ok(range) })
}

/// Headers of a put that request unsupported features. Ignoring them would store a different object than requested.
const NOT_DONE: [&str; 9] = [
    "x-amz-copy-source",
    "x-amz-tagging",
    "x-amz-website-redirect-location",
    "x-amz-object-lock-mode",
    "x-amz-object-lock-retain-until-date",
    "x-amz-object-lock-legal-hold",
    "x-amz-write-offset-bytes",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-customer-algorithm",
];

/// Rejects an unsupported put before its body is read.
pub(super) fn check_put(ask: &Ask) -> Result<()> {
    if let Some(name) = NOT_DONE.iter().find(|name| ask.headers.contains_key(**name)) {
        return Err(Fault::not_there(&format!("`{name}`")));
    }
    check_key(&ask.key)?;
    if ask.key.contains(STAMP) {
        return Err(Fault::argument(format!("a key does not hold `{STAMP}`: the store would fill it in")));
    }
    Ok(())
}

fn condition(ask: &Ask) -> Result<When> {
    match (ask.header("if-none-match"), ask.header("if-match")) {
        (None, None) => Ok(When::Any),
        (Some("*"), None) => Ok(When::Absent),
        (None, Some("*")) => Err(Fault::not_there("`If-Match: *`")),
        // No object has a tag that this server did not create.
        (None, Some(tag)) => {
            Version::from_tag(tag.trim_matches('"')).map(When::Version).ok_or_else(Fault::precondition)
        }
        (Some(_), None) => Err(Fault::not_there("a put with `If-None-Match` other than `*`")),
        (Some(_), Some(_)) => Err(Fault::argument("a put accepts only one condition")),
    }
}

/// Responds when the object is durable.
pub(super) async fn put(store: &dyn Store, ask: &Ask, body: Bytes) -> Result<Response> {
    let receipt = store.write(Batch::new().put_when(&ask.key, body, condition(ask)?)).await?;
    let mut response = empty(200);
    if let Some(version) = receipt.versions.first() {
        set(response.headers_mut(), ETAG, &tag(version));
    }
    Ok(response)
}

pub(super) async fn delete(store: &dyn Store, ask: &Ask) -> Result<Response> {
    if ask.headers.contains_key("if-match") {
        return Err(Fault::not_there("a delete with `If-Match`"));
    }
    if check_key(&ask.key).is_ok() {
        store.write(Batch::new().delete(&ask.key)).await?;
    }
    Ok(empty(204))
}

/// Deletes many objects in one batch.
pub(super) async fn delete_many(store: &dyn Store, access: &Access, body: &[u8]) -> Result<Response> {
    let Delete { mut objects, quiet } = Delete::read(body)?;
    if objects.len() > DELETES_MAX {
        let what = format!("a request deletes at most {DELETES_MAX} objects, got: {}", objects.len());
        return Err(Fault::new(400, "MalformedXML", what));
    }
    let odd =
        |named: &xml::Named| named.e_tag.is_some() || named.version.as_ref().is_some_and(|version| version != "null");
    if objects.iter().any(odd) {
        return Err(Fault::not_there("deleting a version of an object"));
    }
    if let Some(outside) = objects.iter().find(|named| !access.covers(&named.key)) {
        return Err(Fault::outside(&outside.key));
    }
    objects.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    objects.dedup_by(|one, other| one.key == other.key);
    let there = objects.iter().filter(|named| check_key(&named.key).is_ok());
    let batch = there.fold(Batch::new(), |batch, named| batch.delete(&named.key));
    store.write(batch).await?;
    let mut text = xml::Document::new("DeleteResult");
    for named in objects.iter().filter(|_| !quiet) {
        text.begin("Deleted").text("Key", &named.key).close();
    }
    Ok(document(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_within_the_object_or_refused_or_passed_over() {
        let cases = [
            ("bytes=0-3", 10, Some(Ok(0..4))),
            ("bytes=8-", 10, Some(Ok(8..10))),
            ("bytes=8-99", 10, Some(Ok(8..10))),
            ("bytes=-3", 10, Some(Ok(7..10))),
            ("bytes=-30", 10, Some(Ok(0..10))),
            ("bytes=10-", 10, Some(Err(()))),
            ("bytes=-0", 10, Some(Err(()))),
            ("bytes=0-", 0, Some(Err(()))),
            ("bytes=99999999999999999999999-", 10, Some(Err(()))),
            ("bytes=3-1", 10, None),
            ("bytes=0-1,3-4", 10, None),
            ("lines=0-1", 10, None),
        ];
        for (header, size, wanted) in cases {
            let found = part(header, size).map(|range| range.map_err(|_| ()));
            assert_eq!(found, wanted, "{header}");
        }
    }
}
