//! A store with every kind of object: runs that wait, sleep, are paused or have ended; signals, idempotency keys,
//! large payloads, children, chunks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use wigwag::testing::{Kit, ManualClock};
use wigwag::{Builder, Ctx, Failure, Graph, StepCtx};
use wigwag_store::{Memory, Store};

/// All stored objects, by key.
pub(crate) type Objects = BTreeMap<String, Vec<u8>>;

/// The run that is never damaged.
pub(crate) const HEALTHY: &str = "healthy";

/// The runs that may be damaged.
pub(crate) const RUNS: [&str; 6] = ["talk-1", "talk-2", "order-1", "order-2", "long-1", "parent-1"];

/// A store as its last worker left it.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) objects: Objects,
    pub(crate) elapsed: Duration,
}

async fn talk(ctx: Ctx, _: Value) -> Result<bool, Failure> {
    let big: String = ctx.step("big", || async { Ok::<_, Failure>("x".repeat(20_000)) }).await?;
    ctx.step("small", || async { Ok::<_, Failure>(big.len()) }).await?;
    let first = ctx.wait::<bool>("go").await?;
    let second = ctx.wait::<bool>("go").await?;
    Ok(first && second)
}

async fn long(ctx: Ctx, _: Value) -> Result<bool, Failure> {
    for number in 0..140 {
        ctx.step("turn", || async move { Ok::<_, Failure>(format!("{number:200}")) }).await?;
    }
    ctx.wait::<bool>("go").await
}

async fn parent(ctx: Ctx, _: Value) -> Result<bool, Failure> {
    let kid: Value = ctx.child("kid", "kid", &json!({"grams": 1})).await?;
    let tasks = ctx.fan_out("tasks", "double", [1, 2]).await?;
    ctx.child::<Value, _>("slow", "nap", &json!({ "kid": kid, "tasks": tasks.completed() })).await?;
    ctx.wait::<bool>("go").await
}

async fn kid(_: Ctx, input: Value) -> Result<Value, Failure> {
    Ok(input)
}

async fn nap(ctx: Ctx, _: Value) -> Result<(), Failure> {
    ctx.sleep("two-hours", Duration::from_secs(7_200)).await
}

async fn double(ctx: StepCtx<u64>) -> Result<u64, Failure> {
    Ok(ctx.input()? * 2)
}

fn order() -> Graph<Value> {
    Graph::new("order")
        .step("pay", |_: StepCtx<Value>| async { Ok::<_, Failure>(1) })
        .compensate(|_, _: Option<Value>| async { Ok::<_, Failure>(()) })
        .signal_at("approve", "go")
        .after("pay")
        .timeout(Duration::from_secs(24 * 3_600))
        .schema(json!({"type": ["object", "boolean"]}))
        .step("ship", |_: StepCtx<Value>| async { Ok::<_, Failure>(2) })
        .after("approve")
        .delay(Duration::from_secs(60))
}

/// Registers the code of all these runs.
pub(crate) fn code(engine: Builder) -> Builder {
    engine
        .function("talk", 1, talk)
        .function("long", 1, long)
        .function("parent", 1, parent)
        .function("kid", 1, kid)
        .function("nap", 1, nap)
        .task("double", double)
        .workflow(order())
}

impl World {
    /// Creates the same store every time.
    pub(crate) fn new(bucket: bool) -> Self {
        fastrand::seed(7);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(Self::made(bucket))
    }

    async fn made(bucket: bool) -> Self {
        let clock = ManualClock::default();
        let by = Arc::new(clock.clone());
        let store = Arc::new(if bucket { Memory::bucket_with_clock(by) } else { Memory::with_clock(by) });
        let kit = Kit::on(Arc::clone(&store) as Arc<dyn Store>, clock, code).await.unwrap();
        let client = kit.client();
        for id in RUNS {
            let of = id.split('-').next().unwrap();
            client.start(of, &json!({"item": "tea", "of": id})).id(id).await.unwrap();
        }
        client.start("nap", &Value::Null).id(HEALTHY).await.unwrap();
        kit.advance(Duration::from_secs(1)).await.unwrap();
        client.signal("talk-1", "go", &true).key("click-1").by("ada").await.unwrap();
        client.signal("talk-1", "other", &json!({"grams": 1.5})).await.unwrap();
        for _ in 0..2 {
            client.signal("talk-2", "go", &true).await.unwrap();
        }
        client.signal("order-2", "go", &true).await.unwrap();
        kit.advance(Duration::from_secs(120)).await.unwrap();
        kit.settle().await.unwrap();
        let elapsed = kit.elapsed();
        drop(kit);
        // Requests arrive while no worker is running.
        client.run("order-1").unwrap().pause().await.ok();
        client.signal("long-1", "go", &true).await.unwrap();
        Self { objects: all(&*store).await, elapsed }
    }
}

async fn all(store: &dyn Store) -> Objects {
    let mut objects = Objects::new();
    for listed in store.list("", "", 10_000).await.unwrap().entries {
        let object = store.get(&listed.key).await.unwrap().unwrap();
        objects.insert(listed.key, object.body.to_vec());
    }
    objects
}
