//! Tasks: single steps that any worker of a queue runs.

use std::future::IntoFuture as _;

use axum::extract::State;
use axum::response::Response;
use schemars::JsonSchema;
use serde::Deserialize;
use wigwag::core::{Name, Refusal, TypeName};
use wigwag::{Filter, Payload, Retry};

use super::runs;
use crate::app::App;
use crate::extract::{Json, Key, Query};
use crate::limits::PAGE_MAX;
use crate::problem::{Code, Problem, Result};
use crate::wire::{self, Moment, Paging, Raw, Span};
use crate::words;

/// The queue of tasks that name none.
const QUEUE: &str = "default";

/// A task to be submitted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Submit {
    /// The name of a task.
    #[serde(rename = "type")]
    #[schemars(with = "words::TaskType")]
    of: String,
    /// What it works on; `null` if absent.
    #[schemars(with = "serde_json::Value")]
    #[serde(default = "Payload::null")]
    input: Payload,
    /// The same key of the same type is the same task. `Idempotency-Key` says the same.
    key: Option<String>,
    /// The queue whose workers take it; `default` if absent.
    #[schemars(with = "Option<words::Word>")]
    queue: Option<String>,
    /// How often it is tried again.
    #[serde(default, deserialize_with = "wire::whole")]
    #[schemars(range(max = u32::MAX))]
    retries: Option<u32>,
    /// How long one try may take.
    timeout: Option<Span>,
    /// Not before this span is over.
    delay: Option<Span>,
    /// Not before this moment.
    at: Option<Moment>,
    /// It fails if nobody took it before this span is over.
    expires_in: Option<Span>,
    /// It fails if nobody took it by this moment.
    expires_at: Option<Moment>,
    /// Answer with what the task gave if it ends within this span (55 s at most).
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

/// Which tasks are listed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    /// Only of this type, of the queue `queue`.
    #[serde(rename = "type")]
    #[schemars(with = "Option<words::TaskType>")]
    of: Option<String>,
    /// The queue of the type; `default` if absent.
    #[schemars(with = "Option<words::Word>")]
    queue: Option<String>,
    /// Only those that are so far.
    #[schemars(with = "Option<super::shape::Status>")]
    status: Option<String>,
    /// At most so many; 50 unless said otherwise, 1000 at most.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
    /// After the place that the page before gave as `next`.
    #[schemars(with = "Option<words::RunCursor>")]
    after: Option<String>,
}

pub(crate) async fn list(State(app): State<App>, Query(wanted): Query<ListQuery>) -> Result<Raw> {
    let mut filter = Filter::default();
    filter.tasks = true;
    let queue = Name::new(wanted.queue.as_deref().unwrap_or(QUEUE)).map_err(refused)?;
    filter.of = wanted.of.map(|of| type_in_lists(&of, &queue)).transpose()?;
    runs::list_by(&app, filter, wanted.status.as_deref(), Paging { limit: wanted.limit, after: wanted.after }).await
}

/// The type under which the store lists a task: it holds the queue.
fn type_in_lists(of: &str, queue: &Name) -> Result<String> {
    let of = TypeName::new(of).map_err(refused)?;
    Ok(TypeName::of_task(queue, &of).map_err(refused)?.to_string())
}

#[expect(clippy::needless_pass_by_value, reason = "it is given to `map_err`")]
fn refused(refusal: Refusal) -> Problem {
    Problem::new(Code::InvalidQuery, refusal.to_string())
}
