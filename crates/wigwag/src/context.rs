//! What users' code sees of its run: points, time, chance, data.

use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tracing::Instrument as _;
use wigwag_core::{
    Fault, Parent, Path, Payload, PointKind, PointStatus, Refusal, Retry, RunId, STEP_TIMEOUT, Time, TypeName,
    sha256_hex,
};

use crate::client::TaskOptions;
use crate::failure::{Failure, permanent};
use crate::inner::lock;
use crate::mailbox::{Reply, Request, Spec};
use crate::scope::{Caught, INSIDE, Inside, OpenPoint, Scope, Undo, Visit};
use crate::spans;

/// What a function sees of its run. Clones are the same run.
///
/// Every call that takes a name is a *point*: what happens there is recorded, and when the function is run again from
/// its top, on another worker or a month later, the record answers instead. So names and their order must be stable for
/// as long as a run of that code is unfinished; code between points runs again and should be cheap and without effects.
#[derive(Clone, Debug)]
pub struct Ctx {
    pub(crate) scope: Arc<Scope>,
}

/// What a point gives when it is awaited. Its name was counted at the call.
pub type Point<T> = BoxFuture<'static, Result<T, Failure>>;

type Make<'a, T> = Box<dyn FnMut(StepInfo) -> BoxFuture<'a, Result<T, Failure>> + Send + 'a>;

impl Ctx {
    /// Runs code whose result is recorded: a recorded step never runs again.
    ///
    /// Until its result is recorded a step may run more than once. The future may borrow what is around it.
    pub fn step<'a, F, Fut, T, E>(&self, name: &str, mut body: F) -> Step<'a, T>
    where
        F: FnMut() -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, E>> + Send + 'a,
        E: Into<Failure>,
    {
        self.step_with(name, move |_| body())
    }

