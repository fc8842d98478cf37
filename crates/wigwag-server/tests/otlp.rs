//! Spans arrive at a real collector, configured by the variables `OTEL_*`. Each case is a separate process, because a process
//! has one environment, and one span subscriber.
#![cfg(feature = "otlp")]
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

#[expect(dead_code, reason = "the other tests use the rest")]
#[path = "it/kit.rs"]
mod kit;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value as Is};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use prost::Message as _;
use serde_json::{Value, json};

use crate::kit::{Answer, Kit, answer};

/// A collector that stores the spans it receives.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(HeaderMap, ResourceSpans)>>>);

impl Collector {
    async fn start(&self) -> String {
        let kept = Arc::clone(&self.0);
        let take = move |headers: HeaderMap, body: Bytes| async move {
            let request = ExportTraceServiceRequest::decode(body).unwrap();
            kept.lock().unwrap().extend(request.resource_spans.into_iter().map(|spans| (headers.clone(), spans)));
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router = axum::Router::new().route("/v1/traces", post(take));
        tokio::spawn(axum::serve(listener, router).into_future());
        url
    }

    fn spans(&self) -> Vec<Span> {
        let kept = self.0.lock().unwrap();
        let scopes = kept.iter().flat_map(|(_, of_resource)| &of_resource.scope_spans);
        scopes.flat_map(|of_scope| of_scope.spans.clone()).collect()
    }

    fn resource(&self) -> Vec<KeyValue> {
        self.0.lock().unwrap()[0].1.resource.clone().unwrap().attributes
    }
}

/// A server in a separate process.
struct Serving {
    process: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    said: Vec<String>,
    http: reqwest::Client,
}

impl Serving {
    fn start(variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "a_server_for_the_other_tests", "--ignored", "--nocapture"]);
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (stdin, stdout) = (process.stdin.take(), BufReader::new(process.stdout.take().unwrap()));
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let mut serving = Self { process, stdin, stdout, said: Vec::new(), http };
        while !serving.said.iter().any(|line| line.contains("addr=")) {
            let mut line = String::new();
            assert_ne!(serving.stdout.read_line(&mut line).unwrap(), 0, "it ended: {:?}", serving.said);
            serving.said.push(line);
        }
        serving
    }

    fn url(&self, path: &str) -> String {
        let line = self.said.iter().find_map(|line| line.split("addr=").nth(1)).unwrap();
        format!("http://{}{path}", line.trim())
    }

    async fn post(&self, path: &str, traceparent: &str, body: Value) -> Answer {
        answer(self.http.post(self.url(path)).header("traceparent", traceparent).json(&body)).await
    }

    async fn get(&self, path: &str) -> Answer {
        answer(self.http.get(self.url(path))).await
    }

    /// Stops the server gracefully. Returns its stderr.
    fn stop(mut self) -> String {
        drop(self.stdin.take());
        let mut said = String::new();
        self.process.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert!(self.process.wait().unwrap().success(), "{said}\n{rest}");
        said
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "the other tests start it as a process"]
async fn a_server_for_the_other_tests() {
    let telemetry = wigwag_server::telemetry::init().unwrap();
    let kit = Kit::new().await;
    let (is_on, is_set) = (telemetry.is_on(), tracing::dispatcher::has_been_set());
    let mut out = std::io::stdout().lock();
    writeln!(out, "on={is_on} set={is_set}\naddr={}", kit.server.addr()).unwrap();
    drop(out);
    // Runs until the parent process closes the pipe.
    let wait = tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()));
    wait.await.unwrap().unwrap();
    kit.server.stop().await;
    kit.engine.stop().await;
    tokio::task::spawn_blocking(|| telemetry.stop()).await.unwrap();
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text<'a>(attributes: &'a [KeyValue], key: &str) -> &'a str {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    match found.and_then(|attribute| attribute.value.as_ref()?.value.as_ref()) {
        Some(Is::StringValue(text)) => text,
        _ => "",
    }
}

fn named<'a>(spans: &'a [Span], name: &str) -> &'a Span {
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    spans.iter().find(|span| span.name == name).unwrap_or_else(|| panic!("no `{name}` among {names:?}"))
}

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

