//! The topics `waiting` (waits that open and close, for inboxes) and `board` (their number, for badges).
//!
//! Holds: runs only while a topic has subscribers. Lists the board at most once per interval and publishes the difference.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::json;
use wigwag_core::{Family, Key, PointStatus};
use wigwag_store::{Changes, Clock as _, Store, System};

use crate::board::{Snapshot, Waits};

use super::{Shell, now};

/// Maximum number of changes that are announced individually; more are `waits:missed`.
const TOLD_MAX: usize = 50;

/// Timeout of one listing, after which it is retried.
const PATIENCE: Duration = Duration::from_secs(300);

/// Publishes waits that open and close.
pub(super) async fn tell_waits(shell: Shell) {
    let store = Arc::clone(shell.0.client.store());
    let mut changes = Watched::new(&*store);
    let mut known: Option<Arc<Snapshot<Waits>>> = None;
    loop {
        let found = shell.0.board.waits.ask(&store, PATIENCE).await;
        let interval = found.as_ref().map_or(Duration::from_secs(5), |found| found.interval);
        if let Some(found) = found.filter(|found| found.exact)
            && let Some(before) = known.replace(Arc::clone(&found)).filter(|before| before.number != found.number)
        {
            tell(&shell, &before, &found).await;
        }
        // Always waits for the interval: the board is not listed again earlier.
        System.sleep(interval + Duration::from_millis(1)).await;
        changes.wait().await;
    }
}

/// Shortest time between two messages of the topic `board`.
const COUNTS_INTERVAL: Duration = Duration::from_secs(1);

/// Publishes the number of open waits whenever it is another one: the first time at once.
pub(super) async fn tell_counts(shell: Shell) {
    let store = Arc::clone(shell.0.client.store());
    let mut changes = Watched::new(&*store);
    let mut told = None;
    loop {
        let found = shell.0.board.waits.ask(&store, PATIENCE).await;
        let interval = found.as_ref().map_or(Duration::from_secs(5), |found| found.interval);
        if let Some(found) = found {
            let signals: BTreeMap<&str, usize> =
                found.found.counts.iter().map(|(name, count)| (&**name, *count)).collect();
            let counts = json!({"exact": found.exact, "waiting": found.found.total(), "signals": signals});
            if told.as_ref() != Some(&counts) {
                shell.act(|hub| hub.tell_topic("board", "board:counts", &counts.to_string(), now()));
                told = Some(counts);
            }
        }
        System.sleep(interval.max(COUNTS_INTERVAL)).await;
        changes.wait().await;
    }
}

/// Changes after which the index of waits may be another one.
struct Watched([Changes; 3], bool);

impl Watched {
    fn new(store: &dyn Store) -> Self {
        Self(
            ["waiting/", "workflow/", "task/"].map(|prefix| store.changes(prefix)),
            store.traits().notifications.is_complete(),
        )
    }

    /// Waits for a change, where changes are notified.
    async fn wait(&mut self) {
        if !self.1 {
            return;
        }
        let [waits, runs, tasks] = &mut self.0;
        tokio::select! {
            _ = waits.next() => {}
            _ = runs.next() => {}
            _ = tasks.next() => {}
        }
        for changes in &mut self.0 {
            while changes.next().now_or_never().is_some() {}
        }
    }
}

async fn tell(shell: &Shell, before: &Snapshot<Waits>, found: &Snapshot<Waits>) {
    let keys =
        |snapshot: &Snapshot<Waits>| snapshot.found.all.iter().map(|(key, _)| key.clone()).collect::<BTreeSet<_>>();
    let (old, new) = (keys(before), keys(found));
    let opened: Vec<&Box<str>> = new.difference(&old).collect();
    let closed: Vec<&Box<str>> = old.difference(&new).collect();
    // A snapshot of the oldest waits alone may lack a key because of its limit.
    let is_partial = !before.found.is_whole() || !found.found.is_whole();
    if is_partial && opened.is_empty() && closed.is_empty() && before.found.counts == found.found.counts {
        return;
    }
    if is_partial || opened.len() + closed.len() > TOLD_MAX {
        shell.act(|hub| hub.tell_topic("waiting", "waits:missed", "{}", now()));
        return;
    }
    for key in closed {
        let Some(payload) = closed_by(shell, key).await else { continue };
        shell.act(|hub| hub.tell_topic("waiting", "wait:closed", &payload, now()));
    }
    for key in opened {
        let Ok(Key::Waiting { name, run, seq }) = key.parse::<Key>() else { continue };
        let payload = json!({"run": run, "name": name, "seq": seq}).to_string();
        shell.act(|hub| hub.tell_topic("waiting", "wait:opened", &payload, now()));
    }
}

/// Returns how a wait ended, if its run still has the record.
async fn closed_by(shell: &Shell, key: &str) -> Option<String> {
    let Ok(Key::Waiting { name, run: id, seq }) = key.parse::<Key>() else { return None };
    let mut payload = json!({"run": id, "name": name, "seq": seq, "why": "closed"});
    for family in [Family::Workflow, Family::Task] {
        let client = &shell.0.client;
        let handle = if family == Family::Task { client.task(&id) } else { client.run(&id) };
        let Ok(view) = handle.ok()?.get().await else { continue };
        let mut points =
            view.run().points.values().filter(|point| point.wait.as_ref().is_some_and(|wait| wait.seq == seq));
        if let Some((point, wait)) =
            points.find_map(|point| Some((point, point.wait.as_ref().filter(|wait| wait.name == name)?)))
        {
            payload["why"] = match (wait.received.is_empty(), point.status) {
                (false, _) => "received".into(),
                (true, PointStatus::Failed) => "failed".into(),
                _ => "closed".into(),
            };
            payload["by"] = wait.received.last().and_then(|taken| taken.by.clone()).into();
        }
        payload["status"] = view.status().name().into();
        break;
    }
    Some(payload.to_string())
}
