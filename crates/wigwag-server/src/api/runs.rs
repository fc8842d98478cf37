//! Runs: start, look, list, wait.

use std::future::IntoFuture as _;

use axum::extract::State;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use wigwag::core::limits::ENTRIES_MAX;
use wigwag::core::{Data, Entry, Path as PointPath, Point, Run, shown_to_json};
use wigwag::{Filter, Payload, RunHandle, RunId, Status, Summary};

use crate::app::App;
use crate::auth::{Caller, Need};
use crate::extract::{Json, Key, Of, Query};
use crate::limits::{PAGE_MAX, WAIT};
use crate::problem::{Code, Problem, Result};
use crate::wire::{self, Moment, Page, Paging, Raw, Span};
use crate::words;

/// A run to be started.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Start {
    /// The name of a workflow.
    #[serde(rename = "type")]
    #[schemars(with = "words::Word")]
    of: String,
    /// The run's id; without it, it is made from `Idempotency-Key`, or from the time.
    #[schemars(with = "Option<words::Id>")]
    id: Option<String>,
    /// What it is started with; `null` if absent.
    #[schemars(with = "serde_json::Value")]
    #[serde(default = "Payload::null")]
    input: Payload,
    /// Not before this span is over.
    delay: Option<Span>,
    /// Not before this moment.
    at: Option<Moment>,
    /// Answer with what the run gave if it ends within this span (55 s at most). Needs the scope `runs:read` too.
    wait: Option<Span>,
}

/// What was started.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Started {
    /// Its id.
    pub(crate) id: String,
    /// Why the run may not proceed, such as a workflow that no worker has registered; absent if nothing is wrong.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// Answers with the id, or with what was waited for; and where to look.
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

/// What it gave; or, when the time is over or the server stops, only that it was started: that much is durable.
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
    // One key is one run, whatever else is asked of it: another body under the same key is a conflict.
    if let Some(id) = wanted.id.or_else(|| key.0.map(|key| RunId::hashed(&["http", &key]).to_string())) {
        call = call.id(id);
    }
    if let Some(span) = wanted.delay {
        call = call.delay(span.0);
    }
    if let Some(moment) = wanted.at {
        call = call.at(moment.0);
    }
    let handle = app.promptly(call.into_future()).await??;
    Ok(started(&app, "runs", &handle, wanted.wait).await)
}

/// Which runs are listed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Only of this type.
    #[serde(rename = "type")]
    #[schemars(with = "Option<words::Type>")]
    of: Option<String>,
    /// Only those that are so far: `pending`, `running`, `paused`, `waiting_signal`, `compensating`, `completed`,
    /// `failed` or `cancelled`.
    #[schemars(with = "Option<super::shape::Status>")]
    status: Option<String>,
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
    /// Runs that would be in this list and cannot be read, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unreadable: Vec<String>,
}

pub(crate) async fn list(State(app): State<App>, Query(wanted): Query<ListQuery>) -> Result<Raw> {
    let mut filter = Filter::default();
    filter.of = wanted.of;
    list_by(&app, filter, wanted.status.as_deref(), Paging { limit: wanted.limit, after: wanted.after }).await
}

pub(crate) async fn list_by(app: &App, mut filter: Filter, status: Option<&str>, paging: Paging) -> Result<Raw> {
    let status = status.map(str::parse::<Status>).transpose();
    filter.status = status.map_err(|refusal| Problem::new(Code::InvalidQuery, refusal.to_string()))?;
    filter.limit = wire::limit(paging.limit)?;
    filter.after = wire::cursor(paging.after)?;
    let listing = app.client.list(&filter).await?;
    let unreadable = listing.unreadable.iter().map(ToString::to_string).collect();
    wire::json(200, &Listing { items: listing.runs, next: listing.next, unreadable })
}

