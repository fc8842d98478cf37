//! Clients of a server's HTTP API.
//!
//! Holds: a request that creates something has an id or an idempotency key, so that a retry after a lost answer has no
//! further effect. Answers have the shape that a client of a store gives.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};
use wigwag::{Payload, RunId, Time};
use wigwag_cli::http::{Events, Failed, Remote, Request, Token, new_id, new_key};
use wigwag_core::{Family, RunRef};
use wigwag_server::Code;
use wigwag_store::{Clock as _, System};

use crate::failures::Outcome;
use crate::lock;
use crate::ops::{Op, Signal, Start, Submit, entry};

type Called = Result<Value, Failed>;

/// Duration of one long-poll: slightly less than the server's maximum.
const POLL: Duration = Duration::from_secs(50);

/// Number of items per page, and of signals per request.
const PAGE: usize = 200;

/// Maximum size of the signals of one request.
const BATCH_BYTES_MAX: usize = 512 * 1024;

/// Logs that are kept open between two requests for their next entries.
const LOGS_MAX: usize = 16;

/// A client of one server.
#[derive(Debug)]
pub(crate) struct Server {
    remote: Remote,
    has_token: bool,
    logs: Mutex<Vec<OpenLog>>,
}

/// A log that is being followed: the run, and the number of the next entry.
#[derive(Debug)]
struct OpenLog {
    id: String,
    next: u64,
    events: Events,
}

/// Whether a URL is that of a server's HTTP API, and not of the store behind it, whose path ends with `/s3`.
pub(crate) fn is_server(url: &str) -> bool {
    let rest = ["http://", "https://"].iter().find_map(|scheme| url.strip_prefix(scheme));
    let path = rest.and_then(|rest| rest.split(['?', '#']).next()).map(|rest| rest.split('/').skip(1));
    path.is_some_and(|mut path| path.all(|part| part != "s3"))
}

#[derive(Serialize)]
struct StartBody<'a> {
    #[serde(rename = "type")]
    of: &'a str,
    id: &'a str,
    input: &'a Payload,
    at: Option<Time>,
    delay: Option<f64>,
    registered_only: bool,
}

#[derive(Serialize)]
struct SubmitBody<'a> {
    #[serde(rename = "type")]
    of: &'a str,
    input: &'a Payload,
    key: Option<&'a str>,
    queue: Option<&'a str>,
    retries: Option<u32>,
    timeout: Option<f64>,
    at: Option<Time>,
    delay: Option<f64>,
    expires_at: Option<Time>,
    expires_in: Option<f64>,
}

#[derive(Serialize)]
struct SignalBody<'a> {
    /// The run and the name, in a request with several signals.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    payload: &'a Payload,
    key: Option<&'a str>,
    by: Option<&'a str>,
    only_if_waiting: bool,
    point: Option<&'a str>,
    start_if_absent: Option<StartIfAbsent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wait: Option<f64>,
}

#[derive(Serialize)]
struct StartIfAbsent<'a> {
    #[serde(rename = "type")]
    of: &'a str,
    input: &'a Payload,
}

fn signal_body(signal: &Signal) -> SignalBody<'_> {
    SignalBody {
        run: None,
        name: None,
        payload: &signal.payload,
        key: signal.key.as_deref(),
        by: signal.by.as_deref(),
        only_if_waiting: signal.only_if_waiting,
        point: signal.point.as_deref(),
        start_if_absent: signal.start.as_ref().map(|(of, input)| StartIfAbsent { of, input }),
        wait: None,
    }
}

/// Checks text that becomes a part of a path: a name without meaning there.
fn part(text: &str) -> Result<&str, Failed> {
    match text {
        "" | "." | ".." => Err(Failed::wrong(format!("not a valid name: `{text}`"))),
        _ => Ok(text),
    }
}

fn checked(id: &str) -> Result<(), Failed> {
    RunId::new(id).map(drop).map_err(|refusal| wigwag::Error::from(refusal).into())
}

