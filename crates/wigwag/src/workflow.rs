//! Workflows and tasks that an engine can run: definitions with their code, object-safe for handlers of other languages.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use wigwag_core::{Definition, Family, Name, Node, Path, Payload, Run, Style, TaskSpec, TypeName, kind_of, task_point};

use crate::context::{Ctx, StepCtx};
use crate::error::{Error, Result};
use crate::failure::Failure;
use crate::scope::Scope;

/// The code of a step, on JSON: built by the typed builders, or implemented for another language.
pub trait StepHandler: Send + Sync + 'static {
    /// Runs the step.
    fn call(&self, ctx: StepCtx<Value>) -> BoxFuture<'static, Result<Payload, Failure>>;
}

/// The code that undoes a step, on JSON.
pub trait UndoHandler: Send + Sync + 'static {
    /// Compensates the step; `result` is its recorded result, if it completed.
    fn call(&self, ctx: StepCtx<Value>, result: Option<Payload>) -> BoxFuture<'static, Result<(), Failure>>;
}

/// The code of a function workflow, on JSON.
pub trait FunctionHandler: Send + Sync + 'static {
    /// Runs the function from its top.
    fn call(&self, ctx: Ctx, input: Payload) -> BoxFuture<'static, Result<Payload, Failure>>;
}

impl<F> StepHandler for F
where
    F: Fn(StepCtx<Value>) -> BoxFuture<'static, Result<Payload, Failure>> + Send + Sync + 'static,
{
    fn call(&self, ctx: StepCtx<Value>) -> BoxFuture<'static, Result<Payload, Failure>> {
        self(ctx)
    }
}

impl<F> UndoHandler for F
where
    F: Fn(StepCtx<Value>, Option<Payload>) -> BoxFuture<'static, Result<(), Failure>> + Send + Sync + 'static,
{
    fn call(&self, ctx: StepCtx<Value>, result: Option<Payload>) -> BoxFuture<'static, Result<(), Failure>> {
        self(ctx, result)
    }
}

impl<F> FunctionHandler for F
where
    F: Fn(Ctx, Payload) -> BoxFuture<'static, Result<Payload, Failure>> + Send + Sync + 'static,
{
    fn call(&self, ctx: Ctx, input: Payload) -> BoxFuture<'static, Result<Payload, Failure>> {
        self(ctx, input)
    }
}

/// Condition of a step on the run's data (or, if that is empty, its input).
pub(crate) type When = Arc<dyn Fn(Payload) -> BoxFuture<'static, Result<bool, Failure>> + Send + Sync>;

/// The code of one step of a graph.
#[derive(Clone, Default)]
pub(crate) struct NodeCode {
    pub(crate) run: Option<Arc<dyn StepHandler>>,
    pub(crate) undo: Option<Arc<dyn UndoHandler>>,
    pub(crate) when: Option<When>,
    pub(crate) on_receive: Option<OnReceive>,
    pub(crate) on_timeout: Option<OnTimeout>,
    pub(crate) about: Option<About>,
}

/// All of the run's data, if it changed.
pub(crate) type Changed = Result<Option<Map<String, Value>>, Failure>;

/// Code that updates the run's data from a signal.
pub(crate) type OnReceive = Arc<dyn Fn(Payload, Payload) -> BoxFuture<'static, Changed> + Send + Sync>;

/// Code that updates the run's data after a wait timed out.
pub(crate) type OnTimeout = Arc<dyn Fn(Payload) -> BoxFuture<'static, Changed> + Send + Sync>;

/// One line about a wait, made from the run's data (or, if that is empty, its input).
pub(crate) type About = Arc<dyn Fn(Payload) -> Option<String> + Send + Sync>;

/// The code of a type.
pub(crate) enum Code {
    Steps(BTreeMap<Path, NodeCode>),
    Function(Arc<dyn FunctionHandler>),
}

/// A type with its code.
pub(crate) struct Workflow {
    pub(crate) definition: Definition,
    pub(crate) code: Code,
}

impl fmt::Debug for Workflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Workflow").field(&self.definition.of).finish()
    }
}

impl Workflow {
    pub(crate) fn function(of: TypeName, version: u32, code: Arc<dyn FunctionHandler>) -> Self {
        Self { definition: Definition::function(of, version), code: Code::Function(code) }
    }

    pub(crate) fn task(of: TypeName, run: Arc<dyn StepHandler>) -> Self {
        let code = NodeCode { run: Some(run), ..NodeCode::default() };
        Self { definition: Definition::task(of), code: Code::Steps([(task_point(), code)].into()) }
    }

    /// The code of a step.
    pub(crate) fn node_code(&self, step: &Path) -> Option<&NodeCode> {
        match &self.code {
            Code::Steps(steps) => steps.get(step),
            Code::Function(_) => None,
        }
    }

    /// A step with its settings; those of a task come with the task.
    pub(crate) fn node(&self, step: &Path, run: &Run) -> Option<Node> {
        let mut node = self.definition.step(step)?.clone();
        if let (Style::Task, Some(task)) = (self.definition.style, &run.task) {
            (node.retry, node.timeout) = (task.retry.clone(), task.timeout);
        }
        Some(node)
    }

    /// Whether a step is dispatched as a task: it names a queue, or this engine lacks its code.
    pub(crate) fn is_dispatched(&self, node: &Node) -> bool {
        let here = self.node_code(&node.name).is_some_and(|code| code.run.is_some());
        node.kind == wigwag_core::NodeKind::Step && (node.queue.is_some() || !here)
    }
}

