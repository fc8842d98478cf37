//! One worker's claim on a run: from claim until the run parks or ends.
//!
//! The turn owns the run. Users' code runs in separate tasks ([`crate::scope`]) and requests steps. The turn gathers the
//! ready requests, stages them as events, commits one entry, and only then lets the code continue. It scans for signals,
//! control requests and results of children when it claims, when it renews and after it parks.
//!
//! What if we die here? Anywhere before a commit: no staged event took effect; the wake-up at the lease's end, stored
//! before the claim, leads the next worker to the run. After a commit: recorded steps are not run again. Steps that were
//! running are run again, under the same idempotency key.

mod advance;
mod bodies;
mod commit;
mod ended;
mod ends;
mod inbox;
mod lease;
mod mail;
mod park;
mod scan;
mod sources;
mod unrecordable;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinHandle;
use tracing::{Instrument as _, debug, warn};
use wigwag_core::deliberate_bug;
use wigwag_core::turn::ending::recorded_ending;
use wigwag_core::turn::park::{After, Before, is_held_up, timers_of};
use wigwag_core::turn::phase::{Claim, Phase};
use wigwag_core::turn::step::Attempt;
use wigwag_core::turn::waits::Waits;
use wigwag_core::{Data, Frontier, Hint, Key, Path, Payload, Retry, RunClaimed, RunRef, Style, Time};
use wigwag_store::Clear;

use crate::engine_core::{EngineCore, Handle};
use crate::error::{Error, Result};
use crate::log::{CommitError as Lost, CommitPlan, Log};
use crate::mailbox::{BodyId, Mailbox, Reply, Request, Slot, Spec};
use crate::scope::{Outputs, Scope};
use crate::spans;
use crate::workflow::Workflow;

pub(crate) use advance::task_of_step;
pub(crate) use ended::{complete_end, take_back_if_restarted};
pub(crate) use lease::NewLease;
pub(crate) use scan::{decide, names_waited_for, waiting_facts, waiting_key};
pub(crate) use sources::{EarlyList, Found, index_of_closed, look_at_sources};
pub(crate) use unrecordable::UNRECORDABLE;

/// One worker's exclusive drive of a run.
#[derive(Debug)]
pub(crate) struct Turn {
    inner: Arc<EngineCore>,
    workflow: Arc<Workflow>,
    log: Log,
    handle: Arc<Handle>,
    mail: Mail,
    code: Running,
    steps: Steps,
    waits: Waits,
    /// Signals and timeouts offered to waits of code, which the code has not accepted yet.
    offers: BTreeMap<Path, inbox::Offer>,
    claim: Claim,
    phase: Phase,
    plan: Plan,
    lease: HeldLease,
    now: Time,
    _permit: OwnedSemaphorePermit,
}

/// Requests of users' code.
#[derive(Debug)]
struct Mail {
    mailbox: Arc<Mailbox>,
    queue: VecDeque<Request>,
    /// Points that may not begin yet, because the run is paused or ends.
    held: Vec<Request>,
}

/// The running code of the run, and the state that its bodies share.
#[derive(Debug)]
struct Running {
    bodies: BTreeMap<BodyId, Body>,
    /// The function's own scope: it keeps how steps are compensated after the function returned.
    root: Option<Arc<Scope>>,
    /// The function begins once the staged entry is durable.
    begins: bool,
    outputs: Outputs,
    input: Payload,
    cancel: watch::Sender<bool>,
    /// Number of bodies spawned so far.
    spawned: u64,
}

/// Open points of the run.
#[derive(Debug)]
struct Steps {
    /// Points that users' code waits for.
    slots: BTreeMap<Path, OpenSlot>,
    /// Steps of a graph that are ready.
    frontier: Option<Frontier>,
    timers: BTreeSet<(Time, Path)>,
    /// Points whose children did not all end in time.
    overdue: Vec<(Path, wigwag_core::Point)>,
}

