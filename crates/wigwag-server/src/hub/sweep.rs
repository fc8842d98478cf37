//! Sweeps the store for expired and unused objects: see [`wigwag_hub::sweep`].
//!
//! What if we die here? The floor of versions is raised before an address is deleted, so that a version never goes back; everything else has
//! expired and may be deleted in any order.

use std::time::Duration;

use tracing::{debug, warn};
use wigwag_hub::key::{ActorRecord, FLOOR, FloorRecord};
use wigwag_hub::{key, sweep};
use wigwag_store::limits::LIST_PAGE;
use wigwag_store::{Batch, Clock as _, Listed, Store, System};

use super::keep::{Result, failed, record};
use super::{Shell, now};

/// Delay of the first sweep, so that frequently restarted servers sweep too.
const FIRST_MAX: Duration = Duration::from_secs(60);

/// Result of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Swept {
    pub(super) deleted: usize,
    pub(super) expired: usize,
    pub(super) forgotten: usize,
}

/// Sweeps as long as the hub exists.
pub(super) async fn run(parts: std::sync::Weak<super::Parts>) {
    let mut wait = None;
    loop {
        let Some(strong) = parts.upgrade() else { return };
        let interval = Duration::from_millis(strong.settings.sweep_interval);
        drop(strong);
        System.sleep(wait.replace(interval).unwrap_or(interval.min(FIRST_MAX))).await;
        let Some(strong) = parts.upgrade() else { return };
        match Shell(strong).sweep().await {
            Ok(swept) => debug!(?swept, "the hub's store is swept"),
            Err(error) => warn!(%error, "the hub's store could not be swept"),
        }
    }
}

impl Shell {
    /// Sweeps once, page by page.
    pub(super) async fn sweep(&self) -> Result<Swept> {
        let store = &**self.0.client.store();
        let (mut swept, mut after) = (Swept::default(), String::new());
        let mut one: Vec<Listed> = Vec::new();
        loop {
            let page = store.list("hub/", &after, LIST_PAGE).await.map_err(failed)?;
            for listed in page.entries {
                after.clone_from(&listed.key);
                let is_same = one.first().is_none_or(|first| prefix(first) == prefix(&listed));
                if !is_same {
                    self.sweep_address(&one, &mut swept).await?;
                    one.clear();
                }
                if prefix(&listed).is_some() {
                    one.push(listed);
                }
            }
            if !page.more {
                self.sweep_address(&one, &mut swept).await?;
                return Ok(swept);
            }
        }
    }

    /// Sweeps the objects of one address.
    async fn sweep_address(&self, stored: &[Listed], swept: &mut Swept) -> Result<()> {
        let Some(prefix) = stored.first().and_then(prefix) else { return Ok(()) };
        let store = &**self.0.client.store();
        let ends = stored.iter().filter_map(|listed| {
            let written = listed.modified.micros() / 1_000;
            Some((listed.key.strip_prefix(prefix)?, written))
        });
        let plan = sweep::plan(ends, now(), &self.0.settings);
        for some in plan.delete.chunks(LIST_PAGE) {
            let batch = some.iter().fold(Batch::new(), |batch, end| batch.delete(format!("{prefix}{end}")));
            store.write(batch).await.map_err(failed)?;
            swept.deleted += some.len();
        }
        if !plan.has_expired && !plan.is_unused {
            return Ok(());
        }
        let at = format!("{prefix}{}", sweep::ACTOR);
        let Some(actor) = record::<ActorRecord>(store, &at).await? else { return Ok(()) };
        if plan.has_expired {
            swept.expired += 1;
            self.act(|hub| hub.sweep(&actor.address, now()));
        }
        let is_used = self.0.peers.place_of(&actor).is_some() || self.lock().hub.is_registered(&actor.address);
        if plan.is_unused && !is_used {
            raise_floor(store, actor.version + sweep::VERSIONS_AHEAD).await?;
            store.write(Batch::new().delete(&at)).await.map_err(failed)?;
            swept.forgotten += 1;
        }
        Ok(())
    }
}

/// Returns the common prefix of all objects of the same address.
fn prefix(listed: &Listed) -> Option<&str> {
    key::split(&listed.key).map(|(prefix, _)| prefix)
}

/// Ensures that new addresses start above this version.
async fn raise_floor(store: &dyn Store, version: u64) -> Result<()> {
    loop {
        let there = store.get(FLOOR).await.map_err(failed)?;
        let floor = there.as_ref().and_then(|object| serde_json::from_slice::<FloorRecord>(&object.body).ok());
        if floor.is_some_and(|floor| floor.version >= version) {
            return Ok(());
        }
        let body = serde_json::to_vec(&FloorRecord { version }).map_err(failed)?;
        let batch = match there {
            Some(object) if store.traits().update_if => Batch::new().update(FLOOR, body, object.version),
            Some(_) => Batch::new().put(FLOOR, body),
            None => Batch::new().create(FLOOR, body),
        };
        match store.write(batch).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_lost() => {}
            Err(error) => return Err(failed(error)),
        }
    }
}
