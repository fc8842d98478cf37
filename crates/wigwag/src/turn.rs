//! One worker's claim on a run: from claim until the run parks or ends.
//!
//! The turn owns the run. Users' code runs in tasks of its own ([`crate::scope`]) and asks for points; the turn gathers
//! what is ready, stages it as events, commits one entry, and only then lets the code go on. It looks at what came from
//! outside when it claims, when it renews and after it parked.
//!
//! What if we die here? Anywhere before a commit: nothing of what was staged happened; the hint at the lease's end, put
//! before the claim, brings the next worker. After a commit: what was recorded is not run again. Steps that were
//! running are run again, under the same idempotency key.

mod advance;
mod ends;
mod inbox;
mod mail;
mod park;
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
use wigwag_core::mutation::{Mutation, is_mutated};
use wigwag_core::{
    Data, Ending, Frontier, Hint, Inboxes, Key, Path, Payload, PointKind, PointStatus, Retry, RunClaimed, RunRef,
    Status, Style, Taken, Time, limits,
};
use wigwag_store::{Clear, Stamp};

use crate::context::Ctx;
use crate::error::{Error, Result};
use crate::inner::{Handle, Inner, Stop, lock};
use crate::log::{CommitPlan, Log, Lost, Preconditions};
use crate::mailbox::{BodyId, Mailbox, Reply, Request, Slot, Spec};
use crate::scope::{self, Made, Outputs, Scope};
use crate::spans;
use crate::workflow::{Code, Workflow, in_scope};

pub(crate) use advance::task_of_step;
pub(crate) use ends::{complete_end, take_back_if_restarted};
pub(crate) use inbox::{decide, names_waited_for, waiting_facts, waiting_key};
pub(crate) use sources::{Found, index_of_closed, look_at_sources};

/// A turn.
#[derive(Debug)]
pub(crate) struct Turn {
    inner: Arc<Inner>,
    workflow: Arc<Workflow>,
    log: Log,
    handle: Arc<Handle>,
    mailbox: Arc<Mailbox>,
    mail: VecDeque<Request>,
    /// Points that may not begin yet, because the run is paused or ends.
    held: Vec<Request>,
    bodies: BTreeMap<BodyId, Body>,
    slots: BTreeMap<Path, OpenSlot>,
    frontier: Option<Frontier>,
    timers: BTreeSet<(Time, Path)>,
    /// Points whose children did not all end in time.
    overdue: Vec<(Path, wigwag_core::Point)>,
    /// What the last look into the inboxes found.
    inboxes: Inboxes,
    /// Waits that were opened since.
    unseen: BTreeSet<Path>,
    /// Waits were recorded, and the inboxes not looked into after that.
    unlooked: bool,
    /// When a wait may be said to be over.
    look_at: Option<Time>,
    /// What waits of code were told and have not heard yet.
    offers: BTreeMap<Path, inbox::Offer>,
    /// The run is not there before this turn's first entry is.
    is_new: bool,
    /// The claim is durable: this turn owns the run.
    is_claimed: bool,
    /// The claim's own entry parked the run.
    parked: Option<park::Parked>,
    outputs: Outputs,
    input: Payload,
    /// The function's own scope: it keeps how steps are undone after the function returned.
    root: Option<Arc<Scope>>,
    releases: Vec<Release>,
    around: CommitPlan,
    /// The signal that the claim brings, until it is durable.
    brings: Option<Brought>,
    ending: Option<Ending>,
    returned: Option<Payload>,
    /// The function is to be started once the entry that lets it is durable.
    begin_again: bool,
    /// The run was restarted or migrated under this turn: it is given back, and begun afresh.
    give_back: bool,
    cancel: watch::Sender<bool>,
    /// By the clock that counts suspended time: when running steps are dropped.
    grace_ends: Option<Duration>,
    undo: Option<Vec<Path>>,
    now: Time,
    spawned: u64,
    renew_at: Duration,
    lease_hint: String,
    _permit: OwnedSemaphorePermit,
}

