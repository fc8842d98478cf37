//! Maps every operation to a request of the HTTP API.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use wigwag::{
    Asked, Counts, OpenWait, Payload, PruneOptions, Pruned, Receipt, SignalView, Status, Summary, Swept, Time,
    WaitingRun, WaitingRuns,
};
use wigwag_core::limits::PAYLOAD_BYTES_MAX;
use wigwag_core::{Definition, Entry, Explanation, Family, Name, Path, Point, Run, RunId, RunRef, read_state};
use wigwag_server::Code;
use wigwag_store::{Clock as _, System};

use super::events::Events;
use super::http::{Problem, Remote, Request, new_id, new_key};
use crate::error::Failed;
use crate::output::talk;
use crate::target::{
    Ask, Link, Listing, Log, MadeLink, Message, NewLink, NewRun, NewTask, Progress, Taken, Target, Which,
};

type Result<T> = std::result::Result<T, Failed>;

/// Duration of one long-poll: slightly less than the server's maximum.
const POLL: Duration = Duration::from_secs(50);

/// How long the server works on a maintenance request before it returns the progress so far.
const UPKEEP: Duration = Duration::from_secs(55);

/// Number of items per page.
const PAGE: usize = 200;

/// Number of items per page if the items may be large.
const LARGE_PAGE: usize = 20;

/// Maximum size of one signal in a batch without its payload: names, a key and a sender, escaped.
const ONE_BYTES: usize = 4 * 1024;

/// A page of items, and the cursor of the next.
#[derive(Debug, Deserialize)]
struct Page<T> {
    items: Vec<T>,
    next: Option<String>,
    #[serde(default)]
    unreadable: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Started {
    id: RunId,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Start {
    #[serde(rename = "type")]
    of: String,
    id: String,
    input: Payload,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Submit {
    #[serde(rename = "type")]
    of: String,
    input: Payload,
    key: Option<String>,
    queue: String,
    retries: Option<u32>,
    timeout: Option<f64>,
    at: Option<Time>,
    delay: Option<f64>,
    expires_in: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Send<'a> {
    payload: &'a Payload,
    key: Option<&'a str>,
    only_if_waiting: bool,
    point: Option<&'a str>,
    start_if_absent: Option<StartIfAbsent<'a>>,
    by: Option<&'a str>,
    wait: Option<f64>,
}

#[derive(Debug, Serialize)]
struct StartIfAbsent<'a> {
    #[serde(rename = "type")]
    of: &'a str,
    input: &'a Payload,
}

#[derive(Debug, Serialize)]
struct SendMany<'a> {
    signals: Vec<One<'a>>,
}

#[derive(Debug, Serialize)]
struct One<'a> {
    run: &'a RunId,
    task: bool,
    name: &'a str,
    payload: &'a Payload,
    key: Option<&'a str>,
    only_if_waiting: bool,
    by: Option<&'a str>,
}

/// Outcome of a batch, one result per signal.
#[derive(Debug, Deserialize)]
struct Outcomes {
    results: Vec<Box<RawValue>>,
}

/// A receipt, and the wait that consumed the signal if the request waited for it.
#[derive(Debug, Deserialize)]
struct Sent {
    consumed: Option<Consumed>,
}

#[derive(Debug, Deserialize)]
struct Consumed {
    point: Path,
    at: Time,
    status: Status,
    next: Vec<OpenWait>,
}

#[derive(Debug, Serialize)]
struct Make<'a> {
    run: &'a str,
    name: &'a str,
    expires_in: f64,
    once: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    sender: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Revoke<'a> {
    token: &'a str,
}

#[derive(Debug, Deserialize)]
struct Made {
    token: String,
    url: Option<String>,
    run: String,
    name: String,
    expires: Time,
    once: bool,
}

#[derive(Debug, Deserialize)]
struct Acknowledged {
    new: bool,
    #[serde(default)]
    compensating: bool,
}

#[derive(Debug, Deserialize)]
struct PrunedPart {
    more: bool,
}

