//! What all parts of one engine share.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use wigwag_core::{
    Data, Hint, Key, Path, Payload, Run, RunId, RunRef, TaskSpec, Time, TypeName, kind_of, limits, shard_of,
};
use wigwag_store::{Batch, Clock, Stamp, Store};

use crate::Settings;
use crate::error::{Error, Result};
use crate::mailbox::Mailbox;
use crate::tally::Counted;
use crate::workflow::{Registry, Workflow};

/// What all parts of one engine share.
#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    pub(crate) registry: Registry,
    /// This engine among all workers of the store.
    pub(crate) worker: String,
    /// This process among its peers, where they prove that they live.
    pub(crate) peer: Option<String>,
    pub(crate) shards: u16,
    count: AtomicU64,
    last: Mutex<(Time, Duration)>,
    /// Runs this engine drives.
    active: Mutex<HashMap<RunRef, Arc<Handle>>>,
    /// Tasks that drive them, until nothing is left of them.
    driving: AtomicUsize,
    /// Who waits here for the end of a run.
    waiters: Mutex<HashMap<RunRef, Vec<Waiter>>>,
    /// Ends of runs elsewhere are followed.
    pub(crate) follows_ends: AtomicBool,
    /// Types whose code did not take a signal with the commit that would have brought it, and until when that is not
    /// tried with them again, by the clock that counts suspended time.
    pub(crate) not_at_once: Mutex<HashMap<TypeName, Duration>>,
    /// How many more runs may be driven.
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) stopping: watch::Sender<Stop>,
    pub(crate) idle: Notify,
    /// Hints that a turn was told of and did not look at.
    given_back: Mutex<Vec<String>>,
    /// Lease hints of turns that this worker gave up because the disk was full: the lease binds nobody any more.
    abandoned: Mutex<HashSet<String>>,
    pub(crate) again: Notify,
    /// The due index is being watched: this engine takes runs.
    pub(crate) works: AtomicBool,
    /// Failures that tests asked for, by the step they happen at.
    #[cfg(feature = "testing")]
    pub(crate) failures: Mutex<HashMap<String, std::collections::VecDeque<crate::Failure>>>,
    /// Wake-ups that children of this process put for their parents: when they are due.
    /// The stamp that this process gave a signal last.
    pub(crate) last_sent: Mutex<Time>,
    /// Workflows that are known to be registered by some worker.
    pub(crate) registered: Mutex<HashSet<TypeName>>,
    /// Definitions that were read, by their hash.
    pub(crate) definitions: Mutex<HashMap<String, Arc<wigwag_core::Definition>>>,
    pub(crate) schemas: crate::schema::Schemas,
    pub(crate) misfits: crate::misfits::MisfitCache,
    pub(crate) wakes: Mutex<HashMap<RunRef, Time>>,
}

/// A task that drives a run.
#[derive(Debug)]
pub(crate) struct Driving(Arc<Inner>);

impl Drop for Driving {
    fn drop(&mut self) {
        self.0.driving.fetch_sub(1, Ordering::AcqRel);
        self.0.idle.notify_waiters();
    }
}

/// Where the end of a run is told, with the run if it ended here.
type Waiter = oneshot::Sender<Option<Arc<Run>>>;

/// How far stopping is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stop {
    /// All goes on.
    No,
    /// Nothing new begins.
    Drain,
    /// What runs is dropped, and all runs are given back.
    Now,
    /// Nothing is written any more, as if the process had died.
    Dead,
}

/// The store's time, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    pub(crate) at: Time,
    pub(crate) uncertainty: Duration,
}

/// A run that this engine drives, for those who want to tell it something.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) mailbox: Arc<Mailbox>,
    /// Hints that led here while the run was driven; its turn deletes them. `None` once the turn is over.
    hints: Mutex<Option<BTreeSet<String>>>,
    poked: AtomicBool,
}

