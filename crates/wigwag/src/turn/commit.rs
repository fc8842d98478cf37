//! Commits of a turn: the entry with its accompanying writes, the actions after it, and the renewal of the lease.
//!
//! What if we die here? Before the entry none of its events took effect; after it, the next owner reads them.

use std::collections::BTreeSet;

use tokio::sync::watch;
use wigwag_core::deliberate_bug;
use wigwag_core::{Key, RunClaimed, Taken, limits};
use wigwag_store::Stamp;

use super::{Brought, Release, Turn};
use crate::engine_core::lock;
use crate::log::{CommitError as Lost, Preconditions};

impl Turn {
    pub(super) async fn commit(&mut self) -> Result<(), Lost> {
        if !self.log.is_staged() {
            return Ok(());
        }
        self.enter_index();
        self.delete_controls_with_entry();
        // Puts that must land together with the entry are the last of the puts before it.
        let landed = self.take_brought()?;
        let around = std::mem::take(&mut self.plan.around);
        let deleted: Vec<String> = around.before.iter().map(|(key, _)| key.clone()).collect();
        if let Err(lost) = self.log.commit(around).await {
            // Where a batch lands in parts, our wake-ups are stored; no other worker relies on them.
            if matches!(lost, Lost::Taken) && !self.inner.store.traits().atomic {
                let mut hints: BTreeSet<String> = deleted.into_iter().filter(|key| key.starts_with("due/")).collect();
                if !self.claim.is_durable() {
                    hints.insert(self.lease.hint.clone());
                }
                let _ = self.inner.delete_all(hints).await;
            }
            return Err(lost);
        }
        self.claim.landed();
        if let Some(landed) = landed {
            landed.send_replace(true);
        }
        self.release().await
    }

    /// Deletes folded control objects with the entry that records them, where that is one commit: if a worker
    /// dies after the last entry of a run, no later turn deletes them. If the batch has no room, they are deleted after it.
    pub(super) fn delete_controls_with_entry(&mut self) {
        if !self.inner.store.traits().atomic || self.controls_to_delete() > self.room_for_deletes() {
            return;
        }
        let controls = self.plan.releases.extract_if(.., |release| matches!(release, Release::DeleteControl(_)));
        for control in controls {
            if let Release::DeleteControl(key) = control {
                self.plan.around.delete.push(key);
            }
        }
    }

    /// Number of control objects that are deleted once the entry is durable.
    pub(super) fn controls_to_delete(&self) -> usize {
        self.plan.releases.iter().filter(|release| matches!(release, Release::DeleteControl(_))).count()
    }

    /// Number of further deletes that the batch of the entry is sure to have room for.
    pub(super) fn room_for_deletes(&self) -> usize {
        let puts = self.plan.around.before.len() + self.plan.around.after.len() + self.log.puts() + 2;
        limits::current().batch_operations_max.saturating_sub(puts + self.plan.around.delete.len())
    }

    /// Makes the claim durable before users' code is called that is not simply run again: of several workers that race
    /// for the run, only the winner calls it.
    pub(super) async fn own_before_calling(&mut self, code: bool) -> Result<(), Lost> {
        if code && !self.claim.is_durable() && !deliberate_bug!(CodeBeforeClaim) {
            self.commit().await?;
        }
        Ok(())
    }

    /// Notes that users' code failed on these signals.
    pub(super) fn note_refused(&mut self, signals: &[Taken]) {
        if let Some(brought) = &mut self.plan.brings {
            brought.refused |= signals.iter().any(|taken| taken.signal == brought.suffix);
        }
    }

    /// Adds the inline signal to the entry that consumes it; returns the channel that reports its landing.
    pub(super) fn take_brought(&mut self) -> Result<Option<watch::Sender<bool>>, Lost> {
        let Some(brought) = self.plan.brings.take() else { return Ok(None) };
        let Brought { suffix, stamp, puts, mut clear, refused, tried, landed } = brought;
        if !refused && self.log.run.taker_of(&suffix).is_none() {
            return Err(Lost::Taken);
        }
        if deliberate_bug!(TakenOutOfTurn) {
            clear.clear();
        }
        self.plan.around.before.extend(puts);
        self.plan.around.terms = Some(Preconditions { clear, stamp_from: Stamp::from_micros(stamp.micros()), tried });
        Ok(Some(landed))
    }

    /// Continues the code that waited for the entry, which is now durable.
    pub(super) async fn release(&mut self) -> Result<(), Lost> {
        if self.is_over_by_the_clock().await || !self.log.holds_lease() {
            // The answer took so long that another worker may hold the run and may have run this code already.
            return Err(Lost::Lease);
        }
        // A control object may be listed again before its delete lands.
        let mut controls = BTreeSet::new();
        for release in std::mem::take(&mut self.plan.releases) {
            match release {
                Release::Reply(slot, reply) => _ = slot.reply(reply),
                Release::Output(path, data) => _ = lock(&self.code.outputs).insert(path, data),
                Release::Step(path, attempt) => self.spawn_step(&path, attempt),
                Release::Undo(path, attempt) => self.spawn_undo(&path, attempt).await?,
                Release::DeleteControl(key) => _ = controls.insert(key),
            }
        }
        if std::mem::take(&mut self.code.begins) && self.code.root.is_none() && self.steps.frontier.is_none() {
            self.spawn_root();
        }
        if !controls.is_empty() && self.log.holds_lease() {
            self.inner.delete_all(controls).await?;
        }
        Ok(())
    }

    /// Whether other workers regard our lease as expired before its span is over, because the machine's clock was set.
    pub(super) async fn is_over_by_the_clock(&self) -> bool {
        let begins = !self.plan.releases.is_empty() || self.code.begins;
        let until = self.log.run.lease.as_ref().map(|lease| lease.until);
        let Some(until) = until.filter(|_| begins && self.inner.store.traits().atomic) else { return false };
        self.inner.now().await.map_or(true, |now| now.at > until)
    }

    /// Renews the lease: puts the new wake-up, then the entry, then deletes the old wake-up. Then scans all sources.
    pub(super) async fn renew(&mut self) -> Result<(), Lost> {
        self.stage_renewal().await?;
        self.commit().await?;
        self.look_outside().await
    }

    pub(super) async fn stage_renewal(&mut self) -> Result<(), Lost> {
        if !self.log.holds_lease() {
            return Err(Lost::Lease);
        }
        let boot = self.inner.clock.boot();
        let now = self.inner.now().await?;
        let lease = self.inner.settings.lease;
        let until = now.at.after(lease);
        let (hint, body) = self.inner.lease_hint(&self.log.run.index_type(), &self.log.run.run, until);
        let key = Key::Due(hint).to_string();
        let claimed = RunClaimed {
            owner: self.inner.worker.clone(),
            peer: self.inner.peer.clone(),
            until,
            hints: vec![key.clone()],
        };
        self.log.stage(claimed, now.at)?;
        self.plan.around.before.push((key.clone(), body));
        self.plan.around.delete.push(std::mem::replace(&mut self.lease.hint, key));
        self.plan.around.delete.extend(self.handle.take_hints());
        self.log.lease_ends = Some((boot + lease).saturating_sub(now.uncertainty));
        self.lease.renew_at = boot + lease / 3;
        Ok(())
    }
}
