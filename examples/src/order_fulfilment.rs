//! An order: checked, reserved and charged side by side, packed and shipped; undone if shipping fails.
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

/// What the workflow is called.
pub const NAME: &str = "order_fulfilment";

/// The steps in the order in which they are written.
pub const STEPS: [&str; 6] = ["validate", "reserve", "charge", "shipping/pack", "shipping/wrap", "shipping/ship"];

/// What somebody wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// What.
    pub item: String,
    /// For how much.
    pub cents: u64,
    /// Wrapped.
    pub gift: bool,
    /// Where to.
    pub to: String,
}

impl Order {
    /// An order that goes well.
    #[must_use]
    pub fn good() -> Self {
        Self { item: "lamp".into(), cents: 2_400, gift: true, to: "Utrecht".into() }
    }

    /// An order that no carrier takes.
    #[must_use]
    pub fn undeliverable() -> Self {
        Self { item: "anvil".into(), cents: 9_900, gift: false, to: "the moon".into() }
    }
}

type Ctx = StepCtx<Order>;

/// The workflow.
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

/// A step that gets the world along.
fn step<Fut>(world: &World, code: fn(World, Ctx) -> Fut) -> impl Fn(Ctx) -> Fut + Send + Sync + 'static
where
    Fut: Future<Output = Result<String, Failure>> + Send + 'static,
{
    let world = world.clone();
    move |ctx| code(world.clone(), ctx)
}

/// Undoes a step; whether it was done or broke off half-way is not known, and is all the same to the one who undoes.
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

/// The card processor is always busy when it is asked for the first time.
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
