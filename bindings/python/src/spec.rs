//! Workflows and settings, as Python describes them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::FutureExt as _;
use serde::Deserialize;
use serde_json::{Map, Value};
use wigwag::{Builder, Graph, LinkSecret, OnFailure, Retry, Settings};

use crate::handlers::Code;
use crate::mailbox::Post;

/// Converts seconds to a span; an invalid number becomes the longest span.
pub(crate) fn span(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

/// A retry policy, of which Python may leave out anything.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct RetrySpec {
    retries: Option<u32>,
    first: Option<f64>,
    factor: Option<f64>,
    cap: Option<f64>,
    jitter: Option<f64>,
}

impl RetrySpec {
    /// The number of retries, if the policy says nothing else.
    pub(crate) fn retries_only(&self) -> Option<Option<u32>> {
        let rest = [self.first, self.factor, self.cap, self.jitter];
        rest.iter().all(Option::is_none).then_some(self.retries)
    }

    pub(crate) fn into_retry(self) -> Retry {
        let mut retry = self.retries.map_or_else(Retry::default, Retry::times);
        retry = self.first.map(span).into_iter().fold(retry, Retry::first);
        retry = self.factor.into_iter().fold(retry, Retry::factor);
        retry = self.cap.map(span).into_iter().fold(retry, Retry::cap);
        self.jitter.into_iter().fold(retry, Retry::jitter)
    }
}

/// All that a worker runs.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct WorkerSpec {
    #[serde(default)]
    workflows: Vec<WorkflowSpec>,
    #[serde(default)]
    tasks: Vec<TaskSpec>,
    #[serde(default)]
    queues: Vec<String>,
    #[serde(default)]
    pub(crate) settings: SettingsSpec,
}

#[derive(Debug, Deserialize)]
struct TaskSpec {
    name: String,
    code: u64,
}

#[derive(Debug, Deserialize)]
struct WorkflowSpec {
    name: String,
    /// Of a function.
    code: Option<u64>,
    #[serde(default)]
    version: u32,
    /// Of a graph.
    #[serde(default)]
    steps: Vec<StepSpec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StepSpec {
    name: String,
    after: Vec<String>,
    /// None of a step that others run.
    code: Option<u64>,
    undo: Option<u64>,
    when: Option<u64>,
    retry: Option<RetrySpec>,
    timeout: Option<f64>,
    delay: Option<f64>,
    queue: Option<String>,
    on_failure: Option<OnFailure>,
    signal: Option<SignalSpec>,
    /// The steps of a group.
    group: Option<Vec<Self>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SignalSpec {
    name: String,
    on_receive: Option<u64>,
    on_timeout: Option<u64>,
    latest: bool,
    quorum: Option<u32>,
    authenticated: bool,
    about: Option<String>,
    schema: Option<Value>,
}

/// Settings, of which Python may leave out anything.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct SettingsSpec {
    lease: Option<f64>,
    concurrency: Option<usize>,
    linger: Option<f64>,
    grace: Option<f64>,
    look_min: Option<f64>,
    look_max: Option<f64>,
    sweep_every: Option<f64>,
    keep: Option<f64>,
    link_secret: Option<String>,
}

impl SettingsSpec {
    pub(crate) fn settings(&self) -> wigwag::Result<Settings> {
        let mut settings = Settings::default();
        let spans = [
            (self.lease, &mut settings.lease),
            (self.linger, &mut settings.linger),
            (self.grace, &mut settings.grace),
            (self.look_min, &mut settings.look_min),
            (self.look_max, &mut settings.look_max),
        ];
        for (given, setting) in spans {
            *setting = given.map_or(*setting, span);
        }
        settings.turns_max = self.concurrency.unwrap_or(settings.turns_max);
        settings.sweep_every = self.sweep_every.map(span).or(settings.sweep_every);
        settings.keep = self.keep.map(span);
        settings.link_secret = self.link_secret.clone().map(LinkSecret::new).transpose()?;
        Ok(settings)
    }
}

impl WorkerSpec {
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("not what a worker runs: {error}"))
    }

    /// Adds all of it to an engine.
    pub(crate) fn add_to(self, mut builder: Builder, post: &Arc<Post>) -> Builder {
        let code = |number| Arc::new(Code { post: Arc::clone(post), number });
        for workflow in self.workflows {
            builder = match workflow.code {
                Some(number) => builder.function_dyn(&workflow.name, workflow.version, code(number)),
                None => {
                    let graph = Graph::<Value>::new(&workflow.name);
                    builder.workflow(workflow.steps.into_iter().fold(graph, |graph, step| step.add_to(graph, post)))
                }
            };
        }
        for task in self.tasks {
            builder = builder.task_dyn(&task.name, code(task.code));
        }
        match self.queues.is_empty() {
            true => builder,
            false => builder.queues(self.queues),
        }
    }
}