/// The path of a run or a task.
fn path<'a>(id: &'a str, task: bool, rest: &[&'a str]) -> Result<Vec<&'a str>, Failed> {
    checked(id)?;
    let family = if task { "tasks" } else { "runs" };
    Ok([family, id].into_iter().chain(rest.iter().copied()).collect())
}

/// Whether the next long-poll is the last before the timeout, and its duration.
fn poll(until: Option<Duration>) -> (bool, Duration) {
    let left = until.map_or(Duration::MAX, |until| until.saturating_sub(System.boot()));
    (left <= POLL, left.min(POLL))
}

/// The end of a timeout, by the clock of this process.
fn end_of(timeout: Option<f64>) -> Option<Duration> {
    timeout.map(|seconds| System.boot().saturating_add(crate::spec::span(seconds)))
}

impl Server {
    pub(crate) fn open(url: &str, token: Option<&str>, allow_http: bool) -> Result<Self, Failed> {
        let token = token.map(|token| Token::given(token, url, allow_http)).transpose()?;
        Ok(Self { has_token: token.is_some(), remote: Remote::new(url, token)?, logs: Mutex::default() })
    }

    /// Answers a question.
    pub(crate) async fn answer(&self, op: &str) -> Outcome {
        let op = match serde_json::from_str::<Op>(op) {
            Ok(op) => op,
            Err(error) => return Outcome::refused(&format!("not a question: {error}")),
        };
        match self.ask(op).await {
            Ok(value) => Outcome::of_call(Ok(value)),
            Err(failed) => Outcome::of_server(&failed, self.has_token),
        }
    }

    async fn ask(&self, op: Op) -> Called {
        match op {
            Op::Check {} => self.get(&["me"]).await.map(|_| Value::Null),
            Op::Now {} => Err(Failed::wrong("a server does not tell the time of its store")),
            Op::Start(start) => self.start(start).await,
            Op::Submit(submit) => self.submit(submit).await,
            Op::Get { id, task } => Ok(shown(self.get(&path(&id, task, &[])?).await?)),
            Op::Wait { id, task, timeout } => self.wait(&id, task, timeout).await,
            Op::Cancel { id, task, reason } => self.control(&id, task, "cancel", json!({ "reason": reason })).await,
            Op::Pause { id } => self.control(&id, false, "pause", json!({})).await,
            Op::Resume { id, anyway } => self.control(&id, false, "resume", json!({ "anyway": anyway })).await,
            Op::Restart { id, from } => self.control(&id, false, "restart", json!({ "from": from })).await,
            Op::Migrate { id, to, mapping } => {
                let renamed = mapping.iter().filter_map(|(old, new)| Some((old, new.as_ref()?)));
                let rename: BTreeMap<_, _> = renamed.collect();
                let skip: Vec<_> = mapping.iter().filter(|(_, new)| new.is_none()).map(|(old, _)| old).collect();
                self.control(&id, false, "migrate", json!({ "rename": rename, "skip": skip, "to": to })).await
            }
            Op::Signal(signal) => self.signal(&signal).await,
            Op::SignalMany { signals } => self.signal_many(&signals).await,
            Op::List { tasks, of, status, limit, after } => {
                let mut request = self.remote.get(&[if tasks { "tasks" } else { "runs" }]).query("limit", &limit);
                for (name, value) in
                    [("type", of), ("status", status.map(|status| status.to_string())), ("after", after)]
                {
                    request = value.into_iter().fold(request, |request, value| request.query(name, &value));
                }
                self.page(request).await
            }
            Op::Counts {} => self.get(&["counts"]).await,
            Op::Steps { id, task } => self.steps(&id, task).await,
            Op::History { id, task, from, limit } => self.history(&id, task, from, limit).await,
            Op::Follow { id, from } => self.follow(&id, from).await,
            Op::Waiting { name, limit, after } => {
                let mut request = self.remote.get(&["waiting"]).query("limit", &limit);
                for (key, value) in [("name", name), ("after", after)] {
                    request = value.into_iter().fold(request, |request, value| request.query(key, &value));
                }
                self.page(request).await
            }
            Op::OpenWaits { id } => Ok(self.get(&path(&id, false, &["waiting"])?).await?["items"].take()),
            Op::Inbox { id, name } => {
                let path = path(&id, false, &["signals"])?;
                let first = || {
                    let request = self.remote.get(&path).query("limit", &PAGE);
                    name.iter().fold(request, |request, name| request.query("name", name))
                };
                self.all(first).await.map(Value::from)
            }
            Op::Definitions { of } => match self.get(&["definitions", part(&of)?]).await {
                Ok(mut page) => Ok(page["items"].take()),
                Err(failed) if failed.code() == Some(Code::NotFound) => Ok(json!([])),
                Err(failed) => Err(failed),
            },
            Op::Explain { id } => self.get(&path(&id, false, &["explain"])?).await,
            Op::Link { id, name, expires_in, once, sender, .. } => {
                let body = json!({ "run": id, "name": name, "expires_in": expires_in, "once": once, "sender": sender });
                // A link that was made and never received is harmless.
                self.remote.json(&self.remote.post(&["links"], &body)?.repeatable()).await
            }
        }
    }

    async fn get(&self, parts: &[&str]) -> Called {
        self.remote.json(&self.remote.get(parts)).await
    }

    /// A page of a list, in the words of a store's client.
    async fn page(&self, request: Request) -> Called {
        let mut page: Value = self.remote.json(&request).await?;
        let unreadable = page.get("unreadable").cloned().unwrap_or_else(|| json!([]));
        Ok(json!({ "runs": page["items"].take(), "next": page.get("next"), "unreadable": unreadable }))
    }

    /// Reads all pages of a list.
    async fn all(&self, first: impl Fn() -> Request) -> Result<Vec<Value>, Failed> {
        let (mut items, mut after) = (Vec::new(), None::<String>);
        loop {
            let request = after.iter().fold(first(), |request, after| request.query("after", after));
            let mut page: Value = self.remote.json(&request).await?;
            if let Value::Array(some) = page["items"].take() {
                items.extend(some);
            }
            match page["next"].take() {
                Value::String(next) => after = Some(next),
                _ => return Ok(items),
            }
        }
    }

    async fn start(&self, start: Start) -> Called {
        let id = match start.id {
            Some(id) => checked(&id).map(|()| id)?,
            None => new_id().to_string(),
        };
        let body = StartBody {
            of: &start.of,
            id: &id,
            input: &start.input,
            at: start.at,
            delay: start.delay,
            registered_only: start.registered_only,
        };
        let started: Value = self.remote.json(&self.remote.post(&["runs"], &body)?.once(new_key())).await?;
        let warnings = started.get("warnings").cloned().unwrap_or_else(|| json!([]));
        Ok(json!({ "id": started["id"], "warnings": warnings }))
    }

    async fn submit(&self, submit: Submit) -> Called {
        let retries = match submit.retry {
            Some(retry) => retry.retries_only().ok_or_else(|| {
                Failed::wrong("a server accepts `retries` of a task, and no other part of `retry`")
                    .hint("use `retries=`, or submit the task from a client of the store")
            })?,
            None => None,
        };
        let body = SubmitBody {
            of: &submit.of,
            input: &submit.input,
            key: submit.key.as_deref(),
            queue: submit.queue.as_deref(),
            retries,
            timeout: submit.timeout,
            at: submit.at,
            delay: submit.delay,
            expires_at: submit.expires_at,
            expires_in: submit.expires_in,
        };
        let request = self.remote.post(&["tasks"], &body)?;
        let request = if submit.key.is_some() { request.repeatable() } else { request.once(new_key()) };
        let submitted: Value = self.remote.json(&request).await?;
        Ok(json!({ "id": submitted["id"] }))
    }

    async fn wait(&self, id: &str, task: bool, timeout: Option<f64>) -> Called {
        let (path, until) = (path(id, task, &["wait"])?, end_of(timeout));
        loop {
            let (is_last, span) = poll(until);
            let request = self.remote.get(&path).query("timeout", &span.as_secs_f64()).wait(span);
            let run: Value = self.remote.json(&request).await?;
            if matches!(run["status"].as_str(), Some("completed" | "failed" | "cancelled")) {
                return Ok(shown(run));
            }
            if is_last {
                let span = crate::spec::span(timeout.unwrap_or_default());
                return Err(Failed::timed_out(format!("run `{id}` did not finish within {span:?}")));
            }
        }
    }

    async fn control(&self, id: &str, task: bool, what: &str, body: Value) -> Called {
        let told: Value = self.remote.json(&self.remote.post(&path(id, task, &[what])?, &body)?).await?;
        Ok(json!(match (told["compensating"].as_bool(), told["new"].as_bool()) {
            (Some(true), _) => "compensating",
            (_, Some(true)) => "now",
            _ => "before",
        }))
    }

    /// Sends a signal, and then waits under the same key: only the first answer tells whether the signal is a duplicate.
    async fn signal(&self, signal: &Signal) -> Called {
        let (path, own_key) = (path(&signal.id, false, &["signals", part(&signal.name)?])?, new_key());
        let request = |wait: Option<Duration>| {
            let body = SignalBody { wait: wait.map(|span| span.as_secs_f64()), ..signal_body(signal) };
            let request = self.remote.post(&path, &body)?.wait(wait.unwrap_or_default());
            // A key of the user is a part of the body, which takes any text.
            Ok::<_, Failed>(match signal.key {
                Some(_) => request.repeatable(),
                None => request.once(own_key.clone()),
            })
        };
        let mut receipt: Value = self.remote.json(&request(None)?).await?;
        let Some(seconds) = signal.wait else { return Ok(receipt) };
        let until = end_of(Some(seconds));
        loop {
            let (is_last, span) = poll(until);
            match self.remote.json::<Value>(&request(Some(span))?).await {
                Ok(mut answer) => {
                    if let (Value::Object(receipt), Value::Object(consumed)) = (&mut receipt, answer["consumed"].take())
                    {
                        receipt.extend(consumed);
                    }
                    return Ok(receipt);
                }
                Err(failed) if failed.code() == Some(Code::TimedOut) && !is_last => {}
                Err(failed) => return Err(failed),
            }
        }
    }

    async fn signal_many(&self, signals: &[Signal]) -> Called {
        let mut outcomes = Vec::with_capacity(signals.len());
        let mut rest = signals;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |signal: &&Signal| {
                bytes += signal.payload.text().len() + 1_024;
                bytes <= BATCH_BYTES_MAX
            };
            let count = rest.iter().take(PAGE).take_while(fits).count().max(1);
            let (some, others) = rest.split_at(count);
            outcomes.extend(self.signal_some(some).await?);
            rest = others;
        }
        Ok(Value::from(outcomes))
    }

    async fn signal_some(&self, signals: &[Signal]) -> Result<Vec<Value>, Failed> {
        let bodies: Vec<_> = signals
            .iter()
            .map(|signal| SignalBody { run: Some(&signal.id), name: Some(&signal.name), ..signal_body(signal) })
            .collect();
        let request = self.remote.post(&["signals"], &BTreeMap::from([("signals", bodies)]))?.once(new_key());
        let mut answer: Value = self.remote.json(&request).await?;
        let Value::Array(results) = answer["results"].take() else { return Ok(Vec::new()) };
        let shown = |result: Value| match self.remote.problem_of(&result) {
            Some(failed) => json!({ "error": crate::failures::shown_of_server(&failed, self.has_token) }),
            None => json!({ "receipt": result }),
        };
        Ok(results.into_iter().map(shown).collect())
    }

    async fn steps(&self, id: &str, task: bool) -> Called {
        let path = path(id, task, &["steps"])?;
        let lines = self.all(|| self.remote.get(&path).query("limit", &PAGE)).await?;
        let step = |line: Value| match line {
            Value::Object(mut step) => match step.remove("path") {
                Some(Value::String(path)) => Some((path, Value::Object(step))),
                _ => None,
            },
            _ => None,
        };
        Ok(Value::Object(lines.into_iter().filter_map(step).collect::<Map<_, _>>()))
    }

    async fn history(&self, id: &str, task: bool, from: u64, limit: u64) -> Called {
        let path = path(id, task, &["history"])?;
        let (mut entries, mut next) = (Vec::new(), from.max(1));
        while (entries.len() as u64) < limit {
            let wanted = (limit - entries.len() as u64).min(PAGE as u64);
            let request = self.remote.get(&path).query("from", &next).query("limit", &wanted);
            let mut page: Value = self.remote.json(&request).await?;
            let Value::Array(some) = page["items"].take() else { break };
            let found = some.len() as u64;
            entries.extend(some);
            next = next.saturating_add(found);
            if found < wanted {
                break;
            }
        }
        Ok(Value::from(entries))
    }

    /// The next entries of a log. Its stream stays open for the request after this one.
    async fn follow(&self, id: &str, from: u64) -> Called {
        checked(id)?;
        let kept = {
            let mut logs = lock(&self.logs);
            let place = logs.iter().position(|log| log.id == id && log.next == from);
            place.map(|place| logs.remove(place).events)
        };
        let run = RunRef { family: Family::Workflow, id: RunId::new(id).map_err(wigwag::Error::from)? };
        let mut events =
            kept.unwrap_or_else(|| Events::new(self.remote.clone(), &run, from, |what| tracing::warn!("{what}")));
        let Some(entries) = events.entries().await? else { return Ok(Value::Null) };
        if let Some(last) = entries.last() {
            let mut logs = lock(&self.logs);
            if logs.len() >= LOGS_MAX {
                logs.remove(0);
            }
            logs.push(OpenLog { id: id.to_owned(), next: last.seq + 1, events });
        }
        Ok(entries.iter().map(entry).collect())
    }
}

/// A run as a client of a store gives it.
fn shown(run: Value) -> Value {
    let facts = ["steps", "input", "result", "error"].map(|name| (name.to_owned(), run[name].clone()));
    let mut shown: Map<String, Value> = facts.into_iter().collect();
    shown.insert("state".into(), run);
    Value::Object(shown)
}
