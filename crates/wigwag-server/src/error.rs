//! Why a server does not start.

use std::fmt;

/// Why a server does not start: what is wrong, and what helps.
#[derive(Debug)]
pub struct Error {
    what: String,
    hint: String,
}

impl Error {
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into() }
    }

    /// What helps.
    #[must_use]
    pub fn advice(&self) -> &str {
        &self.hint
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Error {}
