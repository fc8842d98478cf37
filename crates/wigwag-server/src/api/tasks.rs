//! Tasks: single steps that any worker of a queue runs.

use std::future::IntoFuture as _;

use axum::extract::State;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use wigwag::{Filter, Payload, Retry};
use wigwag_core::{Name, Refusal, TypeName};

use super::runs;
use crate::app::App;
use crate::extract::{Json, Key, Query};
use crate::limits::PAGE_MAX;
use crate::problem::{Code, Problem, Result};
use crate::wire::{self, Moment, Paging, Raw, Span};
use crate::words;

/// Default queue of tasks.
const QUEUE: &str = "default";

/// Parameters of a new task.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Submit {
    /// Name of the task.
    #[serde(rename = "type")]
    #[schemars(with = "words::TaskType")]
    of: String,
    /// Input; `null` if absent.
    #[schemars(with = "serde_json::Value")]
    #[serde(default = "Payload::null")]
    input: Payload,
    /// Idempotency key: the same key and type are the same task. Same as `Idempotency-Key`.
    key: Option<String>,
    /// Queue whose workers run it; `default` if absent.
    #[schemars(with = "Option<words::Word>")]
    queue: Option<String>,
    /// Number of retries.
    #[serde(default, deserialize_with = "wire::whole")]
    #[schemars(range(max = u32::MAX))]
    retries: Option<u32>,
    /// Timeout of one attempt.
    timeout: Option<Span>,
    /// Start after this delay.
    delay: Option<Span>,
    /// Start at this time.
    at: Option<Moment>,
    /// Fail if no worker claims it within this time.
    expires_in: Option<Span>,
    /// Fail if no worker claims it before this time.
    expires_at: Option<Moment>,
    /// Return the result if the task ends within this time (55 s at most).
    wait: Option<Span>,
}

pub(crate) async fn submit(State(app): State<App>, key: Key, Json(wanted): Json<Submit>) -> Result<Response> {
    let mut call = app.client.submit(&wanted.of, &wanted.input);
    if let Some(key) = key.or(wanted.key)? {
        call = call.key(key);
    }
    if let Some(queue) = wanted.queue {
        call = call.queue(queue);
    }
    if let Some(retries) = wanted.retries {
        call = call.retry(Retry::times(retries));
    }
    if let Some(span) = wanted.timeout {
        call = call.timeout(span.0);
    }
    if let Some(span) = wanted.delay {
        call = call.delay(span.0);
    }
    if let Some(moment) = wanted.at {
        call = call.at(moment.0);
    }
    if let Some(span) = wanted.expires_in {
        call = call.expires_in(span.0);
    }
    if let Some(moment) = wanted.expires_at {
        call = call.expires_at(moment.0);
    }
    let handle = app.promptly(call.into_future()).await??;
    Ok(runs::started(&app, "tasks", &handle, wanted.wait).await)
}

/// Filter and page of a list of tasks.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Only tasks of this type in the queue `queue`.
    #[serde(rename = "type")]
    #[schemars(with = "Option<words::TaskType>")]
    of: Option<String>,
    /// Queue of the tasks; `default` if absent.
    #[schemars(with = "Option<words::Word>")]
    queue: Option<String>,
    /// Only tasks with this status, or with one of several, separated by commas.
    #[schemars(with = "Option<words::Statuses>")]
    status: Option<String>,
    /// Earliest end of a listed task; unfinished tasks are compared by their submission.
    since: Option<Moment>,
    /// Latest end of a listed task, exclusive; unfinished tasks are compared by their submission.
    until: Option<Moment>,
    /// At most so many; 50 unless said otherwise, 1000 at most.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
    /// Cursor: `next` of the page before.
    #[schemars(with = "Option<words::RunCursor>")]
    after: Option<String>,
}

pub(crate) async fn list(State(app): State<App>, Query(wanted): Query<ListQuery>) -> Result<Raw> {
    let mut filter = Filter::default();
    filter.tasks = true;
    (filter.since, filter.until) = runs::span(wanted.since, wanted.until)?;
    let queue = Name::new(wanted.queue.as_deref().unwrap_or(QUEUE)).map_err(refused)?;
    filter.of = wanted.of.map(|of| type_in_lists(&of, &queue)).transpose()?;
    runs::list_by(&app, filter, wanted.status.as_deref(), Paging { limit: wanted.limit, after: wanted.after }).await
}

/// Returns the type under which the store lists a task, which includes the queue.
fn type_in_lists(of: &str, queue: &Name) -> Result<String> {
    let of = TypeName::new(of).map_err(refused)?;
    Ok(TypeName::of_task(queue, &of).map_err(refused)?.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to `map_err`")]
fn refused(refusal: Refusal) -> Problem {
    Problem::new(Code::InvalidQuery, refusal.to_string())
}
