//! Signals: sending one or many, and seeing what waits and what became of each.

use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wigwag::{Payload, Receipt, RunHandle, SignalCall, SignalState};

use crate::app::App;
use crate::auth::Caller;
use crate::extract::{Json, Key, Of, Path, Query};
use crate::limits::{PAGE_MAX, SIGNALS_MAX};
use crate::problem::{Code, Problem, Result};
use crate::wire::{self, Object, Page, Raw, Span};
use crate::words;

/// A signal to be sent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Send {
    /// What it carries; `null` if absent.
    #[schemars(with = "Value")]
    #[serde(default = "Payload::null")]
    payload: Payload,
    /// However often it is repeated under this key, one signal arrives. `Idempotency-Key` says the same.
    #[schemars(with = "Option<words::Short>")]
    key: Option<String>,
    /// Refuse to send unless a wait for it is open.
    #[serde(default)]
    only_if_waiting: bool,
    /// For the wait at this point.
    #[schemars(with = "Option<words::Point>")]
    point: Option<String>,
    /// Start the run first if there is none.
    #[schemars(with = "Option<StartIfAbsent>")]
    start_if_absent: Option<Object<StartIfAbsent>>,
    /// Who sends it; where the server wants tokens it is the token's name, unless its scope is `admin`.
    #[schemars(with = "Option<words::Short>")]
    by: Option<String>,
    /// Answer only when a wait has taken it, but not after longer than this (55 s at most).
    wait: Option<Span>,
}

/// The run that a signal starts if there is none.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartIfAbsent {
    /// The name of a workflow.
    #[serde(rename = "type")]
    #[schemars(with = "words::Word")]
    of: String,
    /// What it is started with; `null` if absent.
    #[schemars(with = "Value")]
    #[serde(default = "Payload::null")]
    input: Payload,
}

/// The proof that a signal is durable.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Sent {
    /// The signal's id.
    id: String,
    /// Its place in the inbox.
    suffix: String,
    /// `waiting`: a wait for it is open or has just taken it; `buffered`: it is kept for a wait to come; `superseded`:
    /// a newer one has been taken meanwhile.
    #[schemars(with = "String")]
    state: SignalState,
    /// It was there already, sent under the same key.
    repeated: bool,
    /// Why no wait is likely to take it, with the names that are known; absent if nothing is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    /// The wait that took it, if that was waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    consumed: Option<Consumed>,
}

/// The wait that took a signal.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Consumed {
    point: String,
    at: String,
    /// How far the run is now.
    #[schemars(with = "super::shape::Status")]
    status: wigwag::Status,
    /// What the run waits for now.
    #[schemars(with = "Vec<super::shape::OpenWait>")]
    next: Vec<wigwag::OpenWait>,
}

impl Sent {
    pub(crate) fn is_repeated(&self) -> bool {
        self.repeated
    }
}

impl From<Receipt> for Sent {
    fn from(receipt: Receipt) -> Self {
        let Receipt { id, suffix, state, repeated, warning, .. } = receipt;
        Self { id, suffix, state, repeated, warning, consumed: None }
    }
}

impl Send {
    /// The call that sends it, in the caller's name.
    fn call(self, handle: &RunHandle, name: &str, caller: &Caller) -> Result<(SignalCall, Option<Span>)> {
        caller.may_signal(name)?;
        let mut call = handle.signal(name, &self.payload).via("http");
        call = match caller.sender(self.by)? {
            Some(sender) if sender.is_authenticated => call.authenticated_as(sender.name),
            Some(sender) => call.by(sender.name),
            None => call,
        };
        if let Some(key) = self.key {
            call = call.key(key);
        }
        if self.only_if_waiting {
            call = call.only_if_waiting();
        }
        if let Some(point) = self.point {
            call = call.point(point);
        }
        if let Some(Object(start)) = self.start_if_absent {
            caller.may_start()?;
            call = call.start_if_absent(&start.of, &start.input);
        }
        Ok((call, self.wait))
    }
}

pub(crate) async fn send(
    State(app): State<App>,
    caller: Caller,
    Of(handle): Of,
    Path((_, name)): Path<(String, String)>,
    key: Key,
    Json(mut wanted): Json<Send>,
) -> Result<Raw> {
    wanted.key = key.or(wanted.key)?;
    let (call, wait) = wanted.call(&handle, &name, &caller)?;
    let Some(span) = wait else { return send_only(&app, call).await };
    // The engine sees to the time; this only ends it when the server stops.
    let taken =
        app.poll(app.settings.wait_max * 2, call.and_wait(span.0.min(app.settings.wait_max)).into_future()).await?;
    let taken = taken.ok_or_else(|| Problem::new(Code::TimedOut, format!("no wait took signal `{name}`")))??;
    let consumed =
        Consumed { point: taken.point.to_string(), at: taken.at.to_string(), status: taken.status, next: taken.next };
    wire::json(200, &Sent { consumed: Some(consumed), ..taken.receipt.into() })
}

