//! Runs: start, read, list, wait.

use std::future::IntoFuture as _;

use axum::extract::State;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use wigwag::{Filter, Payload, RunHandle, RunId, Status, Summary, Time};
use wigwag_core::limits::ENTRIES_MAX;
use wigwag_core::{Data, Entry, Path as PointPath, Point, Run, shown_to_json};

use crate::app::App;
use crate::auth::{Caller, Need};
use crate::extract::{Json, Key, Of, Query};
use crate::limits::{PAGE_MAX, WAIT};
use crate::problem::{Code, Problem, Result};
use crate::wire::{self, Moment, Page, Paging, Raw, Span};
use crate::words;

/// Parameters of a new run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Start {
    /// Name of the workflow.
    #[serde(rename = "type")]
    #[schemars(with = "words::Word")]
    of: String,
    /// Id of the run; if absent, it is derived from `Idempotency-Key` or generated.
    #[schemars(with = "Option<words::Id>")]
    id: Option<String>,
    /// Input; `null` if absent.
    #[schemars(with = "serde_json::Value")]
    #[serde(default = "Payload::null")]
    input: Payload,
    /// Start after this delay.
    delay: Option<Span>,
    /// Start at this time.
    at: Option<Moment>,
    /// Reject the start if workers have registered workflows, and not this one.
    #[serde(default)]
    registered_only: bool,
    /// Return the result if the run ends within this time (55 s at most). Also requires the scope `runs:read`.
    wait: Option<Span>,
}

/// The started run or task.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Started {
    /// Id of the run or task.
    pub(crate) id: String,
    /// Why the run may not proceed, such as a workflow that no worker has registered; absent if nothing is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// Responds with the id, or with the awaited result, and with `Location`.
pub(crate) async fn started(app: &App, place: &str, handle: &RunHandle, wait: Option<Span>) -> Response {
    let location = format!("/v1/{place}/{}", handle.id());
    let answer = match wait {
        None => begun(201, handle),
        Some(span) => given(app, handle, span).await,
    };
    ([(LOCATION, location)], answer).into_response()
}

fn begun(status: u16, handle: &RunHandle) -> Result<Raw> {
    wire::json(status, &Started { id: handle.id().to_string(), warnings: handle.warnings().to_vec() })
}

/// Responds with the result; after the timeout, or when the server stops, only with the durable start.
async fn given(app: &App, handle: &RunHandle, span: Span) -> Result<Raw> {
    match app.poll(span.0.min(app.settings.wait_max), handle.result_payload()).await {
        Ok(Some(payload)) => Ok(Raw::ok(payload?.text())),
        Ok(None) | Err(_) => begun(202, handle),
    }
}

pub(crate) async fn start(
    State(app): State<App>,
    caller: Caller,
    key: Key,
    Json(wanted): Json<Start>,
) -> Result<Response> {
    if wanted.wait.is_some() {
        caller.may(Need::Read)?;
    }
    let mut call = app.client.start(&wanted.of, &wanted.input);
    // One key is one run: another body under the same key is a conflict.
    if let Some(id) = wanted.id.or_else(|| key.0.map(|key| RunId::hashed(&["http", &key]).to_string())) {
        call = call.id(id);
    }
    if let Some(span) = wanted.delay {
        call = call.delay(span.0);
    }
    if let Some(moment) = wanted.at {
        call = call.at(moment.0);
    }
    if wanted.registered_only {
        call = call.registered_only();
    }
    let handle = app.promptly(call.into_future()).await??;
    Ok(started(&app, "runs", &handle, wanted.wait).await)
}

/// Filter and page of a list of runs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Only runs of this type.
    #[serde(rename = "type")]
    #[schemars(with = "Option<words::Type>")]
    of: Option<String>,
    /// Only runs with this status, or with one of several, separated by commas: `pending`, `running`, `paused`,
    /// `waiting_signal`, `compensating`, `completed`, `failed` or `cancelled`.
    #[schemars(with = "Option<words::Statuses>")]
    status: Option<String>,
    /// Earliest end of a listed run; unfinished runs are compared by their start.
    since: Option<Moment>,
    /// Latest end of a listed run, exclusive; unfinished runs are compared by their start.
    until: Option<Moment>,
    /// Most items on the page: 50 by default, 1000 at most. A page reads a bounded number of runs, so that it may have fewer
    /// items, or none, and still a `next`.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
    /// Cursor: `next` of the page before.
    #[schemars(with = "Option<words::RunCursor>")]
    after: Option<String>,
}

