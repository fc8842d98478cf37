//! The store's time in the two ways that S3 writes it, both to the second.

use std::time::{Duration, UNIX_EPOCH};

use wigwag::store::Stamp;

fn seconds(stamp: Stamp) -> u64 {
    stamp.micros() / 1_000_000
}

/// As in `Date` and `Last-Modified`.
pub(super) fn http(stamp: Stamp) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds(stamp)))
}

/// As in listings.
pub(super) fn iso(stamp: Stamp) -> String {
    let text = Stamp::from_micros(seconds(stamp) * 1_000_000).to_string();
    text.replace(".000000Z", ".000Z")
}

/// Whether an object was written after the moment that a header names; `None` if it names none.
pub(super) fn is_after(stamp: Stamp, header: &str) -> Option<bool> {
    let named = httpdate::parse_http_date(header).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(seconds(stamp) > named.as_secs())
}
