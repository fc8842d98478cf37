//! Names and values that user code passes to the engine: each is rejected with a message, or can be read back later.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::time::Duration;

use serde_json::{Value, json as value};
use wigwag::testing::Kit;
use wigwag::{Builder, Ctx, ErrorKind, Failure, Graph, Payload, Result, RunHandle, StepCtx};
use wigwag_fuzz::{Choices, fuzz, json, text, without_panics};

/// The behaviour of one input's code.
#[derive(Clone, Debug)]
struct Plan {
    names: Vec<String>,
    payload: Value,
    raw: Payload,
}

impl Plan {
    fn choose(choices: &mut Choices<'_>) -> Self {
        let long = ["n".repeat(63), "m".repeat(64)];
        let known = ["a", "pay", long[0].as_str(), long[1].as_str()];
        let name = |choices: &mut Choices<'_>| {
            if choices.once_in(4) { text(choices, &known) } else { (*choices.pick(&known)).to_owned() }
        };
        let mut names: Vec<String> = (0..=choices.below(9)).map(|_| name(choices)).collect();
        if choices.once_in(6) {
            // Close to the maximum length of a path.
            names = vec![long[0].clone(); 8];
            names[0].truncate(63 - choices.below(40));
        }
        let seed = value!({"item": "tea", "list": [1, {"deep": [null]}], "grams": 1.5});
        let text = json(choices, seed, &[b"{\"a\":{\"b\":[1]}}".to_vec()]);
        let payload = serde_json::from_slice(&text).unwrap_or(value!({"refused": true}));
        let wrapped = (0..choices.below(130)).fold(payload, |inner, _| value!({ "in": inner }));
        let raw = Payload::parse(String::from_utf8_lossy(&text)).unwrap_or_else(|_| Payload::null());
        Self { names, payload: wrapped, raw }
    }

    /// Returns a graph of one step nested in all these groups, with a start delay, which changes the run's data.
    fn graph(&self) -> Graph<Value> {
        let (first, groups) = self.names.split_first().unwrap();
        let payload = self.payload.clone();
        let step = move |ctx: StepCtx<Value>| {
            let payload = payload.clone();
            async move {
                ctx.change_data(|data| _ = data.insert("given".into(), payload.clone()));
                Ok::<_, Failure>(payload)
            }
        };
        let inner = |graph: Graph<Value>| graph.step(first, step).delay(Duration::from_secs(1));
        nested(Graph::new("graph"), groups, Box::new(inner))
    }

    async fn function(ctx: Ctx, plan: Self) -> Result<Value, Failure> {
        for name in &plan.names {
            let payload = plan.payload.clone();
            ctx.step(name, || async { Ok::<_, Failure>(payload.clone()) }).await?;
            ctx.step(name, || async { Ok::<_, Failure>(plan.raw.clone()) }).await?;
            ctx.sleep(name, Duration::from_secs(1)).await?;
        }
        Ok(plan.payload)
    }

    fn code(&self, engine: Builder) -> Builder {
        let plan = self.clone();
        let function = move |ctx: Ctx, _: Payload| Self::function(ctx, plan.clone());
        engine.function("function", 1, function)
    }
}

type Steps<'a> = Box<dyn FnOnce(Graph<Value>) -> Graph<Value> + 'a>;

fn nested<'a>(graph: Graph<Value>, groups: &'a [String], steps: Steps<'a>) -> Graph<Value> {
    match groups.split_first() {
        None => steps(graph),
        Some((group, rest)) => graph.group(group, |graph| nested(graph, rest, steps)),
    }
}

/// Starts a run and drives it to its end; then everything must be readable.
async fn drive(kit: &Kit, of: &str, input: &Payload) {
    match kit.client().start(of, input).id(of).await {
        Ok(_) => {}
        Err(error) => return assert_eq!(error.kind(), ErrorKind::Invalid, "{error}"),
    }
    kit.run_until_idle().await.unwrap();
    let run: RunHandle = kit.client().run(of).unwrap();
    assert!(run.status().await.unwrap().is_final(), "{:?}", run.get().await.unwrap());
    run.steps().await.unwrap();
    run.history(1, 1_000).await.unwrap();
    // A snapshot folded from the log alone must be equal.
    let state = format!("workflow/{of}/state.json");
    let before = run.get().await.unwrap().run().clone();
    kit.store().write(wigwag_store::Batch::new().delete(state)).await.unwrap();
    let mut after = run.get().await.unwrap().run().clone();
    (after.rolled, after.unrolled) = (before.rolled.clone(), before.unrolled.clone());
    after.points.retain(|path, _| before.points.contains_key(path));
    assert_eq!(after, before);
}

async fn all(plan: &Plan) {
    let given = Payload::of(&plan.payload).unwrap_or_else(|_| plan.raw.clone());
    let kit = Kit::start(|engine| plan.code(engine)).await.unwrap();
    drive(&kit, "function", &given).await;
    match Kit::start(|engine| engine.workflow(plan.graph())).await {
        Ok(kit) => drive(&kit, "graph", &given).await,
        Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{error}"),
    }
}

#[test]
fn output_of_code_can_be_read_back() {
    fuzz!(200, |input: &[u8]| {
        let mut choices = Choices::new(input);
        let plan = Plan::choose(&mut choices);
        fastrand::seed(7);
        without_panics(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let done = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), all(&plan)).await });
            assert!(done.is_ok(), "it hangs: {plan:?}");
        });
    });
}
