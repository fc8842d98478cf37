//! An order: validated, reserved and charged concurrently, packed and shipped; compensated if shipping fails.
//!
//! ```text
//! validate ─┬─ reserve ─┬─ shipping/pack ── shipping/wrap (a gift) ── shipping/ship
//!           └─ charge ──┘
//! ```

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wigwag::{Failure, Graph, Retry, StepCtx, permanent, retryable};

use crate::World;

/// Name of the workflow.
pub const NAME: &str = "order_fulfilment";

/// Paths of the steps in the order of the graph.
pub const STEPS: [&str; 6] = ["validate", "reserve", "charge", "shipping/pack", "shipping/wrap", "shipping/ship"];

/// The workflow's input: an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Name of the ordered item.
    pub item: String,
    /// Price in cents.
    pub cents: u64,
    /// Whether to wrap it as a gift.
    pub gift: bool,
    /// Destination of the shipment.
    pub to: String,
}

impl Order {
    /// Returns an order that succeeds.
    #[must_use]
    pub fn good() -> Self {
        Self { item: "lamp".into(), cents: 2_400, gift: true, to: "Utrecht".into() }
    }

    /// Returns an order that no carrier accepts.
    #[must_use]
    pub fn undeliverable() -> Self {
        Self { item: "anvil".into(), cents: 9_900, gift: false, to: "the moon".into() }
    }
}

type Ctx = StepCtx<Order>;

/// Returns the workflow's graph.
pub fn graph(world: &World) -> Graph<Order> {
    Graph::new(NAME)
        .step("validate", step(world, validate))
        .step("reserve", step(world, reserve))
        .after("validate")
        .compensate(undo(world))
        .step("charge", step(world, charge))
        .after("validate")
        .retry(Retry::times(3).first(Duration::from_millis(20)))
        .compensate(undo(world))
        .group("shipping", |shipping| {
            shipping
                .step("pack", step(world, pack))
                .compensate(undo(world))
                .step("wrap", step(world, wrap))
                .when(|order: &Order| order.gift)
                .step("ship", step(world, ship))
        })
        .after(["reserve", "charge"])
}

/// Returns a step's code with access to the world.
fn step<Fut>(world: &World, code: fn(World, Ctx) -> Fut) -> impl Fn(Ctx) -> Fut + Send + Sync + 'static
where
    Fut: Future<Output = Result<String, Failure>> + Send + 'static,
{
    let world = world.clone();
    move |ctx| code(world.clone(), ctx)
}

/// Returns the compensation of a step. The step may have completed or stopped half-way;
/// the compensation handles both.
fn undo(world: &World) -> impl Fn(Ctx, Option<String>) -> Undoing + Send + Sync + 'static {
    let world = world.clone();
    move |ctx, _done| {
        let world = world.clone();
        Box::pin(async move {
            world.undo(&ctx.idempotency_key()).await;
            Ok(())
        })
    }
}

type Undoing = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send>>;

async fn validate(world: World, ctx: Ctx) -> Result<String, Failure> {
    world.act(&ctx.idempotency_key()).await;
    let order = ctx.input()?;
    if order.cents == 0 {
        return Err(permanent("nothing is free"));
    }
    Ok(format!("{} for {} cents", order.item, order.cents))
}

async fn reserve(world: World, ctx: Ctx) -> Result<String, Failure> {
    world.act(&ctx.idempotency_key()).await;
    Ok(format!("one {} is kept back", ctx.input()?.item))
}

/// Simulates a card processor that is always busy at the first attempt.
async fn charge(world: World, ctx: Ctx) -> Result<String, Failure> {
    if ctx.attempt() == 1 {
        return Err(retryable("the card processor is busy"));
    }
    world.act(&ctx.idempotency_key()).await;
    Ok(format!("{} cents are paid", ctx.input()?.cents))
}

async fn pack(world: World, ctx: Ctx) -> Result<String, Failure> {
    world.act(&ctx.idempotency_key()).await;
    Ok(format!("{}, in a box", ctx.output::<String>("reserve").await?))
}

async fn wrap(world: World, ctx: Ctx) -> Result<String, Failure> {
    world.act(&ctx.idempotency_key()).await;
    Ok("in red paper".into())
}

async fn ship(world: World, ctx: Ctx) -> Result<String, Failure> {
    let to = ctx.input()?.to;
    if to == "the moon" {
        return Err(permanent(format!("no carrier goes to {to}")));
    }
    world.act(&ctx.idempotency_key()).await;
    Ok(format!("on its way to {to}"))
}
