//! What the user reads when a command fails: what happened, `hint:`, and the exit code.

use std::io::Write as _;
use std::process::ExitCode;

use wigwag_store::ErrorKind;

#[derive(Debug)]
pub(crate) struct Failed {
    what: String,
    hint: Option<String>,
    code: u8,
}

impl Failed {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None, code: 1 }
    }

    pub(crate) fn not_found(what: impl Into<String>) -> Self {
        Self { code: 3, ..Self::new(what) }
    }

    /// The call cannot succeed as written.
    pub(crate) fn wrong(what: impl Into<String>) -> Self {
        Self { code: 2, ..Self::new(what) }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A hint, unless there is one that knows more.
    pub(crate) fn or_hint(mut self, hint: impl FnOnce() -> String) -> Self {
        self.hint.get_or_insert_with(hint);
        self
    }

    /// Says it on standard error. A reader that went away is no failure, and is told nothing.
    pub(crate) fn report(self) -> ExitCode {
        if self.what.is_empty() {
            return ExitCode::SUCCESS;
        }
        let mut stderr = std::io::stderr().lock();
        let _ = writeln!(stderr, "error: {}", self.what);
        if let Some(hint) = self.hint {
            let _ = writeln!(stderr, "hint: {hint}");
        }
        ExitCode::from(self.code)
    }
}

impl From<wigwag_store::Error> for Failed {
    fn from(error: wigwag_store::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Invalid => 2,
            ErrorKind::Exists | ErrorKind::Changed => 4,
            _ => 1,
        };
        Self { what: error.to_string(), hint: error.advice().map(str::to_owned), code }
    }
}

impl From<wigwag::Error> for Failed {
    fn from(error: wigwag::Error) -> Self {
        use wigwag::ErrorKind as Engine;
        let code = match error.kind() {
            Engine::Invalid => 2,
            Engine::NotFound | Engine::Gone => 3,
            Engine::Conflict | Engine::NotRunning => 4,
            _ => 1,
        };
        Self { what: error.to_string(), hint: error.advice().map(str::to_owned), code }
    }
}

impl From<std::io::Error> for Failed {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::new(""),
            _ => Self::new(error.to_string()),
        }
    }
}