    /// The same for code that wants to know its attempt or its idempotency key.
    pub fn step_with<'a, F, Fut, T, E>(&self, name: &str, mut body: F) -> Step<'a, T>
    where
        F: FnMut(StepInfo) -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, E>> + Send + 'a,
        E: Into<Failure>,
    {
        let make: Make<'a, T> = Box::new(move |info| {
            let body = body(info);
            async move { body.await.map_err(Into::into) }.boxed()
        });
        Step {
            ctx: self.clone(),
            path: self.scope.path(name),
            make,
            retry: Retry::default(),
            timeout: STEP_TIMEOUT,
            undo: None,
        }
    }

    /// Waits for a span, across crashes and deploys; it moves by as long as the run is paused.
    pub fn sleep(&self, name: &str, span: Duration) -> Point<()> {
        self.asked(self.scope.path(name), PointKind::Sleep, Ok(Spec::SleepFor(span)))
    }

    /// Waits for a moment.
    pub fn sleep_until(&self, name: &str, moment: Time) -> Point<()> {
        self.asked(self.scope.path(name), PointKind::Sleep, Ok(Spec::SleepUntil(moment)))
    }

    /// Starts another workflow and waits for its result. Cancelling this run cancels it too.
    pub fn child<T, I>(&self, name: &str, of: &str, input: &I) -> Point<T>
    where
        T: DeserializeOwned + Send + 'static,
        I: Serialize + ?Sized,
    {
        let spec = TypeName::new(of).and_then(|of| Ok(Spec::Child { of, input: Payload::of(input)? }));
        self.asked(self.scope.path(name), PointKind::Child, spec)
    }

    /// Runs code for each item, several at once, and gives the results in the order of the items.
    ///
    /// Each item is a step of its own, `name/0`, `name/1` and so on, and runs in a task of its own.
    pub fn map<'a, I, F, Fut, T, E>(&self, name: &str, items: I, body: F) -> Map<'a, T>
    where
        I: IntoIterator,
        I::Item: Clone + Send + Sync + 'static,
        F: Fn(I::Item) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, E>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
        E: Into<Failure>,
    {
        let body = Arc::new(body);
        let makes = items.into_iter().map(|item| -> Make<'a, T> {
            let body = Arc::clone(&body);
            Box::new(move |info| {
                let running = body(item.clone());
                let inside = Inside::new(info.point);
                in_parallel(INSIDE.scope(inside, async move { running.await.map_err(Into::into) })).boxed()
            })
        });
        Map {
            ctx: self.clone(),
            path: self.scope.path(name),
            makes: makes.collect(),
            concurrency: 16,
            retry: Retry::default(),
            timeout: STEP_TIMEOUT,
        }
    }

    /// Submits a task that this run can wait for with [`Ctx::wait_for_tasks`].
    ///
    /// In a step's body, where a second try submits the same tasks and not others.
    pub async fn submit<I: Serialize + ?Sized>(&self, of: &str, input: &I) -> Result<RunId, Failure> {
        self.submit_with(of, input, TaskOptions::default()).await
    }

    /// The same with a queue, a schedule, retries.
    pub async fn submit_with<I>(&self, of: &str, input: &I, options: TaskOptions) -> Result<RunId, Failure>
    where
        I: Serialize + ?Sized,
    {
        let path = self.scope.path_below(&format!("submit.{of}"))?;
        let _busy = self.scope.busy();
        let id = self.scope.run.id.child(&path, self.scope.restarts);
        let parent = Parent { run: self.scope.run.clone(), point: path };
        let (of, input) = (TypeName::new(of)?, Payload::of(input)?);
        // What may follow from a signal must not be there before the signal is.
        self.scope.durable().await;
        crate::client::submit_child(&self.scope.inner, id.clone(), of, input, options, parent).await?;
        Ok(id)
    }

    /// Waits until all these tasks have ended, or the time is over, and says which have.
    ///
    /// They must have been submitted by this run; others do not tell it of their end.
    pub fn wait_for_tasks(&self, ids: Vec<RunId>, timeout: Option<Duration>) -> Point<Joined> {
        self.asked(self.scope.path("tasks"), PointKind::Child, Ok(Spec::Tasks { ids, timeout }))
    }

    /// Submits a task for each item and waits for them: on as many machines as there are workers.
    pub fn fan_out<I>(&self, name: &str, of: &str, items: I) -> FanOut
    where
        I: IntoIterator,
        I::Item: Serialize,
    {
        let inputs = items.into_iter().map(|item| Payload::of(&item)).collect();
        let (path, of) = (self.scope.path(name), TypeName::new(of));
        FanOut { ctx: self.clone(), path, of, inputs, options: TaskOptions::default(), timeout: None }
    }

    /// The time, by what is recorded: the same whenever the function is run again.
    #[must_use]
    pub fn now(&self) -> Time {
        self.scope.now()
    }

    /// A number by chance, the same whenever the function is run again.
    #[must_use]
    pub fn random(&self) -> u64 {
        let path = self.scope.path("random").map(|path| path.to_string()).unwrap_or_default();
        let hash = sha256_hex(&[self.scope.run.id.as_str(), &path, &self.scope.restarts.to_string()]);
        u64::from_str_radix(&hash[..16], 16).unwrap_or_default()
    }

    /// Whether this run follows changed code: `true` for runs that had not come here when the code was changed.
    ///
    /// ```text
    /// if ctx.patched("charge-twice-fix").await? { new way } else { old way }
    /// ```
    pub fn patched(&self, name: &str) -> Point<bool> {
        let (ctx, path) = (self.clone(), self.scope.path(name));
        async move {
            let path = path?;
            match ctx.scope.visit(&path, PointKind::Mark) {
                Visit::Settled(_) => Ok(true),
                Visit::Mismatch | Visit::Lost => pending_for_ever().await,
                Visit::Open if ctx.scope.is_behind() => Ok(false),
                Visit::Open => ctx.ask(&path, Spec::Mark).await.map(|_| true),
            }
        }
        .boxed()
    }

    /// The run's id.
    #[must_use]
    pub fn workflow_id(&self) -> &RunId {
        &self.scope.run.id
    }

    /// Whether somebody wants the run to end.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.scope.cancelled.borrow()
    }

    /// Answers when somebody wants the run to end. What goes on after that is dropped after a grace time.
    pub async fn cancelled(&self) {
        let mut cancelled = self.scope.cancelled.clone();
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending().await
        }
    }

    /// A point whose name was counted at the call.
    fn asked<T>(&self, path: Result<Path, Refusal>, kind: PointKind, spec: Result<Spec, Refusal>) -> Point<T>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let ctx = self.clone();
        async move { Ok(ctx.point(&path?, kind, spec?).await?.read()?) }.boxed()
    }

    /// A point whose result the turn gives.
    async fn point(&self, path: &Path, kind: PointKind, spec: Spec) -> Result<Payload, Failure> {
        match self.scope.visit(path, kind) {
            Visit::Settled(point) => self.settled(path, &point).await,
            Visit::Mismatch | Visit::Lost => pending_for_ever().await,
            Visit::Open => self.ask(path, spec).await,
        }
    }

    async fn settled(&self, path: &Path, point: &wigwag_core::Point) -> Result<Payload, Failure> {
        match (point.status, &point.result, &point.error) {
            (PointStatus::Failed, _, Some(fault)) => Err(Failure::recorded(fault.clone())),
            (PointStatus::Failed, _, None) => Err(permanent("it failed")),
            (_, Some(result), _) => Ok(self.scope.payload(path, result).await),
            _ => Ok(Payload::null()),
        }
    }

    async fn ask(&self, path: &Path, spec: Spec) -> Result<Payload, Failure> {
        let mut open = self.scope.open(path, spec);
        loop {
            match open.slot.next().await {
                Reply::Closed { result, at } => {
                    open.done = true;
                    self.scope.advance(at);
                    return Ok(result);
                }
                Reply::Failed { failure, at } => {
                    open.done = true;
                    self.scope.advance(at);
                    return Err(failure);
                }
                Reply::Run { .. } | Reply::Stop | Reply::Heard { .. } => {}
            }
        }
    }
}

