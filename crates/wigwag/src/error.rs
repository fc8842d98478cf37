//! What can go wrong with a call, named by what the caller does next.

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
    source: Option<wigwag_store::Error>,
}

/// What the caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is no such run. Check the id.
    NotFound,
    /// There was such a run, and retention took it.
    Gone,
    /// The id or key is taken by something else. Choose another, or look at what is there.
    Conflict,
    /// The run is not in a state in which this can be done. Look at its status.
    NotRunning,
    /// The call cannot succeed as written. Change the call.
    Invalid,
    /// That is no name for a signal. Change it.
    InvalidName,
    /// The payload is too large, or does not look as its receiver wants it. Change it.
    InvalidPayload,
    /// The run takes that signal of authenticated senders only. Send it with a token, or by a signed link.
    RejectedSender,
    /// The run does not wait for that signal now, and it was to be sent only if it does.
    NotWaiting,
    /// The run does not wait at that point.
    UnknownPoint,
    /// The run ended, but not well; [`Error::fault`] says why.
    RunFailed,
    /// The run was cancelled.
    RunCancelled,
    /// It did not happen in the time given.
    TimedOut,
    /// The engine is stopping.
    Stopped,
    /// The store did not answer, or is full. Try again later.
    Unavailable,
    /// What is stored cannot be read by this version.
    Damaged,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self(Box::new(Facts { kind, what: what.into(), hint: None, fault: None, source: None }))
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

    pub(crate) fn damaged(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Damaged, what).hint(
            "what is stored was changed by something else, or by a newer version of wigwag; nothing was changed now: \
             look at it with `wigwag cat`, and put back what was there",
        )
    }

    /// An object that is not what its key says.
    pub(crate) fn unreadable(key: &str, why: impl fmt::Display) -> Self {
        Self::damaged(format!("`{key}` cannot be read: {why}"))
    }

    /// What the caller does next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What helps.
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
