//! `/hub`: the shell around [`wigwag_hub::Hub`]. The hub makes all decisions; the shell carries them out.
//!
//! One lock guards the hub. It is held while a few frames are routed; frames are parsed before and written
//! afterwards. Long jobs run in slices ([`Hub::advance`], [`Hub::tick`]), so that the lock is never held for more than a
//! millisecond; the longest hold is a metric. Store operations, signals and followers of runs are separate tasks, which report
//! their outcomes to the hub.

mod budget;
mod door;
mod ends;
mod frames;
mod keep;
mod link;
mod peers;
mod runs;
mod sweep;
mod waits;
mod wire;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use slotmap::SecondaryMap;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tracing::warn;
use wigwag::Client;
use wigwag_hub::{Access, Effect, Hub, Millis, SessionId, Settings};
use wigwag_store::{Clock as _, System};

pub(crate) use door::{routes, url};

use crate::auth::Sender;
use crate::board::Board;
use crate::credentials::Known;
use crate::watch::Watchers;
use keep::Keeper;
use peers::Peers;
use runs::{Follower, Lanes};

/// Interval of the hub's clock ticks.
const TICK: Duration = Duration::from_secs(1);

/// The hub of a server. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Shell(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    core: Mutex<Core>,
    client: Client,
    watchers: Arc<Watchers>,
    board: Arc<Board>,
    connections_max: usize,
    message_bytes_max: usize,
    settings: Settings,
    peers: Peers,
    /// Number of slow consumers' connections that may still read the close reason.
    lingering: AtomicUsize,
    /// The longest time that the lock was held, in nanoseconds.
    longest_hold: AtomicU64,
    lanes: Lanes,
    /// Notified when a fan-out has more batches.
    more: Notify,
    /// Notified when an operation completes that a stop may wait for.
    settled: Notify,
    tasks: Mutex<HashMap<&'static str, AbortHandle>>,
}

#[derive(Debug)]
struct Core {
    hub: Hub,
    bells: SecondaryMap<SessionId, Arc<Bell>>,
    followers: HashMap<(SessionId, Arc<str>), AbortHandle>,
}

/// Notifies a connection of frames in its outbox.
#[derive(Debug, Default)]
struct Bell {
    waker: AtomicWaker,
    /// Another task has added frames since the last check.
    is_rung: AtomicBool,
    /// Notified when the outbox has room again.
    room: Notify,
}

/// Returns the time in the hub's unit.
fn now() -> Millis {
    System.wall().micros() / 1_000
}

fn random<const N: usize>() -> [u8; N] {
    crate::chance::bytes()
}

