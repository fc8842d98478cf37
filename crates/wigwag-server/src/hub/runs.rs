//! Runs on the hub: signals to them, their events, and topics of starts and ends.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::json;
use tokio::sync::{OwnedMutexGuard, watch};
use tracing::debug;
use wigwag::{Client, ErrorKind, Payload, RunHandle, SignalState};
use wigwag_core::{Family, Key};
use wigwag_hub::{After, Done, SessionId, SignalRefusal};
use wigwag_store::{Change, Changes, Clock as _, System};

use crate::auth::Sender;
use crate::limits::{CATCH_UP_ENTRIES, CHANGES_AT_ONCE};
use crate::watch::{End, Frame, Reach, Watch, frames};

use super::ends::Ends;
use super::{Shell, now};

/// Interval of listing ends in a store without change notifications.
const LOOK: Duration = Duration::from_secs(5);

/// Sends a signal.
pub(super) async fn signal(client: &Client, run: &str, name: &str, payload: &str, key: String, by: Sender) -> Done {
    let sending = async {
        let payload = Payload::parse(payload).map_err(|refusal| SignalRefusal::Invalid(refusal.to_string()))?;
        let call = client.signal(run, name, &payload).key(key).via("hub");
        let call = if by.is_authenticated { call.authenticated_as(by.name) } else { call.by(by.name) };
        call.await.map_err(|error| {
            let what = error.to_string();
            match error.kind() {
                ErrorKind::NotFound | ErrorKind::Gone | ErrorKind::NotRunning => SignalRefusal::Unknown(what),
                ErrorKind::Unavailable | ErrorKind::Stopped | ErrorKind::TimedOut | ErrorKind::Damaged => {
                    SignalRefusal::Later(what)
                }
                _ => SignalRefusal::Invalid(what),
            }
        })
    };
    Done::Signalled(sending.await.map(|receipt| receipt.state == SignalState::Waiting))
}

/// Keeps signals of one session to one run in order.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    all: Mutex<HashMap<(SessionId, String), Line>>,
}

/// The queue of signals of one session to one run.
type Line = Arc<tokio::sync::Mutex<()>>;

/// A pending position in a lane. The lock is fair: first come, first served.
type Place = futures_util::future::BoxFuture<'static, OwnedMutexGuard<()>>;

impl Lanes {
    /// Joins the end of the lane of a session and a run.
    pub(super) fn join(&self, session: SessionId, run: &str) -> Place {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() > 1_024 {
            all.retain(|_, queue| Arc::strong_count(queue) > 1);
        }
        let queue = Arc::clone(all.entry((session, run.to_owned())).or_default());
        let mut place = queue.lock_owned().boxed();
        // Polled once now, so that the order does not depend on when its task starts.
        match place.as_mut().now_or_never() {
            Some(turn) => futures_util::future::ready(turn).boxed(),
            None => place,
        }
    }
}

/// One session that follows one run.
pub(super) struct Follower {
    shell: Shell,
    session: SessionId,
    topic: Arc<str>,
    run: String,
    after: Option<After>,
}

impl Follower {
    pub(super) fn new(shell: Shell, session: SessionId, topic: Arc<str>, run: String, after: Option<After>) -> Self {
        Self { shell, session, topic, run, after }
    }

    pub(super) async fn run(self) {
        let (session, topic) = (self.session, Arc::clone(&self.topic));
        match self.begin().await {
            Ok(following) => {
                let reason = self.follow(following).await;
                self.shell.act(|hub| hub.unfollowed(session, &topic, &reason, now()));
            }
            Err(why) => self.shell.act(|hub| hub.followed(session, &topic, Err(why), now())),
        }
        self.shell.forget_follower(session, &topic);
    }

    async fn begin(&self) -> Result<Following, String> {
        let parts = &self.shell.0;
        let handle = parts.client.run(&self.run).map_err(|error| error.to_string())?;
        let view = handle.get().await.map_err(|error| error.to_string())?;
        let run = view.run();
        // A new run with the id of a removed one has another epoch.
        let epoch = run.created_at.micros() / 1_000;
        let seen = self.after.filter(|after| after.epoch == epoch && after.seq <= run.seq);
        let watch = parts.watchers.join(&handle, run);
        let (session, topic) = (self.session, &self.topic);
        self.shell.act(|hub| hub.followed(session, topic, Ok(After { epoch, seq: run.seq }), now()));
        let next = seen.map_or(1, |after| after.seq + 1);
        Ok(Following { reach: watch.reach(), handle, watch, epoch, next })
    }

