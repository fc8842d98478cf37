//! Waiting for signals in code: one, the first of several, all of several, one each of many senders.
//!
//! Every wait is a separate step, named after its signal. Waits of a race are closed together with the winner, in the
//! same entry, so that a loser never consumes a signal meant for the next wait.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _, try_join_all};
use serde::de::DeserializeOwned;
use serde_json::Value;
use wigwag_core::{Fault, Mode, Name, Path, PointKind, PointStatus, Refusal, Time, limits, stamp_of};

use crate::context::{Ctx, pending_for_ever};
use crate::failure::{Failure, permanent};
use crate::keys::WaitKey;
use crate::mailbox::{Heard, Reply, Request, Spec};
use crate::schema;
use crate::scope::{Scope, Visit};

/// Settings of a wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitSpec {
    pub(crate) mode: Mode,
    pub(crate) quorum: u32,
    pub(crate) authenticated: bool,
    pub(crate) timeout: Option<Duration>,
    pub(crate) until: Option<Time>,
    pub(crate) schema: Option<Value>,
    pub(crate) about: Option<String>,
    pub(crate) race: Option<Path>,
}

/// Outcome of a wait, converted to the caller's type.
type Read<T> = Box<dyn FnOnce(Heard) -> Result<T, Failure> + Send>;

impl Ctx {
    /// Waits for a signal, for months if necessary: the run parks, and uses no memory.
    ///
    /// A buffered signal is consumed at once. A function may wait for the same name repeatedly; each wait consumes one
    /// signal, in order. With [`Wait::timeout`] the result is `None` if the wait timed out.
    ///
    /// ```text
    /// let Some(approval) = ctx.wait::<Approval>("approval").timeout(days(2)).await? else { return remind(ctx).await };
    /// ```
    #[expect(clippy::needless_pass_by_value, reason = "a key is a name, mostly a literal")]
    pub fn wait<T: DeserializeOwned + Send + 'static>(&self, name: impl WaitKey<T>) -> Wait<T> {
        let read: Read<T> = Box::new(|heard| match heard {
            Heard::Signals { payload, .. } => Ok(payload.read()?),
            Heard::TimedOut | Heard::Lost => Err(timed_out()),
        });
        Wait { waiting: Waiting::new(self, name.name()), spec: WaitSpec::default(), mistake: None, read }
    }

    /// Waits for the first of several signals, and returns its name. The other waits are closed with it.
    pub fn wait_any<T, N>(&self, names: impl IntoIterator<Item = N>) -> WaitAny<T>
    where
        T: DeserializeOwned + Send + 'static,
        N: AsRef<str>,
    {
        WaitAny { several: Several::new(self, names), read: one_of }
    }

    /// Waits for all of several signals, in any order, and returns them by name.
    pub fn wait_all<T, N>(&self, names: impl IntoIterator<Item = N>) -> WaitAll<T>
    where
        T: DeserializeOwned + Send + 'static,
        N: AsRef<str>,
    {
        WaitAll { several: Several::new(self, names), read: |payload| Ok(payload.read()?) }
    }

    /// Opens one wait, or returns its recorded outcome.
    async fn hear(&self, waiting: &mut Waiting, spec: WaitSpec) -> Result<Heard, Failure> {
        let (name, path) = waiting.named()?;
        let scope = &self.scope;
        if scope.stands_in() {
            let what =
                format!("`{name}` cannot be waited for in a step that runs as a task: its signals go to the workflow");
            return Err(permanent(what));
        }
        match scope.visit(&path, PointKind::Wait) {
            Visit::Settled(point) => {
                if let (PointStatus::Failed, Some(fault)) = (point.status, &point.error) {
                    return Err(Failure::recorded(fault.clone()));
                }
                let received = point.wait.as_ref().map(|wait| wait.received.clone()).unwrap_or_default();
                match (&point.result, received.is_empty()) {
                    (Some(data), false) => {
                        let payload = scope.payload(&path, data).await;
                        Ok(Heard::Signals { taken: received, payload })
                    }
                    _ => Ok(Heard::TimedOut),
                }
            }
            Visit::Mismatch => pending_for_ever().await,
            Visit::Lost if spec.race.is_some() => Ok(Heard::Lost),
            Visit::Lost => pending_for_ever().await,
            Visit::Open => {
                waiting.asked = true;
                let mut open = scope.open(&path, Spec::Wait { name, wait: spec });
                loop {
                    match open.slot.next().await {
                        Reply::Heard { heard, at } => {
                            open.done = true;
                            scope.advance(at);
                            // Only a received outcome is recorded: a wait that loses a race at this
                            // moment consumes nothing.
                            scope.send(Request::Heard { path, slot: Arc::clone(&open.slot) });
                            return Ok(heard);
                        }
                        Reply::Failed { failure, at } => {
                            open.done = true;
                            scope.advance(at);
                            return Err(failure);
                        }
                        Reply::Run { .. } | Reply::Stop | Reply::Closed { .. } => {}
                    }
                }
            }
        }
    }
}

