//! The kit for tests of workflows: a store in memory and a clock that is moved by hand.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};
use wigwag::Client;

use crate::failures::{Outcome, failure};
use crate::mailbox::{Mailbox, Post};
use crate::spec::{WorkerSpec, span};
use crate::{lock, runtime};

/// An engine on a store in memory, with a clock that is moved by hand.
#[pyclass(frozen, module = "wigwag._native")]
#[derive(Debug)]
pub(crate) struct Kit {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    kit: tokio::sync::Mutex<Option<wigwag::testing::Kit>>,
    client: Mutex<Option<Client>>,
}

/// A request to a kit.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Op {
    Start { spec: String },
    Crash { spec: String },
    Stop {},
    Settle {},
    RunUntilIdle {},
    Advance { seconds: f64 },
    Fail { step: String, failures: Vec<Value> },
    Elapsed {},
}

#[pymethods]
impl Kit {
    #[new]
    fn new() -> Self {
        Self { shared: Arc::default() }
    }

    /// Does something, and answers when it is done.
    fn ask(&self, mailbox: &Mailbox, future: u64, op: String) -> PyResult<()> {
        let (shared, post) = (Arc::clone(&self.shared), Arc::clone(&mailbox.post));
        runtime()?.spawn(async move {
            let outcome = match serde_json::from_str(&op) {
                Ok(op) => Outcome::of_call(shared.answer(op, &post).await),
                Err(error) => Outcome::refused(&error.to_string()),
            };
            post.answer(future, outcome);
        });
        Ok(())
    }

    /// Asks things of its runs, as a client does.
    fn client(&self, mailbox: &Mailbox, future: u64, op: String) -> PyResult<()> {
        let client = lock(&self.shared.client).clone();
        let post = Arc::clone(&mailbox.post);
        runtime()?.spawn(async move {
            let client = client.ok_or_else(|| crate::client::invalid("the kit was not started"));
            post.answer(future, crate::client::answer(client, &op).await);
        });
        Ok(())
    }
}

impl Shared {
    async fn answer(&self, op: Op, post: &Arc<Post>) -> wigwag::Result<Value> {
        let mut slot = self.kit.lock().await;
        let stopped = || crate::client::invalid("the kit was not started, or has stopped");
        let spec = |text: &str| WorkerSpec::read(text).map_err(|error| crate::client::invalid(&error));
        match op {
            Op::Start { spec: text } => {
                let spec = spec(&text)?;
                let kit = wigwag::testing::Kit::start(|builder| spec.add_to(builder, post)).await?;
                *lock(&self.client) = Some(kit.client());
                *slot = Some(kit);
            }
            Op::Crash { spec: text } => {
                let (spec, kit) = (spec(&text)?, slot.take().ok_or_else(stopped)?);
                let kit = kit.crash(|builder| spec.add_to(builder, post)).await?;
                *lock(&self.client) = Some(kit.client());
                *slot = Some(kit);
            }
            Op::Stop {} => {
                *lock(&self.client) = None;
                *slot = None;
            }
            Op::Settle {} => slot.as_ref().ok_or_else(stopped)?.settle().await?,
            Op::RunUntilIdle {} => slot.as_ref().ok_or_else(stopped)?.run_until_idle().await?,
            Op::Advance { seconds } => slot.as_ref().ok_or_else(stopped)?.advance(span(seconds)).await?,
            Op::Fail { step, failures } => {
                let failures = failures.iter().map(|told| failure(&told.to_string()));
                slot.as_ref().ok_or_else(stopped)?.fail(&step, failures);
            }
            Op::Elapsed {} => return Ok(json!(slot.as_ref().ok_or_else(stopped)?.elapsed().as_secs_f64())),
        }
        Ok(Value::Null)
    }
}