    /// Sends events to the session. Returns the reason why it ends.
    async fn follow(&self, mut following: Following) -> String {
        loop {
            let found = match following.more().await {
                Ok(found) => found,
                Err(reason) => return reason,
            };
            for entry in found.chunk_by(|one, other| one.seq == other.seq) {
                let Some(first) = entry.first() else { continue };
                let events: Vec<&str> = entry.iter().map(|frame| frame.event()).collect();
                let payload = format!("{{{},\"events\":[{}]}}", first.entry, events.join(","));
                let at = After { epoch: following.epoch, seq: first.seq };
                following.next = first.seq + 1;
                if !self.shell.act(|hub| hub.feed(self.session, &self.topic, at, &payload, now())) {
                    self.wait_for_room().await;
                }
            }
        }
    }

    async fn wait_for_room(&self) {
        let Some(bell) = self.shell.lock().bells.get(self.session).cloned() else { return };
        loop {
            let room = bell.room.notified();
            if self.shell.lock().hub.has_room(self.session) {
                return;
            }
            room.await;
        }
    }
}

/// Position of a follower.
struct Following {
    handle: RunHandle,
    watch: Arc<Watch>,
    reach: watch::Receiver<Reach>,
    epoch: u64,
    next: u64,
}

impl Following {
    /// Waits for events, or returns why there are no more.
    async fn more(&mut self) -> Result<Vec<Arc<Frame>>, String> {
        loop {
            let reach = self.reach.borrow_and_update().clone();
            if self.next <= reach.last {
                if let Some(recent) = self.watch.recent(self.next) {
                    return Ok(recent);
                }
                let count = (reach.last - self.next + 1).min(CATCH_UP_ENTRIES);
                let entries = self.handle.history(self.next, count).await.map_err(|error| error.to_string())?;
                return if entries.is_empty() {
                    Err(String::from("removed"))
                } else {
                    Ok(entries.iter().flat_map(frames).collect())
                };
            }
            match reach.end {
                Some(End::Ended(_)) => return Err(String::from("ended")),
                Some(End::Problem(problem)) => return Err(problem.detail.clone()),
                None => _ = self.reach.changed().await,
            }
        }
    }
}

/// Announces wake-ups that are written to the store, for workers on other machines.
pub(super) async fn tell_nudges(shell: Shell) {
    let mut changes = shell.0.client.store().changes("due/");
    loop {
        let Puts { keys, missed } = next_puts(&mut changes).await;
        // Without keys: some were missed, and the worker must scan.
        let all = [(!keys.is_empty()).then_some(keys), missed.then(Vec::new)];
        for keys in all.into_iter().flatten() {
            let payload = json!({"keys": keys}).to_string();
            shell.act(|hub| hub.tell_topic("nudges", "store:put", &payload, now()));
        }
    }
}

/// Puts of a store that are announced together.
#[derive(Debug, Default, PartialEq, Eq)]
struct Puts {
    keys: Vec<String>,
    /// Whether further puts were missed.
    missed: bool,
}

impl Puts {
    /// Takes changes up to the first gap, at most [`CHANGES_AT_ONCE`].
    fn gather(changes: impl Iterator<Item = Change>) -> Self {
        let mut puts = Self::default();
        for change in changes.take(CHANGES_AT_ONCE) {
            match change {
                Change::Put(key) => puts.keys.push(key),
                _ => {
                    puts.missed = true;
                    break;
                }
            }
        }
        puts
    }
}

/// Waits for a put, and returns it with all other available ones.
async fn next_puts(changes: &mut Changes) -> Puts {
    let first = changes.next().await;
    let more = std::iter::from_fn(|| changes.next().now_or_never());
    Puts::gather(std::iter::once(first).chain(more))
}

/// A built-in topic of the hub.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    topic: &'static str,
    prefix: &'static str,
    /// Prefix of the message types.
    kind: &'static str,
    family: Family,
}

