//! The error of a server that does not start.

use std::fmt;

/// Error of a server that does not start: a message, and advice on how to fix it.
#[derive(Debug)]
pub struct Error {
    what: String,
    hint: String,
}

impl Error {
    pub(crate) fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into() }
    }

    /// Advice on how to fix the error.
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
