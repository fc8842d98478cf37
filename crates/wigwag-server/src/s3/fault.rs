//! Every refusal of `/s3`, in S3's words.
//!
//! Holds: a store's error keeps its kind on the way to a client that reads it with the ordinary bucket store: what had
//! not landed is never told as if it had, nor what may have landed as if it had not.

use axum::body::Body;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use wigwag::store::{Error, ErrorKind};

use super::xml;

/// A refusal: HTTP status, S3's code for it, and what is wrong.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) status: u16,
    pub(super) code: &'static str,
    message: String,
    /// Of what length the object is, where a part was asked for that it has not.
    of: Option<usize>,
}

pub(super) type Result<T> = std::result::Result<T, Fault>;

impl Fault {
    pub(super) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), of: None }
    }

    pub(super) fn argument(message: impl Into<String>) -> Self {
        Self::new(400, "InvalidArgument", message)
    }

    pub(super) fn denied(message: impl Into<String>) -> Self {
        Self::new(403, "AccessDenied", message)
    }

    /// Rejects a key or prefix outside the prefixes of the access key.
    pub(super) fn outside(key: &str) -> Self {
        let shown: String = key.escape_debug().take(80).collect();
        Self::denied(format!("`{shown}` is outside the prefixes of this access key"))
    }

    pub(super) fn not_there(what: &str) -> Self {
        Self::new(501, "NotImplemented", format!("{what} is not there; see docs/s3.md for what is"))
    }

    pub(super) fn no_key() -> Self {
        Self::new(404, "NoSuchKey", "there is no object of that key")
    }

    pub(super) fn precondition() -> Self {
        Self::new(412, "PreconditionFailed", "the object is not as the condition wants it")
    }

    pub(super) fn range(of: usize) -> Self {
        let fault = Self::new(416, "InvalidRange", format!("the object has {of} bytes, and none in that range"));
        Self { of: Some(of), ..fault }
    }

    /// The answer; to a HEAD without a body.
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
            // That it may have landed is what a client takes every other 500 for.
            _ => (500, "InternalError"),
        };
        let advice = error.advice().map(|advice| format!("; {advice}")).unwrap_or_default();
        Self::new(status, code, format!("{error}{advice}"))
    }
}
