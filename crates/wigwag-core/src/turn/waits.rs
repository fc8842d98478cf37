//! Open waits of a turn: when their inboxes are scanned, and when one may be timed out.
//!
//! The order: an inbox is scanned, then a wait consumes a signal and the entry that records this is written; or the wait
//! is recorded, and the inbox is scanned **again** after that entry. A wait times out only after a scan that began after
//! its deadline by the pessimistic side of the clock.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::{Inboxes, Path, Point, Run, SignalWaiting, Time};

/// A turn's knowledge of the inboxes.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// Signals found by the last scan.
    pub inboxes: Inboxes,
    /// Waits that were opened since the last scan.
    unseen: BTreeSet<Path>,
    /// Waits were recorded, and the inboxes not scanned since that entry.
    needs_scan: bool,
    /// Time at which a scan can decide that a wait has timed out.
    recheck_at: Option<Time>,
}

/// Whether the inboxes need a scan before they can be treated as empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanNeed {
    /// The last scan is sufficient.
    No,
    /// A wait was opened since.
    Now,
    /// A deadline has passed since, this one last: a scan decides once it has passed by the cautious side of the clock.
    Deadline(Time),
}

impl Waits {
    /// Adds a wait recorded by the staged entry. `is_new` means that the run does not exist before that entry.
    pub fn open(&mut self, waiting: &SignalWaiting, is_new: bool, now: Time) {
        if is_new {
            // A run that does not exist yet cannot have received any signal.
            self.inboxes.since = self.inboxes.since.max(now);
            self.inboxes.names.entry(waiting.name.clone()).or_default();
            return;
        }
        self.unseen.insert(waiting.point.clone());
        self.needs_scan = true;
        // A signal that the waits before it rejected may fit this one.
        if let Some(seen) = self.inboxes.names.get_mut(&waiting.name) {
            seen.misfits.clear();
        }
    }

    /// Notes the result of a scan.
    pub fn scanned(&mut self, inboxes: Inboxes) {
        self.inboxes = inboxes;
        self.unseen.clear();
        self.recheck_at = None;
    }

    /// Notes that a scan began after the last entry.
    pub fn scanned_after_entry(&mut self) {
        self.needs_scan = false;
    }

    /// Whether the inboxes must be scanned before the turn waits: waits were recorded since.
    #[must_use]
    pub fn needs_scan(&self) -> bool {
        self.needs_scan
    }

    /// Whether a scan is needed before the waits that `may_take` names can be timed out.
    pub fn scan_need(&mut self, run: &Run, now: Time, may_take: impl Fn(&Path) -> bool) -> ScanNeed {
        if deliberate_bug!(TimeoutWithoutLook) {
            self.inboxes.since = self.inboxes.since.max(now);
        }
        let (mut last, mut is_fresh) = (None, false);
        for (path, point, wait) in run.waits_in_order().into_iter().filter(|(path, ..)| may_take(path)) {
            is_fresh |= self.unseen.contains(path) || !self.inboxes.names.contains_key(&wait.name);
            let over = wait.again.max(point.until).filter(|at| *at <= now && *at > self.inboxes.since);
            last = last.max(over);
        }
        match last {
            _ if is_fresh => ScanNeed::Now,
            Some(last) => ScanNeed::Deadline(last),
            None => {
                self.recheck_at = None;
                ScanNeed::No
            }
        }
    }

    /// Whether a deadline has passed by the cautious side of the clock; if not, the turn checks again when it has.
    pub fn is_over(&mut self, deadline: Time, now: Time, uncertainty: Duration) -> bool {
        self.recheck_at = Some(deadline.after(uncertainty));
        now.before(uncertainty) >= deadline
    }

    /// Returns when a wait may be over: the next deadline, or the time of the next scan that can decide.
    pub fn next_check(&self, run: &Run, now: Time, is_asked: impl Fn(&Path) -> bool) -> Option<Time> {
        self.recheck_at.or_else(|| self.next_deadline(run, now, is_asked))
    }

    /// Returns the next deadline of the waits that `is_asked` names.
    pub fn next_deadline(&self, run: &Run, now: Time, is_asked: impl Fn(&Path) -> bool) -> Option<Time> {
        // A wait whose `on_receive` failed is scanned when the handler is retried, by a scan that began after that.
        let is_ahead = |again: &Time| *again > now || *again > self.inboxes.since;
        let again = |point: &Point| point.wait.as_ref().and_then(|wait| wait.again).filter(is_ahead);
        let asked = run.waits().filter(|(path, _)| is_asked(path));
        asked.filter_map(|(_, point)| again(point).or(point.until)).min()
    }
}
