//! Notifications between processes on one bucket, through the servers that share it. No broker is needed.
//!
//! A server announces itself at `servers/{id}.json`, rewritten every interval and expired when it was not for a little longer.
//! Every process keeps a stream (`GET /v1/changes`) to each running server, at most [`SERVERS_MAX`], and posts
//! its writes to them (`POST /v1/notify`). A server does not post while others follow it: they get its writes
//! from its stream.
//!
//! Nothing is read or connected before this process subscribes to something, writes something, or serves.
//!
//! Holds: all processes that see the same records choose the same servers.
//! Does not hold: that a notification arrives. A process that has not read a new server's record yet does not post to it.
//!
//! What if we die here? A record expires, and is deleted by any process that finds it long after. Keys that were not posted
//! yet are lost: other processes find the writes by polling. A process that ends in order delivers them first
//! ([`Notifier::flush`], [`flush_notifications`]).

mod link;
mod membership;
mod outgoing;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use crate::limits::{FLEET_PENDING_KEYS_MAX, NOTIFY_FLUSH_MAX, SERVERS_MAX};
use crate::{Advertisement, Clock, Notices, Notifier, Store, System, WeakNotices};
use link::Link;
pub use outgoing::flush_notifications;
use outgoing::{Outgoing, Undelivered};

/// The least time between two reads of the records: a crowd of broken streams causes one.
const REFRESH_MIN: Duration = Duration::from_secs(1);

/// How a process takes part.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FleetSettings {
    /// Interval of writing and reading records. A record expires after 5/4 of it, and the uncertainty of
    /// the store's time.
    pub interval: Duration,
    /// Timeout of connecting to a server.
    pub connect_max: Duration,
    /// Keys whose writes concern other processes.
    pub is_wanted: fn(&str) -> bool,
    /// Source of time.
    pub clock: Arc<dyn Clock>,
}

impl Default for FleetSettings {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(30),
            connect_max: Duration::from_secs(5),
            is_wanted: |_| true,
            clock: Arc::new(System),
        }
    }
}

/// Notifications through the servers that share a store. Clones are the same.
#[derive(Clone, Debug)]
pub struct Fleet {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    store: Arc<dyn Store>,
    notices: WeakNotices,
    settings: FleetSettings,
    http: reqwest::Client,
    state: Mutex<State>,
    undelivered: Arc<Undelivered>,
    /// Held while this server's record is written or removed, so that none is written after the removal.
    record: tokio::sync::Mutex<()>,
    /// Something is to be done before the interval is over.
    wake: Arc<Notify>,
    /// A key was sent since the records were last read.
    is_sending: AtomicBool,
    /// The records are to be read again soon.
    is_stale: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    own: Option<Advertisement>,
    /// This server is among those that all processes follow, so it need not post.
    is_followed: bool,
    links: BTreeMap<String, Link>,
    /// Keys sent before the records were read for the first time.
    pending: Vec<Outgoing>,
    is_known: bool,
    task: Option<JoinHandle<()>>,
    /// Keeps the fleet while keys are pending, although their sender may have dropped it.
    keeper: Option<JoinHandle<()>>,
}

impl Fleet {
    /// Connects the processes that share a store: `store` is the one below [`crate::Announced`], `notices` those of that layer.
    ///
    /// Returns `None` if no HTTP client can be made, or the notices have a transport already.
    pub fn connect(store: Arc<dyn Store>, notices: &Notices, settings: FleetSettings) -> Option<Self> {
        // Another caller may have installed the same one first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // Processes of one fleet reach each other without a proxy.
        let http = reqwest::Client::builder().no_proxy().connect_timeout(settings.connect_max).build();
        let http = http.inspect_err(|error| warn!(%error, "no notifications: no HTTP client could be made")).ok()?;
        let shared = Arc::new(Shared {
            store,
            notices: notices.downgrade(),
            settings,
            http,
            state: Mutex::default(),
            undelivered: Undelivered::new(),
            record: tokio::sync::Mutex::default(),
            wake: Arc::default(),
            is_sending: AtomicBool::new(false),
            is_stale: AtomicBool::new(false),
        });
        let fleet = Self { shared };
        notices.connect(Arc::new(fleet.clone())).then_some(fleet)
    }

    /// Starts the task, unless it runs. It ends with the runtime that it was started on.
    fn start(&self) {
        let mut state = self.shared.state();
        if state.task.as_ref().is_none_or(JoinHandle::is_finished)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            state.task = Some(runtime.spawn(run(Arc::downgrade(&self.shared))));
        }
    }

    /// Keeps the fleet until its keys are delivered, for a bounded time.
    fn keep(&self) {
        let mut state = self.shared.state();
        if state.keeper.as_ref().is_none_or(JoinHandle::is_finished)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let shared = Arc::clone(&self.shared);
            state.keeper = Some(runtime.spawn(async move {
                tokio::select! {
                    biased;
                    () = shared.undelivered.settled() => {}
                    () = shared.settings.clock.sleep(NOTIFY_FLUSH_MAX) => {}
                }
            }));
        }
    }
}

#[async_trait]
impl Notifier for Fleet {
    fn send(&self, keys: &[String]) {
        let wanted: Vec<&String> = keys.iter().filter(|key| (self.shared.settings.is_wanted)(key)).collect();
        if wanted.is_empty() {
            return;
        }
        let mut state = self.shared.state();
        if state.is_followed {
            return;
        }
        self.shared.is_sending.store(true, Ordering::Release);
        if state.is_known {
            state.links.values().for_each(|link| link.post(&wanted, &self.shared.undelivered));
            return;
        }
        let room = FLEET_PENDING_KEYS_MAX.saturating_sub(state.pending.len());
        let outgoing = wanted.into_iter().take(room).map(|key| Outgoing::new(key, &self.shared.undelivered));
        state.pending.extend(outgoing);
        drop(state);
        self.start();
        self.keep();
        self.shared.wake.notify_one();
    }

