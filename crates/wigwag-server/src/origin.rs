//! Which pages may ask, and by which names the server is called.
//!
//! A browser sends what a page tells it to, with whatever the user's machine can reach. So a page from elsewhere is
//! refused, and a server without tokens answers to names of this machine only: a page whose name was made to lead here
//! would otherwise count as the server's own.

use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, LOCATION, ORIGIN, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tower_http::cors::CorsLayer;

use crate::app::App;
use crate::credentials::is_local;
use crate::error::Error;
use crate::extract::IDEMPOTENCY_KEY;
use crate::peer::{ClientAddress, Peer, proxy_sign};
use crate::problem::{Code, Problem, Result};

/// Exempt from rate limits.
const HEALTH: &str = "/v1/health";

pub(crate) async fn check(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied();
    let from = ClientAddress::of(peer, request.headers(), &app.settings.trusted_proxies);
    request.extensions_mut().insert(from);
    let is_open = app.known.get().auth.is_empty() && !app.settings.insecure;
    let checked = match is_open {
        true => not_proxied(&request),
        false => Ok(()),
    };
    let checked = checked
        .and_then(|()| allowed(&app, is_open, request.headers()))
        .and_then(|()| if request.uri().path() == HEALTH { Ok(()) } else { app.limits.admit_address(from) });
    match checked {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

/// A server without tokens trusts every local client, and a proxy would make remote clients local.
fn not_proxied(request: &Request) -> Result<()> {
    match proxy_sign(request.version(), request.headers()) {
        None => Ok(()),
        Some(sign) => {
            let what = format!("this server has no authentication and rejects proxied requests: {sign}");
            Err(Problem::new(Code::ProxyNotAllowed, what))
        }
    }
}

fn allowed(app: &App, is_open: bool, headers: &HeaderMap) -> Result<()> {
    // Of two, nobody knows which one somebody on the way has looked at.
    let text = |name: HeaderName| match &headers.get_all(name).iter().collect::<Vec<_>>()[..] {
        [] => None,
        [one] => Some(one.to_str().unwrap_or("?")),
        _ => Some("?"),
    };
    let host = text(HOST).unwrap_or_default();
    let settings = &app.settings;
    let own = settings.public_url.as_deref().and_then(authority);
    if is_open && !is_local(host) && own != Some(host) {
        let what = format!("this server wants no tokens, and so is not called `{}`", shown(host));
        return Err(Problem::new(Code::ForeignHost, what));
    }
    let Some(origin) = text(ORIGIN) else { return Ok(()) };
    let listed = settings.origins.iter().any(|known| known.trim_end_matches('/') == origin);
    let same = authority(origin).is_some_and(|asked| asked == host || own == Some(asked));
    match listed || same {
        true => Ok(()),
        false => Err(Problem::new(Code::ForeignOrigin, format!("pages from `{}` may not ask", shown(origin)))),
    }
}

fn shown(text: &str) -> String {
    text.escape_debug().take(80).collect()
}

/// The host and port of an address.
fn authority(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    rest.split('/').next().filter(|authority| !authority.is_empty())
}

/// Lets browsers read the answers for pages that are on the list.
pub(crate) fn cors(origins: &[String]) -> std::result::Result<Option<CorsLayer>, Error> {
    if origins.is_empty() {
        return Ok(None);
    }
    let wrong = |origin: &str| {
        let what = format!("not an origin: `{}`", shown(origin));
        Error::new(what, "write it like `https://admin.example.com`, without a path")
    };
    let mut values = Vec::new();
    for origin in origins {
        let plain = origin.trim_end_matches('/');
        let fits = authority(plain).is_some_and(|found| plain.ends_with(found));
        let value = HeaderValue::from_str(plain).ok().filter(|_| fits);
        values.push(value.ok_or_else(|| wrong(origin))?);
    }
    let headers =
        [CONTENT_TYPE, axum::http::header::AUTHORIZATION, IDEMPOTENCY_KEY, HeaderName::from_static("last-event-id")];
    let shown = [LOCATION, RETRY_AFTER, HeaderName::from_static("traceparent")];
    let cors = CorsLayer::new().expose_headers(shown);
    Ok(Some(cors.allow_origin(values).allow_methods([Method::GET, Method::POST]).allow_headers(headers)))
}
