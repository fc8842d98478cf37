//! Starts workflow runs and submits tasks.
//!
//! The order: a wake-up and the key in `live/` are put, on a bucket concurrently; then entry 1 decides. What if we die
//! here? Before entry 1 there is no run, only a stale wake-up, which is dropped after an hour, or a stale key in `live/`,
//! which the sweeper removes. After it the run exists, and so does its wake-up.

use std::future::IntoFuture;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use wigwag_core::deliberate_bug;
use wigwag_core::{
    Data, Entry, Family, Key, Name, Parent, Payload, Refusal, Requests, Retry, Run, RunId, RunRef, RunStarted,
    STEP_TIMEOUT, TaskSpec, Time, TypeName, index_type, limits, state_to_json,
};
use wigwag_store::Batch;

use super::{RunHandle, names};
use crate::engine_core::EngineCore;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::START_TRIES_MAX;
use crate::log::{self, CommitError, Log, blob};
use crate::tally::{Tally, counted, of_batch};
use crate::turn::{Turn, take_back_if_restarted};
use crate::workflow::{Workflow, default_queue};

/// A workflow about to be started.
#[derive(Debug)]
#[must_use = "a run is started when this is awaited"]
pub struct StartCall<R = RunHandle> {
    inner: Arc<EngineCore>,
    of: String,
    input: Result<Payload, Refusal>,
    id: Option<String>,
    not_before: Option<Time>,
    delay: Option<Duration>,
    registered_only: bool,
    run: PhantomData<fn() -> R>,
}

impl<R: From<RunHandle> + 'static> StartCall<R> {
    pub(super) fn new(inner: Arc<EngineCore>, of: &str, input: Result<Payload, Refusal>) -> Self {
        let of = of.to_owned();
        Self { inner, of, input, id: None, not_before: None, delay: None, registered_only: false, run: PhantomData }
    }

    /// Sets the id of the run; by default it is generated and begins with the time.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Delays the start until this moment.
    pub fn at(mut self, moment: Time) -> Self {
        self.not_before = Some(moment);
        self
    }

    /// Not before that span is over.
    pub fn delay(mut self, span: Duration) -> Self {
        self.delay = Some(span);
        self
    }

    /// Rejects the start if workers have registered workflows in this store, and this one is not among them. Before the first
    /// worker has registered anything, each name is accepted.
    pub fn registered_only(mut self) -> Self {
        self.registered_only = true;
        self
    }

    async fn send(self) -> Result<RunHandle> {
        let id = match self.id {
            Some(id) => RunId::new(id)?,
            None => self.inner.new_id().await?,
        };
        let of = TypeName::from(Name::new(&self.of)?);
        if self.registered_only {
            names::check_registered(&self.inner, &of).await?;
        }
        let not_before = later(&self.inner, self.not_before, self.delay).await?;
        let run = RunRef::workflow(id);
        let (run_of, input) = (of.clone(), self.input?);
        let start = Start { run: run.clone(), of: run_of, input, parent: None, task: None, not_before, eager: true };
        start_run(&self.inner, start).await?;
        let warnings = names::of_start(&self.inner, &of).await;
        Ok(RunHandle { inner: self.inner, run, warnings, caller: None })
    }
}

impl<R: From<RunHandle> + 'static> IntoFuture for StartCall<R> {
    type Output = Result<R>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move { Ok(self.send().await?.into()) }.boxed()
    }
}

/// Options of a task: queue, retries, timeout, schedule and expiry.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TaskOptions {
    /// Queue of the task; `default` if absent.
    pub queue: Option<Name>,
    /// Retry policy of the task.
    pub retry: Option<Retry>,
    /// Timeout of one attempt.
    pub timeout: Option<Duration>,
    /// Earliest start of the task.
    pub not_before: Option<Time>,
    /// Delay before the start of the task.
    pub delay: Option<Duration>,
    /// The task fails if no worker has started it by this time.
    pub expires_at: Option<Time>,
    /// The task fails if no worker has started it within this span.
    pub expires_in: Option<Duration>,
    /// Idempotency key: submits of one type with the same key are one task. Without it, a run's task is identified by the
    /// path of the call.
    pub key: Option<String>,
}

