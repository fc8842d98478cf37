//! A greeting, made by a worker that has no store of its own: it uses that of a server, over HTTP.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use wigwag::store::{Clock as _, System};
use wigwag::{Builder, Ctx, Failure, Settings};
use wigwag_server::{Metrics, Running, Server};

/// The workflow's name.
pub const NAME: &str = "greet";

/// What comes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// The words.
    pub text: String,
    /// When its first step began, in microseconds since 1970, by the worker's clock.
    pub began: u64,
}

/// The code, which only workers have.
pub async fn greet(ctx: Ctx, name: String) -> Result<Greeting, Failure> {
    let began = ctx.step("begin", || async { Ok::<_, Failure>(System.wall().micros()) }).await?;
    let text = ctx.step("compose", || std::future::ready(Ok::<_, Failure>(format!("hello {name}")))).await?;
    Ok(Greeting { text, began })
}

/// A worker that looks for work this often where nobody nudges it.
pub fn worker(engine: Builder, look_every: Duration) -> Builder {
    let mut settings = Settings::default();
    (settings.look_min, settings.look_max) = (look_every, look_every);
    engine.settings(settings).function(NAME, 1, greet)
}

/// Serves a store and runs nothing: workers come from elsewhere.
pub async fn serve(store: &str, addr: std::net::SocketAddr) -> Result<Running, Box<dyn std::error::Error>> {
    let client = wigwag::Engine::open(store)?.client().await?;
    let mut settings = wigwag_server::Settings::default();
    // Unauthenticated writes: it listens on loopback only, and its workers have no keys.
    settings.s3_write = true;
    Ok(Server::builder(client).settings(settings).bind(addr).metrics(Metrics::install()?).start().await?)
}
