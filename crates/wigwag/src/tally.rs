//! Store requests of a run, counted during its turns.
//!
//! A layer around the engine's store counts each request for the task that makes it. [`counted`] runs a future for a
//! run, and the requests of this future, and no others, are in its [`Tally`]. Requests are counted as on a bucket: a
//! PUT for each put of a batch, a LIST for each thousand keys. This costs each request a boxed future, a task-local
//! read and an addition.
//!
//! Does not hold: that every request is counted. Requests after the last entry of a turn, of a turn that lost its run,
//! and of readers of the run are in no entry; retries by [`wigwag_store::Retry`] below this layer are not seen here.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tokio::task::futures::TaskLocalFuture;
use wigwag_core::Requests;
use wigwag_store::limits::LIST_PAGE;
use wigwag_store::{Batch, Changes, Cost, Now, Object, Operation, Page, Peers, Receipt, Result, Store, Traits, Usage};

tokio::task_local! {
    static TALLY: Arc<Tally>;
}

/// Counts of the requests for a run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    puts: AtomicU64,
    gets: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
}

impl Tally {
    /// The tally of the current task, or a detached one.
    pub(crate) fn current() -> Arc<Self> {
        TALLY.try_with(Arc::clone).unwrap_or_default()
    }

    pub(crate) fn read(&self) -> Requests {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Requests {
            puts: read(&self.puts),
            gets: read(&self.gets),
            lists: read(&self.lists),
            deletes: read(&self.deletes),
        }
    }

    fn add(&self, more: Requests) {
        let add = |count: &AtomicU64, more| {
            if more > 0 {
                count.fetch_add(more, Ordering::Relaxed);
            }
        };
        add(&self.puts, more.puts);
        add(&self.gets, more.gets);
        add(&self.lists, more.lists);
        add(&self.deletes, more.deletes);
    }

    /// Counts the requests of this future in this tally too.
    pub(crate) fn counts<F: Future>(self: &Arc<Self>, work: F) -> TaskLocalFuture<Arc<Self>, F> {
        TALLY.scope(Arc::clone(self), work)
    }
}

/// Counts the requests of this future in a new tally.
pub(crate) fn counted<F: Future>(work: F) -> TaskLocalFuture<Arc<Tally>, F> {
    Arc::<Tally>::default().counts(work)
}

/// What requests cost at the list prices of S3 Standard in dollars: storage and traffic are not in it.
///
/// ```
/// let requests = wigwag_core::Requests { puts: 8, gets: 3, ..Default::default() };
/// assert_eq!(wigwag::dollars(&requests), 0.0000412);
/// ```
#[must_use]
pub fn dollars(requests: &Requests) -> f64 {
    let Requests { puts, gets, lists, deletes } = *requests;
    let dollars = Usage { gets, puts, lists, deletes, ..Usage::default() }.dollars(Cost::S3_STANDARD);
    // All prices are multiples of this; the rest is a rounding error of sums.
    (dollars * 1e7).round() / 1e7
}

/// Requests of a batch.
pub(crate) fn of_batch(batch: &Batch) -> Requests {
    batch.operations().iter().map(of_operation).fold(Requests::default(), Requests::and)
}

fn of_operation(operation: &Operation) -> Requests {
    match operation {
        Operation::Put(_) => Requests { puts: 1, ..Requests::default() },
        Operation::Delete(_) => Requests { deletes: 1, ..Requests::default() },
        _ => Requests::default(),
    }
}

fn note(more: Requests) {
    // Outside a counted future no run is driven, so nothing is counted.
    let _ = TALLY.try_with(|tally| tally.add(more));
}

/// A store that counts requests for the current task's run.
#[derive(Debug)]
pub(crate) struct Counted {
    inner: Arc<dyn Store>,
}

impl Counted {
    pub(crate) fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner }
    }
}

#[async_trait]
impl Store for Counted {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        note(Requests { gets: 1, ..Requests::default() });
        self.inner.get(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Receipt> {
        if self.inner.traits().atomic {
            note(of_batch(&batch));
            return self.inner.write(batch).await;
        }
        // If a batch stops at the first failure, the operations after it were never requested.
        let each: Vec<Requests> = batch.operations().iter().map(of_operation).collect();
        let receipt = self.inner.write(batch).await;
        let asked = receipt.as_ref().map_or_else(|error| error.landed() + 1, |_| each.len());
        note(each.into_iter().take(asked).fold(Requests::default(), Requests::and));
        receipt
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        let page = self.inner.list(prefix, after, limit).await;
        let keys = page.as_ref().map_or(0, |page| page.entries.len());
        note(Requests { lists: keys.div_ceil(LIST_PAGE).max(1) as u64, ..Requests::default() });
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
