//! Puts into the store as server-sent events, so that remote workers need not poll.
//!
//! Holds: once the response begins, every put is announced, or a gap is reported. On a bucket these are the puts of this
//! server and of processes that post to it; notifications from another server's stream are not forwarded. A slow consumer gets
//! a gap and delays no other client.

use std::convert::Infallible;

use axum::extract::State;
use axum::http::{HeaderName, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::{FutureExt as _, stream};
use schemars::JsonSchema;
use serde::Deserialize;
use wigwag_store::limits::{KEY_BYTES_MAX, NOTIFY_BYTES_MAX};
use wigwag_store::{COVERAGE_HEADER, Change, Changes, check_key};

use crate::app::App;
use crate::auth::Caller;
use crate::extract::{Json, Query};
use crate::limits::{CHANGES_AT_ONCE, NOTIFY_KEYS_MAX};
use crate::problem::{Code, Problem, Result};

/// Filter of keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ChangesQuery {
    /// Only keys with this prefix; all keys if absent.
    prefix: Option<String>,
    /// Follow the store even if writes of other processes may be missing: on a bucket, a server streams only its own writes and those
    /// posted to it (`wigwag-notifications: partial`).
    #[serde(default)]
    partial: bool,
}

/// Written keys that other processes may wait for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Notify {
    /// Keys of objects that were put.
    #[schemars(length(max = 4096), inner(length(min = 1, max = 1024)))]
    keys: Vec<String>,
    /// Whether more keys were written than are listed.
    #[serde(default)]
    gap: bool,
}

/// Forwards notifications of another process to subscribers, without storing them.
pub(crate) async fn notify(State(app): State<App>, caller: Caller, Json(told): Json<Notify>) -> Result<StatusCode> {
    let Notify { keys, gap } = told;
    if keys.len() > NOTIFY_KEYS_MAX {
        let what = format!("a post has at most {NOTIFY_KEYS_MAX} keys, got: {}", keys.len());
        return Err(Problem::new(Code::InvalidBody, what));
    }
    let bytes: usize = keys.iter().map(String::len).sum();
    if bytes > NOTIFY_BYTES_MAX {
        let what = format!("the keys of a post have at most {NOTIFY_BYTES_MAX} bytes, got: {bytes}");
        return Err(
            Problem::new(Code::InvalidBody, what).hint("send them in several posts, or `\"gap\": true` instead")
        );
    }
    for key in &keys {
        check_key(key).map_err(|error| Problem::new(Code::InvalidBody, error.to_string()))?;
        caller.may_follow(key)?;
    }
    // A store that announces every write itself needs no notifications.
    if let Some(notices) = app.client.notices() {
        notices.post(&keys);
        if gap {
            notices.post_gap();
        }
    }
    Ok(StatusCode::NO_CONTENT)
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
    let is_complete = store.traits().notifications.is_complete();
    let changes = match app.client.notices().filter(|_| wanted.partial) {
        _ if is_complete => store.changes(&prefix),
        Some(notices) => notices.direct_changes(&prefix),
        None => return Ok(StatusCode::NO_CONTENT.into_response()),
    };
    let coverage = if is_complete { "complete" } else { "partial" };
    let keep_alive = KeepAlive::new().interval(app.settings.keep_alive);
    let events = stream::unfold(Some((app, caller, changes, None)), |follower| async move {
        let (app, caller, mut changes, mut left) = follower?;
        let end = |why: &str| Some((Ok::<_, Infallible>(Event::default().event("end").data(why)), None));
        let event = tokio::select! {
            biased;
            () = app.stops() => return end("stopped"),
            () = app.lapses(&caller) => return end("token_expired"),
            event = next(&mut changes, &mut left) => event,
        };
        Some((Ok(event), Some((app, caller, changes, left))))
    });
    let headers =
        [(HeaderName::from_static("x-accel-buffering"), "no"), (HeaderName::from_static(COVERAGE_HEADER), coverage)];
    Ok((headers, Sse::new(events).keep_alive(keep_alive)).into_response())
}

/// Returns the next event with all keys that are available. A following change that is not a key is kept in `left` for the next call.
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
    // Keys contain no line breaks, so each key is one line.
    Event::default().event("put").data(keys.join("\n"))
}
