//! Tests of following a run's events.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};
use wigwag_server::Settings;
use wigwag_store::{Memory, Meter};

use crate::kit::{Kit, answer};

/// A stream of events, read one by one.
struct Stream {
    response: Response,
    text: String,
    comments: usize,
}

/// One received event.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    id: String,
    name: String,
    data: Value,
}

impl Stream {
    async fn open(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new(), comments: 0 }
    }

    /// Returns the next event; `None` when the server has closed the stream.
    async fn next(&mut self) -> Option<Seen> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
                let seen = Seen {
                    id: field("id: ").to_owned(),
                    name: field("event: ").to_owned(),
                    data: serde_json::from_str(field("data: ")).unwrap_or_default(),
                };
                self.text = rest.to_owned();
                if !seen.name.is_empty() {
                    return Some(seen);
                }
                self.comments += 1;
            }
            let chunk = self.response.chunk().await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    }

    async fn rest(mut self) -> Vec<Seen> {
        let mut seen = Vec::new();
        while let Some(event) = self.next().await {
            seen.push(event);
        }
        seen
    }
}

fn follow(kit: &Kit, id: &str) -> RequestBuilder {
    kit.request(Method::GET, &format!("/v1/runs/{id}/events"))
}

fn after(kit: &Kit, id: &str, event: &str) -> RequestBuilder {
    kit.request(Method::GET, &format!("/v1/runs/{id}/events?after={event}"))
}

/// Returns the events that a follower must receive: every event of the log.
async fn log(kit: &Kit, id: &str) -> Vec<(String, String)> {
    let history = kit.get(&format!("/v1/runs/{id}/history?limit=1000")).await.ok(200);
    let mut events = Vec::new();
    for entry in history["items"].as_array().unwrap() {
        for (place, event) in entry["events"].as_array().unwrap().iter().enumerate() {
            events.push((format!("{}.{place}", entry["seq"]), event["type"].as_str().unwrap().to_owned()));
        }
    }
    events
}

fn named(seen: &[Seen]) -> Vec<(String, String)> {
    seen.iter().map(|event| (event.id.clone(), event.name.clone())).collect()
}

#[tokio::test]
async fn events_come_as_they_happen_and_the_last_says_how_it_ended() {
    let kit = Kit::new().await;
    kit.waiting("a").await;
    let mut stream = Stream::open(follow(&kit, "a")).await;
    let mut seen = vec![stream.next().await.unwrap()];
    assert_eq!((seen[0].id.as_str(), seen[0].name.as_str()), ("1.0", "run.started"));
    while seen.last().unwrap().name != "signal.waiting" {
        seen.push(stream.next().await.unwrap());
    }
    kit.post("/v1/runs/a/signals/approval", json!({"payload": "ada"})).await.ok(200);
    seen.extend(stream.rest().await);
    let end = seen.pop().unwrap();
    assert_eq!((end.id.as_str(), end.name.as_str()), ("", "end"));
    assert_eq!((&end.data["reason"], &end.data["status"]), (&json!("ended"), &json!("completed")));
    assert_eq!(named(&seen), log(&kit, "a").await, "all of them, once, in order");
    let received = seen.iter().find(|event| event.name == "signal.received").unwrap();
    assert_eq!(received.data["event"]["payload"], "ada");
}

#[tokio::test]
async fn whoever_comes_back_loses_nothing_and_sees_nothing_twice() {
    let kit = Kit::new().await;
    kit.post("/v1/runs", json!({"type": "order", "id": "o", "input": {}})).await.ok(201);
    kit.post("/v1/runs/o/signals/approval", json!({"payload": {"yes": true}})).await.ok(200);
    kit.get("/v1/runs/o/wait").await.ok(200);
    let all = log(&kit, "o").await;
    for (place, (id, _)) in all.iter().enumerate().take(all.len() - 1) {
        let by_header = Stream::open(follow(&kit, "o").header("last-event-id", id)).await.rest().await;
        let by_query = Stream::open(after(&kit, "o", id)).await.rest().await;
        assert_eq!(by_header, by_query);
        assert_eq!(named(&by_header[..by_header.len() - 1]), all[place + 1..], "after {id}");
    }
    let whole_entry = Stream::open(after(&kit, "o", "1")).await.rest().await;
    assert!(whole_entry[0].id.starts_with("2."), "{whole_entry:?}");
    let last = &all.last().unwrap().0;
    let over = answer(follow(&kit, "o").header("last-event-id", last)).await;
    assert_eq!(over.status, 204, "an `EventSource` must not reconnect");
    answer(follow(&kit, "o").header("last-event-id", "x")).await.problem("invalid_header");
    answer(after(&kit, "o", "x")).await.problem("invalid_query");
    answer(after(&kit, "o", "1000.0")).await.problem("invalid");
    answer(follow(&kit, "nobody")).await.problem("not_found");
}

#[tokio::test]
async fn a_silent_stream_says_that_it_lives_and_a_stopping_server_says_goodbye() {
    let mut settings = Settings::default();
    settings.keep_alive = Duration::from_millis(20);
    let kit = Kit::with(|server| server.settings(settings)).await;
    kit.waiting("a").await;
    let mut stream = Stream::open(follow(&kit, "a")).await;
    while stream.comments < 2 {
        // A comment is not an event, so only the timeout ends this wait.
        let _ = tokio::time::timeout(Duration::from_millis(50), stream.next()).await;
    }
    kit.server.stop().await;
    let last = stream.rest().await.pop().unwrap();
    assert_eq!((last.name.as_str(), &last.data["reason"]), ("end", &json!("stopped")));
}

/// Counts the objects that are read while this many clients follow a run from its wait to its end.
async fn reads(followers: usize) -> u64 {
    let meter = Arc::new(Meter::new(Memory::new()));
    let kit = Kit::on(meter.clone(), |server| server).await;
    kit.post("/v1/runs", json!({"type": "gather", "id": "g", "input": 20})).await.ok(201);
    kit.until("/v1/runs/g/waiting", |found| found["items"] != json!([])).await;
    let mut streams = Vec::new();
    for _ in 0..followers {
        let mut stream = Stream::open(follow(&kit, "g")).await;
        while stream.next().await.unwrap().name != "signal.waiting" {}
        streams.push(stream);
    }
    let before = meter.usage().gets;
    for number in 0..20 {
        kit.post("/v1/runs/g/signals/item", json!({"payload": number})).await.ok(200);
    }
    for stream in streams {
        let seen = stream.rest().await;
        assert_eq!(seen.iter().filter(|event| event.name == "signal.received").count(), 20);
        assert_eq!(seen.last().unwrap().name, "end");
    }
    meter.usage().gets - before
}

#[tokio::test]
async fn many_followers_of_a_run_read_it_once() {
    let (one, many) = (reads(1).await, reads(30).await);
    assert!(many < one * 3, "one follower: {one} reads, thirty: {many}");
}