fn timed_out() -> Failure {
    Failure::recorded(Fault::signal_timeout())
}

fn one_of<T: DeserializeOwned>(name: &str, heard: Heard) -> Result<Option<(String, T)>, Failure> {
    match heard {
        Heard::Signals { payload, .. } => Ok(Some((name.to_owned(), payload.read()?))),
        Heard::TimedOut | Heard::Lost => Ok(None),
    }
}

/// A quorum of one is a plain wait, whose payload is not an array.
pub(crate) fn check_quorum(senders: u32) -> Result<(), Refusal> {
    let max = limits::current().quorum_max;
    match (2..=max).contains(&senders) {
        true => Ok(()),
        false => Err(Refusal::new(format!("a quorum is of 2 to {max} senders, got: {senders}"))),
    }
}

/// State of one wait. If it is dropped before the code reached it in this turn, a recorded open wait is closed: it lost
/// a race in an earlier execution of the code, and must consume nothing.
#[derive(Debug)]
struct Waiting {
    scope: Arc<Scope>,
    name: Result<Name, Refusal>,
    path: Result<Path, Refusal>,
    asked: bool,
}

impl Waiting {
    fn new(ctx: &Ctx, name: &str) -> Self {
        Self { scope: Arc::clone(&ctx.scope), name: Name::new(name), path: ctx.scope.path(name), asked: false }
    }

    fn named(&self) -> Result<(Name, Path), Refusal> {
        Ok((self.name.clone()?, self.path.clone()?))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let (false, Ok(path)) = (self.asked, &self.path) {
            self.scope.abandon(path);
        }
    }
}

/// A wait for one signal, about to be awaited.
#[must_use = "a wait does nothing until it is awaited"]
pub struct Wait<T> {
    waiting: Waiting,
    spec: WaitSpec,
    mistake: Option<Refusal>,
    read: Read<T>,
}

