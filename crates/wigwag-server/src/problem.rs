//! HTTP errors: RFC 9457 problem documents with a stable `code`.
//!
//! Holds: each error kind of the engine maps to one code, and no problem document contains a secret.

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
        /// Stable error code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = $when] #[serde(rename = $text)] $name,)*
        }

        impl Code {
            /// All error codes.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the code as it appears in JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Returns the HTTP status of the code.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* }
            }

            /// Returns the title of the problem.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* }
            }

            /// Returns the situation in which the error occurs.
            #[must_use]
            pub const fn when(self) -> &'static str {
                match self { $(Self::$name => $when,)* }
            }

            /// Returns the suggested fix.
            #[must_use]
            pub const fn action(self) -> &'static str {
                match self { $(Self::$name => $action,)* }
            }
        }
    };
}

codes! {
    NotFound = "not_found", 404, "Not found",
        "No run, task, definition or result has this id.", "Check the id, or list the existing runs.";
    Gone = "gone", 410, "No longer available",
        "The run was deleted by retention, or the link has expired.", "Use another id, or request a new link.";
    Conflict = "conflict", 409, "Conflict",
        "The id or idempotency key is already used for another request, the link was already used, or the run changed concurrently.",
        "Check the existing run, or use another id or key.";
    NotRunning = "not_running", 409, "Invalid run status",
        "The status of the run does not allow the operation: it has finished, is not paused, or is being compensated.",
        "Check the `status` of the run.";
    Invalid = "invalid", 400, "Invalid request",
        "An id, name, step, time or cursor is invalid, or a required setting is missing.",
        "Fix the value reported in `detail`.";
    InvalidName = "invalid_name", 400, "Invalid signal name",
        "The name of a signal has an invalid character, or is too long.", "Use 1 to 64 characters of `A-Za-z0-9._-`.";
    InvalidPayload = "invalid_payload", 422, "Invalid payload",
        "The payload is too large, or does not match the schema of the signal.", "Fix the payload; `hint` has the schema.";
    RejectedSender = "rejected_sender", 403, "Sender not accepted",
        "The run accepts this signal from authenticated senders only.",
        "Send it with a token under its own name, or through a signed link.";
    NotWaiting = "not_waiting", 409, "Run is not waiting for this signal",
        "`only_if_waiting` was set, and no wait for this signal is open.",
        "Send it without `only_if_waiting` to buffer it, or check the open waits of the run.";
    UnknownPoint = "unknown_point", 422, "No open wait at this step",
        "The signal is addressed to a step that has no open wait for it.", "Omit `point`, or use one of the steps listed in `detail`.";
    RunFailed = "run_failed", 409, "Run failed",
        "The run has no result because it failed; `fault` has the error.", "Check its steps; restart the run, or start another.";
    RunCancelled = "run_cancelled", 409, "Run cancelled",
        "The run has no result because it was cancelled.", "Restart the run, or start another.";
    TimedOut = "timed_out", 504, "Timed out",
        "The run did not finish, or did not consume the signal, within `timeout`.", "Repeat the request; a signal that was sent is stored.";
    Stopped = "stopped", 503, "Server shutting down",
        "The server or its engine is shutting down.", "Repeat the request at another server, or after the restart.";
    Unavailable = "unavailable", 503, "Store unavailable",
        "The store does not respond, or is full.", "Retry later; with the same id or idempotency key the request takes effect once.";
    Damaged = "damaged", 500, "Stored data cannot be read",
        "An object was modified by another program, or written by a newer version.",
        "Inspect the object named in `detail` with `wigwag cat`.";
    NoRoute = "no_route", 404, "Unknown path",
        "No route matches the path.", "See `/v1/docs` for the available routes.";
    MethodNotAllowed = "method_not_allowed", 405, "Method not allowed",
        "The path does not support the method.", "Use a method listed in the `Allow` header.";
    MalformedJson = "malformed_json", 400, "Malformed JSON",
        "The request body is not valid JSON.", "Fix the syntax error reported in `detail`.";
    InvalidBody = "invalid_body", 422, "Invalid request body",
        "A field of the JSON body is missing, unknown or of the wrong type.", "See the request schema in `/v1/openapi.json`.";
    UnsupportedMediaType = "unsupported_media_type", 415, "Unsupported media type",
        "The request body is not declared as `application/json`.", "Send `Content-Type: application/json`.";
    BodyTooLarge = "body_too_large", 413, "Request body too large",
        "The request body exceeds the size limit.", "Store the data elsewhere and send a reference.";
    InvalidQuery = "invalid_query", 400, "Invalid query parameter",
        "A query parameter is missing, unknown or invalid.", "Fix the parameter reported in `detail`.";
    InvalidPath = "invalid_path", 400, "Invalid path",
        "A path segment is not valid UTF-8 or not a valid id.", "Ids have 1 to 100 characters of `A-Za-z0-9._-:`.";
    InvalidHeader = "invalid_header", 400, "Invalid header",
        "The value of `Idempotency-Key` or `Last-Event-ID` is invalid.", "Fix the header reported in `detail`.";
    BodyTimeout = "body_timeout", 408, "Request body timed out",
        "The request body did not arrive in time.", "Repeat the request over a faster connection.";
    RequestTimeout = "request_timeout", 504, "Request timed out",
        "The request was not completed in time; it may still take effect.",
        "Check whether it took effect, or repeat it with the same id or idempotency key.";
    NotAuthenticated = "not_authenticated", 401, "Authentication required",
        "The token is missing, unknown or expired.", "Send `Authorization: Bearer TOKEN`.";
    NotAllowed = "not_allowed", 403, "Missing scope",
        "The token lacks the required scope.", "Use a token with the scope named in `detail`.";
    ForeignOrigin = "foreign_origin", 403, "Origin not allowed",
        "The origin of the web page is not on the server's allow list.", "Add the origin with `--origin`.";
    ForeignHost = "foreign_host", 403, "Host not allowed",
        "A server without tokens accepts only local host names, to prevent DNS rebinding.",
        "Use `localhost`, or configure tokens.";
    ProxyNotAllowed = "proxy_not_allowed", 403, "Proxied request not allowed",
        "A server without tokens received a proxied request, which would make the API public.",
        "Configure tokens, or connect without the proxy.";
    RateLimited = "rate_limited", 429, "Too many requests",
        "The client address or the token exceeds its request rate.", "Retry after `Retry-After` seconds, at a lower rate.";
    TooManyAttempts = "too_many_attempts", 429, "Too many failed authentications",
        "The client address exceeds the rate of failed authentications.", "Check the token; retry after `Retry-After` seconds.";
    Overloaded = "overloaded", 503, "Server overloaded",
        "The memory budget of request bodies is exhausted, in total or for this client.", "Retry after `Retry-After` seconds.";
    Internal = "internal", 500, "Internal server error",
        "The server hit a bug.", "Report it, with the server's log.";
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
    /// `urn:wigwag:problem:` followed by the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// Short summary, the same for every problem with this code.
    pub title: String,
    /// HTTP status of the response.
    pub status: u16,
    /// What failed and why, with names in backticks.
    pub detail: String,
    /// Stable error code.
    pub code: Code,
    /// Hint on how to fix the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Recorded error of a failed run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<Box<Value>>,
    /// Parts of a payload that do not match its schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors: Option<Box<FieldProblems>>,
}

