//! Parking: the end of a turn because nothing can proceed before a time or a signal.
//!
//! The order, which was model-checked: the wake-up for the next moment and the index keys of open waits are put, then the
//! entry `run.parked`, then all sources are scanned **again**, then the snapshot is written, and the lease's wake-up is
//! deleted last. A sender puts its object, then reads the run, then puts a wake-up if the run is parked. Either the turn
//! sees the object or the sender sees the parked run, and until then the lease's wake-up is the safety net.
//!
//! A run whose first entry parks it needs no second scan: no sender can have reached it before it existed.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::try_join;
use wigwag_core::deliberate_bug;
use wigwag_core::turn::park::{BodyView, Situation, next_at};
use wigwag_core::turn::phase::Claim;
use wigwag_core::{Key, Path, RunParked, Status, Time};

use super::{Turn, patrol_after};
use crate::engine_core::Stop;
use crate::log::CommitError as Lost;
use crate::mailbox::BodyId;
use crate::turn::{decide, look_at_sources};

impl Turn {
    /// Continues after a claim whose own entry parked the run; returns whether the turn is over.
    pub(super) async fn finish_parked(&mut self, hint: String, is_first: bool) -> Result<bool, Lost> {
        if is_first {
            self.log.write_snapshot().await?;
            return Ok(true);
        }
        self.finish_park(hint, true).await
    }

    /// Whether nothing can proceed now, or soon.
    pub(super) fn may_park(&self) -> bool {
        let has_work = !self.mail.queue.is_empty() || !self.offers.is_empty();
        // A run with many bodies or points is not searched while it has work.
        let is_parkable = !has_work && self.code.bodies.iter().all(|(id, body)| self.is_parkable(id, body));
        // Checked after the bodies: what the code asked for before it was idle is here by now.
        let is_pending = has_work || self.mail.mailbox.has_requests();
        let root = self.code.root.as_ref().filter(|_| self.code.bodies.contains_key(&BodyId::Root));
        let situation = Situation {
            stop: self.inner.stop(),
            phase: &self.phase,
            run: &self.log.run,
            is_full: self.log.is_full(),
            is_pending,
            is_parkable,
            mismatched: root.is_some_and(|root| root.has_mismatched()),
            next_at: if is_parkable { self.next_at() } else { None },
            now: self.now,
            park_after: self.inner.settings.linger,
        };
        situation.may_park()
    }

    /// Whether code only waits for points, none of which runs.
    pub(super) fn is_parkable(&self, id: &BodyId, body: &super::Body) -> bool {
        let is_idle = body.scope.link.is_idle();
        let points = self.steps.slots.values().filter(|open| is_idle && open.body == *id);
        let (waits, runs) = points.fold((0, false), |(waits, runs), open| (waits + 1, runs || open.running.is_some()));
        let view = BodyView {
            compensates: matches!(id, BodyId::Undo(..)),
            is_idle,
            waits,
            runs_step: runs,
            mismatched: *id == BodyId::Root && body.scope.has_mismatched(),
        };
        view.is_parkable()
    }

    /// Returns the time of the next timer or deadline.
    fn next_at(&self) -> Option<Time> {
        let deadline = self.waits.next_deadline(&self.log.run, self.now, |path| self.is_asked(path));
        next_at(&self.log.run, &self.steps.timers, deadline)
    }

    /// Parks the run; returns `false` if a new message kept the turn going.
    pub(super) async fn park(&mut self) -> Result<bool, Lost> {
        let misfits = self.misfits();
        if !misfits.is_empty() {
            self.pause_for_version(misfits)?;
            return Ok(false);
        }
        let released = self.inner.stop() != Stop::No || self.phase.is_releasing();
        let parked = self.stage_parked(released)?;
        self.commit().await?;
        self.finish_park(parked, !released).await
    }

    /// Adds to the claim that the run is parked, if nothing can proceed; the rest is done by [`Turn::finish_park`].
    pub(super) fn park_with_claim(&mut self) -> Result<(), Lost> {
        let may = !self.lets_go_on() && self.inner.stop() == Stop::No && !self.phase.is_releasing();
        if !may || !self.may_park() || !self.misfits().is_empty() {
            return Ok(());
        }
        let lease_hint = self.lease.hint.clone();
        // Tasks may have been there before the run, and ended.
        let has_children = self.log.run.open.iter().filter_map(|path| self.log.run.points.get(path));
        let is_first = self.claim.is_new() && !has_children.into_iter().any(|point| point.children.is_some());
        let parked = self.stage_parked(false)?;
        if is_first {
            // No worker can check a run before it exists, so the run needs only the parked wake-up from its first entry on.
            self.plan.around.before.retain(|(key, _)| *key != lease_hint);
        }
        self.claim = Claim::Parking { hint: parked, is_first };
        Ok(())
    }

