//! The builder of a server.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::{DefaultBodyLimit, OriginalUri};
use axum::http::Method;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower_http::catch_panic::CatchPanicLayer;
use wigwag::Client;
use wigwag_store::{Clock as _, Opened, System};

use crate::app::{App, Limiters, Parts};
use crate::audit::Denials;
use crate::auth::Auth;
use crate::board::Board;
use crate::credentials::{Credentials, Known};
use crate::error::Error;
use crate::fleet::{self, FleetKey};
use crate::hub::Shell;
use crate::observe::{self, Metrics};
use crate::problem::{Code, Problem};
use crate::s3::{self, S3Keys};
use crate::series::Series;
use crate::serve::{self, Running};
use crate::settings::Settings;
use crate::shared::Shared;
use crate::tls::Tls;
use crate::watch::Watchers;
use crate::{api, chance, hub, openapi, origin};

/// Serves the API.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Returns a builder of a server for the store of this client.
    pub fn builder(client: Client) -> Builder {
        Builder {
            client,
            addr: SocketAddr::from(([127, 0, 0, 1], 7070)),
            settings: Settings::default(),
            auth: Auth::new(),
            metrics: None,
            s3: S3Keys::new(),
            tls: None,
            extra: Router::new(),
            opened: None,
        }
    }
}

/// A server about to be started.
#[derive(Debug)]
#[must_use = "a server runs once `start` is awaited"]
pub struct Builder {
    client: Client,
    addr: SocketAddr,
    settings: Settings,
    auth: Auth,
    metrics: Option<Metrics>,
    s3: S3Keys,
    tls: Option<Tls>,
    extra: Router,
    opened: Option<Opened>,
}

impl Builder {
    /// Sets the address to listen on; `127.0.0.1:7070` by default. Port 0 selects any free port.
    pub fn bind(mut self, addr: SocketAddr) -> Self {
        self.addr = addr;
        self
    }

    /// Replaces the settings.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the accepted tokens and JWT keys; without them, the server requires no authentication.
    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    /// Serves the metrics of the process at `/metrics`.
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Access keys of the store's bucket at `/s3`. Without tokens and keys, unsigned requests and the key `wigwag` with the
    /// secret `wigwag` may read, and write if [`Settings::s3_write`] is set.
    pub fn s3(mut self, keys: S3Keys) -> Self {
        self.s3 = keys;
        self
    }

    /// Sets tokens, access keys and the certificate together.
    pub fn credentials(self, credentials: Credentials) -> Self {
        let Credentials { auth, s3, tls } = credentials;
        Self { auth, s3, tls, ..self }
    }

    /// Enables TLS with this certificate.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Shows the requests to this store on the dashboard.
    pub fn usage_of(mut self, opened: Opened) -> Self {
        self.opened = Some(opened);
        self
    }

    /// Adds routes, which must authenticate their requests themselves.
    pub fn merge(mut self, routes: Router) -> Self {
        self.extra = self.extra.merge(routes);
        self
    }

    /// Returns only the router, for use in another server. Event streams and long-polls then end with their connection.
    pub fn router(self) -> Result<Router, Error> {
        let (never, stopping) = watch::channel(false);
        drop(never);
        let (router, app) = self.build(stopping)?;
        app.hub.announce(None, None);
        Ok(router)
    }

    fn build(self, stopping: watch::Receiver<bool>) -> Result<(Router, App), Error> {
        chance::check()?;
        let known = Known::new(self.auth, self.s3, &self.settings)?;
        let cors = origin::cors(&self.settings.origins)?;
        let body_bytes_max = self.settings.body_bytes_max;
        let watchers = Arc::new(Watchers::default());
        let (hub_settings, connections_max) = (self.settings.hub.clone(), self.settings.hub_connections_max);
        let board = Arc::new(Board::default());
        let hub =
            Shell::new(self.client.clone(), Arc::clone(&watchers), Arc::clone(&board), hub_settings, connections_max);
        let app = App::new(Parts {
            hub,
            fleet_key: FleetKey::new(),
            client: self.client,
            limits: Limiters::new(&self.settings),
            denials: Denials::new(),
            settings: self.settings,
            known: Shared::new(known),
            metrics: self.metrics,
            watchers,
            board,
            series: Series::default(),
            started: System.boot(),
            opened: self.opened,
            description: openapi::document().to_string().into_bytes(),
            stopping,
        });
        let mut router = Router::new();
        for route in api::routes() {
            let (path, handler) = route.guarded(&app);
            router = router.route(path, handler);
        }
        #[cfg(feature = "dashboard")]
        let router = router.merge(crate::dashboard::routes());
        // Layers run from the last one added to the first.
        let router = router
            .merge(s3::routes())
            .merge(hub::routes())
            .with_state(app.clone())
            .merge(self.extra)
            .fallback(no_route)
            .method_not_allowed_fallback(no_method)
            .layer(DefaultBodyLimit::max(body_bytes_max))
            .layer(CatchPanicLayer::custom(panicked))
            .layer(from_fn_with_state(app.clone(), origin::check))
            .layer(from_fn(observe::observe));
        let router = match cors {
            Some(cors) => router.layer(cors),
            None => router,
        };
        Ok((router, app))
    }

    /// Starts the server.
    pub async fn start(self) -> Result<Running, Error> {
        if !self.addr.ip().is_loopback() && self.auth.is_empty() {
            if !self.settings.insecure {
                let what = format!("`{}` can be reached from other machines, and there are no tokens", self.addr);
                return Err(Error::new(
                    what,
                    "configure tokens, bind to 127.0.0.1, or disable authentication with `--insecure`",
                ));
            }
            tracing::warn!(addr = %self.addr, "insecure: authentication is disabled, anyone who can reach this address has full access");
        }
        let listener = TcpListener::bind(self.addr).await;
        let listener = listener.map_err(|error| {
            let what = format!("cannot listen on `{}`: {error}", self.addr);
            Error::new(what, "another server may be using it; use another address")
        })?;
        let tls = self.tls.clone();
        let (stop, stopping) = watch::channel(false);
        let addr = listener.local_addr().ok();
        let url = hub::url(&self.settings, tls.is_some(), addr);
        let advertised = fleet::url(&self.settings, tls.is_some(), addr);
        let (router, app) = self.build(stopping.clone())?;
        app.hub.announce(url, addr);
        fleet::advertise(&app.client, &app.fleet_key, advertised);
        serve::start(listener, router, app, tls, stop, stopping)
    }
}

async fn no_route(OriginalUri(uri): OriginalUri) -> Problem {
    let path: String = uri.path().escape_debug().take(200).collect();
    Problem::new(Code::NoRoute, format!("no route matches `{path}`"))
}

async fn no_method(method: Method) -> Problem {
    Problem::new(Code::MethodNotAllowed, format!("method `{method}` is not supported here"))
}

#[expect(clippy::needless_pass_by_value, reason = "the signature is tower-http's")]
fn panicked(what: Box<dyn std::any::Any + Send>) -> Response {
    let text = what.downcast_ref::<String>().map(String::as_str).or_else(|| what.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("no text"), "a request handler panicked");
    Problem::new(Code::Internal, "the request handler panicked").into_response()
}
