//! The turns of one engine: which runs it drives, how many more it may drive, and how it stops.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
pub(crate) use wigwag_core::turn::phase::Stop;
use wigwag_core::{RunRef, TaskSpec, TypeName};

use super::{EngineCore, lock};
use crate::mailbox::Mailbox;
use crate::workflow::Workflow;

/// The turns of one engine, and the permits for more.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Runs that this engine drives.
    active: Mutex<HashMap<RunRef, Arc<Handle>>>,
    /// Number of tasks that drive them, including those about to end.
    driving: AtomicUsize,
    /// Permits for runs that this engine may drive in addition.
    pub(crate) permits: Arc<Semaphore>,
    pub(crate) stopping: watch::Sender<Stop>,
    /// Notified whenever a turn has ended.
    pub(crate) idle: Notify,
    /// Wake-ups that a turn was notified of and did not check.
    given_back: Mutex<Vec<String>>,
    /// Notified when a turn returns wake-ups to the dispatcher.
    pub(crate) again: Notify,
    /// Lease wake-ups of turns that this worker abandoned because the disk was full: the lease binds no worker.
    abandoned: Mutex<HashSet<String>>,
    /// The dispatcher scans the due index: this engine claims runs.
    pub(crate) claims_runs: AtomicBool,
}

impl Turns {
    pub(super) fn new(max: usize) -> Self {
        Self {
            active: Mutex::default(),
            driving: AtomicUsize::new(0),
            permits: Arc::new(Semaphore::new(max)),
            stopping: watch::Sender::new(Stop::No),
            idle: Notify::new(),
            given_back: Mutex::default(),
            again: Notify::new(),
            abandoned: Mutex::default(),
            claims_runs: AtomicBool::new(false),
        }
    }
}

/// Counts a task that drives a run for as long as it is kept.
#[derive(Debug)]
pub(crate) struct Driving(Arc<EngineCore>);

impl Drop for Driving {
    fn drop(&mut self) {
        self.0.turns.driving.fetch_sub(1, Ordering::AcqRel);
        self.0.turns.idle.notify_waiters();
    }
}

/// A run that this engine drives: where notifications for its turn go.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) mailbox: Arc<Mailbox>,
    /// Wake-ups that were found while the run was driven; its turn deletes them. `None` once the turn has ended.
    hints: Mutex<Option<BTreeSet<String>>>,
    poked: AtomicBool,
    /// Whether the final entry is durable: new waiters of the end then read the log.
    ended: AtomicBool,
}

impl Handle {
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self {
            mailbox,
            hints: Mutex::new(Some(BTreeSet::new())),
            poked: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// Notifies the turn to check its sources, with the wake-up that was found; returns whether the turn still exists.
    pub(crate) fn poke(&self, hint: Option<&str>) -> bool {
        match &mut *lock(&self.hints) {
            None => return false,
            Some(hints) => hints.extend(hint.map(str::to_owned)),
        }
        self.poked.store(true, Ordering::Release);
        self.mailbox.wake();
        true
    }

    /// Notes that the final entry is durable.
    pub(crate) fn note_end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    pub(crate) fn is_poked(&self) -> bool {
        self.poked.load(Ordering::Acquire)
    }

    pub(crate) fn take_poke(&self) -> bool {
        self.poked.swap(false, Ordering::AcqRel)
    }

    /// Removes and returns the wake-ups. The caller may delete them only if it checks all sources afterwards or keeps another.
    pub(crate) fn take_hints(&self) -> Vec<String> {
        lock(&self.hints).as_mut().map(std::mem::take).unwrap_or_default().into_iter().collect()
    }

    /// Closes the handle at the end of its turn; returns the wake-ups that the turn did not check.
    fn close(&self) -> Vec<String> {
        lock(&self.hints).take().unwrap_or_default().into_iter().collect()
    }
}

impl EngineCore {
    /// Returns the code for a run of that type and a permit, if this engine can drive the run now.
    pub(crate) fn can_drive(
        &self,
        of: &TypeName,
        task: Option<&TaskSpec>,
    ) -> Option<(Arc<Workflow>, OwnedSemaphorePermit)> {
        if !self.turns.claims_runs.load(Ordering::Acquire) || self.stop() != Stop::No {
            return None;
        }
        let workflow = self.registry.find(of, task)?;
        let permit = Arc::clone(&self.turns.permits).try_acquire_owned().ok()?;
        Some((Arc::clone(workflow), permit))
    }

    /// Registers the turn that holds the run.
    pub(crate) fn activate(&self, run: &RunRef, handle: &Arc<Handle>) {
        lock(&self.turns.active).insert(run.clone(), Arc::clone(handle));
    }

    /// Registers a turn that is about to claim the run, unless another holds it; returns whether this one is registered.
    pub(crate) fn about_to_activate(&self, run: &RunRef, handle: &Arc<Handle>) -> bool {
        let mut active = lock(&self.turns.active);
        Arc::ptr_eq(active.entry(run.clone()).or_insert_with(|| Arc::clone(handle)), handle)
    }

    /// Removes a turn that has ended. Wake-ups that it did not check go back to the dispatcher.
    pub(crate) fn deactivate(&self, run: &RunRef, handle: &Arc<Handle>) {
        let mut active = lock(&self.turns.active);
        if active.get(run).is_some_and(|there| Arc::ptr_eq(there, handle)) {
            active.remove(run);
        }
        drop(active);
        let left = handle.close();
        if !left.is_empty() {
            lock(&self.turns.given_back).extend(left);
            self.turns.again.notify_one();
        }
        self.turns.idle.notify_waiters();
    }

    /// Lets this worker claim a run again before its own lease ends. The lease wake-up names the abandoned turn.
    pub(crate) fn abandon(&self, lease_hint: &str) {
        lock(&self.turns.abandoned).insert(lease_hint.to_owned());
    }

    pub(crate) fn is_abandoned(&self, lease_hint: &str) -> bool {
        lock(&self.turns.abandoned).contains(lease_hint)
    }

    pub(crate) fn forget_abandoned(&self, lease_hint: &str) {
        lock(&self.turns.abandoned).remove(lease_hint);
    }

    pub(crate) fn take_given_back(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.turns.given_back))
    }

    pub(crate) fn active(&self, run: &RunRef) -> Option<Arc<Handle>> {
        lock(&self.turns.active).get(run).cloned()
    }

    /// Counts a task that drives a run until the result is dropped.
    pub(crate) fn begin_to_drive(engine: &Arc<Self>) -> Driving {
        engine.turns.driving.fetch_add(1, Ordering::AcqRel);
        Driving(Arc::clone(engine))
    }

    /// Returns whether no run is driven and all tasks that drove one have ended.
    pub(crate) fn is_at_rest(&self) -> bool {
        self.active_count() == 0 && self.turns.driving.load(Ordering::Acquire) == 0
    }

    pub(crate) fn active_count(&self) -> usize {
        lock(&self.turns.active).len()
    }

    /// Sets how far the engine stops, and wakes all turns.
    pub(crate) fn set_stop(&self, stop: Stop) {
        self.turns.stopping.send_replace(stop);
        for handle in lock(&self.turns.active).values() {
            handle.mailbox.wake();
        }
    }

    pub(crate) fn stop(&self) -> Stop {
        *self.turns.stopping.borrow()
    }
}
