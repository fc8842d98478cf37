//! Welcomes a customer over two weeks; by default, a day takes 50 ms.
//!
//! `cargo run -p wigwag-examples --bin onboarding [STORE [MILLISECONDS]]`
#![expect(clippy::print_stdout, reason = "the program prints its outcome")]

use std::time::Duration;

use wigwag::Engine;
use wigwag_examples::onboarding::{Customer, NAME, onboard};
use wigwag_examples::{Place, World};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = Place::from_args()?;
    let day = std::env::args().nth(2).map_or(Ok(50), |text| text.parse())?;
    let code = |ctx, customer| onboard(World::default(), ctx, customer);
    let engine = Engine::open(place.url())?.function(NAME, 1, code).start().await?;
    let ada = Customer::new("Ada", Duration::from_millis(day));
    let run = engine.client().start(NAME, &ada).id("onboarding-ada").await?;
    for line in run.result::<Vec<String>>().await? {
        println!("{line}");
    }
    for (path, point) in run.steps().await? {
        println!("  {path:<10} {:<5} {}", point.kind, point.status);
    }
    engine.stop().await;
    Ok(())
}
