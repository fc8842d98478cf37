//! From a request to a socket.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    AUTHORIZATION, CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use sha1::{Digest as _, Sha1};
use tokio_websockets::{Limits, ServerBuilder};
use tracing::debug;
use wigwag_hub::Access;

use crate::app::App;
use crate::problem::{Code, Problem, Result};
use crate::settings::Settings;

use super::link::Link;
use super::wire::Wire;

/// Beyond this a frame is not even received.
pub(super) const FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Limit before authentication: a token and its envelope.
pub(super) const HELLO_BYTES_MAX: usize = 64 * 1024;

/// What RFC 6455 adds to a client's key.
const SALT: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

pub(crate) fn routes() -> Router<App> {
    Router::new().route("/hub", get(open))
}

/// Where clients reach the hub: at the public URL, or where the server listens.
pub(crate) fn url(settings: &Settings, has_tls: bool, addr: Option<SocketAddr>) -> Option<String> {
    let base = match &settings.public_url {
        Some(url) => url.trim_end_matches('/').replacen("http", "ws", 1),
        // A server on an unspecified address does not know its public name.
        None => {
            let addr = addr.filter(|addr| !addr.ip().is_unspecified())?;
            format!("{}://{addr}", if has_tls { "wss" } else { "ws" })
        }
    };
    Some(format!("{base}/hub"))
}

async fn open(State(app): State<App>, mut request: Request) -> Response {
    let access = access(&app, &request);
    match switch(&app, &mut request, access) {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

/// Who it is, as far as the request shows: browsers show nothing yet.
fn access(app: &App, request: &Request) -> Access {
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token =
        given.and_then(|value| value.split_once(' ')).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    app.access(token.map(|(_, token)| token.trim()))
}

fn switch(app: &App, request: &mut Request, access: Access) -> Result<Response> {
    let wrong = |what: &str| {
        Problem::new(Code::InvalidHeader, format!("not a WebSocket handshake: {what}"))
            .hint("connect with a WebSocket client, such as `wigwag hub listen`")
    };
    let accept = accept(request.headers()).map_err(wrong)?;
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    let upgrade = upgrade.ok_or_else(|| wrong("this connection cannot be upgraded"))?;
    if *app.stopping.borrow() {
        return Err(crate::app::stopping());
    }
    let full = || {
        let what = "too many connections to the hub";
        Problem::new(Code::Unavailable, what).hint("come back later")
    };
    let (session, bell) = app.hub.open(access).ok_or_else(full)?;
    let shell = app.hub.clone();
    let app = app.clone();
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => {
                let limits = Limits::default().max_payload_len(Some(HELLO_BYTES_MAX));
                let socket = ServerBuilder::new().limits(limits).serve(Wire::new(TokioIo::new(upgraded)));
                Link::new(shell.clone(), app, session, bell, socket).run().await;
            }
            Err(error) => debug!(%error, "no upgrade"),
        }
        shell.close(session);
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}

/// What shows a client that its handshake was understood.
fn accept(headers: &HeaderMap) -> std::result::Result<HeaderValue, &'static str> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !text(UPGRADE).eq_ignore_ascii_case("websocket") {
        return Err("`Upgrade` is not `websocket`");
    }
    if !text(CONNECTION).split(',').any(|one| one.trim().eq_ignore_ascii_case("upgrade")) {
        return Err("`Connection` is not `Upgrade`");
    }
    if text(SEC_WEBSOCKET_VERSION) != "13" {
        return Err("`Sec-WebSocket-Version` is not 13");
    }
    let key = text(SEC_WEBSOCKET_KEY);
    if STANDARD.decode(key).map_or(0, |key| key.len()) != 16 {
        return Err("`Sec-WebSocket-Key` is not 16 bytes in base64");
    }
    let hash = Sha1::new().chain_update(key).chain_update(SALT).finalize();
    HeaderValue::from_str(&STANDARD.encode(hash)).map_err(|_| "its key is no text")
}
