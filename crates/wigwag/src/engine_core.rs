//! State that the parts of one engine share, by concern: [`turns`] (the runs it drives), [`ends`] (callers that wait for
//! the end of runs), [`time`] (the store's time), and the state of senders and caches.

mod ends;
mod time;
mod turns;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::try_join_all;
use wigwag_core::{Data, Hint, Key, Path, Payload, Run, RunId, RunRef, Time, TypeName, kind_of, limits, shard_of};
use wigwag_store::{Batch, Clock, Notices, Store};

use self::ends::EndWaiters;
use self::time::LastRead;
pub(crate) use self::time::{Now, time};
use self::turns::Turns;
pub(crate) use self::turns::{Handle, Stop};
use crate::Settings;
use crate::error::{Error, Result};
use crate::tally::Counted;
use crate::workflow::Registry;

/// State shared by the dispatcher, turns, services and clients of one engine.
#[derive(Debug)]
pub(crate) struct EngineCore {
    pub(crate) store: Arc<dyn Store>,
    /// Notifications of this process, where the store itself announces none.
    pub(crate) notices: Option<Notices>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    pub(crate) registry: Registry,
    /// Name of this engine among all workers of the store.
    pub(crate) worker: String,
    /// Name of this process among its peers, where the store knows which of them live.
    pub(crate) peer: Option<String>,
    /// Number of shards of the due index.
    pub(crate) shards: u16,
    /// Whether new run ids begin with random characters.
    pub(crate) scatters_ids: bool,
    nonces: AtomicU64,
    last_read: LastRead,
    pub(crate) turns: Turns,
    pub(crate) ends: EndWaiters,
    pub(crate) senders: Senders,
    pub(crate) caches: Caches,
    /// Injected failures of tests, by step.
    #[cfg(feature = "testing")]
    pub(crate) failures: Mutex<HashMap<String, std::collections::VecDeque<crate::Failure>>>,
}

/// Process-wide state for sending signals.
#[derive(Debug, Default)]
pub(crate) struct Senders {
    /// Stamp of the last signal that this process sent.
    pub(crate) last_stamp: Mutex<Time>,
    /// Workflows whose code did not consume a signal by inline delivery, with the end of their backoff, by the clock
    /// that counts suspended time.
    pub(crate) inline_backoff: Mutex<HashMap<TypeName, Duration>>,
}

