//! From a client to a server: what it serves, where, and how.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::{DefaultBodyLimit, OriginalUri};
use axum::http::Method;
use axum::response::{IntoResponse as _, Response};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower_http::catch_panic::CatchPanicLayer;
use wigwag::Client;

use crate::api;
use crate::app::{App, Parts};
use crate::error::Error;
use crate::problem::{Code, Problem};
use crate::serve::{self, Running};
use crate::settings::Settings;

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

    /// Serves these as well. They see to who may ask by themselves.
    pub fn merge(mut self, routes: Router) -> Self {
        self.extra = self.extra.merge(routes);
        self
    }

    /// The routes alone, to be served by something else. Event streams and long-polls then end with their connection.
    pub fn router(self) -> Router {
        let (never, stopping) = watch::channel(false);
        drop(never);
        self.build(stopping)
    }

    fn build(self, stopping: watch::Receiver<bool>) -> Router {
        let body_bytes_max = self.settings.body_bytes_max;
        let app = App::new(Parts { client: self.client, settings: self.settings, stopping });
        let mut router = Router::new();
        for route in api::routes() {
            let (path, handler) = route.guarded(&app);
            router = router.route(path, handler);
        }
        router
            .with_state(app)
            .merge(self.extra)
            .fallback(no_route)
            .method_not_allowed_fallback(no_method)
            .layer(DefaultBodyLimit::max(body_bytes_max))
            .layer(CatchPanicLayer::custom(panicked))
    }

    /// Starts it.
    pub async fn start(self) -> Result<Running, Error> {
        let listener = TcpListener::bind(self.addr).await;
        let listener = listener.map_err(|error| {
            Error::new(
                format!("cannot listen on `{}`: {error}", self.addr),
                "is another server there? choose another address",
            )
        })?;
        let settings = self.settings.clone();
        let (stop, stopping) = watch::channel(false);
        let router = self.build(stopping.clone());
        serve::start(listener, router, &settings, stop, stopping)
    }
}

async fn no_route(OriginalUri(uri): OriginalUri) -> Problem {
    let path: String = uri.path().escape_debug().take(200).collect();
    Problem::new(Code::NoRoute, format!("there is nothing at `{path}`"))
}

async fn no_method(method: Method) -> Problem {
    Problem::new(Code::MethodNotAllowed, format!("this path has no method `{method}`"))
}

fn panicked(what: Box<dyn std::any::Any + Send>) -> Response {
    let text = what.downcast_ref::<String>().map(String::as_str).or_else(|| what.downcast_ref::<&str>().copied());
    tracing::error!(panic = text.unwrap_or("no text"), "a request ended in a panic");
    Problem::new(Code::Internal, "the request ended in a panic").into_response()
}
