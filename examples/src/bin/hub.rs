//! Two actors that know each other only by name: one adds numbers on request, the other sends requests and subscribes
//! to the published sums.
//!
//! `cargo run -p wigwag-examples --bin hub [URL]` connects to the hub of a server, such as `ws://127.0.0.1:7070/hub`
//! of `wigwag dev`. Without a URL it starts a server in this process.
#![expect(clippy::print_stdout, reason = "the program prints its outcome")]

use wigwag_examples::remote_worker;
use wigwag_hub_client::{Client, Delivery};

/// Replies to each request, and publishes the sum for all subscribers.
async fn add(worker: Client) -> Result<(), wigwag_hub_client::Error> {
    let mut messages = worker.messages();
    while let Some(message) = messages.next().await {
        let (a, b): (i64, i64) = message.data()?;
        worker.publish("sums", "sum:made", &(a + b)).await?;
        message.reply("sum", &(a + b)).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let (url, server) = match std::env::args().nth(1) {
        Some(url) => (url, None),
        None => {
            let store = folder.path().display().to_string();
            let server = remote_worker::serve(&store, "127.0.0.1:0".parse()?).await?;
            (format!("ws://{}/hub", server.addr()), Some(server))
        }
    };
    let worker = Client::connect(&url).register("@(adder/1)", ["add"]).await?;
    let adding = tokio::spawn(add(worker.clone()));

    let client = Client::connect(&url).await?;
    let mut sums = client.subscribe("sums").await?;
    let found = client.discover("@(adder/*)").capability("add").await?;
    println!("found {}", found.actors[0].address);
    for (a, b) in [(2, 3), (20, 22)] {
        let reply = client.request(&found.actors[0].address, "add", &(a, b)).await?;
        println!("{a} + {b} is {}, says {}", reply.data::<i64>()?, reply.from());
        if let Some(Delivery::Message(heard)) = sums.next().await {
            println!("heard of {} in `{}`", heard.data::<i64>()?, sums.topic());
        }
    }
    client.close().await;
    worker.close().await;
    adding.await??;
    if let Some(server) = server {
        server.stop().await;
    }
    Ok(())
}
