//! The store's time, and the last reading of this engine.

use std::sync::Mutex;
use std::time::Duration;

use wigwag_core::Time;
use wigwag_store::Stamp;

use super::{EngineCore, lock};
use crate::error::Result;
use crate::limits::RECENT_NOW_AGE_MAX;

/// The store's time when it was last read, and the clock that counts suspended time at that moment.
#[derive(Debug, Default)]
pub(super) struct LastRead(Mutex<(Time, Duration)>);

/// The store's time, with the bound of its error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) at: Time,
    pub(crate) uncertainty: Duration,
}

pub(crate) fn time(stamp: Stamp) -> Time {
    Time::from_micros(stamp.micros())
}

impl EngineCore {
    /// Reads the store's time.
    pub(crate) async fn now(&self) -> Result<Now> {
        let before = self.clock.boot();
        let now = self.store.now().await?;
        let at = time(now.at);
        *lock(&self.last_read.0) = (at, before);
        Ok(Now { at, uncertainty: now.uncertainty })
    }

    /// Returns the store's time, with a new reading if the last one is older than [`RECENT_NOW_AGE_MAX`].
    pub(crate) async fn recent_now(&self) -> Result<Time> {
        let (at, boot) = *lock(&self.last_read.0);
        let age = self.clock.boot().saturating_sub(boot);
        if at > Time::default() && age < RECENT_NOW_AGE_MAX { Ok(at.after(age)) } else { Ok(self.now().await?.at) }
    }

    /// Estimates the store's time without a request: the last reading, and the time passed since.
    pub(crate) fn about_now(&self) -> Time {
        let (at, boot) = *lock(&self.last_read.0);
        at.after(self.clock.boot().saturating_sub(boot))
    }
}
