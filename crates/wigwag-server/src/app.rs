//! What every handler has at hand.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use wigwag::store::{Clock as _, System};
use wigwag::{Client, RunHandle, RunId};
use wigwag_hub::Access;

use crate::audit::Denials;
use crate::auth::Caller;
use crate::credentials::Known;
use crate::hub::Shell;
use crate::limits::{FAILED_AUTH_DELAY_MAX, UPKEEP};
use crate::observe::Metrics;
use crate::pace::Pace;
use crate::peer::{ClientAddress, network};
use crate::problem::{Code, Problem, Result};
use crate::room::Room;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::watch::Watchers;

/// What every handler has at hand. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct App(Arc<Parts>);

#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    /// Credentials as last loaded.
    pub(crate) known: Shared<Known>,
    pub(crate) limits: Limiters,
    pub(crate) denials: Denials,
    pub(crate) metrics: Option<Metrics>,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) hub: Shell,
    /// The API's description, as it is sent.
    pub(crate) description: Vec<u8>,
    pub(crate) stopping: watch::Receiver<bool>,
}

/// Limits of memory and request rates.
#[derive(Debug)]
pub(crate) struct Limiters {
    /// Memory budget of `/v1` bodies.
    pub(crate) bodies: Arc<Room>,
    /// Memory budget of `/s3` bodies.
    pub(crate) s3_bodies: Arc<Room>,
    by_address: Option<Pace<IpAddr>>,
    by_token: Option<Pace<String>>,
    failures: Option<Pace<IpAddr>>,
}

impl Limiters {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            bodies: Room::new(settings.bodies),
            s3_bodies: Room::new(settings.s3_bodies),
            by_address: settings.address_rate.map(Pace::new),
            by_token: settings.token_rate.map(Pace::new),
            failures: settings.failed_auth_rate.map(Pace::new),
        }
    }

    /// Counts a request of an address against its rate.
    pub(crate) fn admit_address(&self, from: ClientAddress) -> Result<()> {
        let (Some(pace), Some(address)) = (&self.by_address, from.0) else { return Ok(()) };
        within(pace.take(&network(address), System.boot(), Duration::ZERO), "this address")
    }

    /// Counts a request of a caller against its rate.
    pub(crate) fn admit_caller(&self, caller: &Caller) -> Result<()> {
        let (Some(pace), Some(name)) = (&self.by_token, caller.name()) else { return Ok(()) };
        within(pace.take(&name.to_owned(), System.boot(), Duration::ZERO), "this token")
    }
}

fn within(early: Duration, whose: &str) -> Result<()> {
    match early.is_zero() {
        true => Ok(()),
        false => Err(Problem::new(Code::RateLimited, format!("{whose} exceeds its request rate"))),
    }
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
        let known = self.known.get();
        if known.auth.is_empty() {
            return Access::Open;
        }
        let Some(token) = token else { return Access::Nobody };
        match known.auth.identify(token) {
            Some(caller) => caller.access(),
            None => {
                self.denials.write(ClientAddress(None), "/hub", Code::NotAuthenticated.name());
                Access::Nobody
            }
        }
    }

    /// Logs a denied request, and delays the response if the address fails to authenticate too often.
    pub(crate) async fn deny(&self, from: ClientAddress, what: &str, problem: Problem) -> Problem {
        self.denials.write(from, what, problem.code.name());
        if problem.code == Code::NotAllowed {
            return problem;
        }
        match self.slow_down(from).await {
            true => problem,
            false => Problem::new(Code::TooManyAttempts, "too many failed authentications of this address"),
        }
    }

    /// Delays a failed authentication to keep the rate of its address. Returns `false` at once if the delay would be too long.
    pub(crate) async fn slow_down(&self, from: ClientAddress) -> bool {
        let (Some(pace), Some(address)) = (&self.limits.failures, from.0) else { return true };
        let early = pace.take(&network(address), System.boot(), FAILED_AUTH_DELAY_MAX);
        if early > FAILED_AUTH_DELAY_MAX {
            return false;
        }
        if !early.is_zero() {
            System.sleep(early).await;
        }
        true
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