    /// Returns the recorded steps that the current code does not reach.
    fn misfits(&self) -> Vec<String> {
        let settled = self.phase.is_ending()
            || self.inner.stop() != Stop::No
            || self.phase.is_releasing()
            || self.log.run.status == Status::Paused;
        match self.code.root.as_ref().filter(|_| self.code.bodies.contains_key(&BodyId::Root) && !settled) {
            // A restart drops the records of compensated steps, wherever they stand: while such a step is tried again, what
            // was recorded behind it has not been reached. Whether it is, shows when the function returns.
            Some(root) if self.log.run.restarts > 0 && !root.has_mismatched() => Vec::new(),
            Some(root) => root.mismatches(),
            None => Vec::new(),
        }
    }

    fn stage_parked(&mut self, released: bool) -> Result<String, Lost> {
        let next_at = if released { Some(self.now) } else { self.next_at() };
        let due = next_at.unwrap_or_else(|| self.now.after(patrol_after(None)));
        let (hint, body) = self.inner.hint(&self.log.run.index_type(), &self.log.run.run, due);
        let key = Key::Due(hint).to_string();
        self.log.stage(RunParked { next_at, hints: vec![key.clone()] }, self.now)?;
        if !deliberate_bug!(ParkWithoutHint) {
            self.plan.around.before.push((key.clone(), body));
        }
        self.plan.around.snapshot |= self.inner.store.traits().atomic;
        Ok(key)
    }

    /// Scans all sources once more after the parking entry is stored, and then ends the turn.
    pub(super) async fn finish_park(&mut self, parked_hint: String, look: bool) -> Result<bool, Lost> {
        // Only wake-ups that arrived before the scan may be deleted after it.
        let mut left: BTreeSet<String> = self.handle.take_hints().into_iter().collect();
        // The parked run's own wake-up may have come due already, and led here.
        let due_already = left.remove(&parked_hint);
        let look = look && !deliberate_bug!(SkipSecondLook);
        if look && self.came_back(parked_hint.clone()).await? {
            self.plan.around.delete.extend(left);
            return Ok(false);
        }
        // The snapshot replaces the previous version of itself only, so a concurrent change of the run does no harm.
        let next = (!left.is_empty()).then(|| self.next_entry());
        let store = Arc::clone(&self.inner.store);
        let overtaken = async {
            match next {
                Some(next) => Ok::<_, Lost>(store.get(&next).await?.is_some()),
                None => Ok(false),
            }
        };
        let (overtaken, ()) = try_join(overtaken, self.log.write_snapshot()).await?;
        if overtaken {
            self.give_back(&mut left);
        }
        left.insert(self.lease.hint.clone());
        if self.log.holds_lease() {
            self.inner.delete_all(left).await?;
        }
        if due_already {
            // The dispatcher gets it again when this turn ends.
            _ = self.handle.poke(Some(&parked_hint));
        }
        Ok(true)
    }

    /// The answer to our last entry may have been late, or our lease be over for others: then these hints may be what the
    /// run stands on by now, and are not ours to delete. They go back to the dispatcher with the end of this turn.
    pub(super) async fn give_back_if_overtaken(&mut self, hints: &mut BTreeSet<String>) -> Result<bool, Lost> {
        if hints.is_empty() {
            return Ok(false);
        }
        let overtaken = self.inner.store.get(&self.next_entry()).await?.is_some();
        if overtaken {
            self.give_back(hints);
        }
        Ok(overtaken)
    }

    fn give_back(&self, hints: &mut BTreeSet<String>) {
        std::mem::take(hints).iter().for_each(|hint| _ = self.handle.poke(Some(hint)));
    }

    /// Returns the key of the entry with which the next owner claims the run.
    fn next_entry(&self) -> String {
        Key::Entry { run: self.log.run.run.clone(), seq: self.log.run.seq + 1 }.to_string()
    }

    /// Scans every source once more; if a message has arrived, claims the run again and continues.
    async fn came_back(&mut self, parked_hint: String) -> Result<bool, Lost> {
        let mut found = look_at_sources(&self.inner, &self.log.run, None).await?;
        self.waits.scanned_after_entry();
        // Also while the engine stops: the next owner handles the new messages then, led by a wake-up that is due now.
        let heeds = self.log.run.status != Status::Paused && !self.phase.is_ending() && self.log.run.cancel.is_none();
        let taken = heeds && {
            let asked = |path: &Path| self.is_asked(path);
            decide(&self.inner, &self.log.run, &mut found.inboxes, asked).await?.is_some()
        };
        if found.is_empty() && !taken {
            self.inner.delete_all(found.folded).await?;
            return Ok(false);
        }
        self.now = self.inner.now().await?.at;
        let old_lease = self.lease.hint.clone();
        self.stage_renewal().await?;
        // The run is parked: until this claim is durable, others may claim it.
        self.claim = Claim::Staged { is_new: false };
        self.plan.around.delete.push(parked_hint);
        debug_assert!(
            self.plan.around.delete.contains(&old_lease),
            "the hint of the old lease goes with the new claim"
        );
        // The resulting events are gathered and share the entry of the claim.
        self.fold(found).await?;
        Ok(true)
    }
}
