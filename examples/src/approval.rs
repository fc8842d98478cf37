//! An order that a manager must approve within two days; after the first, they are reminded.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use wigwag::schemars::{self, JsonSchema};
use wigwag::{Ctx, Failure, StepInfo, permanent};

use crate::World;

/// What the workflow is called.
pub const NAME: &str = "approval";

/// The signal it waits for.
pub const SIGNAL: &str = "approval";

/// A day of the calendar.
pub const DAY: Duration = Duration::from_secs(24 * 3_600);

/// What somebody wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// What.
    pub item: String,
    /// For how much.
    pub cents: u64,
}

impl Order {
    /// An order that somebody should look at.
    #[must_use]
    pub fn expensive() -> Self {
        Self { item: "grand piano".into(), cents: 8_900_000 }
    }
}

/// What the manager says. Other payloads are refused to whoever sends them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// Yes or no.
    pub approved: bool,
    /// Who says so.
    pub by: String,
}

/// The workflow: what became of the order.
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
            Ok::<_, Failure>(())
        }
    });
    reserve.await?;
    let mut decision = ctx.wait::<Decision>(SIGNAL).typed().timeout(DAY).await?;
    if decision.is_none() {
        ctx.step_with("remind", act).await?;
        decision = ctx.wait::<Decision>(SIGNAL).typed().timeout(DAY).await?;
    }
    match decision {
        // The run fails, and what was reserved is put back.
        None => Err(permanent("nobody decided within two days")),
        Some(Decision { approved: false, by }) => Err(permanent(format!("{by} said no"))),
        Some(Decision { approved: true, by }) => {
            ctx.step_with("ship", act).await?;
            Ok(format!("the {} is on its way, approved by {by}", order.item))
        }
    }
}
