//! W1: three trivial steps, compared with the raw store committing the batches of such a run.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::runtime::Runtime;
use wigwag::{Client, Ctx, Engine, Failure, Graph, StepCtx};
use wigwag_store::Embedded;

use super::load::{MANY, Pair, ROUNDS, Turns, WARM, bare_load, load};
use super::record::{Recorder, Script, new_id};
use crate::measure::{Load, RunFigures};

/// A run of three steps, and the raw store with the same number of clients.
#[derive(Debug, Serialize)]
pub(crate) struct Steps {
    pub(crate) commits_per_run: usize,
    pub(crate) puts_per_run: usize,
    pub(crate) deletes_per_run: usize,
    pub(crate) bytes_per_run: usize,
    pub(crate) one: Pair,
    pub(crate) many: Pair,
    /// The same three steps as a graph, for information.
    pub(crate) graph: RunFigures,
}

pub(crate) fn measure(folder: &Path, span: Duration, runtime: &Runtime) -> Result<Steps, Box<dyn std::error::Error>> {
    let script = Arc::new(runtime.block_on(record(&folder.join("recorded")))?);
    let (one, _) = pair(folder, span, runtime, 1, &script)?;
    let (many, graph) = pair(folder, span, runtime, MANY, &script)?;
    let (puts_per_run, deletes_per_run, bytes_per_run) = script.size(0..script.commits());
    Ok(Steps { commits_per_run: script.commits(), puts_per_run, deletes_per_run, bytes_per_run, one, many, graph })
}

/// Only the engine at 64 clients, for a profiler.
pub(crate) fn profile(folder: &Path, span: Duration, runtime: &Runtime) -> Result<RunFigures, wigwag::Error> {
    Ok(runtime.block_on(engine_load(&folder.join("engine"), "three", MANY, span))?.runs())
}

/// Alternates, so that a slow minute of the machine affects all. The graph is only measured with many clients.
fn pair(
    folder: &Path,
    span: Duration,
    runtime: &Runtime,
    clients: usize,
    script: &Arc<Script>,
) -> Result<(Pair, RunFigures), Box<dyn std::error::Error>> {
    let (mut turns, mut graph) = (Turns::default(), Load::default());
    for _ in 0..ROUNDS {
        let of_engine = runtime.block_on(engine_load(&folder.join("engine"), "three", clients, span))?;
        let of_bare = runtime.block_on(bare_load(&folder.join("bare"), clients, span, script))?;
        turns.add(of_engine, of_bare);
        if clients > 1 {
            graph.add(runtime.block_on(engine_load(&folder.join("graph"), "three-graph", clients, span))?);
        }
    }
    Ok((turns.pair(clients), graph.runs()))
}

pub(crate) async fn three(ctx: Ctx, input: u64) -> Result<u64, Failure> {
    let one = ctx.step("one", || async { Ok::<_, Failure>(input + 1) }).await?;
    let two = ctx.step("two", || async { Ok::<_, Failure>(one + 1) }).await?;
    ctx.step("three", || async { Ok::<_, Failure>(two + 1) }).await
}

fn three_graph() -> Graph<u64> {
    Graph::new("three-graph")
        .step("one", |ctx: StepCtx<u64>| async move { Ok::<_, Failure>(ctx.input()? + 1) })
        .step("two", |ctx: StepCtx<u64>| async move { Ok::<_, Failure>(ctx.output::<u64>("one").await? + 1) })
        .after("one")
        .step("three", |ctx: StepCtx<u64>| async move { Ok::<_, Failure>(ctx.output::<u64>("two").await? + 1) })
        .after("two")
}

pub(crate) async fn run_once(client: &Client, of: &str) {
    let run = client.start(of, &39_u64).await.expect("the benchmark's store takes a run");
    let result: u64 = run.result().await.expect("a run of three steps completes");
    assert_eq!(result, 42, "of `{of}`");
}

/// Executes one run on a recording store.
async fn record(path: &Path) -> Result<Script, Box<dyn std::error::Error>> {
    let store = Arc::new(Recorder::new(Embedded::open(path)?));
    let engine = Engine::builder(Arc::clone(&store) as _).function("three", 1, three).start().await?;
    // The id has the same length as its replacements.
    let run = engine.client().start("three", &39_u64).id(new_id().as_str()).await?;
    run.result::<u64>().await?;
    // After the stop, all writes of the run are recorded, including those after the answer.
    engine.stop().await;
    Script::new(&store.batches_of(run.id()), run.id())
}

/// Each round has a new engine, so that no engine idles while the raw store is measured.
async fn engine_load(path: &Path, of: &'static str, clients: usize, span: Duration) -> Result<Load, wigwag::Error> {
    let builder = Engine::open(&path.to_string_lossy())?;
    let engine = builder.function("three", 1, three).workflow(three_graph()).start().await?;
    let client = engine.client();
    let once = move || {
        let client = client.clone();
        async move { run_once(&client, of).await }
    };
    load(clients, WARM, once.clone()).await;
    let measured = load(clients, span, once).await;
    engine.stop().await;
    Ok(measured)
}
