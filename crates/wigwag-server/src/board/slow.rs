//! A store for tests whose requests take virtual time.
#![expect(clippy::disallowed_methods, reason = "tests with paused time own the time of tokio")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use wigwag_store::{Batch, Changes, Now, Object, Page, Peers, Receipt, Result, Store, Traits};

#[derive(Debug)]
pub(super) struct Slow {
    pub(super) inner: Arc<dyn Store>,
    pub(super) delay: Duration,
}

#[async_trait]
impl Store for Slow {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        tokio::time::sleep(self.delay).await;
        self.inner.get(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Receipt> {
        tokio::time::sleep(self.delay).await;
        self.inner.write(batch).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        tokio::time::sleep(self.delay).await;
        self.inner.list(prefix, after, limit).await
    }

    async fn now(&self) -> Result<Now> {
        self.inner.now().await
    }

    fn changes(&self, prefix: &str) -> Changes {
        self.inner.changes(prefix)
    }

    fn traits(&self) -> Traits {
        self.inner.traits()
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.inner.peers()
    }
}
