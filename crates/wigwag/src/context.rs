//! The context of workflow code: steps, time, randomness, data.

mod fan_out;
mod step_ctx;

use std::future::{Future, IntoFuture};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, FutureExt as _};
use futures_util::stream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;
use tracing::Instrument as _;
use wigwag_core::{
    Parent, Path, Payload, PointKind, PointStatus, Refusal, Retry, RunId, STEP_TIMEOUT, Time, TypeName, sha256_hex,
};

pub use self::fan_out::{FanOut, Joined, TaskEnd};
pub use self::step_ctx::StepCtx;
pub use crate::body::Elsewhere;
use crate::client::TaskOptions;
use crate::failure::{Failure, permanent};
use crate::keys::{StartKey, WorkflowKey};
use crate::mailbox::{Reply, Request, Spec};
use crate::scope::{Caught, INSIDE, Inside, OpenPoint, Scope, Undo, Visit};
use crate::spans;

/// The context of a function: its steps, waits, tasks and time. Clones share one run.
///
/// Every call that takes a name is a recorded step. When the function is replayed from its top, on another worker or a
/// month later, the step returns its recorded outcome. So names and their order must be stable as long as a run of that
/// code is unfinished; code between steps runs again and should be cheap and without effects.
#[derive(Clone, Debug)]
pub struct Ctx {
    pub(crate) scope: Arc<Scope>,
}

/// Future of a step's outcome. The call of the step, not its first poll, counts the name.
pub type Point<T> = BoxFuture<'static, Result<T, Failure>>;

type Make<'a, T> = Box<dyn FnMut(StepInfo) -> BoxFuture<'a, Result<T, Failure>> + Send + 'a>;

impl Ctx {
    /// Runs code whose result is recorded: a recorded step never runs again.
    ///
    /// Until its result is recorded a step may run more than once. The future may borrow from the function.
    pub fn step<'a, F, Fut, T>(&self, name: &str, mut body: F) -> Step<'a, T>
    where
        F: FnMut() -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, Failure>> + Send + 'a,
    {
        self.step_with(name, move |_| body())
    }

    /// Like [`Ctx::step`], for code that needs its attempt or its idempotency key.
    pub fn step_with<'a, F, Fut, T>(&self, name: &str, mut body: F) -> Step<'a, T>
    where
        F: FnMut(StepInfo) -> Fut + Send + 'a,
        Fut: Future<Output = Result<T, Failure>> + Send + 'a,
    {
        let make: Make<'a, T> = Box::new(move |info| body(info).boxed());
        Step {
            ctx: self.clone(),
            path: self.scope.path(name),
            make,
            retry: Retry::default(),
            timeout: STEP_TIMEOUT,
            undo: None,
        }
    }

    /// Sleeps for a span, across crashes and deploys; a pause of the run extends the sleep.
    pub fn sleep(&self, name: &str, span: Duration) -> Point<()> {
        self.asked(self.scope.path(name), PointKind::Sleep, Ok(Spec::SleepFor(span)))
    }

    /// Sleeps until a moment.
    pub fn sleep_until(&self, name: &str, moment: Time) -> Point<()> {
        self.asked(self.scope.path(name), PointKind::Sleep, Ok(Spec::SleepUntil(moment)))
    }

    /// Starts another workflow and waits for its result. Cancelling this run cancels it too.
    #[expect(clippy::needless_pass_by_value, reason = "a key is a name, mostly a literal")]
    pub fn child<T, I>(&self, name: &str, of: impl WorkflowKey<I, T>, input: &I) -> Point<T>
    where
        T: DeserializeOwned + Send + 'static,
        I: Serialize + ?Sized,
    {
        let spec = TypeName::new(of.name()).and_then(|of| Ok(Spec::Child { of, input: Payload::of(input)? }));
        self.asked(self.scope.path(name), PointKind::Child, spec)
    }

