//! Squares ten thousand numbers: first each in its own task, then all of them inline.
//!
//! `cargo run -p wigwag-examples --bin fan_out [STORE [COUNT]]`
#![expect(clippy::print_stdout, reason = "the program prints its outcome")]

use wigwag::Engine;
use wigwag_examples::fan_out::{BY_TASKS, INLINE, TASK, Total, by_tasks, inline, square};
use wigwag_examples::{Place, World};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = Place::from_args()?;
    let count: u64 = std::env::args().nth(2).map_or(Ok(10_000), |text| text.parse())?;
    let engine = Engine::open(place.url())?
        .function(BY_TASKS, 1, by_tasks)
        .function(INLINE, 1, |ctx, count| inline(World::default(), ctx, count))
        .task(TASK, |ctx| square(World::default(), ctx))
        .start()
        .await?;
    for of in [BY_TASKS, INLINE] {
        let run = engine.client().start(of, &count).id(format!("{of}-{count}")).await?;
        let Total { count, sum } = run.result().await?;
        println!("{of}: {count} squares, {sum} in all");
    }
    engine.stop().await;
    Ok(())
}
