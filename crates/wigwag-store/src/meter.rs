//! A layer: counts requests by kind, bytes, and their cost at list price.
//!
//! Counts requests as on a bucket: one PUT for each put, one LIST for each thousand keys. A request is counted
//! when it is made, whether it succeeds or not, because it is billed either way. It costs a few atomic
//! additions per operation, so it is always enabled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;

use crate::limits::LIST_PAGE;
use crate::{Batch, Changes, Now, Object, Operation, Page, Peers, Receipt, Result, Store, Traits};

/// A store that counts its requests.
#[derive(Clone, Debug)]
pub struct Meter<S> {
    inner: S,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    gets: AtomicU64,
    puts: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
    bytes_read: AtomicU64,
    bytes_written: AtomicU64,
}

/// Requests to a store so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Objects read, found or not.
    pub gets: u64,
    /// Objects written, including rejected puts.
    pub puts: u64,
    /// Pages of keys listed.
    pub lists: u64,
    /// Objects deleted; buckets do not charge for that.
    pub deletes: u64,
    /// Bytes of bodies read.
    pub bytes_read: u64,
    /// Bytes of bodies written.
    pub bytes_written: u64,
}

/// Prices of requests, in dollars per million.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Price of a GET.
    pub get: f64,
    /// PUT and LIST.
    pub put: f64,
}

impl Cost {
    /// List price of S3 Standard, us-east-1.
    pub const S3_STANDARD: Self = Self { get: 0.40, put: 5.00 };
}

impl Usage {
    /// Dollars for these requests at a price; storage and traffic are not in it.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "2^53 requests cost more than there is money")]
    pub fn dollars(&self, cost: Cost) -> f64 {
        (self.gets as f64 * cost.get + (self.puts + self.lists) as f64 * cost.put) / 1e6
    }

    /// The difference to an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            gets: self.gets.saturating_sub(earlier.gets),
            puts: self.puts.saturating_sub(earlier.puts),
            lists: self.lists.saturating_sub(earlier.lists),
            deletes: self.deletes.saturating_sub(earlier.deletes),
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
        }
    }
}

impl<S: Store> Meter<S> {
    /// Puts a meter around a store.
    pub fn new(inner: S) -> Self {
        Self { inner, counts: Arc::default() }
    }

    /// Reads the meter.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Usage {
            gets: read(&self.counts.gets),
            puts: read(&self.counts.puts),
            lists: read(&self.counts.lists),
            deletes: read(&self.counts.deletes),
            bytes_read: read(&self.counts.bytes_read),
            bytes_written: read(&self.counts.bytes_written),
        }
    }

    fn count_batch(&self, operations: &[Operation]) {
        let (mut puts, mut deletes, mut bytes) = (0, 0, 0);
        for operation in operations {
            match operation {
                Operation::Put(put) => {
                    puts += 1;
                    bytes += put.body.len();
                }
                Operation::Delete(_) => deletes += 1,
            }
        }
        add(&self.counts.puts, puts);
        add(&self.counts.deletes, deletes);
        add(&self.counts.bytes_written, bytes);
    }
}

fn add(count: &AtomicU64, more: usize) {
    if more > 0 {
        count.fetch_add(more as u64, Ordering::Relaxed);
    }
}

#[async_trait]
impl<S: Store> Store for Meter<S> {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        let object = self.inner.get(key).await;
        add(&self.counts.gets, 1);
        if let Ok(Some(object)) = &object {
            add(&self.counts.bytes_read, object.body.len());
        }
        object
    }

    async fn write(&self, batch: Batch) -> Result<Receipt> {
        let whole = self.inner.traits().atomic;
        if whole {
            self.count_batch(&batch.operations);
            return self.inner.write(batch).await;
        }
        // If a batch stops at the first failure, the operations after it were never requested.
        let operations = batch.operations.clone();
        let receipt = self.inner.write(batch).await;
        let asked = receipt.as_ref().map_or_else(|error| error.landed() + 1, |_| operations.len());
        self.count_batch(&operations[..asked.min(operations.len())]);
        receipt
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        let page = self.inner.list(prefix, after, limit).await;
        let keys = page.as_ref().map_or(0, |page| page.entries.len());
        add(&self.counts.lists, keys.div_ceil(LIST_PAGE).max(1));
        page
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Memory;

    #[tokio::test]
    async fn every_request_is_counted_by_its_kind() {
        let store = Meter::new(Memory::new());
        store.write(Batch::new().create("a", "123").put("b", "45").delete("c")).await.unwrap();
        store.get("a").await.unwrap();
        store.get("nothing").await.unwrap();
        store.list("", "", 10).await.unwrap();
        let usage = store.usage();
        assert_eq!(usage, Usage { gets: 2, puts: 2, lists: 1, deletes: 1, bytes_read: 3, bytes_written: 5 });
        assert!((usage.dollars(Cost::S3_STANDARD) - 15.8e-6).abs() < 1e-12);
    }

    #[tokio::test]
    async fn a_batch_that_stops_half_way_is_counted_as_far_as_it_went() {
        let store = Meter::new(Memory::bucket());
        store.write(Batch::new().create("a", "1")).await.unwrap();
        let before = store.usage();
        store.write(Batch::new().put("hint", "").create("a", "22").put("never", "333")).await.unwrap_err();
        let usage = store.usage().since(&before);
        assert_eq!((usage.puts, usage.bytes_written), (2, 2));
    }
}