impl Shell {
    pub(crate) fn new(
        client: Client,
        watchers: Arc<Watchers>,
        board: Arc<Board>,
        settings: Settings,
        connections_max: usize,
    ) -> Self {
        let message_bytes_max = settings.message_bytes_max;
        let server: String = random::<10>().iter().map(|byte| format!("{byte:02x}")).collect();
        let peers = Peers::new(server, Duration::from_millis(settings.peer_interval.max(1)));
        let hub = Hub::new(settings.clone(), random(), now());
        let core = Core { hub, bells: SecondaryMap::new(), followers: HashMap::new() };
        let shell = Self(Arc::new(Parts {
            core: Mutex::new(core),
            client,
            watchers,
            board,
            connections_max,
            message_bytes_max,
            settings,
            peers,
            lingering: AtomicUsize::new(0),
            longest_hold: AtomicU64::new(0),
            lanes: Lanes::default(),
            more: Notify::new(),
            settled: Notify::new(),
            tasks: Mutex::default(),
        }));
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(tick(Arc::downgrade(&shell.0)));
            runtime.spawn(fan_out(Arc::downgrade(&shell.0)));
            runtime.spawn(sweep::run(Arc::downgrade(&shell.0)));
        }
        shell
    }

    /// Sets the public URL and the address of this hub, and starts the heartbeat to other servers on the store.
    pub(crate) fn announce(&self, url: Option<String>, addr: Option<SocketAddr>) {
        self.0.peers.announce(url, addr);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let shell = self.clone();
        let task = runtime.spawn(async move {
            let taken = |taken: wigwag_hub::key::TakenRecord| {
                shell.act(|hub| hub.taken_over(&taken.address, taken.version, taken.url.as_deref(), now()));
            };
            let lapsed = || {
                warn!("no heartbeat was written in time: closing sessions, so that clients fetch messages queued elsewhere");
                shell.act(|hub| hub.shutdown(now()));
            };
            shell.0.peers.run(&**shell.0.client.store(), taken, lapsed).await;
        });
        let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.insert("peers", task.abort_handle());
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        self.0.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the hub under the lock, then carries out its effects.
    fn act<T>(&self, doing: impl FnOnce(&mut Hub) -> T) -> T {
        self.act_as(None, doing).0
    }

    /// The same for a connection. Also returns whether the connection itself has new frames.
    fn act_as<T>(&self, own: Option<SessionId>, doing: impl FnOnce(&mut Hub) -> T) -> (T, bool) {
        let mut core = self.lock();
        let begun = System.boot();
        let outcome = doing(&mut core.hub);
        let woken = core.hub.woken();
        let effects = core.hub.effects();
        let more = core.hub.has_more();
        let mut for_itself = false;
        let mut bells = Vec::with_capacity(woken.len());
        for session in woken {
            if Some(session) == own {
                for_itself = true;
            } else if let Some(bell) = core.bells.get(session) {
                bells.push(Arc::clone(bell));
            }
        }
        let held = System.boot().saturating_sub(begun);
        drop(core);
        self.0.longest_hold.fetch_max(u64::try_from(held.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        for bell in bells {
            bell.is_rung.store(true, Ordering::Release);
            bell.waker.wake();
        }
        if more {
            self.0.more.notify_one();
        }
        for effect in effects {
            self.perform(effect);
        }
        (outcome, for_itself)
    }

    fn perform(&self, effect: Effect) {
        match effect {
            Effect::Store(ticket, op) => {
                let shell = self.clone();
                tokio::spawn(async move {
                    let keeper = Keeper { store: &**shell.0.client.store(), peers: &shell.0.peers };
                    let done = keeper.perform(op).await;
                    shell.act(|hub| hub.done(ticket, done, now()));
                    shell.0.settled.notify_waiters();
                });
            }
            Effect::Signal { ticket, session, run, name, payload, key, by, is_authenticated } => {
                let shell = self.clone();
                let sender = Sender { name: by, is_authenticated };
                let lane = self.0.lanes.join(session, &run);
                tokio::spawn(async move {
                    let turn = lane.await;
                    let done = runs::signal(&shell.0.client, &run, &name, &payload, key, sender).await;
                    shell.act(|hub| hub.done(ticket, done, now()));
                    drop(turn);
                    shell.0.settled.notify_waiters();
                });
            }
            Effect::Follow { session, topic, run, after } => {
                let follower = Follower::new(self.clone(), session, Arc::clone(&topic), run, after);
                // Under the lock, so that a follower that ends immediately is removed after it was inserted.
                let mut core = self.lock();
                let task = tokio::spawn(follower.run()).abort_handle();
                core.followers.insert((session, topic), task);
            }
            Effect::Unfollow { session, topic } => {
                if let Some(task) = self.lock().followers.remove(&(session, topic)) {
                    task.abort();
                }
            }
            Effect::Wanted { topic, wanted } => self.want(&topic, wanted),
        }
    }

    /// Starts or stops publishing one of the hub's built-in topics.
    fn want(&self, topic: &str, wanted: bool) {
        let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, task) = match topic {
            "runs" => ("runs", wanted.then(|| tokio::spawn(runs::tell_runs(self.clone(), runs::WORKFLOWS)))),
            "tasks" => ("tasks", wanted.then(|| tokio::spawn(runs::tell_runs(self.clone(), runs::TASKS)))),
            "waiting" => ("waiting", wanted.then(|| tokio::spawn(waits::tell_waits(self.clone())))),
            "board" => ("board", wanted.then(|| tokio::spawn(waits::tell_counts(self.clone())))),
            "nudges" => ("nudges", wanted.then(|| tokio::spawn(runs::tell_nudges(self.clone())))),
            _ => return,
        };
        if let Some(old) = tasks.remove(name) {
            old.abort();
        }
        if let Some(task) = task {
            tasks.insert(name, task.abort_handle());
        }
    }

    /// Metrics of the hub: sessions, actors, topics, drops by reason.
    pub(crate) fn figures(&self) -> serde_json::Value {
        self.act(|hub| hub.figures())
    }

    /// Opens a session, unless there are too many.
    fn open(&self, access: Access) -> Option<(SessionId, Arc<Bell>)> {
        let mut core = self.lock();
        if core.bells.len() >= self.0.connections_max {
            return None;
        }
        let session = core.hub.open(access, random(), now());
        let bell = Arc::new(Bell::default());
        core.bells.insert(session, Arc::clone(&bell));
        Some((session, bell))
    }

    /// Ends the sessions whose token was removed or changed.
    pub(crate) fn recheck(&self, known: Arc<Known>) {
        let shell = self.clone();
        tokio::spawn(async move {
            let mut before = None;
            loop {
                let (sessions, next) = shell.act(|hub| hub.credentials(before));
                for (session, access) in sessions {
                    shell.recheck_one(session, &access, &known);
                }
                match next {
                    Some(_) => before = next,
                    None => break,
                }
                tokio::task::yield_now().await;
            }
        });
    }

    /// Ends a session if its token was removed or changed.
    fn recheck_one(&self, session: SessionId, access: &Access, known: &Known) {
        if !known.auth.still_grants(access) {
            self.act(|hub| hub.revoke(session, now()));
        }
    }

    /// Removes a follower that has ended.
    fn forget_follower(&self, session: SessionId, topic: &Arc<str>) {
        self.lock().followers.remove(&(session, Arc::clone(topic)));
    }

    /// Closes the session of a lost connection.
    fn close(&self, session: SessionId) {
        self.act(|hub| hub.close(session, now()));
        self.lock().bells.remove(session);
        self.0.settled.notify_waiters();
    }

    /// Notifies all clients that the server stops, and waits until they have disconnected and all messages are stored.
    pub(crate) async fn stop(&self) {
        self.act(|hub| hub.shutdown(now()));
        while self.act(|hub| hub.advance(now())) {
            tokio::task::yield_now().await;
        }
        loop {
            let settled = self.0.settled.notified();
            let is_settled = {
                let core = self.lock();
                core.bells.is_empty() && core.hub.pending() == 0
            };
            if is_settled {
                break;
            }
            settled.await;
        }
        let tasks = std::mem::take(&mut *self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner));
        tasks.into_values().for_each(|task| task.abort());
        self.0.peers.leave(&**self.0.client.store()).await;
    }
}

