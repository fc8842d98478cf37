//! Client requests to runs: start, read, wait, cancel, pause, resume, restart, migrate.

mod control;
mod counts;
mod explain;
mod follow;
pub(crate) mod inbox;
mod list;
mod names;
pub(crate) mod signal;
mod start;
mod wait;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use wigwag_core::{Definition, Entry, Path, Payload, Point, Run, RunId, RunRef, Status, Time, limits};

pub(crate) use control::cancel_child;
pub use control::{Asked, Cancel, Migrate, Restart, Resume};
pub use counts::{Counts, TypeCounts};
pub use follow::Follow;
pub use inbox::{OpenWait, SignalView, SignalViews, WaitingRun, WaitingRuns, open_waits};
pub use list::{Filter, Listing, Summary};
pub(crate) use signal::signal_name;
pub use signal::{Consumed, Receipt, SignalAndWait, SignalCall, SignalState};
pub use start::{StartCall, SubmitCall, TaskOptions};
pub(crate) use start::{start_child, submit_child};

use crate::engine_core::EngineCore;
use crate::error::{Error, ErrorKind, Result};
use crate::keys::StartKey;
use crate::log;

/// Starts, signals, controls and inspects runs. Clones share one client.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) inner: Arc<EngineCore>,
}

/// A handle to the run of an id. The run may not exist.
#[derive(Clone, Debug)]
pub struct RunHandle {
    pub(crate) inner: Arc<EngineCore>,
    pub(crate) run: RunRef,
    pub(crate) warnings: Vec<String>,
    /// Name of the authenticated caller, recorded with control requests.
    pub(crate) caller: Option<Arc<str>>,
}

impl Client {
    /// Starts a workflow.
    ///
    /// An engine with its code drives it at once; otherwise a worker with its code will. Resolves when the run is
    /// durable. A second start with the same id, type and input returns the same run; with another type or input it
    /// is a conflict.
    #[expect(clippy::needless_pass_by_value, reason = "a key is a name, mostly a literal")]
    pub fn start<I: Serialize + ?Sized, K: StartKey<I>>(&self, of: K, input: &I) -> StartCall<K::Run> {
        StartCall::new(Arc::clone(&self.inner), of.name(), Payload::of(input))
    }

    /// Submits a task: one step, run by any worker that serves its queue.
    #[expect(clippy::needless_pass_by_value, reason = "a key is a name, mostly a literal")]
    pub fn submit<I: Serialize + ?Sized, K: StartKey<I>>(&self, of: K, input: &I) -> SubmitCall<K::Run> {
        SubmitCall::new(Arc::clone(&self.inner), of.name(), Payload::of(input))
    }

    /// The workflow run of that id.
    pub fn run(&self, id: impl AsRef<str>) -> Result<RunHandle> {
        Ok(self.handle(RunRef::workflow(RunId::new(id)?)))
    }

    /// The task of that id.
    pub fn task(&self, id: impl AsRef<str>) -> Result<RunHandle> {
        Ok(self.handle(RunRef::task(RunId::new(id)?)))
    }

    fn handle(&self, run: RunRef) -> RunHandle {
        RunHandle::new(&self.inner, run)
    }

    /// Lists a page of runs: unfinished ones first, then finished ones, the newest first.
    ///
    /// A run that does not change during the listing is on exactly one page, even if other runs change. A run that ends
    /// between two pages may be on both, as unfinished and as finished.
    pub async fn list(&self, filter: &Filter) -> Result<Listing> {
        list::list(&self.inner, filter).await
    }

    /// Counts runs by type and status, from keys alone: a LIST request for each thousand of them, and no run is read.
    pub async fn counts(&self) -> Result<Counts> {
        counts::counts(&self.inner).await
    }

    /// Checks with a small request that the store responds.
    pub async fn check(&self) -> Result<()> {
        self.inner.store.get(wigwag_store::LAYOUT_KEY).await?;
        Ok(())
    }

    /// The client's store. Writes that bypass the client are the caller's responsibility.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn wigwag_store::Store> {
        &self.inner.store
    }

    /// Delivers pending notifications to the servers on the same bucket, for at most a second; it never fails.
    ///
    /// Notifications are sent in the background. A program that starts or signals runs and ends at once should call this
    /// first, or the workers find its writes only by polling. [`Engine::stop`](crate::Engine::stop) calls it.
    pub async fn flush(&self) {
        if let Some(notices) = &self.inner.notices {
            notices.flush(&*self.inner.clock).await;
        }
    }

    /// Notifications of this process, where the store itself announces none.
    #[must_use]
    pub fn notices(&self) -> Option<&wigwag_store::Notices> {
        self.inner.notices.as_ref()
    }

    /// The stored definitions of a workflow, the newest last.
    pub async fn definitions(&self, of: &str) -> Result<Vec<Definition>> {
        control::definitions(&self.inner, &of.parse()?).await
    }
}

