//! The scope of a running body, a piece of users' code: a function, a step, or a compensation.
//!
//! Holds: all requests of one poll reach the turn together. A replay uses each record once; records that are left when the
//! code returns or waits were made by other code.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::Instrument as _;
use wigwag_core::{Data, Path, Payload, Point, PointKind, Refusal, RunRef, Time, version};

use crate::body::BodyLink;
use crate::context::StepInfo;
use crate::engine_core::{EngineCore, lock};
use crate::failure::Failure;
use crate::mailbox::{BodyId, Mailbox, Request, Returned, Slot, Spec};
use crate::tally::Tally;
use crate::{panics, spans};

/// Compensation of a function's step; its arguments are the step's result, if there is one, and the step it belongs to.
pub(crate) type Undo = Arc<dyn Fn(Option<Payload>, StepInfo) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync>;

/// One body of users' code, with its run, its records and its link to the turn.
pub(crate) struct Scope {
    pub(crate) inner: Arc<EngineCore>,
    pub(crate) run: RunRef,
    pub(crate) restarts: u32,
    body: BodyId,
    /// Path below which the steps of the body are recorded; none for a function.
    prefix: Option<Path>,
    pub(crate) attempt: u32,
    pub(crate) input: Payload,
    pub(crate) data: Mutex<Map<String, Value>>,
    /// The results of the run's steps so far.
    pub(crate) outputs: Outputs,
    /// Requests and reports to the turn.
    pub(crate) link: Arc<BodyLink>,
    replay: Mutex<Replay>,
    undo: Mutex<BTreeMap<Path, Undo>>,
    pub(crate) cancelled: watch::Receiver<bool>,
    landed: Option<watch::Receiver<bool>>,
    /// Store requests made for the run, without requests of the code's own clients.
    pub(crate) tally: Arc<Tally>,
    /// The body runs the code of another run's step.
    stands_in: bool,
}

/// The results of a run's steps, shared by all its bodies.
pub(crate) type Outputs = Arc<Mutex<BTreeMap<Path, Data>>>;

#[derive(Debug, Default)]
struct Replay {
    points: BTreeMap<Path, Point>,
    counts: HashMap<String, u32>,
    /// Steps that the code has called, whether or not it awaited them: the loser of a race may never be polled.
    called: HashSet<Path>,
    mismatches: Vec<String>,
    now: Time,
}

impl Replay {
    /// Returns the recorded steps that the code has not called.
    fn missing(&self) -> impl Iterator<Item = (&Path, &Point)> {
        self.points.iter().filter(|(path, point)| !point.is_dropped() && !self.called.contains(*path))
    }
}

/// Parameters of a new scope.
pub(crate) struct Made {
    pub(crate) run: RunRef,
    pub(crate) restarts: u32,
    pub(crate) body: BodyId,
    pub(crate) attempt: u32,
    pub(crate) input: Payload,
    pub(crate) data: Map<String, Value>,
    pub(crate) outputs: Outputs,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) recorded: BTreeMap<Path, Point>,
    pub(crate) now: Time,
    pub(crate) cancelled: watch::Receiver<bool>,
    /// Becomes true when the inline signal offered to the code is durable; none without inline delivery.
    pub(crate) landed: Option<watch::Receiver<bool>>,
    pub(crate) tally: Arc<Tally>,
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("run", &self.run).field("body", &self.body).finish_non_exhaustive()
    }
}

tokio::task_local! {
    /// The step of a function whose body runs.
    pub(crate) static INSIDE: Arc<Inside>;
}

/// The step of a function whose body runs, and how often it used each name.
#[derive(Debug)]
pub(crate) struct Inside {
    step: Path,
    counts: Mutex<HashMap<String, u32>>,
}

impl Inside {
    pub(crate) fn new(step: Path) -> Self {
        Self { step, counts: Mutex::default() }
    }

    /// Returns the path of the next use of a name below the step.
    pub(crate) fn path_below(&self, name: &str) -> Result<Path, Refusal> {
        let count = *lock(&self.counts).entry(name.to_owned()).and_modify(|count| *count += 1).or_insert(1);
        self.step.join(name).map(|path| path.repeated(count))
    }
}

/// The record of a step that the code has reached.
#[derive(Debug)]
pub(crate) enum Visit {
    /// The step has a recorded outcome.
    Settled(Box<Point>),
    /// The step has no recorded outcome.
    Open,
    /// The record is of another kind: the code has changed.
    Mismatch,
    /// The step lost a race in an earlier execution, and loses it again.
    Lost,
}

impl Scope {
    pub(crate) fn new(inner: Arc<EngineCore>, made: Made) -> Arc<Self> {
        let prefix = match &made.body {
            BodyId::Root => None,
            BodyId::Step(path, _) | BodyId::Undo(path, _) => Some(path.clone()),
        };
        let replay = Replay { points: made.recorded, now: made.now, ..Replay::default() };
        Arc::new(Self {
            inner,
            run: made.run,
            restarts: made.restarts,
            body: made.body,
            prefix,
            attempt: made.attempt,
            input: made.input,
            data: Mutex::new(made.data),
            outputs: made.outputs,
            link: BodyLink::new(&made.mailbox),
            replay: Mutex::new(replay),
            undo: Mutex::default(),
            cancelled: made.cancelled,
            landed: made.landed,
            tally: made.tally,
            stands_in: false,
        })
    }

