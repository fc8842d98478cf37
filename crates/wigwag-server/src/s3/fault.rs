//! Error responses of `/s3`, with the codes of S3.
//!
//! Holds: a store's error keeps its kind for a client that uses the ordinary bucket store: a write
//! without effect is never reported as done, and a write that may have taken effect is never reported as failed.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use wigwag_store::{Error, ErrorKind};

use super::xml;

/// An error response: HTTP status, S3's error code, and a message.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) status: u16,
    pub(super) code: &'static str,
    message: String,
    /// Length of the object, if the requested range is outside of it.
    of: Option<usize>,
}

/// Code of an operation or key beyond the caller's permissions.
pub(super) const DENIED: &str = "AccessDenied";

pub(super) type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    pub(super) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), of: None }
    }

    pub(super) fn argument(message: impl Into<String>) -> Self {
        Self::new(400, "InvalidArgument", message)
    }

    pub(super) fn denied(message: impl Into<String>) -> Self {
        Self::new(403, DENIED, message)
    }

    /// Rejects a key or prefix outside the prefixes of the access key.
    pub(super) fn outside(key: &str) -> Self {
        let shown: String = key.escape_debug().take(80).collect();
        Self::denied(format!("`{shown}` is outside the prefixes of this access key"))
    }

    pub(super) fn not_there(what: &str) -> Self {
        Self::new(501, "NotImplemented", format!("{what} is not supported; docs/s3.md lists the supported operations"))
    }

    pub(super) fn no_key() -> Self {
        Self::new(404, "NoSuchKey", "no object has this key")
    }

    pub(super) fn precondition() -> Self {
        Self::new(412, "PreconditionFailed", "the object does not meet the condition of the request")
    }

    pub(super) fn range(of: usize) -> Self {
        let fault = Self::new(416, "InvalidRange", format!("the object has {of} bytes, and none in that range"));
        Self { of: Some(of), ..fault }
    }

    /// Builds the response; without a body for a HEAD request.
    pub(super) fn answer(&self, resource: &str, request: &str, is_head: bool) -> Response {
        let mut text = xml::Document::new("Error");
        text.text("Code", self.code).text("Message", &self.message).text("Resource", resource);
        text.text("RequestId", request);
        let body = if is_head { Body::empty() } else { Body::from(text.end()) };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        if self.status == 503 {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some(value) = self.of.and_then(|of| HeaderValue::from_str(&format!("bytes */{of}")).ok()) {
            headers.insert(axum::http::header::CONTENT_RANGE, value);
        }
        response
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let (status, code) = match error.kind() {
            ErrorKind::Exists | ErrorKind::Changed => (412, "PreconditionFailed"),
            ErrorKind::Unavailable => (503, "ServiceUnavailable"),
            ErrorKind::Denied => (403, "AccessDenied"),
            ErrorKind::Invalid => (400, "InvalidArgument"),
            ErrorKind::Full => (507, "InsufficientStorage"),
            ErrorKind::Damaged => (500, "WigwagDamaged"),
            // A client interprets every other 500 as unknown outcome.
            _ => (500, "InternalError"),
        };
        let advice = error.advice().map(|advice| format!("; {advice}")).unwrap_or_default();
        Self::new(status, code, format!("{error}{advice}"))
    }
}
