//! Settings of an engine: plain data with defaults.

use std::time::Duration;

use crate::error::{Error, Result};

/// Settings of an engine. The defaults suit most applications.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Settings {
    /// How long a worker may be silent before another takes over its runs; on one machine its end is
    /// detected at once.
    pub lease: Duration,
    /// Maximum number of runs that are driven concurrently; more wait in the store.
    pub turns_max: usize,
    /// A run whose next timer is nearer than this stays in memory instead of being parked.
    pub linger: Duration,
    /// How long running steps may continue after a cancel, or when the engine stops.
    pub grace: Duration,
    /// The shortest interval between two polls of the due index, while there is work.
    pub look_min: Duration,
    /// The longest interval between two polls of the due index, while there is no work.
    pub look_max: Duration,
    /// Interval of the sweeper, which removes stale wake-ups and index entries; never if `None`.
    pub sweep_every: Option<Duration>,
    /// Retention of finished runs; unlimited if `None`.
    pub keep: Option<Duration>,
    /// Secret for resume links; without it none can be created or used.
    pub link_secret: Option<crate::LinkSecret>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(30),
            turns_max: 1_024,
            linger: Duration::from_millis(100),
            grace: Duration::from_secs(10),
            look_min: Duration::from_millis(100),
            look_max: Duration::from_secs(10),
            sweep_every: Some(Duration::from_secs(300)),
            keep: None,
            link_secret: None,
        }
    }
}

impl Settings {
    /// Checks the settings; the error names the first invalid one.
    pub fn validate(&self) -> Result<()> {
        let hour = Duration::from_secs(3_600);
        if self.lease < Duration::from_secs(3) || self.lease > hour {
            return Err(Error::invalid(format!("a lease lasts 3 s to 1 h, got: {:?}", self.lease)));
        }
        if self.grace > hour {
            return Err(Error::invalid(format!("a grace time lasts at most 1 h, got: {:?}", self.grace)));
        }
        let year = hour * 24 * 365;
        if self.sweep_every.is_some_and(|every| every < Duration::from_secs(1) || every > year) {
            return Err(Error::invalid(format!("the sweeper looks every 1 s to 1 year, got: {:?}", self.sweep_every)));
        }
        if self.turns_max == 0 {
            return Err(Error::invalid("an engine drives at least one run at a time, got: 0"));
        }
        if self.linger > self.lease / 3 {
            return Err(Error::invalid(format!("a run lingers at most a third of the lease, got: {:?}", self.linger)));
        }
        if self.look_min.is_zero() || self.look_min > self.look_max {
            let (min, max) = (self.look_min, self.look_max);
            return Err(Error::invalid(format!("want 0 < `look_min` <= `look_max`, got: {min:?} and {max:?}")));
        }
        Ok(())
    }
}
