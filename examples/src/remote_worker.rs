//! A greeting by a worker without a store of its own: it uses the store of a server, over HTTP.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use wigwag::store::{Clock as _, System};
use wigwag::{Builder, Ctx, Failure, Settings};
use wigwag_server::{Metrics, Running, Server};

/// Name of the workflow.
pub const NAME: &str = "greet";

/// Result of the workflow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// Text of the greeting.
    pub text: String,
    /// Start of the first step, in microseconds since 1970, by the worker's clock.
    pub began: u64,
}

/// The workflow's code, which only workers have.
pub async fn greet(ctx: Ctx, name: String) -> Result<Greeting, Failure> {
    let began = ctx.step("begin", || async { Ok::<_, Failure>(System.wall().micros()) }).await?;
    let text = ctx.step("compose", || std::future::ready(Ok::<_, Failure>(format!("hello {name}")))).await?;
    Ok(Greeting { text, began })
}

/// Configures a worker that polls at this interval when it gets no notifications.
pub fn worker(engine: Builder, look_every: Duration) -> Builder {
    let mut settings = Settings::default();
    (settings.look_min, settings.look_max) = (look_every, look_every);
    engine.settings(settings).function(NAME, 1, greet)
}

/// Serves a store without running workflows; workers connect from other processes.
pub async fn serve(store: &str, addr: std::net::SocketAddr) -> Result<Running, Box<dyn std::error::Error>> {
    let client = wigwag::Engine::open(store)?.client().await?;
    let mut settings = wigwag_server::Settings::default();
    // Unauthenticated writes are acceptable: the server listens on loopback only, and its workers have no keys.
    settings.s3_write = true;
    Ok(Server::builder(client).settings(settings).bind(addr).metrics(Metrics::install()?).start().await?)
}
