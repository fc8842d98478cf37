//! Giving up the turn because nothing can proceed before a time or a signal.
//!
//! The order, which was model-checked: the hint for the next moment and the places of open waits in the index are put,
//! then the entry `run.parked`, then all
//! sources are looked at **again**, then the snapshot is written, and the lease's hint goes last. Whoever sends
//! something puts its object, then reads the run, then puts a hint if the run is parked. One of the two sees the other,
//! and until then the lease's hint is the safety net.
//!
//! A run whose first entry parks it needs no second look: nothing can have been sent to it before it was there.

use std::collections::BTreeSet;

use wigwag_core::mutation::{Mutation, is_mutated};
use wigwag_core::{Key, Path, RunParked, Status, Time};

use super::{Turn, patrol_after};
use crate::inner::Stop;
use crate::log::Lost;
use crate::mailbox::BodyId;
use crate::turn::{decide, look_at_sources};

/// A run that was parked by the entry that claimed it.
#[derive(Debug)]
pub(super) struct Parked {
    hint: String,
    /// By its first entry.
    pub(super) begins: bool,
}

impl Turn {
    /// Goes on after such an entry; says whether the turn is over.
    pub(super) async fn finish_parked(&mut self, parked: Parked) -> Result<bool, Lost> {
        if parked.begins {
            self.log.write_snapshot().await?;
            return Ok(true);
        }
        self.finish_park(parked.hint, true).await
    }

    /// Whether nothing can proceed now, or soon.
    pub(super) fn may_park(&self) -> bool {
        if self.inner.stop() >= Stop::Now {
            return true;
        }
        // More is ready than this entry has room for.
        if self.log.is_full() {
            return false;
        }
        if !self.mail.is_empty() || self.returned.is_some() || !self.offers.is_empty() {
            return false;
        }
        let stopping = self.inner.stop() == Stop::Drain;
        if !self.bodies.iter().all(|(id, body)| self.is_parkable(id, body)) {
            return false;
        }
        // Looked at last: what the code asked for before it was seen to wait is here by now.
        if self.mailbox.has_requests() {
            return false;
        }
        let paused = self.log.run.status == Status::Paused && self.log.run.cancel.is_none();
        if self.ending.is_some() && self.log.run.chain.is_none() && !paused {
            return false;
        }
        if let Some(root) = self.root.as_ref().filter(|_| self.bodies.contains_key(&BodyId::Root))
            && root.has_mismatched()
        {
            return true;
        }
        stopping || self.next_at().is_none_or(|at| at > self.now.after(self.inner.settings.linger))
    }

    /// Code that waits for points, none of which runs, may be dropped: it is run again from its top.
    pub(super) fn is_parkable(&self, id: &BodyId, body: &super::Body) -> bool {
        if matches!(id, BodyId::Undo(..)) || !body.scope.is_idle() {
            return false;
        }
        let mut points = self.slots.values().filter(|open| open.body == *id).peekable();
        let waits = points.peek().is_some() || (body.scope.has_mismatched() && *id == BodyId::Root);
        waits && points.all(|open| open.running.is_none())
    }

    /// When something is due next.
    fn next_at(&self) -> Option<Time> {
        if let Some(chain) = &self.log.run.chain {
            return chain.current.as_ref().and_then(|current| current.retry_at);
        }
        if self.log.run.status == Status::Paused {
            return None;
        }
        let timer = self
            .timers
            .iter()
            .find(|(at, path)| self.log.run.points.get(path).is_some_and(|point| point.until == Some(*at)))
            .map(|(at, _)| *at);
        timer.into_iter().chain(self.next_deadline()).min()
    }

    /// Parks; says whether it came to that, or something arrived meanwhile.
    pub(super) async fn park(&mut self) -> Result<bool, Lost> {
        let misfits = self.misfits();
        if !misfits.is_empty() {
            self.pause_for_version(misfits)?;
            return Ok(false);
        }
        let released = self.inner.stop() != Stop::No || self.give_back;
        let parked = self.stage_parked(released)?;
        self.commit().await?;
        self.finish_park(parked, !released).await
    }

