//! The measured bucket: `/s3` of a server on a store in memory with a delay, or a real S3 server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use wigwag::Engine;
use wigwag_server::{Running, Server, Settings};
use wigwag_store::{
    Batch, BucketSettings, Changes, Clock as _, Error, ErrorKind, Memory, Now, Object, Page, Peers, Receipt, Result,
    Store, System, Traits,
};

/// A bucket that can be reached at an endpoint.
#[derive(Debug)]
pub(super) struct Bucket {
    endpoint: String,
    own: Option<(Running, Switch)>,
}

/// Makes the bucket unavailable, and available again.
#[derive(Clone, Debug, Default)]
pub(super) struct Switch(Arc<AtomicBool>);

impl Switch {
    pub(super) fn set(&self, down: bool) {
        self.0.store(down, Ordering::Release);
    }
}

impl Bucket {
    pub(super) async fn start(delay: Duration, endpoint: Option<String>) -> crate::http::Result<Self> {
        if let Some(endpoint) = endpoint {
            return Ok(Self { endpoint, own: None });
        }
        let switch = Switch::default();
        let store = Slow { memory: Memory::new(), delay, switch: switch.clone(), refusal: refusal().await? };
        let mut settings = Settings::default();
        settings.s3_write = true;
        settings.address_connections_max = 10_000;
        let client = Engine::builder(Arc::new(store)).client().await?;
        let running = Server::builder(client).bind(([127, 0, 0, 1], 0).into()).settings(settings).start().await?;
        Ok(Self { endpoint: format!("http://{}/s3", running.addr()), own: Some((running, switch)) })
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// A real server cannot be made unavailable.
    pub(super) fn switch(&self) -> Option<&Switch> {
        self.own.as_ref().map(|(_, switch)| switch)
    }
}

/// A store in memory whose requests take as long as those to a bucket.
#[derive(Debug)]
struct Slow {
    memory: Memory,
    delay: Duration,
    switch: Switch,
    /// Error of every request while it is unavailable.
    refusal: Error,
}

/// The error of a bucket that cannot be reached, which `/s3` passes on as 503.
async fn refusal() -> crate::http::Result<Error> {
    let mut settings = BucketSettings::default();
    // No process listens on port 9 (discard).
    settings.endpoint = Some("http://127.0.0.1:9".to_owned());
    settings.allow_http = true;
    settings.keys = Some(("wigwag".to_owned(), "wigwag".to_owned()));
    match wigwag_store::Bucket::open("s3://away", &settings)?.get("k").await {
        Err(error) if error.kind() == ErrorKind::Unavailable => Ok(error),
        other => Err(format!("want a bucket that cannot be reached, got: {other:?}").into()),
    }
}

impl Slow {
    async fn pass(&self) -> Result<()> {
        System.sleep(self.delay).await;
        match self.switch.0.load(Ordering::Acquire) {
            true => Err(self.refusal.clone()),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Store for Slow {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        self.pass().await?;
        self.memory.get(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Receipt> {
        self.pass().await?;
        self.memory.write(batch).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        self.pass().await?;
        self.memory.list(prefix, after, limit).await
    }

    async fn now(&self) -> Result<Now> {
        self.memory.now().await
    }

    fn changes(&self, prefix: &str) -> Changes {
        self.memory.changes(prefix)
    }

    fn traits(&self) -> Traits {
        self.memory.traits()
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        None
    }
}
