//! The engine: a store, the code of workflows, and the workers and services that run them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use wigwag_core::{Name, TypeName};
use wigwag_store::{Announced, Clock, LAYOUT_KEY, Layout, Notices, Notifications, OpenSettings, Opened, Store, System};

use crate::client::Client;
use crate::context::{Ctx, StepCtx};
use crate::engine_core::{EngineCore, Stop};
use crate::error::{Error, Result};
use crate::failure::Failure;
use crate::graph::Graph;
use crate::keys::WorkflowKey;
use crate::settings::Settings;
use crate::workflow::{
    FunctionHandler, Registry, StepHandler, Workflow, default_queue, function_handler, step_handler,
};
use crate::{service, worker};

/// Runs workflows. A drop stops it at once, like a crash; [`Engine::stop`] lets running steps finish.
#[derive(Debug)]
pub struct Engine {
    inner: Arc<EngineCore>,
    #[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only test kits ask"))]
    pub(crate) asks: mpsc::Sender<worker::Ask>,
    tasks: Vec<JoinHandle<()>>,
}

/// An engine about to be started.
#[must_use = "an engine runs once `start` is awaited"]
pub struct Builder {
    store: Arc<dyn Store>,
    notices: Option<Notices>,
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
    /// Builds an engine on the store that a URL names: `./dir`, `memory:`, `s3://bucket/prefix`, `gs://…`, `az://…`, or
    /// `http://host:port/s3` for a server.
    ///
    /// Blocks while an embedded store is opened.
    pub fn open(url: &str) -> Result<Builder> {
        let mut settings = OpenSettings::default();
        settings.fleet.is_wanted = concerns_others;
        let opened = wigwag_store::open(url, &settings)?;
        Ok(Self::on(opened))
    }

    /// Builds an engine on an opened store, with its notifications.
    pub fn on(opened: Opened) -> Builder {
        Builder { notices: opened.notices, ..Self::builder(opened.store) }
    }

    /// Builds an engine on this store.
    pub fn builder(store: Arc<dyn Store>) -> Builder {
        Builder {
            store,
            notices: None,
            clock: Arc::new(System),
            settings: Settings::default(),
            workflows: Vec::new(),
            tasks: Vec::new(),
            queues: Vec::new(),
            mistake: None,
        }
    }

    /// Returns a client for starting, signalling and inspecting runs.
    #[must_use]
    pub fn client(&self) -> Client {
        Client { inner: Arc::clone(&self.inner) }
    }

    /// Number of runs that the engine drives at present.
    #[must_use]
    pub fn active_runs(&self) -> usize {
        self.inner.active_count()
    }