#[tokio::test(flavor = "multi_thread")]
async fn a_request_and_the_steps_of_the_run_it_starts_are_one_trace() {
    let collector = Collector::default();
    let endpoint = collector.start().await;
    let serving = Serving::start(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=payments"),
        ("OTEL_SERVICE_NAME", "orders"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test"),
    ]);
    assert!(serving.said.iter().any(|line| line.contains("on=true set=true")), "{:?}", serving.said);
    let parent = format!("00-{TRACE}-{CALLER}-01");
    let input = json!({"card": "a-secret-payload"});
    let started = serving.post("/v1/runs", &parent, json!({"type": "order", "id": "o", "input": input})).await;
    let answered = started.header("traceparent").to_owned();
    started.ok(201);
    let signal = json!({"payload": {"yes": true, "card": "a-secret-payload"}, "wait": "50s"});
    serving.post("/v1/runs/o/signals/approval", "", signal).await.ok(200);
    serving.get("/v1/runs/o/wait").await.ok(200);
    let link = serving.post("/v1/links", "", json!({"run": "o", "name": "approval"})).await;
    link.problem("not_running");
    serving.get("/v1/links/a-secret-token").await.problem("invalid");
    serving.get("/v1/runs/o/events?access_token=a-secret-token").await;
    serving.get("/v1/a-secret-path").await.problem("no_route");
    let said = serving.stop();
    assert!(!said.contains("warning"), "{said}");

    let spans = collector.spans();
    let request = named(&spans, "POST /v1/runs");
    assert_eq!((hex(&request.trace_id), hex(&request.parent_span_id)), (TRACE.to_owned(), CALLER.to_owned()));
    assert_eq!(answered, format!("00-{TRACE}-{}-01", hex(&request.span_id)), "what is answered is what arrives");
    assert_eq!((request.kind, text(&request.attributes, "http.route")), (2, "/v1/runs"));
    // The turn that consumes the signal has a separate trace, and may end first.
    let begun = |span: &&Span| span.name == "turn order" && span.parent_span_id == request.span_id;
    let turn = spans.iter().find(begun).expect("a turn that the request began");
    assert_eq!(turn.trace_id, request.trace_id);
    let step = named(&spans, "step first");
    assert_eq!((&step.trace_id, &step.parent_span_id), (&turn.trace_id, &turn.span_id));
    assert_eq!((text(&step.attributes, "run.id"), text(&step.attributes, "point")), ("o", "first"));
    let signal = named(&spans, "signal");
    let sender = named(&spans, "POST /v1/runs/{id}/signals/{name}");
    assert_eq!((&signal.trace_id, &signal.parent_span_id), (&sender.trace_id, &sender.span_id));
    named(&spans, "step last");
    let resource = collector.resource();
    assert_eq!((text(&resource, "service.name"), text(&resource, "deployment.environment")), ("orders", "test"));
    assert_eq!(collector.0.lock().unwrap()[0].0["x-team"], "payments");
    let everything = format!("{:?}", collector.0.lock().unwrap());
    assert!(!everything.contains("a-secret"), "{everything}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_fails_is_an_error() {
    let collector = Collector::default();
    let endpoint = format!("{}/v1/traces", collector.start().await);
    let serving = Serving::start(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &endpoint)]);
    let task = serving.post("/v1/tasks", "", json!({"type": "hopeless"})).await.ok(201);
    serving.get(&format!("/v1/tasks/{}/wait", task["id"].as_str().unwrap())).await.ok(200);
    serving.get("/v1/health").await.ok(200);
    serving.stop();
    let spans = collector.spans();
    let failed: Vec<&Span> = spans.iter().filter(|span| span.status.as_ref().is_some_and(|is| is.code == 2)).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0].name.starts_with("step "), "{failed:?}");
    assert_eq!(text(&collector.resource(), "service.name"), "wigwag");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_to_be_sent_is_not() {
    for variable in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_SAMPLER", "always_off")] {
        let collector = Collector::default();
        let endpoint = collector.start().await;
        let serving = Serving::start(&[("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint), variable]);
        let parent = format!("00-{TRACE}-{CALLER}-00");
        let started = serving.post("/v1/runs", &parent, json!({"type": "order", "id": "o", "input": {}})).await;
        assert!(started.header("traceparent").starts_with(&format!("00-{TRACE}-")), "{variable:?}");
        started.ok(201);
        serving.stop();
        assert_eq!(collector.spans(), [], "{variable:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_costs_one_warning() {
    // A port without a listener.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", taken.local_addr().unwrap());
    drop(taken);
    let serving = Serving::start(&[
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
        ("OTEL_BSP_SCHEDULE_DELAY", "20"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=a-secret-key"),
    ]);
    for number in 0..40 {
        let id = format!("e-{number}");
        serving.post("/v1/runs", "", json!({"type": "echo", "id": id, "input": number})).await.ok(201);
        serving.get(&format!("/v1/runs/{id}/wait")).await.ok(200);
    }
    let said = serving.stop();
    assert_eq!(said.matches("did not reach the collector").count(), 1, "{said}");
    assert!(!said.contains("a-secret-key"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_collector_nothing_is_installed() {
    let serving = Serving::start(&[("OTEL_SERVICE_NAME", "orders")]);
    assert!(serving.said.iter().any(|line| line.contains("on=false set=false")), "{:?}", serving.said);
    serving.get("/v1/health").await.ok(200);
    serving.stop();
}
