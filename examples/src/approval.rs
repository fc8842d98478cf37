//! An order that a manager must approve within two days, with a reminder after the first.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use wigwag::schemars::{self, JsonSchema};
use wigwag::{Ctx, Failure, StepInfo, permanent};

use crate::World;

/// Name of the workflow.
pub const NAME: &str = "approval";

/// Name of the signal that the workflow waits for.
pub const SIGNAL: &str = "approval";

/// Length of a calendar day.
pub const DAY: Duration = wigwag::days(1);

/// The workflow's input: an order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// Name of the ordered item.
    pub item: String,
    /// Price in cents.
    pub cents: u64,
}

impl Order {
    /// Returns an order that needs approval.
    #[must_use]
    pub fn expensive() -> Self {
        Self { item: "grand piano".into(), cents: 8_900_000 }
    }
}

/// Payload of the approval signal. Signals with another payload are rejected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// Whether the order is approved.
    pub approved: bool,
    /// Name of the person who decided.
    pub by: String,
}

/// The workflow. Returns the outcome of the order.
pub async fn approve(world: World, ctx: Ctx, order: Order) -> Result<String, Failure> {
    let act = |info: StepInfo| {
        let world = &world;
        async move {
            world.act(&info.idempotency_key()).await;
            Ok::<_, Failure>(())
        }
    };
    let (shelf, key) = (world.clone(), format!("{}:reserve", ctx.workflow_id()));
    let reserve = ctx.step_with("reserve", act).compensate(move |_: Option<()>| {
        let (shelf, key) = (shelf.clone(), key.clone());
        async move {
            shelf.undo(&key).await;
            Ok(())
        }
    });
    reserve.await?;
    let mut decision = ctx.wait::<Decision>(SIGNAL).typed().timeout(DAY).await?;
    if decision.is_none() {
        ctx.step_with("remind", act).await?;
        decision = ctx.wait::<Decision>(SIGNAL).typed().timeout(DAY).await?;
    }
    match decision {
        // The run fails, and the compensation releases the reservation.
        None => Err(permanent("nobody decided within two days")),
        Some(Decision { approved: false, by }) => Err(permanent(format!("{by} said no"))),
        Some(Decision { approved: true, by }) => {
            ctx.step_with("ship", act).await?;
            Ok(format!("the {} is on its way, approved by {by}", order.item))
        }
    }
}