/// A point that is recorded as something else: the turn sees it and pauses the run.
pub(crate) async fn pending_for_ever<T>() -> T {
    std::future::pending().await
}

/// Runs in a task of its own, which ends when nobody waits for it.
async fn in_parallel<T: Send + 'static>(
    running: impl Future<Output = Result<T, Failure>> + Send + 'static,
) -> Result<T, Failure> {
    struct Aborted<T>(JoinHandle<Result<T, Failure>>);
    impl<T> Drop for Aborted<T> {
        fn drop(&mut self) {
            self.0.abort();
        }
    }
    let mut task = Aborted(tokio::spawn(Caught(running.boxed()).in_current_span()));
    match (&mut task.0).await {
        Ok(outcome) => outcome,
        Err(error) => Err(crate::retryable(error)),
    }
}

/// What a step of a function may know of itself.
#[derive(Clone, Debug)]
pub struct StepInfo {
    ctx: Ctx,
    point: Path,
    attempt: u32,
}

impl StepInfo {
    /// For which time it is run, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The same at every attempt, and of no other step: hand it to systems that take an idempotency key.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        format!("{}:{}", self.ctx.scope.run.id, self.point)
    }

    /// Whether somebody wants the run to end.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.ctx.is_cancelled()
    }

    /// Answers when somebody wants the run to end.
    pub async fn cancelled(&self) {
        self.ctx.cancelled().await;
    }
}

/// A step about to be awaited.
#[must_use = "a step does nothing until it is awaited"]
pub struct Step<'a, T> {
    ctx: Ctx,
    path: Result<Path, Refusal>,
    make: Make<'a, T>,
    retry: Retry,
    timeout: Duration,
    undo: Option<Undo>,
}

impl<T> std::fmt::Debug for Step<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Step").field("path", &self.path).finish_non_exhaustive()
    }
}

impl<'a, T: Serialize + DeserializeOwned + Send + 'a> Step<'a, T> {
    /// How often it is tried again; 3 times unless said otherwise.
    pub fn retry(self, retry: Retry) -> Self {
        Self { retry, ..self }
    }

    /// How long one try may take; 10 minutes unless said otherwise. Then it is dropped, and tried again.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// How it is undone if the run fails or is cancelled later.
    ///
    /// The code gets the step's result; or `None` if the step failed itself, and nobody knows what it did.
    pub fn compensate<F, Fut, E>(self, undo: F) -> Self
    where
        F: Fn(Option<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure>,
    {
        let undo: Undo = Arc::new(move |result| {
            let read = result.map(|result| result.read::<T>()).transpose();
            let running = read.map(&undo);
            async move { running?.await.map_err(Into::into) }.boxed()
        });
        Self { undo: Some(undo), ..self }
    }

    async fn run(mut self) -> Result<T, Failure> {
        let path = self.path.clone()?;
        let scope = Arc::clone(&self.ctx.scope);
        let compensate = self.undo.is_some();
        if let Some(undo) = self.undo.take() {
            scope.keep_undo(&path, undo);
        }
        match scope.visit(&path, PointKind::Step) {
            Visit::Settled(point) => return Ok(self.ctx.settled(&path, &point).await?.read()?),
            Visit::Mismatch | Visit::Lost => pending_for_ever().await,
            Visit::Open => {}
        }
        let spec = Spec::Step { retry: self.retry.clone(), timeout: self.timeout, compensate };
        let mut open = scope.open(&path, spec);
        loop {
            match open.slot.next().await {
                Reply::Run { attempt, deadline } => {
                    let info = StepInfo { ctx: self.ctx.clone(), point: path.clone(), attempt };
                    let (make, injected) = (&mut self.make, scope.inner.injected(&path));
                    let body = async move {
                        match injected {
                            Some(failure) => Err(failure),
                            None => make(info).await,
                        }
                    };
                    let span = spans::step(&scope.run, &path, attempt);
                    let running = INSIDE.scope(Inside::new(path.clone()), Caught(body.boxed()));
                    let running = spans::watched(span, running);
                    if let Some(value) = run_or_stop(&scope, &mut open, &path, (attempt, deadline), running).await {
                        open.done = true;
                        return Ok(value);
                    }
                }
                Reply::Failed { failure, at } => {
                    open.done = true;
                    scope.advance(at);
                    return Err(failure);
                }
                Reply::Stop | Reply::Closed { .. } | Reply::Heard { .. } => {}
            }
        }
    }
}

