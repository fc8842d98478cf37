//! Membership: which workers share the store, which processes of this machine live, and who scans which shard.

use std::collections::BTreeSet;
use std::time::Duration;

use wigwag_core::{Key, Time, prefix, sha256_u32};
use wigwag_store::{Batch, limits::LIST_PAGE};

use super::Dispatcher;
use crate::engine_core::time;
use crate::error::Result;
use crate::limits::{ANNOUNCED_NAMES_MAX, ANNOUNCEMENT_SLACK};
use crate::pages::Pages;

/// Known workers and processes that share the store.
#[derive(Debug)]
pub(super) struct Membership {
    /// Processes of this machine that lived at the last check.
    pub(super) living: Vec<String>,
    /// Processes that claimed a run since the last check: one may start and end between two checks.
    pub(super) claimants: BTreeSet<String>,
    /// When the processes of this machine are checked next.
    pub(super) peers_at: Duration,
    /// Other workers of the store.
    others: Vec<String>,
    /// When this worker announces itself next.
    pub(super) announce_at: Duration,
}

impl Membership {
    pub(super) fn new(now: Duration) -> Self {
        Self { living: Vec::new(), claimants: BTreeSet::new(), peers_at: now, others: Vec::new(), announce_at: now }
    }
}

impl Dispatcher {
    /// Enqueues the lease wake-ups of workers whose process has ended.
    pub(super) async fn check_peers(&mut self) -> Result<()> {
        let Some(peers) = self.inner.store.peers() else { return Ok(()) };
        let living = peers.living();
        if living == self.membership.living && self.membership.claimants.iter().all(|peer| living.contains(peer)) {
            return Ok(());
        }
        let now = self.inner.now().await?;
        let until = Key::Due(
            self.inner.hint(&"x".parse()?, &"workflow/x".parse()?, now.at.after(self.inner.settings.lease * 2)).0,
        );
        let until = until.to_string();
        for number in 0..self.inner.shards {
            let prefix = prefix::due(number);
            let mut after = format!("{prefix}{}", now.at);
            loop {
                let page = self.inner.store.list(&prefix, &after, LIST_PAGE).await?;
                for listed in &page.entries {
                    if let Ok(Key::Due(hint)) = listed.key.parse::<Key>()
                        && hint.owner().is_some_and(|owner| !self.is_living(owner))
                    {
                        self.passed.remove(&listed.key);
                        self.enqueue(listed.key.clone(), hint);
                    }
                }
                match page.entries.last() {
                    Some(last) if page.more && last.key < until => after.clone_from(&last.key),
                    _ => break,
                }
            }
        }
        self.membership.claimants.retain(|peer| living.contains(peer));
        self.membership.living = living;
        Ok(())
    }

    /// Returns whether the process of a worker lives, or may.
    fn is_living(&self, owner: &str) -> bool {
        self.inner.peer_lives(peer_of(owner)) != Some(false)
    }

    /// Announces this worker, and lists the others: the shards of the due index are divided among all.
    pub(super) async fn announce(&mut self) -> Result<()> {
        if self.inner.shards < 2 {
            return Ok(());
        }
        let now = self.inner.now().await?;
        let key = Key::Worker { id: self.inner.worker.clone() }.to_string();
        let body = self.announcement(now.at);
        self.inner.store.write(Batch::new().put(key, body)).await?;
        let lapsed = self.inner.settings.lease * 5 / 4 + now.uncertainty + ANNOUNCEMENT_SLACK;
        let (mut others, mut old) = (Vec::new(), Vec::new());
        let mut pages = Pages::new(&*self.inner.store, "workers/");
        while let Some(entries) = pages.next().await? {
            for listed in entries {
                let age = now.at.since(time(listed.modified));
                let id = listed.key.trim_start_matches("workers/").trim_end_matches(".json");
                if age <= lapsed && id != self.inner.worker {
                    others.push(id.to_owned());
                } else if age > lapsed * 10 {
                    old.push(listed.key);
                }
            }
        }
        self.membership.others = others;
        self.inner.delete_all(old).await?;
        Ok(())
    }

    /// The announcement of this worker, for operators.
    fn announcement(&self, at: Time) -> String {
        let registry = &self.inner.registry;
        let workflows =
            registry.workflows().map(|workflow| workflow.definition.of.to_string()).take(ANNOUNCED_NAMES_MAX);
        let facts = serde_json::json!({
            "id": self.inner.worker,
            "at": at,
            "version": env!("CARGO_PKG_VERSION"),
            "workflows": workflows.collect::<Vec<_>>(),
            "queues": registry.queues.iter().take(ANNOUNCED_NAMES_MAX).collect::<Vec<_>>(),
            "runs": self.inner.active_count(),
            "runs_max": self.inner.settings.turns_max,
        });
        format!("{facts}\n")
    }

    /// Returns whether this worker polls the shard: of all workers, its name hashes highest with the shard.
    pub(super) fn is_own_shard(&self, shard: u16) -> bool {
        let weight = |worker: &str| sha256_u32(&format!("{worker}/{shard}"));
        let mine = weight(&self.inner.worker);
        self.membership.others.iter().all(|other| weight(other) < mine)
    }

    pub(super) async fn leave(self) {
        if self.inner.shards > 1 {
            let key = Key::Worker { id: self.inner.worker.clone() }.to_string();
            let _ = self.inner.store.write(Batch::new().delete(key)).await;
        }
    }
}

/// Returns the process of a worker: the worker's name begins with it.
pub(super) fn peer_of(owner: &str) -> &str {
    owner.rsplit_once('-').map_or(owner, |(peer, _)| peer)
}
