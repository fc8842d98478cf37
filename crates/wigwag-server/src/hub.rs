//! `/hub`: the shell around [`wigwag_hub::Hub`], which decides everything; here it is done.
//!
//! One lock guards the hub. It is held for as long as a few frames take to be routed: they are read before, and written
//! after. Long jobs run in slices ([`Hub::advance`], [`Hub::tick`]), so that the lock is never held for more than a
//! millisecond; the longest hold is a metric. Store operations, signals and followers of runs are tasks of their own, which tell
//! the hub their outcome.

mod door;
mod ends;
mod frames;
mod keep;
mod link;
mod peers;
mod runs;
mod sweep;
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
use wigwag::store::{Clock as _, System};
use wigwag_hub::{Access, Effect, Hub, Millis, SessionId, Settings};

pub(crate) use door::{routes, url};

use crate::auth::Sender;
use crate::watch::Watchers;
use keep::Keeper;
use peers::Peers;
use runs::{Follower, Lanes};

/// How often the hub is told the time.
const TICK: Duration = Duration::from_secs(1);

/// The hub of a server. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Shell(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    core: Mutex<Core>,
    client: Client,
    watchers: Arc<Watchers>,
    connections_max: usize,
    message_bytes_max: usize,
    settings: Settings,
    peers: Peers,
    /// Connections of slow consumers that are given time to read why they are closed.
    lingering: AtomicUsize,
    /// The longest that the lock was held, in nanoseconds.
    longest_hold: AtomicU64,
    lanes: Lanes,
    /// More of a message for many is to be brought.
    more: Notify,
    /// Something is done that a stop may wait for.
    settled: Notify,
    tasks: Mutex<HashMap<&'static str, AbortHandle>>,
}

#[derive(Debug)]
struct Core {
    hub: Hub,
    bells: SecondaryMap<SessionId, Arc<Bell>>,
    followers: HashMap<(SessionId, Arc<str>), AbortHandle>,
}

/// How a connection is told that there is something for it.
#[derive(Debug, Default)]
struct Bell {
    waker: AtomicWaker,
    /// Somebody else has put something there since it was looked at.
    is_rung: AtomicBool,
    /// There is room again.
    room: Notify,
}

/// The time as the hub counts it.
fn now() -> Millis {
    System.wall().micros() / 1_000
}

fn random<const N: usize>() -> [u8; N] {
    crate::chance::bytes()
}

impl Shell {
    pub(crate) fn new(client: Client, watchers: Arc<Watchers>, settings: Settings, connections_max: usize) -> Self {
        let message_bytes_max = settings.message_bytes_max;
        let server: String = random::<10>().iter().map(|byte| format!("{byte:02x}")).collect();
        let peers = Peers::new(server, Duration::from_millis(settings.peer_interval.max(1)));
        let hub = Hub::new(settings.clone(), random(), now());
        let core = Core { hub, bells: SecondaryMap::new(), followers: HashMap::new() };
        let shell = Self(Arc::new(Parts {
            core: Mutex::new(core),
            client,
            watchers,
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

    /// Does something with the hub, then all that it asks for.
    fn act<T>(&self, doing: impl FnOnce(&mut Hub) -> T) -> T {
        self.act_as(None, doing).0
    }

    /// The same for a connection, which is told apart whether there is something for itself.
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
                // Under the lock: a follower that ends at once takes itself out after it was put in.
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

    /// Begins or ends to tell a topic of the hub's own.
    fn want(&self, topic: &str, wanted: bool) {
        let mut tasks = self.0.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let (name, task) = match topic {
            "runs" => ("runs", wanted.then(|| tokio::spawn(runs::tell_runs(self.clone(), runs::WORKFLOWS)))),
            "tasks" => ("tasks", wanted.then(|| tokio::spawn(runs::tell_runs(self.clone(), runs::TASKS)))),
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

    /// A place for a connection, if there is one.
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

    /// A follower has ended by itself.
    fn forget_follower(&self, session: SessionId, topic: &Arc<str>) {
        self.lock().followers.remove(&(session, Arc::clone(topic)));
    }

    /// A connection is gone.
    fn close(&self, session: SessionId) {
        self.act(|hub| hub.close(session, now()));
        self.lock().bells.remove(session);
        self.0.settled.notify_waiters();
    }

    /// Tells everybody that the server stops, and waits until they are gone and everything is stored.
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

/// Tells the hub the time for as long as it is there.
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

/// Shows the hub's figures among the process's.
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
    ];
    for (gauge, name) in gauges {
        #[expect(clippy::cast_precision_loss, reason = "a gauge is a float")]
        metrics::gauge!(format!("wigwag_hub_{gauge}")).set(number(name) as f64);
    }
    for name in ["received", "delivered", "queued", "repeated", "published", "broadcasts", "signals", "refused", "gaps"]
    {
        metrics::counter!(format!("wigwag_hub_{name}_total")).absolute(number(name));
    }
    for (reason, count) in figures["drops"].as_object().into_iter().flatten() {
        let count = count.as_u64().unwrap_or_default();
        metrics::counter!("wigwag_hub_dropped_total", "reason" => reason.clone()).absolute(count);
    }
}

/// Brings messages for many to them, batch by batch: others have a turn in between.
async fn fan_out(parts: std::sync::Weak<Parts>) {
    loop {
        let Some(strong) = parts.upgrade() else { return };
        let shell = Shell(strong);
        // Now and then it looks whether the hub is still there.
        if tokio::time::timeout(10 * TICK, shell.0.more.notified()).await.is_err() {
            continue;
        }
        while shell.act(|hub| hub.advance(now())) {
            tokio::task::yield_now().await;
        }
    }
}