/// Runs a step until it comes out or the turn says stop; a failure is told to the turn, which decides.
async fn run_or_stop<T: Serialize>(
    scope: &Arc<Scope>,
    open: &mut OpenPoint,
    path: &Path,
    (attempt, deadline): (u32, Time),
    running: impl Future<Output = Result<T, Failure>>,
) -> Option<T> {
    let outcome = tokio::select! {
        biased;
        _ = open.slot.next() => return None,
        outcome = running => outcome,
    };
    if !open.slot.decide() {
        // It took too long and the turn said so first: what it gives is not heard.
        return None;
    }
    let at = scope.inner.about_now();
    let recorded = outcome.and_then(|value| Ok((Payload::of(&value).map_err(permanent)?, value)));
    let (outcome, value) = match recorded {
        Ok((payload, value)) => (Ok(payload), Some(value)),
        Err(failure) => (Err(failure), None),
    };
    // The turn discards a late result and records a timeout: the code must not continue with the result.
    let value = value.filter(|_| at <= deadline);
    if value.is_some() {
        scope.advance(at);
    }
    scope.send(Request::Outcome { path: path.clone(), attempt, outcome, at });
    value
}

impl<'a, T: Serialize + DeserializeOwned + Send + 'a> IntoFuture for Step<'a, T> {
    type Output = Result<T, Failure>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.run().boxed()
    }
}

/// Code for each of some items, about to be awaited.
#[must_use = "a map does nothing until it is awaited"]
pub struct Map<'a, T> {
    ctx: Ctx,
    path: Result<Path, Refusal>,
    makes: Vec<Make<'a, T>>,
    concurrency: usize,
    retry: Retry,
    timeout: Duration,
}

impl<T> std::fmt::Debug for Map<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Map").field("path", &self.path).field("items", &self.makes.len()).finish_non_exhaustive()
    }
}

impl<'a, T: Serialize + DeserializeOwned + Send + 'a> Map<'a, T> {
    /// How many run at once; 16 unless said otherwise.
    pub fn concurrency(self, concurrency: usize) -> Self {
        Self { concurrency: concurrency.max(1), ..self }
    }

    /// How often each is tried again.
    pub fn retry(self, retry: Retry) -> Self {
        Self { retry, ..self }
    }

    /// How long one try of one may take.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    async fn run(self) -> Result<Vec<T>, Failure> {
        let Self { ctx, path, makes, concurrency, retry, timeout } = self;
        let path = path?;
        let mut steps: Vec<BoxFuture<'a, Result<T, Failure>>> = Vec::with_capacity(makes.len());
        for (number, make) in makes.into_iter().enumerate() {
            let path = path.join(&number.to_string());
            if let Ok(path) = &path {
                ctx.scope.call(path);
            }
            steps.push(Step { ctx: ctx.clone(), path, make, retry: retry.clone(), timeout, undo: None }.into_future());
        }
        let mut running = stream::iter(steps).buffered(concurrency);
        let mut results = Vec::new();
        while let Some(result) = running.next().await {
            results.push(result?);
        }
        Ok(results)
    }
}

impl<'a, T: Serialize + DeserializeOwned + Send + 'a> IntoFuture for Map<'a, T> {
    type Output = Result<Vec<T>, Failure>;
    type IntoFuture = BoxFuture<'a, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.run().boxed()
    }
}

/// Tasks about to be submitted and awaited.
#[derive(Debug)]
#[must_use = "tasks are submitted when this is awaited"]
pub struct FanOut {
    ctx: Ctx,
    path: Result<Path, Refusal>,
    of: Result<TypeName, Refusal>,
    inputs: Result<Vec<Payload>, Refusal>,
    options: TaskOptions,
    timeout: Option<Duration>,
}

impl FanOut {
    /// With a queue, retries, an expiry.
    pub fn options(self, options: TaskOptions) -> Self {
        Self { options, ..self }
    }

