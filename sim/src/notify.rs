//! Notifications between simulated processes on a bucket, through the engine's trait [`Notifier`]: all are delayed, and some are lost.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use wigwag_store::{Advertisement, Clock as _, Notices, Notifier, WeakNotices};

use crate::clock::SimClock;
use crate::store::Process;

/// How processes of a world notify each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Notification {
    /// No notifications, not even within the process that writes.
    None,
    /// Notifications only within the process that writes.
    Process,
    /// All processes notify each other, with a share of lost notifications. At 100 % every process still believes that it is notified.
    Fleet {
        /// Share of lost notifications, in percent.
        lost: u8,
    },
}

impl Notification {
    /// Draws how the processes of a bucket notify each other. Half of the worlds have no notifications.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut chance = fastrand::Rng::with_seed(seed ^ 0x0B17_5EED);
        match chance.u32(..8) {
            0 => Self::Process,
            1 => Self::Fleet { lost: 0 },
            2 => Self::Fleet { lost: chance.u8(1..60) },
            3 => Self::Fleet { lost: 100 },
            _ => Self::None,
        }
    }
}

/// The processes of a world that notify each other.
#[derive(Debug)]
pub struct Exchange {
    members: Mutex<Vec<(Arc<Process>, WeakNotices)>>,
    chance: Mutex<fastrand::Rng>,
    clock: SimClock,
    lost: u8,
}

impl Exchange {
    /// Creates an exchange that loses this percentage of notifications.
    #[must_use]
    pub fn new(seed: u64, clock: SimClock, lost: u8) -> Arc<Self> {
        let chance = Mutex::new(fastrand::Rng::with_seed(seed ^ 0x07E1_1A11));
        Arc::new(Self { members: Mutex::default(), chance, clock, lost })
    }

    /// Adds a process. Returns its notifications.
    #[must_use]
    pub fn join(self: &Arc<Self>, process: &Arc<Process>) -> Notices {
        let notices = Notices::new();
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|(process, notices)| !process.is_dead() && notices.upgrade().is_some());
        members.push((Arc::clone(process), notices.downgrade()));
        drop(members);
        notices.connect(Arc::new(Member { exchange: Arc::clone(self), process: Arc::clone(process) }));
        notices
    }

    /// Draws the delay of a notification; `None` if it is lost.
    fn delay(&self) -> Option<Duration> {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        let (lost, micros) = (chance.u8(..100) < self.lost, chance.u64(200..40_000));
        (!lost).then(|| Duration::from_micros(micros))
    }
}

/// The transport of one process.
#[derive(Debug)]
struct Member {
    exchange: Arc<Exchange>,
    process: Arc<Process>,
}

#[async_trait]
impl Notifier for Member {
    fn send(&self, keys: &[String]) {
        let members = self.exchange.members.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (process, notices) in members {
            let is_own = Arc::ptr_eq(&process, &self.process);
            let Some(delay) = self.exchange.delay().filter(|_| !is_own && !self.process.is_dead()) else { continue };
            let (clock, keys) = (self.exchange.clock.clone(), keys.to_vec());
            tokio::spawn(async move {
                clock.sleep(delay).await;
                if let Some(notices) = notices.upgrade().filter(|_| !process.is_dead()) {
                    notices.receive(&keys);
                }
            });
        }
    }

    fn subscribed(&self) {}

    fn is_connected(&self) -> bool {
        true
    }

    fn advertise(&self, _: Advertisement) {}

    fn withdraw(&self) {}

    /// Notifications travel outside the process that sent them.
    async fn flush(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_notification_is_drawn() {
        let drawn: Vec<Notification> = (0..400).map(Notification::draw).collect();
        for wanted in [
            Notification::None,
            Notification::Process,
            Notification::Fleet { lost: 0 },
            Notification::Fleet { lost: 100 },
        ] {
            assert!(drawn.contains(&wanted), "{wanted:?}");
        }
        assert!(drawn.iter().any(|drawn| matches!(drawn, Notification::Fleet { lost: 1..100 })));
    }
}
