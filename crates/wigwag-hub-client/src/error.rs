//! Errors of hub calls, classified by the action that the caller takes next.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed call: the reason, a hint, and whether a retry may succeed.
#[derive(Clone, Debug)]
pub struct Error(Arc<Facts>);

#[derive(Clone, Debug)]
struct Facts {
    kind: ErrorKind,
    what: String,
    hint: Option<String>,
    retryable: bool,
    retry_after: Option<Duration>,
    details: Value,
}

/// Class of an error, which decides the caller's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call cannot succeed as written. Change the call.
    Invalid,
    /// The address was never registered, or the run does not exist. Check the address.
    UnknownActor,
    /// The token is missing or invalid, or does not allow the call. Use another token.
    Unauthorized,
    /// The message exceeds the hub's size limit. Store the data elsewhere and send a reference.
    TooLarge,
    /// The session exceeded the hub's rate limit. The client waits and retries by itself; only a message sent with
    /// `tell` is lost.
    RateLimited,
    /// No answer arrived in time. The call may have succeeded; a repeat with the same id takes effect once.
    Timeout,
    /// The message's time to live ended before delivery. Send a new message with a longer time to live.
    Expired,
    /// The target's queue is full. Try again later.
    QueueFull,
    /// The id belongs to another message. Use a new id.
    Conflict,
    /// The target is connected to another server, and this client did not move there.
    /// [`Error::details`] contains its URL.
    Elsewhere,
    /// The client's send buffer is full. Wait for space, or drop the message.
    BufferFull,
    /// The hub uses another version of the protocol. Upgrade the client or the server.
    VersionMismatch,
    /// The server is unreachable or is not a hub. Check that the server runs, and its URL.
    Unreachable,
    /// Another session registered an address of this session, which ended it. Decide which of
    /// the two clients should run.
    TakenOver,
    /// The client is closed.
    Closed,
    /// The hub failed, or sent a frame that this client cannot parse.
    Internal,
}

impl ErrorKind {
    /// Whether the same call may succeed later. This is the default of the kind; the hub can override it per error.
    fn is_retryable(self) -> bool {
        matches!(
            self,
            Self::RateLimited | Self::Timeout | Self::QueueFull | Self::BufferFull | Self::Unreachable | Self::Internal
        )
    }
}

impl Error {
    pub(super) fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        let retryable = kind.is_retryable();
        let what = what.into();
        Self(Arc::new(Facts { kind, what, hint: None, retryable, retry_after: None, details: Value::Null }))
    }

    pub(super) fn invalid(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, what)
    }

    pub(super) fn hint(mut self, hint: impl Into<String>) -> Self {
        Arc::make_mut(&mut self.0).hint = Some(hint.into());
        self
    }

    /// Parses an error frame of the hub; returns `None` if the frame reports no error.
    pub(super) fn told(kind: &str, payload: &str) -> Option<Self> {
        let told: Told = serde_json::from_str(payload).unwrap_or_default();
        let kind = match (kind, told.code.as_str()) {
            ("hub:unknown_actor", _) => ErrorKind::UnknownActor,
            ("hub:unauthorized", _) => ErrorKind::Unauthorized,
            ("hub:rate_limited", _) => ErrorKind::RateLimited,
            ("hub:message_too_large", _) => ErrorKind::TooLarge,
            ("hub:error", "timeout") => ErrorKind::Timeout,
            ("hub:error", "message_expired") => ErrorKind::Expired,
            ("hub:error", "invalid_message") => ErrorKind::Invalid,
            ("hub:error", "version_mismatch") => ErrorKind::VersionMismatch,
            ("hub:error", "queue_full") => ErrorKind::QueueFull,
            ("hub:error", "conflict") => ErrorKind::Conflict,
            ("hub:error", "elsewhere") => ErrorKind::Elsewhere,
            ("hub:error", _) => ErrorKind::Internal,
            _ => return None,
        };
        Some(told.into_error(kind))
    }

    /// Returns the kind, which decides the caller's next action.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the hint on how to fix the error, if there is one.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Whether the same call may succeed later.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// Returns the delay that the hub requests before a retry.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Returns the hub's details as JSON. For a timeout, they contain the target and the time of the delivery attempt.
    #[must_use]
    pub fn details(&self) -> &Value {
        &self.0.details
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.what)
    }
}

