//! A run's events as server-sent events.
//!
//! Each has the id `SEQ.PLACE`: the log entry, and the position of the event in it. A client that reconnects with the last id
//! that it received misses no event and gets none twice. The last event is called `end` and has no id.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use wigwag::RunHandle;
use wigwag_core::Run;

use crate::app::App;
use crate::auth::Caller;
use crate::extract::{Of, Query};
use crate::limits::CATCH_UP_ENTRIES;
use crate::problem::{Code, Problem, Result};
use crate::watch::{End, Frame, Reach, Watch, frames};
use crate::words;

/// Start position of an event stream.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventsQuery {
    /// Start after this event id (`17.0`), or after the last event of this entry (`17`); `Last-Event-ID` takes precedence.
    #[schemars(with = "Option<words::EventId>")]
    after: Option<String>,
    /// Token for browsers, whose `EventSource` cannot send headers.
    #[serde(rename = "access_token")]
    _access_token: Option<String>,
}

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// Position in a log: after one event of an entry, or after its last.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Place {
    seq: u64,
    place: Option<usize>,
}

impl Place {
    fn parse(text: &str) -> Option<Self> {
        let (seq, place) = match text.split_once('.') {
            Some((seq, place)) => (seq, Some(number(place, 9)?)),
            None => (text, None),
        };
        Some(Self { seq: number(seq, 10)?, place })
    }

    fn given(headers: &HeaderMap, query: Option<&str>) -> Result<Option<Self>> {
        let header = headers.get(LAST_EVENT_ID).map(|value| value.to_str().unwrap_or("?"));
        let read = |text: &str, code: Code| {
            let shown: String = text.escape_debug().take(80).collect();
            let wrong = || Problem::new(code, format!("not the id of an event (want `17.0` or `17`): `{shown}`"));
            Self::parse(text).ok_or_else(wrong)
        };
        // The query is validated even if the header takes precedence.
        let query = query.map(|text| read(text, Code::InvalidQuery)).transpose()?;
        match header {
            // An `EventSource` that has received no event sends an empty id.
            None | Some("") => Ok(query),
            Some(text) => read(text, Code::InvalidHeader).map(Some),
        }
    }
}

/// Parses digits only, and at most `digits_max` of them.
fn number<T: std::str::FromStr>(text: &str, digits_max: usize) -> Option<T> {
    let fits = text.len() <= digits_max && text.bytes().all(|byte| byte.is_ascii_digit());
    fits.then(|| text.parse().ok()).flatten()
}

pub(crate) async fn follow(
    State(app): State<App>,
    caller: Caller,
    Of(handle): Of,
    headers: HeaderMap,
    Query(wanted): Query<EventsQuery>,
) -> Result<Response> {
    let place = Place::given(&headers, wanted.after.as_deref())?;
    let run = handle.get().await?.run().clone();
    let (next, skip) = begin(&handle, &run, place).await?;
    if next > run.seq && run.status.is_final() {
        // An `EventSource` reconnects until it gets a 204.
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let watch = app.watchers.join(&handle, &run);
    let reach = watch.reach();
    let keep_alive = KeepAlive::new().interval(app.settings.keep_alive);
    let follower = Follower { app, caller, handle, watch, reach, next, skip, queue: VecDeque::new(), done: false };
    let events = stream::unfold(follower, |mut follower| async move {
        let event = follower.next().await?;
        Some((Ok::<_, Infallible>(event), follower))
    });
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), "no")];
    Ok((unbuffered, Sse::new(events).keep_alive(keep_alive)).into_response())
}