    /// Waits until every reply to the code is durable. If the inline delivery fails, it never resolves: the code is dropped.
    pub(crate) async fn durable(&self) {
        let landed = self.landed.clone().filter(|_| self.link.has_replies());
        if let Some(mut landed) = landed
            && landed.wait_for(|landed| *landed).await.is_err()
        {
            std::future::pending::<()>().await;
        }
    }

    /// Returns a scope for the code of another run's step, which this body runs and whose steps it records.
    pub(crate) fn standing_in(self: &Arc<Self>, run: &wigwag_core::Run, step: &Path, input: Payload) -> Arc<Self> {
        let outputs = run.points.iter().filter_map(|(path, point)| Some((path.clone(), point.result.clone()?)));
        let replay = std::mem::take(&mut *lock(&self.replay));
        Arc::new(Self {
            inner: Arc::clone(&self.inner),
            run: run.run.clone(),
            restarts: run.restarts,
            body: self.body.clone(),
            prefix: Some(step.clone()),
            attempt: self.attempt,
            data: Mutex::new(crate::turn::data_of(run, &input)),
            input,
            outputs: Arc::new(Mutex::new(outputs.collect())),
            link: Arc::clone(&self.link),
            replay: Mutex::new(replay),
            undo: Mutex::default(),
            cancelled: self.cancelled.clone(),
            landed: self.landed.clone(),
            tally: Arc::clone(&self.tally),
            stands_in: true,
        })
    }

    /// Whether the body runs the code of another run's step and records its steps.
    pub(crate) fn stands_in(&self) -> bool {
        self.stands_in
    }

    /// Returns the step that this body belongs to; none for a function.
    pub(crate) fn point(&self) -> Option<&Path> {
        self.prefix.as_ref()
    }

    /// Returns the path of the next use of a name, counted at the call.
    pub(crate) fn path(&self, name: &str) -> Result<Path, Refusal> {
        if let Ok(step) = INSIDE.try_with(|inside| inside.step.clone()) {
            return Err(Refusal::new(format!("`{name}` is a point, and cannot be inside the step `{step}`")));
        }
        self.count(name)
    }

    /// Returns the path of a task that a step's body submits: below the step, with a count that restarts at each attempt.
    pub(crate) fn path_below(&self, name: &str) -> Result<Path, Refusal> {
        let below = INSIDE.try_with(|inside| inside.path_below(name));
        below.unwrap_or_else(|_| self.count(name))
    }

    fn count(&self, name: &str) -> Result<Path, Refusal> {
        if name.contains(['/', '#']) {
            return Err(wigwag_core::Name::new(name).err().unwrap_or_else(|| Refusal::new("not a name")));
        }
        let first = match &self.prefix {
            Some(prefix) => prefix.join(name)?,
            None => Path::new(name)?,
        };
        let mut replay = lock(&self.replay);
        let count = replay.counts.entry(name.to_owned()).or_default();
        *count += 1;
        let path = first.repeated(*count);
        replay.called.insert(path.clone());
        Ok(path)
    }

    /// Marks a step as called by the code.
    pub(crate) fn call(&self, path: &Path) {
        lock(&self.replay).called.insert(path.clone());
    }

    /// Removes and returns the record of a step: a replay uses each record once.
    pub(crate) fn visit(&self, path: &Path, kind: PointKind) -> Visit {
        let mut replay = lock(&self.replay);
        let Some(point) = replay.points.remove(path) else { return Visit::Open };
        if point.is_dropped() {
            // The earlier execution dropped this step before its end, so the replay must not see its outcome.
            return Visit::Lost;
        }
        if point.kind != kind {
            replay.mismatches.push(version::describe(path, point.kind, Some(kind)));
            return Visit::Mismatch;
        }
        if !point.status.is_settled() {
            return Visit::Open;
        }
        if let Some(ended) = point.ended_at {
            replay.now = replay.now.max(ended);
        }
        Visit::Settled(Box::new(point))
    }

    /// Reports a wait that was dropped before the code awaited it. If it is recorded as open, the turn closes it.
    pub(crate) fn abandon(&self, path: &Path) {
        let mut replay = lock(&self.replay);
        let open =
            replay.points.get(path).is_some_and(|point| point.kind == PointKind::Wait && !point.status.is_settled());
        if open {
            replay.points.remove(path);
            drop(replay);
            self.send(Request::Abandoned { body: self.body.clone(), path: path.clone() });
        }
    }

    /// Whether recorded steps lie ahead of the code: this is a replay.
    pub(crate) fn is_behind(&self) -> bool {
        lock(&self.replay).missing().next().is_some()
    }

    /// Returns the recorded steps that do not match the steps of this code.
    pub(crate) fn mismatches(&self) -> Vec<String> {
        let replay = lock(&self.replay);
        if !replay.mismatches.is_empty() {
            // The code stopped at the mismatch, so it could not reach the later steps.
            return replay.mismatches.clone();
        }
        replay.missing().map(|(path, point)| version::describe(path, point.kind, None)).collect()
    }

