//! The dispatcher: finds runs that are due, by notifications where the store sends them, else by polling the due index.
//!
//! Holds: a wake-up is deleted only after its run has another, or has ended. A wake-up that leads to no work for this
//! worker stays in the index, and scans skip it for a while.

mod claim;
mod membership;
mod scan;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{mpsc, oneshot};
use tracing::warn;
use wigwag_core::{Family, Hint, Key, RunId, RunRef, Time};
use wigwag_store::{Batch, Change, Changes};

use self::membership::{Membership, peer_of};
use self::scan::Shard;
use crate::engine_core::{EngineCore, Handle, Stop};
use crate::error::{ErrorKind, Result};
use crate::limits::{
    CHANGES_TAKEN_MAX, DAMAGED_RETRY_DELAY, FAILED_CHECK_RETRY_DELAY, FINISHED_CHECKS_MAX, HANDED_OVER_FOR,
    SCAN_RETRY_DELAY,
};
use crate::tally;

/// The wake-ups of one run, the earliest first: one check of the run serves all of them.
type DueHints = Vec<(String, Hint)>;

/// The run of a wake-up: its id, and its kind in the index, which tells runs and tasks of one id apart.
type Target = (RunId, String);

/// A request to the dispatcher.
#[derive(Debug)]
pub(crate) enum Ask {
    /// Resolves when no run is due and none is driven.
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only test kits ask"))]
    Idle(oneshot::Sender<()>),
}

/// Finds runs that are due and starts their turns.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    inner: Arc<EngineCore>,
    shards: Vec<Shard>,
    /// Runs to check.
    queue: VecDeque<Target>,
    /// Wake-ups of the queued runs, and of runs that are being checked, for their next check.
    pending: HashMap<Target, DueHints>,
    /// Wake-ups that are pending or being checked.
    in_hand: HashSet<String>,
    /// Runs that are being checked.
    checking: HashSet<Target>,
    /// Wake-ups that lead to no work for this worker until the given time.
    passed: HashMap<String, Time>,
    /// Lease wake-ups of abandoned turns to check again, and when. A scan does not find them: they are not due yet.
    retries: Vec<(Duration, String)>,
    finished: mpsc::Receiver<FinishedCheck>,
    finish: mpsc::Sender<FinishedCheck>,
    asks: mpsc::Receiver<Ask>,
    idlers: Vec<oneshot::Sender<()>>,
    /// Runs that do not fit the code, and since when this is known.
    misfits: HashMap<RunRef, Duration>,
    membership: Membership,
}

/// A check of one run that has finished.
#[derive(Debug)]
struct FinishedCheck {
    target: Target,
    hints: DueHints,
    run: RunRef,
    outcome: CheckOutcome,
}

/// Outcome of the check of one run.
#[derive(Debug)]
enum CheckOutcome {
    /// The wake-ups are settled: they were deleted, or the run is driven here.
    Done,
    /// There is no work for this worker until the given time.
    Pass(Time),
    /// The run does not fit the code of this worker; checked again at the given time.
    Misfit(Time),
}

pub(crate) async fn run(inner: Arc<EngineCore>, asks: mpsc::Receiver<Ask>) {
    let changes = inner.store.changes("due/");
    let dispatcher = Dispatcher::new(inner, asks);
    dispatcher.run(changes).await;
}

impl Dispatcher {
    fn new(inner: Arc<EngineCore>, asks: mpsc::Receiver<Ask>) -> Self {
        let boot = inner.clock.boot();
        let pause = inner.settings.look_min;
        let shards = (0..inner.shards).map(|number| Shard::new(number, boot, pause)).collect();
        let (finish, finished) = mpsc::channel(FINISHED_CHECKS_MAX);
        Self {
            inner,
            shards,
            queue: VecDeque::new(),
            pending: HashMap::new(),
            in_hand: HashSet::new(),
            checking: HashSet::new(),
            passed: HashMap::new(),
            retries: Vec::new(),
            finished,
            finish,
            asks,
            idlers: Vec::new(),
            misfits: HashMap::new(),
            membership: Membership::new(boot),
        }
    }

