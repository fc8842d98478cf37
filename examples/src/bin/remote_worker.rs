//! A worker whose store is served by a server: `http://127.0.0.1:7070/s3`. The server notifies it of new work, so
//! that it polls rarely.
//!
//! `cargo run -p wigwag-examples --bin remote_worker [STORE [SECONDS]]` works until it is interrupted; without
//! notifications it polls at this interval. Without a store it starts its own server, completes three runs and exits.
#![expect(clippy::print_stdout, reason = "the program prints its outcome")]

use std::time::Duration;

use wigwag::Engine;
use wigwag_examples::remote_worker::{self, Greeting, NAME};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds: u64 = std::env::args().nth(2).map_or(Ok(10), |text| text.parse())?;
    let look_every = Duration::from_secs(seconds);
    if let Some(store) = std::env::args().nth(1) {
        let _engine = remote_worker::worker(Engine::open(&store)?, look_every).start().await?;
        println!("works");
        std::future::pending::<()>().await;
    }
    let folder = tempfile::tempdir()?;
    let server = remote_worker::serve(&folder.path().display().to_string(), "127.0.0.1:0".parse()?).await?;
    let store = format!("http://{}/s3", server.addr());
    let engine = remote_worker::worker(Engine::open(&store)?, look_every).start().await?;
    // A client without workers; usually a separate process.
    let client = Engine::open(&store)?.client().await?;
    for name in ["ada", "bob", "eve"] {
        let run = client.start(NAME, name).id(format!("greet-{name}")).await?;
        println!("{}", run.result::<Greeting>().await?.text);
    }
    engine.stop().await;
    server.stop().await;
    Ok(())
}
