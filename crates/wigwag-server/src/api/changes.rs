//! What is put into the store, as it happens, as server-sent events: for remote workers, who would have to list otherwise.
//!
//! Holds: once the answer begins, every put is told, or that some were missed. A client that reads too slowly is told so and
//! holds up nobody.

use std::convert::Infallible;

use axum::extract::State;
use axum::http::{HeaderName, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{FutureExt as _, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use wigwag::store::limits::KEY_BYTES_MAX;
use wigwag::store::{Change, Changes};

use crate::app::App;
use crate::auth::Caller;
use crate::extract::Query;
use crate::limits::CHANGES_AT_ONCE;
use crate::problem::{Code, Problem, Result};

/// Which keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangesQuery {
    /// Those that begin so; all of them without it.
    prefix: Option<String>,
}

pub(crate) async fn follow(
    State(app): State<App>,
    caller: Caller,
    Query(wanted): Query<ChangesQuery>,
) -> Result<Response> {
    let prefix = wanted.prefix.unwrap_or_default();
    caller.may_follow(&prefix)?;
    if prefix.len() > KEY_BYTES_MAX || prefix.chars().any(char::is_control) {
        let what = format!("a prefix has at most {KEY_BYTES_MAX} bytes and no control characters");
        return Err(Problem::new(Code::InvalidQuery, what));
    }
    let store = app.client.store();
    if !store.traits().nudges {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let changes = store.changes(&prefix);
    let keep_alive = KeepAlive::new().interval(app.settings.keep_alive);
    let events = stream::unfold(Some((app, changes, None)), |follower| async move {
        let (app, mut changes, mut left) = follower?;
        let event = tokio::select! {
            biased;
            () = app.stops() => return Some((Ok::<_, Infallible>(Event::default().event("end").data("stopped")), None)),
            event = next(&mut changes, &mut left) => event,
        };
        Some((Ok(event), Some((app, changes, left))))
    });
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), "no")];
    Ok((unbuffered, Sse::new(events).keep_alive(keep_alive)).into_response())
}

/// The next event: all keys that can be told at once. What comes after them and is no key is `left` for the next.
async fn next(changes: &mut Changes, left: &mut Option<Change>) -> Event {
    let first = match left.take() {
        Some(change) => change,
        None => changes.next().await,
    };
    let Change::Put(key) = first else { return Event::default().event("missed").data("") };
    let mut keys = vec![key];
    while keys.len() < CHANGES_AT_ONCE {
        match changes.next().now_or_never() {
            Some(Change::Put(key)) => keys.push(key),
            Some(other) => {
                *left = Some(other);
                break;
            }
            None => break,
        }
    }
    // A key has no line breaks: each is a line of its own.
    Event::default().event("put").data(keys.join("\n"))
}