    pub(crate) fn has_mismatched(&self) -> bool {
        !lock(&self.replay).mismatches.is_empty()
    }

    pub(crate) fn now(&self) -> Time {
        lock(&self.replay).now
    }

    /// Advances the recorded time of the run.
    pub(crate) fn advance(&self, at: Time) {
        let mut replay = lock(&self.replay);
        replay.now = replay.now.max(at);
    }

    pub(crate) fn keep_undo(&self, path: &Path, undo: Undo) {
        lock(&self.undo).insert(path.clone(), undo);
    }

    pub(crate) fn undo(&self, path: &Path) -> Option<Undo> {
        lock(&self.undo).get(path).cloned()
    }

    /// Requests a step from the turn.
    pub(crate) fn open(self: &Arc<Self>, path: &Path, spec: Spec) -> OpenPoint {
        let slot = Slot::new(&self.link);
        self.send(Request::Open { body: self.body.clone(), path: path.clone(), spec, slot: Arc::clone(&slot) });
        OpenPoint { scope: Arc::clone(self), path: path.clone(), slot, done: false }
    }

    pub(crate) fn send(&self, request: Request) {
        self.link.send(request);
    }

    /// Reads a recorded payload. If the read fails, the turn ends, and the run stays unfinished.
    pub(crate) async fn payload(&self, path: &Path, data: &Data) -> Payload {
        let elsewhere = self.link.hold();
        let read = self.tally.counts(self.inner.payload(&self.run, Some(path), data)).await;
        // After a success or an error, the code no longer waits for the store.
        drop(elsewhere);
        match read {
            Ok(payload) => payload,
            Err(error) => {
                self.send(Request::Trouble(error));
                std::future::pending().await
            }
        }
    }

    /// Returns the changes of this body to the run's data: the top-level fields that differ, `null` for removed fields.
    pub(crate) fn patch(&self, before: &Map<String, Value>) -> Option<Map<String, Value>> {
        patch_of(before, &lock(&self.data))
    }
}

/// Returns the top-level fields that differ, `null` for removed fields; `None` if there is no difference.
pub(crate) fn patch_of(before: &Map<String, Value>, after: &Map<String, Value>) -> Option<Map<String, Value>> {
    let mut patch: Map<String, Value> =
        after.iter().filter(|(name, value)| before.get(*name) != Some(value)).map(clone_pair).collect();
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    patch.extend(removed.map(|name| (name.clone(), Value::Null)));
    (!patch.is_empty()).then_some(patch)
}

fn clone_pair((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

/// A step requested from the turn. A drop before its end notifies the turn that the code no longer waits for it.
#[derive(Debug)]
pub(crate) struct OpenPoint {
    scope: Arc<Scope>,
    path: Path,
    pub(crate) slot: Arc<Slot>,
    pub(crate) done: bool,
}

impl Drop for OpenPoint {
    fn drop(&mut self) {
        self.slot.close();
        if !self.done {
            self.scope.send(Request::Dropped { path: self.path.clone(), slot: Arc::clone(&self.slot) });
        }
    }
}

/// Runs users' code in a separate Tokio task.
pub(crate) fn spawn(scope: &Arc<Scope>, code: BoxFuture<'static, Result<Payload, Failure>>) -> JoinHandle<()> {
    let before = lock(&scope.data).clone();
    let span = spans::body(&scope.run, &scope.body, scope.attempt);
    tokio::spawn(Watched { scope: Arc::clone(scope), code, before }.instrument(span))
}

/// Wrapper of users' code that sends the requests of one poll together, and turns a panic into a failure.
struct Watched {
    scope: Arc<Scope>,
    code: BoxFuture<'static, Result<Payload, Failure>>,
    before: Map<String, Value>,
}

impl Future for Watched {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.scope.link.begin_poll();
        let polled = panics::catch(|| self.code.as_mut().poll(context));
        let outcome = match polled {
            Ok(Poll::Pending) => None,
            Ok(Poll::Ready(outcome)) => Some(outcome),
            Err(panic) => Some(Err(Failure::panic(&*panic))),
        };
        if let Some(outcome) = &outcome {
            spans::ended(&tracing::Span::current(), outcome.is_err());
        }
        let ready = outcome.is_some();
        let returned = outcome.map(|outcome| Request::Returned {
            body: self.scope.body.clone(),
            outcome: outcome.map(|result| Returned { result, patch: self.scope.patch(&self.before) }),
            at: self.scope.inner.about_now(),
        });
        self.scope.link.report(returned);
        if ready { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A future whose panic is a failure.
pub(crate) struct Caught<F>(pub(crate) F);

impl<T, F: Future<Output = Result<T, Failure>> + Unpin> Future for Caught<F> {
    type Output = Result<T, Failure>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        panics::catch(|| Pin::new(&mut self.0).poll(context))
            .unwrap_or_else(|panic| Poll::Ready(Err(Failure::panic(&*panic))))
    }
}
