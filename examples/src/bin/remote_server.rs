//! Serves a store to workers elsewhere, and has no workflow code itself, until it is interrupted.
//!
//! `cargo run -p wigwag-examples --bin remote_server [STORE [ADDR]]`, then `remote_worker` with the address that it says.
#![expect(clippy::print_stdout, reason = "it says where it serves")]

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