impl std::error::Error for Error {}

/// The payload of every error that the hub sends.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Told {
    code: String,
    message: Option<String>,
    hint: Option<String>,
    retryable: Option<bool>,
    retry_after: Option<u64>,
    actor_address: Option<String>,
    details: Value,
}

impl Told {
    fn into_error(self, kind: ErrorKind) -> Error {
        let mut what =
            self.message.unwrap_or_else(|| format!("the hub sent an error without a reason: `{}`", self.code));
        if let Some(address) = self.actor_address.filter(|address| !what.contains(address.as_str())) {
            what += &format!(": `{address}`");
        }
        Error(Arc::new(Facts {
            kind,
            what,
            hint: self.hint,
            retryable: self.retryable.unwrap_or(kind.is_retryable()),
            retry_after: self.retry_after.map(Duration::from_millis),
            details: self.details,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_hub_says_keeps_its_kind_words_and_advice() {
        let table = [
            ("hub:unknown_actor", r#"{"message": "m"}"#, ErrorKind::UnknownActor, false),
            ("hub:unauthorized", r#"{"message": "m", "retryable": false}"#, ErrorKind::Unauthorized, false),
            ("hub:rate_limited", r#"{"message": "m", "retryAfter": 40}"#, ErrorKind::RateLimited, true),
            ("hub:message_too_large", r#"{"message": "m"}"#, ErrorKind::TooLarge, false),
            ("hub:error", r#"{"code": "timeout", "message": "m"}"#, ErrorKind::Timeout, true),
            ("hub:error", r#"{"code": "message_expired", "message": "m"}"#, ErrorKind::Expired, false),
            ("hub:error", r#"{"code": "invalid_message", "message": "m"}"#, ErrorKind::Invalid, false),
            ("hub:error", r#"{"code": "version_mismatch", "message": "m"}"#, ErrorKind::VersionMismatch, false),
            ("hub:error", r#"{"code": "queue_full", "message": "m"}"#, ErrorKind::QueueFull, true),
            ("hub:error", r#"{"code": "conflict", "message": "m"}"#, ErrorKind::Conflict, false),
            ("hub:error", r#"{"code": "elsewhere", "message": "m"}"#, ErrorKind::Elsewhere, false),
            ("hub:error", r#"{"code": "internal_error", "message": "m"}"#, ErrorKind::Internal, true),
            (
                "hub:error",
                r#"{"code": "of_a_newer_hub", "message": "m", "retryable": false}"#,
                ErrorKind::Internal,
                false,
            ),
        ];
        for (of, payload, kind, retryable) in table {
            let error = Error::told(of, payload).unwrap();
            assert_eq!(
                (error.kind(), error.is_retryable(), error.to_string()),
                (kind, retryable, "m".into()),
                "{payload}"
            );
        }
        let limited = Error::told("hub:rate_limited", r#"{"message": "m", "hint": "h", "retryAfter": 40}"#).unwrap();
        assert_eq!((limited.retry_after(), limited.advice()), (Some(Duration::from_millis(40)), Some("h")));
        let unknown = Error::told("hub:unknown_actor", r#"{"message": "m", "actorAddress": "@(a)"}"#).unwrap();
        assert_eq!(unknown.to_string(), "m: `@(a)`", "the message names the address");
        assert!(Error::told("hub:registered", "{}").is_none());
        assert!(Error::told("hub:error", "7").unwrap().to_string().contains("without a reason"));
    }
}