/// A page of runs: unfinished ones first, then finished ones, the newest first.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Listing {
    #[schemars(with = "Vec<super::shape::Summary>")]
    items: Vec<Summary>,
    /// Cursor of the next page, for `after`; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Number of runs that were read for this page.
    examined: usize,
    /// Runs that would be in this list and cannot be read, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
}

pub(crate) async fn list(State(app): State<App>, Query(wanted): Query<ListQuery>) -> Result<Raw> {
    let mut filter = Filter::default();
    filter.of = wanted.of;
    (filter.since, filter.until) = span(wanted.since, wanted.until)?;
    list_by(&app, filter, wanted.status.as_deref(), Paging { limit: wanted.limit, after: wanted.after }).await
}

pub(crate) async fn list_by(app: &App, mut filter: Filter, status: Option<&str>, paging: Paging) -> Result<Raw> {
    let statuses = status.into_iter().flat_map(|some| some.split(',')).map(str::parse::<Status>);
    let statuses = statuses.collect::<std::result::Result<_, _>>();
    filter.statuses = statuses.map_err(|refusal| Problem::new(Code::InvalidQuery, refusal.to_string()))?;
    filter.limit = wire::limit(paging.limit)?;
    filter.after = wire::cursor(paging.after)?;
    let listing = app.client.list(&filter).await?;
    let unreadable = listing.unreadable.iter().map(ToString::to_string).collect();
    wire::json(200, &Listing { items: listing.runs, next: listing.next, examined: listing.examined, unreadable })
}

/// Start and end of a span that a list is limited to.
pub(crate) fn span(since: Option<Moment>, until: Option<Moment>) -> Result<(Option<Time>, Option<Time>)> {
    match (since, until) {
        (Some(since), Some(until)) if since.0 >= until.0 => {
            let detail = format!("`since` ({}) is not before `until` ({})", since.0, until.0);
            Err(Problem::new(Code::InvalidQuery, detail).hint("swap the two times"))
        }
        (since, until) => Ok((since.map(|moment| moment.0), until.map(|moment| moment.0))),
    }
}

pub(crate) async fn get(State(app): State<App>, Of(handle): Of) -> Result<Raw> {
    let run = handle.get().await?.run().clone();
    Ok(Raw::ok(shown(&app, &handle, run).await?))
}

/// Serializes a run like its `state.json`, with its full input and result, its cost, and its warnings.
async fn shown(app: &App, handle: &RunHandle, mut run: Run) -> Result<Vec<u8>> {
    if let Some(Data::Blob(_)) = run.result {
        run.result = handle.output_payload().await?.map(Data::Inline);
    }
    if let Data::Blob(_) = run.input {
        run.input = Data::Inline(handle.input().await?);
    }
    let mut text = shown_to_json(&run, "wigwag-server", wigwag::dollars(&run.requests));
    let compensated = run.compensated();
    if !compensated.is_empty() {
        let undo: std::collections::BTreeMap<_, _> = compensated.iter().map(|one| (&one.point, one)).collect();
        append(&mut text, "undo", &undo)?;
    }
    let warnings = app.client.diagnose(&run).await?;
    if !warnings.is_empty() {
        append(&mut text, "warnings", &warnings)?;
    }
    Ok(text)
}

/// Appends a field to the JSON text of an object.
fn append<T: Serialize>(text: &mut Vec<u8>, name: &str, value: &T) -> Result<()> {
    let value = serde_json::to_string(value).map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    let inside = text.trim_ascii_end().len() - 1;
    text.truncate(inside);
    text.extend_from_slice(format!(",\"{name}\":{value}}}\n").as_bytes());
    Ok(())
}

/// Timeout of a long-poll.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitQuery {
    /// Maximum time to wait: 30 s by default, 55 s at most.
    timeout: Option<Span>,
}

impl WaitQuery {
    fn span(&self, app: &App) -> std::time::Duration {
        self.timeout.map_or(WAIT, |span| span.0).min(app.settings.wait_max)
    }
}

/// Responds with the finished run (200), or with its current state after the timeout (202).
pub(crate) async fn wait(State(app): State<App>, Of(handle): Of, Query(wanted): Query<WaitQuery>) -> Result<Raw> {
    let ended = app.poll(wanted.span(&app), handle.wait()).await?;
    let view = match ended {
        Some(view) => view?,
        None => handle.get().await?,
    };
    let text = shown(&app, &handle, view.run().clone()).await?;
    Ok(Raw(if view.status().is_final() { axum::http::StatusCode::OK } else { axum::http::StatusCode::ACCEPTED }, text))
}

