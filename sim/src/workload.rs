//! What the simulated world does: programs of random shape, and a ledger of what their steps did.

use std::collections::BTreeMap;
use std::future::IntoFuture as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wigwag::{Builder, Ctx, Failure, Graph, Retry, StepCtx, permanent, retryable};
use wigwag_core::audit::{Breach, Promise};
use wigwag_core::{Event, read_entry};
use wigwag_store::{Memory, Store as _};

/// The names of signals that programs wait for.
pub const NAMES: [&str; 3] = ["a", "b", "c"];

/// One thing that a program does. Times are in milliseconds, names are places in [`NAMES`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields say what they are, and stand for nothing else")]
pub enum Act {
    /// A step that fails so often before it comes out well.
    Step { fails: u32, undo: bool },
    /// A sleep.
    Sleep(u64),
    /// A wait, perhaps with a timeout.
    Wait { name: usize, timeout: Option<u64>, latest: bool },
    /// The first of all names.
    Any { timeout: Option<u64> },
    /// All names, within a time.
    All { timeout: u64 },
    /// Two senders of one name.
    Quorum { name: usize, timeout: u64 },
    /// A race of a wait against a sleep, by `select!`.
    Race { name: usize, millis: u64 },
    /// A race of a wait against a step that takes so long.
    RaceStep { name: usize, millis: u64 },
    /// A wait beside a step that takes so long, both awaited.
    Beside { name: usize, timeout: u64, millis: u64 },
    /// A wait that is raced against a sleep, held while a step runs, and then let go.
    Held { name: usize, millis: u64 },
    /// So many steps whose results take room in the snapshot.
    Many(u32),
    /// Another program, as a child.
    Child(Vec<Self>),
    /// So many tasks.
    Tasks(u32),
    /// It fails for good.
    Fail,
}

/// Draws a program.
#[must_use]
pub fn program(chance: &mut fastrand::Rng, depth: u32) -> Vec<Act> {
    let count = chance.usize(1..8);
    (0..count).map(|_| act(chance, depth)).collect()
}

/// Draws a program that waits for the same name again and again, in all ways. It is hungrier than its senders are
/// busy, so that signals meet waits that are open and cursors that are near.
#[must_use]
pub fn busy_program(chance: &mut fastrand::Rng) -> Vec<Act> {
    let count = chance.usize(10..30);
    let act = |_| {
        let timeout = chance.u64(..8_000);
        match chance.u32(..16) {
            0 => Act::RaceStep { name: 0, millis: timeout / 4 },
            1 | 2 => Act::Beside { name: 0, timeout: timeout / 4, millis: timeout },
            3 => Act::Race { name: 0, millis: timeout },
            4 => Act::Wait { name: 0, timeout: Some(timeout), latest: false },
            5 => Act::Any { timeout: Some(timeout) },
            6 if chance.bool() => Act::Sleep(timeout / 4),
            6 | 7 => Act::Held { name: 0, millis: timeout / 2 },
            _ => Act::Wait { name: 0, timeout: None, latest: false },
        }
    };
    (0..count).map(act).collect()
}

fn act(chance: &mut fastrand::Rng, depth: u32) -> Act {
    let name = if chance.bool() { 0 } else { chance.usize(..NAMES.len()) };
    let timeout = chance.u64(..8_000);
    match chance.u32(..20) {
        0..=4 => Act::Step { fails: chance.u32(..3), undo: chance.bool() },
        5..=7 => Act::Sleep(chance.u64(..5_000)),
        8..=11 => Act::Wait { name, timeout: chance.bool().then_some(timeout), latest: chance.u32(..5) == 0 },
        12 | 13 => Act::Any { timeout: chance.bool().then_some(timeout) },
        14 => Act::All { timeout },
        15 => Act::Quorum { name: 0, timeout: timeout * 4 },
        16 if chance.bool() => Act::RaceStep { name: 0, millis: timeout / 4 },
        16 => Act::Race { name, millis: timeout },
        17 if chance.u32(..4) == 0 => Act::Many(chance.u32(10..50)),
        17 if depth == 0 => Act::Child(program(chance, depth + 1)),
        18 if chance.bool() => Act::Beside { name: 0, timeout: timeout / 4, millis: timeout },
        18 if chance.bool() => Act::Held { name: 0, millis: timeout / 2 },
        18 => Act::Tasks(chance.u32(1..4)),
        19 if chance.bool() => Act::Fail,
        _ => Act::Step { fails: 0, undo: true },
    }
}

