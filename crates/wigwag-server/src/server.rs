//! From a client to a server: what it serves, where, and how.

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

use crate::app::{App, Limiters, Parts};
use crate::audit::Denials;
use crate::auth::Auth;
use crate::credentials::{Credentials, Known};
use crate::error::Error;
use crate::hub::Shell;
use crate::observe::{self, Metrics};
use crate::problem::{Code, Problem};
use crate::s3::{self, S3Keys};
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
    /// A server of what this client may ask.
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
}

impl Builder {
    /// Where it listens; `127.0.0.1:7070` unless said otherwise. Port 0 is any that is free.
    pub fn bind(mut self, addr: SocketAddr) -> Self {
        self.addr = addr;
        self
    }

    /// How it behaves.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Whom it knows; without it, it lets everybody in who reaches it.
    pub fn auth(mut self, auth: Auth) -> Self {
        self.auth = auth;
        self
    }

    /// Shows at `/metrics` what the process counts.
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

    /// Speaks TLS.
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Serves these as well. They see to who may ask by themselves.
    pub fn merge(mut self, routes: Router) -> Self {
        self.extra = self.extra.merge(routes);
        self
    }

    /// The routes alone, to be served by something else. Event streams and long-polls then end with their connection.
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
        let hub = Shell::new(self.client.clone(), Arc::clone(&watchers), hub_settings, connections_max);
        let app = App::new(Parts {
            hub,
            client: self.client,
            limits: Limiters::new(&self.settings),
            denials: Denials::new(),
            settings: self.settings,
            known: Shared::new(known),
            metrics: self.metrics,
            watchers,
            description: openapi::document().to_string().into_bytes(),
            stopping,
        });
        let mut router = Router::new();
        for route in api::routes() {
            let (path, handler) = route.guarded(&app);
            router = router.route(path, handler);
        }
        // From the inside out: what is added last sees a request first.
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

    /// Starts it.
    pub async fn start(self) -> Result<Running, Error> {
        if !self.addr.ip().is_loopback() && self.auth.is_empty() {
            if !self.settings.insecure {
                let what = format!("`{}` can be reached from other machines, and there are no tokens", self.addr);
                return Err(Error::new(
                    what,
                    "give it tokens, or bind it to 127.0.0.1, or accept the risk with `--insecure`",
                ));
            }
            tracing::warn!(addr = %self.addr, "insecure: whoever reaches this address may do everything");
        }
        let listener = TcpListener::bind(self.addr).await;
        let listener = listener.map_err(|error| {
            let what = format!("cannot listen on `{}`: {error}", self.addr);
            Error::new(what, "is another server there? choose another address")
        })?;
        let tls = self.tls.clone();
        let (stop, stopping) = watch::channel(false);
        let addr = listener.local_addr().ok();
        let url = hub::url(&self.settings, tls.is_some(), addr);
        let (router, app) = self.build(stopping.clone())?;
        app.hub.announce(url, addr);
        serve::start(listener, router, app, tls, stop, stopping)
    }
}

async fn no_route(OriginalUri(uri): OriginalUri) -> Problem {
    let path: String = uri.path().escape_debug().take(200).collect();
    Problem::new(Code::NoRoute, format!("there is nothing at `{path}`"))
}

async fn no_method(method: Method) -> Problem {
    Problem::new(Code::MethodNotAllowed, format!("this path has no method `{method}`"))
}

#[expect(clippy::needless_pass_by_value, reason = "the signature is tower-http's")]
fn panicked(what: Box<dyn std::any::Any + Send>) -> Response {
    let text = what.downcast_ref::<String>().map(String::as_str).or_else(|| what.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("no text"), "a request ended in a panic");
    Problem::new(Code::Internal, "the request ended in a panic").into_response()
}