impl<T> std::fmt::Debug for Wait<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wait").field("path", &self.waiting.path).field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned + Send + 'static> Wait<T> {
    /// Consumes the newest signal instead of the oldest; older ones are superseded.
    pub fn latest(mut self) -> Self {
        self.spec.mode = Mode::Latest;
        self
    }

    /// JSON Schema of the payload. Other payloads are rejected, and never consumed.
    pub fn schema(mut self, schema: Value) -> Self {
        match schema::checked(schema) {
            Ok(schema) => self.spec.schema = Some(schema),
            Err(refusal) => self.mistake = Some(refusal),
        }
        self
    }

    /// One line for the person who answers. Inboxes show it instead of the run's id.
    ///
    /// Texts over 200 bytes are cut. It is recorded when the wait opens, so that it stays as it was shown.
    pub fn about(mut self, text: impl AsRef<str>) -> Self {
        self.spec.about = wigwag_core::about_line(text.as_ref());
        self
    }

    /// Like [`Self::schema`], derived from the type.
    pub fn typed(self) -> Self
    where
        T: schemars::JsonSchema,
    {
        self.schema(schema::of_type::<T>())
    }

    /// Waits until this many different senders (by [`crate::SignalCall::by`]) have sent one signal each, and
    /// returns them all.
    ///
    /// Nothing is consumed before that. A sender's second signal does not count, and one without a sender never counts.
    pub fn quorum(self, senders: u32) -> Wait<Vec<T>> {
        let read: Read<Vec<T>> = Box::new(move |heard| match heard {
            Heard::Signals { payload, .. } => Ok(payload.read()?),
            Heard::TimedOut | Heard::Lost => Err(timed_out()),
        });
        let spec = WaitSpec { quorum: senders, ..self.spec };
        let mistake = self.mistake.or_else(|| check_quorum(senders).err());
        Wait { waiting: self.waiting, spec, mistake, read }
    }

    /// Consumes signals of authenticated senders only: senders over HTTP or the hub with a token or a JWT, users of a
    /// signed link, and callers of [`crate::SignalCall::authenticated_as`]. A name given with [`crate::SignalCall::by`]
    /// is a claim.
    pub fn authenticated(mut self) -> Self {
        self.spec.authenticated = true;
        self
    }

    /// Returns the sender and the time too.
    pub fn details(self) -> Wait<Received<T>> {
        let read: Read<Received<T>> = Box::new(|heard| match heard {
            Heard::Signals { taken, payload } => {
                let first = taken.first();
                let suffix = first.map(|taken| taken.signal.as_str()).unwrap_or_default();
                Ok(Received {
                    payload: payload.read()?,
                    by: first.and_then(|taken| taken.by.clone()),
                    id: suffix.split_once('_').map(|(_, id)| id.to_owned()).unwrap_or_default(),
                    sent_at: stamp_of(suffix).unwrap_or_default(),
                })
            }
            Heard::TimedOut | Heard::Lost => Err(timed_out()),
        });
        Wait { waiting: self.waiting, spec: self.spec, mistake: self.mistake, read }
    }
}

impl<T: Send + 'static> Wait<T> {
    /// For how long; it moves by as long as the run is paused. Then the answer is `None`.
    pub fn timeout(mut self, span: Duration) -> TimedWait<T> {
        self.spec.timeout = Some(span);
        TimedWait(self)
    }

    /// Until when. Then the answer is `None`.
    pub fn until(mut self, moment: Time) -> TimedWait<T> {
        self.spec.until = Some(moment);
        TimedWait(self)
    }

    async fn hear(mut self) -> Result<(Heard, Read<T>), Failure> {
        if let Some(mistake) = self.mistake {
            return Err(mistake.into());
        }
        let ctx = Ctx { scope: Arc::clone(&self.waiting.scope) };
        let heard = ctx.hear(&mut self.waiting, self.spec).await?;
        Ok((heard, self.read))
    }
}

impl<T: Send + 'static> IntoFuture for Wait<T> {
    type Output = Result<T, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let (heard, read) = self.hear().await?;
            read(heard)
        }
        .boxed()
    }
}

/// A wait with a deadline: returns `None` if it timed out.
#[derive(Debug)]
#[must_use = "a wait does nothing until it is awaited"]
pub struct TimedWait<T>(Wait<T>);

impl<T: Send + 'static> IntoFuture for TimedWait<T> {
    type Output = Result<Option<T>, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            match self.0.hear().await? {
                (Heard::TimedOut | Heard::Lost, _) => Ok(None),
                (heard, read) => read(heard).map(Some),
            }
        }
        .boxed()
    }
}

/// A signal with its sender and time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Received<T> {
    /// Payload of the signal.
    pub payload: T,
    /// Name of the sender, if given.
    pub by: Option<String>,
    /// Id of the signal.
    pub id: String,
    /// Time of the signal, by the store's clock.
    pub sent_at: Time,
}

/// Waits for several signals.
#[derive(Debug)]
struct Several {
    ctx: Ctx,
    waits: Vec<Waiting>,
    names: Vec<String>,
    timeout: Option<Duration>,
    until: Option<Time>,
}

impl Several {
    fn new<N: AsRef<str>>(ctx: &Ctx, names: impl IntoIterator<Item = N>) -> Self {
        let names: Vec<String> = names.into_iter().map(|name| name.as_ref().to_owned()).collect();
        let waits = names.iter().map(|name| Waiting::new(ctx, name)).collect();
        Self { ctx: ctx.clone(), waits, names, timeout: None, until: None }
    }

