//! What the user reads when a command fails: what happened, `hint:`, and the exit code.

use std::io::Write as _;
use std::process::ExitCode;

use wigwag_server::Code;
use wigwag_store::ErrorKind;

#[derive(Clone, Debug)]
pub(crate) struct Failed {
    what: String,
    hint: Option<String>,
    /// What went wrong, in the one word that the API has for it; none where only a person needs to know.
    code: Option<Code>,
    exit: u8,
}

impl Failed {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None, code: None, exit: 1 }
    }

    /// A failure of that kind, whoever found it: the engine here, or a server.
    pub(crate) fn of(code: Code, what: impl Into<String>) -> Self {
        let exit = match code {
            Code::Invalid | Code::InvalidName | Code::InvalidPayload | Code::UnknownPoint | Code::RejectedSender => 2,
            Code::InvalidBody | Code::InvalidPath | Code::InvalidQuery | Code::InvalidHeader | Code::BodyTooLarge => 2,
            Code::NotFound | Code::Gone => 3,
            Code::Conflict | Code::NotRunning | Code::NotWaiting => 4,
            _ => 1,
        };
        Self { code: Some(code), exit, ..Self::new(what) }
    }

    pub(crate) fn not_found(what: impl Into<String>) -> Self {
        Self { exit: 3, ..Self::new(what) }
    }

    /// Somebody else has what was wanted.
    pub(crate) fn conflict(what: impl Into<String>) -> Self {
        Self { exit: 4, ..Self::new(what) }
    }

    /// The call cannot succeed as written.
    pub(crate) fn wrong(what: impl Into<String>) -> Self {
        Self { exit: 2, ..Self::new(what) }
    }

    pub(crate) fn code(&self) -> Option<Code> {
        self.code
    }

    /// What happened.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// What helps.
    pub(crate) fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
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

    /// Commands that the hint names get the flags that lead to the same store: the engine, which wrote some of them,
    /// does not know these.
    pub(crate) fn with_flags(mut self, flags: &str) -> Self {
        self.hint = self.hint.map(|hint| with_flags(&hint, flags));
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
        ExitCode::from(self.exit)
    }
}

/// A command that asks nobody.
const VERSION: &str = "wigwag --version";

fn with_flags(hint: &str, flags: &str) -> String {
    let is_command = |place: usize, part: &str| {
        let is_led = [" --store ", " --server "].iter().any(|flag| part.contains(flag));
        place % 2 == 1 && part.starts_with("wigwag ") && part != VERSION && !is_led && !part.ends_with(flags)
    };
    let parts = hint.split('`').enumerate().map(|(place, part)| match is_command(place, part) {
        true => format!("{part}{flags}"),
        false => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("`")
}

impl From<wigwag_store::Error> for Failed {
    fn from(error: wigwag_store::Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::Invalid => 2,
            ErrorKind::Exists | ErrorKind::Changed => 4,
            _ => 1,
        };
        Self { what: error.to_string(), hint: error.advice().map(str::to_owned), code: None, exit }
    }
}

impl From<wigwag::Error> for Failed {
    fn from(error: wigwag::Error) -> Self {
        let hint = error.advice().map(str::to_owned);
        Self { hint, ..Self::of(error.kind().into(), error.to_string()) }
    }
}

impl From<wigwag_server::Error> for Failed {
    fn from(error: wigwag_server::Error) -> Self {
        Self::wrong(error.to_string()).hint(error.advice())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_a_hint_lead_to_the_store_that_was_named() {
        let flags = " --store here";
        let check = |hint: &str, want: &str| assert_eq!(with_flags(hint, flags), want);
        check("see `wigwag list` or `wigwag ls a/`", "see `wigwag list --store here` or `wigwag ls a/ --store here`");
        check("see `wigwag list --store here`", "see `wigwag list --store here`");
        check("compare with `wigwag --version`", "compare with `wigwag --version`");
        check("name it with `--store`; wigwag list", "name it with `--store`; wigwag list");
        assert_eq!(with_flags("see `wigwag list`", ""), "see `wigwag list`");
    }
}
