//! What a workflow type does, as data: names, kinds and dependencies; the code is elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::time::span;
use crate::{Mode, Name, Path, Refusal, Retry, TypeName, sha256_hex};

/// How a type is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Style {
    /// Steps and their dependencies.
    Graph,
    /// A function that is run again from its top.
    Function,
    /// One step.
    Task,
}

/// What a node of a graph is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// Code is run.
    Step,
    /// A signal is waited for.
    Signal,
}

/// What a step's failure does to the run, once no retry is left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The run compensates and fails.
    #[default]
    Fail,
    /// The run is paused; resumed, it tries the step again.
    Pause,
    /// The run goes on as if the step had given `null`.
    Continue,
}

/// A step of a graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Node {
    /// Its path: its name, below those of the groups it is in.
    pub name: Path,
    /// What it is.
    pub kind: NodeKind,
    /// What must have ended before it begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Path>,
    /// How long it waits after that.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_span")]
    pub delay: Option<Duration>,
    /// How often it is tried.
    pub retry: Retry,
    /// How long one try may take.
    #[serde(with = "span")]
    pub timeout: Duration,
    /// It can be undone.
    #[serde(default)]
    pub compensate: bool,
    /// Whose workers run it, as a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Name>,
    /// What its failure does to the run.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// The signal it waits for, if it is no step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<SignalSpec>,
}

/// What a node that waits for a signal says of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SignalSpec {
    /// Its name.
    pub name: Name,
    /// Which signals of that name it takes.
    #[serde(default, skip_serializing_if = "Mode::is_queue")]
    pub mode: Mode,
    /// From how many senders it wants one each.
    pub quorum: u32,
    /// It takes signals of authenticated senders only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub authenticated: bool,
    /// How long it waits; for ever if absent.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "optional_span")]
    pub timeout: Option<Duration>,
    /// What payloads must look like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<serde_json::Value>,
}

impl SignalSpec {
    /// A wait for the next signal of that name, for ever.
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

/// How long a step may take unless it says otherwise.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(600);

impl Node {
    /// A step with the usual settings.
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

    /// A wait for a signal with the usual settings.
    #[must_use]
    pub fn signal(name: Path, signal: SignalSpec) -> Self {
        Self { kind: NodeKind::Signal, signal: Some(signal), ..Self::step(name) }
    }
}

/// What a workflow type does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// The type.
    #[serde(rename = "type")]
    pub of: TypeName,
    /// How it is written.
    pub style: Style,
    /// The version of a function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u32>,
    /// SHA-256 over names, kinds and dependencies; not over handlers, retries or timeouts.
    pub hash: String,
    /// The steps of a graph, in the order they were written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Node>,
}

impl Definition {
    /// A graph of these steps. Unknown dependencies, names used twice and cycles are refused by name.
    pub fn graph(of: TypeName, steps: Vec<Node>) -> Result<Self, Refusal> {
        check_names(&of, &steps)?;
        check_cycles(&of, &steps)?;
        check_signals(&of, &steps)?;
        let hash = hash(&of, &steps);
        Ok(Self { of, style: Style::Graph, version: None, hash, steps })
    }

    /// A function of this version.
    #[must_use]
    pub fn function(of: TypeName, version: u32) -> Self {
        let hash = format!("sha256:{}", sha256_hex(&["function", of.as_str(), &version.to_string()]));
        Self { of, style: Style::Function, version: Some(version), hash, steps: Vec::new() }
    }

    /// A task: one step of that name, with the settings of the submission.
    #[must_use]
    pub fn task(of: TypeName) -> Self {
        let steps = vec![Node::step(task_point())];
        let hash = hash(&of, &steps);
        Self { of, style: Style::Task, version: None, hash, steps }
    }

    /// What is said of a signal of that name; by the first node that waits for it.
    #[must_use]
    pub fn signal(&self, name: &Name) -> Option<&SignalSpec> {
        self.steps.iter().filter_map(|node| node.signal.as_ref()).find(|signal| signal.name == *name)
    }

    /// The step of that path.
    #[must_use]
    pub fn step(&self, name: &Path) -> Option<&Node> {
        self.steps.iter().find(|node| node.name == *name)
    }
}

/// The one point of a task.
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

/// Mode and schema are of a name: whoever sends cannot know which wait will take it.
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

/// Takes away steps without dependencies until none is left; what remains holds a cycle, which is then followed.
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
        here = back.expect("a step that is left waits for one that is left");
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
                // Senders read these from the stored definition, which is never changed: others are another one.
                let SignalSpec { name, mode, schema, .. } = signal;
                shape["signal"] = serde_json::json!({"name": name, "mode": mode, "schema": schema});
            }
            shape
        })
        .collect();
    let canonical = serde_json::json!({"type": of.as_str(), "steps": shape}).to_string();
    format!("sha256:{}", sha256_hex(&[&canonical]))
}