/// Everything an engine can run.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    workflows: BTreeMap<TypeName, Arc<Workflow>>,
    tasks: BTreeMap<TypeName, Arc<Workflow>>,
    /// Families by the kind in a wake-up's key. Two types may share a kind; the stored run then decides.
    kinds: HashMap<String, Vec<Family>>,
    pub(crate) queues: Vec<Name>,
}

impl Registry {
    pub(crate) fn new(workflows: Vec<Workflow>, tasks: Vec<Workflow>, queues: Vec<Name>) -> Result<Self> {
        let mut registry = Self { queues, ..Self::default() };
        for workflow in workflows {
            let of = workflow.definition.of.clone();
            registry.serve(&of, Family::Workflow);
            let workflow = Arc::new(workflow);
            registry.add_steps(&workflow)?;
            if registry.workflows.insert(of.clone(), workflow).is_some() {
                return Err(Error::invalid(format!("workflow `{of}` is registered twice")));
            }
        }
        for task in tasks {
            let of = task.definition.of.clone();
            for queue in registry.queues.clone() {
                registry.serve(&TypeName::of_task(&queue, &of)?, Family::Task);
            }
            if registry.tasks.insert(of.clone(), Arc::new(task)).is_some() {
                return Err(Error::invalid(format!("task `{of}` is registered twice")));
            }
        }
        Ok(registry)
    }

    /// A step of a graph can be run as a task for a run that another worker drives.
    fn add_steps(&mut self, workflow: &Arc<Workflow>) -> Result<()> {
        let Code::Steps(codes) = &workflow.code else { return Ok(()) };
        for node in &workflow.definition.steps {
            let of = TypeName::of_step(&workflow.definition.of, &node.name)?;
            let queue = node.queue.clone().unwrap_or_else(default_queue);
            // Also checks the name of a step that only other workers run.
            let index = TypeName::of_task(&queue, &of)?;
            let has_code = codes.get(&node.name).is_some_and(|code| code.run.is_some());
            if has_code && self.queues.contains(&queue) {
                let (parent, step) = (Arc::clone(workflow), node.name.clone());
                let run =
                    move |ctx: StepCtx<Value>| crate::remote::run_step(Arc::clone(&parent), step.clone(), ctx).boxed();
                self.tasks.insert(of.clone(), Arc::new(Workflow::task(of, Arc::new(run))));
                self.serve(&index, Family::Task);
            }
        }
        Ok(())
    }

    fn serve(&mut self, of: &TypeName, family: Family) {
        let families = self.kinds.entry(kind_of(of)).or_default();
        if !families.contains(&family) {
            families.push(family);
        }
    }

    /// The families of runs of that kind which this engine can run.
    pub(crate) fn families(&self, kind: &str) -> &[Family] {
        self.kinds.get(kind).map(Vec::as_slice).unwrap_or_default()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    pub(crate) fn workflow(&self, of: &TypeName) -> Option<&Arc<Workflow>> {
        self.workflows.get(of)
    }

    pub(crate) fn workflows(&self) -> impl Iterator<Item = &Arc<Workflow>> {
        self.workflows.values()
    }

    /// Returns the code of this engine for a run of that type.
    pub(crate) fn find(&self, of: &TypeName, task: Option<&TaskSpec>) -> Option<&Arc<Workflow>> {
        match task {
            None => self.workflows.get(of),
            Some(task) if self.queues.contains(&task.queue) => self.tasks.get(of),
            Some(_) => None,
        }
    }
}

/// The queue of tasks that specify no queue.
pub(crate) fn default_queue() -> Name {
    Name::new("default").expect("a plain name")
}

/// Typed code of a step as a handler.
pub(crate) fn step_handler<S, F, Fut, O, E>(code: F) -> Arc<dyn StepHandler>
where
    F: Fn(StepCtx<S>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
    O: Serialize,
    E: Into<Failure>,
    S: 'static,
{
    Arc::new(move |ctx: StepCtx<Value>| {
        let running = code(StepCtx::new(Arc::clone(&ctx.scope)));
        async move {
            let output = running.await.map_err(Into::into)?;
            Payload::of(&output).map_err(crate::permanent)
        }
        .boxed()
    })
}

/// Typed code that undoes a step as a handler.
pub(crate) fn undo_handler<S, F, Fut, R, E>(code: F) -> Arc<dyn UndoHandler>
where
    F: Fn(StepCtx<S>, Option<R>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), E>> + Send + 'static,
    R: DeserializeOwned,
    E: Into<Failure>,
    S: 'static,
{
    Arc::new(move |ctx: StepCtx<Value>, result: Option<Payload>| {
        let read = result.map(|result| result.read::<R>()).transpose();
        let running = read.map(|result| code(StepCtx::new(Arc::clone(&ctx.scope)), result));
        async move { running?.await.map_err(Into::into) }.boxed()
    })
}

/// Typed code of a function as a handler.
pub(crate) fn function_handler<I, F, Fut, O, E>(code: F) -> Arc<dyn FunctionHandler>
where
    F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
    I: DeserializeOwned,
    O: Serialize,
    E: Into<Failure>,
{
    Arc::new(move |ctx: Ctx, input: Payload| {
        let running = input.read::<I>().map(|input| code(ctx, input));
        async move {
            let output = running.map_err(crate::permanent)?.await.map_err(Into::into)?;
            Payload::of(&output).map_err(crate::permanent)
        }
        .boxed()
    })
}

/// Returns the context for a handler.
pub(crate) fn in_scope(scope: &Arc<Scope>) -> StepCtx<Value> {
    StepCtx::new(Arc::clone(scope))
}

/// The run's data as the payload that a condition reads.
pub(crate) fn data_payload(data: &Map<String, Value>, input: &Payload) -> Payload {
    if data.is_empty() { input.clone() } else { Payload::of(data).unwrap_or_else(|_| input.clone()) }
}