/// The next commit, and the actions that follow it.
#[derive(Debug)]
struct Plan {
    around: CommitPlan,
    releases: Vec<Release>,
    /// The signal that the claim delivers inline, until it is durable.
    brings: Option<Brought>,
}

/// The lease of this turn.
#[derive(Debug)]
struct HeldLease {
    /// Key of the wake-up at its end.
    hint: String,
    /// When it is renewed, by the clock that counts suspended time.
    renew_at: Duration,
}

/// A signal that is not in the store yet.
#[derive(Debug)]
pub(crate) struct Brought {
    pub(crate) suffix: String,
    pub(crate) stamp: Time,
    /// Puts that store the signal: its object, and the objects that accompany it.
    pub(crate) puts: Vec<(String, bytes::Bytes)>,
    /// Key ranges that must be empty, so that this signal is the next one in order.
    pub(crate) clear: Vec<Clear>,
    /// Whether users' code failed on the signal: the failure is recorded, and the code is not called a second time.
    pub(crate) refused: bool,
    /// Becomes true when the store may have the signal.
    pub(crate) tried: Arc<AtomicBool>,
    /// Becomes true when the store has the signal, together with the entry that records its outcome.
    pub(crate) landed: watch::Sender<bool>,
}

/// Users' code that runs.
#[derive(Debug)]
struct Body {
    scope: Arc<Scope>,
    task: JoinHandle<()>,
    /// The attempt it runs; none of a function.
    attempt: Option<Attempt>,
}

/// A point that users' code waits for.
#[derive(Debug)]
struct OpenSlot {
    slot: Arc<Slot>,
    body: BodyId,
    spec: Spec,
    /// The attempt that runs.
    running: Option<Attempt>,
}

/// Remaining work of a turn after its first entry is durable.
#[derive(Debug)]
enum Left {
    /// The run is driven on.
    Run,
    /// The run has ended.
    End(ended::Ended),
}

/// An action to perform once the entry is durable.
#[derive(Debug)]
enum Release {
    Reply(Arc<Slot>, Reply),
    Step(Path, u32),
    Undo(Path, u32),
    Output(Path, Data),
    DeleteControl(String),
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.abort_bodies();
        self.inner.deactivate(&self.log.run.run, &self.handle);
    }
}

impl Turn {
    /// Starts a turn on a run whose log is loaded. The claim is staged; [`Turn::drive`] commits it.
    pub(crate) async fn claim(
        inner: Arc<EngineCore>,
        workflow: Arc<Workflow>,
        mut log: Log,
        permit: OwnedSemaphorePermit,
        found_hints: impl IntoIterator<Item = String>,
        prepared: Option<NewLease>,
    ) -> Result<Self, Lost> {
        let now = inner.now().await?;
        let is_new = log.is_staged() && log.run.seq == 1;
        let lease = match prepared {
            Some(lease) => lease,
            None => NewLease::new(&inner, &log.run).await?,
        };
        let NewLease { hint: lease_hint, body, until, boot, uncertainty, is_put } = lease;
        let lease = inner.settings.lease;
        let old: BTreeSet<String> = log.run.due_hints().cloned().chain(found_hints).collect();
        let claimed = RunClaimed {
            owner: inner.worker.clone(),
            peer: inner.peer.clone(),
            until,
            hints: vec![lease_hint.clone()],
        };
        log.stage(claimed, now.at)?;
        log.lease_ends = Some((boot + lease).saturating_sub(uncertainty));
        let put = if is_put || deliberate_bug!(ClaimWithoutHint) { vec![] } else { vec![(lease_hint.clone(), body)] };
        let around = CommitPlan { before: put, delete: old.into_iter().collect(), ..CommitPlan::default() };
        let input = log.input().await?;
        let mailbox = Arc::new(Mailbox::default());
        let handle = Arc::new(Handle::new(Arc::clone(&mailbox)));
        let frontier =
            (workflow.definition.style != Style::Function).then(|| Frontier::new(&workflow.definition, &log.run));
        let outputs = log.run.points.iter().filter_map(|(path, point)| Some((path.clone(), point.result.clone()?)));
        let outputs = Arc::new(std::sync::Mutex::new(outputs.collect()));
        let timers = timers_of(&log.run);
        Ok(Self {
            phase: Phase::of(recorded_ending(&log.run, &workflow.definition)),
            inner,
            workflow,
            log,
            handle,
            mail: Mail { mailbox, queue: VecDeque::new(), held: Vec::new() },
            code: Running {
                bodies: BTreeMap::new(),
                root: None,
                begins: false,
                outputs,
                input,
                cancel: watch::Sender::new(false),
                spawned: 0,
            },
            steps: Steps { slots: BTreeMap::new(), frontier, timers, overdue: Vec::new() },
            waits: Waits::default(),
            offers: BTreeMap::new(),
            claim: Claim::Staged { is_new },
            plan: Plan { around, releases: Vec::new(), brings: None },
            lease: HeldLease { hint: lease_hint, renew_at: boot + lease / 3 },
            now: now.at,
            _permit: permit,
        })
    }