pub(crate) async fn get(State(app): State<App>, Of(handle): Of) -> Result<Raw> {
    let run = handle.get().await?.run().clone();
    Ok(Raw::ok(shown(&app, &handle, run).await?))
}

/// A run as its `state.json` has it, with input and result in place, its cost, and warnings if there are any.
async fn shown(app: &App, handle: &RunHandle, mut run: Run) -> Result<Vec<u8>> {
    if let Some(Data::Blob(_)) = run.result {
        run.result = handle.output_payload().await?.map(Data::Inline);
    }
    if let Data::Blob(_) = run.input {
        run.input = Data::Inline(handle.input().await?);
    }
    let mut text = shown_to_json(&run, "wigwag-server", wigwag::dollars(&run.requests));
    let warnings = app.client.diagnose(&run).await?;
    if !warnings.is_empty() {
        let warnings =
            serde_json::to_string(&warnings).map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        let inside = text.trim_ascii_end().len() - 1;
        text.truncate(inside);
        text.extend_from_slice(format!(",\"warnings\":{warnings}}}\n").as_bytes());
    }
    Ok(text)
}

/// How long something is waited for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitQuery {
    /// How long to wait; 30 s unless said otherwise, 55 s at most.
    timeout: Option<Span>,
}

impl WaitQuery {
    fn span(&self, app: &App) -> std::time::Duration {
        self.timeout.map_or(WAIT, |span| span.0).min(app.settings.wait_max)
    }
}

/// The run as it ended (200), or as it is when the time is over (202).
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
        None => Err(Problem::new(Code::TimedOut, format!("run `{}` has not ended within {span:?}", handle.id()))),
    }
}

pub(crate) async fn input(Of(handle): Of) -> Result<Raw> {
    Ok(Raw::ok(handle.input().await?.text()))
}

/// Whose output.
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

/// Which steps.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StepsQuery {
    /// `false`: of a large result only where it is stored and how long it is; `true` if absent.
    whole: Option<bool>,
    /// At most so many; 50 unless said otherwise, 1000 at most.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
    /// After the place that the page before gave as `next`.
    #[schemars(with = "Option<words::Cursor>")]
    after: Option<String>,
}

pub(crate) async fn steps(Of(handle): Of, Query(wanted): Query<StepsQuery>) -> Result<Raw> {
    let StepsQuery { whole, limit, after } = wanted;
    let mut points: Vec<(PointPath, Point)> = handle.steps().await?.into_iter().collect();
    // When a point began does not change, so that a place in this order stays a place.
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

/// Puts a large result in the place of where it is stored.
async fn make_whole(handle: &RunHandle, path: &PointPath, point: &mut Point) -> Result<()> {
    if let Some(Data::Blob(_)) = point.result {
        let whole: Box<RawValue> = handle.output(path.as_str()).await?;
        point.result = Payload::parse(whole.get()).ok().map(Data::Inline);
    }
    Ok(())
}

/// A point as it is stored, with its path.
fn step_text(path: &PointPath, point: &Point) -> Result<Box<RawValue>> {
    let unwritten = |error: serde_json::Error| Problem::new(Code::Internal, error.to_string());
    let rest = serde_json::to_string(point).map_err(unwritten)?;
    let text = format!("{{\"path\":\"{path}\",{}", rest.get(1..).unwrap_or_default());
    RawValue::from_string(text).map_err(unwritten)
}

/// Which entries.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HistoryQuery {
    /// From this entry on; the first is 1.
    #[schemars(range(max = ENTRIES_MAX))]
    from: Option<u64>,
    /// After this entry: what the page before gave as `next`.
    #[schemars(range(max = ENTRIES_MAX))]
    after: Option<u64>,
    /// At most so many; 50 unless said otherwise, 1000 at most.
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
        // Nothing there yet, or no run at all.
        handle.status().await?;
    }
    let next = items.last().filter(|_| items.len() == limit).map(|last| last.seq.to_string());
    wire::json(200, &Page { items, next })
}
