//! Scanning the due index: each shard is listed when its next wake-up is due, or as often as there is work.

use std::time::Duration;

use wigwag_core::{Key, Time, prefix};
use wigwag_store::{Notifications, limits::LIST_PAGE};

use super::Dispatcher;
use crate::error::Result;
use crate::limits::{BUCKET_TIME_SLACK, FLEET_POLL_STRETCH, MEMBERSHIP_POLL_INTERVAL, SCAN_START_AGE_MIN};

/// One shard of the due index.
#[derive(Debug)]
pub(super) struct Shard {
    pub(super) number: u16,
    /// When it is listed next, by the clock that counts suspended time.
    pub(super) list_at: Duration,
    /// Current poll interval: it grows while nothing is found.
    pause: Duration,
    /// Key after which listings begin: wake-ups up to here lead to no run of this worker.
    start_after: String,
    /// When it was last listed from its beginning.
    whole_at: Duration,
    /// The last page ended before the first wake-up that is not due.
    more: bool,
}

impl Shard {
    pub(super) fn new(number: u16, now: Duration, pause: Duration) -> Self {
        Self { number, list_at: now, pause, start_after: String::new(), whole_at: now, more: false }
    }
}

impl Dispatcher {
    /// Lists the shards that are due, announces this worker, and checks which processes of this machine live.
    pub(super) async fn scan(&mut self) -> Result<()> {
        let boot = self.inner.clock.boot();
        if boot >= self.membership.peers_at {
            self.membership.peers_at = boot + MEMBERSHIP_POLL_INTERVAL;
            self.check_peers().await?;
        }
        if boot >= self.membership.announce_at {
            self.membership.announce_at = boot + self.inner.settings.lease;
            self.announce().await?;
        }
        for (_, key) in self.retries.extract_if(.., |(at, _)| *at <= boot).collect::<Vec<_>>() {
            if let Ok(Key::Due(hint)) = key.parse::<Key>() {
                self.enqueue(key, hint);
            }
        }
        for index in 0..self.shards.len() {
            if boot >= self.shards[index].list_at && self.queue.len() < LIST_PAGE {
                self.list_shard(index).await?;
            }
        }
        Ok(())
    }

    async fn list_shard(&mut self, index: usize) -> Result<()> {
        let now = self.inner.now().await?;
        let boot = self.inner.clock.boot();
        let settings = &self.inner.settings;
        let (lease, look_min, look_max) = (settings.lease, settings.look_min, settings.look_max);
        let own = self.is_own_shard(self.shards[index].number);
        let notifications = self.inner.store.traits().notifications;
        let shard = &mut self.shards[index];
        if boot.saturating_sub(shard.whole_at) > lease {
            shard.start_after.clear();
            shard.whole_at = boot;
        }
        let prefix = prefix::due(shard.number);
        let page = self.inner.store.list(&prefix, &shard.start_after, LIST_PAGE).await?;
        let mut next = None;
        let (mut found, mut skipping, mut reached) = (0, true, shard.start_after.clone());
        let mut due = Vec::new();
        let mut again: Option<Time> = None;
        for listed in &page.entries {
            let Ok(Key::Due(hint)) = listed.key.parse::<Key>() else { continue };
            if let Some(until) = self.passed.get(&listed.key).filter(|until| **until > now.at) {
                again = Some(again.map_or(*until, |again| again.min(*until)));
            }
            if hint.due > now.at {
                next = Some(hint.due);
                break;
            }
            let known = !self.inner.registry.families(&hint.kind).is_empty();
            skipping &= !known && now.at.since(hint.due) > SCAN_START_AGE_MIN;
            if skipping {
                reached.clone_from(&listed.key);
            }
            found +=
                usize::from(known && !self.in_hand.contains(&listed.key) && !self.passed.contains_key(&listed.key));
            due.push((listed.key.clone(), hint));
        }
        let shard = &mut self.shards[index];
        shard.start_after = reached;
        // A page of due wake-ups only: more of them may follow, also after skipped ones.
        shard.more = next.is_none() && page.more;
        shard.pause = if found > 0 { look_min } else { (shard.pause * 2).min(look_max) };
        let usual = match (notifications, own) {
            (Notifications::Complete, _) | (_, false) => lease,
            // Even so, a dead worker's runs must be found within two leases.
            (Notifications::Fleet, true) => (shard.pause * FLEET_POLL_STRETCH).min(lease),
            (_, true) => shard.pause,
        };
        shard.list_at = boot + if shard.more && found > 0 { Duration::ZERO } else { usual };
        if let Some(next) = next {
            shard.list_at = shard.list_at.min(boot + next.since(now.at) + now.uncertainty);
        }
        // A bucket's time is an estimate: a skipped wake-up may not count as due yet at the time of its next check.
        if let Some(again) = again.filter(|_| notifications >= Notifications::Fleet) {
            shard.list_at = shard.list_at.min(boot + again.since(now.at) + BUCKET_TIME_SLACK);
        }
        if shard.more
            && found == 0
            && let Some(last) = page.entries.last()
        {
            // The whole page is skipped or being checked: continue after it; the next full listing starts at the beginning.
            shard.start_after.clone_from(&last.key);
            shard.list_at = boot;
        }
        for (key, hint) in due {
            self.enqueue(key, hint);
        }
        let old = boot.saturating_sub(lease * 4);
        self.misfits.retain(|_, since| *since > old);
        let at = now.at;
        self.passed.retain(|_, until| *until > at);
        Ok(())
    }

    pub(super) fn until_next_scan(&self) -> Duration {
        let boot = self.inner.clock.boot();
        let mut at = self.retries.iter().map(|(at, _)| *at).fold(self.membership.announce_at, Duration::min);
        if self.queue.len() < LIST_PAGE {
            at = self.shards.iter().map(|shard| shard.list_at).fold(at, Duration::min);
        }
        if self.inner.peer.is_some() {
            at = at.min(self.membership.peers_at);
        }
        at.saturating_sub(boot)
    }

    pub(super) fn list_all_soon(&mut self) {
        let boot = self.inner.clock.boot();
        for shard in &mut self.shards {
            shard.list_at = boot;
        }
    }
}