/// Stored or derived data that this process keeps to save requests and work.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    /// Workflows that some worker is known to have registered.
    pub(crate) registered: Mutex<HashSet<TypeName>>,
    /// Definitions by their hash.
    pub(crate) definitions: Mutex<HashMap<String, Arc<wigwag_core::Definition>>>,
    pub(crate) schemas: crate::schema::Schemas,
    pub(crate) misfits: crate::misfits::MisfitCache,
    /// Wake-ups that children of this process put for their parents, and when they are due.
    pub(crate) wakes: Mutex<HashMap<RunRef, Time>>,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EngineCore {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        settings: Settings,
        registry: Registry,
        shards: u16,
    ) -> Self {
        let scatters_ids = !store.traits().atomic;
        let peer = store.peers().map(|peers| peers.me().to_owned());
        let chance = fastrand::u32(..);
        let worker = match &peer {
            Some(peer) => format!("{peer}-{chance:x}"),
            None => format!("w{:x}-{chance:08x}", clock.wall().micros()),
        };
        Self {
            store: Arc::new(Counted::new(store)),
            notices: None,
            clock,
            registry,
            worker,
            peer,
            shards,
            scatters_ids,
            nonces: AtomicU64::new(0),
            last_read: LastRead::default(),
            turns: Turns::new(settings.turns_max),
            ends: EndWaiters::default(),
            senders: Senders::default(),
            caches: Caches::default(),
            #[cfg(feature = "testing")]
            failures: Mutex::default(),
            settings,
        }
    }

    /// Returns a number that no other write of this engine has.
    pub(crate) fn nonce(&self) -> u64 {
        self.nonces.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns a writer id that no other write has.
    pub(crate) fn by(&self) -> String {
        format!("{}.{}", self.worker, self.nonce())
    }

    /// Returns a wake-up due at that time, with its body.
    pub(crate) fn hint(&self, of: &TypeName, run: &RunRef, due: Time) -> (Hint, Bytes) {
        self.hint_named(of, run, due, format!("{}.{}", short(&self.worker), self.nonce()))
    }

    /// Returns the wake-up at the end of this worker's lease, with its body.
    pub(crate) fn lease_hint(&self, of: &TypeName, run: &RunRef, due: Time) -> (Hint, Bytes) {
        self.hint_named(of, run, due, Hint::lease_nonce(&self.worker, self.nonce()))
    }

    fn hint_named(&self, of: &TypeName, run: &RunRef, due: Time, nonce: String) -> (Hint, Bytes) {
        let shard = shard_of(&run.id, self.shards);
        let hint = Hint { shard, due, kind: kind_of(of), run: run.id.clone(), nonce };
        (hint, facts(of, run))
    }

    /// Returns the injected failure of a test at this step, if there is one.
    #[cfg(feature = "testing")]
    pub(crate) fn injected(&self, path: &Path) -> Option<crate::Failure> {
        lock(&self.failures).get_mut(path.as_str())?.pop_front()
    }

    /// Returns nothing: only tests inject failures.
    #[cfg(not(feature = "testing"))]
    #[expect(clippy::unused_self, reason = "the same call as in tests")]
    pub(crate) fn injected(&self, _path: &Path) -> Option<crate::Failure> {
        None
    }

    /// Returns whether the process of that name lives; `None` where the store does not know.
    pub(crate) fn peer_lives(&self, peer: &str) -> Option<bool> {
        self.store.peers().map(|peers| peers.is_alive(peer))
    }

    /// Returns a payload, read from a separate object if it is large.
    pub(crate) async fn payload(&self, run: &RunRef, point: Option<&Path>, data: &Data) -> Result<Payload> {
        let blob = match data {
            Data::Inline(payload) => return Ok(payload.clone()),
            Data::Blob(blob) => blob,
        };
        let key = Key::blob(run, point, &blob.nonce).to_string();
        let object = crate::log::get_named(&*self.store, &key)
            .await?
            .ok_or_else(|| Error::damaged(format!("`{key}` is missing, which the log of `{run}` names")))?;
        serde_json::from_slice(&object.body).map_err(|error| Error::unreadable(&key, error))
    }

    /// Deletes any number of objects, in as few batches as possible.
    pub(crate) async fn delete_all(&self, keys: impl IntoIterator<Item = String>) -> Result<()> {
        let keys: Vec<String> = keys.into_iter().collect();
        for keys in keys.chunks(limits::current().batch_operations_max) {
            self.store.write(keys.iter().fold(Batch::new(), Batch::delete)).await?;
        }
        Ok(())
    }

    /// Puts objects that do not depend on each other: in one batch on an atomic store, else concurrently.
    pub(crate) async fn put_all(&self, puts: impl IntoIterator<Item = (String, Bytes)>) -> Result<()> {
        let puts = puts.into_iter();
        if self.store.traits().atomic {
            let batch = puts.fold(Batch::new(), |batch, (key, body)| batch.put(key, body));
            return if batch.operations().is_empty() { Ok(()) } else { Ok(self.store.write(batch).await.map(drop)?) };
        }
        let writes = puts.map(|(key, body)| self.store.write(Batch::new().put(key, body)));
        Ok(try_join_all(writes).await.map(drop)?)
    }

    /// Returns a new run id. It starts with the time; on a bucket with random characters, so that keys
    /// spread over partitions.
    pub(crate) async fn new_id(&self) -> Result<RunId> {
        let (now, chance) = (self.recent_now().await?, fastrand::u128(..));
        Ok(if self.scatters_ids { RunId::scattered(now, chance) } else { RunId::at(now, chance) })
    }

    pub(crate) fn live(&self, run: &Run) -> (String, Bytes) {
        let of = run.index_type();
        (Key::Live { of: of.clone(), run: run.run.id.clone() }.to_string(), facts(&of, &run.run))
    }
}

/// Returns enough of a worker's name to distinguish its wake-ups from those of other workers.
fn short(worker: &str) -> &str {
    &worker[worker.len().saturating_sub(40)..]
}

/// Returns the body of an index object: the values that its key only hashes.
pub(crate) fn facts(of: &TypeName, run: &RunRef) -> Bytes {
    format!("{{\"type\":\"{of}\",\"run\":\"{run}\"}}\n").into()
}
