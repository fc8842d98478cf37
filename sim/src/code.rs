//! The code of a world's workers, before and after a deployment.

use std::time::Duration;

use serde_json::{Value, json};
use wigwag::{Builder, Ctx, Failure, Graph, StepCtx, permanent};

use crate::graphs::{Shape, graph};
use crate::ledger::Ledger;
use crate::program::{self, Act, NAMES, takes};

/// Workflow names of the random graphs of a world.
pub const GRAPHS: [&str; 2] = ["graph-0", "graph-1"];

/// Name of a graph whose code changes.
pub const EVOLVING: &str = "evolving";

/// Name of a graph whose signal schema changes.
pub const FORM: &str = "form";

/// Name of a function whose new code matches runs of the old code.
pub const PATCHED: &str = "patched";

/// Name of a function whose new code has other steps.
pub const REWRITTEN: &str = "rewritten";

/// Version of a worker's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The code before the deployment.
    Old,
    /// The code after the deployment.
    New,
}

impl Code {
    /// The field that a signal to a [`FORM`] must have.
    #[must_use]
    pub const fn field(self) -> &'static str {
        match self {
            Self::Old => "old",
            Self::New => "new",
        }
    }
}

/// Configuration of a worker's code.
#[derive(Clone, Copy, Debug)]
pub struct Equipment {
    /// The seed of the world.
    pub seed: u64,
    /// Version of the code.
    pub code: Code,
    /// Whether graphs are wide.
    pub wide: bool,
    /// Whether it has the code of all steps, and runs tasks of all queues.
    pub has_all_code: bool,
}

/// Registers all code of a world with an engine.
pub fn equip(mut builder: Builder, ledger: &Ledger, equipment: Equipment) -> Builder {
    let Equipment { seed, code, wide, has_all_code } = equipment;
    for (place, name) in GRAPHS.into_iter().enumerate() {
        // Only one of the two graphs is wide.
        let shape = Shape { seed: seed.wrapping_mul(31) + place as u64, wide: wide && place == 0, has_all_code };
        builder = builder.workflow(graph(name, ledger, shape));
    }
    let noted = ledger.clone();
    let queues = if has_all_code { vec!["default", "side"] } else { vec!["default"] };
    let version = if code == Code::Old { 1 } else { 2 };
    builder
        .workflow(evolving(ledger, code))
        .workflow(form(code))
        .function("script", 1, move |ctx: Ctx, acts: Vec<Act>| program::run(ctx, noted.clone(), acts))
        .function(PATCHED, version, move |ctx: Ctx, count: u32| patched(ctx, code, count))
        .function(REWRITTEN, version, move |ctx: Ctx, count: u32| rewritten(ctx, code, count))
        .task("weigh", |ctx: StepCtx<(u32, usize)>| async move {
            let (number, bytes) = ctx.input()?;
            if number % 7 == 6 { Err(permanent("too heavy")) } else { Ok::<_, Failure>("x".repeat(bytes)) }
        })
        .queues(queues)
}

/// A graph whose wait is renamed by the deployment, which also adds a step.
fn evolving(ledger: &Ledger, code: Code) -> Graph<Value> {
    let step = |graph: Graph<Value>, name: &'static str| {
        let ledger = ledger.clone();
        graph.step(name, move |ctx: StepCtx<Value>| {
            let ledger = ledger.clone();
            async move {
                ledger.begin(ctx.workflow_id().as_str(), name);
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

/// A graph that waits for a signal with a schema, which the deployment changes: no payload matches both.
fn form(code: Code) -> Graph<Value> {
    let (wanted, other) = match code {
        Code::Old => (Code::Old.field(), Code::New.field()),
        Code::New => (Code::New.field(), Code::Old.field()),
    };
    let schema = json!({"type": "object", "required": [wanted], "not": {"required": [other]}});
    Graph::<Value>::new(FORM)
        .signal(NAMES[0])
        .schema(schema)
        .on_receive(|_: &mut Value, _: Value| Ok::<_, Failure>(()))
        .step("file", |_: StepCtx<Value>| async { Ok::<_, Failure>(json!("filed")) })
        .after(NAMES[0])
}

/// The new code calls `patched`, so that it matches the log of runs that started before the deployment.
async fn patched(ctx: Ctx, code: Code, count: u32) -> Result<Value, Failure> {
    for _ in 0..count {
        ctx.step("before", || async { Ok::<_, Failure>(()) }).await?;
        ctx.sleep("pause", Duration::from_secs(2)).await?;
    }
    if code == Code::New && ctx.patched("fix").await? {
        ctx.step("fix", || async { Ok::<_, Failure>(()) }).await?;
    }
    let signal = ctx.wait::<Value>(NAMES[0]).timeout(Duration::from_secs(10)).await?;
    ctx.step("after", || async { Ok::<_, Failure>(()) }).await?;
    Ok(json!(signal))
}

/// The new code does not reach the steps that the old code recorded.
async fn rewritten(ctx: Ctx, code: Code, count: u32) -> Result<Value, Failure> {
    let name = format!("{}-way-of-doing-what-is-done-here", code.field());
    for _ in 0..count {
        ctx.step(&name, || async { Ok::<_, Failure>(()) }).await?;
    }
    let signal = ctx.wait::<Value>(NAMES[0]).timeout(Duration::from_secs(30)).await?;
    Ok(json!(signal))
}
