//! The benchmark's workloads as handlers of Restate, the baseline of `wigwag-bench http --restate`.
//!
//! Its argument is the address of the process that resolves the awakeables, which gets each one as a line `KEY ID`. Prints its listening address on standard
//! output, and ends when its standard input is closed.

use std::convert::Infallible;
use std::io::Read as _;

use restate_sdk::prelude::*;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Maximum number of awakeables that wait to be sent.
const UNTOLD_MAX: usize = 16 * 1024;

struct Bench {
    tell: Sender<String>,
}

#[service]
impl Bench {
    /// W1: three trivial steps.
    #[handler]
    async fn three(&self, ctx: Context<'_>, input: Json<u64>) -> Result<Json<u64>, HandlerError> {
        let start = input.into_inner();
        let one = ctx.run(move || async move { Ok(Json(start + 1)) }).name("one").await?.into_inner();
        let two = ctx.run(move || async move { Ok(Json(one + 1)) }).name("two").await?.into_inner();
        Ok(ctx.run(move || async move { Ok(Json(two + 1)) }).name("three").await?)
    }

    /// W2: waits for one signal, with the default time until it is suspended.
    #[handler]
    async fn go(&self, ctx: Context<'_>, key: Json<u64>) -> Result<Json<u64>, HandlerError> {
        self.wait(&ctx, key.into_inner()).await
    }

    /// The same, suspended immediately, so that a waiting run uses no memory here.
    #[handler(inactivity_timeout = "0s")]
    async fn park(&self, ctx: Context<'_>, key: Json<u64>) -> Result<Json<u64>, HandlerError> {
        self.wait(&ctx, key.into_inner()).await
    }

    /// Responds immediately: measures only the path through the server.
    #[handler]
    async fn ready(&self, _ctx: Context<'_>) -> Result<(), Infallible> {
        Ok(())
    }
}

impl Bench {
    /// Sending the id is not a separate step, which would be one more write than in the other system.
    async fn wait(&self, ctx: &Context<'_>, key: u64) -> Result<Json<u64>, HandlerError> {
        let (id, resolved) = ctx.awakeable::<Json<u64>>();
        self.tell.send(format!("{key} {id}\n")).await?;
        Ok(resolved.await?)
    }
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let teller =
        std::env::args().nth(1).ok_or("want the address that awakeables are sent to, such as 127.0.0.1:4000")?;
    let stream = TcpStream::connect(&teller).await?;
    stream.set_nodelay(true)?;
    let (tell, told) = channel(UNTOLD_MAX);
    tokio::spawn(pass_on(told, stream));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening {}", listener.local_addr()?);
    let orphaned = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    let endpoint = Endpoint::builder().bind(Bench { tell }).build();
    HttpServer::new(endpoint).serve_with_cancel(listener, orphaned).await;
    Ok(())
}

/// Writes all available lines at once.
async fn pass_on(mut told: Receiver<String>, mut stream: TcpStream) {
    let mut lines = Vec::new();
    while told.recv_many(&mut lines, 1_024).await > 0 {
        if stream.write_all(lines.concat().as_bytes()).await.is_err() {
            return;
        }
        lines.clear();
    }
}
