//! Observability of every request: metrics by route, and a span that belongs to the caller's trace.
//!
//! Holds: both contain the route's template, never the path itself, which may contain a token.

use std::sync::OnceLock;
use std::time::Duration;

use axum::extract::{MatchedPath, Request};
use axum::http::header::{CACHE_CONTROL, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tracing::field::Empty;
use tracing::{Instrument as _, Span, info_span};
use wigwag_store::{Clock as _, System};

use crate::error::Error;
use crate::problem::Code;

/// Metrics of the process in the Prometheus format.
#[derive(Clone, Debug)]
pub struct Metrics(PrometheusHandle);

/// Upper bounds in seconds, from a store in memory to a slow bucket.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];

static INSTALLED: OnceLock<Result<PrometheusHandle, String>> = OnceLock::new();

impl Metrics {
    /// Starts to collect the metrics of this process, including the engine's. Idempotent.
    pub fn install() -> Result<Self, Error> {
        let installed = INSTALLED.get_or_init(|| {
            let builder = PrometheusBuilder::new().set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &BUCKETS);
            builder.and_then(PrometheusBuilder::install_recorder).map_err(|error| error.to_string())
        });
        match installed {
            Ok(handle) => Ok(Self(handle.clone())),
            Err(error) => Err(Error::new(
                format!("metrics cannot be collected: {error}"),
                "another recorder is installed in this process; serve its metrics instead",
            )),
        }
    }

    pub(crate) fn text(&self) -> String {
        self.upkeep();
        self.0.render()
    }

    /// Sum of a counter over its labels.
    pub(crate) fn sum(&self, name: &str) -> f64 {
        let text = self.text();
        let lines = text.lines().filter(|line| line.starts_with(name));
        lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok()).sum()
    }

    /// Aggregates the samples since the last call, which are kept individually until then.
    pub(crate) fn upkeep(&self) {
        self.0.run_upkeep();
    }
}

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Counts and times a request inside a span.
pub(crate) async fn observe(matched: Option<MatchedPath>, request: Request, next: Next) -> Response {
    let route = matched.map_or_else(|| "(none)".to_owned(), |path| path.as_str().to_owned());
    let method = known(request.method());
    let mut trace = Trace::of(request.headers());
    let span = trace.span(method, &route);
    let began = System.boot();
    let under_way = UnderWay::new();
    let mut response = next.run(request).instrument(span.clone()).await;
    drop(under_way);
    let status = response.status().as_u16();
    span.record("http.response.status_code", status);
    if status >= 500 {
        span.record("otel.status_code", "ERROR");
    }
    count(method, route, status, response.extensions().get::<Code>().copied(), System.boot().saturating_sub(began));
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&trace.header()) {
        headers.insert(TRACEPARENT, value);
    }
    // A browser must not interpret stored data as a page, and must not cache the state of a run.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn count(method: &'static str, route: String, status: u16, code: Option<Code>, took: Duration) {
    let labels = [("method", method.to_owned()), ("route", route), ("status", status.to_string())];
    metrics::counter!("wigwag_http_requests_total", &labels).increment(1);
    metrics::histogram!("wigwag_http_request_seconds", &labels[..2]).record(took.as_secs_f64());
    if let Some(code) = code {
        metrics::counter!("wigwag_http_problems_total", "code" => code.name()).increment(1);
    }
}

/// Unknown methods are counted together.
fn known(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "DELETE" => "DELETE",
        "OPTIONS" => "OPTIONS",
        _ => "other",
    }
}

/// A request in progress; counted down on drop, also if the client disconnects.
struct UnderWay;

impl UnderWay {
    fn new() -> Self {
        metrics::gauge!("wigwag_http_requests_under_way").increment(1.0);
        Self
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        metrics::gauge!("wigwag_http_requests_under_way").decrement(1.0);
    }
}

/// The trace that a request belongs to (W3C Trace Context).
#[derive(Debug, PartialEq)]
struct Trace {
    id: String,
    /// Id of the parent span; empty if the trace begins here.
    parent: String,
    own: String,
    flags: String,
}

impl Trace {
    /// Returns the caller's trace, or a new one if the header is absent or invalid.
    fn of(headers: &HeaderMap) -> Self {
        let own = format!("{:016x}", fastrand::u64(1..));
        let given = headers.get(TRACEPARENT).and_then(|value| value.to_str().ok()).and_then(parse);
        match given {
            Some((id, parent, flags)) => Self { id: id.into(), parent: parent.into(), own, flags: flags.into() },
            None => {
                Self { id: format!("{:032x}", fastrand::u128(1..)), parent: String::new(), own, flags: "00".into() }
            }
        }
    }

    /// Creates the request's span, a child of the caller's if spans are collected.
    fn span(&mut self, method: &'static str, route: &str) -> Span {
        let span = info_span!(
            "http", otel.name = format!("{method} {route}"), otel.kind = "server", otel.status_code = Empty,
            http.request.method = method, http.route = route, http.response.status_code = Empty,
            trace_id = Empty, parent_id = %self.parent, span_id = Empty
        );
        #[cfg(feature = "otlp")]
        self.collected(&span);
        span.record("trace_id", &self.id).record("span_id", &self.own);
        span
    }

    /// Makes the span a child of the caller's, and adopts the ids that the collector uses.
    #[cfg(feature = "otlp")]
    fn collected(&mut self, span: &Span) {
        use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState};
        use tracing_opentelemetry::OpenTelemetrySpanExt as _;

        if let (Ok(id), Ok(parent), Ok(flags)) =
            (TraceId::from_hex(&self.id), SpanId::from_hex(&self.parent), u8::from_str_radix(&self.flags, 16))
        {
            let caller = SpanContext::new(id, parent, TraceFlags::new(flags), true, TraceState::default());
            // Fails if no collector is installed.
            let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(caller));
        }
        let context = span.context();
        let known = context.span().span_context().clone();
        if known.is_valid() {
            self.id = known.trace_id().to_string();
            self.own = known.span_id().to_string();
            self.flags = format!("{:02x}", known.trace_flags().to_u8());
        }
    }

    fn header(&self) -> String {
        format!("00-{}-{}-{}", self.id, self.own, self.flags)
    }
}

fn parse(text: &str) -> Option<(&str, &str, &str)> {
    let mut parts = text.trim().split('-');
    let (version, id, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_some = |text: &str| text.bytes().any(|byte| byte != b'0');
    // Later versions may have more parts; version 00 has exactly four.
    let fits = is_hex(version, 2) && version != "ff" && (version != "00" || parts.next().is_none());
    let whole = is_hex(id, 32) && is_some(id) && is_hex(parent, 16) && is_some(parent) && is_hex(flags, 2);
    (fits && whole).then_some((id, parent, flags))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_taken_over_only_if_it_is_one() {
        let (id, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        assert_eq!(parse(&format!("00-{id}-{parent}-01")), Some((id, parent, "01")));
        assert_eq!(parse(&format!("01-{id}-{parent}-01-more")), Some((id, parent, "01")));
        let zeros = "0".repeat(32);
        for wrong in [
            String::new(),
            format!("00-{id}-{parent}"),
            format!("00-{id}-{parent}-01-more"),
            format!("ff-{id}-{parent}-01"),
            format!("00-{zeros}-{parent}-01"),
            format!("00-{}-{parent}-01", id.to_uppercase()),
        ] {
            assert_eq!(parse(&wrong), None, "{wrong}");
        }
    }
}