/// A signal that is not in the store yet.
#[derive(Debug)]
pub(crate) struct Brought {
    pub(crate) suffix: String,
    pub(crate) stamp: Time,
    /// The signal, and what goes with it.
    pub(crate) puts: Vec<(String, bytes::Bytes)>,
    /// Where nothing may lie, for it to be the next that is taken.
    pub(crate) clear: Vec<Clear>,
    /// Users' code was asked about it, and failed: that is recorded, and it is not asked a second time for nothing.
    pub(crate) refused: bool,
    /// Becomes true when it may be there.
    pub(crate) tried: Arc<AtomicBool>,
    /// Becomes true when it is, with the entry that says what became of it.
    pub(crate) landed: watch::Sender<bool>,
}

/// Users' code that runs.
#[derive(Debug)]
struct Body {
    scope: Arc<Scope>,
    task: JoinHandle<()>,
    attempt: u32,
    /// When it is stopped.
    deadline: Option<Time>,
    timeout: Duration,
}

/// A point that users' code waits for.
#[derive(Debug)]
struct OpenSlot {
    slot: Arc<Slot>,
    body: BodyId,
    spec: Spec,
    /// The step runs, until then.
    running: Option<(u32, Time)>,
}

/// What is done once the entry is durable.
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
    /// A turn on a run whose log is at hand. The claim is staged; [`Turn::drive`] commits it.
    pub(crate) async fn claim(
        inner: Arc<Inner>,
        workflow: Arc<Workflow>,
        mut log: Log,
        permit: OwnedSemaphorePermit,
        found_hints: impl IntoIterator<Item = String>,
    ) -> Result<Self, Lost> {
        let boot = inner.clock.boot();
        let now = inner.now().await?;
        let is_new = log.is_staged() && log.run.seq == 1;
        let lease = inner.settings.lease;
        let until = now.at.after(lease);
        let (hint, body) = inner.lease_hint(&log.run.index_type(), &log.run.run, until);
        let lease_hint = Key::Due(hint).to_string();
        let old: BTreeSet<String> = log.run.due_hints().cloned().chain(found_hints).collect();
        let claimed = RunClaimed {
            owner: inner.worker.clone(),
            peer: inner.peer.clone(),
            until,
            hints: vec![lease_hint.clone()],
        };
        log.stage(claimed, now.at)?;
        log.lease_ends = Some((boot + lease).saturating_sub(now.uncertainty));
        let put = if is_mutated(Mutation::ClaimWithoutHint) { vec![] } else { vec![(lease_hint.clone(), body)] };
        let around = CommitPlan { before: put, delete: old.into_iter().collect(), ..CommitPlan::default() };
        let input = log.input().await?;
        let mailbox = Arc::new(Mailbox::default());
        let handle = Arc::new(Handle::new(Arc::clone(&mailbox)));
        let frontier =
            (workflow.definition.style != Style::Function).then(|| Frontier::new(&workflow.definition, &log.run));
        let outputs = log.run.points.iter().filter_map(|(path, point)| Some((path.clone(), point.result.clone()?)));
        let mut turn = Self {
            outputs: Arc::new(std::sync::Mutex::new(outputs.collect())),
            inner,
            workflow,
            log,
            handle,
            mailbox,
            mail: VecDeque::new(),
            held: Vec::new(),
            bodies: BTreeMap::new(),
            slots: BTreeMap::new(),
            frontier,
            timers: BTreeSet::new(),
            overdue: Vec::new(),
            inboxes: Inboxes::default(),
            unseen: BTreeSet::new(),
            unlooked: false,
            look_at: None,
            offers: BTreeMap::new(),
            is_new,
            is_claimed: false,
            parked: None,
            input,
            root: None,
            releases: Vec::new(),
            around,
            brings: None,
            ending: None,
            returned: None,
            begin_again: false,
            give_back: false,
            cancel: watch::Sender::new(false),
            grace_ends: None,
            undo: None,
            now: now.at,
            spawned: 0,
            renew_at: boot + lease / 3,
            lease_hint,
            _permit: permit,
        };
        turn.rebuild_timers();
        turn.ending = turn.recorded_ending();
        Ok(turn)
    }

    /// Adds a put to the claim.
    pub(crate) fn put_before(&mut self, put: (String, bytes::Bytes)) {
        self.around.before.push(put);
    }

    /// Adds the snapshot to the claim, where the store is atomic: it tells those apart who read the run before.
    pub(crate) fn with_snapshot(&mut self) {
        self.around.snapshot = self.inner.store.traits().atomic;
    }

    /// Lets the claim bring this signal, which was found in the inboxes as if it were there.
    pub(crate) fn bring(&mut self, brought: Brought) -> Result<(), Lost> {
        self.brings = Some(brought);
        // From here on others leave the run to this turn, or it to them.
        match self.inner.about_to_activate(&self.log.run.run, &self.handle) {
            true => Ok(()),
            false => Err(Lost::Taken),
        }
    }

    /// Makes the turn look at all sources once it holds the run.
    pub(crate) fn look_again(&self) {
        _ = self.handle.poke(None);
    }

    /// Adds a delete to the claim.
    pub(crate) fn delete_after(&mut self, key: String) {
        self.around.delete.push(key);
    }

    /// Commits the claim with all that is ready. Refused, nothing of it happened.
    pub(crate) async fn open(&mut self) -> Result<(), Lost> {
        if self.log.has_blobs() || self.around.before.iter().any(|(key, _)| key.contains("/steps/")) {
            // A function that is run again reads what it recorded: it must be there.
            self.commit().await?;
        }
        if is_mutated(Mutation::HintDeletedEarly) {
            let early = std::mem::take(&mut self.around.delete);
            self.inner.delete_all(early).await?;
        }
        self.begin_function().await;
        self.gather().await?;
        // Whoever waits for the end is told of it by this turn.
        _ = self.inner.about_to_activate(&self.log.run.run, &self.handle);
        if self.log.run.status.is_final() {
            return Ok(());
        }
        self.park_with_claim()?;
        self.commit().await?;
        self.inner.activate(&self.log.run.run, &self.handle);
        Ok(())
    }

    /// Commits the claim, or the whole run if it ended at once, and drives it on in a task of its own.
    pub(crate) async fn launch(mut self) -> Result<(), Lost> {
        let span = spans::turn(&self.log.run);
        let begun = async {
            self.open().await?;
            if self.log.run.status.is_final() {
                return self.end().await.map(|()| true);
            }
            // Where the store is atomic nothing is left to do for a run that its first entry parked: who is told of its
            // start may signal it at once, and finds nobody who drives it.
            let is_over = self.parked.as_ref().is_some_and(|parked| parked.begins) && self.inner.store.traits().atomic;
            Ok(is_over)
        };
        if !begun.instrument(span.clone()).await? {
            let (driven, tally) = (Inner::begin_to_drive(&self.inner), Arc::clone(&self.log.tally));
            tokio::spawn(async move {
                tally.counts(self.drive().instrument(span)).await;
                // Whoever stops the engine waits for this: the turn and its span are gone.
                drop(driven);
            });
        }
        Ok(())
    }

    /// Drives the run until it parks or ends, or the turn is lost.
    fn drive(mut self) -> BoxFuture<'static, ()> {
        // Boxed, because a turn starts children, which may be turns.
        Box::pin(async move {
            let run = self.log.run.run.clone();
            match self.run().await {
                Ok(()) => {}
                Err(Lost::Taken | Lost::Lease) => debug!(%run, "another has the run, or the lease ended"),
                Err(Lost::Store(error)) => {
                    warn!(%run, %error, "the turn was given up; another follows when its lease ends");
                    let is_full = error.store().is_some_and(|error| error.kind() == wigwag_store::ErrorKind::Full);
                    if is_full {
                        self.inner.abandon(&self.lease_hint);
                    }
                    // The dispatcher passes over hints of our own leases unless it is told.
                    _ = self.handle.poke(Some(&self.lease_hint));
                }
                Err(Lost::Unrecordable(error)) => self.stop_unrecordable(&error).await,
            }
        })
    }

    async fn run(&mut self) -> Result<(), Lost> {
        if let Some(parked) = self.parked.take()
            && self.finish_parked(parked).await?
        {
            return Ok(());
        }
        loop {
            if self.inner.stop() == Stop::Dead {
                return Err(Lost::Lease);
            }
            // Code that always asks for more must not keep the turn from this.
            if self.inner.clock.boot() >= self.renew_at && !self.log.is_staged() {
                self.renew().await?;
            } else if !self.log.is_staged() && self.handle.take_poke() {
                self.look_outside().await?;
            }
            if self.log.run.status.is_final() {
                return self.end().await;
            }
            if self.give_back {
                self.abort_bodies();
                self.commit().await?;
                self.park().await?;
                return Ok(());
            }
            self.gather().await?;
            if self.log.run.status.is_final() {
                continue;
            }
            // What is recorded while nothing can go on shares the entry that parks the run.
            if self.log.is_staged() && (self.lets_go_on() || !self.may_park()) {
                self.commit().await?;
                continue;
            }
            if self.may_park() {
                if self.park().await? {
                    return Ok(());
                }
                continue;
            }
            if self.unlooked {
                self.look_outside().await?;
                continue;
            }
            self.wait().await?;
        }
    }

    /// Stages all that is ready: requests of users' code, times that came, steps that may begin, the end.
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
            if !settled && !self.hear_out().await || self.log.is_full() {
                break;
            }
        }
        self.follow_end().await
    }

    async fn commit(&mut self) -> Result<(), Lost> {
        if !self.log.is_staged() {
            return Ok(());
        }
        self.enter_index();
        self.delete_controls_with_entry();
        // What must land with the entry stands last of all that is put before it.
        let landed = self.take_brought()?;
        let around = std::mem::take(&mut self.around);
        let deleted: Vec<String> = around.before.iter().map(|(key, _)| key.clone()).collect();
        if let Err(lost) = self.log.commit(around).await {
            // Where a batch lands in parts, our hints are there; nobody else relies on them.
            if matches!(lost, Lost::Taken) && !self.inner.store.traits().atomic {
                let hints = deleted.into_iter().filter(|key| key.starts_with("due/"));
                let _ = self.inner.delete_all(hints).await;
            }
            return Err(lost);
        }
        (self.is_new, self.is_claimed) = (false, true);
        if let Some(landed) = landed {
            landed.send_replace(true);
        }
        self.release().await
    }

    /// Deletes folded control objects with the entry that records them, where that is one commit: a worker that dies after
    /// the last entry of a run leaves nobody who would delete them. Those for which the batch has no room follow it.
    fn delete_controls_with_entry(&mut self) {
        if !self.inner.store.traits().atomic || self.controls_to_delete() > self.room_for_deletes() {
            return;
        }
        let controls = self.releases.extract_if(.., |release| matches!(release, Release::DeleteControl(_)));
        for control in controls {
            if let Release::DeleteControl(key) = control {
                self.around.delete.push(key);
            }
        }
    }

    /// Number of control objects that are deleted once the entry is durable.
    fn controls_to_delete(&self) -> usize {
        self.releases.iter().filter(|release| matches!(release, Release::DeleteControl(_))).count()
    }

    /// Number of further deletes that the batch of the entry is sure to have room for.
    fn room_for_deletes(&self) -> usize {
        let puts = self.around.before.len() + self.around.after.len() + self.log.puts() + 2;
        limits::current().batch_operations_max.saturating_sub(puts + self.around.delete.len())
    }

    /// Makes the claim durable before users' code is called that is not simply run again: of several workers that race
    /// for the run, only the winner calls it.
    async fn own_before_calling(&mut self, code: bool) -> Result<(), Lost> {
        if code && !self.is_claimed && !is_mutated(Mutation::CodeBeforeClaim) {
            self.commit().await?;
        }
        Ok(())
    }

    /// Users' code failed on these.
    fn note_refused(&mut self, signals: &[Taken]) {
        if let Some(brought) = &mut self.brings {
            brought.refused |= signals.iter().any(|taken| taken.signal == brought.suffix);
        }
    }

    /// The signal goes with the entry that takes it; gives who is to be told.
    fn take_brought(&mut self) -> Result<Option<watch::Sender<bool>>, Lost> {
        let Some(brought) = self.brings.take() else { return Ok(None) };
        let Brought { suffix, stamp, puts, mut clear, refused, tried, landed } = brought;
        if !refused && self.log.run.taker_of(&suffix).is_none() {
            return Err(Lost::Taken);
        }
        if is_mutated(Mutation::TakenOutOfTurn) {
            clear.clear();
        }
        self.around.before.extend(puts);
        self.around.terms = Some(Preconditions { clear, stamp_from: Stamp::from_micros(stamp.micros()), tried });
        Ok(Some(landed))
    }

    /// The entry is durable: code that waited for it goes on.
    async fn release(&mut self) -> Result<(), Lost> {
        if self.is_over_by_the_clock().await || !self.log.holds_lease() {
            // The answer took so long that another may have the run: no code begins that it may have run already.
            return Err(Lost::Lease);
        }
        // One may have been seen again before it was gone.
        let mut controls = BTreeSet::new();
        for release in std::mem::take(&mut self.releases) {
            match release {
                Release::Reply(slot, reply) => slot.reply(reply),
                Release::Output(path, data) => _ = lock(&self.outputs).insert(path, data),
                Release::Step(path, attempt) => self.spawn_step(&path, attempt),
                Release::Undo(path, attempt) => self.spawn_undo(&path, attempt).await?,
                Release::DeleteControl(key) => _ = controls.insert(key),
            }
        }
        if std::mem::take(&mut self.begin_again) && self.root.is_none() && self.frontier.is_none() {
            self.spawn_root();
        }
        if !controls.is_empty() && self.log.holds_lease() {
            self.inner.delete_all(controls).await?;
        }
        Ok(())
    }

    /// Whether others take our lease for over although it has not lasted so long: somebody set the machine's clock.
    async fn is_over_by_the_clock(&self) -> bool {
        let begins = !self.releases.is_empty() || self.begin_again;
        let until = self.log.run.lease.as_ref().map(|lease| lease.until);
        let Some(until) = until.filter(|_| begins && self.inner.store.traits().atomic) else { return false };
        self.inner.now().await.map_or(true, |now| now.at > until)
    }

    /// Waits until something happens.
    async fn wait(&mut self) -> Result<(), Lost> {
        if self.handle.is_poked() || !self.mail.is_empty() {
            return Ok(());
        }
        let boot = self.inner.clock.boot();
        let mut span = self.renew_at.saturating_sub(boot);
        let next = self.timers.first().map(|(at, _)| *at).filter(|_| !self.is_held_up());
        let deadlines = self.bodies.values().filter_map(|body| body.deadline);
        let running = self.slots.values().filter_map(|slot| slot.running.map(|(_, deadline)| deadline));
        let undo_at = self.log.run.chain.as_ref().and_then(|chain| chain.current.as_ref()?.retry_at);
        let waits = self.look_at.or_else(|| self.next_deadline()).filter(|_| !self.is_held_up());
        let all = next.into_iter().chain(deadlines).chain(running).chain(undo_at).chain(waits);
        if let Some(at) = all.min() {
            span = span.min(at.since(self.now) + Duration::from_micros(1));
        }
        if let Some(ends) = self.grace_ends {
            span = span.min(ends.saturating_sub(boot));
        }
        let (mailbox, clock) = (Arc::clone(&self.mailbox), Arc::clone(&self.inner.clock));
        tokio::select! {
            biased;
            () = mailbox.changed() => {}
            () = clock.sleep(span) => {}
        }
        Ok(())
    }

    /// Renews the lease: hint, then entry, then the old hint goes. And looks at what came from outside.
    async fn renew(&mut self) -> Result<(), Lost> {
        self.stage_renewal().await?;
        self.commit().await?;
        self.look_outside().await
    }

    async fn stage_renewal(&mut self) -> Result<(), Lost> {
        if !self.log.holds_lease() {
            return Err(Lost::Lease);
        }
        let boot = self.inner.clock.boot();
        let now = self.inner.now().await?;
        let lease = self.inner.settings.lease;
        let until = now.at.after(lease);
        let (hint, body) = self.inner.lease_hint(&self.log.run.index_type(), &self.log.run.run, until);
        let key = Key::Due(hint).to_string();
        let claimed = RunClaimed {
            owner: self.inner.worker.clone(),
            peer: self.inner.peer.clone(),
            until,
            hints: vec![key.clone()],
        };
        self.log.stage(claimed, now.at)?;
        self.around.before.push((key.clone(), body));
        self.around.delete.push(std::mem::replace(&mut self.lease_hint, key));
        self.around.delete.extend(self.handle.take_hints());
        self.log.lease_ends = Some((boot + lease).saturating_sub(now.uncertainty));
        self.renew_at = boot + lease / 3;
        Ok(())
    }

    /// Whether code goes on once the entry that is being made is durable.
    fn lets_go_on(&self) -> bool {
        let goes_on = |release: &Release| matches!(release, Release::Reply(..) | Release::Step(..) | Release::Undo(..));
        self.begin_again || self.releases.iter().any(goes_on)
    }

    /// Whether no further step may begin.
    fn is_held_up(&self) -> bool {
        self.log.run.status == Status::Paused
            || self.ending.is_some()
            || self.log.run.cancel.is_some()
            || self.log.run.chain.is_some()
            || self.inner.stop() != Stop::No
    }

    fn rebuild_timers(&mut self) {
        let run = &self.log.run;
        // The deadlines of waits are asked of the waits.
        let timed = |path: &Path| run.points.get(path).filter(|point| point.kind != PointKind::Wait)?.until;
        self.timers = run.open.iter().filter_map(|path| Some((timed(path)?, path.clone()))).collect();
    }

    /// Starts the function, if this is one, and lets it come to its first points.
    async fn begin_function(&mut self) {
        let needed = match (&self.log.run.cancel, &self.log.run.chain) {
            // Only how steps are undone is needed.
            (Some(_), _) | (_, Some(_)) => self.log.run.has_anything_to_undo(),
            _ => self.log.run.status != Status::Paused,
        };
        if needed && self.root.is_none() && matches!(self.workflow.code, Code::Function(_)) {
            self.spawn_root();
            self.first_poll().await;
        }
    }

    async fn first_poll(&mut self) {
        while self.root.as_ref().is_some_and(|root| !root.is_idle()) {
            // A sender waits for a turn that brings a signal, and does not wait for ever.
            if self.mail.is_empty() && self.brings.is_none() {
                self.mailbox.changed().await;
                self.mail.extend(self.mailbox.take());
            } else if !self.hear().await {
                return;
            }
        }
    }

    fn spawn_root(&mut self) {
        let Code::Function(code) = &self.workflow.code else { return };
        let mut recorded = self.log.run.points.clone();
        if is_mutated(Mutation::RecordForgotten) {
            recorded.retain(|_, point| point.kind != PointKind::Step);
        }
        let made = self.made(BodyId::Root, 1, recorded);
        let scope = Scope::new(Arc::clone(&self.inner), made);
        let (code, ctx, input) = (Arc::clone(code), Ctx { scope: Arc::clone(&scope) }, self.input.clone());
        // Users' code is called inside the task, where its panic is a failure.
        let task = scope::spawn(&scope, Box::pin(async move { code.call(ctx, input).await }));
        self.root = Some(Arc::clone(&scope));
        self.bodies.insert(BodyId::Root, Body { scope, task, attempt: 1, deadline: None, timeout: Duration::ZERO });
    }

    fn spawn_step(&mut self, path: &Path, attempt: u32) {
        let Some(code) = self.workflow.node_code(path).and_then(|code| code.run.clone()) else { return };
        let Some(node) = self.workflow.node(path, &self.log.run) else { return };
        self.spawned += 1;
        let id = BodyId::Step(path.clone(), self.spawned);
        let recorded = self.points_below(path);
        let made = self.made(id.clone(), attempt, recorded);
        let scope = Scope::new(Arc::clone(&self.inner), made);
        let code = match self.inner.injected(path) {
            Some(failure) => Box::pin(std::future::ready(Err(failure))) as BoxFuture<'static, _>,
            None => {
                let ctx = in_scope(&scope);
                Box::pin(async move { code.call(ctx).await }) as BoxFuture<'static, _>
            }
        };
        let task = scope::spawn(&scope, code);
        let deadline = Some(self.now.after(node.timeout));
        self.bodies.insert(id, Body { scope, task, attempt, deadline, timeout: node.timeout });
    }

    fn points_below(&self, path: &Path) -> BTreeMap<Path, wigwag_core::Point> {
        let below = self
            .log
            .run
            .points
            .range(path.clone()..)
            .take_while(|(other, _)| other.as_str().starts_with(path.as_str()));
        let inner = below.filter(|(other, _)| *other != path && other.is_within(path) && **other != path.delay());
        inner.map(|(path, point)| (path.clone(), point.clone())).collect()
    }

    fn made(&self, body: BodyId, attempt: u32, recorded: BTreeMap<Path, wigwag_core::Point>) -> Made {
        let run = &self.log.run;
        Made {
            run: run.run.clone(),
            restarts: run.restarts,
            body,
            attempt,
            input: self.input.clone(),
            data: self.data(),
            outputs: Arc::clone(&self.outputs),
            mailbox: Arc::clone(&self.mailbox),
            recorded,
            now: run.created_at,
            cancelled: self.cancel.subscribe(),
            landed: self.brings.as_ref().map(|brought| brought.landed.subscribe()),
            tally: Arc::clone(&self.log.tally),
        }
    }

    fn data(&self) -> Map<String, Value> {
        data_of(&self.log.run, &self.input)
    }

    fn abort_bodies(&mut self) {
        for (_, body) in std::mem::take(&mut self.bodies) {
            body.task.abort();
        }
        self.slots.clear();
        self.offers.clear();
    }

    /// A recorded payload, also one that is about to be written with the entry that is being made.
    async fn payload(&self, path: Option<&Path>, data: &Data) -> Result<Payload> {
        if let Data::Blob(blob) = data {
            let key = Key::blob(self.run_ref(), path, &blob.nonce).to_string();
            let staged = self.around.before.iter().find(|(put, _)| *put == key).map(|(_, body)| body.clone());
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

/// The successor of a hint that came due with nothing to do.
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

/// Whether an open point is a step that failed and waits for its next try.
fn is_retrying(point: &wigwag_core::Point) -> bool {
    point.kind == PointKind::Step && point.status == PointStatus::Retrying
}

impl From<wigwag_core::Refusal> for Lost {
    fn from(refusal: wigwag_core::Refusal) -> Self {
        Self::Unrecordable(Error::from(refusal))
    }
}
