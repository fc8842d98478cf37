//! The audit log: structured log lines of the target `wigwag::audit` with caller, client address, action and outcome.
//!
//! Holds: every control operation and raw store write is logged. Denied requests are logged up to a rate, and then counted.
//! No token, secret or payload is logged.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wigwag_hub::Rate;
use wigwag_store::{Clock as _, System};

use crate::pace::Pace;
use crate::peer::{ClientAddress, network};

/// Rate of logged denials per address; further denials are only counted.
const DENIALS: Rate = Rate { per_second: 1, burst: 20 };

/// Target of an audited operation, and the caller's name where the handler knows it; a response extension.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) who: Option<String>,
    pub(crate) what: String,
}

/// One audited operation.
#[derive(Debug)]
pub(crate) struct Record<'a> {
    pub(crate) action: &'a str,
    pub(crate) who: Option<&'a str>,
    pub(crate) from: ClientAddress,
    pub(crate) what: &'a str,
    pub(crate) outcome: &'a str,
}

impl Record<'_> {
    pub(crate) fn write(&self) {
        let Record { action, from, what, outcome, .. } = *self;
        let who = self.who.unwrap_or("anonymous");
        tracing::info!(target: "wigwag::audit", action, who, %from, what, outcome);
    }

    /// Logs a raw store write under a separate target, because remote workers write often.
    pub(crate) fn write_store(&self) {
        let Record { action, from, what, outcome, .. } = *self;
        let who = self.who.unwrap_or("anonymous");
        tracing::info!(target: "wigwag::audit::store", action, who, %from, what, outcome);
    }
}

/// Logs denied requests at a limited rate.
#[derive(Debug)]
pub(crate) struct Denials {
    pace: Pace<Option<IpAddr>>,
    unwritten: AtomicU64,
}

impl Denials {
    pub(crate) fn new() -> Self {
        Self { pace: Pace::new(DENIALS), unwritten: AtomicU64::new(0) }
    }

    /// Logs a denied request, unless the address exceeds the rate.
    pub(crate) fn write(&self, from: ClientAddress, who: Option<&str>, what: &str, outcome: &str) {
        metrics::counter!("wigwag_http_denied_total", "code" => outcome.to_owned()).increment(1);
        if !self.pace.take(&from.0.map(network), System.boot(), Duration::ZERO).is_zero() {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let unwritten = self.unwritten.swap(0, Ordering::Relaxed);
        let who = who.unwrap_or("anonymous");
        tracing::warn!(target: "wigwag::audit", action = "denied", who, %from, what, outcome, unwritten);
    }
}

/// An audited operation in progress.
///
/// Holds: every operation that started has a record. An operation that is dropped unfinished (the client closed the connection, or the
/// handler panicked) is recorded as [`INTERRUPTED`]: it may have been performed.
#[derive(Debug)]
pub(crate) struct Pending {
    action: &'static str,
    who: Option<String>,
    from: ClientAddress,
    what: String,
    is_raw_write: bool,
    is_recorded: bool,
}

/// Outcome of an operation whose response was not sent.
const INTERRUPTED: &str = "interrupted";

impl Pending {
    /// An operation on runs, links or the server.
    pub(crate) fn new(action: &'static str, who: Option<&str>, from: ClientAddress, what: String) -> Self {
        let who = who.map(str::to_owned);
        Self { action, who, from, what, is_raw_write: false, is_recorded: false }
    }

    /// A raw store write.
    pub(crate) fn of_store(action: &'static str, who: Option<&str>, from: ClientAddress, what: String) -> Self {
        let mut pending = Self::new(action, who, from, what);
        pending.is_raw_write = true;
        pending
    }

    /// Records the outcome; with the subject that the handler found, if there is one.
    pub(crate) fn finish(mut self, subject: Option<Subject>, outcome: &str) {
        if let Some(Subject { who, what }) = subject {
            self.who = self.who.take().or(who);
            self.what = what;
        }
        self.record(outcome);
        self.is_recorded = true;
    }

    fn record(&self, outcome: &str) {
        let Self { action, from, what, .. } = self;
        let record = Record { action, who: self.who.as_deref(), from: *from, what, outcome };
        if self.is_raw_write { record.write_store() } else { record.write() }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.is_recorded {
            self.record(INTERRUPTED);
        }
    }
}
