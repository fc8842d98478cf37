//! Clients of a store.

use std::sync::Arc;

use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};
use wigwag::{Asked, Filter, Payload, RunHandle, RunView, SignalCall, Status, Time};
use wigwag_core::state_to_json;
use wigwag_store::Store as _;

use crate::failures::Outcome;
use crate::mailbox::Mailbox;
use crate::runtime;
use crate::spec::{RetrySpec, span};
use crate::stores::StoreHandle;

/// A client of one store.
#[pyclass(frozen, module = "wigwag._native")]
#[derive(Debug)]
pub(crate) struct Client {
    url: String,
    store: Arc<tokio::sync::OnceCell<Arc<StoreHandle>>>,
}

#[pymethods]
impl Client {
    #[new]
    fn new(url: String) -> Self {
        Self { url, store: Arc::default() }
    }

    /// Asks something, and answers with JSON.
    fn ask(&self, mailbox: &Mailbox, future: u64, op: String) -> PyResult<()> {
        let (url, cell, post) = (self.url.clone(), Arc::clone(&self.store), Arc::clone(&mailbox.post));
        runtime()?.spawn(async move {
            let client = match cell.get_or_try_init(|| open(url)).await {
                Ok(store) => store.client().await,
                Err(error) => Err(error),
            };
            post.answer(future, answer(client, &op).await);
        });
        Ok(())
    }
}

/// An error of the caller.
pub(crate) fn invalid(what: &str) -> wigwag::Error {
    wigwag_core::Refusal::new(what).into()
}

/// Opens a store without keeping a thread of the runtime from other work.
pub(crate) async fn open(url: String) -> wigwag::Result<Arc<StoreHandle>> {
    let opened = tokio::task::spawn_blocking(move || StoreHandle::open(&url)).await;
    opened.unwrap_or_else(|error| Err(invalid(&format!("the store cannot be opened: {error}"))))
}

/// A request. `task` says that the id is a task's.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    Check {},
    Now {},
    Start(Start),
    Submit(Submit),
    Get {
        id: String,
        #[serde(default)]
        task: bool,
    },
    Wait {
        id: String,
        #[serde(default)]
        task: bool,
        timeout: Option<f64>,
    },
    Result {
        id: String,
        #[serde(default)]
        task: bool,
    },
    Cancel {
        id: String,
        #[serde(default)]
        task: bool,
        reason: Option<String>,
    },
    Pause {
        id: String,
    },
    Resume {
        id: String,
        #[serde(default)]
        anyway: bool,
    },
    Restart {
        id: String,
        from: Option<String>,
    },
    Migrate {
        id: String,
        to: Option<String>,
        #[serde(default)]
        mapping: std::collections::BTreeMap<String, Option<String>>,
    },
    Signal(Signal),
    SignalMany {
        signals: Vec<Signal>,
    },
    List {
        #[serde(default)]
        tasks: bool,
        of: Option<String>,
        status: Option<Status>,
        limit: usize,
        after: Option<String>,
    },
    Counts {},
    Steps {
        id: String,
        #[serde(default)]
        task: bool,
    },
    History {
        id: String,
        #[serde(default)]
        task: bool,
        from: u64,
        limit: u64,
    },
    Follow {
        id: String,
        from: u64,
    },
    Waiting {
        name: Option<String>,
        limit: usize,
        after: Option<String>,
    },
    OpenWaits {
        id: String,
    },
    Inbox {
        id: String,
        name: Option<String>,
    },
    Definitions {
        of: String,
    },
    Explain {
        id: String,
    },
    Link {
        id: String,
        name: String,
        expires_in: f64,
        #[serde(default)]
        once: bool,
        sender: Option<String>,
        server: Option<String>,
    },
}

#[derive(Debug, Deserialize)]
struct Start {
    of: String,
    input: Payload,
    id: Option<String>,
    at: Option<Time>,
    delay: Option<f64>,
    #[serde(default)]
    registered_only: bool,
}

#[derive(Debug, Deserialize)]
struct Submit {
    of: String,
    input: Payload,
    key: Option<String>,
    queue: Option<String>,
    retry: Option<RetrySpec>,
    timeout: Option<f64>,
    at: Option<Time>,
    delay: Option<f64>,
    expires_at: Option<Time>,
    expires_in: Option<f64>,
}

