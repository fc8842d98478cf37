//! Membership of servers on the same store: heartbeats, URLs and takeover notices.
//!
//! Hubs do not forward messages to each other. Each knows its peers, so that an ask for an actor of another server
//! is answered with its URL.
//!
//! Holds: a server writes its record every interval, and counts as running while its record changes, as far as the last
//! successful read shows. A server that starts while others run delays its first registration until they have seen it. A server that
//! could not write its record in time closes its sessions, because others may have queued messages for their addresses.
//! Nothing is written before the hub is used.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tracing::warn;
use wigwag_hub::key::{ActorRecord, SERVERS, ServerRecord, TakenRecord};
use wigwag_hub::{Place, key};
use wigwag_store::limits::LIST_PAGE;
use wigwag_store::{Batch, Clock as _, Store, System};

use super::keep::{Result, failed};

/// A server whose record has not changed for this many intervals is not running.
const BEATS_MISSED_MAX: u32 = 4;

/// The record of a server that has not run for this many intervals is removed.
const FORGOTTEN_AFTER: u32 = 1_000;

/// Progress of joining the other servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The other servers are not known yet.
    New,
    /// This server knows the others.
    Known,
    /// The others know this server, too.
    Settled,
}

/// Another server on the same store.
#[derive(Debug)]
struct Other {
    url: Option<String>,
    beat: u64,
    /// When its record was last seen to have changed.
    seen_at: Duration,
}

/// The other servers, as of the last successful read.
#[derive(Debug, Default)]
struct Others {
    all: BTreeMap<String, Other>,
    read_at: Duration,
}

/// Identifies this server to clients and other servers.
#[derive(Debug, Default)]
struct Identity {
    url: Option<String>,
    instance: Option<String>,
}

#[derive(Debug)]
pub(super) struct Peers {
    server: String,
    identity: OnceLock<Identity>,
    interval: Duration,
    others: Mutex<Others>,
    /// The hub is in use, so heartbeats start.
    wanted: Notify,
    stage: watch::Sender<Stage>,
}

impl Peers {
    pub(super) fn new(server: String, interval: Duration) -> Self {
        let stage = watch::Sender::new(Stage::New);
        Self { server, identity: OnceLock::new(), interval, others: Mutex::default(), wanted: Notify::new(), stage }
    }

    /// Sets where clients reach this server, and where it listens.
    pub(super) fn announce(&self, url: Option<String>, addr: Option<SocketAddr>) {
        let _ = self.identity.set(Identity { url, instance: addr.and_then(instance) });
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    fn identity(&self) -> &Identity {
        self.identity.get_or_init(Identity::default)
    }

    pub(super) fn url(&self) -> Option<String> {
        self.identity().url.clone()
    }

    fn others(&self) -> std::sync::MutexGuard<'_, Others> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn has_others(&self) -> bool {
        let others = self.others();
        others.all.values().any(|other| self.is_running(other, others.read_at))
    }

    /// Whether a server was running at a time.
    fn is_running(&self, other: &Other, at: Duration) -> bool {
        other.seen_at + self.interval * BEATS_MISSED_MAX > at
    }

    /// Returns the other server of an address's last registration, if it is running.
    pub(super) fn place_of(&self, record: &ActorRecord) -> Option<Place> {
        let server = record.server.as_ref().filter(|server| **server != self.server)?;
        let others = self.others();
        let other = others.all.get(server).filter(|other| self.is_running(other, others.read_at))?;
        Some(Place { url: other.url.clone() })
    }

    async fn reach(&self, stage: Stage) {
        if *self.stage.borrow() >= stage {
            return;
        }
        self.wanted.notify_one();
        let _ = self.stage.subscribe().wait_for(|now| *now >= stage).await;
    }

    /// Waits until the other servers are known.
    pub(super) async fn known(&self) {
        self.reach(Stage::Known).await;
    }

    /// Waits until the other servers know this one.
    pub(super) async fn settled(&self) {
        self.reach(Stage::Settled).await;
    }