    /// Runs code for each item, several concurrently, and returns the results in the order of the items.
    ///
    /// Each item is a separate step, `name/0`, `name/1` and so on, and runs in a separate Tokio task.
    pub fn map<'a, I, F, Fut, T>(&self, name: &str, items: I, body: F) -> Map<'a, T>
    where
        I: IntoIterator,
        I::Item: Clone + Send + Sync + 'static,
        F: Fn(I::Item) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, Failure>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        self.map_with(name, items, move |item, _| body(item))
    }

    /// Like [`Ctx::map`], for code that needs its attempt or its idempotency key.
    pub fn map_with<'a, I, F, Fut, T>(&self, name: &str, items: I, body: F) -> Map<'a, T>
    where
        I: IntoIterator,
        I::Item: Clone + Send + Sync + 'static,
        F: Fn(I::Item, StepInfo) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<T, Failure>> + Send + 'static,
        T: Serialize + DeserializeOwned + Send + 'static,
    {
        let body = Arc::new(body);
        let makes = items.into_iter().map(|item| -> Make<'a, T> {
            let body = Arc::clone(&body);
            Box::new(move |info| {
                let inside = Arc::clone(&info.inside);
                let running = body(item.clone(), info);
                in_parallel(INSIDE.scope(inside, running)).boxed()
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
    /// In the body of a step, a retry submits the same tasks again and no others.
    pub async fn submit<I: Serialize + ?Sized>(&self, of: &str, input: &I) -> Result<RunId, Failure> {
        self.submit_with(of, input, TaskOptions::default()).await
    }

    /// Like [`Ctx::submit`], with a queue, a schedule or retries.
    pub async fn submit_with<I>(&self, of: &str, input: &I, options: TaskOptions) -> Result<RunId, Failure>
    where
        I: Serialize + ?Sized,
    {
        let path = match options.key {
            Some(_) => point_of_key(of)?,
            None => self.scope.path_below(&format!("submit.{of}"))?,
        };
        self.submit_at(path, of, input, options).await
    }

    async fn submit_at<I>(&self, path: Path, of: &str, input: &I, options: TaskOptions) -> Result<RunId, Failure>
    where
        I: Serialize + ?Sized,
    {
        let _elsewhere = self.scope.link.hold();
        let id = match &options.key {
            Some(key) => RunId::hashed(&["task", of, key]),
            None => self.scope.run.id.child(&path, self.scope.restarts),
        };
        let parent = Parent { run: self.scope.run.clone(), point: path };
        let (of, input) = (TypeName::new(of)?, Payload::of(input)?);
        // A task that follows from an inline signal must not exist before that signal is durable.
        self.scope.durable().await;
        crate::client::submit_child(&self.scope.inner, id.clone(), of, input, options, parent).await?;
        Ok(id)
    }

    /// Waits until all these tasks have ended or the timeout expires, and returns their outcomes.
    ///
    /// This run must have submitted the tasks; other tasks do not report their end to it.
    pub fn wait_for_tasks(&self, ids: Vec<RunId>, timeout: Option<Duration>) -> Point<Joined> {
        self.asked(self.scope.path("tasks"), PointKind::Child, Ok(Spec::Tasks { ids, timeout }))
    }

    /// Submits a task for each item and waits for all of them: the tasks run on all workers of their queue.
    #[expect(clippy::needless_pass_by_value, reason = "a key is a name, mostly a literal")]
    pub fn fan_out<I>(&self, name: &str, of: impl StartKey<I::Item>, items: I) -> FanOut
    where
        I: IntoIterator,
        I::Item: Serialize,
    {
        let inputs = items.into_iter().map(|item| Payload::of(&item)).collect();
        let (path, of) = (self.scope.path(name), TypeName::new(of.name()));
        FanOut { ctx: self.clone(), path, of, inputs, options: TaskOptions::default(), timeout: None }
    }

    /// Returns the recorded time: the same in every replay of the function.
    #[must_use]
    pub fn now(&self) -> Time {
        self.scope.now()
    }

    /// Returns a random number: the same in every replay of the function.
    #[must_use]
    pub fn random(&self) -> u64 {
        let path = self.scope.path("random").map(|path| path.to_string()).unwrap_or_default();
        let hash = sha256_hex(&[self.scope.run.id.as_str(), &path, &self.scope.restarts.to_string()]);
        u64::from_str_radix(&hash[..16], 16).unwrap_or_default()
    }

    /// Whether this run follows changed code: `true` for runs that had not reached this call when the code changed.
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

    /// Whether cancellation of the run was requested.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.scope.cancelled.borrow()
    }

    /// Resolves when cancellation of the run is requested. Code that continues after that is dropped after the grace time.
    pub async fn cancelled(&self) {
        let mut cancelled = self.scope.cancelled.clone();
        if cancelled.wait_for(|cancelled| *cancelled).await.is_err() {
            std::future::pending().await
        }
    }

    /// Keeps this code from counting as idle while it continues outside this future, in the event loop of another
    /// language for example. Without it the engine may park the run, or offer a signal, while that loop still has work.
    ///
    /// Drop the guard when that loop waits for the engine.
    #[doc(alias = "foreign event loop")]
    pub fn elsewhere(&self) -> Elsewhere {
        self.scope.link.hold_foreign()
    }

    /// Whether the function is being replayed: recorded steps lie ahead. Code can skip its logging then.
    #[must_use]
    pub fn is_replaying(&self) -> bool {
        self.scope.is_behind()
    }

    /// Returns the future of a step whose name was counted at the call.
    fn asked<T>(&self, path: Result<Path, Refusal>, kind: PointKind, spec: Result<Spec, Refusal>) -> Point<T>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let ctx = self.clone();
        async move { Ok(ctx.point(&path?, kind, spec?).await?.read()?) }.boxed()
    }

    /// Requests a step from the turn and waits for its result.
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

/// Returns the path of a task with a key: the same wherever the run submits it.
fn point_of_key(of: &str) -> Result<Path, Refusal> {
    Path::new(format!("submit.{of}"))
}

/// Never resolves: the step is recorded with another kind, and the turn pauses the run for that mismatch.
pub(crate) async fn pending_for_ever<T>() -> T {
    std::future::pending().await
}

/// Runs a future in a separate Tokio task, which is aborted when its caller is dropped.
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

/// Attempt, path and idempotency key of a running step of a function.
#[derive(Clone, Debug)]
pub struct StepInfo {
    ctx: Ctx,
    point: Path,
    attempt: u32,
    /// How often the attempt used each name below its step.
    inside: Arc<Inside>,
}

impl StepInfo {
    pub(crate) fn new(scope: &Arc<Scope>, point: &Path, attempt: u32) -> Self {
        let inside = Arc::new(Inside::new(point.clone()));
        Self { ctx: Ctx { scope: Arc::clone(scope) }, point: point.clone(), attempt, inside }
    }

    /// Attempt number, starting at 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Path of the step in the record of the run.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.point
    }

    /// Submits a task below this step, as [`Ctx::submit_with`] does inside the step's future. For code outside of that future,
    /// which the engine cannot distinguish from the code of the function.
    pub async fn submit_with<I>(&self, of: &str, input: &I, options: TaskOptions) -> Result<RunId, Failure>
    where
        I: Serialize + ?Sized,
    {
        let path = match options.key {
            Some(_) => point_of_key(of)?,
            None => self.inside.path_below(&format!("submit.{of}"))?,
        };
        self.ctx.submit_at(path, of, input, options).await
    }

    /// Idempotency key of this step, the same at every attempt: pass it to systems that accept one.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        format!("{}:{}", self.ctx.scope.run.id, self.point)
    }

    /// Whether cancellation of the run was requested.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.ctx.is_cancelled()
    }

    /// Resolves when cancellation of the run is requested.
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
    /// Sets the retry policy; 3 retries by default.
    pub fn retry(self, retry: Retry) -> Self {
        Self { retry, ..self }
    }

    /// Sets the timeout of one attempt; 10 minutes by default. The attempt is then dropped and retried.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Sets the compensation, which runs if the run fails or is cancelled later.
    ///
    /// The code receives the step's result, or `None` if the step itself failed and its effect is unknown.
    pub fn compensate<F, Fut>(self, undo: F) -> Self
    where
        F: Fn(Option<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        self.compensate_with(move |result, _| undo(result))
    }

    /// The same for code that needs the attempt number, or the idempotency key of the step that it compensates.
    pub fn compensate_with<F, Fut>(self, undo: F) -> Self
    where
        F: Fn(Option<T>, StepInfo) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let undo: Undo = Arc::new(move |result, info| {
            let read = result.map(|result| result.read::<T>()).transpose();
            let running = read.map(|result| undo(result, info));
            async move { running?.await }.boxed()
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
                    let info = StepInfo::new(&self.ctx.scope, &path, attempt);
                    let inside = Arc::clone(&info.inside);
                    let (make, injected) = (&mut self.make, scope.inner.injected(&path));
                    let body = async move {
                        match injected {
                            Some(failure) => Err(failure),
                            None => make(info).await,
                        }
                    };
                    let span = spans::step(&scope.run, &path, attempt);
                    let running = INSIDE.scope(inside, Caught(body.boxed()));
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

/// Runs an attempt of a step until it ends or the turn stops it; the turn decides on a failure.
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
    if !open.slot.decide(attempt) {
        // The turn recorded the timeout first, so the outcome is discarded.
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

/// Steps for a list of items, about to be awaited.
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
    /// Sets the number of items that run concurrently; 16 by default.
    pub fn concurrency(self, concurrency: usize) -> Self {
        Self { concurrency: concurrency.max(1), ..self }
    }

    /// Sets the retry policy of each item.
    pub fn retry(self, retry: Retry) -> Self {
        Self { retry, ..self }
    }

    /// Sets the timeout of one attempt of an item.
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
