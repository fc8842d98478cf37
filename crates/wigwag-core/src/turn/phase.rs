//! Phases of a turn, with the state that it holds and its goal.

use std::time::Duration;

use crate::{Ending, Path, Payload};

/// How far the engine has been stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// No stop was requested.
    No,
    /// No run is claimed any more.
    Drain,
    /// Running code is dropped, and all runs are released.
    Now,
    /// No writes any more, as if the process had died.
    Dead,
}

/// State of a turn's claim on the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The claim is staged: until it is durable, other workers may claim the run.
    Staged {
        /// The run does not exist before this claim: nothing can have been sent to it.
        is_new: bool,
    },
    /// The staged entry parks the run, with this wake-up.
    Parking {
        /// Key of the wake-up.
        hint: String,
        /// Whether that entry is the run's first one.
        is_first: bool,
    },
    /// The claim is durable, and its own entry parked the run, with this wake-up.
    Parked {
        /// Key of the wake-up.
        hint: String,
        /// Whether that entry was the run's first one.
        is_first: bool,
    },
    /// The claim is durable: the turn owns the run.
    Held,
}

impl Claim {
    /// Whether the run does not exist before the staged entry.
    #[must_use]
    pub fn is_new(&self) -> bool {
        matches!(self, Self::Staged { is_new: true })
    }

    /// Notes that the staged entry is durable.
    pub fn landed(&mut self) {
        *self = match std::mem::replace(self, Self::Held) {
            Self::Parking { hint, is_first } => Self::Parked { hint, is_first },
            _ => Self::Held,
        };
    }

    /// Whether the claim is durable.
    #[must_use]
    pub fn is_durable(&self) -> bool {
        !matches!(self, Self::Staged { .. })
    }
}

/// Goal of a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// Steps start when they are ready, and code continues.
    Driving,
    /// The function has returned this result; the run completes.
    Completing(Payload),
    /// The run fails or is cancelled: running steps end, then completed ones are compensated.
    Ending(Closure),
    /// The run was restarted or migrated: the turn is released, and the next one starts afresh.
    Releasing,
}

/// A run that fails or is cancelled.
#[derive(Clone, Debug, PartialEq)]
pub struct Closure {
    /// How the run ends.
    pub ending: Ending,
    /// Time at which running steps of a cancelled run are dropped, by the clock that counts suspended time.
    pub grace_ends: Option<Duration>,
    /// Steps to compensate, in this order; known once nothing runs any more.
    pub undo: Option<Vec<Path>>,
}

impl Phase {
    /// Returns the phase of a run that ends this way, or is driven.
    #[must_use]
    pub fn of(ending: Option<Ending>) -> Self {
        ending.map_or(Self::Driving, Self::ending_with)
    }

    fn ending_with(ending: Ending) -> Self {
        Self::Ending(Closure { ending, grace_ends: None, undo: None })
    }

    /// Ends the run, unless it ends already or the turn is released.
    pub fn end(&mut self, ending: Ending) {
        if matches!(self, Self::Driving | Self::Completing(_)) {
            *self = Self::ending_with(ending);
        }
    }

    /// Cancels a run that is driven; returns whether that is new. Running steps are dropped at `grace_ends`.
    pub fn cancel(&mut self, reason: Option<String>, grace_ends: Duration) -> bool {
        if !matches!(self, Self::Driving) {
            return false;
        }
        let ending = Ending::Cancelled(reason);
        *self = Self::Ending(Closure { ending, grace_ends: Some(grace_ends), undo: None });
        true
    }

    /// Completes a run that is driven with the result of its function.
    pub fn complete(&mut self, result: Payload) {
        if matches!(self, Self::Driving) {
            *self = Self::Completing(result);
        }
    }

    /// Returns the result of the function, and drives the run again.
    pub fn take_result(&mut self) -> Option<Payload> {
        if !matches!(self, Self::Completing(_)) {
            return None;
        }
        match std::mem::replace(self, Self::Driving) {
            Self::Completing(result) => Some(result),
            _ => None,
        }
    }

    /// Whether the grace time of running steps has just ended; returns true once.
    pub fn ends_grace(&mut self, boot: Duration) -> bool {
        match self {
            Self::Ending(closure) if closure.grace_ends.is_some_and(|ends| boot >= ends) => {
                closure.grace_ends = None;
                true
            }
            _ => false,
        }
    }

    /// Time at which running steps are dropped.
    #[must_use]
    pub fn grace_ends(&self) -> Option<Duration> {
        match self {
            Self::Ending(closure) => closure.grace_ends,
            _ => None,
        }
    }

    /// How the run ends, if it fails or is cancelled.
    #[must_use]
    pub fn ending(&self) -> Option<&Ending> {
        match self {
            Self::Ending(closure) => Some(&closure.ending),
            _ => None,
        }
    }

    /// Whether the run fails or is cancelled.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        self.ending().is_some()
    }

    /// Whether the run is being cancelled.
    #[must_use]
    pub fn is_cancelling(&self) -> bool {
        matches!(self.ending(), Some(Ending::Cancelled(_)))
    }

    /// Whether the function has returned, and the run is about to complete.
    #[must_use]
    pub fn is_completing(&self) -> bool {
        matches!(self, Self::Completing(_))
    }

    /// Whether the turn is released.
    #[must_use]
    pub fn is_releasing(&self) -> bool {
        matches!(self, Self::Releasing)
    }
}