impl TaskOptions {
    async fn spec(&self, inner: &EngineCore) -> Result<(TaskSpec, Option<Time>)> {
        let spec = TaskSpec {
            queue: self.queue.clone().unwrap_or_else(default_queue),
            retry: self.retry.clone().unwrap_or_default(),
            timeout: self.timeout.unwrap_or(STEP_TIMEOUT).min(limits::SPAN_MAX),
            expires_at: later(inner, self.expires_at, self.expires_in).await?,
        };
        Ok((spec, later(inner, self.not_before, self.delay).await?))
    }
}

/// Returns the later of a moment and the end of a span from now.
async fn later(inner: &EngineCore, moment: Option<Time>, span: Option<Duration>) -> Result<Option<Time>> {
    let Some(span) = span else { return Ok(moment) };
    let at = inner.now().await?.at.after(span.min(limits::SPAN_MAX));
    Ok(Some(moment.map_or(at, |moment| moment.max(at))))
}

/// A task about to be submitted.
#[derive(Debug)]
#[must_use = "a task is submitted when this is awaited"]
pub struct SubmitCall<R = RunHandle> {
    inner: Arc<EngineCore>,
    of: String,
    input: Result<Payload, Refusal>,
    key: Option<String>,
    options: TaskOptions,
    queue: Option<String>,
    run: PhantomData<fn() -> R>,
}

impl<R: From<RunHandle> + 'static> SubmitCall<R> {
    pub(super) fn new(inner: Arc<EngineCore>, of: &str, input: Result<Payload, Refusal>) -> Self {
        Self {
            inner,
            of: of.to_owned(),
            input,
            key: None,
            options: TaskOptions::default(),
            queue: None,
            run: PhantomData,
        }
    }

    /// Sets the idempotency key: submits of one type with the same key are one task; with another input they conflict.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the queue of the task.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Sets the retry policy of the task.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.options.retry = Some(retry);
        self
    }

    /// Sets the timeout of one attempt.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Delays the start until this moment.
    pub fn at(mut self, moment: Time) -> Self {
        self.options.not_before = Some(moment);
        self
    }

    /// Not before that span is over.
    pub fn delay(mut self, span: Duration) -> Self {
        self.options.delay = Some(span);
        self
    }

    /// Fails the task if no worker has started it by this moment.
    pub fn expires_at(mut self, moment: Time) -> Self {
        self.options.expires_at = Some(moment);
        self
    }

    /// Fails the task if no worker has started it within this span.
    pub fn expires_in(mut self, span: Duration) -> Self {
        self.options.expires_in = Some(span);
        self
    }

    async fn send(mut self) -> Result<RunHandle> {
        let of = TypeName::new(&self.of)?;
        if let Some(queue) = &self.queue {
            self.options.queue = Some(Name::new(queue)?);
        }
        let id = match &self.key {
            Some(key) => RunId::hashed(&["task", of.as_str(), key]),
            None => self.inner.new_id().await?,
        };
        let (spec, not_before) = self.options.spec(&self.inner).await?;
        let run = RunRef::task(id);
        let (input, task) = (self.input?, Some(spec));
        let start = Start { run: run.clone(), of, input, parent: None, task, not_before, eager: true };
        start_run(&self.inner, start).await?;
        Ok(RunHandle::new(&self.inner, run))
    }
}

impl<R: From<RunHandle> + 'static> IntoFuture for SubmitCall<R> {
    type Output = Result<R>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move { Ok(self.send().await?.into()) }.boxed()
    }
}

/// Starts the child of a step, unless it exists already.
pub(crate) fn start_child(
    inner: &Arc<EngineCore>,
    run: RunRef,
    of: TypeName,
    input: Payload,
    parent: Parent,
) -> BoxFuture<'static, Result<()>> {
    let inner = Arc::clone(inner);
    let start = Start { run, of, input, parent: Some(parent), task: None, not_before: None, eager: false };
    // Boxed, because a start may drive the run, and a driven run may start another.
    async move { start_run(&inner, start).await }.boxed()
}

/// Submits the task of a step, unless it exists already.
pub(crate) fn submit_child(
    inner: &Arc<EngineCore>,
    id: RunId,
    of: TypeName,
    input: Payload,
    options: TaskOptions,
    parent: Parent,
) -> BoxFuture<'static, Result<()>> {
    let inner = Arc::clone(inner);
    async move {
        let (spec, not_before) = options.spec(&inner).await?;
        let (run, task) = (RunRef::task(id), Some(spec));
        start_run(&inner, Start { run, of, input, parent: Some(parent), task, not_before, eager: false }).await
    }
    .boxed()
}

