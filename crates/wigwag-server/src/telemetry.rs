//! Exports spans to an OpenTelemetry collector, configured by the variables `OTEL_*`: OTLP over HTTP, as protobuf.
//!
//! Holds: without an endpoint no exporter is installed, and spans cost nothing. Spans contain routes, ids, types and
//! numbers, never a payload, a token or a path. If the collector fails, only spans are lost: they are
//! sent by a separate thread from a bounded queue, and errors are reported at most once a minute.
//!
//! Not supported on purpose: export of log lines; gRPC, which needs another HTTP stack.

use std::fmt;
use std::io::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter as Exporter};
use tracing::Subscriber;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry};
use wigwag_store::{Clock as _, System};

use crate::error::Error;

/// Default of `OTEL_SERVICE_NAME`.
const SERVICE: &str = "wigwag";

/// Valid values of `OTEL_TRACES_SAMPLER`.
const SAMPLERS: [&str; 6] = [
    "always_on",
    "always_off",
    "traceidratio",
    "parentbased_always_on",
    "parentbased_always_off",
    "parentbased_traceidratio",
];

/// Minimum interval of error messages about lost spans.
const SAID_EVERY: Duration = Duration::from_secs(60);

/// The export of spans to a collector, if one is configured. Keep it until the end: [`Telemetry::stop`] sends the remaining spans.
#[must_use = "spans are sent for as long as this is kept"]
pub struct Telemetry {
    provider: Option<SdkTracerProvider>,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("is_on", &self.is_on()).finish()
    }
}

/// Exports this process's spans to `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`; does
/// nothing if neither is set. Later errors are printed to stderr.
///
/// Programs with an existing subscriber use [`Telemetry::from_env`] and add its layer.
pub fn init() -> Result<Telemetry, Error> {
    let telemetry = Telemetry::made(say_on_stderr)?;
    if let Some(layer) = telemetry.layer::<Registry>() {
        tracing_subscriber::registry().with(layer).try_init().map_err(|_| {
            Error::new(
                "spans cannot be exported: this process already has a subscriber",
                "add the layer of `Telemetry::from_env` to it",
            )
        })?;
    }
    Ok(telemetry)
}

impl Telemetry {
    /// Reads the variables, for a program that installs [`Telemetry::layer`] itself. Logs later errors as warnings.
    pub fn from_env() -> Result<Self, Error> {
        Self::made(|what| tracing::warn!("{what}"))
    }

    fn made(say: fn(&str)) -> Result<Self, Error> {
        let wanted = Wanted::read(|name| std::env::var(name).ok())?;
        let Wanted::Export { is_named } = wanted else { return Ok(Self { provider: None }) };
        // A client for https needs a default crypto provider; an earlier choice of the program wins.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let exporter = SpanExporter::builder().with_http().build().map_err(|error| {
            Error::new(format!("spans cannot be sent: {error}"), "check the variables `OTEL_EXPORTER_OTLP_*`")
        })?;
        let resource = Resource::builder();
        let resource = if is_named { resource } else { resource.with_service_name(SERVICE) };
        let exporter = Told { exporter, say, said: Mutex::new(None) };
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build());
        Ok(Self { provider: Some(provider.build()) })
    }

    /// Whether spans are exported.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.provider.is_some()
    }

    /// Returns the layer that exports the spans of this server and its engine; `None` if no collector is configured.
    #[must_use]
    pub fn layer<S>(&self) -> Option<impl Layer<S> + use<S>>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let tracer = self.provider.as_ref()?.tracer(SERVICE);
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        // Code location and thread of a span are not useful to operators.
        let layer = layer.with_location(false).with_threads(false).with_tracked_inactivity(false);
        Some(layer.with_filter(filter_fn(|of| of.is_span() && of.target().starts_with("wigwag"))))
    }

    /// Sends the remaining spans, and waits briefly for that.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        if let Some(provider) = self.provider.take() {
            // The exporter has already reported the error.
            let _ = provider.shutdown();
        }
    }
}