    /// Waits until all are settled: the waits of a race are settled together.
    async fn hear(self, race: bool) -> Result<Vec<(String, Heard)>, Failure> {
        if self.waits.is_empty() || self.waits.len() > limits::current().race_max {
            let (max, count) = (limits::current().race_max, self.waits.len());
            return Err(Refusal::new(format!("1 to {max} signals are waited for at once, got: {count}")).into());
        }
        let names: std::collections::BTreeSet<&String> = self.names.iter().collect();
        if names.len() < self.names.len() {
            return Err(Refusal::new("each signal is waited for once; for several of one name use `quorum`").into());
        }
        let first = self.waits[0].path.clone()?;
        let race = race.then_some(first);
        let (ctx, timeout, until) = (&self.ctx, self.timeout, self.until);
        let heard = self.waits.into_iter().zip(self.names).map(|(mut waiting, name)| {
            let spec = WaitSpec { timeout, until, race: race.clone(), ..WaitSpec::default() };
            async move { Ok::<_, Failure>((name, ctx.hear(&mut waiting, spec).await?)) }
        });
        try_join_all(heard).await
    }
}

/// Reads the first signal, if one was consumed.
type ReadFirst<T> = fn(&str, Heard) -> Result<Option<(String, T)>, Failure>;

/// A wait for the first of several signals, about to be awaited.
#[derive(Debug)]
#[must_use = "a wait does nothing until it is awaited"]
pub struct WaitAny<T> {
    several: Several,
    read: ReadFirst<T>,
}

impl<T: Send + 'static> WaitAny<T> {
    /// Timeout of the waits; a pause extends it by its length. After it, the result is `None`.
    pub fn timeout(mut self, span: Duration) -> TimedWaitAny<T> {
        self.several.timeout = Some(span);
        TimedWaitAny(self)
    }

    /// Deadline of the waits. After it, the result is `None`.
    pub fn until(mut self, moment: Time) -> TimedWaitAny<T> {
        self.several.until = Some(moment);
        TimedWaitAny(self)
    }

    async fn first(self) -> Result<Option<(String, T)>, Failure> {
        let heard = self.several.hear(true).await?;
        if heard.iter().all(|(_, heard)| matches!(heard, Heard::Lost)) {
            // The whole future lost an outer race in an earlier execution of the code, and loses it again.
            pending_for_ever::<()>().await;
        }
        for (name, heard) in heard {
            if let Some(found) = (self.read)(&name, heard)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

impl<T: Send + 'static> IntoFuture for WaitAny<T> {
    type Output = Result<(String, T), Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move { self.first().await?.ok_or_else(timed_out) }.boxed()
    }
}

/// A wait with a deadline for the first of several signals: returns `None` if it timed out.
#[derive(Debug)]
#[must_use = "a wait does nothing until it is awaited"]
pub struct TimedWaitAny<T>(WaitAny<T>);

impl<T: Send + 'static> IntoFuture for TimedWaitAny<T> {
    type Output = Result<Option<(String, T)>, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.0.first().boxed()
    }
}

/// A wait for all of several signals, about to be awaited.
#[derive(Debug)]
#[must_use = "a wait does nothing until it is awaited"]
pub struct WaitAll<T> {
    several: Several,
    read: fn(&wigwag_core::Payload) -> Result<T, Failure>,
}

impl<T: Send + 'static> WaitAll<T> {
    /// Timeout of the waits; a pause extends it by its length. After it, the result contains the signals
    /// consumed so far.
    pub fn timeout(mut self, span: Duration) -> Self {
        self.several.timeout = Some(span);
        self
    }

    /// Deadline of the waits. After it, the result contains the signals consumed so far.
    pub fn until(mut self, moment: Time) -> Self {
        self.several.until = Some(moment);
        self
    }
}

impl<T: Send + 'static> IntoFuture for WaitAll<T> {
    type Output = Result<BTreeMap<String, T>, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        async move {
            let mut all = BTreeMap::new();
            for (name, heard) in self.several.hear(false).await? {
                if let Heard::Signals { payload, .. } = heard {
                    all.insert(name, (self.read)(&payload)?);
                }
            }
            Ok(all)
        }
        .boxed()
    }
}
