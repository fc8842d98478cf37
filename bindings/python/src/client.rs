//! Clients of a store.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use serde_json::{Value, json};
use wigwag::{Asked, Filter, RunHandle, RunView, SignalCall, Time};
use wigwag_core::state_to_json;
use wigwag_store::Store as _;

use crate::failures::{Outcome, shown_of_server};
use crate::mailbox::Mailbox;
use crate::ops::{Op, Signal, Submit, entry};
use crate::runtime;
use crate::server::{Server, is_server};
use crate::spec::{RetrySpec, span};
use crate::stores::StoreHandle;

/// A client of one store, or of a server's HTTP API.
#[pyclass(frozen, module = "wigwag._native")]
#[derive(Debug)]
pub(crate) struct Client {
    target: Target,
}

#[derive(Clone, Debug)]
enum Target {
    Store { url: String, store: Arc<tokio::sync::OnceCell<Arc<StoreHandle>>> },
    Server(Arc<Server>),
}

impl Target {
    async fn answer(self, op: &str) -> Outcome {
        let (url, store) = match self {
            Self::Server(server) => return server.answer(op).await,
            Self::Store { url, store } => (url, store),
        };
        let client = match store.get_or_try_init(|| open(url)).await {
            Ok(store) => store.client().await,
            Err(error) => Err(error),
        };
        answer(client, op).await
    }
}

#[pymethods]
impl Client {
    /// An error is a `ValueError` whose message is the error as JSON.
    #[new]
    #[pyo3(signature = (url, token=None, allow_http=false))]
    fn new(url: String, token: Option<&str>, allow_http: bool) -> PyResult<Self> {
        let refused = |error: Value| Err(PyValueError::new_err(error.to_string()));
        let target = match (is_server(&url), token) {
            (true, _) => match Server::open(&url, token, allow_http) {
                Ok(server) => Target::Server(Arc::new(server)),
                Err(failed) => return refused(shown_of_server(&failed, token.is_some())),
            },
            (false, None) => Target::Store { url, store: Arc::default() },
            (false, Some(_)) => {
                let what =
                    "a token is for the HTTP API of a server, such as `https://wigwag.example.com`, not for a store";
                return refused(crate::failures::shown(&invalid(what)));
            }
        };
        Ok(Self { target })
    }

    /// Asks something, and answers with JSON.
    fn ask(&self, mailbox: &Mailbox, future: u64, op: String) -> PyResult<()> {
        let (target, post) = (self.target.clone(), Arc::clone(&mailbox.post));
        runtime()?.spawn(async move { post.answer(future, target.answer(&op).await) });
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