/// A read-only view of a run.
#[derive(Clone, Debug)]
pub struct RunView {
    run: Run,
}

impl RunView {
    /// Id of the run.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.run.run.id
    }

    /// Name of the run's workflow or task.
    #[must_use]
    pub fn of(&self) -> &str {
        self.run.of.as_str()
    }

    /// Status of the run.
    #[must_use]
    pub fn status(&self) -> Status {
        self.run.status
    }

    /// Returns the folded record of the run.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }

    /// The steps that are in memory; [`RunHandle::steps`] reads all steps of a long run.
    #[must_use]
    pub fn steps(&self) -> &BTreeMap<Path, Point> {
        &self.run.points
    }

    /// Time of the next due timer, if the run is parked and has one.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        self.run.next_at
    }
}

impl RunHandle {
    pub(crate) fn new(inner: &Arc<EngineCore>, run: RunRef) -> Self {
        Self { inner: Arc::clone(inner), run, warnings: Vec::new(), caller: None }
    }

    /// Id of the run.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.run.id
    }

    /// Names the caller whom the run's log records as the one who cancelled, paused, resumed, restarted or migrated it.
    /// At most [`limits::SENDER_BYTES_MAX`] bytes of the name are kept.
    #[must_use]
    pub fn on_behalf_of(mut self, caller: &str) -> Self {
        let end = caller.floor_char_boundary(limits::SENDER_BYTES_MAX);
        self.caller = Some(caller[..end].into());
        self
    }

    pub(crate) async fn read(&self) -> Result<log::Loaded> {
        log::read(&*self.inner.store, &self.run).await?.ok_or_else(|| self.not_found())
    }

    fn not_found(&self) -> Error {
        let what = match self.run.family {
            wigwag_core::Family::Workflow => "run",
            wigwag_core::Family::Task => "task",
        };
        Error::new(ErrorKind::NotFound, format!("{what} not found: `{}`", self.run.id))
            .hint("list runs with `wigwag list`")
    }

    /// Reads the run.
    pub async fn get(&self) -> Result<RunView> {
        Ok(RunView { run: self.read().await?.run })
    }

    /// Reads the status of the run.
    pub async fn status(&self) -> Result<Status> {
        Ok(self.read().await?.run.status)
    }

    /// Reads all steps of the run, by path.
    pub async fn steps(&self) -> Result<BTreeMap<Path, Point>> {
        let loaded = log::read_whole(&*self.inner.store, &self.run).await?.ok_or_else(|| self.not_found())?;
        Ok(loaded.run.points)
    }

    /// Reads at most `limit` entries of the run's log, from number `from` (the first is 1).
    pub async fn history(&self, from: u64, limit: u64) -> Result<Vec<Entry>> {
        let from = from.max(1);
        let mut entries = Vec::new();
        while (entries.len() as u64) < limit {
            let next = from.saturating_add(entries.len() as u64);
            let wanted = (limit - entries.len() as u64).min(16);
            let more = log::read_entries(&*self.inner.store, &self.run, next, next.saturating_add(wanted)).await?;
            let found = more.len() as u64;
            entries.extend(more);
            if found < wanted {
                break;
            }
        }
        match entries.is_empty() && from == 1 {
            true => Err(self.not_found()),
            false => Ok(entries),
        }
    }

    /// Reads the recorded result of a step, inline or in an object.
    pub async fn output<T: DeserializeOwned>(&self, step: &str) -> Result<T> {
        let path = Path::new(step)?;
        let steps = self.steps().await?;
        let point = steps.get(&path).and_then(|point| point.result.clone());
        let data = point.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("step `{step}` of `{}` has no result", self.run.id))
        })?;
        Ok(self.inner.payload(&self.run, Some(&path), &data).await?.read()?)
    }

    /// Reads the input of the run, as JSON.
    pub async fn input(&self) -> Result<Payload> {
        let input = self.read().await?.run.input;
        self.inner.payload(&self.run, None, &input).await
    }

    /// Reads the result of the run, as JSON; `None` unless it completed.
    pub async fn output_payload(&self) -> Result<Option<Payload>> {
        match self.read().await?.run.result {
            Some(result) => Ok(Some(self.inner.payload(&self.run, None, &result).await?)),
            None => Ok(None),
        }
    }
}