impl Handle {
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self { mailbox, hints: Mutex::new(Some(BTreeSet::new())), poked: AtomicBool::new(false) }
    }

    /// Asks the turn to look at what came from outside; says whether there still is a turn.
    pub(crate) fn poke(&self, hint: Option<&str>) -> bool {
        match &mut *lock(&self.hints) {
            None => return false,
            Some(hints) => hints.extend(hint.map(str::to_owned)),
        }
        self.poked.store(true, Ordering::Release);
        self.mailbox.wake();
        true
    }

    pub(crate) fn is_poked(&self) -> bool {
        self.poked.load(Ordering::Acquire)
    }

    pub(crate) fn take_poke(&self) -> bool {
        self.poked.swap(false, Ordering::AcqRel)
    }

    /// Takes the hints that led here. Whoever deletes them must look at all sources after this, or stand on another.
    pub(crate) fn take_hints(&self) -> Vec<String> {
        lock(&self.hints).as_mut().map(std::mem::take).unwrap_or_default().into_iter().collect()
    }

    /// The turn is over: gives back the hints that nobody looked at.
    fn close(&self) -> Vec<String> {
        lock(&self.hints).take().unwrap_or_default().into_iter().collect()
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn time(stamp: Stamp) -> Time {
    Time::from_micros(stamp.micros())
}

impl Inner {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Arc<dyn Clock>,
        settings: Settings,
        registry: Registry,
        shards: u16,
    ) -> Self {
        let peer = store.peers().map(|peers| peers.me().to_owned());
        let chance = fastrand::u32(..);
        let worker = match &peer {
            Some(peer) => format!("{peer}-{chance:x}"),
            None => format!("w{:x}-{chance:08x}", clock.wall().micros()),
        };
        let permits = Arc::new(Semaphore::new(settings.turns_max));
        Self {
            store: Arc::new(Counted::new(store)),
            clock,
            settings,
            registry,
            worker,
            peer,
            shards,
            count: AtomicU64::new(0),
            last: Mutex::default(),
            active: Mutex::default(),
            driving: AtomicUsize::new(0),
            waiters: Mutex::default(),
            follows_ends: AtomicBool::new(false),
            permits,
            stopping: watch::Sender::new(Stop::No),
            idle: Notify::new(),
            given_back: Mutex::default(),
            abandoned: Mutex::default(),
            again: Notify::new(),
            works: AtomicBool::new(false),
            #[cfg(feature = "testing")]
            failures: Mutex::default(),
            last_sent: Mutex::default(),
            registered: Mutex::default(),
            definitions: Mutex::default(),
            schemas: crate::schema::Schemas::default(),
            misfits: crate::misfits::MisfitCache::default(),
            wakes: Mutex::default(),
            not_at_once: Mutex::default(),
        }
    }

    pub(crate) async fn now(&self) -> Result<Now> {
        let before = self.clock.boot();
        let now = self.store.now().await?;
        let at = time(now.at);
        *lock(&self.last) = (at, before);
        Ok(Now { at, uncertainty: now.uncertainty })
    }

    /// The store's time, asked if that was not done within the last second.
    pub(crate) async fn recent_now(&self) -> Result<Time> {
        let (at, boot) = *lock(&self.last);
        let age = self.clock.boot().saturating_sub(boot);
        if at > Time::default() && age < Duration::from_secs(1) { Ok(at.after(age)) } else { Ok(self.now().await?.at) }
    }

    /// About the store's time, without asking it: what it said last, and how long that is ago.
    pub(crate) fn about_now(&self) -> Time {
        let (at, boot) = *lock(&self.last);
        at.after(self.clock.boot().saturating_sub(boot))
    }

    /// A number that no other write of this engine has.
    pub(crate) fn nonce(&self) -> u64 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// What no other writer writes.
    pub(crate) fn by(&self) -> String {
        format!("{}.{}", self.worker, self.nonce())
    }

    pub(crate) fn stop(&self) -> Stop {
        *self.stopping.borrow()
    }

    /// A hint due at that time, with its body.
    pub(crate) fn hint(&self, of: &TypeName, run: &RunRef, due: Time) -> (Hint, Bytes) {
        self.hint_named(of, run, due, format!("{}.{}", short(&self.worker), self.nonce()))
    }

    /// The hint at the end of a lease of this worker.
    pub(crate) fn lease_hint(&self, of: &TypeName, run: &RunRef, due: Time) -> (Hint, Bytes) {
        self.hint_named(of, run, due, Hint::lease_nonce(&self.worker, self.nonce()))
    }

    fn hint_named(&self, of: &TypeName, run: &RunRef, due: Time, nonce: String) -> (Hint, Bytes) {
        let shard = shard_of(&run.id, self.shards);
        let hint = Hint { shard, due, kind: kind_of(of), run: run.id.clone(), nonce };
        (hint, facts(of, run))
    }

    /// The code for a run of that type and room to drive it here, if that can be at once.
    pub(crate) fn can_drive(
        &self,
        of: &TypeName,
        task: Option<&TaskSpec>,
    ) -> Option<(Arc<Workflow>, OwnedSemaphorePermit)> {
        if !self.works.load(Ordering::Acquire) || self.stop() != Stop::No {
            return None;
        }
        let workflow = self.registry.find(of, task)?;
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        Some((Arc::clone(workflow), permit))
    }

    /// A turn holds the run.
    pub(crate) fn activate(&self, run: &RunRef, handle: &Arc<Handle>) {
        lock(&self.active).insert(run.clone(), Arc::clone(handle));
    }

    /// A turn is about to claim the run; one that holds it keeps its place. Says whether it is this one.
    pub(crate) fn about_to_activate(&self, run: &RunRef, handle: &Arc<Handle>) -> bool {
        let mut active = lock(&self.active);
        Arc::ptr_eq(active.entry(run.clone()).or_insert_with(|| Arc::clone(handle)), handle)
    }

    /// A turn is over. Hints that led to it and were not looked at go back to the dispatcher.
    pub(crate) fn deactivate(&self, run: &RunRef, handle: &Arc<Handle>) {
        let mut active = lock(&self.active);
        if active.get(run).is_some_and(|there| Arc::ptr_eq(there, handle)) {
            active.remove(run);
        }
        drop(active);
        let left = handle.close();
        if !left.is_empty() {
            lock(&self.given_back).extend(left);
            self.again.notify_one();
        }
        self.idle.notify_waiters();
    }

    /// Lets this worker claim a run again before its own lease ends. The lease hint names the turn that was given up.
    pub(crate) fn abandon(&self, lease_hint: &str) {
        lock(&self.abandoned).insert(lease_hint.to_owned());
    }

    pub(crate) fn is_abandoned(&self, lease_hint: &str) -> bool {
        lock(&self.abandoned).contains(lease_hint)
    }

    pub(crate) fn forget_abandoned(&self, lease_hint: &str) {
        lock(&self.abandoned).remove(lease_hint);
    }

    pub(crate) fn take_given_back(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.given_back))
    }

    pub(crate) fn active(&self, run: &RunRef) -> Option<Arc<Handle>> {
        lock(&self.active).get(run).cloned()
    }

    /// A task drives a run for as long as this is kept.
    pub(crate) fn begin_to_drive(inner: &Arc<Self>) -> Driving {
        inner.driving.fetch_add(1, Ordering::AcqRel);
        Driving(Arc::clone(inner))
    }

    /// Whether nothing is driven, and all that did is gone.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.active_count() == 0 && self.driving.load(Ordering::Acquire) == 0
    }

    pub(crate) fn active_count(&self) -> usize {
        lock(&self.active).len()
    }

    /// Stops, as far as that is meant, and lets all turns know.
    pub(crate) fn set_stop(&self, stop: Stop) {
        self.stopping.send_replace(stop);
        for handle in lock(&self.active).values() {
            handle.mailbox.wake();
        }
    }

    /// Answers when this engine learns that the run ended, with the run if it ended here.
    pub(crate) fn wait_for_end(&self, run: &RunRef) -> oneshot::Receiver<Option<Arc<Run>>> {
        let (tell, told) = oneshot::channel();
        let mut waiters = lock(&self.waiters);
        let list = waiters.entry(run.clone()).or_default();
        list.retain(|waiter| !waiter.is_closed());
        list.push(tell);
        told
    }

    /// Tells those who wait for the run's end to look; or gives it to them.
    pub(crate) fn tell_end(&self, run: &RunRef, ended: impl FnOnce() -> Option<Run>) {
        let waiting = lock(&self.waiters).remove(run);
        if waiting.is_none() {
            return;
        }
        let ended = ended().map(Arc::new);
        for waiter in waiting.into_iter().flatten() {
            let _ = waiter.send(ended.clone());
        }
    }

    /// Tells all who wait for any run's end to look.
    pub(crate) fn tell_all(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiters));
        for waiter in waiting.into_values().flatten() {
            let _ = waiter.send(None);
        }
    }

    /// Forgets those who no longer wait.
    pub(crate) fn forget_waiters(&self, run: &RunRef) {
        let mut waiters = lock(&self.waiters);
        if let Some(list) = waiters.get_mut(run) {
            list.retain(|waiter| !waiter.is_closed());
            if list.is_empty() {
                waiters.remove(run);
            }
        }
    }

    /// The failure that a test asked for at this step, if it did.
    #[cfg(feature = "testing")]
    pub(crate) fn injected(&self, path: &Path) -> Option<crate::Failure> {
        lock(&self.failures).get_mut(path.as_str())?.pop_front()
    }

    /// No failure is asked for outside of tests.
    #[cfg(not(feature = "testing"))]
    #[expect(clippy::unused_self, reason = "the same call as in tests")]
    pub(crate) fn injected(&self, _path: &Path) -> Option<crate::Failure> {
        None
    }

    /// Whether the process of that name lives; `None` where nobody can say.
    pub(crate) fn peer_lives(&self, peer: &str) -> Option<bool> {
        self.store.peers().map(|peers| peers.is_alive(peer))
    }

    /// Reads a payload wherever it is.
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

    /// Deletes any number of objects, as many in one batch as a batch takes.
    pub(crate) async fn delete_all(&self, keys: impl IntoIterator<Item = String>) -> Result<()> {
        let keys: Vec<String> = keys.into_iter().collect();
        for keys in keys.chunks(limits::current().batch_operations_max) {
            self.store.write(keys.iter().fold(Batch::new(), Batch::delete)).await?;
        }
        Ok(())
    }

    /// An id that begins with the time.
    pub(crate) async fn new_id(&self) -> Result<RunId> {
        Ok(RunId::at(self.recent_now().await?, fastrand::u128(..)))
    }

    pub(crate) fn live(&self, run: &Run) -> (String, Bytes) {
        let of = run.index_type();
        (Key::Live { of: of.clone(), run: run.run.id.clone() }.to_string(), facts(&of, &run.run))
    }
}

/// Enough of a worker's name to tell its hints from those of others.
fn short(worker: &str) -> &str {
    &worker[worker.len().saturating_sub(40)..]
}

/// What an index object holds: all that its key only hashes.
pub(crate) fn facts(of: &TypeName, run: &RunRef) -> Bytes {
    format!("{{\"type\":\"{of}\",\"run\":\"{run}\"}}\n").into()
}
