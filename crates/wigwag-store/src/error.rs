//! Errors of the store, grouped by the caller's next action.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Version;

/// The result of a store's operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed operation: the action, the key, the cause, and often a hint.
#[derive(Clone)]
pub struct Error(Box<Facts>);

#[derive(Clone)]
struct Facts {
    kind: ErrorKind,
    action: Action,
    key: String,
    what: String,
    hint: Option<String>,
    retry_after: Option<Duration>,
    concerns_settings: bool,
    landed: usize,
    versions: Vec<Version>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// Kinds of errors, by the caller's next action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The key to be created exists. You lost: read again.
    Exists,
    /// The key is no longer at the version named. You lost: read again.
    Changed,
    /// The write may or may not have landed. Read back.
    Unknown,
    /// The operation did not land; the operations before it in a batch may have ([`Error::landed`]). Retry,
    /// not before [`Error::retry_after`].
    Unavailable,
    /// The store does not let this caller in. Change the credentials or the permissions.
    Denied,
    /// The call cannot succeed as written. Change the call.
    Invalid,
    /// The store is full, and the operation did not land. Free some space and retry.
    Full,
    /// This version cannot read a stored object. Restore it, or use the version that wrote it.
    Damaged,
}

/// The failed action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Opening the store.
    Open,
    /// Reading an object.
    Get,
    /// Writing a batch.
    Write,
    /// Listing of keys.
    List,
    /// Reading the time.
    Now,
    /// Trying whether the store keeps its promises.
    Prove,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self(Box::new(Facts {
            kind,
            action: Action::Open,
            key: String::new(),
            what: what.into(),
            hint: None,
            retry_after: None,
            concerns_settings: false,
            landed: 0,
            versions: Vec::new(),
            source: None,
        }))
    }

    /// An error of that kind, for tests of error handling.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn of_kind(kind: ErrorKind) -> Self {
        Self::new(kind, "made by a test")
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, what)
    }

    pub(crate) fn exists(key: &str) -> Self {
        Self::new(ErrorKind::Exists, "the key already exists").on(Action::Write, key)
    }

    pub(crate) fn changed(key: &str) -> Self {
        Self::new(ErrorKind::Changed, "the object has a different version").on(Action::Write, key)
    }

    pub(crate) fn not_clear(key: &str) -> Self {
        Self::new(ErrorKind::Changed, "precondition failed: unexpected key in the guarded range").on(Action::Write, key)
    }

    pub(crate) fn on(mut self, action: Action, key: &str) -> Self {
        self.0.action = action;
        key.clone_into(&mut self.0.key);
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    #[cfg(any(feature = "embedded", feature = "_bucket"))]
    pub(crate) fn because(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    #[cfg(any(feature = "_bucket", test))]
    pub(crate) fn wait(mut self, retry_after: Option<Duration>) -> Self {
        self.0.retry_after = retry_after;
        self
    }

    #[cfg(feature = "_bucket")]
    pub(crate) fn of_settings(mut self) -> Self {
        self.0.concerns_settings = true;
        self
    }

    pub(crate) fn after_landing(mut self, landed: usize, versions: Vec<Version>) -> Self {
        self.0.landed = landed;
        self.0.versions = versions;
        self
    }

    pub(crate) fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// Kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The failed action.
    #[must_use]
    pub fn action(&self) -> Action {
        self.0.action
    }

    /// The key or prefix it was done to; empty where there is none.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// How to fix the error, if known.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The retry delay that the store demanded.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// Whether the bucket or its settings are at fault rather than this call: a missing bucket, a wrong region. The
    /// same call may succeed later.
    #[must_use]
    pub fn concerns_settings(&self) -> bool {
        self.0.concerns_settings
    }

    /// Number of operations of the batch that landed before the failed one; always 0 if a batch is atomic.
    #[must_use]
    pub fn landed(&self) -> usize {
        self.0.landed
    }

    /// The versions of the puts among what landed.
    pub(crate) fn landed_versions(&self) -> &[Version] {
        &self.0.versions
    }

    /// Whether a key to be created was there already.
    #[must_use]
    pub fn is_exists(&self) -> bool {
        self.kind() == ErrorKind::Exists
    }

    /// Whether another writer was first, by either condition.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self.kind(), ErrorKind::Exists | ErrorKind::Changed)
    }

    /// Whether the write may have landed.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.kind() == ErrorKind::Unknown
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = &self.0;
        if facts.key.is_empty() {
            return f.write_str(&facts.what);
        }
        write!(f, "{} `{}`: {}", facts.action.verb(), facts.key.escape_debug(), facts.what)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)?;
        if self.0.landed > 0 {
            write!(f, " (after {} operations landed)", self.0.landed)?;
        }
        self.0.source.as_ref().map_or(Ok(()), |source| write!(f, ": {source}"))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn std::error::Error + 'static))
    }
}

impl Action {
    fn verb(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Get => "get",
            Self::Write => "write",
            Self::List => "list",
            Self::Now => "ask for the time of",
            Self::Prove => "prove",
        }
    }
}
