//! One small job for each of many items: as tasks that any worker may run, or inline.

use serde::{Deserialize, Serialize};
use wigwag::{Ctx, Failure, StepCtx};

use crate::World;

/// The workflow that submits a task per item.
pub const BY_TASKS: &str = "fan_out";

/// The workflow that runs a step per item itself.
pub const INLINE: &str = "fan_out_inline";

/// Name of the task.
pub const TASK: &str = "square";

/// The workflows' result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Total {
    /// Number of items.
    pub count: u64,
    /// Sum of the squares.
    pub sum: u64,
}

impl Total {
    fn of(squares: &[u64]) -> Self {
        Self { count: squares.len() as u64, sum: squares.iter().sum() }
    }
}

/// Squares the numbers below `count`, each in a task that any worker may claim.
pub async fn by_tasks(ctx: Ctx, count: u64) -> Result<Total, Failure> {
    let joined = ctx.fan_out("squares", TASK, 0..count).await?;
    Ok(Total::of(&joined.results()?))
}

/// Squares the numbers below `count` in this run, several concurrently; each is a recorded step.
pub async fn inline(world: World, ctx: Ctx, count: u64) -> Result<Total, Failure> {
    let run = ctx.workflow_id().clone();
    let squares = ctx.map("squares", 0..count, move |number| {
        let (world, key) = (world.clone(), format!("{run}:squares/{number}"));
        async move {
            world.act(&key).await;
            Ok(number * number)
        }
    });
    Ok(Total::of(&squares.concurrency(64).await?))
}

/// The task's handler: squares a number.
pub async fn square(world: World, ctx: StepCtx<u64>) -> Result<u64, Failure> {
    world.act(&ctx.idempotency_key()).await;
    let number = ctx.input()?;
    Ok(number * number)
}
