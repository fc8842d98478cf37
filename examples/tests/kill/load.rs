//! Workflows that the workers run.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wigwag::{Builder, Ctx, Engine, Failure};
use wigwag_examples::fan_out::{self, Total};
use wigwag_examples::onboarding::{self, Customer};
use wigwag_examples::order_fulfilment::{self, Order};
use wigwag_examples::{Moment, Watch, World};
use wigwag_store::{Clock as _, Store, System};

use super::{ledger, waits};

/// Name of a workflow with children and tasks.
pub(crate) const FAMILY: &str = "family";

/// Name of a workflow with one step.
pub(crate) const SHORT: &str = "short";

/// Name of a workflow whose step runs until a file exists.
pub(crate) const LONG: &str = "long";

/// Ledger key of that step.
pub(crate) const LONG_STEP: &str = "long:wait";

/// Input of [`family`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Family {
    pub(crate) tasks: u64,
    pub(crate) day_micros: u64,
}

async fn family(ctx: Ctx, input: Family) -> Result<u64, Failure> {
    let shipped: String = ctx.child("good", order_fulfilment::NAME, &Order::good()).await?;
    let customer = Customer { name: "child".into(), day_micros: input.day_micros };
    let said: Vec<String> = ctx.child("customer", onboarding::NAME, &customer).await?;
    let total: Total = ctx.child("squares", fan_out::BY_TASKS, &input.tasks).await?;
    let failed = ctx.child::<String, _>("bad", order_fulfilment::NAME, &Order::undeliverable()).await;
    let failed = failed.err().map(|failure| failure.to_string()).unwrap_or_default();
    Ok((shipped.len() + said.len() + failed.len()) as u64 + total.sum)
}

/// Returns the expected result of [`family`].
pub(crate) fn family_result(tasks: u64) -> u64 {
    let squares: u64 = (0..tasks).map(|number| number * number).sum();
    ("on its way to Utrecht".len() + 4 + "no carrier goes to the moon".len()) as u64 + squares
}

async fn short(world: World, ctx: Ctx) -> Result<(), Failure> {
    ctx.step_with("act", |info| waits::act(&world, info)).await
}

async fn long(watch: Watch, ctx: Ctx, until: PathBuf) -> Result<(), Failure> {
    let step = ctx.step_with("wait", |info| {
        let (watch, until, key) = (&watch, &until, info.idempotency_key());
        async move {
            watch(Moment::Begin, &key);
            while !until.exists() {
                System.sleep(Duration::from_millis(10)).await;
            }
            watch(Moment::Done, &key);
            Ok::<_, Failure>(())
        }
    });
    step.await
}

/// Returns an engine with all workflows, whose steps log to this folder.
pub(crate) fn builder(store: Arc<dyn Store>, folder: &Path, takes: Duration) -> Builder {
    let watch = ledger::watch(folder);
    let world = World::watched(takes, Arc::clone(&watch));
    let (for_onboarding, for_inline, for_square) = (world.clone(), world.clone(), world.clone());
    let for_short = world.clone();
    let builder = Engine::builder(store)
        .workflow(order_fulfilment::graph(&world))
        .function(onboarding::NAME, 1, move |ctx, customer| onboarding::onboard(for_onboarding.clone(), ctx, customer))
        .function(fan_out::BY_TASKS, 1, fan_out::by_tasks)
        .function(fan_out::INLINE, 1, move |ctx, count| fan_out::inline(for_inline.clone(), ctx, count))
        .task(fan_out::TASK, move |ctx| fan_out::square(for_square.clone(), ctx))
        .function(FAMILY, 1, family)
        .function(SHORT, 1, move |ctx, ()| short(for_short.clone(), ctx))
        .function(LONG, 1, move |ctx, until| long(Arc::clone(&watch), ctx, until));
    waits::add(builder, &world)
}
