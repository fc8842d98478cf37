//! Standard output is data, standard error is talk.

use std::io::{IsTerminal as _, Write as _};

/// Shows on a terminal what is being done; says nothing elsewhere.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { shown: std::io::stderr().is_terminal() }
    }

    pub(crate) fn say(&self, what: &str) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K{what} …");
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
