//! Shape of a workflow as data: names, kinds and dependencies. The code is elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::span;
use crate::{Mode, Name, Path, Refusal, Retry, TypeName, sha256_hex};

/// How a workflow is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// Steps and their dependencies.
    Graph,
    /// An async function that is replayed from its top.
    Function,
    /// A run of one step, submitted to a queue.
    Task,
}

/// Kind of a node of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// Runs your code.
    Step,
    /// Waits for a signal.
    Signal,
}

/// Effect of a failed step on the run, once no retry is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The run compensates and fails.
    #[default]
    Fail,
    /// The run is paused; a resume retries the step.
    Pause,
    /// The run continues as if the step had returned `null`.
    Continue,
}

/// A step of a graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Node {
    /// Path of the step: its name below those of its groups.
    pub name: Path,
    /// Whether the node is a step or a wait.
    pub kind: NodeKind,
    /// Steps that must end before this one starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Path>,
    /// Delay after the dependencies ended.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_span")]
    pub delay: Option<Duration>,
    /// Retry policy of the step.
    pub retry: Retry,
    /// Timeout of one attempt.
    #[serde(with = "span")]
    pub timeout: Duration,
    /// Whether the step has a compensation.
    #[serde(default)]
    pub compensate: bool,
    /// Queue whose workers run the step as a task; absent for a step of the run's own worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Name>,
    /// Effect of its failure on the run.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// The signal that the node waits for; absent for a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<SignalSpec>,
}

/// Settings of a node that waits for a signal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SignalSpec {
    /// Name of the signal.
    pub name: Name,
    /// Which signals of that name it consumes.
    #[serde(default, skip_serializing_if = "Mode::is_queue")]
    pub mode: Mode,
    /// Number of different senders needed.
    pub quorum: u32,
    /// Whether only signals of authenticated senders count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub authenticated: bool,
    /// Timeout of the wait; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_span")]
    pub timeout: Option<Duration>,
    /// JSON Schema of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<serde_json::Value>,
}

impl SignalSpec {
    /// A wait for the next signal of that name, without a timeout.
    #[must_use]
    pub fn new(name: Name) -> Self {
        Self { name, mode: Mode::Queue, quorum: 1, authenticated: false, timeout: None, schema: None }
    }
}

mod optional_span {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "the signature is serde's")]
    pub(super) fn serialize<S: Serializer>(span: &Option<Duration>, to: S) -> Result<S::Ok, S::Error> {
        match span {
            Some(span) => super::span::serialize(span, to),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(from)?.map(Duration::from_micros))
    }
}

/// Default timeout of a step.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(600);

impl Node {
    /// A step with default settings.
    #[must_use]
    pub fn step(name: Path) -> Self {
        Self {
            name,
            kind: NodeKind::Step,
            after: Vec::new(),
            delay: None,
            retry: Retry::default(),
            timeout: STEP_TIMEOUT,
            compensate: false,
            queue: None,
            on_failure: OnFailure::Fail,
            signal: None,
        }
    }

    /// A wait for a signal with default settings.
    #[must_use]
    pub fn signal(name: Path, signal: SignalSpec) -> Self {
        Self { kind: NodeKind::Signal, signal: Some(signal), ..Self::step(name) }
    }
}

/// Shape of a workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// Name of the workflow.
    #[serde(rename = "type")]
    pub of: TypeName,
    /// How the workflow is written.
    pub style: Style,
    /// Version of a function; absent for graphs and tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// SHA-256 over names, kinds and dependencies; not over handlers, retries or timeouts.
    pub hash: String,
    /// Steps of a graph, in the order of their declaration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Node>,
}

impl Definition {
    /// Builds the definition of a graph. Unknown dependencies, duplicate names and cycles are rejected by name.
    pub fn graph(of: TypeName, steps: Vec<Node>) -> Result<Self, Refusal> {
        check_names(&of, &steps)?;
        check_cycles(&of, &steps)?;
        check_signals(&of, &steps)?;
        let hash = hash(&of, &steps);
        Ok(Self { of, style: Style::Graph, version: None, hash, steps })
    }

    /// Builds the definition of a function with this version.
    #[must_use]
    pub fn function(of: TypeName, version: u32) -> Self {
        let hash = format!("sha256:{}", sha256_hex(&["function", of.as_str(), &version.to_string()]));
        Self { of, style: Style::Function, version: Some(version), hash, steps: Vec::new() }
    }

    /// Builds the definition of a task: one step of that name, with the settings of the submission.
    #[must_use]
    pub fn task(of: TypeName) -> Self {
        let steps = vec![Node::step(task_point())];
        let hash = hash(&of, &steps);
        Self { of, style: Style::Task, version: None, hash, steps }
    }

