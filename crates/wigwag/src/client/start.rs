//! Starting runs.
//!
//! The order: a hint and the place in `live/` are put, then entry 1 decides. What if we die here? Before entry 1 there
//! is no run, only a hint that nobody needs; it is dropped after an hour. After it the run is there, and so is its hint.

use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use wigwag_core::mutation::{Mutation, is_mutated};
use wigwag_core::{
    Data, Entry, Family, Key, Name, Parent, Payload, Refusal, Requests, Retry, Run, RunId, RunRef, RunStarted,
    STEP_TIMEOUT, TaskSpec, Time, TypeName, index_type, limits, state_to_json,
};
use wigwag_store::Batch;

use super::{RunHandle, names};
use crate::error::{Error, ErrorKind, Result};
use crate::inner::Inner;
use crate::log::{self, Log, Lost, blob};
use crate::tally::{Tally, counted, of_batch};
use crate::turn::{Turn, take_back_if_restarted};
use crate::workflow::{Workflow, default_queue};

/// A workflow about to be started.
#[derive(Debug)]
#[must_use = "a run is started when this is awaited"]
pub struct StartCall {
    inner: Arc<Inner>,
    of: String,
    input: Result<Payload, Refusal>,
    id: Option<String>,
    not_before: Option<Time>,
    delay: Option<Duration>,
}

impl StartCall {
    pub(super) fn new(inner: Arc<Inner>, of: &str, input: Result<Payload, Refusal>) -> Self {
        Self { inner, of: of.to_owned(), input, id: None, not_before: None, delay: None }
    }

    /// Gives the run an id; else it gets one that begins with the time.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Not before that moment.
    pub fn at(mut self, moment: Time) -> Self {
        self.not_before = Some(moment);
        self
    }

    /// Not before that span is over.
    pub fn delay(mut self, span: Duration) -> Self {
        self.delay = Some(span);
        self
    }

    async fn send(self) -> Result<RunHandle> {
        let id = match self.id {
            Some(id) => RunId::new(id)?,
            None => self.inner.new_id().await?,
        };
        let of = TypeName::from(Name::new(&self.of)?);
        let not_before = later(&self.inner, self.not_before, self.delay).await?;
        let run = RunRef::workflow(id);
        let (run_of, input) = (of.clone(), self.input?);
        let start = Start { run: run.clone(), of: run_of, input, parent: None, task: None, not_before, eager: true };
        start_run(&self.inner, start).await?;
        let warnings = names::of_start(&self.inner, &of).await;
        Ok(RunHandle { inner: self.inner, run, warnings, caller: None })
    }
}

impl IntoFuture for StartCall {
    type Output = Result<RunHandle>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

/// How a task is run.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct TaskOptions {
    /// The queue whose workers take it; `default` unless said otherwise.
    pub queue: Option<Name>,
    /// How often it is tried again.
    pub retry: Option<Retry>,
    /// How long one try may take.
    pub timeout: Option<Duration>,
    /// Not before that moment.
    pub not_before: Option<Time>,
    /// Not before that span is over.
    pub delay: Option<Duration>,
    /// It fails if nobody took it by then.
    pub expires_at: Option<Time>,
    /// It fails if nobody took it before that span is over.
    pub expires_in: Option<Duration>,
}

impl TaskOptions {
    async fn spec(&self, inner: &Inner) -> Result<(TaskSpec, Option<Time>)> {
        let spec = TaskSpec {
            queue: self.queue.clone().unwrap_or_else(default_queue),
            retry: self.retry.clone().unwrap_or_default(),
            timeout: self.timeout.unwrap_or(STEP_TIMEOUT).min(limits::SPAN_MAX),
            expires_at: later(inner, self.expires_at, self.expires_in).await?,
        };
        Ok((spec, later(inner, self.not_before, self.delay).await?))
    }
}

/// The later of a moment and the end of a span from now.
async fn later(inner: &Inner, moment: Option<Time>, span: Option<Duration>) -> Result<Option<Time>> {
    let Some(span) = span else { return Ok(moment) };
    let at = inner.now().await?.at.after(span.min(limits::SPAN_MAX));
    Ok(Some(moment.map_or(at, |moment| moment.max(at))))
}

/// A task about to be submitted.
#[derive(Debug)]
#[must_use = "a task is submitted when this is awaited"]
pub struct SubmitCall {
    inner: Arc<Inner>,
    of: String,
    input: Result<Payload, Refusal>,
    key: Option<String>,
    options: TaskOptions,
    queue: Option<String>,
}

impl SubmitCall {
    pub(super) fn new(inner: Arc<Inner>, of: &str, input: Result<Payload, Refusal>) -> Self {
        Self { inner, of: of.to_owned(), input, key: None, options: TaskOptions::default(), queue: None }
    }

    /// The same key of the same type is the same task, whoever submits it; with another input it is a conflict.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// The queue whose workers take it.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// How often it is tried again.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.options.retry = Some(retry);
        self
    }

    /// How long one try may take.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// Not before that moment.
    pub fn at(mut self, moment: Time) -> Self {
        self.options.not_before = Some(moment);
        self
    }

    /// Not before that span is over.
    pub fn delay(mut self, span: Duration) -> Self {
        self.options.delay = Some(span);
        self
    }

    /// It fails if nobody took it by that moment.
    pub fn expires_at(mut self, moment: Time) -> Self {
        self.options.expires_at = Some(moment);
        self
    }

    /// It fails if nobody took it before that span is over.
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

