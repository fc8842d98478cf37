//! Every failure as an RFC 9457 problem document with a stable `code`.
//!
//! Holds: each kind of the engine's errors has one code of its own, and nothing secret stands in any of them.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wigwag::{Error, ErrorKind};

macro_rules! codes {
    ($($name:ident = $text:literal, $status:literal, $title:literal, $when:literal, $action:literal;)*) => {
        /// What went wrong, in one word that never changes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = $when] #[serde(rename = $text)] $name,)*
        }

        impl Code {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// The word.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The HTTP status that goes with it.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// What it is, in a few words.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            /// When it occurs.
            #[must_use]
            pub const fn when(self) -> &'static str {
                match self { $(Self::$name => $when,)* }
            }

            /// What to do about it.
            #[must_use]
            pub const fn action(self) -> &'static str {
                match self { $(Self::$name => $action,)* }
            }
        }
    };
}

codes! {
    NotFound = "not_found", 404, "There is no such thing",
        "There is no run, task, definition or result of that name.", "Check the id; list those that are there.";
    Gone = "gone", 410, "It was there and is no more",
        "Retention has taken the run, or the link's time is over.", "Use another id, or ask for another link.";
    Conflict = "conflict", 409, "It is taken by something else",
        "The id or idempotency key was used for something else, the link was used before, or the run changed meanwhile.",
        "Look at what is there, or choose another id or key.";
    NotRunning = "not_running", 409, "The run is not in a state for this",
        "The run has ended, or is not paused, or is being undone.", "Look at its `status`.";
    Invalid = "invalid", 400, "The request cannot succeed as written",
        "An id, name, step, time or cursor breaks a rule, or something it needs is not set up.",
        "Change what `detail` names.";
    InvalidName = "invalid_name", 400, "That is no name for a signal",
        "A signal's name has a letter that is not allowed, or is too long.", "Change the name.";
    InvalidPayload = "invalid_payload", 422, "The payload does not fit",
        "The payload is too large, or does not fit the schema of the signal.", "Change the payload; `hint` has the schema.";
    RejectedSender = "rejected_sender", 403, "Sender not accepted",
        "The run waits for this signal from authenticated senders only.",
        "Send it with a token of its own name, or by a signed link.";
    NotWaiting = "not_waiting", 409, "The run does not wait for that signal",
        "The signal was to be sent only if a wait for it is open, and none is.",
        "Send it without `only_if_waiting` to have it kept, or look at what the run waits for.";
    UnknownPoint = "unknown_point", 422, "The run does not wait at that point",
        "The signal is addressed to a point at which the run does not wait for it.", "Leave `point` out, or name one of those in `detail`.";
    RunFailed = "run_failed", 409, "The run failed",
        "The result of a run was asked for that failed; `fault` says why.", "Look at its steps; restart it, or start another.";
    RunCancelled = "run_cancelled", 409, "The run was cancelled",
        "The result of a run was asked for that was cancelled.", "Restart it, or start another.";
    TimedOut = "timed_out", 504, "It did not happen in the time given",
        "The run had no result, or no wait took the signal, within `timeout`.", "Ask again; a signal that was sent is kept.";
    Stopped = "stopped", 503, "The server is stopping",
        "The server or its engine is being stopped.", "Ask again, of another server or once it is back.";
    Unavailable = "unavailable", 503, "The store does not answer",
        "The store did not answer, or is full.", "Try again later; whoever repeats with the same id or key does it once.";
    Damaged = "damaged", 500, "What is stored cannot be read",
        "An object in the store was changed by something else, or written by a newer version.",
        "Look at the object that `detail` names with `wigwag cat`.";
    NoRoute = "no_route", 404, "There is nothing at that path",
        "No route has that path.", "See `/v1/docs` for those that are there.";
    MethodNotAllowed = "method_not_allowed", 405, "That path has no such method",
        "The path is there, the method is not.", "Use a method that `Allow` names.";
    MalformedJson = "malformed_json", 400, "The body is not JSON",
        "The body cannot be read as JSON.", "Mend the place that `detail` names.";
    InvalidBody = "invalid_body", 422, "The body is not what is wanted",
        "The body is JSON, but a field is missing, unknown or of another type.", "See the request's schema in `/v1/openapi.json`.";
    UnsupportedMediaType = "unsupported_media_type", 415, "The body is of another kind",
        "The body is not declared as `application/json`.", "Send `Content-Type: application/json`.";
    BodyTooLarge = "body_too_large", 413, "The body is too large",
        "The body has more bytes than the server takes.", "Put the data elsewhere, and send where it is.";
    InvalidQuery = "invalid_query", 400, "The query is not what is wanted",
        "A parameter is missing, unknown or cannot be read.", "Change what `detail` names.";
    InvalidPath = "invalid_path", 400, "The path cannot be read",
        "A part of the path is not text, or is no id.", "An id has 1 to 100 of `A-Za-z0-9._-:`.";
    InvalidHeader = "invalid_header", 400, "A header cannot be read",
        "`Idempotency-Key` or `Last-Event-ID` is not what it should be.", "Change what `detail` names.";
    BodyTimeout = "body_timeout", 408, "The body came too slowly",
        "The body was not there within the server's time for it.", "Send it again, faster.";
    RequestTimeout = "request_timeout", 504, "The answer took too long",
        "The request was not done within the server's time for it; it may still have an effect.",
        "Look whether it had, or repeat it with the same id or key.";
    NotAuthenticated = "not_authenticated", 401, "The server does not know who asks",
        "There is no token, or it is wrong or out of date.", "Send `Authorization: Bearer TOKEN`.";
    NotAllowed = "not_allowed", 403, "The token may not do this",
        "The token has not the scope that the request needs.", "Use a token with the scope that `detail` names.";
    ForeignOrigin = "foreign_origin", 403, "Pages from there may not ask",
        "A page from an origin that is not on the server's list made the request.", "Add the origin to the list.";
    ForeignHost = "foreign_host", 403, "The server is not called that",
        "A server without tokens was asked by a name that is not of this machine, as a page would that was led astray.",
        "Use `localhost`, or give the server tokens.";
    ProxyNotAllowed = "proxy_not_allowed", 403, "Proxied request not allowed",
        "A server without tokens received a proxied request, which would make the API public.",
        "Configure tokens, or connect without the proxy.";
    RateLimited = "rate_limited", 429, "Too many requests",
        "The client address or the token exceeds its request rate.", "Retry after `Retry-After` seconds, at a lower rate.";
    TooManyAttempts = "too_many_attempts", 429, "Too many failed authentications",
        "The client address exceeds the rate of failed authentications.", "Check the token; retry after `Retry-After` seconds.";
    Overloaded = "overloaded", 503, "Server overloaded",
        "The memory budget of request bodies is exhausted, in total or for this client.", "Retry after `Retry-After` seconds.";
    Internal = "internal", 500, "The server has a bug",
        "Something happened that never should.", "Report it, with what the server logged.";
}