#[derive(Debug, Deserialize)]
struct Signal {
    id: String,
    name: String,
    payload: Payload,
    key: Option<String>,
    by: Option<String>,
    #[serde(default)]
    only_if_waiting: bool,
    point: Option<String>,
    start: Option<(String, Payload)>,
    wait: Option<f64>,
}

/// Answers a question.
pub(crate) async fn answer(client: wigwag::Result<wigwag::Client>, op: &str) -> Outcome {
    let op = match serde_json::from_str::<Op>(op) {
        Ok(op) => op,
        Err(error) => return Outcome::refused(&format!("not a question: {error}")),
    };
    Outcome::of_call(match client {
        Ok(client) => ask(&client, op).await,
        Err(error) => Err(error),
    })
}

#[expect(clippy::too_many_lines, reason = "one arm for each request")]
async fn ask(client: &wigwag::Client, op: Op) -> wigwag::Result<Value> {
    let handle = |id: &str, task: bool| if task { client.task(id) } else { client.run(id) };
    Ok(match op {
        Op::Check {} => client.check().await.map(|()| Value::Null)?,
        Op::Now {} => json!(Time::from_micros(client.store().now().await?.at.micros())),
        Op::Start(start) => {
            let mut call = client.start(&start.of, &start.input);
            call = start.id.into_iter().fold(call, wigwag::StartCall::id);
            call = start.at.into_iter().fold(call, wigwag::StartCall::at);
            call = start.delay.map(span).into_iter().fold(call, wigwag::StartCall::delay);
            let run = if start.registered_only { call.registered_only().await? } else { call.await? };
            json!({ "id": run.id(), "warnings": run.warnings() })
        }
        Op::Submit(submit) => json!({ "id": submit.call(client).await?.id() }),
        Op::Get { id, task } => {
            let run = handle(&id, task)?;
            let view = run.get().await?;
            shown(&run, &view).await?
        }
        Op::Wait { id, task, timeout } => {
            let run = handle(&id, task)?;
            let view = run.wait_for(timeout.map(span)).await?;
            shown(&run, &view).await?
        }
        Op::Result { id, task } => raw(&handle(&id, task)?.result_payload().await?),
        Op::Cancel { id, task, reason } => {
            let cancel = handle(&id, task)?.cancel();
            asked(reason.into_iter().fold(cancel, wigwag::Cancel::reason).await?)
        }
        Op::Pause { id } => asked(client.run(id)?.pause().await?),
        Op::Resume { id, anyway } => {
            let resume = client.run(id)?.resume();
            asked(if anyway { resume.anyway().await? } else { resume.await? })
        }
        Op::Restart { id, from } => {
            let restart = client.run(id)?.restart();
            asked(from.into_iter().fold(restart, wigwag::Restart::from).await?)
        }
        Op::Migrate { id, to, mapping } => {
            let mut migrate = client.run(id)?.migrate();
            for (old, new) in &mapping {
                migrate = match new {
                    Some(new) => migrate.rename(old, new),
                    None => migrate.skip(old),
                };
            }
            asked(to.into_iter().fold(migrate, wigwag::Migrate::to).await?)
        }
        Op::Signal(signal) => signal.send(client).await?,
        Op::SignalMany { signals } => {
            let calls = signals.into_iter().map(|signal| signal.call(client));
            let sent = client.signal_many(calls).await;
            let shown = sent.iter().map(|sent| match sent {
                Ok(receipt) => json!({ "receipt": receipt }),
                Err(error) => json!({ "error": crate::failures::shown(error) }),
            });
            shown.collect()
        }
        Op::List { tasks, of, status, limit, after } => {
            let mut filter = Filter::default();
            (filter.of, filter.statuses, filter.tasks) = (of, status.into_iter().collect(), tasks);
            (filter.limit, filter.after) = (limit, after);
            let listing = client.list(&filter).await?;
            let unreadable: Vec<String> = listing.unreadable.iter().map(ToString::to_string).collect();
            json!({ "runs": listing.runs, "next": listing.next, "unreadable": unreadable })
        }
        Op::Counts {} => json!(client.counts().await?),
        Op::Steps { id, task } => {
            let run = handle(&id, task)?;
            json!(run.steps().await?)
        }
        Op::History { id, task, from, limit } => {
            let entries = handle(&id, task)?.history(from, limit).await?;
            entries.iter().map(entry).collect()
        }
        Op::Follow { id, from } => match client.run(id)?.follow(from).next().await? {
            Some(entries) => entries.iter().map(entry).collect(),
            None => Value::Null,
        },
        Op::Waiting { name: Some(name), limit, after } => {
            json!(client.runs_waiting_for(&name, limit, after.as_deref()).await?)
        }
        Op::Waiting { name: None, limit, after } => json!(client.waiting_runs(limit, after.as_deref()).await?),
        Op::OpenWaits { id } => json!(client.run(id)?.waiting().await?),
        Op::Inbox { id, name } => json!(client.run(id)?.signals(name.as_deref()).await?),
        Op::Definitions { of } => json!(client.definitions(&of).await?),
        Op::Explain { id } => json!(client.run(id)?.explain().await?),
        Op::Link { id, name, expires_in, once, sender, server } => {
            let mut link = client.link(id, name, span(expires_in));
            if once {
                link = link.once();
            }
            link = sender.into_iter().fold(link, wigwag::NewLink::sender);
            match server {
                Some(server) => json!({ "url": link.url(&server).await? }),
                None => json!({ "token": link.token().await? }),
            }
        }
    })
}

