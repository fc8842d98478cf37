//! Allowed origins of pages, and allowed host names.
//!
//! A browser sends any request that a page makes, to any server that the user's machine can reach. So requests of foreign pages are
//! rejected, and a server without tokens accepts only local host names: with DNS rebinding, a foreign page
//! would otherwise count as same-origin.

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

/// Whether the rate of an address is not enforced here. `/s3` enforces it itself, because its clients expect other responses.
fn is_exempt(path: &str) -> bool {
    path == "/v1/health" || path == "/s3" || path.starts_with("/s3/")
}

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
        .and_then(|()| if is_exempt(request.uri().path()) { Ok(()) } else { app.limits.admit_address(from) });
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
    // With two values it is unknown which one a proxy has checked.
    let text = |name: HeaderName| match &headers.get_all(name).iter().collect::<Vec<_>>()[..] {
        [] => None,
        [one] => Some(one.to_str().unwrap_or("?")),
        _ => Some("?"),
    };
    let host = text(HOST).unwrap_or_default();
    let settings = &app.settings;
    let own = settings.public_url.as_deref().and_then(authority);
    if is_open && !is_local(host) && own != Some(host) {
        let what = format!("a server without tokens accepts only local host names, got: `{}`", shown(host));
        return Err(Problem::new(Code::ForeignHost, what));
    }
    let Some(origin) = text(ORIGIN) else { return Ok(()) };
    let listed = settings.origins.iter().any(|known| known.trim_end_matches('/') == origin);
    let same = authority(origin).is_some_and(|asked| asked == host || own == Some(asked));
    match listed || same {
        true => Ok(()),
        false => Err(Problem::new(Code::ForeignOrigin, format!("origin not allowed: `{}`", shown(origin)))),
    }
}

fn shown(text: &str) -> String {
    text.escape_debug().take(80).collect()
}

/// Returns the host and port of a URL.
fn authority(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    rest.split('/').next().filter(|authority| !authority.is_empty())
}

/// Builds the CORS layer, which lets pages of the listed origins read responses.
pub(crate) fn cors(origins: &[String]) -> std::result::Result<Option<CorsLayer>, Error> {
    if origins.is_empty() {
        return Ok(None);
    }
    let wrong = |origin: &str| {
        let what = format!("invalid origin: `{}`", shown(origin));
        Error::new(what, "use a URL such as `https://admin.example.com`, without a path")
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
