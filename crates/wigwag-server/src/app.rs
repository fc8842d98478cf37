//! What every handler has at hand.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use wigwag::store::{Clock as _, System};
use wigwag::{Client, RunHandle, RunId};
use wigwag_hub::Access;

use crate::auth::Auth;
use crate::hub::Shell;
use crate::limits::UPKEEP;
use crate::observe::Metrics;
use crate::problem::{Code, Problem, Result};
use crate::s3::Gate;
use crate::settings::Settings;
use crate::watch::Watchers;

/// What every handler has at hand. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Parts>);

#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) auth: Auth,
    pub(crate) metrics: Option<Metrics>,
    pub(crate) s3: Gate,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) hub: Shell,
    /// The API's description, as it is sent.
    pub(crate) description: Vec<u8>,
    pub(crate) stopping: watch::Receiver<bool>,
}

impl std::ops::Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl App {
    pub(crate) fn new(parts: Parts) -> Self {
        let app = Self(Arc::new(parts));
        if let (Some(_), Ok(runtime)) = (&app.metrics, tokio::runtime::Handle::try_current()) {
            runtime.spawn(upkeep(Arc::downgrade(&app.0)));
        }
        app
    }

    /// What whoever brings this token may do on the hub.
    pub(crate) fn access(&self, token: Option<&str>) -> Access {
        if self.auth.is_empty() {
            return Access::Open;
        }
        token.and_then(|token| self.auth.identify(token)).map_or(Access::Nobody, |caller| caller.access())
    }

    /// The workflow run that a path names.
    pub(crate) fn run(&self, id: &str) -> Result<RunHandle> {
        self.client.run(checked(id)?).map_err(Problem::from)
    }

    /// The task that a path names.
    pub(crate) fn task(&self, id: &str) -> Result<RunHandle> {
        self.client.task(checked(id)?).map_err(Problem::from)
    }

    /// Ends when the server stops; never if nobody can stop it.
    pub(crate) async fn stops(&self) {
        let mut stopping = self.stopping.clone();
        if stopping.wait_for(|stopping| *stopping).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Does something that has the time of any request, on a route that may take longer.
    pub(crate) async fn promptly<T>(&self, doing: impl Future<Output = T>) -> Result<T> {
        let span = self.settings.request_timeout;
        tokio::time::timeout(span, doing).await.map_err(|_| crate::route::too_slow(span))
    }

    /// Does something that may take long, but not longer than this nor than the server runs.
    pub(crate) async fn poll<T>(&self, span: Duration, doing: impl Future<Output = T>) -> Result<Option<T>> {
        tokio::select! {
            biased;
            done = doing => Ok(Some(done)),
            () = self.stops() => Err(stopping()),
            () = System.sleep(span) => Ok(None),
        }
    }
}

/// Without it, a server whose figures nobody reads would keep every one of them.
async fn upkeep(app: Weak<Parts>) {
    loop {
        System.sleep(UPKEEP).await;
        let Some(app) = app.upgrade() else { return };
        if let Some(metrics) = &app.metrics {
            metrics.upkeep();
        }
    }
}

/// What a long-poll is told when the server stops.
pub(crate) fn stopping() -> Problem {
    Problem::new(Code::Stopped, "the server is stopping")
}

/// An id that came in a path.
fn checked(id: &str) -> Result<RunId> {
    RunId::new(id).map_err(|refusal| Problem::new(Code::InvalidPath, refusal.to_string()))
}