    fn subscribed(&self) {
        self.start();
        self.shared.wake.notify_one();
    }

    fn is_connected(&self) -> bool {
        let state = self.shared.state();
        let has_audience = || self.shared.notices.upgrade().is_some_and(|notices| notices.has_direct_subscribers());
        let is_reached = !state.links.is_empty() || (state.is_followed && has_audience());
        is_reached && state.links.values().all(Link::is_live)
    }

    fn advertise(&self, server: Advertisement) {
        self.shared.state().own = Some(server);
        self.shared.is_stale.store(true, Ordering::Release);
        self.start();
        self.shared.wake.notify_one();
    }

    fn withdraw(&self) {
        let mut state = self.shared.state();
        let Some(own) = state.own.take() else { return };
        state.is_followed = false;
        drop(state);
        let shared = Arc::clone(&self.shared);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // Counted as a key on its way, so that a flush waits for the removal.
            let outgoing = Outgoing::new(&membership::key(&own.id), &shared.undelivered);
            runtime.spawn(async move {
                let _guard = shared.record.lock().await;
                shared.remove_record(&own.id).await;
                drop(outgoing);
            });
        }
    }

    async fn flush(&self) {
        self.shared.undelivered.settled().await;
    }
}

impl Drop for Shared {
    /// Wakes the task, which ends once the fleet is unused.
    fn drop(&mut self) {
        self.wake.notify_one();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process subscribes, sends or serves.
    fn is_used(&self) -> bool {
        self.is_sending.swap(false, Ordering::AcqRel)
            || self.state().own.is_some()
            || self.notices.upgrade().is_some_and(|notices| notices.has_subscribers())
    }

    /// Requests an early reread of the records.
    fn refresh(&self) {
        self.is_stale.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Reads the records, and connects to the servers that run.
    async fn round(self: &Arc<Self>) -> crate::Result<()> {
        let own = self.state().own.clone();
        if let Some(own) = &own {
            let _guard = self.record.lock().await;
            if self.state().own.as_ref() == Some(own) {
                self.write_record(own).await?;
            }
        }
        let running = self.running(own.as_ref()).await?;
        let chosen = membership::chosen(running, own.as_ref(), SERVERS_MAX);
        let mut state = self.state();
        state.is_followed = own.as_ref().is_some_and(|own| chosen.contains_key(&own.id));
        state.links.retain(|id, link| chosen.get(id).is_some_and(|server| link.is_to(server)));
        for (id, server) in chosen {
            if own.as_ref().is_none_or(|own| own.id != id) {
                state.links.entry(id).or_insert_with(|| Link::new(server));
            }
        }
        let pending = std::mem::take(&mut state.pending);
        let keys: Vec<&String> = pending.iter().map(|outgoing| &outgoing.key).collect();
        state.links.values().for_each(|link| link.post(&keys, &self.undelivered));
        let is_first = !std::mem::replace(&mut state.is_known, true);
        if let Some(own) = own.filter(|_| is_first) {
            // Processes that follow another server learn of this one at once.
            let record = membership::key(&own.id);
            state.links.values().for_each(|link| link.post(&[&record], &self.undelivered));
        }
        Ok(())
    }

    /// Opens the streams that are missing, if this process subscribes to anything.
    fn open_streams(self: &Arc<Self>) {
        let listens = self.notices.upgrade().is_some_and(|notices| notices.has_subscribers());
        let mut state = self.state();
        for link in state.links.values_mut() {
            link.start_posts(self);
            if listens {
                link.open_stream(self);
            }
        }
    }
}

/// Reads the records every interval while this process takes part.
async fn run(weak: Weak<Shared>) {
    let mut read_at: Option<Duration> = None;
    loop {
        let Some(shared) = weak.upgrade() else { return };
        let (clock, interval) = (Arc::clone(&shared.settings.clock), shared.settings.interval);
        let now = clock.boot();
        let age = read_at.map_or(Duration::MAX, |at| now.saturating_sub(at));
        let is_stale = age >= interval || (age >= REFRESH_MIN && shared.is_stale.load(Ordering::Acquire));
        let mut wait = interval.saturating_sub(age);
        if is_stale && shared.is_used() {
            shared.is_stale.store(false, Ordering::Release);
            read_at = Some(now);
            wait = interval;
            if let Err(error) = shared.round().await {
                debug!(%error, "records of servers could not be read; again soon");
                shared.is_stale.store(true, Ordering::Release);
                wait = interval / 6;
            }
        } else if is_stale {
            // The streams are unused now.
            let mut state = shared.state();
            (state.links, state.is_known) = (BTreeMap::new(), false);
            read_at = None;
            wait = Duration::MAX;
        } else if shared.is_stale.load(Ordering::Acquire) {
            wait = REFRESH_MIN.saturating_sub(age);
        }
        shared.open_streams();
        let wake = Arc::clone(&shared.wake);
        drop(shared);
        match wait {
            Duration::MAX => wake.notified().await,
            wait => {
                tokio::select! {
                    biased;
                    () = wake.notified() => {}
                    () = clock.sleep(wait) => {}
                }
            }
        }
    }
}
