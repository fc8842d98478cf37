//! The dedup windows of all senders together.
//!
//! Holds: the number of entries is bounded in total. Beyond the bound, a sender keeps no more than an equal share of them, so
//! that no sender shortens the window of another that has fewer.

use crate::ActorId;
use crate::seen::{Known, Print, Slot, Tag};
use crate::settings::{Millis, Settings};

use super::Hub;

/// Entries that each sender keeps in any case: its asks in flight.
const SHARE_MIN: usize = 16;

/// Maximum number of expired entries that are dropped per actor and tick.
const TIDY_MAX: usize = 256;

/// Numbers of dedup entries and of senders that have any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SeenTotal {
    pub(super) entries: usize,
    pub(super) senders: usize,
}

impl SeenTotal {
    /// Returns how many entries one sender may have now.
    fn share(self, settings: &Settings) -> usize {
        if self.entries < settings.seen_total_max {
            return settings.seen_max;
        }
        let share = settings.seen_total_max / self.senders.max(1);
        share.max(SHARE_MIN).min(settings.seen_max)
    }

    /// Updates the totals for one sender.
    fn count(&mut self, before: usize, after: usize) {
        self.entries = self.entries + after - before;
        self.senders = self.senders + usize::from(after > 0) - usize::from(before > 0);
    }

    /// Whether expired entries of quiet senders are worth a search.
    fn is_high(self, settings: &Settings) -> bool {
        self.entries > settings.seen_total_max / 2
    }
}

impl Hub {
    /// Looks up an ask of a sender in its dedup window.
    pub(super) fn meet(
        &mut self,
        sender: ActorId,
        print: Print,
        of: (Tag, u64),
        window: (Millis, Millis),
    ) -> Result<Slot, Known> {
        let max = self.seen_total.share(&self.settings);
        let seen = &mut self.actors[sender].seen;
        let before = seen.len();
        let met = seen.meet(print, of, window, max);
        self.seen_total.count(before, seen.len());
        met
    }

    /// Drops some expired entries of an actor if there are many in total.
    pub(super) fn tidy_seen(&mut self, id: ActorId, now: Millis) {
        if self.seen_total.is_high(&self.settings) {
            self.drop_expired(id, TIDY_MAX, now);
        }
    }

    /// Drops up to `max` expired entries of an actor. Returns whether none is left.
    pub(super) fn drop_expired(&mut self, id: ActorId, max: usize, now: Millis) -> bool {
        let Some(actor) = self.actors.get_mut(id) else { return true };
        let before = actor.seen.len();
        let is_empty = actor.seen.tidy(now, max);
        self.seen_total.count(before, actor.seen.len());
        is_empty
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_the_total_each_sender_has_an_equal_share() {
        let settings = Settings { seen_max: 100, seen_total_max: 1_000, ..Settings::default() };
        let table = [
            (999, 1, 100, "below the total"),
            (1_000, 5, 100, "a share is never more than the maximum"),
            (1_000, 20, 50, "an equal share"),
            (1_500, 20, 50, "also far beyond"),
            (1_000, 1_000, SHARE_MIN, "asks in flight are always recognised"),
            (1_000, 0, 100, "no sender"),
        ];
        for (entries, senders, share, why) in table {
            assert_eq!(SeenTotal { entries, senders }.share(&settings), share, "{why}");
        }
    }
}