    /// Adds to the claim that the run is parked, if nothing can proceed; the rest is done by [`Turn::finish_park`].
    pub(super) fn park_with_claim(&mut self) -> Result<(), Lost> {
        let may = !self.lets_go_on() && self.inner.stop() == Stop::No && !self.give_back;
        if !may || !self.may_park() || !self.misfits().is_empty() {
            return Ok(());
        }
        let lease_hint = self.lease_hint.clone();
        // Tasks may have been there before the run, and ended.
        let has_children = self.log.run.open.iter().filter_map(|path| self.log.run.points.get(path));
        let begins = self.is_new && !has_children.into_iter().any(|point| point.children.is_some());
        let parked = self.stage_parked(false)?;
        if begins {
            // Nobody looks at a run that is not there: it stands on the parked hint alone from its first entry on.
            self.around.before.retain(|(key, _)| *key != lease_hint);
        }
        self.parked = Some(Parked { hint: parked, begins });
        Ok(())
    }

    /// What the code does not come to that the code which recorded this run did.
    fn misfits(&self) -> Vec<String> {
        let settled = self.ending.is_some()
            || self.inner.stop() != Stop::No
            || self.give_back
            || self.log.run.status == Status::Paused;
        match self.root.as_ref().filter(|_| self.bodies.contains_key(&BodyId::Root) && !settled) {
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
        if !is_mutated(Mutation::ParkWithoutHint) {
            self.around.before.push((key.clone(), body));
        }
        self.around.snapshot |= self.inner.store.traits().atomic;
        Ok(key)
    }

    /// The entry that parks the run is there: all sources are looked at again, and then the turn is given up.
    pub(super) async fn finish_park(&mut self, parked_hint: String, look: bool) -> Result<bool, Lost> {
        // Only hints that were here before the look may go after it.
        let mut left: BTreeSet<String> = self.handle.take_hints().into_iter().collect();
        // The one the run stands on now may have come due already, and led here.
        let due_already = left.remove(&parked_hint);
        let look = look && !is_mutated(Mutation::SkipSecondLook);
        if look && self.came_back(parked_hint.clone()).await? {
            self.around.delete.extend(left);
            return Ok(false);
        }
        self.log.write_snapshot().await?;
        self.give_back_if_overtaken(&mut left).await?;
        left.insert(self.lease_hint.clone());
        if self.log.holds_lease() {
            self.inner.delete_all(left).await?;
        }
        if due_already {
            // It goes back to the dispatcher with the end of this turn.
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
        let next = Key::Entry { run: self.log.run.run.clone(), seq: self.log.run.seq + 1 }.to_string();
        let overtaken = self.inner.store.get(&next).await?.is_some();
        if overtaken {
            std::mem::take(hints).iter().for_each(|hint| _ = self.handle.poke(Some(hint)));
        }
        Ok(overtaken)
    }

    /// Looks again at every source; if something is there, claims the run again and goes on.
    async fn came_back(&mut self, parked_hint: String) -> Result<bool, Lost> {
        let mut found = look_at_sources(&self.inner, &self.log.run).await?;
        self.unlooked = false;
        // Also while the engine stops: what is found then is left to whoever comes next, with a hint due now.
        let heeds = self.log.run.status != Status::Paused && self.ending.is_none() && self.log.run.cancel.is_none();
        let taken = heeds && {
            let asked = |path: &Path| self.is_asked(path);
            decide(&self.inner, &self.log.run, &mut found.inboxes, asked).await?.is_some()
        };
        if found.is_empty() && !taken {
            self.inner.delete_all(found.folded).await?;
            return Ok(false);
        }
        self.now = self.inner.now().await?.at;
        let old_lease = self.lease_hint.clone();
        self.stage_renewal().await?;
        // The run is parked: until this claim is durable, others may claim it.
        self.is_claimed = false;
        self.around.delete.push(parked_hint);
        debug_assert!(self.around.delete.contains(&old_lease), "the hint of the old lease goes with the new claim");
        // What follows is gathered and shares the entry of the claim.
        self.fold(found).await?;
        Ok(true)
    }
}