    /// For how long they are waited for; then the answer says which have ended.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }
}

impl IntoFuture for FanOut {
    type Output = Result<Joined, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let Self { ctx, path, of, inputs, options, timeout } = self;
            let (path, spec) = (path?, Spec::FanOut { of: of?, inputs: inputs?, options, timeout });
            Ok(ctx.point(&path, PointKind::Child, spec).await?.read()?)
        }
        .boxed()
    }
}

/// What became of tasks that were waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Joined {
    /// One for each, in order.
    pub tasks: Vec<TaskEnd>,
}

/// What became of one task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskEnd {
    /// It gave this.
    Completed(Payload),
    /// It failed or was cancelled.
    Failed(Fault),
    /// It has not ended in time.
    Missing(RunId),
}

impl Joined {
    /// How many gave a result.
    #[must_use]
    pub fn completed(&self) -> usize {
        self.tasks.iter().filter(|task| matches!(task, TaskEnd::Completed(_))).count()
    }

    /// All results in order; or the first failure.
    pub fn results<T: DeserializeOwned>(&self) -> Result<Vec<T>, Failure> {
        let read = |task: &TaskEnd| match task {
            TaskEnd::Completed(payload) => Ok(payload.read()?),
            TaskEnd::Failed(fault) => Err(Failure::recorded(fault.clone())),
            TaskEnd::Missing(id) => Err(permanent(format!("task `{id}` has not ended in time"))),
        };
        self.tasks.iter().map(read).collect()
    }
}

/// What a step of a graph, or a task, sees of its run; it is a [`Ctx`] too, with points below the step's own.
///
/// `S` is the type of the run's input and data.
#[derive(Debug)]
pub struct StepCtx<S> {
    ctx: Ctx,
    of: PhantomData<fn() -> S>,
}

impl<S> Clone for StepCtx<S> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.ctx.scope))
    }
}

impl<S> Deref for StepCtx<S> {
    type Target = Ctx;

    fn deref(&self) -> &Ctx {
        &self.ctx
    }
}

impl<S> StepCtx<S> {
    pub(crate) fn new(scope: Arc<Scope>) -> Self {
        Self { ctx: Ctx { scope }, of: PhantomData }
    }

    /// For which time it is run, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.ctx.scope.attempt
    }

    /// The same at every attempt, and of no other step: hand it to systems that take an idempotency key.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        let point = self.ctx.scope.point().map(Path::as_str).unwrap_or_default();
        format!("{}:{point}", self.ctx.scope.run.id)
    }

    /// The result of an earlier step.
    pub async fn output<T: DeserializeOwned>(&self, step: &str) -> Result<T, Failure> {
        let path = Path::new(step)?;
        let data = lock(&self.ctx.scope.outputs).get(&path).cloned();
        let data = data.ok_or_else(|| permanent(format!("step `{step}` has no result")))?;
        Ok(self.ctx.scope.payload(&path, &data).await.read()?)
    }

    /// The input as JSON text.
    #[must_use]
    pub fn input_payload(&self) -> &Payload {
        &self.ctx.scope.input
    }

    /// A copy of the run's data, as it was when the step began, with the changes of this step.
    #[must_use]
    pub fn data_map(&self) -> serde_json::Map<String, serde_json::Value> {
        lock(&self.ctx.scope.data).clone()
    }

    /// Changes the run's data. Top-level fields that differ are recorded when the step is completed.
    pub fn change_data(&self, change: impl FnOnce(&mut serde_json::Map<String, serde_json::Value>)) {
        change(&mut lock(&self.ctx.scope.data));
    }
}

impl<S: Serialize + DeserializeOwned> StepCtx<S> {
    /// What the run was started with.
    pub fn input(&self) -> Result<S, Failure> {
        Ok(self.ctx.scope.input.read()?)
    }

    /// The run's data: the input, with the changes that steps made.
    pub fn data(&self) -> Result<S, Failure> {
        let data = self.data_map();
        if data.is_empty() {
            return self.input();
        }
        Ok(Payload::of(&data)?.read()?)
    }

    /// Changes the run's data. Top-level fields that differ are recorded when the step is completed.
    pub fn update(&self, change: impl FnOnce(&mut S)) -> Result<(), Failure> {
        let mut data = self.data()?;
        change(&mut data);
        match serde_json::to_value(&data)? {
            serde_json::Value::Object(map) => {
                self.change_data(|data| *data = map);
                Ok(())
            }
            _ => Err(permanent("a run's data is a JSON object")),
        }
    }
}
