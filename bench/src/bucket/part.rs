//! Parts of the benchmark: the opened bucket, the workflows, and a worker in a separate process.

use std::io::Read as _;

use tokio::signal::unix::{SignalKind, signal};
use wigwag::{Builder, Ctx, Engine, Failure};
use wigwag_store::{Clock as _, OpenSettings, Opened, System};

use crate::http::Result;

/// Opens the bucket below a prefix, with the notifications of this process.
pub(super) fn opened(endpoint: &str, prefix: &str) -> Result<Opened> {
    let mut settings = OpenSettings::default();
    settings.bucket.endpoint = Some(endpoint.to_owned());
    settings.bucket.allow_http = true;
    if std::env::var_os("AWS_ACCESS_KEY_ID").is_none() {
        settings.bucket.keys = Some(("wigwag".to_owned(), "wigwag".to_owned()));
    }
    settings.fleet.is_wanted = wigwag::concerns_others;
    Ok(wigwag_store::open(&format!("s3://wigwag/{prefix}"), &settings)?)
}

/// Counts the requests of a process to the bucket.
#[derive(Debug)]
pub(super) struct Counted<'a>(pub(super) &'a Opened);

impl Counted<'_> {
    pub(super) fn gets(&self) -> u64 {
        self.0.usage().gets
    }
}

pub(super) fn workflows(engine: Builder) -> Builder {
    engine
        .function("steps", 1, |ctx: Ctx, (): ()| async move {
            for step in ["one", "two", "three"] {
                ctx.step(step, || async { Ok::<_, Failure>(()) }).await?;
            }
            Ok::<_, Failure>(3_u32)
        })
        .function("go", 1, |ctx: Ctx, (): ()| async move { ctx.wait::<u32>("go").await })
        .function("stamp", 1, |ctx: Ctx, (): ()| async move {
            ctx.step("first", || async { Ok::<_, Failure>(System.wall().micros()) }).await
        })
}

/// Runs until it gets the stop command, or its parent process ends.
pub(crate) fn work(endpoint: &str, prefix: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let worked = runtime.block_on(async {
        let engine = workflows(Engine::on(opened(endpoint, prefix)?)).start().await?;
        println!("listening 127.0.0.1:0");
        let mut told = signal(SignalKind::terminate())?;
        let orphaned = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
        tokio::select! {
            _ = told.recv() => {}
            _ = orphaned => {}
        }
        engine.stop().await;
        Ok(())
    });
    // Does not wait for the thread that reads the input, which may never end.
    runtime.shutdown_background();
    worked
}
