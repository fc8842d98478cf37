//! The audit log: structured log lines of the target `wigwag::audit` with caller, client address, action and outcome.
//!
//! Holds: every control operation and raw store write is logged. Denied requests are logged up to a rate, and then counted.
//! No token, secret or payload is logged.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wigwag::store::{Clock as _, System};
use wigwag_hub::Rate;

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
    pub(crate) fn write(&self, from: ClientAddress, what: &str, outcome: &str) {
        metrics::counter!("wigwag_http_denied_total", "code" => outcome.to_owned()).increment(1);
        if !self.pace.take(&from.0.map(network), System.boot(), Duration::ZERO).is_zero() {
            self.unwritten.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let unwritten = self.unwritten.swap(0, Ordering::Relaxed);
        tracing::warn!(target: "wigwag::audit", action = "denied", %from, what, outcome, unwritten);
    }
}