impl StepSpec {
    fn add_to(self, graph: Graph<Value>, post: &Arc<Post>) -> Graph<Value> {
        let code = |number| Code { post: Arc::clone(post), number };
        let name = self.name;
        let mut graph = match (self.group, self.signal) {
            (Some(steps), _) => {
                let graph =
                    graph.group(name, |graph| steps.into_iter().fold(graph, |graph, step| step.add_to(graph, post)));
                return if self.after.is_empty() { graph } else { graph.after(self.after) };
            }
            (None, Some(signal)) => signal.add_to(name, graph, post),
            (None, None) => graph.step_dyn(name, self.code.map(|number| Arc::new(code(number)) as _)),
        };
        if !self.after.is_empty() {
            graph = graph.after(self.after);
        }
        graph = self.retry.map(RetrySpec::into_retry).into_iter().fold(graph, Graph::retry);
        graph = self.timeout.map(span).into_iter().fold(graph, Graph::timeout);
        graph = self.delay.map(span).into_iter().fold(graph, Graph::delay);
        graph = self.queue.into_iter().fold(graph, Graph::queue);
        graph = self.on_failure.into_iter().fold(graph, Graph::on_failure);
        graph = self.undo.into_iter().fold(graph, |graph, number| graph.compensate_dyn(Arc::new(code(number))));
        self.when.into_iter().fold(graph, |graph, number| {
            let code = code(number);
            graph.when_dyn(move |data| {
                let asked = code.ask(&data, None);
                async move { Ok(asked.await? == Value::Bool(true)) }.boxed()
            })
        })
    }
}

impl SignalSpec {
    fn add_to(self, step: String, graph: Graph<Value>, post: &Arc<Post>) -> Graph<Value> {
        let code = |number| Code { post: Arc::clone(post), number };
        let mut graph = graph.signal_at(step, self.name);
        if self.latest {
            graph = graph.latest();
        }
        if self.authenticated {
            graph = graph.authenticated();
        }
        if let Some(about) = self.about {
            graph = graph.about_dyn(move |_| Some(about.clone()));
        }
        graph = self.quorum.into_iter().fold(graph, Graph::quorum);
        graph = self.schema.into_iter().fold(graph, Graph::schema);
        graph = self.on_receive.into_iter().fold(graph, |graph, number| {
            let code = code(number);
            graph.on_receive_dyn(move |data, signal| {
                let asked = code.ask(&data, Some(&signal));
                async move { Ok(changed(asked.await?)) }.boxed()
            })
        });
        self.on_timeout.into_iter().fold(graph, |graph, number| {
            let code = code(number);
            graph.on_timeout_dyn(move |data| {
                let asked = code.ask(&data, None);
                async move { Ok(changed(asked.await?)) }.boxed()
            })
        })
    }
}

/// The whole of a run's data, if the code changed it.
fn changed(data: Value) -> Option<Map<String, Value>> {
    match data {
        Value::Object(data) => Some(data),
        _ => None,
    }
}
