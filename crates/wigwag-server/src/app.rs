//! Shared state of all handlers.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::sync::watch;
use wigwag::{Client, RunHandle, RunId};
use wigwag_hub::Access;
use wigwag_store::{Clock as _, Opened, System, Usage};

use crate::audit::Denials;
use crate::auth::Caller;
use crate::board::Board;
use crate::credentials::Known;
use crate::fleet::FleetKey;
use crate::hub::Shell;
use crate::limits::{FAILED_AUTH_DELAY_MAX, UPKEEP};
use crate::observe::Metrics;
use crate::pace::Pace;
use crate::peer::{ClientAddress, network};
use crate::problem::{Code, Problem, Result};
use crate::room::Room;
use crate::series::Series;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::watch::Watchers;

/// Shortest and longest interval between checks of a stream's credential.
const LAPSE_MIN: Duration = Duration::from_millis(100);
const LAPSE_MAX: Duration = Duration::from_secs(60);

/// Shared state of all handlers. Clones share it.
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
    /// Token that processes on the same bucket present for notifications.
    pub(crate) fleet_key: FleetKey,
    pub(crate) board: Arc<Board>,
    pub(crate) series: Series,
    /// Start of the server, by the time since boot.
    pub(crate) started: Duration,
    /// The store whose requests are counted, if the server was given one.
    pub(crate) opened: Option<Opened>,
    /// The serialized OpenAPI description.
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
    /// Memory budget of unfinished hub frames.
    pub(crate) hub_frames: Arc<Room>,
    by_address: Option<Pace<IpAddr>>,
    by_loopback_address: bool,
    by_token: Option<Pace<String>>,
    failures: Option<Pace<IpAddr>>,
}

