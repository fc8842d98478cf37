//! Signals: send one or many, list waits, and list signals with their outcomes.

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

/// Body of a request that sends a signal.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Send {
    /// Payload; `null` if absent.
    #[schemars(with = "Value")]
    #[serde(default = "Payload::null")]
    payload: Payload,
    /// Idempotency key: repeated requests with the same key store one signal. Same as `Idempotency-Key`.
    #[schemars(with = "Option<words::Short>")]
    key: Option<String>,
    /// Reject the signal unless a wait for it is open.
    #[serde(default)]
    only_if_waiting: bool,
    /// Address the signal to the wait at this step.
    #[schemars(with = "Option<words::Point>")]
    point: Option<String>,
    /// Start the run first if it does not exist.
    #[schemars(with = "Option<StartIfAbsent>")]
    start_if_absent: Option<Object<StartIfAbsent>>,
    /// Name of the sender. On a server with tokens it must be the token's name, unless the token has the scope `admin`.
    #[schemars(with = "Option<words::Short>")]
    by: Option<String>,
    /// Respond once a wait has consumed it, after this time at the latest (55 s at most).
    wait: Option<Span>,
}

/// The run that a signal starts if it does not exist.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartIfAbsent {
    /// Name of the workflow.
    #[serde(rename = "type")]
    #[schemars(with = "words::Word")]
    of: String,
    /// Input; `null` if absent.
    #[schemars(with = "Value")]
    #[serde(default = "Payload::null")]
    input: Payload,
}

/// Receipt of a durable signal.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Sent {
    /// Id of the signal.
    id: String,
    /// Position in the inbox.
    suffix: String,
    /// `waiting`: a wait for it is open or has just consumed it; `buffered`: it is stored for a later wait; `superseded`:
    /// a newer one was consumed instead.
    #[schemars(with = "String")]
    state: SignalState,
    /// Whether the signal already existed, sent under the same key.
    repeated: bool,
    /// Why no wait is likely to consume it, with the known names; absent if nothing is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
    /// The wait that consumed it, if the request has `wait`.
    #[serde(skip_serializing_if = "Option::is_none")]
    consumed: Option<Consumed>,
}

/// The wait that consumed a signal.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Consumed {
    point: String,
    at: String,
    /// Current status of the run.
    #[schemars(with = "super::shape::Status")]
    status: wigwag::Status,
    /// Open waits of the run.
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
    /// Builds the call that sends the signal in the caller's name.
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
    // The engine enforces the timeout; this only ends the call when the server stops.
    let taken =
        app.poll(app.settings.wait_max * 2, call.and_wait(span.0.min(app.settings.wait_max)).into_future()).await?;
    let taken = taken.ok_or_else(|| Problem::new(Code::TimedOut, format!("no wait consumed signal `{name}`")))??;
    let consumed =
        Consumed { point: taken.point.to_string(), at: taken.at.to_string(), status: taken.status, next: taken.next };
    wire::json(200, &Sent { consumed: Some(consumed), ..taken.receipt.into() })
}

/// Sends a signal without waiting for its consumption, within the usual request timeout.
async fn send_only(app: &App, call: SignalCall) -> Result<Raw> {
    wire::json(200, &Sent::from(app.promptly(call.into_future()).await??))
}

/// Body of a request that sends many signals.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SendMany {
    /// The signals, at most 1000.
    #[schemars(length(max = SIGNALS_MAX))]
    #[schemars(with = "Vec<One>")]
    signals: Vec<Object<One>>,
}

/// One of many signals.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct One {
    /// Id of the run.
    run: String,
    /// Whether the run is a task.
    #[serde(default)]
    task: bool,
    /// Name of the signal.
    name: String,
    /// Payload; `null` if absent.
    #[schemars(with = "Value")]
    #[serde(default = "Payload::null")]
    payload: Payload,
    /// Idempotency key: repeated requests with the same key store one signal. If absent, it is derived from `Idempotency-Key`
    /// and the signal's position in the list.
    key: Option<String>,
    /// Reject the signal unless a wait for it is open.
    #[serde(default)]
    only_if_waiting: bool,
    /// Address the signal to the wait at this step.
    point: Option<String>,
    /// Start the run first if it does not exist.
    #[schemars(with = "Option<StartOne>")]
    start_if_absent: Option<Object<StartIfAbsent>>,
    /// Name of the sender.
    by: Option<String>,
}

/// The same for one of many signals, whose type is validated when it is sent.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields)]
#[expect(dead_code, reason = "it describes, and is never made")]
struct StartOne {
    /// Name of the workflow.
    #[schemars(rename = "type")]
    of: String,
    /// Input; `null` if absent.
    #[schemars(default)]
    input: Value,
}

/// Outcome of one of many signals.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Outcome {
    /// The signal is durable.
    Sent(Sent),
    /// The signal was not stored.
    Problem(Problem),
}

/// Outcome of each signal, in the order of the request.
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

/// Filter and page of a list of signals.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedPage {
    /// Only signals of this name.
    #[schemars(with = "Option<words::Word>")]
    name: Option<String>,
    /// Most items on the page: 50 by default, 1000 at most.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
    /// Cursor: `next` of the page before.
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
