//! Follows a run's log: parses server-sent events and reassembles entries.
//!
//! Holds: after a disconnect, the stream resumes after the last event received, so that no event is lost or repeated;
//! an entry is returned with its last event.

use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use serde_json::value::RawValue;
use wigwag_core::{Entry, Event, Requests, RunRef, Time};
use wigwag_store::{Clock as _, System};

use super::http::{Problem, Remote, Request};
use crate::error::Failed;
use crate::target::Log;

type Result<T> = std::result::Result<T, Failed>;

/// A server sends a keep-alive every 15 s; a longer silence counts as a disconnect.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// How long to retry an unreachable server.
const AWAY_MAX: Duration = Duration::from_secs(120);

/// Minimum and maximum delay between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The log of one run on a server.
#[derive(Debug)]
pub struct Events {
    remote: Remote,
    run: RunRef,
    from: u64,
    last_event_id: Option<String>,
    stream: Option<Response>,
    parser: Parser,
    /// The entry whose events are being received.
    entry: Option<Entry>,
    /// When the connection was lost, unless it is up.
    lost_at: Option<Duration>,
    done: bool,
    /// Reports a lost connection.
    report: fn(&str),
}

/// Data of an event: its index in an entry and their number, the entry's writer and time, and its store requests.
#[derive(Debug, Deserialize)]
struct Told {
    seq: u64,
    place: usize,
    count: usize,
    by: String,
    at: Time,
    #[serde(default)]
    requests: Requests,
    event: Event,
}

/// The final event of a stream.
#[derive(Debug, Deserialize)]
struct End {
    reason: String,
    problem: Option<Box<RawValue>>,
}

impl Events {
    /// Returns the log from an entry on. `report` is called with a message when the connection is lost.
    pub fn new(remote: Remote, run: &RunRef, from: u64, report: fn(&str)) -> Self {
        Self {
            remote,
            run: run.clone(),
            from,
            last_event_id: None,
            stream: None,
            parser: Parser::default(),
            entry: None,
            lost_at: None,
            done: false,
            report,
        }
    }

    fn request(&self) -> Request {
        let request = self.remote.get(&[family(&self.run), self.run.id.as_str(), "events"]);
        match &self.last_event_id {
            Some(id) => Request { last_event_id: Some(id.clone()), ..request },
            None => request.query("after", &self.from.saturating_sub(1)),
        }
    }

    /// Opens the stream, with retries if it was connected before.
    async fn connect(&mut self) -> Result<()> {
        let request = self.request();
        let response = match self.lost_at {
            None => self.remote.send(&request).await?,
            Some(lost_at) => self.reconnect(&request, lost_at).await?,
        };
        self.lost_at = None;
        self.parser = Parser::default();
        match response.status() {
            StatusCode::NO_CONTENT => self.done = true,
            _ => self.stream = Some(response),
        }
        Ok(())
    }

