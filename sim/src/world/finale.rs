//! Tests after the calm phase, if every guarantee held: payloads for changed schemas, damage that the sweeper must
//! repair, and ids that retention must free.

use std::time::Duration;

use serde_json::json;
use wigwag::{AuditOptions, Client, Fate, PruneOptions, RunHandle};
use wigwag_core::audit::{Breach, Promise};
use wigwag_core::{Family, prefix};
use wigwag_store::{Batch, Clock as _, Memory, Store as _};

use super::World;
use crate::checks;
use crate::code::{Code, FORM};
use crate::program::NAMES;
use crate::store::Process;
use crate::watch::{keys_below, objects_below};

/// Retention frees the ids of removed runs after a day.
const TWO_DAYS: Duration = Duration::from_secs(48 * 3_600);

/// Generation of the worker that follows the last wake-ups.
const LATE_WORKER: u64 = 99;

/// Age from which the sweeper checks the objects it finds.
const OLD_ENOUGH: Duration = Duration::from_secs(2 * 3_600);

impl World {
    /// Returns violations that only show when a parked world is disturbed.
    pub(super) async fn finale(&self) -> Vec<Breach> {
        let client = self.calm_client(&self.memory).await;
        let mut broken = self.forms_take_what_was_accepted(&client).await;
        if self.style.damage {
            broken.extend(self.damage_is_repaired(&client).await);
        }
        broken.extend(self.network.livelock().map(|livelock| Breach::new(Promise::WokenUp, livelock)));
        broken
    }

    /// A run whose signal schema changed consumes some payload, and every accepted payload.
    async fn forms_take_what_was_accepted(&self, client: &Client) -> Vec<Breach> {
        let mut broken = Vec::new();
        let waiting = checks::waiting_for(&self.memory, FORM, NAMES[0]).await;
        for id in waiting {
            let Ok(handle) = client.run(&id) else { continue };
            let before = consumed(&handle).await;
            let mut accepted = Vec::new();
            for code in [Code::Old, Code::New] {
                let payload = json!({"sender": 0, "number": 0, "fit": true, code.field(): 1});
                accepted.extend(client.signal(&id, NAMES[0], &payload).await.ok().map(|_| code));
            }
            self.clock.sleep(Duration::from_secs(60)).await;
            // One signal is enough for the run to continue, even an earlier one without a wake-up. Signals
            // after the end are not consumed.
            let continues = consumed(&handle).await > before;
            if !continues {
                let what =
                    format!("`{id}` waits for a signal; payloads for {accepted:?} code were accepted, none consumed");
                broken.push(Breach::new(Promise::WokenUp, what));
            }
        }
        broken
    }

    /// Deletes wake-ups and index objects at random; then the sweeper must restore the needed ones.
    async fn damage_is_repaired(&self, client: &Client) -> Vec<Breach> {
        let mut chance = self.chance(77);
        self.clock.sleep(OLD_ENOUGH).await;
        let mut deleted = Vec::new();
        for below in ["due/", "live/", "waiting/"] {
            for key in keys_below(&self.memory, below).await {
                if chance.u32(..3) == 0 {
                    self.memory.write(Batch::new().delete(&key)).await.expect("memory takes it");
                    deleted.push(key);
                }
            }
        }
        self.known().counts.damaged += deleted.len();
        let mut found = Vec::new();
        // The second pass is for runs that the objects restored by the first one lead to.
        for _ in 0..2 {
            if let Err(error) = client.sweep(false).await {
                found.push(format!("the sweep failed: {error}"));
            }
            self.clock.sleep(Duration::from_secs(120)).await;
        }
        match client.audit(&AuditOptions::at_rest(), |_| {}).await {
            Ok(audit) => {
                let known = self.known();
                let broken = audit.broken.iter().filter(|breach| !checks::is_unacknowledged_control(breach, &known));
                found.extend(broken.map(ToString::to_string));
            }
            Err(error) => found.push(format!("the audit failed: {error}")),
        }
        match client.sweep(true).await {
            Ok(swept) if swept.repaired() == 0 => {}
            swept => found.push(format!("a third sweep finds: {swept:?}")),
        }
        let said = |what: String| Breach::new(Promise::IndexesFollow, format!("deleted {deleted:?}, and then: {what}"));
        found.into_iter().map(said).collect()
    }

    /// Returns the store as it would be without retention: the guarantees hold for removed runs too.
    pub(super) async fn with_what_retention_took(&self) -> Memory {
        let attic = self.network.watch.attic();
        if attic.is_empty() {
            return self.memory.clone();
        }
        let whole = match self.memory.traits().atomic {
            true => Memory::with_clock(std::sync::Arc::new(self.clock.clone())),
            false => Memory::bucket_with_clock(std::sync::Arc::new(self.clock.clone())),
        };
        let gone: Vec<String> = attic.keys().map(prefix::run).collect();
        let there = objects_below(&self.memory, "").await;
        let there = there.into_iter().filter(|(key, _)| !gone.iter().any(|gone| key.starts_with(gone)));
        for (key, body) in there.chain(attic.into_values().flatten()) {
            whole.write(Batch::new().put(key, body)).await.expect("memory takes it");
        }
        whole
    }

    /// Two days after its removal nothing is left of a run, and its id can be used again.
    pub(super) async fn ids_are_free_in_the_end(&self, broken: &mut Vec<Breach>) {
        self.clock.sleep(TWO_DAYS).await;
        let client = self.calm_client(&self.memory).await;
        broken.extend(self.wake_ups_end_with_their_runs(&client).await);
        for run in self.network.watch.attic().keys().filter(|run| run.family == Family::Workflow) {
            let mut failed = client.prune(&PruneOptions::older_than(Duration::ZERO)).await.err();
            let left = keys_below(&self.memory, &prefix::run(run)).await;
            if left.is_empty() {
                failed = client.start("script", &json!([])).id(run.id.as_str()).await.err();
            }
            if failed.is_some() || !left.is_empty() {
                let what = format!("`{run}` was removed two days ago; left: {left:?}; {failed:?}");
                broken.push(Breach::new(Promise::NothingRevived, what));
            }
        }
    }
}

impl World {
    /// No wake-up is left of a run that ended, was removed, or never began: two days later each of them is due, a worker that
    /// follows it deletes it, and the sweeper deletes wake-ups without a run.
    async fn wake_ups_end_with_their_runs(&self, client: &Client) -> Option<Breach> {
        let process = Process::immortal("w0late");
        let engine = self.start_worker(&process, 0, LATE_WORKER, self.code(0)).await?;
        self.clock.sleep(Duration::from_secs(120)).await;
        engine.stop().await;
        let swept = client.sweep(false).await.err();
        let left = checks::wake_ups_of_ended_runs(&self.memory).await;
        let what = format!("wake-ups are left of runs that ended: {left:?}; {swept:?}");
        (!left.is_empty()).then(|| Breach::new(Promise::WokenUp, what))
    }
}

/// Number of signals that a run has consumed.
async fn consumed(run: &RunHandle) -> usize {
    let signals = run.signals(None).await.unwrap_or_default();
    signals.iter().filter(|signal| matches!(signal.fate, Fate::Consumed { .. })).count()
}