/// Body of a control request; each request uses only the fields that it supports.
#[derive(Debug, Default, Serialize)]
struct Asking<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    anyway: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rename: Option<BTreeMap<&'a str, &'a str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skip: Option<&'a [String]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a str>,
}

fn family(run: &RunRef) -> &'static str {
    match run.family {
        Family::Workflow => "runs",
        Family::Task => "tasks",
    }
}

/// Returns a query parameter that is present.
fn shown<T: Display>(value: &Option<T>) -> Option<&dyn Display> {
    value.as_ref().map(|value| value as &dyn Display)
}

fn seconds(span: Duration) -> f64 {
    span.as_secs_f64()
}

/// Validates an id locally, with the same error as the server.
fn checked(id: &str) -> Result<RunId> {
    RunId::new(id).map_err(|refusal| wigwag::Error::from(refusal).into())
}

impl Remote {
    fn of<'a>(run: &'a RunRef, parts: &[&'a str]) -> Vec<&'a str> {
        [family(run), run.id.as_str()].into_iter().chain(parts.iter().copied()).collect()
    }

    fn get_of(&self, run: &RunRef, parts: &[&str]) -> Request {
        self.get(&Self::of(run, parts))
    }

    /// Reads all pages of a list.
    async fn all<T: serde::de::DeserializeOwned>(&self, first: impl Fn() -> Request) -> Result<Vec<T>> {
        let mut items = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let page: Page<T> = self.json(&first().query_if("after", shown(&after))).await?;
            items.extend(page.items);
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(items),
            }
        }
    }

    /// Builds the request for a signal, with an idempotency key so that a retry after a lost answer sends no second
    /// signal. A key from the user is sent in the body, which allows any text.
    fn sending(&self, run: &RunRef, message: &Message, own_key: &str, wait: Option<Duration>) -> Result<Request> {
        let start = message.start.as_ref().map(|(of, input)| StartIfAbsent { of, input });
        let body = Send {
            payload: &message.payload,
            key: message.key.as_deref(),
            only_if_waiting: message.only_if_waiting,
            point: message.point.as_deref(),
            start_if_absent: start,
            by: message.by.as_deref(),
            wait: wait.map(seconds),
        };
        let request = self.post(&Self::of(run, &["signals", &message.name]), &body)?;
        let request = request.wait(wait.unwrap_or_default());
        Ok(match &message.key {
            Some(_) => request.repeatable(),
            None => request.once(own_key.to_owned()),
        })
    }

    async fn signal_some(&self, runs: &[RunRef], message: &Message) -> Result<Vec<Result<Receipt>>> {
        let signals = runs.iter().map(|run| One {
            run: &run.id,
            task: run.family == Family::Task,
            name: &message.name,
            payload: &message.payload,
            key: message.key.as_deref(),
            only_if_waiting: message.only_if_waiting,
            by: message.by.as_deref(),
        });
        let request = self.post(&["signals"], &SendMany { signals: signals.collect() })?;
        let outcomes: Outcomes = self.json(&request.once(new_key())).await?;
        if outcomes.results.len() != runs.len() {
            let (sent, told) = (runs.len(), outcomes.results.len());
            let what = format!("`{}` answered for {told} of {sent} signals", self.base());
            return Err(Failed::new(what).hint("check which signals arrived with `wigwag signals RUN`"));
        }
        let read = |text: &RawValue| match serde_json::from_str::<Problem>(text.get()) {
            Ok(problem) => Err(self.problem(problem)),
            Err(_) => self.read(text.get().as_bytes()),
        };
        Ok(outcomes.results.iter().map(|text| read(text)).collect())
    }

    /// Parses the step of a `steps` line.
    fn step(&self, text: &RawValue) -> Result<(Path, Point)> {
        #[derive(Deserialize)]
        struct Named {
            path: Path,
        }
        let named: Named = self.read(text.get().as_bytes())?;
        Ok((named.path, self.read(text.get().as_bytes())?))
    }
}