    /// Adds a put to the claim.
    pub(crate) fn put_before(&mut self, put: (String, bytes::Bytes)) {
        self.plan.around.before.push(put);
    }

    /// Adds the snapshot to the claim, where the store is atomic: commits that expect the previous snapshot then fail.
    pub(crate) fn with_snapshot(&mut self) {
        self.plan.around.snapshot = self.inner.store.traits().atomic;
    }

    /// Makes the claim deliver this signal inline; the scan of the inboxes already counted the signal as stored.
    pub(crate) fn bring(&mut self, brought: Brought) -> Result<(), Lost> {
        self.plan.brings = Some(brought);
        // From here on others leave the run to this turn, or it to them.
        match self.inner.about_to_activate(&self.log.run.run, &self.handle) {
            true => Ok(()),
            false => Err(Lost::Taken),
        }
    }

    /// Makes the turn scan all sources once it holds the run.
    pub(crate) fn look_again(&self) {
        _ = self.handle.poke(None);
    }

    /// Adds a delete to the claim.
    pub(crate) fn delete_after(&mut self, key: String) {
        self.plan.around.delete.push(key);
    }

    /// Commits the claim with all that is ready. If the store rejects the commit, nothing takes effect.
    pub(crate) async fn open(&mut self) -> Result<(), Lost> {
        let payloads = format!("{}/steps/", self.log.run.run);
        if self.log.has_blobs() || self.plan.around.before.iter().any(|(key, _)| key.starts_with(&payloads)) {
            // A replayed function reads its recorded payloads, so they must be in the store.
            self.commit().await?;
        }
        if deliberate_bug!(HintDeletedEarly) {
            let early = std::mem::take(&mut self.plan.around.delete);
            self.inner.delete_all(early).await?;
        }
        self.begin_function().await;
        self.gather().await?;
        // From here on this turn notifies the callers that wait for the end of the run.
        _ = self.inner.about_to_activate(&self.log.run.run, &self.handle);
        if self.log.run.status.is_final() {
            return Ok(());
        }
        self.park_with_claim()?;
        self.commit().await?;
        self.inner.activate(&self.log.run.run, &self.handle);
        Ok(())
    }

    /// Commits the claim, or the whole run if it ended at once, and drives the run in a separate task.
    pub(crate) async fn launch(mut self) -> Result<(), Lost> {
        let span = spans::turn(&self.log.run);
        let begun = async {
            let atomic = self.inner.store.traits().atomic;
            self.open().await?;
            if self.log.run.status.is_final() {
                let ended = self.commit_end().await?;
                // On a bucket, completing the end takes longer than the caller who starts the run should wait.
                return match atomic {
                    true => self.complete(ended).await.map(|()| None),
                    false => Ok(Some(Left::End(ended))),
                };
            }
            // Where the store is atomic nothing is left to do for a run that its first entry parked: the caller of the
            // start may signal the run at once, and finds no turn that drives it.
            let is_done = matches!(self.claim, Claim::Parked { is_first: true, .. }) && atomic;
            Ok((!is_done).then_some(Left::Run))
        };
        if let Some(left) = begun.instrument(span.clone()).await? {
            let (driven, tally) = (EngineCore::begin_to_drive(&self.inner), Arc::clone(&self.log.tally));
            tokio::spawn(async move {
                tally.counts(self.drive(left).instrument(span)).await;
                // `Engine::stop` waits for this drop: the turn and its span are gone.
                drop(driven);
            });
        }
        Ok(())
    }

