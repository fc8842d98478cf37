//! Command failures: the message, the hint, and the exit code.

use std::io::Write as _;

use serde_json::Value;
use wigwag_server::{Code, FieldProblem};
use wigwag_store::ErrorKind;

use crate::output::ERROR;

/// A call that failed: its message, often a hint, and the error code of the API if it has one.
#[derive(Clone, Debug)]
pub struct Failed {
    what: String,
    hint: Option<String>,
    /// Error code of the API; absent for failures that only the CLI has.
    code: Option<Code>,
    exit: u8,
    facts: Option<Box<Facts>>,
}

/// Details of a problem document that the command does not print.
#[derive(Clone, Debug)]
struct Facts {
    fault: Option<Box<Value>>,
    errors: Vec<FieldProblem>,
}

impl Failed {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), hint: None, code: None, exit: 1, facts: None }
    }

    /// Creates a failure with an error code of the engine or the server.
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

    /// Creates a failure because something did not happen in time.
    pub fn timed_out(what: impl Into<String>) -> Self {
        Self::of(Code::TimedOut, what)
    }

    pub(crate) fn not_found(what: impl Into<String>) -> Self {
        Self { exit: 3, ..Self::new(what) }
    }

    /// Creates a failure because another process holds the resource.
    pub(crate) fn conflict(what: impl Into<String>) -> Self {
        Self { exit: 4, ..Self::new(what) }
    }

    /// Creates a failure because of invalid arguments.
    pub fn wrong(what: impl Into<String>) -> Self {
        Self { exit: 2, ..Self::new(what) }
    }

    /// Returns the error code of the API.
    pub fn code(&self) -> Option<Code> {
        self.code
    }

    /// Returns the message.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Returns the hint.
    pub fn advice(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Whether the arguments were invalid: the same call fails again.
    pub fn is_invalid(&self) -> bool {
        self.exit == 2
    }

    /// Returns the recorded error of a failed run.
    pub fn fault(&self) -> Option<&Value> {
        self.facts.as_ref()?.fault.as_deref()
    }

    /// Returns the parts of a payload that do not match its schema.
    pub fn fields(&self) -> &[FieldProblem] {
        self.facts.as_ref().map_or(&[], |facts| &facts.errors)
    }

    pub(crate) fn with_facts(mut self, fault: Option<Box<Value>>, errors: Vec<FieldProblem>) -> Self {
        self.facts = (fault.is_some() || !errors.is_empty()).then(|| Box::new(Facts { fault, errors }));
        self
    }

    /// Sets the hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds a hint unless there is one already.
    pub(crate) fn or_hint(mut self, hint: impl FnOnce() -> String) -> Self {
        self.hint.get_or_insert_with(hint);
        self
    }

    /// Adds the flags that select the same store to the commands in the hint; the engine, which wrote some of them,
    /// does not know these flags.
    pub(crate) fn with_flags(mut self, flags: &str) -> Self {
        self.hint = self.hint.map(|hint| with_flags(&hint, flags));
        self
    }

    /// Prints the failure on standard error. A closed pipe is no failure and prints nothing.
    pub(crate) fn report(self) -> u8 {
        if self.what.is_empty() {
            return 0;
        }
        let mut stderr = anstream::stderr().lock();
        let _ = writeln!(stderr, "{ERROR}error:{ERROR:#} {}", self.what);
        if let Some(hint) = self.hint {
            let _ = writeln!(stderr, "hint: {hint}");
        }
        self.exit
    }
}

/// A command that uses no store.
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
        Self { what: error.to_string(), hint: error.advice().map(str::to_owned), code: None, exit, facts: None }
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
    fn commands_in_a_hint_select_the_same_store() {
        let flags = " --store here";
        let check = |hint: &str, want: &str| assert_eq!(with_flags(hint, flags), want);
        check("see `wigwag list` or `wigwag ls a/`", "see `wigwag list --store here` or `wigwag ls a/ --store here`");
        check("see `wigwag list --store here`", "see `wigwag list --store here`");
        check("compare with `wigwag --version`", "compare with `wigwag --version`");
        check("name it with `--store`; wigwag list", "name it with `--store`; wigwag list");
        assert_eq!(with_flags("see `wigwag list`", ""), "see `wigwag list`");
    }
}