#[async_trait(?Send)]
impl Target for Remote {
    async fn start(&self, new: NewRun) -> Result<(RunRef, Vec<String>)> {
        // The client chooses the id, so that a retry starts the same run.
        let id = match &new.id {
            Some(id) => checked(id)?,
            None => new_id(),
        };
        let (of, input, delay) = (new.of, new.input, new.delay.map(seconds));
        let body = Start { of, id: id.to_string(), input, at: new.at, delay };
        let started: Started = self.json(&self.post(&["runs"], &body)?.once(new_key())).await?;
        Ok((RunRef::workflow(started.id), started.warnings))
    }

    async fn submit(&self, new: NewTask) -> Result<RunRef> {
        let own_key = new.key.is_none().then(new_key);
        let body = Submit {
            of: new.of,
            input: new.input,
            key: new.key,
            queue: new.queue,
            retries: new.retries,
            timeout: new.timeout.map(seconds),
            at: new.at,
            delay: new.delay.map(seconds),
            expires_in: new.expires.map(seconds),
        };
        let request = self.post(&["tasks"], &body)?;
        let request = if let Some(key) = own_key { request.once(key) } else { request.repeatable() };
        let started: Started = self.json(&request).await?;
        Ok(RunRef::task(started.id))
    }

    async fn get(&self, run: &RunRef) -> Result<Run> {
        let answer = self.answer(&self.get_of(run, &[])).await?;
        read_state(run.clone(), &answer).map_err(|refusal| {
            Failed::new(format!("cannot read the response of `{}`: {refusal}", self.base()))
                .hint("the server may have a different version than this command")
        })
    }

    /// The server returns warnings together with the run.
    async fn diagnose(&self, run: &Run) -> Result<Vec<String>> {
        #[derive(Deserialize)]
        struct Warned {
            #[serde(default)]
            warnings: Vec<String>,
        }
        let warned: Warned = self.json(&self.get_of(&run.run, &[])).await?;
        Ok(warned.warnings)
    }

    /// The server always returns the whole run.
    async fn whole(&self, run: Run, _: bool) -> Result<Run> {
        Ok(run)
    }

    async fn steps(&self, run: &RunRef, whole: bool) -> Result<Vec<(Path, Point)>> {
        let limit = if whole { LARGE_PAGE } else { PAGE };
        let first = || self.get_of(run, &["steps"]).query("limit", &limit).query("whole", &whole);
        let lines: Vec<Box<RawValue>> = self.all(first).await?;
        lines.iter().map(|line| self.step(line)).collect()
    }

    async fn history(&self, run: &RunRef, from: u64, limit: u64) -> Result<Vec<Entry>> {
        let mut entries: Vec<Entry> = Vec::new();
        while (entries.len() as u64) < limit {
            let wanted = (limit - entries.len() as u64).min(PAGE as u64);
            let next = from.max(1).saturating_add(entries.len() as u64);
            let request = self.get_of(run, &["history"]).query("from", &next).query("limit", &wanted);
            let page: Page<Entry> = self.json(&request).await?;
            let found = page.items.len() as u64;
            entries.extend(page.items);
            if found < wanted {
                break;
            }
        }
        Ok(entries)
    }

    async fn follow(&self, run: &RunRef, from: u64) -> Result<Box<dyn Log>> {
        Ok(Box::new(Events::new(self.clone(), run, from, talk)))
    }

    async fn list(&self, which: &Which) -> Result<Listing> {
        let mut request = self.get(&[if which.tasks { "tasks" } else { "runs" }]).query("limit", &which.limit);
        request = request.query_if("type", shown(&which.of)).query_if("status", shown(&which.status));
        request = request.query_if("after", shown(&which.after));
        if which.tasks && which.of.is_some() {
            request = request.query("queue", &which.queue);
        }
        let page: Page<Summary> = self.json(&request).await?;
        Ok(Listing { runs: page.items, next: page.next, unreadable: page.unreadable })
    }

    async fn counts(&self) -> Result<Counts> {
        self.json(&self.get(&["counts"])).await
    }