/// Workflows, on the topic `runs`.
pub(super) const WORKFLOWS: Told = Told { topic: "runs", prefix: "workflow/", kind: "run", family: Family::Workflow };

/// Tasks, on the topic `tasks`, which the scope `runs:read` does not include.
pub(super) const TASKS: Told = Told { topic: "tasks", prefix: "task/", kind: "task", family: Family::Task };

/// Publishes starts and ends of runs or tasks.
pub(super) async fn tell_runs(shell: Shell, told: Told) {
    let store = Arc::clone(shell.0.client.store());
    if store.traits().notifications.is_complete() {
        let [mut started, mut ended] = [told.prefix, "done/"].map(|prefix| store.changes(prefix));
        loop {
            let Puts { keys, mut missed } = tokio::select! {
                // A start is announced before its end.
                biased;
                puts = next_puts(&mut started) => puts,
                puts = next_puts(&mut ended) => puts,
            };
            for key in &keys {
                missed |= tell_run(&shell, told, key).await.is_err();
            }
            if missed {
                let kind = format!("{}:missed", told.topic);
                shell.act(|hub| hub.tell_topic(told.topic, &kind, "{}", now()));
            }
        }
    }
    let mut ends = None;
    loop {
        if let Err(error) = tell_ends(&shell, told, &mut ends).await {
            debug!(%error, topic = told.topic, "ends of runs could not be listed; retrying");
        }
        System.sleep(LOOK).await;
    }
}

/// Announces new ends in a store without change notifications. Starts are not announced.
async fn tell_ends(shell: &Shell, told: Told, ends: &mut Option<Ends>) -> wigwag_store::Result<()> {
    let store = &**shell.0.client.store();
    let ends = match ends {
        Some(ends) => ends,
        None => ends.insert(Ends::start(store).await?),
    };
    for key in ends.list(store).await? {
        if tell_run(shell, told, &key).await.is_ok() {
            ends.announced(key);
        }
    }
    Ok(())
}

/// Announces the start or end of the run that a key belongs to. Fails if the run cannot be read.
async fn tell_run(shell: &Shell, told: Told, key: &str) -> wigwag::Result<()> {
    let (event, id, status) = match key.parse::<Key>() {
        Ok(Key::Entry { run, seq: 1 }) => ("started", run.id, None),
        Ok(Key::Done { status, run, .. }) => ("ended", run, Some(status)),
        _ => return Ok(()),
    };
    let Some(of) = type_of(&shell.0.client, told.family, id.as_str()).await? else { return Ok(()) };
    let field = if told.family == Family::Task { "task" } else { "workflow" };
    let payload = match status {
        None => json!({"id": id, field: of}),
        Some(status) => json!({"id": id, field: of, "status": status}),
    };
    let (kind, payload) = (format!("{}:{event}", told.kind), payload.to_string());
    shell.act(|hub| hub.tell_topic(told.topic, &kind, &payload, now()));
    Ok(())
}

/// Returns the type of a run or task, or `None` if it was removed or the id belongs to the other family: keys of
/// ends do not name the family.
async fn type_of(client: &Client, family: Family, id: &str) -> wigwag::Result<Option<String>> {
    let handle = if family == Family::Task { client.task(id) } else { client.run(id) };
    let Ok(handle) = handle else { return Ok(None) };
    match handle.get().await {
        Ok(view) => Ok(Some(view.of().to_owned())),
        // A damaged run cannot be read later either.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Gone | ErrorKind::Damaged) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_after_puts_is_reported_with_them() {
        let put = |key: &str| Change::Put(key.to_owned());
        let gather = |changes: Vec<Change>| {
            let puts = Puts::gather(changes.into_iter());
            (puts.keys.len(), puts.missed)
        };
        assert_eq!(gather(vec![put("a"), put("b")]), (2, false));
        assert_eq!(gather(vec![Change::Missed]), (0, true));
        assert_eq!(gather(vec![put("a"), Change::Missed]), (1, true), "the gap was swallowed");
        assert_eq!(gather(vec![put("a"); CHANGES_AT_ONCE + 1]), (CHANGES_AT_ONCE, false));
    }
}