pub(crate) async fn result(State(app): State<App>, Of(handle): Of, Query(wanted): Query<WaitQuery>) -> Result<Raw> {
    let span = wanted.span(&app);
    match app.poll(span, handle.result_payload()).await? {
        Some(payload) => Ok(Raw::ok(payload?.text())),
        None => Err(Problem::new(Code::TimedOut, format!("run `{}` did not finish within {span:?}", handle.id()))),
    }
}

pub(crate) async fn input(Of(handle): Of) -> Result<Raw> {
    Ok(Raw::ok(handle.input().await?.text()))
}

/// Selects the output of a run or step.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutputQuery {
    /// The path of a step; without it, the run's own output.
    #[schemars(with = "Option<words::Point>")]
    step: Option<String>,
}

pub(crate) async fn output(Of(handle): Of, Query(wanted): Query<OutputQuery>) -> Result<Raw> {
    if let Some(step) = wanted.step {
        let text: Box<RawValue> = handle.output(&step).await?;
        return Ok(Raw::ok(text.get()));
    }
    let payload = handle.output_payload().await?;
    let none = || {
        let what = format!("run `{}` has no output yet", handle.id());
        Problem::new(Code::NotFound, what).hint("wait for its `result`")
    };
    Ok(Raw::ok(payload.ok_or_else(none)?.text()))
}

/// Page of a list of steps.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepsQuery {
    /// `false`: return only the key and length of a large result; `true` if absent.
    whole: Option<bool>,
    /// Most items on the page: 50 by default, 1000 at most.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
    /// Cursor: `next` of the page before.
    #[schemars(with = "Option<words::Cursor>")]
    after: Option<String>,
}

pub(crate) async fn steps(Of(handle): Of, Query(wanted): Query<StepsQuery>) -> Result<Raw> {
    let StepsQuery { whole, limit, after } = wanted;
    let mut points: Vec<(PointPath, Point)> = handle.steps().await?.into_iter().collect();
    // The start of a step does not change, so a cursor in this order stays valid.
    let place = |(path, point): &(PointPath, Point)| {
        let began = point.started_at.or(point.ended_at).unwrap_or_default();
        format!("{began}~{path}")
    };
    points.sort_by_cached_key(place);
    let page = wire::page(points, &Paging { limit, after }, place)?;
    let mut items = Vec::with_capacity(page.items.len());
    for (path, mut point) in page.items {
        if whole.unwrap_or(true) {
            make_whole(&handle, &path, &mut point).await?;
        }
        items.push(step_text(&path, &point)?);
    }
    wire::json(200, &Page { items, next: page.next })
}

/// Replaces the reference to a large result by the result.
async fn make_whole(handle: &RunHandle, path: &PointPath, point: &mut Point) -> Result<()> {
    if let Some(Data::Blob(_)) = point.result {
        let whole: Box<RawValue> = handle.output(path.as_str()).await?;
        point.result = Payload::parse(whole.get()).ok().map(Data::Inline);
    }
    Ok(())
}

/// Serializes a step record as it is stored, with its path.
fn step_text(path: &PointPath, point: &Point) -> Result<Box<RawValue>> {
    let unwritten = |error: serde_json::Error| Problem::new(Code::Internal, error.to_string());
    let rest = serde_json::to_string(point).map_err(unwritten)?;
    let text = format!("{{\"path\":\"{path}\",{}", rest.get(1..).unwrap_or_default());
    RawValue::from_string(text).map_err(unwritten)
}

/// Page of a list of log entries.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryQuery {
    /// First entry of the page; the log begins with 1.
    #[schemars(range(max = ENTRIES_MAX))]
    from: Option<u64>,
    /// Cursor: `next` of the page before.
    #[schemars(range(max = ENTRIES_MAX))]
    after: Option<u64>,
    /// Most items on the page: 50 by default, 1000 at most.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
}

pub(crate) async fn history(Of(handle): Of, Query(wanted): Query<HistoryQuery>) -> Result<Raw> {
    let limit = wire::limit(wanted.limit)?;
    if let Some(entry) = wanted.after.max(wanted.from).filter(|entry| *entry > ENTRIES_MAX) {
        return Err(Problem::new(Code::InvalidQuery, format!("a log has at most {ENTRIES_MAX} entries, got: {entry}")));
    }
    let from = wanted.after.map_or(wanted.from.unwrap_or(1), |after| after.saturating_add(1));
    let items: Vec<Entry> = handle.history(from, limit as u64).await?;
    if items.is_empty() {
        // The page is empty because it is past the last entry, or because the run does not exist.
        handle.status().await?;
    }
    let next = items.last().filter(|_| items.len() == limit).map(|last| last.seq.to_string());
    wire::json(200, &Page { items, next })
}
