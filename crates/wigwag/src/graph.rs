//! Graphs: steps with dependencies, written down.

use std::collections::BTreeMap;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use wigwag_core::{
    Definition, Mode, Name, Node, OnFailure, Path, Payload, Refusal, Retry, SignalSpec, TypeName, limits,
};

use crate::context::StepCtx;
use crate::error::Result;
use crate::failure::{Failure, permanent};
use crate::workflow::{Code, NodeCode, StepHandler, UndoHandler, Workflow, step_handler, undo_handler};

/// A workflow as steps with dependencies. Steps that can run in parallel do.
///
/// Settings such as [`Graph::after`] and [`Graph::retry`] apply to the preceding step or group. Mistakes (an unknown
/// dependency, a duplicate name, a cycle) are rejected by name when the engine starts. `S` is the type of the run's
/// input and data. The result is that of the last step; of several last steps, an object by their names.
///
/// ```
/// use std::time::Duration;
/// use serde::{Deserialize, Serialize};
/// use wigwag::{Failure, Graph, Retry, StepCtx};
///
/// #[derive(Serialize, Deserialize)]
/// struct Order { item: String, cents: u64 }
///
/// async fn reserve(ctx: StepCtx<Order>) -> Result<String, Failure> {
///     Ok(format!("{} is reserved", ctx.input()?.item))
/// }
/// async fn release(_: StepCtx<Order>, reserved: Option<String>) -> Result<(), Failure> {
///     println!("released: {reserved:?}");
///     Ok(())
/// }
/// async fn charge(ctx: StepCtx<Order>) -> Result<u64, Failure> {
///     Ok(ctx.input()?.cents)
/// }
///
/// let order = Graph::<Order>::new("order")
///     .step("reserve", reserve).compensate(release)
///     .step("charge", charge).after("reserve").retry(Retry::times(5)).timeout(Duration::from_secs(30));
/// # let _ = order;
/// ```
#[must_use = "a graph is run by an engine: `Engine::open(…)?.workflow(graph)`"]
pub struct Graph<S> {
    name: String,
    nodes: Vec<Draft>,
    groups: BTreeMap<String, Vec<String>>,
    last: Last,
    mistake: Option<Refusal>,
    of: PhantomData<fn() -> S>,
}

/// A step under construction.
struct Draft {
    name: String,
    after: Vec<String>,
    node: Node,
    code: NodeCode,
}

#[derive(Clone, Debug)]
enum Last {
    Nothing,
    Step,
    /// The first steps of a group, by their place.
    Group(Vec<usize>),
}

impl<S> std::fmt::Debug for Graph<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.nodes.iter().map(|draft| draft.name.as_str()).collect();
        f.debug_struct("Graph").field("name", &self.name).field("steps", &names).finish_non_exhaustive()
    }
}

/// A name or several names.
pub trait Names {
    /// Returns the names as texts.
    fn names(self) -> Vec<String>;
}

impl Names for &str {
    fn names(self) -> Vec<String> {
        vec![self.to_owned()]
    }
}

impl Names for String {
    fn names(self) -> Vec<String> {
        vec![self]
    }
}