impl IntoFuture for SubmitCall {
    type Output = Result<RunHandle>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

/// Starts the child of a point. One that is there already is the same.
pub(crate) fn start_child(
    inner: &Arc<Inner>,
    run: RunRef,
    of: TypeName,
    input: Payload,
    parent: Parent,
) -> BoxFuture<'static, Result<()>> {
    let inner = Arc::clone(inner);
    let start = Start { run, of, input, parent: Some(parent), task: None, not_before: None, eager: false };
    // Boxed, because starting may mean to drive, and driving to start.
    async move { start_run(&inner, start).await }.boxed()
}

/// Submits the task of a point. One that is there already is the same.
pub(crate) fn submit_child(
    inner: &Arc<Inner>,
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

/// A run to be.
struct Start {
    run: RunRef,
    of: TypeName,
    input: Payload,
    parent: Option<Parent>,
    task: Option<TaskSpec>,
    not_before: Option<Time>,
    /// Drive it here, if that can be.
    eager: bool,
}

async fn start_run(inner: &Arc<Inner>, start: Start) -> Result<()> {
    // Also when another run starts it: what it takes is the new run's own.
    counted(start_counted(inner, start)).await
}

async fn start_counted(inner: &Arc<Inner>, start: Start) -> Result<()> {
    let now = inner.recent_now().await?;
    // Also refuses a name that no index could hold.
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
    metrics::counter!("wigwag_runs_started_total").increment(1);
    let not_before = start.not_before.filter(|at| *at > now);
    if start.eager
        && not_before.is_none()
        && let Some((workflow, permit)) = inner.can_drive(&start.of, start.task.as_ref())
    {
        let first = first_entry(inner, &start, input, Some(&workflow), None, Vec::new(), now);
        return start_eagerly(inner, &start, workflow, permit, first, blobs).await;
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
    inner: &Inner,
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

/// Makes the run already claimed, and drives it here.
async fn start_eagerly(
    inner: &Arc<Inner>,
    start: &Start,
    workflow: Arc<Workflow>,
    permit: tokio::sync::OwnedSemaphorePermit,
    first: Entry,
    blobs: Vec<(String, Bytes)>,
) -> Result<()> {
    let run = start.run.clone();
    let log = Log::begin(Arc::clone(inner), run.clone(), first, blobs, start.input.clone())?;
    let live = inner.live(&log.run);
    let outcome = match Turn::claim(Arc::clone(inner), workflow, log, permit, None).await {
        Ok(mut turn) => {
            turn.put_before(live);
            turn.launch().await
        }
        Err(lost) => Err(lost),
    };
    match outcome {
        Ok(()) => Ok(()),
        Err(Lost::Taken) => existing(inner, start).await,
        Err(Lost::Lease) => Err(Error::new(ErrorKind::Unavailable, format!("run `{}` took too long to start", run.id))
            .hint("start it again with the same id: if it is there, it is the same run")),
        Err(Lost::Store(error) | Lost::Unrecordable(error)) => Err(error),
    }
}

/// Makes the run for whichever worker finds its hint.
async fn start_for_others(
    inner: &Arc<Inner>,
    start: &Start,
    of: &TypeName,
    mut first: Entry,
    before: Vec<(String, Bytes)>,
) -> Result<()> {
    let mut run = Run::begin(start.run.clone(), &first)?;
    let (live, live_body) = inner.live(&run);
    let entry = Key::Entry { run: start.run.clone(), seq: 1 }.to_string();
    let hints: Vec<String> = before.iter().map(|(key, _)| key.clone()).filter(|key| key.starts_with("due/")).collect();
    let mut batch = before.into_iter().fold(Batch::new(), |batch, (key, body)| batch.put(key, body));
    batch = batch.put(live, live_body);
    let atomic = inner.store.traits().atomic;
    let began = inner.clock.boot();
    let mut afterwards = Batch::new();
    if !atomic && is_mutated(Mutation::StartBeforeHint) {
        afterwards = std::mem::take(&mut batch);
    } else if !atomic {
        inner.store.write(batch).await?;
        batch = Batch::new();
        if inner.clock.boot().saturating_sub(began) > Duration::from_secs(60) {
            // So late that the hint may have been taken for an orphan's: another one first.
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
            if is_mutated(Mutation::StartBeforeHint) {
                inner.store.write(afterwards).await?;
            }
            // Without it a reader folds the log; nobody has written a newer one under this condition.
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

/// How often an entry is created again that is not there although it may have been.
const CREATE_TRIES_MAX: usize = 4;

/// Creates an entry; says whether it is ours. After a lost answer it is read back.
async fn create(inner: &Inner, batch: Batch, entry: &str, by: &str) -> Result<bool> {
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
        if tries == CREATE_TRIES_MAX {
            let unsettled = format!("the store does not say whether `{entry}` was created");
            // What the store said of its own trouble names what is wrong.
            return Err(match error.kind() {
                Store::Unknown => error.into(),
                _ => Error::new(ErrorKind::Unavailable, unsettled),
            });
        }
        tries += 1;
    }
}

/// The id is taken: by the same run, or by another.
async fn existing(inner: &Arc<Inner>, start: &Start) -> Result<()> {
    let id = &start.run.id;
    let Some(loaded) = log::read(&*inner.store, &start.run).await? else {
        return Err(Error::new(ErrorKind::Unavailable, format!("run `{id}` came and went")));
    };
    let run = loaded.run;
    if run.status.is_final() && !inner.store.traits().atomic {
        // Our `live/` object may lie over one that was deleted at its end.
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
            (format!("run `{id}` is there already, as a run of `{}`", run.of), "choose another id")
        }
        Family::Workflow => (format!("run `{id}` is there already, with another input"), "choose another id"),
        Family::Task => {
            (format!("a task with this key is there already, with another input: `{id}`"), "choose another key")
        }
    };
    Err(Error::new(ErrorKind::Conflict, what).hint(format!("{hint}, or look at what is there")))
}
