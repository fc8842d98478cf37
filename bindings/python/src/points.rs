//! Points of a run, as Python asks for them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use serde::Deserialize;
use serde_json::Value;
use wigwag::{Ctx, Failure, Joined, Payload, Retry, RunId, StepInfo, TaskEnd, TaskOptions, Time};
use wigwag_core::Name;

use crate::failures::Outcome;
use crate::mailbox::{FORGET, Post};
use crate::scope::Held;
use crate::spec::{RetrySpec, span};

/// A point, as JSON names it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Point {
    Step {
        name: String,
        code: u64,
        undo: Option<u64>,
        #[serde(default)]
        retry: RetrySpec,
        timeout: Option<f64>,
    },
    Map {
        name: String,
        code: u64,
        count: usize,
        concurrency: Option<usize>,
        #[serde(default)]
        retry: RetrySpec,
        timeout: Option<f64>,
    },
    Sleep {
        name: String,
        seconds: f64,
    },
    SleepUntil {
        name: String,
        at: Time,
    },
    Child {
        name: String,
        of: String,
        input: Payload,
    },
    Wait(Wait),
    WaitAny {
        names: Vec<String>,
        timeout: Option<f64>,
        until: Option<Time>,
    },
    WaitAll {
        names: Vec<String>,
        timeout: Option<f64>,
        until: Option<Time>,
    },
    Submit(Submission),
    Tasks {
        ids: Vec<String>,
        timeout: Option<f64>,
    },
    FanOut {
        name: String,
        of: String,
        inputs: Vec<Payload>,
        #[serde(default)]
        options: Options,
        wait: Option<f64>,
    },
    Patched {
        name: String,
    },
    Output {
        step: String,
    },
}

/// A wait for one signal.
#[derive(Debug, Deserialize)]
pub(crate) struct Wait {
    name: String,
    timeout: Option<f64>,
    until: Option<Time>,
    #[serde(default)]
    latest: bool,
    quorum: Option<u32>,
    schema: Option<Value>,
    #[serde(default)]
    authenticated: bool,
    about: Option<String>,
    #[serde(default)]
    details: bool,
}

/// A task to be submitted.
#[derive(Debug, Deserialize)]
pub(crate) struct Submission {
    of: String,
    input: Payload,
    #[serde(default)]
    options: Options,
}

/// How a task is run.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Options {
    queue: Option<String>,
    key: Option<String>,
    retry: Option<RetrySpec>,
    timeout: Option<f64>,
    at: Option<Time>,
    delay: Option<f64>,
    expires_at: Option<Time>,
    expires_in: Option<f64>,
}

impl Options {
    pub(crate) fn into_options(self) -> Result<TaskOptions, wigwag_core::Refusal> {
        let mut options = TaskOptions::default();
        options.queue = self.queue.map(Name::new).transpose()?;
        options.key = self.key;
        options.retry = self.retry.map(RetrySpec::into_retry);
        options.timeout = self.timeout.map(span);
        options.not_before = self.at;
        options.delay = self.delay.map(span);
        options.expires_at = self.expires_at;
        options.expires_in = self.expires_in.map(span);
        Ok(options)
    }
}

impl Submission {
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("not a submission: {error}"))
    }

    /// Submits it below a step of a function.
    pub(crate) async fn submit_below(self, info: &StepInfo) -> Outcome {
        let submitted = match self.options.into_options() {
            Ok(options) => info.submit_with(&self.of, &self.input, options).await,
            Err(refusal) => Err(wigwag::permanent(refusal)),
        };
        Outcome::of_point(submitted.and_then(|id| Ok(Payload::of(id.as_str())?)))
    }
}

/// Python may forget a function once no call of it can come any more.
struct Kept {
    post: Arc<Post>,
    function: u64,
}

impl Kept {
    /// A call, so that closures keep all of this, and not the number alone.
    fn number(&self) -> u64 {
        self.function
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.post.put((FORGET, self.function, 0, 0, 0, None));
    }
}

type Asked = BoxFuture<'static, Result<Payload, Failure>>;