/// Parameters of a run to start.
struct Start {
    run: RunRef,
    of: TypeName,
    input: Payload,
    parent: Option<Parent>,
    task: Option<TaskSpec>,
    not_before: Option<Time>,
    /// Drive the run in this engine, if it has the code and a permit.
    eager: bool,
}

async fn start_run(inner: &Arc<EngineCore>, start: Start) -> Result<()> {
    metrics::counter!("wigwag_runs_started_total").increment(1);
    // A separate tally, also if another run starts this one: these requests belong to the new run.
    counted(start_counted(inner, start)).await
}

async fn start_counted(inner: &Arc<EngineCore>, start: Start) -> Result<()> {
    let now = inner.recent_now().await?;
    // Also rejects a name that is too long for an index key.
    if let Some(task) = &start.task {
        TypeName::of_task(&task.queue, &start.of)?;
    }
    let (input, blobs) = match Data::fits(&start.input) {
        true => (Data::Inline(start.input.clone()), Vec::new()),
        false => {
            let (data, put) = blob(inner, &start.run, None, &start.input);
            (data, vec![put])
        }
    };
    let not_before = start.not_before.filter(|at| *at > now);
    if start.eager
        && not_before.is_none()
        && let Some((workflow, permit)) = inner.can_drive(&start.of, start.task.as_ref())
    {
        let first = first_entry(inner, &start, input, Some(&workflow), None, Vec::new(), now);
        return match start_eagerly(inner, &start, workflow, permit, first, blobs).await? {
            true => Ok(()),
            // The store was unavailable for longer than a lease, so any worker may drive the run by its wake-up. If the
            // first attempt did create the run, the second finds it.
            false => Box::pin(start_counted(inner, Start { eager: false, ..start })).await,
        };
    }
    let of = index_type(&start.of, start.task.as_ref());
    let (hint, hint_body) = inner.hint(&of, &start.run, not_before.unwrap_or(now));
    let hint = Key::Due(hint).to_string();
    let workflow = inner.registry.workflow(&start.of).filter(|_| start.task.is_none()).cloned();
    let first = first_entry(inner, &start, input, workflow.as_ref(), not_before, vec![hint.clone()], now);
    let mut before = blobs;
    before.push((hint, hint_body));
    start_for_others(inner, &start, &of, first, before).await
}

fn first_entry(
    inner: &EngineCore,
    start: &Start,
    input: Data,
    workflow: Option<&Arc<Workflow>>,
    not_before: Option<Time>,
    hints: Vec<String>,
    at: Time,
) -> Entry {
    let started = RunStarted {
        of: start.of.clone(),
        definition_hash: workflow.map(|workflow| workflow.definition.hash.clone()).unwrap_or_default(),
        version: workflow.and_then(|workflow| workflow.definition.version),
        input,
        not_before,
        parent: start.parent.clone(),
        task: start.task.clone(),
        hints,
    };
    Entry { seq: 1, by: inner.by(), at, events: vec![started.into()], requests: Requests::default() }
}

/// Creates the run with a claim, and drives it here. Returns `false` if that took longer than the lease.
async fn start_eagerly(
    inner: &Arc<EngineCore>,
    start: &Start,
    workflow: Arc<Workflow>,
    permit: tokio::sync::OwnedSemaphorePermit,
    first: Entry,
    blobs: Vec<(String, Bytes)>,
) -> Result<bool> {
    let log = Log::begin(Arc::clone(inner), start.run.clone(), first, blobs, start.input.clone())?;
    let live = inner.live(&log.run);
    let outcome = match Turn::claim(Arc::clone(inner), workflow, log, permit, None, None).await {
        Ok(mut turn) => {
            turn.put_before(live);
            turn.launch().await
        }
        Err(lost) => Err(lost),
    };
    match outcome {
        Ok(()) => Ok(true),
        Err(CommitError::Taken) => existing(inner, start).await.map(|()| true),
        Err(CommitError::Lease) => Ok(false),
        Err(CommitError::Store(error) | CommitError::Unrecordable(error)) => Err(error),
    }
}

