//! Graphs of random shape, drawn from the seed: the same for all workers of a world.

use std::time::Duration;

use serde_json::{Value, json};
use wigwag::{Failure, Graph, OnFailure, Retry, StepCtx, permanent, retryable};
use wigwag_core::limits;

use crate::ledger::Ledger;
use crate::program::{NAMES, Undo, schema, takes};

/// Parameters that determine the shape of a graph.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Source of every random decision.
    pub seed: u64,
    /// Whether it has up to forty nodes instead of a few.
    pub wide: bool,
    /// Whether this worker has the code of all steps; others dispatch some.
    pub has_all_code: bool,
}

/// How the nodes of a graph depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pattern {
    /// Each node depends on some of the earlier ones.
    Mixed,
    /// No node depends on another.
    Flat,
    /// Every second node depends on the previous one, which is a signal.
    Pairs,
}

/// Options of the waits for one name: all waits of one name in a graph must agree.
#[derive(Clone, Copy, Debug)]
struct Manner {
    latest: bool,
    schema: bool,
}

/// A graph with steps and signals.
pub fn graph(name: &str, ledger: &Ledger, shape: Shape) -> Graph<Value> {
    let mut chance = fastrand::Rng::with_seed(shape.seed);
    let (count, pattern) = match shape.wide {
        true => {
            let patterns = [Pattern::Mixed, Pattern::Flat, Pattern::Pairs, Pattern::Pairs];
            (chance.usize(6..41), patterns[chance.usize(..patterns.len())])
        }
        false => (chance.usize(1..6), Pattern::Mixed),
    };
    let manners = NAMES.map(|_| Manner { latest: chance.u32(..8) == 0, schema: chance.u32(..6) == 0 });
    let (skips, signals) = (chance.u32(2..12), chance.u32(2..5));
    let mut graph = Graph::<Value>::new(name);
    let mut place = 0;
    while place < count {
        let node = format!("n{place}");
        let after: Vec<String> = match pattern {
            Pattern::Mixed => {
                (0..place).filter(|_| chance.u32(..3) == 0).take(3).map(|one| format!("n{one}")).collect()
            }
            Pattern::Flat => Vec::new(),
            Pattern::Pairs => (place % 2 == 1).then(|| format!("n{}", place - 1)).into_iter().collect(),
        };
        let is_signal = match pattern {
            Pattern::Pairs => place.is_multiple_of(2),
            _ => chance.u32(..signals) == 0,
        };
        let is_skipped = match pattern {
            Pattern::Pairs => chance.u32(..4) > 0 && place % 2 == 1,
            _ => chance.u32(..skips) == 0,
        };
        let is_group = !is_signal && !is_skipped && chance.u32(..12) == 0;
        graph = if is_signal {
            signal(graph, ledger, &mut chance, &node, manners, shape.wide)
        } else if is_group {
            let seed = chance.u64(..);
            let inner = |graph: Graph<Value>| {
                let mut chance = fastrand::Rng::with_seed(seed);
                let graph = step(graph, ledger, &mut chance, "x", &format!("{node}/x"), shape);
                step(graph, ledger, &mut chance, "y", &format!("{node}/y"), shape)
            };
            graph.group(&node, inner)
        } else {
            step(graph, ledger, &mut chance, &node, &node, shape)
        };
        if is_skipped && !is_group {
            let wanted = chance.usize(..count);
            // Most branches are never entered; some only if an earlier step changed the data.
            let never = chance.u32(..4) > 0;
            graph = graph.when(move |data: &Value| !never && data.get(format!("n{wanted}")).is_some());
        }
        if !after.is_empty() {
            graph = graph.after(after);
        }
        place += 1;
    }
    graph
}