impl<T: Into<String>, const N: usize> Names for [T; N] {
    fn names(self) -> Vec<String> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<T: Into<String>> Names for Vec<T> {
    fn names(self) -> Vec<String> {
        self.into_iter().map(Into::into).collect()
    }
}

impl<S: Serialize + DeserializeOwned + 'static> Graph<S> {
    /// A workflow of that name, without steps yet.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            nodes: Vec::new(),
            groups: BTreeMap::new(),
            last: Last::Nothing,
            mistake: None,
            of: PhantomData,
        }
    }

    /// Adds a step.
    pub fn step<F, Fut, O>(self, name: impl Into<String>, code: F) -> Self
    where
        F: Fn(StepCtx<S>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, Failure>> + Send + 'static,
        O: Serialize,
    {
        self.step_dyn(name, Some(step_handler(code)))
    }

    /// Adds a step whose code is on other workers: it is dispatched as a task.
    pub fn remote_step(self, name: impl Into<String>) -> Self {
        self.step_dyn(name, None)
    }

    /// Adds a step by its handler: for other languages.
    pub fn step_dyn(mut self, name: impl Into<String>, handler: Option<Arc<dyn StepHandler>>) -> Self {
        let name = name.into();
        // Names are checked when all is known; until then any path will do.
        let place = Path::new("x").expect("a plain name");
        let code = NodeCode { run: handler, ..NodeCode::default() };
        if let Err(refusal) = Name::new(&name) {
            self.mistake.get_or_insert(refusal);
        }
        self.nodes.push(Draft { name, after: Vec::new(), node: Node::step(place), code });
        self.last = Last::Step;
        self
    }

    /// Adds a wait for a signal, as a separate step whose result is the signal's payload.
    ///
    /// The run parks until a signal arrives; a buffered signal is consumed at once. [`Graph::on_receive`] merges the
    /// payload into the run's data; [`Graph::timeout`] sets the timeout.
    ///
    /// ```
    /// use std::time::Duration;
    /// use serde::{Deserialize, Serialize};
    /// use wigwag::{Failure, Graph, StepCtx};
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Order { item: String, #[serde(default)] approved_by: Option<String> }
    /// #[derive(Deserialize)]
    /// struct Approval { by: String }
    ///
    /// async fn ship(ctx: StepCtx<Order>) -> Result<String, Failure> {
    ///     Ok(format!("{:?} said yes", ctx.data()?.approved_by))
    /// }
    ///
    /// let order = Graph::<Order>::new("order")
    ///     .signal("approval")
    ///     .timeout(Duration::from_secs(2 * 24 * 3_600))
    ///     .on_receive(|order, approval: Approval| { order.approved_by = Some(approval.by); Ok(()) })
    ///     .on_timeout(|order| { order.approved_by = Some("nobody".into()); Ok(()) })
    ///     .step("ship", ship).after("approval");
    /// # let _ = order;
    /// ```
    pub fn signal(self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.signal_at(name.clone(), name)
    }

    /// Like [`Graph::signal`], with a separate step name, because several steps wait for the same signal.
    pub fn signal_at(mut self, step: impl Into<String>, signal: impl AsRef<str>) -> Self {
        self = self.step_dyn(step, None);
        match Name::new(signal) {
            Ok(signal) => {
                if let Some(draft) = self.nodes.last_mut() {
                    draft.node = Node::signal(draft.node.name.clone(), SignalSpec::new(signal));
                }
            }
            Err(refusal) => _ = self.mistake.get_or_insert(refusal),
        }
        self
    }

    /// Merges a signal's payload into the run's data.
    ///
    /// Only the worker that owns the run calls it, and a replay uses the recorded change. If that worker dies before the
    /// change is recorded, the next owner calls it again: it should have no effect besides the change of the data.
    ///
    /// If it fails, the signal stays in the inbox. It is retried according to [`Graph::retry`], then the run fails.
    pub fn on_receive<T>(self, code: impl Fn(&mut S, T) -> Result<(), Failure> + Send + Sync + 'static) -> Self
    where
        T: DeserializeOwned,
    {
        self.on_receive_dyn(move |data, signal| {
            let changed = signal.read::<T>().map_err(permanent);
            let changed = changed.and_then(|signal| changed_by(&data, |data| code(data, signal)));
            std::future::ready(changed).boxed()
        })
    }

    /// Like [`Graph::on_receive`], for JSON: for other languages. Returns all of the run's data, if it changed.
    pub fn on_receive_dyn(
        self,
        code: impl Fn(Payload, Payload) -> BoxFuture<'static, Result<Option<Map<String, Value>>, Failure>>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.with_last_signal("on_receive", |_, draft| draft.code.on_receive = Some(Arc::new(code)))
    }

    /// Changes the run's data after the wait timed out; the run then continues.
    ///
    /// Without it, the step fails with `SignalTimeout`.
    pub fn on_timeout(self, code: impl Fn(&mut S) -> Result<(), Failure> + Send + Sync + 'static) -> Self {
        self.on_timeout_dyn(move |data| std::future::ready(changed_by(&data, |data| code(data))).boxed())
    }

    /// Like [`Graph::on_timeout`], for JSON: for other languages.
    pub fn on_timeout_dyn(
        self,
        code: impl Fn(Payload) -> BoxFuture<'static, Result<Option<Map<String, Value>>, Failure>> + Send + Sync + 'static,
    ) -> Self {
        self.with_last_signal("on_timeout", |_, draft| draft.code.on_timeout = Some(Arc::new(code)))
    }

    /// One line for the person who answers, made from the run's data when the wait opens.
    ///
    /// Inboxes show it instead of the run's id. Texts over 200 bytes are cut. It is recorded, so that it stays as it was shown.
    ///
    /// ```
    /// # use serde::{Deserialize, Serialize};
    /// # use wigwag::Graph;
    /// #[derive(Serialize, Deserialize)]
    /// struct Order { item: String, cents: u64 }
    ///
    /// let order = Graph::<Order>::new("order")
    ///     .signal("approval")
    ///     .about(|order| format!("{} for {} €", order.item, order.cents / 100));
    /// # let _ = order;
    /// ```
    pub fn about(self, text: impl Fn(&S) -> String + Send + Sync + 'static) -> Self {
        self.about_dyn(move |data| data.read::<S>().ok().map(|data| text(&data)))
    }

    /// Like [`Graph::about`], for JSON: for other languages.
    pub fn about_dyn(self, text: impl Fn(Payload) -> Option<String> + Send + Sync + 'static) -> Self {
        self.with_last_signal("about", |_, draft| draft.code.about = Some(Arc::new(text)))
    }

    /// Consumes the newest signal instead of the oldest; older ones are superseded.
    pub fn latest(self) -> Self {
        self.with_last_signal("latest", |signal, _| signal.mode = Mode::Latest)
    }

    /// Waits for one signal each of this many different senders; the payload is then an array. Signals without a
    /// sender never count.
    pub fn quorum(mut self, senders: u32) -> Self {
        match crate::waiting::check_quorum(senders) {
            Ok(()) => self.with_last_signal("quorum", |signal, _| signal.quorum = senders),
            Err(refusal) => {
                self.mistake.get_or_insert(refusal);
                self
            }
        }
    }

    /// Takes signals of authenticated senders only; see [`crate::Wait::authenticated`].
    pub fn authenticated(self) -> Self {
        self.with_last_signal("authenticated", |signal, _| signal.authenticated = true)
    }

    /// JSON Schema of the payload. Other payloads are rejected.
    pub fn schema(mut self, schema: Value) -> Self {
        match crate::schema::checked(schema) {
            Ok(schema) => self.with_last_signal("schema", |signal, _| signal.schema = Some(schema)),
            Err(refusal) => {
                self.mistake.get_or_insert(refusal);
                self
            }
        }
    }

    /// Like [`Graph::schema`], derived from a type.
    pub fn schema_of<T: schemars::JsonSchema>(self) -> Self {
        self.schema(crate::schema::of_type::<T>())
    }

    /// Adds a named sequence: each step in it depends on the previous one, and is recorded as `group/step`.
    pub fn group(mut self, name: impl Into<String>, steps: impl FnOnce(Self) -> Self) -> Self {
        let name = name.into();
        let inner = steps(Self::new(&self.name));
        if let Err(refusal) = Name::new(&name) {
            self.mistake.get_or_insert(refusal);
        }
        if let Some(mistake) = inner.mistake {
            self.mistake.get_or_insert(mistake);
        }
        let below = |own: &str| format!("{name}/{own}");
        let own: Vec<String> = inner.nodes.iter().map(|draft| draft.name.clone()).collect();
        let is_own = |wanted: &String| own.contains(wanted) || inner.groups.contains_key(wanted);
        let offset = self.nodes.len();
        let mut firsts = Vec::new();
        let mut before: Option<String> = None;
        for mut draft in inner.nodes {
            if draft.after.is_empty() {
                match &before {
                    Some(before) => draft.after.push(before.clone()),
                    None => firsts.push(self.nodes.len() - offset),
                }
            }
            before = Some(draft.name.clone());
            draft.after =
                draft.after.iter().map(|wanted| if is_own(wanted) { below(wanted) } else { wanted.clone() }).collect();
            draft.name = below(&draft.name);
            self.nodes.push(draft);
        }
        for (group, ends) in inner.groups {
            self.groups.insert(below(&group), ends.iter().map(|end| below(end)).collect());
        }
        self.groups.insert(name.clone(), before.iter().map(|last| below(last)).collect());
        self.last = Last::Group(firsts.into_iter().map(|place| place + offset).collect());
        self
    }

    /// Steps or groups that must end before this one starts.
    pub fn after(mut self, names: impl Names) -> Self {
        let names = names.names();
        match self.last.clone() {
            Last::Nothing => self.mistake("after"),
            Last::Step => self.with_last("after", |draft| draft.after.extend(names)),
            Last::Group(firsts) => {
                for place in firsts {
                    self.nodes[place].after.extend(names.clone());
                }
                self
            }
        }
    }

    /// Runs the step only if this condition on the run's data holds; otherwise the step is skipped. Checked once, when
    /// the step becomes ready.
    pub fn when(self, condition: impl Fn(&S) -> bool + Send + Sync + 'static) -> Self {
        self.when_dyn(move |data| {
            let holds = data.read::<S>().map(|data| condition(&data)).map_err(Into::into);
            std::future::ready(holds).boxed()
        })
    }

    /// Like [`Graph::when`], for JSON: for other languages.
    pub fn when_dyn(
        self,
        when: impl Fn(Payload) -> BoxFuture<'static, Result<bool, Failure>> + Send + Sync + 'static,
    ) -> Self {
        self.with_last("when", |draft| draft.code.when = Some(Arc::new(when)))
    }

    /// Delay after the dependencies ended.
    pub fn delay(self, delay: Duration) -> Self {
        self.with_last("delay", |draft| draft.node.delay = Some(delay.min(limits::SPAN_MAX)))
    }

    /// Retry policy; 3 retries by default.
    pub fn retry(self, retry: Retry) -> Self {
        self.with_last("retry", |draft| draft.node.retry = retry)
    }

    /// Timeout of one attempt of a step; 10 minutes by default. The attempt is then stopped and retried.
    ///
    /// For a wait for a signal: its timeout; none by default.
    pub fn timeout(self, timeout: Duration) -> Self {
        let timeout = timeout.min(limits::SPAN_MAX);
        self.with_last("timeout", |draft| match &mut draft.node.signal {
            Some(signal) => signal.timeout = Some(timeout),
            None => draft.node.timeout = timeout,
        })
    }

    /// Sets the compensation, which runs if the run fails or is cancelled later.
    ///
    /// The code receives the step's result, or `None` if the step itself failed and its effect is unknown.
    pub fn compensate<F, Fut, R>(self, code: F) -> Self
    where
        F: Fn(StepCtx<S>, Option<R>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Failure>> + Send + 'static,
        R: DeserializeOwned,
    {
        self.compensate_dyn(undo_handler(code))
    }

    /// Like [`Graph::compensate`], with a handler: for other languages.
    pub fn compensate_dyn(self, handler: Arc<dyn UndoHandler>) -> Self {
        self.with_last("compensate", |draft| {
            draft.node.compensate = true;
            draft.code.undo = Some(handler);
        })
    }

    /// Dispatches the step as a task to workers that serve this queue.
    pub fn queue(mut self, queue: impl AsRef<str>) -> Self {
        match Name::new(queue) {
            Ok(queue) => self.with_last("queue", |draft| draft.node.queue = Some(queue)),
            Err(refusal) => {
                self.mistake.get_or_insert(refusal);
                self
            }
        }
    }

    /// Effect of the step's failure on the run, once no retry is left.
    pub fn on_failure(self, then: OnFailure) -> Self {
        self.with_last("on_failure", |draft| draft.node.on_failure = then)
    }

    fn with_last_signal(mut self, what: &str, change: impl FnOnce(&mut SignalSpec, &mut Draft)) -> Self {
        match (&self.last, self.nodes.last_mut()) {
            (Last::Step, Some(draft)) if draft.node.signal.is_some() => {
                let mut signal = draft.node.signal.take().expect("it was just seen");
                change(&mut signal, draft);
                draft.node.signal = Some(signal);
                self
            }
            _ => {
                let message = format!("`{what}` of workflow `{}` must follow a signal", self.name);
                self.mistake.get_or_insert(Refusal::new(message));
                self
            }
        }
    }

    fn with_last(mut self, what: &str, change: impl FnOnce(&mut Draft)) -> Self {
        match (&self.last, self.nodes.last_mut()) {
            (Last::Step, Some(draft)) => {
                change(draft);
                self
            }
            _ => self.mistake(what),
        }
    }

    fn mistake(mut self, what: &str) -> Self {
        let message = format!("`{what}` of workflow `{}` must follow a step", self.name);
        self.mistake.get_or_insert(Refusal::new(message));
        self
    }

    pub(crate) fn build(self) -> Result<Workflow> {
        if let Some(mistake) = self.mistake {
            return Err(mistake.into());
        }
        let of = TypeName::from(Name::new(&self.name)?);
        let mut nodes = Vec::new();
        let mut codes = BTreeMap::new();
        for draft in self.nodes {
            let name = Path::new(&draft.name)?;
            let mut after = Vec::new();
            for wanted in draft.after {
                match self.groups.get(&wanted) {
                    Some(ends) => after.extend(ends.iter().map(Path::new).collect::<Result<Vec<_>, _>>()?),
                    None => after.push(Path::new(&wanted)?),
                }
            }
            let is_signal = draft.node.signal.is_some();
            if is_signal && (draft.node.compensate || draft.node.queue.is_some()) {
                let message = format!("`{name}` of workflow `{of}` is a signal: it has no queue and no compensation");
                return Err(Refusal::new(message).into());
            }
            codes.insert(name.clone(), draft.code);
            let mut node = draft.node;
            (node.name, node.after) = (name, after);
            nodes.push(node);
        }
        Ok(Workflow { definition: Definition::graph(of, nodes)?, code: Code::Steps(codes) })
    }
}

/// Lets typed code change a run's data.
fn changed_by<S: Serialize + DeserializeOwned>(
    data: &Payload,
    change: impl FnOnce(&mut S) -> Result<(), Failure>,
) -> Result<Option<Map<String, Value>>, Failure> {
    let mut typed: S = data.read().map_err(permanent)?;
    change(&mut typed)?;
    match serde_json::to_value(&typed)? {
        Value::Object(map) => Ok(Some(map)),
        _ => Ok(None),
    }
}