    async fn reconnect(&self, request: &Request, lost_at: Duration) -> Result<Response> {
        let mut pause = PAUSE;
        loop {
            let is_over = System.boot().saturating_sub(lost_at) > AWAY_MAX;
            match self.remote.send_once(request).await {
                Ok(response) if response.status().is_success() => return Ok(response),
                Ok(response) if is_over || !response.status().is_server_error() => {
                    return Err(self.remote.refused(response).await);
                }
                Err(broken) if is_over => return Err(self.remote.broken(request, &broken)),
                Ok(_) | Err(_) => {}
            }
            System.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Returns the next chunk of the stream; `None` when it broke or ended.
    async fn part(&mut self) -> Option<Vec<u8>> {
        let stream = self.stream.as_mut()?;
        match tokio::time::timeout(SILENCE_MAX, stream.chunk()).await {
            Ok(Ok(Some(part))) => Some(part.to_vec()),
            Ok(Ok(None) | Err(_)) | Err(_) => None,
        }
    }

    fn lose(&mut self) {
        self.stream = None;
        self.lost_at = Some(System.boot());
        (self.report)(&format!("lost the connection to `{}`; reconnecting for up to {AWAY_MAX:?}", self.remote.base()));
    }

    /// Handles an event; returns the entry that it completes.
    fn take(&mut self, frame: &Frame) -> Result<Option<Entry>> {
        if frame.name == "end" {
            let end: End = self.remote.read(frame.data.as_bytes())?;
            match (end.reason.as_str(), end.problem) {
                ("stopped", _) => self.lose(),
                ("problem", Some(problem)) => {
                    let problem: Problem = self.remote.read(problem.get().as_bytes())?;
                    return Err(self.remote.problem(problem));
                }
                _ => self.done = true,
            }
            return Ok(None);
        }
        let told: Told = self.remote.read(frame.data.as_bytes())?;
        let Told { seq, place, count, by, at, requests, event } = told;
        let mut entry = self.entry.take().filter(|entry| entry.seq == seq);
        let entry_now = entry.get_or_insert_with(|| Entry { seq, by, at, events: Vec::new(), requests });
        if entry_now.events.len() != place {
            let (base, id) = (self.remote.base(), &self.run.id);
            return Err(Failed::new(format!("`{base}` sent an incomplete entry {seq} of `{id}`"))
                .hint("read the log again without `--follow`"));
        }
        entry_now.events.push(event);
        self.last_event_id = Some(format!("{seq}.{place}"));
        match place + 1 == count {
            true => Ok(entry),
            false => {
                self.entry = entry;
                Ok(None)
            }
        }
    }
}

fn family(run: &RunRef) -> &'static str {
    match run.family {
        wigwag_core::Family::Workflow => "runs",
        wigwag_core::Family::Task => "tasks",
    }
}

#[async_trait(?Send)]
impl Log for Events {
    async fn next(&mut self) -> Result<Option<Vec<Entry>>> {
        self.entries().await
    }
}

impl Events {
    /// Returns the next entries; `None` after the run has ended and all were returned.
    pub async fn entries(&mut self) -> Result<Option<Vec<Entry>>> {
        while !self.done {
            if self.stream.is_none() {
                self.connect().await?;
                continue;
            }
            let Some(part) = self.part().await else {
                self.lose();
                continue;
            };
            let mut entries = Vec::new();
            for frame in self.parser.feed(&part) {
                entries.extend(self.take(&frame)?);
            }
            if !entries.is_empty() {
                return Ok(Some(entries));
            }
        }
        Ok(None)
    }
}

/// One server-sent event.
#[derive(Debug, Default, PartialEq)]
struct Frame {
    name: String,
    data: String,
}

/// Splits chunks of a stream into events, independently of chunk boundaries.
#[derive(Debug, Default)]
struct Parser {
    rest: Vec<u8>,
    frame: Frame,
}

impl Parser {
    fn feed(&mut self, part: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        self.rest.extend_from_slice(part);
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            frames.extend(self.line(line.trim_end_matches(['\r', '\n'])));
        }
        frames
    }

    /// Parses a line: an empty line ends an event, and a line that starts with a colon is a keep-alive.
    fn line(&mut self, line: &str) -> Option<Frame> {
        if line.is_empty() {
            let frame = std::mem::take(&mut self.frame);
            return (!frame.data.is_empty()).then_some(frame);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.frame.name = value.to_owned(),
            "data" => {
                if !self.frame.data.is_empty() {
                    self.frame.data.push('\n');
                }
                self.frame.data.push_str(value);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_parsed_at_any_chunk_boundaries() {
        let text =
            "id: 1.0\nevent: run.started\ndata: {\"ü\":1}\n\n: lives\n\nevent: end\r\ndata: a\r\ndata: b\r\n\r\n";
        let want = [
            Frame { name: "run.started".into(), data: "{\"ü\":1}".into() },
            Frame { name: "end".into(), data: "a\nb".into() },
        ];
        for size in 1..text.len() {
            let mut parser = Parser::default();
            let found: Vec<Frame> = text.as_bytes().chunks(size).flat_map(|part| parser.feed(part)).collect();
            assert_eq!(found, want, "in parts of {size}");
        }
    }
}