impl Submit {
    async fn call(self, client: &wigwag::Client) -> wigwag::Result<RunHandle> {
        use wigwag::SubmitCall as Call;
        let mut call = client.submit(&self.of, &self.input);
        call = self.key.into_iter().fold(call, Call::key);
        call = self.queue.into_iter().fold(call, Call::queue);
        call = self.retry.map(RetrySpec::into_retry).into_iter().fold(call, Call::retry);
        call = self.timeout.map(span).into_iter().fold(call, Call::timeout);
        call = self.at.into_iter().fold(call, Call::at);
        call = self.delay.map(span).into_iter().fold(call, Call::delay);
        call = self.expires_at.into_iter().fold(call, Call::expires_at);
        self.expires_in.map(span).into_iter().fold(call, Call::expires_in).await
    }
}

impl Signal {
    fn call(self, client: &wigwag::Client) -> SignalCall {
        let mut call = client.signal(&self.id, &self.name, &self.payload);
        call = self.key.into_iter().fold(call, SignalCall::key);
        call = self.by.into_iter().fold(call, SignalCall::by);
        call = self.point.into_iter().fold(call, SignalCall::point);
        if self.only_if_waiting {
            call = call.only_if_waiting();
        }
        match self.start {
            Some((of, input)) => call.start_if_absent(&of, &input),
            None => call,
        }
    }

    async fn send(mut self, client: &wigwag::Client) -> wigwag::Result<Value> {
        let wait = self.wait.take();
        let call = self.call(client);
        let Some(seconds) = wait else { return Ok(json!(call.await?)) };
        let consumed = call.and_wait(span(seconds)).await?;
        Ok(json!({
            "id": consumed.receipt.id,
            "state": consumed.receipt.state,
            "repeated": consumed.receipt.repeated,
            "warning": consumed.receipt.warning,
            "point": consumed.point,
            "at": consumed.at,
            "status": consumed.status,
            "next": consumed.next,
        }))
    }
}

fn asked(asked: Asked) -> Value {
    json!(match asked {
        Asked::Now => "now",
        Asked::Before => "before",
        Asked::Compensating => "compensating",
        _ => "unknown",
    })
}

fn raw(payload: &Payload) -> Value {
    payload.value()
}

fn entry(entry: &wigwag_core::Entry) -> Value {
    serde_json::from_slice(&entry.to_json()).unwrap_or_default()
}

/// A run as it is, with its input, its steps and its result.
async fn shown(run: &RunHandle, view: &RunView) -> wigwag::Result<Value> {
    let state: Value = serde_json::from_slice(&state_to_json(view.run(), "")).unwrap_or_default();
    let result = match &view.run().result {
        Some(result) => match result.inline() {
            Some(payload) => Some(payload.clone()),
            None => run.output_payload().await?,
        },
        None => None,
    };
    let input = match view.run().input.inline() {
        Some(payload) => payload.clone(),
        None => run.input().await?,
    };
    let fault = view.run().error.as_ref();
    Ok(json!({
        "state": state,
        "steps": view.steps(),
        "input": input,
        "result": result,
        "error": fault,
    }))
}
