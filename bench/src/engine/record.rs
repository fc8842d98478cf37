//! Records the writes of a run once, so that the raw store can commit the same batches.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use wigwag::{RunId, Time};
use wigwag_store::{
    Batch, Changes, Clock as _, Now, Object, Operation, Page, Peers, Receipt, Result, Store, System, Traits, When,
};

/// A store that keeps a copy of every batch.
#[derive(Debug)]
pub(crate) struct Recorder<S> {
    inner: S,
    batches: Mutex<Vec<Batch>>,
}

impl<S: Store> Recorder<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, batches: Mutex::default() }
    }

    /// Returns the batches that name this run in a key, in the order in which they were written.
    pub(crate) fn batches_of(&self, id: &RunId) -> Vec<Batch> {
        let batches = self.batches.lock().unwrap_or_else(PoisonError::into_inner);
        let names = |batch: &&Batch| batch.operations().iter().any(|operation| operation.key().contains(id.as_str()));
        batches.iter().filter(names).cloned().collect()
    }
}

#[async_trait]
impl<S: Store> Store for Recorder<S> {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        self.inner.get(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Receipt> {
        self.batches.lock().unwrap_or_else(PoisonError::into_inner).push(batch.clone());
        self.inner.write(batch).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
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

/// The commits of one run, with placeholders for its id.
#[derive(Debug)]
pub(crate) struct Script {
    commits: Vec<Vec<Line>>,
}

#[derive(Debug)]
enum Line {
    Put { key: Gapped, body: Gapped, when: When },
    Delete { key: Gapped },
}

impl Line {
    fn key(&self) -> &Gapped {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// Text split at the places of the id.
#[derive(Debug)]
struct Gapped(Vec<String>);

impl Gapped {
    fn new(text: &str, id: &RunId) -> Self {
        Self(text.split(id.as_str()).map(str::to_owned).collect())
    }

    fn with(&self, id: &str) -> String {
        self.0.join(id)
    }
}

impl Script {
    pub(crate) fn new(batches: &[Batch], id: &RunId) -> std::result::Result<Self, Box<dyn std::error::Error>> {
        let mut commits = Vec::new();
        for batch in batches {
            let mut lines = Vec::new();
            for operation in batch.operations() {
                let key = Gapped::new(operation.key(), id);
                lines.push(match operation {
                    Operation::Put(put) if matches!(put.when, When::Version(_)) => {
                        return Err(format!("a put on a version cannot be replayed: `{}`", put.key).into());
                    }
                    Operation::Put(put) => {
                        let body = Gapped::new(std::str::from_utf8(&put.body)?, id);
                        Line::Put { key, body, when: put.when.clone() }
                    }
                    _ => Line::Delete { key },
                });
            }
            commits.push(lines);
        }
        Ok(Self { commits })
    }

    pub(crate) fn commits(&self) -> usize {
        self.commits.len()
    }

    /// Returns the number of puts and deletes of these commits, and the bytes of keys and bodies.
    pub(crate) fn size(&self, places: Range<usize>) -> (usize, usize, usize) {
        let id = new_id();
        let batches: Vec<Batch> = places.map(|place| self.batch(place, id.as_str())).collect();
        let operations = batches.iter().flat_map(Batch::operations);
        let keys: usize = operations.clone().map(|operation| operation.key().len()).sum();
        let puts: usize = batches.iter().map(|batch| batch.puts().count()).sum();
        let bodies: usize = batches.iter().map(Batch::body_bytes).sum();
        (puts, operations.count() - puts, keys + bodies)
    }

    /// Returns the position of the first commit that has such a key.
    pub(crate) fn place_of(&self, part: &str) -> Option<usize> {
        let names = |line: &Line| line.key().0.iter().any(|text| text.contains(part));
        self.commits.iter().position(|lines| lines.iter().any(names))
    }

    /// Returns only the log entry of a commit, for a run with this id.
    pub(crate) fn entry(&self, place: usize, id: &str) -> Batch {
        let batch = self.batch(place, id);
        batch.conditional().map_or_else(Batch::new, |put| Batch::new().create(&put.key, put.body.clone()))
    }

    /// Returns one commit, for a run with this id.
    pub(crate) fn batch(&self, place: usize, id: &str) -> Batch {
        self.commits[place].iter().fold(Batch::new(), |batch, line| match line {
            Line::Put { key, body, when } => batch.put_when(key.with(id), Bytes::from(body.with(id)), when.clone()),
            Line::Delete { key } => batch.delete(key.with(id)),
        })
    }
}

/// Creates an id like the engine: the time, then random digits.
pub(crate) fn new_id() -> RunId {
    RunId::at(Time::from_micros(System.wall().micros()), fastrand::u128(..))
}