    async fn waiting(&self, name: Option<&Name>, limit: usize, after: Option<&str>) -> Result<WaitingRuns> {
        let request = self
            .get(&["waiting"])
            .query("limit", &limit)
            .query_if("name", shown(&name))
            .query_if("after", shown(&after));
        let page: Page<WaitingRun> = self.json(&request).await?;
        let mut waiting = WaitingRuns::default();
        (waiting.runs, waiting.next) = (page.items, page.next);
        Ok(waiting)
    }

    async fn open_waits(&self, run: &RunRef) -> Result<Vec<OpenWait>> {
        let page: Page<OpenWait> = self.json(&self.get_of(run, &["waiting"])).await?;
        Ok(page.items)
    }

    async fn explain(&self, run: &RunRef) -> Result<Explanation> {
        self.json(&self.get_of(run, &["explain"])).await
    }

    async fn signals(&self, run: &RunRef, name: Option<&Name>) -> Result<Vec<SignalView>> {
        self.all(|| self.get_of(run, &["signals"]).query("limit", &LARGE_PAGE).query_if("name", shown(&name))).await
    }

    async fn signal(&self, run: &RunRef, message: &Message) -> Result<Receipt> {
        self.json(&self.sending(run, message, &new_key(), None)?).await
    }

    /// Sends the signal first, then waits for it under the same key: a server waits for a minute at most, and only
    /// the first answer tells whether the signal is a duplicate.
    async fn signal_and_wait(&self, run: &RunRef, message: &Message, span: Duration) -> Result<Taken> {
        let key = new_key();
        let until = System.boot() + span;
        let receipt: Receipt = self.json(&self.sending(run, message, &key, None)?).await?;
        loop {
            let left = until.saturating_sub(System.boot());
            let answer = self.answer(&self.sending(run, message, &key, Some(left.min(POLL)))?).await;
            let answer = match answer {
                Err(failed) if failed.code() == Some(Code::TimedOut) && left > POLL => continue,
                Err(failed) if failed.code() == Some(Code::TimedOut) => {
                    let (id, name) = (&run.id, &message.name);
                    let what = format!("run `{id}` did not consume signal `{name}` within {span:?}");
                    return Err(Failed::of(Code::TimedOut, what));
                }
                answer => answer?,
            };
            let sent: Sent = self.read(&answer)?;
            if let Some(Consumed { point, at, status, next }) = sent.consumed {
                return Ok(Taken { receipt, point, at, status, next });
            }
        }
    }

    /// Sends as many signals per request as the body limit allows. If a request fails, the results of the earlier
    /// ones are still returned.
    async fn signal_many(&self, runs: &[RunRef], message: &Message) -> Vec<Result<Receipt>> {
        let one = message.payload.text().len() + ONE_BYTES;
        let mut outcomes = Vec::with_capacity(runs.len());
        for some in runs.chunks((PAYLOAD_BYTES_MAX / one).max(1)) {
            match self.signal_some(some, message).await {
                Ok(told) => outcomes.extend(told),
                Err(failed) => outcomes.extend(some.iter().map(|_| Err(failed.clone()))),
            }
        }
        outcomes
    }

    async fn make_link(&self, new: &NewLink) -> Result<MadeLink> {
        let (run, name, sender) = (&new.run, &new.name, new.sender.as_deref());
        let body = Make { run, name, expires_in: seconds(new.expires), once: new.once, sender };
        // A link that was created but never received is harmless.
        let made: Made = self.json(&self.post(&["links"], &body)?.repeatable()).await?;
        let Made { token, url, run, name, expires, once } = made;
        let url = url.unwrap_or_else(|| format!("{}/v1/links/{token}", self.base()));
        Ok(MadeLink { token, url: Some(url), link: Link { run, name, expires, once } })
    }

    async fn read_link(&self, token: &str) -> Result<Link> {
        let is_ours = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if !token.contains(|letter: char| letter.is_ascii_alphanumeric()) || !token.bytes().all(is_ours) {
            return Err(Failed::of(Code::Invalid, "this link is not valid"));
        }
        self.json(&self.get(&["links", token])).await
    }