    async fn run(mut self, mut changes: Changes) {
        let mut stopping = self.inner.turns.stopping.subscribe();
        loop {
            if self.inner.stop() != Stop::No {
                break;
            }
            if let Err(error) = self.scan().await {
                warn!(%error, "the due index could not be listed; retrying");
                self.inner.clock.sleep(SCAN_RETRY_DELAY).await;
            }
            self.start_checks().await;
            self.answer_idlers();
            let span = self.until_next_scan();
            if span.is_zero() {
                // More of the index is to be listed right now.
                tokio::task::yield_now().await;
                continue;
            }
            let clock = Arc::clone(&self.inner.clock);
            let permits = Arc::clone(&self.inner.turns.permits);
            let busy = self.inner.turns.permits.available_permits() == 0 && !self.queue.is_empty();
            tokio::select! {
                biased;
                _ = stopping.wait_for(|stop| *stop != Stop::No) => {}
                Some(check) = self.finished.recv() => self.finish_check(check),
                Some(Ask::Idle(answer)) = self.asks.recv() => {
                    self.idlers.push(answer);
                    self.list_all_soon();
                }
                change = changes.next() => {
                    self.take_change(change);
                    // All notifications that have arrived are handled together.
                    for _ in 0..CHANGES_TAKEN_MAX {
                        let Some(change) = changes.next().now_or_never() else { break };
                        self.take_change(change);
                    }
                }
                () = self.inner.turns.again.notified() => self.take_given_back(),
                _ = permits.acquire_owned(), if busy => {}
                () = self.inner.turns.idle.notified(), if !self.idlers.is_empty() => {}
                () = clock.sleep(span) => {}
            }
        }
        self.leave().await;
    }

    /// Handles a notification: a due wake-up is enqueued without a scan.
    fn take_change(&mut self, change: Change) {
        let Change::Put(key) = change else {
            self.membership.living.clear();
            return self.list_all_soon();
        };
        if self.is_own_lease(&key) {
            return;
        }
        let Ok(Key::Due(hint)) = key.parse::<Key>() else { return };
        if let Some(owner) = hint.owner().filter(|_| self.inner.peer.is_some())
            && !self.membership.claimants.contains(peer_of(owner))
        {
            self.membership.claimants.insert(peer_of(owner).to_owned());
        }
        let now = self.inner.about_now();
        if hint.due > now {
            let at = self.inner.clock.boot() + hint.due.since(now);
            if let Some(shard) = self.shards.get_mut(usize::from(hint.shard)) {
                shard.list_at = shard.list_at.min(at);
            }
        } else {
            self.enqueue(key, hint);
        }
    }

    /// Returns whether a key is the lease wake-up of this worker itself. Most wake-ups are; other workers need them only after it died.
    fn is_own_lease(&self, key: &str) -> bool {
        let own = key.rsplit_once("~o.").and_then(|(_, nonce)| nonce.strip_prefix(self.inner.worker.as_str()));
        own.is_some_and(|rest| rest.starts_with('.'))
    }

    fn take_given_back(&mut self) {
        for key in self.inner.take_given_back() {
            if let Ok(Key::Due(hint)) = key.parse::<Key>() {
                self.passed.remove(&key);
                self.enqueue(key, hint);
            }
        }
    }

    fn enqueue(&mut self, key: String, hint: Hint) {
        if self.inner.registry.families(&hint.kind).is_empty() || self.in_hand.contains(&key) {
            return;
        }
        if self.passed.get(&key).is_some_and(|until| *until > self.inner.about_now()) {
            return;
        }
        self.in_hand.insert(key.clone());
        let target = (hint.run.clone(), hint.kind.clone());
        let pending = self.pending.entry(target.clone()).or_default();
        pending.push((key, hint));
        if pending.len() == 1 && !self.checking.contains(&target) {
            self.queue.push_back(target);
        }
    }

    fn finish_check(&mut self, check: FinishedCheck) {
        let FinishedCheck { target, hints, run, outcome } = check;
        self.checking.remove(&target);
        if self.pending.contains_key(&target) {
            self.queue.push_back(target);
        }
        hints.iter().for_each(|(key, _)| _ = self.in_hand.remove(key));
        let until = match outcome {
            CheckOutcome::Done => {
                hints.iter().for_each(|(key, _)| _ = self.passed.remove(key));
                self.misfits.remove(&run);
                hints.iter().for_each(|(key, _)| self.inner.forget_abandoned(key));
                return;
            }
            CheckOutcome::Pass(until) => until,
            CheckOutcome::Misfit(until) => {
                let boot = self.inner.clock.boot();
                self.misfits.entry(run).or_insert(boot);
                until
            }
        };
        let at = self.inner.clock.boot() + until.since(self.inner.about_now());
        for (key, hint) in hints {
            if let Some(shard) = self.shards.get_mut(usize::from(hint.shard)) {
                shard.list_at = shard.list_at.min(at);
            }
            match self.inner.is_abandoned(&key) {
                true => self.retries.push((at, key)),
                false => _ = self.passed.insert(key, until),
            }
        }
    }