/// Creates the run unclaimed, for any worker that finds its wake-up.
async fn start_for_others(
    inner: &Arc<EngineCore>,
    start: &Start,
    of: &TypeName,
    mut first: Entry,
    before: Vec<(String, Bytes)>,
) -> Result<()> {
    let mut run = Run::begin(start.run.clone(), &first)?;
    let (live, live_body) = inner.live(&run);
    let entry = Key::Entry { run: start.run.clone(), seq: 1 }.to_string();
    let hints: Vec<String> = before.iter().map(|(key, _)| key.clone()).filter(|key| key.starts_with("due/")).collect();
    let puts = before.into_iter().chain([(live, live_body)]);
    let atomic = inner.store.traits().atomic;
    let began = inner.clock.boot();
    let (mut batch, mut afterwards) = (Batch::new(), Vec::new());
    if atomic {
        batch = puts.fold(batch, |batch, (key, body)| batch.put(key, body));
    } else if deliberate_bug!(StartBeforeHint) {
        afterwards = puts.collect();
    } else {
        inner.put_all(puts).await?;
        if inner.clock.boot().saturating_sub(began) > Duration::from_secs(60) {
            // The sweeper may regard the wake-up as an orphan by now, so another one goes first.
            let (hint, body) = inner.hint(of, &start.run, run.not_before.unwrap_or(run.created_at));
            batch = batch.put(Key::Due(hint).to_string(), body);
        }
    }
    let own = Requests { puts: 1 + u64::from(atomic), ..Requests::default() };
    run.stage_requests(&mut first, Tally::current().read().and(of_batch(&batch)).and(own));
    let state = (Key::State { run: start.run.clone() }.to_string(), state_to_json(&run, &first.by));
    batch = batch.create(&entry, first.to_json());
    if atomic {
        batch = batch.put(&state.0, state.1.clone());
    }
    match create(inner, batch, &entry, &first.by).await? {
        true if !atomic => {
            if deliberate_bug!(StartBeforeHint) {
                inner.put_all(afterwards).await?;
            }
            // Without a snapshot a reader folds the log; `create` never replaces a newer snapshot.
            let _ = inner.store.write(Batch::new().create(state.0, state.1)).await;
            Ok(())
        }
        true => Ok(()),
        false => {
            if !atomic {
                let batch = hints.iter().fold(Batch::new(), |batch, hint| batch.delete(hint));
                inner.store.write(batch).await?;
            }
            existing(inner, start).await
        }
    }
}

/// Creates an entry; returns whether it is ours. After a lost response the entry is read back.
async fn create(inner: &EngineCore, batch: Batch, entry: &str, by: &str) -> Result<bool> {
    use wigwag_store::ErrorKind as Store;
    let mut tries = 1;
    loop {
        let Err(error) = inner.store.write(batch.clone()).await else { return Ok(true) };
        if !matches!(error.kind(), Store::Exists | Store::Unknown) {
            return Err(error.into());
        }
        if let Some(there) = inner.store.get(entry).await? {
            return Ok(log::is_by(&there.body, by));
        }
        if tries == START_TRIES_MAX {
            let unsettled = format!("the store does not say whether `{entry}` was created");
            // The store's error names the cause of the unknown outcome.
            return Err(match error.kind() {
                Store::Unknown => error.into(),
                _ => Error::new(ErrorKind::Unavailable, unsettled),
            });
        }
        tries += 1;
    }
}

/// Handles an id that is in use: accepts the same run, rejects another.
async fn existing(inner: &Arc<EngineCore>, start: &Start) -> Result<()> {
    let id = &start.run.id;
    let Some(loaded) = log::read(&*inner.store, &start.run).await? else {
        return Err(Error::new(ErrorKind::Unavailable, format!("run `{id}` was created and deleted concurrently")));
    };
    let run = loaded.run;
    if run.status.is_final() && !inner.store.traits().atomic {
        // Our put may have restored a `live/` object that the end of the run deleted.
        inner.store.write(Batch::new().delete(inner.live(&run).0)).await?;
        take_back_if_restarted(inner, &run).await?;
    }
    let input = inner.payload(&run.run, None, &run.input).await?;
    let same_parent = start.parent.is_none() || start.parent == run.parent;
    if run.of == start.of && same_parent && input.value() == start.input.value() {
        return Ok(());
    }
    let (what, hint) = match start.run.family {
        Family::Workflow if run.of != start.of => {
            (format!("run `{id}` already exists with type `{}`", run.of), "use another id")
        }
        Family::Workflow => (format!("run `{id}` already exists with a different input"), "use another id"),
        Family::Task => {
            (format!("a task with this key already exists with a different input: `{id}`"), "use another key")
        }
    };
    Err(Error::new(ErrorKind::Conflict, what).hint(format!("{hint}, or check the existing run")))
}
