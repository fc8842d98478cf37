//! A store that fails or hangs on demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use wigwag_store::{Batch, Changes, Faults, Faulty, Memory, Now, Object, Page, Peers, Receipt, Result, Store, Traits};

#[derive(Debug)]
pub(crate) struct Gate {
    calm: Arc<dyn Store>,
    faulty: Faulty<Arc<dyn Store>>,
    shut: AtomicBool,
}

impl Gate {
    pub(crate) fn new(faults: Faults) -> Arc<Self> {
        let calm: Arc<dyn Store> = Arc::new(Memory::new());
        let faulty = Faulty::new(Arc::clone(&calm), faults, 1);
        Arc::new(Self { calm, faulty, shut: AtomicBool::new(false) })
    }

    /// Returns the inner store, which never fails.
    pub(crate) fn calm(&self) -> Arc<dyn Store> {
        Arc::clone(&self.calm)
    }

    pub(crate) fn shut(&self, shut: bool) {
        self.shut.store(shut, Ordering::SeqCst);
    }

    fn store(&self) -> &dyn Store {
        if self.shut.load(Ordering::SeqCst) { &self.faulty } else { &*self.calm }
    }
}

#[async_trait::async_trait]
impl Store for Gate {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        self.store().get(key).await
    }
    async fn write(&self, batch: Batch) -> Result<Receipt> {
        self.store().write(batch).await
    }
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        self.store().list(prefix, after, limit).await
    }
    async fn now(&self) -> Result<Now> {
        self.store().now().await
    }
    fn changes(&self, prefix: &str) -> Changes {
        self.calm.changes(prefix)
    }
    fn traits(&self) -> Traits {
        self.calm.traits()
    }
    fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.calm.peers()
    }
}