    /// Writes heartbeats until the server stops. Calls `taken` for each takeover notice, and `lapsed` if other servers may have
    /// taken this one for dead.
    pub(super) async fn run(&self, store: &dyn Store, taken: impl Fn(TakenRecord) + Sync, lapsed: impl Fn() + Sync) {
        self.wanted.notified().await;
        let mut written: Option<Duration> = None;
        for beat in 0_u64.. {
            let begun = System.boot();
            match self.round(store, beat, &taken).await {
                Ok(()) => {
                    let last = written.replace(begun);
                    let is_late = last.is_some_and(|last| begun - last > self.interval * (BEATS_MISSED_MAX - 1));
                    if is_late && self.has_others() {
                        lapsed();
                    }
                }
                Err(error) => warn!(%error, "the hub's peers could not be read"),
            }
            // A failing store must not block registrations here; they will fail with the store's error.
            self.stage.send_if_modified(|stage| {
                *stage < Stage::Known && {
                    *stage = Stage::Known;
                    true
                }
            });
            let is_settled = *self.stage.borrow() == Stage::Settled;
            if !is_settled {
                if self.has_others() {
                    System.sleep(self.interval + self.interval / 2).await;
                }
                self.stage.send_replace(Stage::Settled);
                continue;
            }
            System.sleep(self.interval).await;
        }
    }

    /// Writes this server's record, and reads other records and takeover notices.
    async fn round(&self, store: &dyn Store, beat: u64, taken: &(impl Fn(TakenRecord) + Sync)) -> Result<()> {
        let Identity { url, instance } = self.identity();
        let own = ServerRecord { url: url.clone(), beat, instance: instance.clone() };
        let body = serde_json::to_vec(&own).map_err(failed)?;
        store.write(Batch::new().put(key::server(&self.server), body)).await.map_err(failed)?;
        let (mut after, mut found) = (String::new(), Vec::new());
        loop {
            let page = store.list(SERVERS, &after, LIST_PAGE).await.map_err(failed)?;
            found.extend(page.entries.iter().map(|listed| listed.key.clone()));
            match page.entries.last() {
                Some(last) if page.more => after.clone_from(&last.key),
                _ => break,
            }
        }
        let told = key::taken_from(&self.server);
        for key in &found {
            if key.starts_with(&told) {
                if let Some(record) = readable(store, key).await? {
                    taken(record);
                }
                store.write(Batch::new().delete(key)).await.map_err(failed)?;
            } else if let Some(server) = key::server_of(key).filter(|server| *server != self.server) {
                self.meet(store, server, key).await?;
            }
        }
        let mut others = self.others();
        others.all.retain(|server, _| found.contains(&key::server(server)));
        others.read_at = System.boot();
        Ok(())
    }

    /// Reads the record of another server.
    async fn meet(&self, store: &dyn Store, server: &str, key: &str) -> Result<()> {
        let Some(ServerRecord { url, beat, instance }) = readable(store, key).await? else { return Ok(()) };
        let now = System.boot();
        let is_former = instance.is_some() && instance == self.identity().instance;
        let is_forgotten = {
            let mut others = self.others();
            let other =
                others.all.entry(server.to_owned()).or_insert_with(|| Other { url: url.clone(), beat, seen_at: now });
            if other.beat != beat {
                *other = Other { url, beat, seen_at: now };
            }
            let is_forgotten = is_former || other.seen_at + self.interval * FORGOTTEN_AFTER < now;
            if is_forgotten {
                others.all.remove(server);
            }
            is_forgotten
        };
        if is_forgotten {
            store.write(Batch::new().delete(key)).await.map_err(failed)?;
        }
        Ok(())
    }

    /// Removes the record of this server at a graceful stop.
    pub(super) async fn leave(&self, store: &dyn Store) {
        if *self.stage.borrow() > Stage::New {
            let _ = store.write(Batch::new().delete(key::server(&self.server))).await;
        }
    }
}

/// Reads a record. A damaged one counts as missing, so that it does not hide the others.
async fn readable<T: serde::de::DeserializeOwned>(store: &dyn Store, key: &str) -> Result<Option<T>> {
    let Some(object) = store.get(key).await.map_err(failed)? else { return Ok(None) };
    let read = serde_json::from_slice(&object.body);
    Ok(read.inspect_err(|error| warn!(%error, key, "a record of the hub's peers is damaged")).ok())
}

/// Identifies a server by its machine and listening address. Two running servers never share them; a URL may be that of a load
/// balancer, or a loopback address on two machines.
fn instance(addr: SocketAddr) -> Option<String> {
    let kernel = |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).ok();
    let (boot, host) = (kernel("random/boot_id")?, kernel("hostname")?);
    Some(format!("{}/{}/{addr}", boot.trim(), host.trim()))
}
