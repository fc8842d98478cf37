//! What can go wrong, named by what the caller does next.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Version;

/// The result of a store's operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed operation: what was tried, on which key, what happened, and often what helps.
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
    landed: usize,
    versions: Vec<Version>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
}

/// What the caller does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The key to be created exists. You lost: read again.
    Exists,
    /// The key is no longer at the version named. You lost: read again.
    Changed,
    /// The write may or may not have landed. Read back.
    Unknown,
    /// The operation did not land; of a batch, what stands before it may have ([`Error::landed`]). Try again, not
    /// before [`Error::retry_after`].
    Unavailable,
    /// The store does not let this caller in. Change the credentials or the permissions.
    Denied,
    /// The call cannot succeed as written. Change the call.
    Invalid,
    /// There is no room, and the operation did not land. Make room and try again.
    Full,
    /// What is stored cannot be read by this version. Restore it, or use the version that wrote it.
    Damaged,
}

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// Opening the store.
    Open,
    /// Reading an object.
    Get,
    /// Writing a batch.
    Write,
    /// Listing keys.
    List,
    /// Asking for the time.
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
            landed: 0,
            versions: Vec::new(),
            source: None,
        }))
    }

    /// An error of that kind, for tests of what is made of errors.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn of_kind(kind: ErrorKind) -> Self {
        Self::new(kind, "made by a test")
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, what)
    }

    pub(crate) fn exists(key: &str) -> Self {
        Self::new(ErrorKind::Exists, "the key exists already").on(Action::Write, key)
    }

    pub(crate) fn changed(key: &str) -> Self {
        Self::new(ErrorKind::Changed, "the object is no longer at the version named").on(Action::Write, key)
    }

    pub(crate) fn not_clear(key: &str) -> Self {
        Self::new(ErrorKind::Changed, "it lies where nothing may for this batch to land").on(Action::Write, key)
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

    pub(crate) fn because(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    pub(crate) fn wait(mut self, retry_after: Option<Duration>) -> Self {
        self.0.retry_after = retry_after;
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

    /// What the caller does next.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was being done.
    #[must_use]
    pub fn action(&self) -> Action {
        self.0.action
    }

    /// The key or prefix it was done to; empty where there is none.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.0.key
    }

    /// What helps, if that is known.
    #[must_use]
    pub fn advice(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// How long the store asked to be left alone.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    /// How many operations of the batch landed before the one that failed; always 0 where a batch is atomic.
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
