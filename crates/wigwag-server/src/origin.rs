//! Which pages may ask, and by which names the server is called.
//!
//! A browser sends what a page tells it to, with whatever the user's machine can reach. So a page from elsewhere is
//! refused, and a server without tokens answers to names of this machine only: a page whose name was made to lead here
//! would otherwise count as the server's own.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::header::{CONTENT_TYPE, HOST, LOCATION, ORIGIN, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tower_http::cors::CorsLayer;

use crate::app::App;
use crate::error::Error;
use crate::extract::IDEMPOTENCY_KEY;
use crate::problem::{Code, Problem, Result};

pub(crate) async fn check(State(app): State<App>, request: Request, next: Next) -> Response {
    match allowed(&app, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn allowed(app: &App, headers: &HeaderMap) -> Result<()> {
    // Of two, nobody knows which one somebody on the way has looked at.
    let text = |name: HeaderName| match &headers.get_all(name).iter().collect::<Vec<_>>()[..] {
        [] => None,
        [one] => Some(one.to_str().unwrap_or("?")),
        _ => Some("?"),
    };
    let host = text(HOST).unwrap_or_default();
    let settings = &app.settings;
    let own = settings.public_url.as_deref().and_then(authority);
    if app.auth.is_empty() && !settings.insecure && !is_local(host) && own != Some(host) {
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

/// Whether a `Host` names this machine.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_local() {
        for local in ["localhost", "LOCALHOST:7070", "127.0.0.1:1", "127.9.9.9", "[::1]:7070", "[::1]"] {
            assert!(is_local(local), "{local}");
        }
        for foreign in ["", "example.com", "localhost.example.com", "10.0.0.1", "[fe80::1]:80", "127.0.0.1.example.com"]
        {
            assert!(!is_local(foreign), "{foreign}");
        }
    }
}
