//! The store's time in the two formats of S3, both to the second.

use std::time::{Duration, UNIX_EPOCH};

use wigwag_store::Stamp;

fn seconds(stamp: Stamp) -> u64 {
    stamp.micros() / 1_000_000
}

/// Formats a time as in `Date` and `Last-Modified`.
pub(super) fn http(stamp: Stamp) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds(stamp)))
}

/// Formats a time as in listings.
pub(super) fn iso(stamp: Stamp) -> String {
    let text = Stamp::from_micros(seconds(stamp) * 1_000_000).to_string();
    text.replace(".000000Z", ".000Z")
}

/// Whether an object was written after the time in a header; `None` if that is not a time.
pub(super) fn is_after(stamp: Stamp, header: &str) -> Option<bool> {
    let named = httpdate::parse_http_date(header).ok()?.duration_since(UNIX_EPOCH).ok()?;
    Some(seconds(stamp) > named.as_secs())
}