/// A signal that nobody waits for has the time of any request.
async fn send_only(app: &App, call: SignalCall) -> Result<Raw> {
    wire::json(200, &Sent::from(app.promptly(call.into_future()).await??))
}

/// Signals to be sent.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendMany {
    /// At most 1000.
    #[schemars(length(max = SIGNALS_MAX))]
    #[schemars(with = "Vec<One>")]
    signals: Vec<Object<One>>,
}

/// One of many signals.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct One {
    /// To which run.
    run: String,
    /// The run is a task.
    #[serde(default)]
    task: bool,
    /// Its name.
    name: String,
    /// What it carries; `null` if absent.
    #[schemars(with = "Value")]
    #[serde(default = "Payload::null")]
    payload: Payload,
    /// However often it is repeated under this key, one signal arrives. Without it, it is made from `Idempotency-Key`
    /// and the signal's place in the list.
    key: Option<String>,
    /// Refuse to send unless a wait for it is open.
    #[serde(default)]
    only_if_waiting: bool,
    /// For the wait at this point.
    point: Option<String>,
    /// Start the run first if there is none.
    #[schemars(with = "Option<StartOne>")]
    start_if_absent: Option<Object<StartIfAbsent>>,
    /// Who sends it.
    by: Option<String>,
}

/// The same for one of many, whose type is looked at when it is its turn.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "it describes, and is never made")]
struct StartOne {
    /// The name of a workflow.
    #[schemars(rename = "type")]
    of: String,
    /// What it is started with; `null` if absent.
    #[schemars(default)]
    input: Value,
}

/// What became of one of many signals.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Outcome {
    /// It is durable.
    Sent(Sent),
    /// It was not sent.
    Problem(Problem),
}

/// What became of each, in the order in which they were given.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Outcomes {
    results: Vec<Outcome>,
}

pub(crate) async fn send_many(
    State(app): State<App>,
    caller: Caller,
    key: Key,
    Json(wanted): Json<SendMany>,
) -> Result<Raw> {
    let count = wanted.signals.len();
    if count > SIGNALS_MAX {
        let what = format!("one request sends at most {SIGNALS_MAX} signals, got: {count}");
        return Err(Problem::new(Code::InvalidBody, what).hint("send them in several requests"));
    }
    let mut outcomes: Vec<Option<Outcome>> = Vec::with_capacity(count);
    let mut calls = Vec::with_capacity(count);
    for (place, Object(one)) in wanted.signals.into_iter().enumerate() {
        let spare = key.0.as_ref().map(|key| format!("{key}:{place}"));
        match one.call(&app, &caller, spare) {
            Ok(call) => {
                calls.push(call);
                outcomes.push(None);
            }
            Err(problem) => outcomes.push(Some(Outcome::Problem(problem))),
        }
    }
    let mut sent = app.client.signal_many(calls).await.into_iter().map(|sent| match sent {
        Ok(receipt) => Outcome::Sent(receipt.into()),
        Err(error) => Outcome::Problem(error.into()),
    });
    let results = outcomes.into_iter().filter_map(|known| known.or_else(|| sent.next())).collect();
    wire::json(200, &Outcomes { results })
}

impl One {
    fn call(self, app: &App, caller: &Caller, spare_key: Option<String>) -> Result<SignalCall> {
        let Self { run, task, name, payload, key, only_if_waiting, point, start_if_absent, by } = self;
        let send = Send { payload, key: key.or(spare_key), only_if_waiting, point, start_if_absent, by, wait: None };
        let handle = if task { app.task(&run)? } else { app.run(&run)? };
        Ok(send.call(&handle, &name, caller)?.0)
    }
}

/// Which signals.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedPage {
    /// Only of this name.
    #[schemars(with = "Option<words::Word>")]
    name: Option<String>,
    /// At most so many; 50 unless said otherwise, 1000 at most.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
    /// After the place that the page before gave as `next`.
    #[schemars(with = "Option<words::Cursor>")]
    after: Option<String>,
}

pub(crate) async fn inbox(Of(handle): Of, Query(wanted): Query<NamedPage>) -> Result<Raw> {
    let (limit, after) = (wire::limit(wanted.limit)?, wire::cursor(wanted.after)?);
    let found = handle.signals_page(wanted.name.as_deref(), limit, after.as_deref()).await?;
    wire::json(200, &Page { items: found.signals, next: found.next })
}

pub(crate) async fn waiting_of(Of(handle): Of) -> Result<Raw> {
    wire::json(200, &Page { items: handle.waiting().await?, next: None })
}

pub(crate) async fn waiting(State(app): State<App>, Query(wanted): Query<NamedPage>) -> Result<Raw> {
    let (limit, after) = (wire::limit(wanted.limit)?, wire::cursor(wanted.after)?);
    let found = match &wanted.name {
        Some(name) => app.client.runs_waiting_for(name, limit, after.as_deref()).await?,
        None => app.client.waiting_runs(limit, after.as_deref()).await?,
    };
    wire::json(200, &Page { items: found.runs, next: found.next })
}