/// What steps did, kept outside of the system.
#[derive(Clone, Debug)]
pub struct Ledger {
    memory: Memory,
    state: Arc<Mutex<Noted>>,
}

/// What was noted.
#[derive(Debug, Default)]
pub struct Noted {
    /// How often the code of each step began.
    pub begun: BTreeMap<String, u32>,
    /// How each undoing ended: the runs' steps in the order in which they were undone.
    pub undone: BTreeMap<String, Vec<String>>,
    /// What must not have happened.
    pub wrong: Vec<Breach>,
}

impl Ledger {
    /// An empty one, that looks into this store.
    #[must_use]
    pub fn new(memory: Memory) -> Self {
        Self { memory, state: Arc::default() }
    }

    /// What was noted.
    pub fn noted(&self) -> std::sync::MutexGuard<'_, Noted> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Code of a step begins. Its result must not be recorded by then.
    async fn begin(&self, run: &str, point: &str) {
        *self.noted().begun.entry(format!("{run}:{point}")).or_default() += 1;
        if self.is_recorded(run, point).await {
            let what = format!("the code of `{point}` in `{run}` began although its result is recorded");
            self.noted().wrong.push(Breach::new(Promise::RecordedStays, what));
        }
    }

    /// Whether the result of a step is in the log, and was not dropped by a restart since.
    async fn is_recorded(&self, run: &str, point: &str) -> bool {
        let mut recorded = false;
        for seq in 1_u64.. {
            let key = format!("workflow/{run}/log/{seq:010}.json");
            let Ok(Some(object)) = self.memory.get(&key).await else { return recorded };
            let Ok(Ok(entry)) = read_entry(&object.body) else { return recorded };
            for event in entry.events {
                match event {
                    Event::StepCompleted(event) if event.point.as_str() == point => recorded = true,
                    Event::RunRestarted(event) if event.refused.is_none() => {
                        let kept = event.from.is_some() && !event.dropped.iter().any(|path| path.as_str() == point);
                        recorded &= kept;
                    }
                    _ => {}
                }
            }
        }
        recorded
    }
}

/// Runs a program.
async fn run(ctx: Ctx, ledger: Ledger, acts: Vec<Act>) -> Result<Value, Failure> {
    let id = ctx.workflow_id().to_string();
    let mut said = Vec::new();
    for (place, act) in acts.into_iter().enumerate() {
        said.push(perform(&ctx, &ledger, &id, place, act).await?);
    }
    Ok(json!(said))
}

async fn perform(ctx: &Ctx, ledger: &Ledger, id: &str, place: usize, act: Act) -> Result<Value, Failure> {
    let span = Duration::from_millis;
    Ok(match act {
        Act::Step { fails, undo } => step(ctx, ledger, id, place, fails, undo).await?,
        Act::Sleep(millis) => json!(ctx.sleep("sleep", span(millis)).await?),
        Act::Wait { name, timeout, latest } => {
            let wait = ctx.wait::<Value>(NAMES[name]);
            let wait = if latest { wait.latest() } else { wait };
            match timeout {
                Some(millis) => json!(wait.timeout(span(millis)).await?),
                None => json!(wait.await?),
            }
        }
        Act::Any { timeout: Some(millis) } => json!(ctx.wait_any::<Value, _>(NAMES).timeout(span(millis)).await?),
        Act::Any { timeout: None } => json!(ctx.wait_any::<Value, _>(NAMES).await?),
        Act::All { timeout } => json!(ctx.wait_all::<Value, _>(NAMES).timeout(span(timeout)).await?),
        Act::Quorum { name, timeout } => {
            json!(ctx.wait::<Value>(NAMES[name]).quorum(2).timeout(span(timeout)).await?)
        }
        Act::Race { .. } | Act::RaceStep { .. } | Act::Beside { .. } | Act::Held { .. } => race(ctx, act).await?,
        Act::Many(count) => {
            for number in 0..count {
                let text = number.to_string().repeat(1_500);
                ctx.step("many", || async { Ok::<_, Failure>(text.clone()) }).await?;
            }
            json!(count)
        }
        Act::Child(acts) => ctx.child::<Value, _>("child", "script", &acts).await?,
        Act::Tasks(count) => json!(ctx.fan_out("tasks", "double", 0..count).await?.completed()),
        Act::Fail => return Err(permanent("it was to fail")),
    })
}