fn signal(
    graph: Graph<Value>,
    ledger: &Ledger,
    chance: &mut fastrand::Rng,
    node: &str,
    manners: [Manner; 3],
    wide: bool,
) -> Graph<Value> {
    let name = if chance.bool() { 0 } else { chance.usize(..NAMES.len()) };
    let Manner { latest, schema: with } = manners[name];
    let mut graph = graph.signal_at(node, NAMES[name]);
    let (ledger, step, fails) = (ledger.clone(), node.to_owned(), chance.u32(..20));
    graph = graph.on_receive(move |data: &mut Value, payload: Value| {
        let calls = ledger.receive(data, &step, &payload);
        match fails {
            0 => return Err(permanent("it is not wanted")),
            1 | 2 if calls <= fails => return Err(retryable("not now")),
            3..9 => data[&step] = json!(1),
            _ => {}
        }
        Ok::<_, Failure>(())
    });
    graph = graph.retry(Retry::times(3).first(Duration::from_millis(300)));
    if latest {
        graph = graph.latest();
    }
    if with {
        graph = graph.schema(schema());
    }
    let senders = chance.u32(2..6);
    if !latest && chance.u32(..if wide { 4 } else { 8 }) == 0 && senders <= limits::current().quorum_max {
        graph = graph.quorum(senders);
    }
    let (millis, step) = (chance.u64(..9_000), node.to_owned());
    let timeout = Duration::from_millis(if wide { millis * 4 } else { millis });
    match chance.u32(..6) {
        0 | 1 => graph,
        2 => graph.timeout(timeout).on_timeout(|_| Ok::<_, Failure>(())),
        3 => graph.timeout(timeout).on_timeout(move |data: &mut Value| {
            data[&step] = json!(0);
            Ok::<_, Failure>(())
        }),
        4 if chance.u32(..4) == 0 => graph.timeout(timeout).on_timeout(|_| Err(permanent("too late"))),
        _ => graph.timeout(timeout),
    }
}

/// Behaviour of a graph's step.
#[derive(Clone, Copy, Debug)]
struct Doing {
    fails: u32,
    for_good: bool,
    bytes: usize,
    changes: bool,
    /// How long its first attempt takes.
    millis: u64,
    /// Whether it runs as a task.
    dispatched: bool,
}

fn step(
    graph: Graph<Value>,
    ledger: &Ledger,
    chance: &mut fastrand::Rng,
    name: &str,
    path: &str,
    shape: Shape,
) -> Graph<Value> {
    let elsewhere = chance.u32(..12);
    let doing = Doing {
        fails: chance.u32(..3),
        for_good: chance.u32(..40) == 0,
        bytes: if chance.u32(..8) == 0 { chance.usize(..400) } else { 2 },
        changes: chance.u32(..4) == 0,
        millis: if chance.u32(..10) == 0 { chance.u64(..4_000) } else { 0 },
        dispatched: elsewhere < 2,
    };
    let (noted, step) = (ledger.clone(), path.to_owned());
    let code = move |ctx: StepCtx<Value>| run(ctx, noted.clone(), step.clone(), doing);
    let mut graph = match elsewhere {
        // The worker with the code of all steps runs the tasks.
        0 if !shape.has_all_code => graph.remote_step(name),
        1 => graph.step(name, code).queue("side"),
        _ => graph.step(name, code),
    };
    graph = graph.retry(Retry::times(4).first(Duration::from_millis(200)));
    graph = match chance.u32(..20) {
        0 => graph.on_failure(OnFailure::Pause),
        1 => graph.on_failure(OnFailure::Continue),
        _ => graph,
    };
    let timeout = chance.u64(500..3_000);
    if doing.millis > 0 {
        graph = graph.timeout(Duration::from_millis(timeout));
    }
    if chance.u32(..4) == 0 {
        graph = graph.delay(Duration::from_millis(chance.u64(..3_000)));
    }
    let undo = Undo::draw(chance);
    if undo == Undo::Not || doing.dispatched {
        return graph;
    }
    let (ledger, step) = (ledger.clone(), path.to_owned());
    graph.compensate(move |ctx: StepCtx<Value>, _: Option<Value>| {
        let attempt = ledger.undo(ctx.workflow_id().as_str(), &step);
        undo.run(attempt)
    })
}

async fn run(ctx: StepCtx<Value>, ledger: Ledger, step: String, doing: Doing) -> Result<Value, Failure> {
    let run = ctx.workflow_id().to_string();
    match doing.dispatched {
        true => ledger.begin_elsewhere(&run, &step),
        false => ledger.begin(&run, &step),
    }
    if ctx.attempt() == 1 {
        takes(Duration::from_millis(doing.millis)).await;
    }
    if doing.for_good {
        return Err(permanent("x".repeat(doing.bytes)));
    }
    if ctx.attempt() <= doing.fails {
        return Err(retryable("not yet"));
    }
    if doing.changes {
        ctx.change_data(|data| _ = data.insert(step.replace('/', "-"), json!(1)));
    }
    Ok(json!("x".repeat(doing.bytes)))
}