    /// Drives the run until it parks or ends, or the turn is lost.
    fn drive(mut self, left: Left) -> BoxFuture<'static, ()> {
        // Boxed, because a turn starts children, which may be turns.
        Box::pin(async move {
            let run = self.log.run.run.clone();
            let driven = match left {
                Left::End(ended) => self.complete(ended).await,
                Left::Run => self.run().await,
            };
            match driven {
                Ok(()) => {}
                Err(Lost::Taken | Lost::Lease) => debug!(%run, "another has the run, or the lease ended"),
                Err(Lost::Store(error)) => {
                    warn!(%run, %error, "the turn was given up; another follows when its lease ends");
                    let is_full = error.store().is_some_and(|error| error.kind() == wigwag_store::ErrorKind::Full);
                    if is_full {
                        self.inner.abandon(&self.lease.hint);
                    }
                    // The dispatcher skips wake-ups of this process's leases, so the turn returns this one explicitly.
                    _ = self.handle.poke(Some(&self.lease.hint));
                }
                Err(Lost::Unrecordable(error)) => self.stop_unrecordable(&error).await,
            }
        })
    }

    async fn run(&mut self) -> Result<(), Lost> {
        if let Claim::Parked { hint, is_first } = std::mem::replace(&mut self.claim, Claim::Held)
            && self.finish_parked(hint, is_first).await?
        {
            return Ok(());
        }
        loop {
            match self.before_gathering() {
                Before::Abandon => return Err(Lost::Lease),
                Before::Renew => self.renew().await?,
                Before::Check => self.look_outside().await?,
                Before::End => return self.end().await,
                Before::Release => return self.release_run().await,
                Before::Gather => {
                    self.gather().await?;
                    if self.proceed().await? {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn before_gathering(&self) -> Before {
        let is_staged = self.log.is_staged();
        let renewal_due = self.inner.clock.boot() >= self.lease.renew_at;
        let notified = !is_staged && !renewal_due && self.handle.take_poke();
        Before::of(self.inner.stop(), is_staged, renewal_due, notified, &self.log.run, &self.phase)
    }

    /// Commits, parks, scans or waits, as the gathered events require; returns whether the turn is over.
    async fn proceed(&mut self) -> Result<bool, Lost> {
        let (is_final, is_staged) = (self.log.run.status.is_final(), self.log.is_staged());
        match After::of(is_final, is_staged, self.lets_go_on(), self.may_park(), self.waits.needs_scan()) {
            After::End => {}
            After::Commit => self.commit().await?,
            After::Park => return self.park().await,
            After::Scan => self.look_outside().await?,
            After::Wait => self.wait().await?,
        }
        Ok(false)
    }

    /// Releases a run that was restarted or migrated: the next turn starts its code from the top.
    async fn release_run(&mut self) -> Result<(), Lost> {
        self.abort_bodies();
        self.commit().await?;
        self.park().await.map(drop)
    }

    /// Stages all that is ready: requests of users' code, elapsed timers, steps that may start, the end.
    async fn gather(&mut self) -> Result<(), Lost> {
        self.now = self.inner.recent_now().await?;
        loop {
            self.take_mail().await?;
            self.fire_timers()?;
            self.close_all_overdue().await?;
            self.stop_the_late()?;
            self.follow_cancel();
            self.advance().await?;
            let settled = self.receive().await?;
            if !settled && !self.hear_out().await && !self.hear_foreign().await || self.log.is_full() {
                break;
            }
        }
        self.follow_end().await
    }

    /// Waits until something happens.
    async fn wait(&mut self) -> Result<(), Lost> {
        if self.handle.is_poked() || !self.mail.queue.is_empty() {
            return Ok(());
        }
        let boot = self.inner.clock.boot();
        let mut span = self.lease.renew_at.saturating_sub(boot);
        let next = self.steps.timers.first().map(|(at, _)| *at).filter(|_| !self.is_held_up());
        let deadlines = self.code.bodies.values().filter_map(|body| Some(body.attempt?.deadline));
        let running = self.steps.slots.values().filter_map(|slot| Some(slot.running?.deadline));
        let undo_at = self.log.run.chain.as_ref().and_then(|chain| chain.current.as_ref()?.retry_at);
        let waits = self.waits.next_check(&self.log.run, self.now, |path| self.is_asked(path));
        let waits = waits.filter(|_| !self.is_held_up());
        let all = next.into_iter().chain(deadlines).chain(running).chain(undo_at).chain(waits);
        if let Some(at) = all.min() {
            span = span.min(at.since(self.now) + Duration::from_micros(1));
        }
        if let Some(ends) = self.phase.grace_ends() {
            span = span.min(ends.saturating_sub(boot));
        }
        let (mailbox, clock) = (Arc::clone(&self.mail.mailbox), Arc::clone(&self.inner.clock));
        tokio::select! {
            biased;
            () = mailbox.changed() => {}
            () = clock.sleep(span) => {}
        }
        Ok(())
    }

    /// Whether code continues once the staged entry is durable.
    fn lets_go_on(&self) -> bool {
        let goes_on = |release: &Release| matches!(release, Release::Reply(..) | Release::Step(..) | Release::Undo(..));
        self.code.begins || self.plan.releases.iter().any(goes_on)
    }

    /// Whether no further step may begin.
    fn is_held_up(&self) -> bool {
        is_held_up(&self.log.run, &self.phase, self.inner.stop())
    }

    /// Returns a recorded payload, or a payload that is staged with the next entry.
    async fn payload(&self, path: Option<&Path>, data: &Data) -> Result<Payload> {
        if let Data::Blob(blob) = data {
            let key = Key::blob(self.run_ref(), path, &blob.nonce).to_string();
            let staged = self.plan.around.before.iter().find(|(put, _)| *put == key).map(|(_, body)| body.clone());
            if let Some(body) = staged.or_else(|| self.log.staged_blob(&key)) {
                return Ok(serde_json::from_slice(&body).expect("a payload that was just made is JSON"));
            }
        }
        self.inner.payload(self.run_ref(), path, data).await
    }

    fn run_ref(&self) -> &RunRef {
        &self.log.run.run
    }
}

/// A run's data; of a large input only what steps changed is recorded apart.
pub(crate) fn data_of(run: &wigwag_core::Run, input: &Payload) -> Map<String, Value> {
    match &run.input {
        Data::Blob(_) => match input.value() {
            Value::Object(mut input) => {
                input.extend(run.data.clone());
                input
            }
            _ => run.data.clone(),
        },
        Data::Inline(_) => run.data.clone(),
    }
}

/// Returns the delay until the successor of a wake-up that came due with nothing to do.
pub(crate) fn patrol_after(hint: Option<&Hint>) -> Duration {
    use wigwag_core::limits::{self, PATROL_MAX};
    let generation = hint.map_or(0, |hint| hint.generation().saturating_add(1)).min(10);
    (limits::current().patrol_first * 2_u32.pow(generation)).min(PATROL_MAX)
}

/// The retry policy and timeout of a step of a function.
fn step_policy(spec: &Spec) -> (Retry, Duration, bool) {
    match spec {
        Spec::Step { retry, timeout, compensate } => (retry.clone(), *timeout, *compensate),
        _ => (Retry::never(), Duration::MAX, false),
    }
}

impl From<wigwag_core::Refusal> for Lost {
    fn from(refusal: wigwag_core::Refusal) -> Self {
        Self::Unrecordable(Error::from(refusal))
    }
}
