//! A sample workflow: an order that somebody must approve.
//!
//! ```text
//! check ─┬─ reserve ─┬─ approval (a signal) ── ship
//!        └─ charge ──┘
//! ```

use serde::{Deserialize, Serialize};
use serde_json::json;
use wigwag::schemars::{self, JsonSchema};
use wigwag::{Client, ErrorKind, Failure, Graph, Result, RunHandle, StepCtx, permanent};

pub(super) const TYPE: &str = "demo-order";
pub(super) const SIGNAL: &str = "approval";

/// What the signal that the demo prints carries.
pub(super) const YES: &str = r#"{"approved": true, "by": "ada"}"#;

/// What somebody wants, and who let them have it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    item: String,
    cents: u64,
    approved_by: Option<String>,
}

/// What is said about an order. Other payloads are refused to whoever sends them.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
struct Decision {
    approved: bool,
    by: String,
}

type Ctx = StepCtx<Order>;

pub(super) fn workflow() -> Graph<Order> {
    Graph::new(TYPE)
        .step("check", check)
        .step("reserve", |ctx: Ctx| async move { Ok::<_, Failure>(format!("one {} is kept back", ctx.input()?.item)) })
        .after("check")
        .compensate(|_: Ctx, _: Option<String>| async { Ok::<_, Failure>(()) })
        .step("charge", |ctx: Ctx| async move { Ok::<_, Failure>(format!("{} cents are paid", ctx.input()?.cents)) })
        .after("check")
        .compensate(|_: Ctx, _: Option<String>| async { Ok::<_, Failure>(()) })
        .signal(SIGNAL)
        .after(["reserve", "charge"])
        .schema_of::<Decision>()
        .on_receive(decide)
        .step("ship", ship)
        .after(SIGNAL)
}

async fn check(ctx: Ctx) -> std::result::Result<(), Failure> {
    if ctx.input()?.cents == 0 { Err(permanent("nothing is free")) } else { Ok(()) }
}

fn decide(order: &mut Order, decision: Decision) -> std::result::Result<(), Failure> {
    order.approved_by = decision.approved.then_some(decision.by);
    Ok(())
}

/// A run that fails here has what was reserved and charged undone.
async fn ship(ctx: Ctx) -> std::result::Result<String, Failure> {
    let order = ctx.data()?;
    let by = order.approved_by.ok_or_else(|| permanent("it was not approved"))?;
    Ok(format!("the {} is on its way, approved by {by}", order.item))
}

/// The first order that has not ended; it waits for its approval when this answers.
pub(super) async fn waiting_order(client: &Client) -> Result<RunHandle> {
    let mut number = 1;
    loop {
        let id = format!("order-{number}");
        let order = json!({"item": "grand piano", "cents": 8_900_000, "approved_by": null});
        let run = match client.start(TYPE, &order).id(id).await {
            // Somebody else's run, or one that was removed.
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::Gone) => {
                number += 1;
                continue;
            }
            started => started?,
        };
        if waits(&run).await? {
            return Ok(run);
        }
        number += 1;
    }
}

/// Follows a run until it waits, or has ended.
async fn waits(run: &RunHandle) -> Result<bool> {
    let mut log = run.follow(1);
    while log.next().await?.is_some() {
        if !run.waiting().await?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