    /// Stops the engine: no new work starts, running steps may finish within the grace time, and all runs are released. On a
    /// bucket it also delivers pending notifications, for at most a second.
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
                () = self.inner.turns.idle.notified() => {}
                () = clock.sleep(left) => {}
            }
        }
        for task in self.tasks.drain(..) {
            let _ = task.await;
        }
        // Other workers continue the released runs.
        self.client().flush().await;
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
    #[expect(clippy::needless_pass_by_value, reason = "a key is a name, mostly a literal")]
    pub fn function<I, F, Fut, O, E>(self, name: impl WorkflowKey<I, O>, version: u32, code: F) -> Self
    where
        F: Fn(Ctx, I) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: DeserializeOwned + 'static,
        O: Serialize + 'static,
        E: Into<Failure> + 'static,
    {
        self.function_dyn(name.name(), version, function_handler(code))
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
    #[expect(clippy::needless_pass_by_value, reason = "a key is a name, mostly a literal")]
    pub fn task<I, F, Fut, O, E>(self, name: impl WorkflowKey<I, O>, code: F) -> Self
    where
        F: Fn(StepCtx<I>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        I: 'static,
        O: Serialize + 'static,
        E: Into<Failure> + 'static,
    {
        self.task_dyn(name.name(), step_handler(code))
    }

    /// Adds the code of a task by its handler: for other languages.
    pub fn task_dyn(mut self, name: &str, code: Arc<dyn StepHandler>) -> Self {
        match Name::new(name) {
            Ok(name) => self.tasks.push(Workflow::task(TypeName::from(name), code)),
            Err(refusal) => _ = self.mistake.get_or_insert(refusal.into()),
        }
        self
    }

    /// Sets the queues whose tasks the engine runs; `default` by default.
    pub fn queues<T: Into<String>>(mut self, queues: impl IntoIterator<Item = T>) -> Self {
        self.queues = queues.into_iter().map(Into::into).collect();
        self
    }

    /// Sets leases, limits, intervals and retention.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the notifications of a store wrapped in [`wigwag_store::Announced`], so that a server can relay them.
    pub fn notices(mut self, notices: Notices) -> Self {
        self.notices = Some(notices);
        self
    }

    /// Sets the source of time.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    async fn inner(self) -> Result<Arc<EngineCore>> {
        if let Some(mistake) = self.mistake {
            return Err(mistake);
        }
        self.settings.validate()?;
        let queues = self.queues.iter().map(Name::new).collect::<std::result::Result<Vec<_>, _>>()?;
        let queues = if queues.is_empty() { vec![default_queue()] } else { queues };
        let registry = Registry::new(self.workflows, self.tasks, queues)?;
        let Plan { shards, scatters_ids } = plan(&*self.store).await?;
        let (store, notices) = announced(self.store, self.notices);
        let mut core = EngineCore::new(store, self.clock, self.settings, registry, shards);
        (core.notices, core.scatters_ids) = (notices, scatters_ids);
        Ok(Arc::new(core))
    }

    /// Builds a client without workers: it starts and inspects runs that other processes drive.
    pub async fn client(self) -> Result<Client> {
        Ok(Client { inner: self.inner().await? })
    }

    /// Starts the services, and a worker if any workflow or task is registered.
    pub async fn start(self) -> Result<Engine> {
        let inner = self.inner().await?;
        worker::store_definitions(&inner).await?;
        let (asks, asked) = mpsc::channel(16);
        let mut tasks = Vec::new();
        // Without registered workflows, polling would find nothing, and it costs requests on a bucket.
        if !inner.registry.is_empty() {
            tasks.push(tokio::spawn(worker::run(Arc::clone(&inner), asked)));
        }
        tasks.extend(service::start(&inner));
        Ok(Engine { inner, asks, tasks })
    }
}

/// Whether other processes wait for writes of this key: wake-ups, log entries and ends of runs. Wake-ups that guard a lease
/// are left out: they matter only once their worker is gone.
///
/// ```
/// assert!(wigwag::concerns_others("workflow/order-17/log/00000001.json"));
/// assert!(!wigwag::concerns_others("workflow/order-17/state.json"));
/// ```
#[must_use]
pub fn concerns_others(key: &str) -> bool {
    match key.split_once('/') {
        Some(("due", _)) => !key.rsplit_once('~').is_some_and(|(_, nonce)| nonce.starts_with("o.")),
        Some(("done", _)) => true,
        Some((_, rest)) => rest.contains("/log/"),
        None => false,
    }
}

/// Adds notifications of the process's own writes to a store that sends none.
fn announced(store: Arc<dyn Store>, notices: Option<Notices>) -> (Arc<dyn Store>, Option<Notices>) {
    if notices.is_some() || store.traits().notifications != Notifications::Silent {
        return (store, notices);
    }
    let notices = Notices::new();
    (Arc::new(Announced::new(store, notices.clone())), Some(notices))
}

/// How keys are laid out in a store.
struct Plan {
    /// Number of parts of the due index.
    shards: u16,
    /// Whether new run ids begin with random characters.
    scatters_ids: bool,
}

/// Reads the layout, which was fixed when the store was created.
///
/// A bucket splits its keys into partitions by their first characters, so ids are scattered there. A server's `/s3` is a
/// bucket by its traits, too; if an embedded store is behind it, its layout has no proof, and ids stay ordered by time:
/// in one index, new keys next to each other are cheaper.
async fn plan(store: &dyn Store) -> Result<Plan> {
    let traits = store.traits();
    if let Some(object) = store.get(LAYOUT_KEY).await? {
        let layout = Layout::read(&object.body)?;
        let is_server_of_one_machine = traits.kind == "bucket" && layout.proof.is_none();
        let scatters_ids = !traits.atomic && !is_server_of_one_machine;
        return Ok(Plan { shards: layout.shards.max(1), scatters_ids });
    }
    // Only a memory store has no stored layout; if it behaves like a bucket, it gets the shards of a bucket.
    Ok(Plan { shards: if traits.atomic { 1 } else { 4 }, scatters_ids: !traits.atomic })
}
