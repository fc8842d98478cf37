//! Serves an engine in memory with one workflow that waits for an approval, until it is interrupted.
//!
//! `cargo run -p wigwag-server --example serve -- 127.0.0.1:7070`, then open `/v1/docs` there.
#![expect(clippy::print_stdout, reason = "an example says where it listens")]

use wigwag::{Ctx, Engine, Failure, LinkSecret, Settings};
use wigwag_server::{Metrics, Server};

async fn approve(ctx: Ctx, what: serde_json::Value) -> Result<serde_json::Value, Failure> {
    let answer: serde_json::Value = ctx.wait("approval").await?;
    ctx.step("note", || async { Ok::<_, Failure>(()) }).await?;
    Ok(serde_json::json!({"what": what, "answer": answer}))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7070".into());
    let mut settings = Settings::default();
    settings.link_secret = Some(LinkSecret::new("only for this example")?);
    let engine = Engine::open("memory:")?.settings(settings).function("approve", 1, approve).start().await?;
    let server = Server::builder(engine.client()).bind(addr.parse()?).metrics(Metrics::install()?).start().await?;
    // Spans go where `OTEL_EXPORTER_OTLP_ENDPOINT` says.
    #[cfg(feature = "otlp")]
    let _telemetry = wigwag_server::telemetry::init()?;
    println!("http://{}/v1/docs", server.addr());
    engine.client().start("approve", "a holiday").id("holiday").await?;
    std::future::pending::<()>().await;
    Ok(())
}
