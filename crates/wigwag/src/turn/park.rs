//! Giving up the turn because nothing can proceed before a time or a signal.
//!
//! The order, which was model-checked: the hint for the next moment is put, then the entry `run.parked`, then all
//! sources are looked at **again**, then the snapshot is written, and the lease's hint goes last. Whoever sends
//! something puts its object, then reads the run, then puts a hint if the run is parked. One of the two sees the other,
//! and until then the lease's hint is the safety net.

use std::collections::BTreeSet;

use wigwag_core::{Key, RunParked, Status, Time};
use wigwag_store::Batch;

use super::{Turn, patrol_after};
use crate::inner::Stop;
use crate::log::Lost;
use crate::mailbox::BodyId;
use crate::turn::look_at_sources;

impl Turn {
    /// Whether nothing can proceed now, or soon.
    pub(super) fn may_park(&self) -> bool {
        if self.inner.stop() >= Stop::Now {
            return true;
        }
        if !self.mail.is_empty() || self.returned.is_some() {
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
        self.timers
            .iter()
            .find(|(at, path)| self.log.run.points.get(path).is_some_and(|point| point.until == Some(*at)))
            .map(|(at, _)| *at)
    }

    /// Parks; says whether it came to that, or something arrived meanwhile.
    pub(super) async fn park(&mut self) -> Result<bool, Lost> {
        if let Some(root) =
            self.root.clone().filter(|_| self.bodies.contains_key(&BodyId::Root) && self.ending.is_none())
        {
            let misfits = root.mismatches();
            if !misfits.is_empty()
                && self.inner.stop() == Stop::No
                && !self.give_back
                && self.log.run.status != Status::Paused
            {
                self.pause_for_version(misfits)?;
                return Ok(false);
            }
        }
        let released = self.inner.stop() != Stop::No || self.give_back;
        let next_at = if released { Some(self.now) } else { self.next_at() };
        let due = next_at.unwrap_or_else(|| self.now.after(patrol_after(None)));
        let (hint, body) = self.inner.hint(&self.log.run.index_type(), &self.log.run.run, due);
        let key = Key::Due(hint).to_string();
        self.log.stage(RunParked { next_at, hints: vec![key.clone()] }, self.now)?;
        self.around.before.push((key.clone(), body));
        self.around.snapshot |= self.inner.store.traits().atomic;
        self.commit().await?;
        // Only hints that were here before the look may go after it.
        let mut left: BTreeSet<String> = self.handle.take_hints().into_iter().collect();
        // The one the run stands on now may have come due already, and led here.
        let due_already = left.remove(&key);
        if !released && self.came_back(key.clone()).await? {
            self.around.delete.extend(left);
            return Ok(false);
        }
        self.log.write_snapshot().await?;
        left.insert(self.lease_hint.clone());
        let batch = left.into_iter().fold(Batch::new(), |batch, hint| batch.delete(hint));
        if self.log.holds_lease() {
            self.inner.store.write(batch).await?;
        }
        if due_already {
            // It goes back to the dispatcher with the end of this turn.
            _ = self.handle.poke(Some(&key));
        }
        Ok(true)
    }

    /// Looks again at every source; if something is there, claims the run again and goes on.
    async fn came_back(&mut self, parked_hint: String) -> Result<bool, Lost> {
        let found = look_at_sources(&self.inner, &self.log.run).await?;
        if found.is_empty() {
            return Ok(false);
        }
        self.now = self.inner.now().await?.at;
        let old_lease = self.lease_hint.clone();
        self.stage_renewal().await?;
        self.around.delete.push(parked_hint);
        debug_assert!(self.around.delete.contains(&old_lease), "the hint of the old lease goes with the new claim");
        self.fold(found).await?;
        self.commit().await?;
        Ok(true)
    }
}
