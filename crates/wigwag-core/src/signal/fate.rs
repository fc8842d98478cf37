//! The outcome of a signal, as shown to senders and readers of an inbox.

use serde::{Deserialize, Serialize};

use super::{Inbox, Mode, Signal};
use crate::{Name, Path, Run, Time};

/// The outcome of a signal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fate {
    /// No wait has consumed it yet.
    Unconsumed,
    /// A wait consumed it.
    Consumed {
        /// The wait that consumed it.
        point: Path,
        /// Time of the consumption.
        at: Time,
    },
    /// A newer signal was consumed instead.
    Superseded,
    /// The signal was bound to one wait, which ended first.
    Void,
    /// The run ended before a wait consumed it.
    NeverConsumed,
    /// The signal was stored too late for any scan, and its sender gave up before the acknowledgement.
    Unacknowledged,
}

impl Run {
    /// Returns whether a wait in mode `latest` consumed a newer signal; a function may wait for a name in both modes.
    fn is_superseded(&self, suffix: &str, name: &Name) -> bool {
        let waits = self.points.values().filter_map(|point| point.wait.as_deref());
        let mut latest = waits.filter(|wait| wait.name == *name && wait.mode == Mode::Latest);
        latest.any(|wait| wait.received.iter().any(|taken| taken.signal.as_str() > suffix))
    }

    /// Returns the outcome of a signal in this run, which must be read with all its points.
    #[must_use]
    pub fn fate_of(&self, suffix: &str, signal: &Signal, mode: Mode) -> Fate {
        if let Some((point, at)) = self.taker_of(suffix) {
            return Fate::Consumed { point: point.clone(), at };
        }
        let empty = Inbox::default();
        let inbox = self.signals.get(&signal.name).unwrap_or(&empty);
        match mode {
            _ if self.is_void(signal) => Fate::Void,
            Mode::Latest if suffix <= inbox.cursor.as_str() => Fate::Superseded,
            _ if self.status.is_final() => Fate::NeverConsumed,
            mode if inbox.offers(suffix, mode) => Fate::Unconsumed,
            _ if self.is_superseded(suffix, &signal.name) => Fate::Superseded,
            // The wait had ended when the inbox was read past the signal, and a restart opened it again.
            _ if self.restarts > 0 && signal.point.is_some() => Fate::Void,
            _ => Fate::Unacknowledged,
        }
    }
}