    /// Settings of a signal name, from the first node that waits for it.
    #[must_use]
    pub fn signal(&self, name: &Name) -> Option<&SignalSpec> {
        self.steps.iter().filter_map(|node| node.signal.as_ref()).find(|signal| signal.name == *name)
    }

    /// The step at a path.
    #[must_use]
    pub fn step(&self, name: &Path) -> Option<&Node> {
        self.steps.iter().find(|node| node.name == *name)
    }
}

/// The only step of a task.
#[must_use]
pub fn task_point() -> Path {
    Path::new("task").expect("a plain name")
}

fn check_names(of: &TypeName, steps: &[Node]) -> Result<(), Refusal> {
    let mut names = BTreeSet::new();
    for node in steps {
        if !names.insert(&node.name) {
            return Err(Refusal::new(format!("workflow `{of}` has two steps called `{}`", node.name)));
        }
    }
    for node in steps {
        if let Some(unknown) = node.after.iter().find(|name| !names.contains(name)) {
            let known = names.iter().take(20).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            return Err(Refusal::new(format!(
                "step `{}` of workflow `{of}` comes after `{unknown}`, which is no step of it: {known}",
                node.name
            )));
        }
    }
    match steps.is_empty() {
        true => Err(Refusal::new(format!("workflow `{of}` has no steps"))),
        false => Ok(()),
    }
}

/// Mode and schema belong to a name: the sender of a signal cannot know which wait will consume it.
fn check_signals(of: &TypeName, steps: &[Node]) -> Result<(), Refusal> {
    let signals = steps.iter().filter_map(|node| Some((&node.name, node.signal.as_ref()?)));
    let mut known: BTreeMap<&Name, (&Path, &SignalSpec)> = BTreeMap::new();
    for (path, signal) in signals {
        let (first, other) = *known.entry(&signal.name).or_insert((path, signal));
        if other.mode != signal.mode || other.schema != signal.schema {
            return Err(Refusal::new(format!(
                "`{first}` and `{path}` of workflow `{of}` wait for signal `{}` with different modes or schemas",
                signal.name
            )));
        }
    }
    Ok(())
}

/// Removes steps without dependencies until none is left. The rest contains a cycle, which is then followed.
fn check_cycles(of: &TypeName, steps: &[Node]) -> Result<(), Refusal> {
    let place: BTreeMap<&Path, usize> = steps.iter().enumerate().map(|(place, node)| (&node.name, place)).collect();
    let mut waiting: Vec<usize> = steps.iter().map(|node| node.after.len()).collect();
    let mut dependents = vec![Vec::new(); steps.len()];
    for (here, node) in steps.iter().enumerate() {
        for name in &node.after {
            dependents[place[name]].push(here);
        }
    }
    let mut free: Vec<usize> = (0..steps.len()).filter(|place| waiting[*place] == 0).collect();
    let mut left = steps.len();
    while let Some(here) = free.pop() {
        left -= 1;
        for next in &dependents[here] {
            waiting[*next] -= 1;
            if waiting[*next] == 0 {
                free.push(*next);
            }
        }
    }
    if left == 0 {
        return Ok(());
    }
    let mut here = waiting.iter().position(|count| *count > 0).expect("a step is left");
    let mut way = Vec::new();
    while !way.contains(&here) {
        way.push(here);
        let back = steps[here].after.iter().map(|name| place[name]).find(|place| waiting[*place] > 0);
        here = back.expect("every remaining step depends on another remaining step");
    }
    let start = way.iter().position(|place| *place == here).expect("the way came back to it");
    let names: Vec<_> = way[start..].iter().chain([&here]).map(|place| format!("`{}`", steps[*place].name)).collect();
    Err(Refusal::new(format!("steps of workflow `{of}` wait for each other: {}", names.join(" after "))))
}

fn hash(of: &TypeName, steps: &[Node]) -> String {
    let mut sorted: Vec<&Node> = steps.iter().collect();
    sorted.sort_by(|a, b| a.name.cmp(&b.name));
    let shape: Vec<_> = sorted
        .iter()
        .map(|node| {
            let after: BTreeSet<&str> = node.after.iter().map(Path::as_str).collect();
            let mut shape = serde_json::json!({"name": node.name.as_str(), "kind": node.kind, "after": after});
            if let Some(signal) = &node.signal {
                // Senders read these from the stored definition, which never changes, so they are part
                // of its hash.
                let SignalSpec { name, mode, schema, .. } = signal;
                shape["signal"] = serde_json::json!({"name": name, "mode": mode, "schema": schema});
            }
            shape
        })
        .collect();
    let canonical = serde_json::json!({"type": of.as_str(), "steps": shape}).to_string();
    format!("sha256:{}", sha256_hex(&[&canonical]))
}