/// Parts of a payload that do not match its schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct FieldProblems(pub Vec<FieldProblem>);

/// One part of a payload that does not match its schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FieldProblem {
    /// JSON pointer of the part; empty for the payload itself.
    pub path: String,
    /// Description of the mismatch.
    pub message: String,
}

impl Problem {
    /// Creates a problem document.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:wigwag:problem:{}", code.name()),
            title: code.title().into(),
            status: code.status(),
            detail: detail.into(),
            code,
            hint: Some(code.action().into()),
            fault: None,
            errors: None,
        }
    }

    /// Replaces the suggested fix.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let problem = Self::new(error.kind().into(), error.to_string());
        let fault = error.fault().and_then(|fault| serde_json::to_value(fault).ok()).map(Box::new);
        let field =
            |field: &wigwag::FieldError| FieldProblem { path: field.path.clone(), message: field.message.clone() };
        let fields: Vec<FieldProblem> = error.fields().iter().map(field).collect();
        let errors = (!fields.is_empty()).then(|| Box::new(FieldProblems(fields)));
        Self { hint: error.advice().map(str::to_owned).or(problem.hint.clone()), fault, errors, ..problem }
    }
}

impl From<wigwag_core::Refusal> for Problem {
    fn from(refusal: wigwag_core::Refusal) -> Self {
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

/// Result of a request handler.
pub(crate) type Result<T> = std::result::Result<T, Problem>;
