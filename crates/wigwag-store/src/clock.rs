//! The only doors to time and waiting.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use rustix::time::{ClockId, clock_gettime};

use crate::Stamp;

/// The machine's time, or a test's.
#[async_trait]
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// Calendar time. It may step in either direction.
    fn wall(&self) -> Stamp;

    /// Time since some fixed moment. It never steps, and continues while the machine is suspended.
    fn boot(&self) -> Duration;

    /// Sleeps for this duration.
    async fn sleep(&self, span: Duration);
}

/// The real clocks of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

#[async_trait]
impl Clock for System {
    fn wall(&self) -> Stamp {
        read(ClockId::Realtime).map_or(Stamp::default(), |since| Stamp::default().after(since))
    }

    fn boot(&self) -> Duration {
        read(BOOT).unwrap_or_default()
    }

    async fn sleep(&self, span: Duration) {
        #[expect(clippy::disallowed_methods, reason = "this is the door that the rule sends everyone to")]
        tokio::time::sleep(span).await;
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT: ClockId = ClockId::Boottime;
/// On macOS the monotonic clock counts suspended time; on other systems it is the best available.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT: ClockId = ClockId::Monotonic;

/// `None` for a moment before the clock's epoch.
fn read(clock: ClockId) -> Option<Duration> {
    let time = clock_gettime(clock);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}
