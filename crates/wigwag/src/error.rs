//! Errors of calls, grouped by the caller's next action.

use std::fmt;

use wigwag_core::{Fault, Refusal};

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A call that did not succeed: what happened, and often what helps.
#[derive(Clone, Debug)]
pub struct Error(Box<Facts>);

#[derive(Clone, Debug)]
struct Facts {
    kind: ErrorKind,
    what: String,
    hint: Option<String>,
    fault: Option<Fault>,
    fields: Vec<FieldError>,
    source: Option<wigwag_store::Error>,
}

/// A part of a payload that violates its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FieldError {
    /// JSON pointer of the part; empty for the payload itself.
    pub path: String,
    /// Message of the violation.
    pub message: String,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Kinds of errors, by the caller's next action.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum ErrorKind {
            $($(#[$doc])* $name,)*
        }

        impl ErrorKind {
            /// All kinds, for tables in other languages that must have an entry for each.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

kinds! {
    /// The run does not exist. Check the id.
    NotFound,
    /// Retention deleted the run.
    Gone,
    /// The id or key is in use. Choose another, or inspect the existing run.
    Conflict,
    /// The status of the run does not allow this. Check its status.
    NotRunning,
    /// The call cannot succeed as written. Change the call.
    Invalid,
    /// The name of the signal is invalid. Change it.
    InvalidName,
    /// The payload is too large, or violates the receiver's schema. Change it.
    InvalidPayload,
    /// The run takes that signal of authenticated senders only. Send it with a token, or by a signed link.
    RejectedSender,
    /// The run does not wait for that signal now, and it was to be sent only if it does.
    NotWaiting,
    /// The run does not wait at that point.
    UnknownPoint,
    /// The run failed or was cancelled; [`Error::fault`] contains the error.
    RunFailed,
    /// The run was cancelled.
    RunCancelled,
    /// The call did not finish within its timeout.
    TimedOut,
    /// The engine is stopping.
    Stopped,
    /// The store did not respond, or is full. Retry later.
    Unavailable,
    /// This version cannot read a stored object.
    Damaged,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self(Box::new(Facts { kind, what: what.into(), hint: None, fault: None, fields: Vec::new(), source: None }))
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, what)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    pub(crate) fn with_fault(mut self, fault: Fault) -> Self {
        self.0.fault = Some(fault);
        self
    }

    pub(crate) fn with_fields(mut self, fields: Vec<FieldError>) -> Self {
        self.0.fields = fields;
        self
    }

    /// Parts of the payload that do not fit its schema, if that is what happened.
    #[must_use]
    pub fn fields(&self) -> &[FieldError] {
        &self.0.fields
    }

    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Damaged, what).hint(
            "another program modified the object, or a newer version of wigwag wrote it; it was left unchanged: \
             inspect it with `wigwag cat`, and restore the original",
        )
    }

    /// An object whose content does not match its key.
    pub(crate) fn unreadable(key: &str, why: impl fmt::Display) -> Self {
        Self::damaged(format!("`{key}` cannot be read: {why}"))
    }

    /// Kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// How to fix the error, if known.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Why the run failed, if that is what happened.
    #[must_use]
    pub fn fault(&self) -> Option<&Fault> {
        self.0.fault.as_ref()
    }

    /// The store's error, if it was one.
    #[must_use]
    pub fn store(&self) -> Option<&wigwag_store::Error> {
        self.0.source.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.what)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| source as _)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::invalid(refusal.to_string())
    }
}

impl From<wigwag_store::Error> for Error {
    fn from(error: wigwag_store::Error) -> Self {
        use wigwag_store::ErrorKind as Store;
        let kind = match error.kind() {
            // A missing bucket is no fault of the call: it succeeds once the bucket is back.
            Store::Invalid if error.concerns_settings() => ErrorKind::Unavailable,
            Store::Invalid => ErrorKind::Invalid,
            Store::Damaged => ErrorKind::Damaged,
            Store::Exists | Store::Changed => ErrorKind::Conflict,
            _ => ErrorKind::Unavailable,
        };
        let hint = error.advice().map(str::to_owned);
        let mut wrapped = Self::new(kind, error.to_string());
        wrapped.0.hint = hint;
        wrapped.0.source = Some(error);
        wrapped
    }
}
