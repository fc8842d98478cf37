//! Workflows that wait for signals.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use wigwag::{Builder, Ctx, Failure, Graph, StepCtx, StepInfo, permanent};
use wigwag_examples::World;

pub(crate) const INBOX: &str = "inbox";
pub(crate) const APPROVAL: &str = "quick_approval";
pub(crate) const EITHER: &str = "either";
pub(crate) const LATEST: &str = "latest_price";
pub(crate) const REVIEW: &str = "review";

pub(crate) const ITEM: &str = "item";
pub(crate) const DECISION: &str = "decision";
pub(crate) const LEFT: &str = "left";
pub(crate) const RIGHT: &str = "right";
pub(crate) const PRICE: &str = "price";
/// Name of a signal that no wait consumes.
pub(crate) const UNHEARD: &str = "unheard";
pub(crate) const VERDICT: &str = "verdict";

/// Registers all workflows of this module.
pub(crate) fn add(builder: Builder, world: &World) -> Builder {
    let worlds = [(); 4].map(|()| world.clone());
    let [for_inbox, for_approval, for_either, for_latest] = worlds;
    builder
        .function(INBOX, 1, move |ctx, wanted| inbox(for_inbox.clone(), ctx, wanted))
        .function(APPROVAL, 1, move |ctx, asked| approval(for_approval.clone(), ctx, asked))
        .function(EITHER, 1, move |ctx, ()| either(for_either.clone(), ctx))
        .function(LATEST, 1, move |ctx, ()| latest(for_latest.clone(), ctx))
        .workflow(review(world))
}

/// A step with an effect in the ledger.
pub(crate) async fn act(world: &World, info: StepInfo) -> Result<(), Failure> {
    world.act(&info.idempotency_key()).await;
    Ok(())
}

#[derive(Debug, Serialize, Deserialize)]
struct Wanted {
    wants: usize,
}

/// Consumes this many signals in sequence, with a step for each; returns their senders.
async fn inbox(world: World, ctx: Ctx, wanted: Wanted) -> Result<Vec<String>, Failure> {
    let mut senders = Vec::new();
    while senders.len() < wanted.wants {
        let item = ctx.wait::<u64>(ITEM).details().await?;
        ctx.step_with("handle", |info| act(&world, info)).await?;
        senders.push(item.by.unwrap_or_default());
    }
    Ok(senders)
}

#[derive(Debug, Serialize, Deserialize)]
struct Asked {
    patience_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Decision {
    approved: bool,
    by: String,
}

/// Reserves, waits for a decision, reminds, waits again; compensated unless the order is approved.
async fn approval(world: World, ctx: Ctx, asked: Asked) -> Result<String, Failure> {
    let patience = Duration::from_millis(asked.patience_ms);
    let (shelf, key) = (world.clone(), format!("{}:reserve", ctx.workflow_id()));
    let reserve = ctx.step_with("reserve", |info| act(&world, info)).compensate(move |_: Option<()>| {
        let (shelf, key) = (shelf.clone(), key.clone());
        async move {
            shelf.undo(&key).await;
            Ok::<_, Failure>(())
        }
    });
    reserve.await?;
    let mut decision = ctx.wait::<Decision>(DECISION).timeout(patience).await?;
    if decision.is_none() {
        ctx.step_with("remind", |info| act(&world, info)).await?;
        decision = ctx.wait::<Decision>(DECISION).timeout(patience).await?;
    }
    match decision {
        None => Err(permanent("nobody decided in time")),
        Some(Decision { approved: false, by }) => Err(permanent(format!("{by} said no"))),
        Some(Decision { approved: true, by }) => {
            ctx.step_with("ship", |info| act(&world, info)).await?;
            Ok(by)
        }
    }
}

/// Takes the branch of the signal that arrives first.
async fn either(world: World, ctx: Ctx) -> Result<String, Failure> {
    let (which, _) = ctx.wait_any::<String, _>([LEFT, RIGHT]).await?;
    ctx.step_with("go", |info| act(&world, info)).await?;
    Ok(which)
}

/// Works for a moment, and then consumes the newest price.
async fn latest(world: World, ctx: Ctx) -> Result<u64, Failure> {
    ctx.step_with("prepare", |info| act(&world, info)).await?;
    let price = ctx.wait::<u64>(PRICE).latest().await?;
    ctx.step_with("sell", |info| act(&world, info)).await?;
    Ok(price)
}

/// Input of the graph.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Text {
    text: String,
    verdict: String,
}

/// A graph with a signal between two steps.
fn review(world: &World) -> Graph<Text> {
    let (for_write, for_publish) = (world.clone(), world.clone());
    Graph::new(REVIEW)
        .step("write", move |ctx| step(for_write.clone(), ctx))
        .signal(VERDICT)
        .after("write")
        .on_receive(|text: &mut Text, verdict: String| {
            text.verdict = verdict;
            Ok::<_, Failure>(())
        })
        .step("publish", move |ctx| step(for_publish.clone(), ctx))
        .after(VERDICT)
}

async fn step(world: World, ctx: StepCtx<Text>) -> Result<(), Failure> {
    world.act(&ctx.idempotency_key()).await;
    Ok(())
}