/// A wait beside something else.
async fn race(ctx: &Ctx, act: Act) -> Result<Value, Failure> {
    let span = Duration::from_millis;
    Ok(match act {
        Act::Race { name, millis } => {
            let (wait, sleep) = (ctx.wait::<Value>(NAMES[name]).into_future(), ctx.sleep("race", span(millis)));
            tokio::select! {
                biased;
                slept = sleep => json!({"slept": slept?}),
                heard = wait => json!(heard?),
            }
        }
        Act::RaceStep { name, millis } => {
            let wait = ctx.wait::<Value>(NAMES[name]).into_future();
            let step = ctx.step("race-step", || async {
                takes(span(millis)).await;
                Ok::<_, Failure>(())
            });
            tokio::select! {
                biased;
                done = step.into_future() => json!({"done": done?}),
                heard = wait => json!(heard?),
            }
        }
        Act::Beside { name, timeout, millis } => {
            let wait = ctx.wait::<Value>(NAMES[name]).timeout(span(timeout)).into_future();
            let step = ctx.step("beside", || async {
                takes(span(millis)).await;
                Ok::<_, Failure>(())
            });
            let (heard, done) = futures_util::future::join(wait, step.into_future()).await;
            done?;
            json!(heard?)
        }
        Act::Held { name, millis } => {
            let mut wait = ctx.wait::<Value>(NAMES[name]).into_future();
            let heard = tokio::select! {
                biased;
                slept = ctx.sleep("held", span(millis / 4)) => {
                    slept?;
                    None
                }
                heard = &mut wait => Some(heard?),
            };
            if heard.is_none() {
                let step = ctx.step("holding", || async {
                    takes(span(millis)).await;
                    Ok::<_, Failure>(())
                });
                step.await?;
            }
            drop(wait);
            json!(heard)
        }
        _ => Value::Null,
    })
}

/// A step's work takes time, in which anything may happen.
#[expect(clippy::disallowed_methods, reason = "it is the simulated time that passes")]
async fn takes(span: Duration) {
    tokio::time::sleep(span).await;
}

async fn step(ctx: &Ctx, ledger: &Ledger, id: &str, place: usize, fails: u32, undo: bool) -> Result<Value, Failure> {
    let name = format!("step-{place}");
    let step = ctx
        .step_with(&name, |info| {
            let (ledger, name) = (ledger, &name);
            async move {
                ledger.begin(id, name).await;
                takes(Duration::from_millis(place as u64 * 70)).await;
                match info.attempt() <= fails {
                    true => Err(retryable("not yet")),
                    false => Ok(json!(place)),
                }
            }
        })
        .retry(Retry::times(4).first(Duration::from_millis(200)));
    if !undo {
        return step.await;
    }
    let (ledger, run, point) = (ledger.clone(), id.to_owned(), name.clone());
    step.compensate(move |_: Option<Value>| {
        let (ledger, run, point) = (ledger.clone(), run.clone(), point.clone());
        async move {
            ledger.noted().undone.entry(run).or_default().push(point);
            Ok::<_, Failure>(())
        }
    })
    .await
}