impl From<ErrorKind> for Code {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::NotFound => Self::NotFound,
            ErrorKind::Gone => Self::Gone,
            ErrorKind::Conflict => Self::Conflict,
            ErrorKind::NotRunning => Self::NotRunning,
            ErrorKind::Invalid => Self::Invalid,
            ErrorKind::InvalidName => Self::InvalidName,
            ErrorKind::InvalidPayload => Self::InvalidPayload,
            ErrorKind::RejectedSender => Self::RejectedSender,
            ErrorKind::NotWaiting => Self::NotWaiting,
            ErrorKind::UnknownPoint => Self::UnknownPoint,
            ErrorKind::RunFailed => Self::RunFailed,
            ErrorKind::RunCancelled => Self::RunCancelled,
            ErrorKind::TimedOut => Self::TimedOut,
            ErrorKind::Stopped => Self::Stopped,
            ErrorKind::Unavailable => Self::Unavailable,
            ErrorKind::Damaged => Self::Damaged,
            _ => Self::Internal,
        }
    }
}

/// A problem document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// `urn:wigwag:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is, in a few words; the same for every problem of this code.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What happened, with the names in backticks.
    pub detail: String,
    /// What went wrong, in one word that never changes.
    pub code: Code,
    /// What helps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Why a run failed, as it is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Box<Value>>,
}

impl Problem {
    /// A problem of that code, in these words.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:wigwag:problem:{}", code.name()),
            title: code.title().into(),
            status: code.status(),
            detail: detail.into(),
            code,
            hint: Some(code.action().into()),
            fault: None,
        }
    }

    /// Says what helps here.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let problem = Self::new(error.kind().into(), error.to_string());
        let fault = error.fault().and_then(|fault| serde_json::to_value(fault).ok()).map(Box::new);
        Self { hint: error.advice().map(str::to_owned).or(problem.hint.clone()), fault, ..problem }
    }
}

impl From<wigwag::core::Refusal> for Problem {
    fn from(refusal: wigwag::core::Refusal) -> Self {
        Self::new(Code::Invalid, refusal.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self.status == 401 {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if matches!(self.status, 429 | 503) {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response.extensions_mut().insert(self.code);
        response
    }
}

/// The result of a handler.
pub(crate) type Result<T> = std::result::Result<T, Problem>;
