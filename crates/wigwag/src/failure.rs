//! Failures of users' code.

use std::fmt;
use std::time::Duration;

use wigwag_core::{Fault, Outcome, Path};

/// A step's or workflow's failure. Any error converts to one by `?`, and is then retryable.
///
/// ```
/// fn charge(cents: u64) -> Result<String, wigwag::Failure> {
///     if cents == 0 {
///         return Err(wigwag::permanent("nothing to charge"));
///     }
///     let receipt: u64 = "17".parse()?; // a failure worth another try
///     Ok(format!("r-{receipt}"))
/// }
/// assert!(charge(0).unwrap_err().is_permanent());
/// assert_eq!(charge(5).unwrap(), "r-17");
/// ```
#[derive(Clone)]
pub struct Failure {
    fault: Box<Fault>,
    outcome: Outcome,
    after: Option<Duration>,
}

/// A failure that a retry cannot fix.
#[must_use]
pub fn permanent(message: impl fmt::Display) -> Failure {
    Failure { fault: Box::new(Fault::new("Permanent", message.to_string())), outcome: Outcome::Permanent, after: None }
}

/// A failure that a retry may fix.
#[must_use]
pub fn retryable(message: impl fmt::Display) -> Failure {
    Failure { fault: Box::new(Fault::new("Retryable", message.to_string())), outcome: Outcome::Retryable, after: None }
}

impl Failure {
    /// A failure of this kind, for other languages.
    #[must_use]
    pub fn new(kind: &str, message: &str, detail: Option<String>, is_permanent: bool) -> Self {
        let outcome = if is_permanent { Outcome::Permanent } else { Outcome::Retryable };
        Self { fault: Box::new(Fault::new(kind, message).detail(detail)), outcome, after: None }
    }

    pub(crate) fn timeout(span: Duration) -> Self {
        let message = format!("it took longer than {span:?}");
        Self { fault: Box::new(Fault::new("Timeout", message)), outcome: Outcome::Retryable, after: None }
    }

    pub(crate) fn panic(payload: &(dyn std::any::Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        let message = text.unwrap_or_else(|| "it panicked without a message".into());
        let detail = crate::panics::take_backtrace();
        Self { fault: Box::new(Fault::new("Panic", message).detail(detail)), outcome: Outcome::Retryable, after: None }
    }

    pub(crate) fn lost(times: u32) -> Self {
        let message = format!("{times} workers died while they ran it");
        Self { fault: Box::new(Fault::new("WorkerLost", message)), outcome: Outcome::Retryable, after: None }
    }

    /// The recorded error of a step that failed for good; a retry cannot fix it.
    #[must_use]
    pub fn recorded(fault: Fault) -> Self {
        Self { fault: Box::new(fault), outcome: Outcome::Permanent, after: None }
    }

    /// Whether a retry cannot fix it.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.outcome == Outcome::Permanent
    }

    /// The recorded form of the error.
    #[must_use]
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// The next attempt begins after this span, whatever the retry policy says. It does not add an attempt. For services that
    /// say when they can be called again, such as HTTP's `Retry-After`.
    #[must_use]
    pub fn retry_after(mut self, span: Duration) -> Self {
        self.after = Some(span.min(wigwag_core::limits::SPAN_MAX));
        self
    }

    pub(crate) fn after(&self) -> Option<Duration> {
        self.after
    }

    pub(crate) fn outcome(&self) -> Outcome {
        self.outcome
    }

    pub(crate) fn at(self, point: &Path) -> Self {
        Self { fault: Box::new(self.fault.at(point)), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.fault.message)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.fault.kind, self.fault.message)
    }
}

/// A failure does not implement `Error` (like `anyhow::Error`), so that every error can
/// convert to one.
impl<E: std::error::Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut causes = Vec::new();
        let mut source = error.source();
        while let Some(cause) = source {
            causes.push(cause.to_string());
            source = cause.source();
        }
        let detail = (!causes.is_empty()).then(|| format!("because: {}", causes.join(": ")));
        let name = std::any::type_name::<E>();
        let kind = name.split('<').next().and_then(|path| path.rsplit("::").next()).unwrap_or("Retryable");
        Self {
            fault: Box::new(Fault::new(kind, error.to_string()).detail(detail)),
            outcome: Outcome::Retryable,
            after: None,
        }
    }
}