impl Point {
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("not a point: {error}"))
    }

    /// Counts the point's name, and returns its future.
    pub(crate) fn ask(self, held: &Held, post: &Arc<Post>) -> Asked {
        let ctx = held.ctx();
        match self {
            Self::Step { name, code, undo, retry, timeout } => {
                step(ctx, post, &name, (code, undo), retry.into_retry(), timeout)
            }
            Self::Map { name, code, count, concurrency, retry, timeout } => {
                let shape = (count, concurrency.unwrap_or(16));
                map(ctx, post, &name, code, shape, retry.into_retry(), timeout)
            }
            Self::Sleep { name, seconds } => given(ctx.sleep(&name, span(seconds)).map(|done| done.map(null))),
            Self::SleepUntil { name, at } => given(ctx.sleep_until(&name, at).map(|done| done.map(null))),
            Self::Child { name, of, input } => ctx.child(&name, &of, &input),
            Self::Wait(wait) => wait.ask(ctx),
            Self::WaitAny { names, timeout, until } => wait_any(ctx, names, timeout, until),
            Self::WaitAll { names, timeout, until } => {
                let mut waits = ctx.wait_all::<Value, _>(names);
                waits = timeout.map(span).into_iter().fold(waits, wigwag::WaitAll::timeout);
                waits = until.into_iter().fold(waits, wigwag::WaitAll::until);
                async move { Ok(Payload::of(&waits.await?)?) }.boxed()
            }
            Self::Submit(submission) => {
                let ctx = ctx.clone();
                async move {
                    let options = submission.options.into_options()?;
                    let id = ctx.submit_with(&submission.of, &submission.input, options).await?;
                    Ok(Payload::of(id.as_str())?)
                }
                .boxed()
            }
            Self::Tasks { ids, timeout } => {
                let ids: Result<Vec<RunId>, _> = ids.into_iter().map(RunId::new).collect();
                match ids {
                    Ok(ids) => joined(ctx.wait_for_tasks(ids, timeout.map(span))),
                    Err(refusal) => std::future::ready(Err(refusal.into())).boxed(),
                }
            }
            Self::FanOut { name, of, inputs, options, wait } => match options.into_options() {
                Ok(options) => {
                    let tasks = ctx.fan_out(&name, &of, inputs).options(options);
                    joined(wait.map(span).into_iter().fold(tasks, wigwag::FanOut::timeout).into_future())
                }
                Err(refusal) => std::future::ready(Err(refusal.into())).boxed(),
            },
            Self::Patched { name } => given(ctx.patched(&name).map(|is| is.and_then(|is| Ok(Payload::of(&is)?)))),
            Self::Output { step } => {
                let held = held.clone();
                async move {
                    match held {
                        Held::Step(ctx) => ctx.output::<Payload>(&step).await,
                        Held::Function(_) => Err(wigwag::permanent("a function gets the results of its steps itself")),
                    }
                }
                .boxed()
            }
        }
    }
}

fn null(_: ()) -> Payload {
    Payload::null()
}

fn given(future: impl Future<Output = Result<Payload, Failure>> + Send + 'static) -> Asked {
    future.boxed()
}

fn step(
    ctx: &Ctx,
    post: &Arc<Post>,
    name: &str,
    (code, undo): (u64, Option<u64>),
    retry: Retry,
    timeout: Option<f64>,
) -> Asked {
    let caller = Arc::clone(post);
    let kept = Kept { post: Arc::clone(post), function: code };
    let step = ctx.step_with(name, move |info: StepInfo| {
        let (attempt, key) = (info.attempt(), info.idempotency_key());
        let called = Arc::clone(&caller).call(kept.number(), attempt, Value::from(key).to_string(), Some(info));
        async move { called.await.into_result() }
    });
    let mut step = step.retry(retry);
    step = timeout.map(span).into_iter().fold(step, wigwag::Step::timeout);
    if let Some(undo) = undo {
        let (caller, kept) = (Arc::clone(post), Kept { post: Arc::clone(post), function: undo });
        step = step.compensate_with(move |result: Option<Payload>, info: StepInfo| {
            let result = result.as_ref().map_or("null", Payload::text);
            let (attempt, text) = (info.attempt(), format!("[{},{result}]", Value::from(info.idempotency_key())));
            let called = Arc::clone(&caller).call(kept.number(), attempt, text, Some(info));
            async move { called.await.into_result().map(drop) }
        });
    }
    async move { step.await }.boxed()
}

