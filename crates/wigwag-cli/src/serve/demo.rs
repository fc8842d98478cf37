//! A sample workflow: an order that needs an approval.
//!
//! ```text
//! check ─┬─ reserve ─┬─ approval (a signal) ── ship
//!        └─ charge ──┘
//! ```

pub(crate) mod gallery;

use serde::{Deserialize, Serialize};
use serde_json::json;
use wigwag::schemars::{self, JsonSchema};
use wigwag::{Client, ErrorKind, Failure, Graph, Result, RunHandle, StepCtx, permanent};

pub(super) const TYPE: &str = "demo-order";
pub(super) const SIGNAL: &str = "approval";

/// Payload of the signal that the demo prints.
pub(super) const YES: &str = r#"{"approved": true, "by": "ada"}"#;

/// The order, and the name of its approver.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Order {
    item: String,
    cents: u64,
    approved_by: Option<String>,
}

/// Payload of the approval signal. Signals with another payload are rejected.
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
        .about(|order| format!("{}, {}.{:02} €", order.item, order.cents / 100, order.cents % 100))
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

/// If this step fails, the reservation and the charge are compensated.
async fn ship(ctx: Ctx) -> std::result::Result<String, Failure> {
    let order = ctx.data()?;
    let by = order.approved_by.ok_or_else(|| permanent("it was not approved"))?;
    Ok(format!("the {} is on its way, approved by {by}", order.item))
}

/// Returns the first unfinished order, once it waits for its approval.
pub(super) async fn waiting_order(client: &Client) -> Result<RunHandle> {
    let mut number = 1;
    loop {
        let id = format!("order-{number}");
        let order = json!({"item": "grand piano", "cents": 8_900_000, "approved_by": null});
        let run = match client.start(TYPE, &order).id(id).await {
            // The id belongs to a run of another workflow, or to a deleted run.
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

/// Follows a run until it waits or ends.
async fn waits(run: &RunHandle) -> Result<bool> {
    let mut log = run.follow(1);
    while log.next().await?.is_some() {
        if !run.waiting().await?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}
