//! Runs one order that succeeds, and one that fails at shipping and is compensated.
//!
//! `cargo run -p wigwag-examples --bin order_fulfilment [STORE]`
#![expect(clippy::print_stdout, reason = "the program prints its outcome")]

use wigwag::record::Event;
use wigwag::{Engine, RunHandle, Status};
use wigwag_examples::order_fulfilment::{NAME, Order, STEPS, graph};
use wigwag_examples::{Place, World};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = Place::from_args()?;
    let engine = Engine::open(place.url())?.workflow(graph(&World::default())).start().await?;
    // The id makes a start idempotent: on the same store, a second execution of the program shows
    // the same two orders.
    for (id, order) in [("order-1", Order::good()), ("order-2", Order::undeliverable())] {
        let run = engine.client().start(NAME, &order).id(id).await?;
        tell(&run).await?;
    }
    engine.stop().await;
    Ok(())
}

async fn tell(run: &RunHandle) -> Result<(), wigwag::Error> {
    let ended = run.wait().await?;
    let why = ended.run().error.as_ref().map(|error| format!(": {}", error.message)).unwrap_or_default();
    println!("{}: {}{why}", run.id(), ended.status());
    let steps = run.steps().await?;
    for name in STEPS {
        let Some((path, point)) = steps.iter().find(|(path, _)| path.as_str() == name) else { continue };
        let result = match &point.result {
            Some(_) => run.output::<String>(path.as_str()).await?,
            None => String::new(),
        };
        let tries = if point.attempt > 1 { format!(" (try {})", point.attempt) } else { String::new() };
        println!("{}", format!("  {name:<14} {:<10} {result}{tries}", point.status).trim_end());
    }
    if ended.status() == Status::Failed {
        tell_undone(run).await?;
    }
    Ok(())
}

/// Compensations run in reverse order of completion; the order of two concurrent steps differs from run to run.
async fn tell_undone(run: &RunHandle) -> Result<(), wigwag::Error> {
    let (mut done, mut undone) = (Vec::new(), Vec::new());
    for event in run.history(1, 1_000).await?.into_iter().flat_map(|entry| entry.events) {
        match event {
            Event::StepCompleted(event) => done.push(event.point),
            Event::CompensationCompleted(event) => undone.push(event.point),
            _ => {}
        }
    }
    done.retain(|point| undone.contains(point));
    done.reverse();
    println!("  undone: {}", if done == undone { "the last first" } else { "in the wrong order" });
    undone.sort_by(|one, other| other.as_str().cmp(one.as_str()));
    for point in undone {
        println!("    {point}");
    }
    Ok(())
}
