//! A layer: the keys below a prefix as a separate store.

use std::sync::Arc;

use async_trait::async_trait;

use crate::batch::Operation;
use crate::{Batch, Changes, Error, Now, Object, Page, Peers, Receipt, Result, Store, Traits};

/// A store whose keys are all below `{prefix}/` of another.
#[derive(Clone, Debug)]
pub struct Prefix<S> {
    inner: S,
    /// Ends in `/`, or is empty.
    prefix: String,
}

impl<S: Store> Prefix<S> {
    /// Puts a layer around a store. The prefix is one or more segments; an empty one changes nothing.
    pub fn new(inner: S, prefix: &str) -> Result<Self> {
        let prefix = prefix.trim_matches('/');
        if prefix.is_empty() {
            return Ok(Self { inner, prefix: String::new() });
        }
        crate::check_key(prefix)?;
        Ok(Self { inner, prefix: format!("{prefix}/") })
    }

    fn full(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    /// Shows callers the key without the prefix.
    fn show(&self, error: Error) -> Error {
        let own = error.key().strip_prefix(&self.prefix).map(str::to_owned);
        match own {
            Some(own) => {
                let action = error.action();
                error.on(action, &own)
            }
            None => error,
        }
    }
}

#[async_trait]
impl<S: Store> Store for Prefix<S> {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        crate::check_key(key)?;
        self.inner.get(&self.full(key)).await.map_err(|error| self.show(error))
    }

    async fn write(&self, mut batch: Batch) -> Result<Receipt> {
        batch.check()?;
        for operation in Arc::make_mut(&mut batch.operations) {
            match operation {
                Operation::Put(put) => put.key = self.full(&put.key),
                Operation::Delete(delete) => delete.key = self.full(&delete.key),
            }
        }
        for clear in Arc::make_mut(&mut batch.clear) {
            (clear.prefix, clear.after) = (self.full(&clear.prefix), self.full(&clear.after));
            clear.known = clear.known.iter().map(|key| self.full(key)).collect();
        }
        self.inner.write(batch).await.map_err(|error| self.show(error))
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        let after = if after.is_empty() { String::new() } else { self.full(after) };
        let mut page = self.inner.list(&self.full(prefix), &after, limit).await.map_err(|error| self.show(error))?;
        for entry in &mut page.entries {
            entry.key.drain(..self.prefix.len());
        }
        Ok(page)
    }

    async fn now(&self) -> Result<Now> {
        self.inner.now().await
    }

    fn changes(&self, prefix: &str) -> Changes {
        self.inner.changes(&self.full(prefix)).without_first(self.prefix.len())
    }

    fn traits(&self) -> Traits {
        self.inner.traits()
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.inner.peers()
    }
}