    async fn revoke_link(&self, token: &str) -> Result<bool> {
        let request = self.post(&["links", "revoke"], &Revoke { token })?.repeatable();
        let revoked: Acknowledged = self.json(&request).await?;
        Ok(revoked.new)
    }

    async fn ask(&self, run: &RunRef, ask: &Ask) -> Result<Asked> {
        let body = match ask {
            Ask::Cancel { reason } => Asking { reason: reason.as_deref(), ..Asking::default() },
            Ask::Pause => Asking::default(),
            Ask::Resume { anyway } => Asking { anyway: Some(*anyway), ..Asking::default() },
            Ask::Restart { from } => Asking { from: from.as_deref(), ..Asking::default() },
            Ask::Migrate { rename, skip, to } => {
                let rename = rename.iter().map(|(old, new)| (old.as_str(), new.as_str())).collect();
                Asking { rename: Some(rename), skip: Some(skip), to: to.as_deref(), ..Asking::default() }
            }
        };
        let request = self.post(&Self::of(run, &[ask.name()]), &body)?;
        let acknowledged: Acknowledged = self.json(&request).await?;
        Ok(match acknowledged {
            Acknowledged { compensating: true, .. } => Asked::Compensating,
            Acknowledged { new: true, .. } => Asked::Now,
            _ => Asked::Before,
        })
    }

    async fn definitions(&self, of: &str) -> Result<Vec<Definition>> {
        let asked: Result<Page<Definition>> = self.json(&self.get(&["definitions", of])).await;
        match asked {
            Ok(page) => Ok(page.items),
            Err(failed) if failed.code() == Some(Code::NotFound) => Ok(Vec::new()),
            Err(failed) => Err(failed),
        }
    }

    async fn result(&self, run: &RunRef, timeout: Option<Duration>) -> Result<Payload> {
        let until = timeout.map(|span| System.boot() + span);
        loop {
            let left = until.map_or(Duration::MAX, |until| until.saturating_sub(System.boot()));
            let poll = left.min(POLL);
            let request = self.get_of(run, &["result"]).query("timeout", &seconds(poll)).wait(poll);
            match self.answer(&request).await {
                Ok(answer) => return self.read(&answer),
                Err(failed) if failed.code() == Some(Code::TimedOut) && left > POLL => {}
                Err(failed) if failed.code() == Some(Code::TimedOut) => {
                    let what = format!("run `{}` did not finish within {:?}", run.id, timeout.unwrap_or_default());
                    return Err(Failed::of(Code::TimedOut, what));
                }
                Err(failed) => return Err(failed),
            }
        }
    }

    async fn sweep(&self, dry_run: bool) -> Result<Swept> {
        let body = BTreeMap::from([("dry_run", dry_run)]);
        self.json(&self.post(&["sweep"], &body)?.repeatable().wait(UPKEEP)).await
    }

    async fn prunable(&self, _: &PruneOptions) -> Result<Option<usize>> {
        Ok(None)
    }

    /// The server stops at its time limit, and further requests continue.
    async fn prune(&self, options: &PruneOptions, progress: Progress<'_>) -> Result<Pruned> {
        #[derive(Serialize)]
        struct Prune {
            older_than: f64,
            status: Option<Status>,
            dry_run: bool,
        }
        let (older_than, status, dry_run) = (seconds(options.older_than), options.status, options.dry_run);
        let mut sum = Pruned::default();
        loop {
            let request = self.post(&["prune"], &Prune { older_than, status, dry_run })?.wait(UPKEEP);
            let answer = self.answer(&request).await?;
            let (part, PrunedPart { more }): (Pruned, _) = (self.read(&answer)?, self.read(&answer)?);
            sum.runs += part.runs;
            sum.objects += part.objects;
            sum.freed += part.freed;
            progress(&sum);
            if more && dry_run {
                let what = format!("the server timed out after counting {} runs", sum.runs);
                return Err(Failed::of(Code::TimedOut, what)
                    .hint("without `--dry-run`, the command continues until all are deleted"));
            }
            if !more {
                return Ok(sum);
            }
        }
    }
}
