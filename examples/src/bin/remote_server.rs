//! Serves a store to workers on other machines until it is interrupted. It runs no workflow code itself.
//!
//! `cargo run -p wigwag-examples --bin remote_server [STORE [ADDR]]`, then `remote_worker` with the
//! address that it prints.
#![expect(clippy::print_stdout, reason = "the program prints its address")]

use wigwag_examples::{Place, remote_worker};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let place = Place::from_args()?;
    let addr = std::env::args().nth(2).unwrap_or_else(|| "127.0.0.1:7070".into()).parse()?;
    let server = remote_worker::serve(place.url(), addr).await?;
    println!("http://{}/s3", server.addr());
    std::future::pending::<()>().await;
    Ok(())
}
