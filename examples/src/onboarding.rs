//! The first two weeks of a customer: a workflow function that sleeps for days.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use wigwag::{Ctx, Failure, StepInfo};

use crate::World;

/// Name of the workflow.
pub const NAME: &str = "onboarding";

/// Length of a calendar day.
pub const DAY: Duration = wigwag::days(1);

/// The workflow's input: the new customer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Customer {
    /// Name of the customer.
    pub name: String,
    /// Length of a day. It is part of the input, so that a run keeps it even if the program
    /// restarts with another value.
    pub day_micros: u64,
}

impl Customer {
    /// Returns a customer with days of this length.
    #[must_use]
    pub fn new(name: &str, day: Duration) -> Self {
        Self { name: name.to_owned(), day_micros: u64::try_from(day.as_micros()).unwrap_or(u64::MAX) }
    }

    fn days(&self, count: u64) -> Duration {
        Duration::from_micros(self.day_micros.saturating_mul(count))
    }

    fn hours(&self, count: u64) -> Duration {
        Duration::from_micros(self.day_micros / 24).saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
    }
}

/// The workflow. Returns the messages sent to the customer, in order.
pub async fn onboard(world: World, ctx: Ctx, customer: Customer) -> Result<Vec<String>, Failure> {
    let say = |what: &'static str| {
        let (world, name) = (&world, &customer.name);
        move |info: StepInfo| async move {
            world.act(&info.idempotency_key()).await;
            Ok::<_, Failure>(format!("{what}, {name}"))
        }
    };
    let account = world.clone();
    let key = format!("{}:welcome", ctx.workflow_id());
    let welcome = ctx.step_with("welcome", say("Welcome")).compensate(move |_: Option<String>| {
        let (account, key) = (account.clone(), key.clone());
        async move {
            account.undo(&key).await;
            Ok(())
        }
    });
    let mut said = vec![welcome.await?];
    ctx.sleep("some-hours", customer.hours(6)).await?;
    said.push(ctx.step_with("tips", say("Three things to try")).await?);
    ctx.sleep("three-days", customer.days(3)).await?;
    said.push(ctx.step_with("check-in", say("How is it going")).await?);
    ctx.sleep("ten-days", customer.days(10)).await?;
    said.push(ctx.step_with("goodbye", say("From here on you know the way")).await?);
    Ok(said)
}
