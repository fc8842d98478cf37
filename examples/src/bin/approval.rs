//! Runs an order that waits for an approval, sent by a person or by this program.
//!
//! `cargo run -p wigwag-examples --bin approval [STORE]`: with a store, the order waits until you approve it from
//! another terminal; without one, the program approves the order itself.
#![expect(clippy::print_stdout, reason = "the program prints its outcome")]

use wigwag::Engine;
use wigwag_examples::approval::{Decision, NAME, Order, SIGNAL, approve};
use wigwag_examples::{Place, World};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = Place::from_args()?;
    let code = |ctx, order| approve(World::default(), ctx, order);
    let engine = Engine::open(place.url())?.function(NAME, 1, code).start().await?;
    let client = engine.client();
    let run = client.start(NAME, &Order::expensive()).id("order-1").await?;
    println!("`order-1` is started; it waits for `{SIGNAL}`");
    if place.is_named() {
        println!("wigwag status order-1 --store {}", place.url());
    } else {
        let yes = Decision { approved: true, by: "ada".into() };
        client.signal("order-1", SIGNAL, &yes).key("the-only-click").await?;
    }
    match run.result::<String>().await {
        Ok(outcome) => println!("{outcome}"),
        Err(error) => println!("{error}"),
    }
    engine.stop().await;
    Ok(())
}