fn map(
    ctx: &Ctx,
    post: &Arc<Post>,
    name: &str,
    code: u64,
    (count, concurrency): (usize, usize),
    retry: Retry,
    timeout: Option<f64>,
) -> Asked {
    let caller = Arc::clone(post);
    let kept = Kept { post: Arc::clone(post), function: code };
    let mut map = ctx.map_with(name, 0..count, move |place, info: StepInfo| {
        let (attempt, text) = (info.attempt(), format!("[{place},{}]", Value::from(info.idempotency_key())));
        let called = Arc::clone(&caller).call(kept.number(), attempt, text, Some(info));
        async move { called.await.into_result() }
    });
    map = map.concurrency(concurrency).retry(retry);
    map = timeout.map(span).into_iter().fold(map, wigwag::Map::timeout);
    async move { Ok(Payload::of(&map.await?)?) }.boxed()
}

impl Wait {
    fn ask(self, ctx: &Ctx) -> Asked {
        let mut wait = ctx.wait::<Payload>(&self.name);
        if self.latest {
            wait = wait.latest();
        }
        if let Some(schema) = self.schema {
            wait = wait.schema(schema);
        }
        if self.authenticated {
            wait = wait.authenticated();
        }
        if let Some(about) = self.about {
            wait = wait.about(about);
        }
        let (timeout, until) = (self.timeout.map(span), self.until);
        match (self.quorum, self.details) {
            (Some(senders), _) => timed(wait.quorum(senders), timeout, until, |all| Payload::of(&all)),
            (None, true) => timed(wait.details(), timeout, until, |heard| {
                Payload::of(&serde_json::json!({
                    "payload": heard.payload,
                    "by": heard.by,
                    "id": heard.id,
                    "sent_at": heard.sent_at,
                }))
            }),
            (None, false) => timed(wait, timeout, until, Ok),
        }
    }
}

/// A wait whose answer says whether a signal came: `[payload]`, or `[]` when the time was over.
fn timed<T: Send + 'static>(
    wait: wigwag::Wait<T>,
    timeout: Option<Duration>,
    until: Option<Time>,
    read: fn(T) -> Result<Payload, wigwag_core::Refusal>,
) -> Asked {
    let some = move |heard: T| Ok(Payload::parse(format!("[{}]", read(heard)?.text()))?);
    let timed = match (timeout, until) {
        (Some(span), _) => wait.timeout(span),
        (None, Some(moment)) => wait.until(moment),
        (None, None) => return async move { some(wait.await?) }.boxed(),
    };
    async move {
        match timed.await? {
            Some(heard) => some(heard),
            None => Ok(Payload::parse("[]")?),
        }
    }
    .boxed()
}

fn wait_any(ctx: &Ctx, names: Vec<String>, timeout: Option<f64>, until: Option<Time>) -> Asked {
    let waits = ctx.wait_any::<Value, _>(names);
    let timed = match (timeout, until) {
        (Some(seconds), _) => waits.timeout(span(seconds)),
        (None, Some(moment)) => waits.until(moment),
        (None, None) => return async move { Ok(Payload::of(&waits.await?)?) }.boxed(),
    };
    async move { Ok(Payload::of(&timed.await?)?) }.boxed()
}

/// The ends of tasks, one object each.
fn joined(tasks: impl Future<Output = Result<Joined, Failure>> + Send + 'static) -> Asked {
    async move {
        let ends = tasks.await?.tasks.into_iter().map(|end| match end {
            TaskEnd::Completed(result) => serde_json::json!({ "status": "completed", "result": result }),
            TaskEnd::Failed(fault) => serde_json::json!({ "status": "failed", "error": fault }),
            TaskEnd::Missing(id) => serde_json::json!({ "status": "missing", "id": id }),
        });
        Ok(Payload::of(&ends.collect::<Vec<_>>())?)
    }
    .boxed()
}