/// A graph with a signal in it, drawn from the seed: the same for all workers of a world.
fn graph(name: &str, ledger: &Ledger, seed: u64) -> Graph<Value> {
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut graph = Graph::<Value>::new(name);
    let count = chance.usize(2..6);
    for place in 0..count {
        let after: Vec<String> =
            (0..place).filter(|_| chance.u32(..3) == 0).map(|before| format!("n{before}")).collect();
        let name = format!("n{place}");
        graph = if chance.u32(..3) == 0 {
            let graph = graph.signal_at(&name, NAMES[chance.usize(..NAMES.len())]);
            let graph = graph.on_receive(|_: &mut Value, _: Value| Ok::<_, Failure>(()));
            match chance.u32(..3) {
                0 => graph,
                1 => graph.timeout(Duration::from_millis(chance.u64(..9_000))).on_timeout(|_| Ok::<_, Failure>(())),
                _ => graph.timeout(Duration::from_millis(chance.u64(..9_000))),
            }
        } else {
            let (noted, point, fails) = (ledger.clone(), name.clone(), chance.u32(..3));
            let graph = graph.step(&name, move |ctx: StepCtx<Value>| {
                let (ledger, point) = (noted.clone(), point.clone());
                async move {
                    ledger.begin(ctx.workflow_id().as_str(), &point).await;
                    match ctx.attempt() <= fails {
                        true => Err(retryable("not yet")),
                        false => Ok(json!(point)),
                    }
                }
            });
            let graph = graph.retry(Retry::times(4).first(Duration::from_millis(200)));
            let graph =
                if chance.u32(..4) == 0 { graph.delay(Duration::from_millis(chance.u64(..3_000))) } else { graph };
            let (ledger, point) = (ledger.clone(), name.clone());
            graph.compensate(move |ctx: StepCtx<Value>, _: Option<Value>| {
                let (ledger, point, run) = (ledger.clone(), point.clone(), ctx.workflow_id().to_string());
                async move {
                    ledger.noted().undone.entry(run).or_default().push(point);
                    Ok::<_, Failure>(())
                }
            })
        };
        if !after.is_empty() {
            graph = graph.after(after);
        }
    }
    graph
}

/// The types of graphs that a world has.
pub const GRAPHS: [&str; 2] = ["graph-0", "graph-1"];

/// The type of a graph whose code changes.
pub const EVOLVING: &str = "evolving";

/// Which code a worker has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// That of the beginning.
    Old,
    /// In which a wait of [`EVOLVING`] has another name, and a step is added.
    New,
}

fn evolving(ledger: &Ledger, code: Code) -> Graph<Value> {
    let step = |graph: Graph<Value>, name: &'static str| {
        let ledger = ledger.clone();
        graph.step(name, move |ctx: StepCtx<Value>| {
            let ledger = ledger.clone();
            async move {
                ledger.begin(ctx.workflow_id().as_str(), name).await;
                takes(Duration::from_secs(1)).await;
                Ok::<_, Failure>(json!(name))
            }
        })
    };
    let wait = if code == Code::Old { "e1" } else { "f1" };
    let graph = step(Graph::<Value>::new(EVOLVING), "e0");
    let graph = graph.signal_at(wait, NAMES[0]).on_receive(|_: &mut Value, _: Value| Ok::<_, Failure>(()));
    let graph = graph.timeout(Duration::from_secs(40)).on_timeout(|_| Ok::<_, Failure>(())).after(["e0"]);
    let graph = step(graph, "e2").delay(Duration::from_secs(2)).after([wait]);
    if code == Code::Old { graph } else { step(graph, "e3").after(["e2"]) }
}

/// Gives an engine all code of a world.
pub fn equip(mut builder: Builder, ledger: &Ledger, seed: u64, code: Code) -> Builder {
    for (place, name) in GRAPHS.into_iter().enumerate() {
        builder = builder.workflow(graph(name, ledger, seed.wrapping_mul(31) + place as u64));
    }
    let noted = ledger.clone();
    builder
        .workflow(evolving(ledger, code))
        .function("script", 1, move |ctx: Ctx, acts: Vec<Act>| run(ctx, noted.clone(), acts))
        .task("double", |ctx: StepCtx<u32>| async move { Ok::<_, Failure>(ctx.input()? * 2) })
}