impl Limiters {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            bodies: Room::new(settings.bodies),
            s3_bodies: Room::new(settings.s3_bodies),
            hub_frames: Room::new(settings.hub_frames),
            by_address: settings.address_rate.map(Pace::new),
            by_loopback_address: settings.address_rate_on_loopback,
            by_token: settings.token_rate.map(Pace::new),
            failures: settings.failed_auth_rate.map(Pace::new),
        }
    }

    /// Counts a request of an address against its rate.
    pub(crate) fn admit_address(&self, from: ClientAddress) -> Result<()> {
        let (Some(pace), Some(address)) = (&self.by_address, from.0) else { return Ok(()) };
        if address.to_canonical().is_loopback() && !self.by_loopback_address {
            return Ok(());
        }
        within(pace.take(&network(address), System.boot(), Duration::ZERO), "this address")
    }

    /// Counts a request of a token or access key against its rate.
    pub(crate) fn admit_caller(&self, name: Option<&str>) -> Result<()> {
        let (Some(pace), Some(name)) = (&self.by_token, name) else { return Ok(()) };
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

    /// Permissions on the hub of the holder of this token.
    pub(crate) fn access(&self, token: Option<&str>) -> Access {
        let known = self.known.get();
        if known.auth.is_empty() {
            return Access::Open;
        }
        token.and_then(|token| known.auth.identify(token)).map_or(Access::Nobody, |caller| caller.access())
    }

    /// Logs a failed authentication at the hub. Returns how long to delay the response.
    pub(crate) fn deny_hub(&self, from: ClientAddress) -> Duration {
        self.denials.write(from, None, "/hub", Code::NotAuthenticated.name());
        // Beyond the longest delay the response is not delayed, as over HTTP: the connection is closed anyway.
        self.delay(from).filter(|early| *early <= FAILED_AUTH_DELAY_MAX).unwrap_or_default()
    }

    /// Waits until the caller's credential expires, or is removed or changed by a reload.
    pub(crate) async fn lapses(&self, caller: &Caller) {
        let mut known = self.known.watch();
        while known.borrow_and_update().still_knows(caller) {
            let expiry = async {
                let Some(until) = caller.expires() else { return std::future::pending().await };
                let left = until.saturating_mul(1_000_000).saturating_sub(System.wall().micros());
                // The wall clock may be set: it is read again every minute.
                System.sleep(Duration::from_micros(left).clamp(LAPSE_MIN, LAPSE_MAX)).await;
            };
            tokio::select! {
                () = expiry => {}
                changed = known.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Logs a denied request, and delays the response if the address fails to authenticate too often.
    pub(crate) async fn deny(&self, from: ClientAddress, who: Option<&str>, what: &str, problem: Problem) -> Problem {
        self.denials.write(from, who, what, problem.code.name());
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
        let Some(early) = self.delay(from) else { return true };
        if early > FAILED_AUTH_DELAY_MAX {
            return false;
        }
        if !early.is_zero() {
            System.sleep(early).await;
        }
        true
    }

    /// Counts a failed authentication of an address. Returns the delay that keeps its rate.
    fn delay(&self, from: ClientAddress) -> Option<Duration> {
        let (pace, address) = (self.limits.failures.as_ref()?, from.0?);
        Some(pace.take(&network(address), System.boot(), FAILED_AUTH_DELAY_MAX))
    }

    /// Requests to the store since the server started, and how long ago that was.
    pub(crate) fn usage_since_start(&self) -> (Option<Usage>, Duration) {
        (self.opened.as_ref().map(Opened::usage), System.boot().saturating_sub(self.started))
    }

    /// Returns the workflow run with the id from the path.
    pub(crate) fn run(&self, id: &str) -> Result<RunHandle> {
        self.client.run(checked(id)?).map_err(Problem::from)
    }

    /// Returns the task with the id from the path.
    pub(crate) fn task(&self, id: &str) -> Result<RunHandle> {
        self.client.task(checked(id)?).map_err(Problem::from)
    }

    /// Completes when the server stops; never if it cannot be stopped.
    pub(crate) async fn stops(&self) {
        let mut stopping = self.stopping.clone();
        if stopping.wait_for(|stopping| *stopping).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Applies the usual request timeout, on a route that may take longer.
    pub(crate) async fn promptly<T>(&self, doing: impl Future<Output = T>) -> Result<T> {
        let span = self.settings.request_timeout;
        tokio::time::timeout(span, doing).await.map_err(|_| crate::route::too_slow(span))
    }

    /// Runs a future until the timeout, or until the server stops.
    pub(crate) async fn poll<T>(&self, span: Duration, doing: impl Future<Output = T>) -> Result<Option<T>> {
        tokio::select! {
            biased;
            done = doing => Ok(Some(done)),
            () = self.stops() => Err(stopping()),
            () = System.sleep(span) => Ok(None),
        }
    }
}

/// Aggregates metrics regularly; otherwise a server whose metrics are never scraped would keep every sample.
async fn upkeep(app: Weak<Parts>) {
    loop {
        System.sleep(UPKEEP).await;
        let Some(app) = app.upgrade() else { return };
        if let Some(metrics) = &app.metrics {
            app.series.sample(&metrics.text(), app.opened.as_ref().map(Opened::usage));
        }
    }
}

/// Answer to a long-poll when the server stops.
pub(crate) fn stopping() -> Problem {
    Problem::new(Code::Stopped, "the server is stopping")
}

/// Parses an id from a path.
fn checked(id: &str) -> Result<RunId> {
    RunId::new(id).map_err(|refusal| Problem::new(Code::InvalidPath, refusal.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_on_by_default_and_programs_of_this_machine_have_none() {
        let limits = Limiters::new(&Settings::default());
        let served = |admit: &dyn Fn() -> Result<()>| (0..100_000).find(|_| admit().is_err());
        let of = |address: IpAddr| served(&|| limits.admit_address(ClientAddress(Some(address))));
        assert!(of([9, 9, 9, 9].into()).is_some_and(|count| count >= 4_000));
        assert!(of("2001:db8::1".parse().unwrap()).is_some_and(|count| count >= 4_000));
        for local in ["127.0.0.1", "127.0.0.9", "::1", "::ffff:127.0.0.1"] {
            assert_eq!(of(local.parse().unwrap()), None, "{local}");
        }
        assert!(served(&|| limits.admit_caller(Some("ada"))).is_some_and(|count| count >= 20_000));
        assert_eq!(served(&|| limits.admit_caller(None)), None, "without tokens");
    }
}