/// Returns the first entry to send, and the number of its events that the client has already received.
async fn begin(handle: &RunHandle, run: &Run, place: Option<Place>) -> Result<(u64, usize)> {
    let Some(Place { seq, place }) = place else { return Ok((1, 0)) };
    if seq > run.seq {
        let what = format!("run `{}` has no entry {seq} yet: its last is {}", run.id(), run.seq);
        return Err(Problem::new(Code::Invalid, what).hint("continue after the last received event"));
    }
    let Some(place) = place.filter(|_| seq > 0) else { return Ok((seq + 1, 0)) };
    let entry = handle.history(seq, 1).await?;
    let count = entry.first().map_or(0, |entry| entry.events.len());
    Ok(if place + 1 >= count { (seq + 1, 0) } else { (seq, place + 1) })
}

/// A client that follows a run.
struct Follower {
    app: App,
    caller: Caller,
    handle: RunHandle,
    watch: Arc<Watch>,
    reach: watch::Receiver<Reach>,
    /// Number of the next entry to send.
    next: u64,
    /// Number of events of that entry that the client has already received.
    skip: usize,
    queue: VecDeque<Event>,
    done: bool,
}

impl Follower {
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Some(event);
            }
            if self.done {
                return None;
            }
            let (app, caller) = (self.app.clone(), self.caller.clone());
            let end = tokio::select! {
                biased;
                () = app.stops() => Some(closing(&json!({"reason": "stopped"}))),
                () = app.lapses(&caller) => Some(closing(&json!({"reason": "token_expired"}))),
                more = self.more() => more,
            };
            if let Some(end) = end {
                self.queue.push_back(end);
                self.done = true;
            }
        }
    }

    /// Waits for more events and queues them, or returns the closing event.
    async fn more(&mut self) -> Option<Event> {
        loop {
            let reach = self.reach.borrow_and_update().clone();
            if self.next <= reach.last {
                let found = match self.watch.recent(self.next) {
                    Some(frames) => Ok(frames),
                    None => self.catch_up(reach.last).await,
                };
                return match found {
                    Ok(frames) => {
                        self.take(&frames);
                        None
                    }
                    Err(problem) => Some(closing(&json!({"reason": "problem", "problem": problem}))),
                };
            }
            match reach.end {
                Some(End::Ended(status)) => {
                    return Some(closing(&json!({"reason": "ended", "status": status, "seq": reach.last})));
                }
                Some(End::Problem(problem)) => {
                    return Some(closing(&json!({"reason": "problem", "problem": *problem})));
                }
                None => _ = self.reach.changed().await,
            }
        }
    }

    /// Reads entries from the store that the watcher no longer keeps.
    async fn catch_up(&self, last: u64) -> Result<Vec<Arc<Frame>>> {
        let count = (last - self.next + 1).min(CATCH_UP_ENTRIES);
        let entries = self.handle.history(self.next, count).await?;
        if entries.is_empty() {
            let what = format!("run `{}` was deleted while it was followed", self.handle.id());
            return Err(Problem::new(Code::Gone, what));
        }
        Ok(entries.iter().flat_map(frames).collect())
    }

    fn take(&mut self, frames: &[Arc<Frame>]) {
        for frame in frames {
            let seen = frame.seq == self.next && frame.place < self.skip;
            if !seen {
                let id = format!("{}.{}", frame.seq, frame.place);
                self.queue.push_back(Event::default().id(id).event(frame.name).data(&frame.text));
            }
        }
        if let Some(last) = frames.last() {
            (self.next, self.skip) = (last.seq + 1, 0);
        }
    }
}

/// Returns the last event of a stream. It has no id, so that a client that reconnects sends the id of the last log event.
fn closing(why: &serde_json::Value) -> Event {
    Event::default().event("end").data(why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_named_by_its_entry_and_its_place() {
        assert_eq!(Place::parse("17.2"), Some(Place { seq: 17, place: Some(2) }));
        assert_eq!(Place::parse("17"), Some(Place { seq: 17, place: None }));
        for wrong in ["", "x", "1.", ".1", "1.x", "-1", "+1", "1.+1", "1.1.1", "99999999999999999999"] {
            assert_eq!(Place::parse(wrong), None, "{wrong}");
        }
    }
}