/// The configuration from the variables.
#[derive(Debug, PartialEq)]
enum Wanted {
    Nothing,
    Export {
        /// Whether the service has a name.
        is_named: bool,
    },
}

impl Wanted {
    fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        // An empty variable counts as absent, as in the specification.
        let given = |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let either = |one: &str, other: &str| given(one).or_else(|| given(other));
        let off = given("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"))
            || given("OTEL_TRACES_EXPORTER").is_some_and(|text| text == "none");
        let endpoint = either("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT");
        let Some(endpoint) = endpoint.filter(|_| !off) else { return Ok(Self::Nothing) };
        if !endpoint.starts_with("http://") && !endpoint.starts_with("https://") {
            let what = format!("not the address of a collector: `{}`", endpoint.escape_debug());
            return Err(Error::new(what, "write it like `http://localhost:4318`"));
        }
        let protocol = either("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL");
        if let Some(other) = protocol.filter(|protocol| protocol != "http/protobuf") {
            let what = format!("spans are sent as `http/protobuf` only, not as `{}`", other.escape_debug());
            return Err(Error::new(what, "leave `OTEL_EXPORTER_OTLP_PROTOCOL` out; collectors take it on port 4318"));
        }
        if let Some(sampler) = given("OTEL_TRACES_SAMPLER").filter(|sampler| !SAMPLERS.contains(&sampler.as_str())) {
            let what = format!("`OTEL_TRACES_SAMPLER` names no sampler: `{}`", sampler.escape_debug());
            return Err(Error::new(what, format!("use one of {}", SAMPLERS.join(", "))));
        }
        let named = given("OTEL_RESOURCE_ATTRIBUTES").is_some_and(|all| all.contains("service.name="));
        Ok(Self::Export { is_named: named || given("OTEL_SERVICE_NAME").is_some() })
    }
}

/// An exporter that reports errors at a limited rate.
struct Told {
    exporter: SpanExporter,
    say: fn(&str),
    /// Time of the last report, by the monotonic clock.
    said: Mutex<Option<Duration>>,
}

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The exporter's `Debug` output may show its headers, which may be secret.
        f.debug_struct("Told").finish_non_exhaustive()
    }
}

impl Exporter for Told {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let count = batch.len();
        let sent = self.exporter.export(batch).await;
        if let Err(error) = &sent {
            let mut said = self.said.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let now = System.boot();
            if said.is_none_or(|said| now.saturating_sub(said) >= SAID_EVERY) {
                *said = Some(now);
                (self.say)(&format!("{count} spans did not reach the collector: {error}"));
            }
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

fn say_on_stderr(what: &str) {
    let _ = writeln!(std::io::stderr(), "warning: {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Wanted, Error> {
        Wanted::read(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text).to_owned()))
    }

    #[test]
    fn spans_are_sent_only_if_it_is_said_where() {
        let there = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");
        for nothing in [
            &[][..],
            &[("OTEL_SERVICE_NAME", "orders")],
            &[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")],
            &[there, ("OTEL_SDK_DISABLED", "TRUE")],
            &[there, ("OTEL_TRACES_EXPORTER", "none")],
        ] {
            assert_eq!(read(nothing).unwrap(), Wanted::Nothing, "{nothing:?}");
        }
        assert_eq!(read(&[there]).unwrap(), Wanted::Export { is_named: false });
        assert_eq!(read(&[there, ("OTEL_SERVICE_NAME", "orders")]).unwrap(), Wanted::Export { is_named: true });
        let attributes = ("OTEL_RESOURCE_ATTRIBUTES", "service.name=orders,a=b");
        assert_eq!(read(&[there, attributes]).unwrap(), Wanted::Export { is_named: true });
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_what_helps() {
        let there = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://localhost:4318/v1/traces");
        for (wrong, named) in [
            (&[("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317")][..], "localhost:4317"),
            (&[there, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")], "grpc"),
            (&[there, ("OTEL_TRACES_SAMPLER", "sometimes")], "sometimes"),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.to_string().contains(named) && !error.advice().is_empty(), "{error}");
        }
    }
}
