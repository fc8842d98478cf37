//! What a run asks of its store, counted while it is driven.
//!
//! A layer around the engine's store counts each request for the task that makes it: who works for a run says so by
//! [`counted`], and all that this future asks, and nothing else, is in its [`Tally`]. Counted is what a bucket would be
//! asked: a PUT for each put of a batch, a LIST for each thousand keys. That costs a request a boxed future, a look at the
//! task and an addition.
//!
//! Does not hold: that every request is counted. What is asked after the last entry of a turn, by a turn that lost its run,
//! and by those who only look at the run, stands in no entry; what [`wigwag_store::Retry`] repeats below is not seen here.

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

/// What was asked for a run so far.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    puts: AtomicU64,
    gets: AtomicU64,
    lists: AtomicU64,
    deletes: AtomicU64,
}

impl Tally {
    /// That of the task, or one that nobody adds to.
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

    /// Lets what is asked by this future count here too.
    pub(crate) fn counts<F: Future>(self: &Arc<Self>, work: F) -> TaskLocalFuture<Arc<Self>, F> {
        TALLY.scope(Arc::clone(self), work)
    }
}

/// Counts what this future asks, apart from what was counted so far.
pub(crate) fn counted<F: Future>(work: F) -> TaskLocalFuture<Arc<Tally>, F> {
    Arc::<Tally>::default().counts(work)
}

/// What requests cost at the list prices of S3 Standard in dollars: storage and traffic are not in it.
///
/// ```
/// let requests = wigwag::core::Requests { puts: 8, gets: 3, ..Default::default() };
/// assert_eq!(wigwag::dollars(&requests), 0.0000412);
/// ```
#[must_use]
pub fn dollars(requests: &Requests) -> f64 {
    let Requests { puts, gets, lists, deletes } = *requests;
    let dollars = Usage { gets, puts, lists, deletes, ..Usage::default() }.dollars(Cost::S3_STANDARD);
    // All prices are multiples of this; what is beyond comes of adding fractions.
    (dollars * 1e7).round() / 1e7
}

/// What a batch asks.
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
    // Nobody drives a run here: nothing is counted.
    let _ = TALLY.try_with(|tally| tally.add(more));
}

/// A store that counts for whoever works for a run.
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
        // Where a batch stops at the first failure, what stands after it was never asked for.
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
