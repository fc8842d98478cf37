//! A worker whose store is a server's: `http://127.0.0.1:7070/s3`. The server nudges it, so that it need not look for work.
//!
//! `cargo run -p wigwag-examples --bin remote_worker [STORE [SECONDS]]` works until it is interrupted, and looks for work every
//! so many seconds where it is not nudged. Without a store it starts a server of its own, greets three and ends.
#![expect(clippy::print_stdout, reason = "it tells what happened")]

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
    // A process that only asks; it would be another one.
    let client = Engine::open(&store)?.client().await?;
    for name in ["ada", "bob", "eve"] {
        let run = client.start(NAME, name).id(format!("greet-{name}")).await?;
        println!("{}", run.result::<Greeting>().await?.text);
    }
    engine.stop().await;
    server.stop().await;
    Ok(())
}