/// Ticks the hub's clock as long as the hub exists.
async fn tick(parts: std::sync::Weak<Parts>) {
    loop {
        System.sleep(TICK).await;
        let Some(parts) = parts.upgrade() else { return };
        let shell = Shell(parts);
        while shell.act(|hub| hub.tick(now())) {
            tokio::task::yield_now().await;
        }
        measure(&shell.act(|hub| hub.figures()));
        let longest = Duration::from_nanos(shell.0.longest_hold.load(Ordering::Relaxed));
        metrics::gauge!("wigwag_hub_lock_hold_max_seconds").set(longest.as_secs_f64());
    }
}

/// Exports the hub's metrics with those of the process.
fn measure(figures: &serde_json::Value) {
    let number = |name: &str| figures[name].as_u64().unwrap_or_default();
    let gauges = [
        ("sessions", "sessions"),
        ("actors", "actors"),
        ("topics", "topics"),
        ("history_bytes", "historyBytes"),
        ("outbox_bytes", "outboxBytes"),
        ("reply_waits", "replyWaits"),
        ("reply_bytes", "replyBytes"),
        ("dedup_entries", "dedupEntries"),
    ];
    for (gauge, name) in gauges {
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
        metrics::gauge!(format!("wigwag_hub_{gauge}")).set(number(name) as f64);
    }
    let counters = [
        "received",
        "delivered",
        "queued",
        "repeated",
        "published",
        "broadcasts",
        "signals",
        "refused",
        "gaps",
        "unreadable",
    ];
    for name in counters {
        metrics::counter!(format!("wigwag_hub_{name}_total")).absolute(number(name));
    }
    for (reason, count) in figures["drops"].as_object().into_iter().flatten() {
        let count = count.as_u64().unwrap_or_default();
        metrics::counter!("wigwag_hub_dropped_total", "reason" => reason.clone()).absolute(count);
    }
}

/// Delivers fan-outs batch by batch, so that other tasks run in between.
async fn fan_out(parts: std::sync::Weak<Parts>) {
    loop {
        let Some(strong) = parts.upgrade() else { return };
        let shell = Shell(strong);
        // Checks from time to time whether the hub still exists.
        if tokio::time::timeout(10 * TICK, shell.0.more.notified()).await.is_err() {
            continue;
        }
        while shell.act(|hub| hub.advance(now())) {
            tokio::task::yield_now().await;
        }
    }
}
