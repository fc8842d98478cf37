//! The engine: a store, the code of workflows, and the workers and services that run them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use wigwag_core::{Name, TypeName};
use wigwag_store::{Clock, LAYOUT_KEY, Layout, OpenSettings, Store, System};

use crate::client::Client;
use crate::context::{Ctx, StepCtx};
use crate::error::{Error, Result};
use crate::failure::Failure;
use crate::graph::Graph;
use crate::inner::{Inner, Stop};
use crate::settings::Settings;
use crate::workflow::{
    FunctionHandler, Registry, StepHandler, Workflow, default_queue, function_handler, step_handler,
};
use crate::{service, worker};

/// Runs workflows. Dropped, it stops at once, as a crash would; [`Engine::stop`] is kinder.
#[derive(Debug)]
pub struct Engine {
    inner: Arc<Inner>,
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only test kits ask"))]
    pub(crate) asks: mpsc::Sender<worker::Ask>,
    tasks: Vec<JoinHandle<()>>,
}

/// An engine about to be started.
#[must_use = "an engine runs once `start` is awaited"]
pub struct Builder {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    settings: Settings,
    workflows: Vec<Workflow>,
    tasks: Vec<Workflow>,
    queues: Vec<String>,
    mistake: Option<Error>,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("store", &self.store)
            .field("workflows", &self.workflows)
            .finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine on the store that a URL names: `./dir`, `memory:`, `s3://bucket/prefix`, `gs://…`, `az://…`, or a server's
    /// `http://host:port/s3`.
    ///
    /// Blocks while an embedded store is opened.
    pub fn open(url: &str) -> Result<Builder> {
        let opened = wigwag_store::open(url, &OpenSettings::default())?;
        Ok(Self::builder(opened.store))
    }

    /// An engine on this store.
    pub fn builder(store: Arc<dyn Store>) -> Builder {
        Builder {
            store,
            clock: Arc::new(System),
            settings: Settings::default(),
            workflows: Vec::new(),
            tasks: Vec::new(),
            queues: Vec::new(),
            mistake: None,
        }
    }

    /// Asks things of runs.
    #[must_use]
    pub fn client(&self) -> Client {
        Client { inner: Arc::clone(&self.inner) }
    }

    /// How many runs it drives at the moment.
    #[must_use]
    pub fn active_runs(&self) -> usize {
        self.inner.active_count()
    }

    /// Stops: nothing new begins, running steps may finish within the grace time, and all runs are given back.
    pub async fn stop(mut self) {
        self.inner.set_stop(Stop::Drain);
        let deadline = self.inner.clock.boot() + self.inner.settings.grace;
        while !self.inner.is_at_rest() {
            let left = deadline.saturating_sub(self.inner.clock.boot());
            if left.is_zero() {
                self.inner.set_stop(Stop::Now);
            }
            let clock = Arc::clone(&self.inner.clock);
            let left = left.clamp(Duration::from_millis(10), Duration::from_millis(200));
            tokio::select! {
                biased;
                () = self.inner.idle.notified() => {}
                () = clock.sleep(left) => {}
            }
        }
        for task in self.tasks.drain(..) {
            let _ = task.await;
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.inner.set_stop(Stop::Dead);
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Builder {
    /// Adds a graph.
    pub fn workflow<S: Serialize + DeserializeOwned + 'static>(mut self, graph: Graph<S>) -> Self {
        match graph.build() {
            Ok(workflow) => self.workflows.push(workflow),
            Err(error) => _ = self.mistake.get_or_insert(error),
        }
        self
    }

    /// Adds a function, with its version.
    pub fn function<I, F, Fut, O, E>(self, name: &str, version: u32, code: F) -> Self
    where
        F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: DeserializeOwned + 'static,
        O: Serialize + 'static,
        E: Into<Failure> + 'static,
    {
        self.function_dyn(name, version, function_handler(code))
    }

    /// Adds a function by its handler: for other languages.
    pub fn function_dyn(mut self, name: &str, version: u32, code: Arc<dyn FunctionHandler>) -> Self {
        match Name::new(name) {
            Ok(name) => self.workflows.push(Workflow::function(name.into(), version, code)),
            Err(refusal) => _ = self.mistake.get_or_insert(refusal.into()),
        }
        self
    }

    /// Adds the code of a task.
    pub fn task<I, F, Fut, O, E>(self, name: &str, code: F) -> Self
    where
        F: Fn(StepCtx<I>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: 'static,
        O: Serialize + 'static,
        E: Into<Failure> + 'static,
    {
        self.task_dyn(name, step_handler(code))
    }

    /// Adds the code of a task by its handler: for other languages.
    pub fn task_dyn(mut self, name: &str, code: Arc<dyn StepHandler>) -> Self {
        match Name::new(name) {
            Ok(name) => self.tasks.push(Workflow::task(TypeName::from(name), code)),
            Err(refusal) => _ = self.mistake.get_or_insert(refusal.into()),
        }
        self
    }

    /// The queues whose tasks it takes; `default` unless said otherwise.
    pub fn queues<T: Into<String>>(mut self, queues: impl IntoIterator<Item = T>) -> Self {
        self.queues = queues.into_iter().map(Into::into).collect();
        self
    }

    /// How it behaves.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Where time comes from.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    async fn inner(self) -> Result<Arc<Inner>> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        self.settings.validate()?;
        let queues = self.queues.iter().map(Name::new).collect::<std::result::Result<Vec<_>, _>>()?;
        let queues = if queues.is_empty() { vec![default_queue()] } else { queues };
        let registry = Registry::new(self.workflows, self.tasks, queues)?;
        let shards = shards(&*self.store).await?;
        Ok(Arc::new(Inner::new(self.store, self.clock, self.settings, registry, shards)))
    }

    /// A client without workers: it starts and asks, and others run.
    pub async fn client(self) -> Result<Client> {
        Ok(Client { inner: self.inner().await? })
    }

    /// Starts a worker, if there is anything that it can run, and services.
    pub async fn start(self) -> Result<Engine> {
        let inner = self.inner().await?;
        worker::store_definitions(&inner).await?;
        let (asks, asked) = mpsc::channel(16);
        let mut tasks = Vec::new();
        // Who can run nothing would look for work in vain, which costs requests on a bucket.
        if !inner.registry.is_empty() {
            tasks.push(tokio::spawn(worker::run(Arc::clone(&inner), asked)));
        }
        tasks.extend(service::start(&inner));
        Ok(Engine { inner, asks, tasks })
    }
}

/// Into how many parts the due index is divided: fixed when the store was made.
async fn shards(store: &dyn Store) -> Result<u16> {
    if let Some(object) = store.get(LAYOUT_KEY).await? {
        return Ok(Layout::read(&object.body)?.shards.max(1));
    }
    // A store that keeps no layout is in memory; one that behaves as a bucket is divided as one.
    Ok(if store.traits().atomic { 1 } else { 4 })
}
