//! The WebSocket handshake: from a request to a socket.

use std::net::SocketAddr;
use std::sync::Arc;

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
use wigwag_store::{Clock as _, System};

use crate::app::App;
use crate::peer::ClientAddress;
use crate::problem::{Code, Problem, Result};
use crate::serve::Place;
use crate::settings::Settings;

use super::link::{Guest, Link};
use super::wire::Wire;

/// Maximum size of a frame; a larger one is not received.
pub(super) const FRAME_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Limit before authentication: a token and its envelope.
pub(super) const HELLO_BYTES_MAX: usize = 64 * 1024;

/// GUID that RFC 6455 appends to a client's key.
const SALT: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

pub(crate) fn routes() -> Router<App> {
    Router::new().route("/hub", get(open))
}

/// Returns the URL of the hub: below the public URL, or at the listening address.
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
    let from = request.extensions().get::<ClientAddress>().copied().unwrap_or(ClientAddress(None));
    let token = bearer(&request);
    let access = app.access(token.as_deref());
    // Browsers cannot send the header: without one, the token is in `hub:connect`.
    if token.is_some() && matches!(access, Access::Nobody) {
        System.sleep(app.deny_hub(from)).await;
    }
    match switch(&app, &mut request, &access, from) {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

/// Returns the token from the request's header.
fn bearer(request: &Request) -> Option<String> {
    let given = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let (scheme, token) = given?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
}

fn switch(app: &App, request: &mut Request, access: &Access, from: ClientAddress) -> Result<Response> {
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
    // An unauthenticated session counts as a connection of its address.
    let place = request.extensions_mut().remove::<Arc<Place>>();
    let guest = Guest { from, place, is_known: !matches!(access, Access::Nobody) };
    let (session, bell) = app.hub.open(access.clone()).ok_or_else(full)?;
    let shell = app.hub.clone();
    let app = app.clone();
    // The token may have been revoked between its check and the session's start.
    shell.recheck_one(session, access, &app.known.get());
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => {
                let limits = Limits::default().max_payload_len(Some(HELLO_BYTES_MAX));
                let socket = ServerBuilder::new().limits(limits).serve(Wire::new(TokioIo::new(upgraded)));
                Link::new(shell.clone(), app, guest, (session, bell), socket).run().await;
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

/// Computes `Sec-WebSocket-Accept`, or returns why the handshake is invalid.
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
