//! Counts the sessions, actors and topics that a call visits, so that tests can bound the work under the lock without a
//! clock. Without the feature `testing` nothing is counted.

#[cfg(feature = "testing")]
use std::cell::Cell;

/// Number of visits since it was last read.
#[derive(Debug, Default)]
pub(super) struct Visits {
    #[cfg(feature = "testing")]
    count: Cell<usize>,
}

impl Visits {
    /// Adds to the number of visits.
    #[inline]
    pub(super) fn count(&self, more: usize) {
        #[cfg(feature = "testing")]
        self.count.set(self.count.get() + more);
        #[cfg(not(feature = "testing"))]
        let _ = (self, more);
    }

    /// Returns the visits since the last call.
    #[cfg(feature = "testing")]
    pub(super) fn take(&self) -> usize {
        self.count.take()
    }
}