    /// Starts checks of queued runs while there are permits for turns.
    async fn start_checks(&mut self) {
        while let Some(target) = self.queue.pop_front() {
            let Some(mut hints) = self.pending.remove(&target) else { continue };
            let families = self.inner.registry.families(&target.1).to_vec();
            let runs = families.iter().map(|family| RunRef { family: *family, id: target.0.clone() });
            if let Some(handle) = runs.clone().find_map(|run| self.inner.active(&run)) {
                self.hand_over(&handle, &mut hints);
            }
            if hints.is_empty() {
                continue;
            }
            let Ok(permit) = Arc::clone(&self.inner.turns.permits).try_acquire_owned() else {
                self.pending.insert(target.clone(), hints);
                self.queue.push_front(target);
                return;
            };
            let patience = runs.clone().find_map(|run| self.misfits.get(&run).copied());
            let first = RunRef { family: families.first().copied().unwrap_or(Family::Workflow), id: target.0.clone() };
            hints.sort_by_key(|(_, hint)| hint.due);
            self.checking.insert(target.clone());
            let (inner, finish) = (Arc::clone(&self.inner), self.finish.clone());
            tokio::spawn(async move {
                // The requests of the check are counted for the turn that may follow.
                let check = tally::counted(claim::check(&inner, &families, &hints, permit, patience));
                let outcome = std::panic::AssertUnwindSafe(check).catch_unwind().await.unwrap_or_else(|_| {
                    let what = format!("checking run `{}` panicked", first.id);
                    Err(crate::Error::new(ErrorKind::Damaged, what))
                });
                let outcome = outcome.unwrap_or_else(|error| {
                    // A run that cannot be read must not be checked in a loop.
                    let damaged = error.kind() == ErrorKind::Damaged;
                    let delay = if damaged { DAMAGED_RETRY_DELAY } else { FAILED_CHECK_RETRY_DELAY };
                    warn!(run = %first.id, %error, "a run that is due could not be checked; retrying in {delay:?}");
                    CheckOutcome::Pass(inner.about_now().after(delay))
                });
                let _ = finish.send(FinishedCheck { target, hints, run: first, outcome }).await;
            });
        }
    }

    /// Hands wake-ups to the turn of their run, which deletes them after its next check; keeps them if the turn just ended.
    fn hand_over(&mut self, handle: &Handle, hints: &mut DueHints) {
        let until = self.inner.about_now().after(HANDED_OVER_FOR);
        hints.retain(|(key, hint)| {
            // The wake-up of this worker's own lease is no news.
            let own = hint.owner() == Some(self.inner.worker.as_str());
            let handed = own || handle.poke(Some(key));
            if handed {
                self.in_hand.remove(key);
                self.passed.insert(key.clone(), until);
            }
            !handed
        });
    }

    fn answer_idlers(&mut self) {
        let boot = self.inner.clock.boot();
        let looking = self.shards.iter().any(|shard| shard.list_at <= boot);
        if self.queue.is_empty() && self.in_hand.is_empty() && !looking && self.inner.active_count() == 0 {
            for idler in self.idlers.drain(..) {
                let _ = idler.send(());
            }
        }
    }
}

/// Stores the definitions of this worker's workflows, for clients that have no code.
pub(crate) async fn store_definitions(inner: &EngineCore) -> Result<()> {
    for workflow in inner.registry.workflows() {
        let definition = &workflow.definition;
        let key = Key::Definition { of: definition.of.clone(), hash: definition.hash.clone() }.to_string();
        let mut body = serde_json::to_vec_pretty(definition).expect("a definition is JSON");
        body.push(b'\n');
        match inner.store.write(Batch::new().create(key, body)).await {
            Ok(_) => {}
            Err(error) if error.is_exists() || error.kind() == wigwag_store::ErrorKind::Unknown => {}
            Err(error) => return Err(error.into()),
        }
    }
    inner.turns.claims_runs.store(!inner.registry.is_empty(), Ordering::Release);
    Ok(())
}
