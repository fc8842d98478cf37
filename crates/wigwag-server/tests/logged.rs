//! What is logged, in a process of its own: whoever writes logs down hears the whole process.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

#[expect(dead_code, reason = "the other tests use the rest")]
#[path = "it/kit.rs"]
mod kit;

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use reqwest::Method;
use serde_json::json;
use wigwag_server::{Auth, Scope};

use crate::kit::{Kit, with};

const TOKEN: &str = "a-token-0123456789";

/// Writes down all that is logged.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<String>>);

impl tracing::field::Visit for Written {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0.lock().unwrap(), " {field}={value:?}");
    }
}

impl tracing::Subscriber for Written {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        let _ = write!(self.0.lock().unwrap(), "\nspan {}", span.metadata().name());
        span.record(&mut self.clone());
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, values: &tracing::span::Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let _ = write!(self.0.lock().unwrap(), "\nevent");
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn nothing_secret_is_logged() {
    let written = Written::default();
    let _until_the_end = tracing::subscriber::set_default(written.clone());
    let auth = Auth::new().token("all", TOKEN, [Scope::Admin]).unwrap();
    let kit = Kit::with(|server| server.auth(auth)).await;
    with(&kit, TOKEN, Method::POST, "/v1/runs", Some(json!({"type": "approve", "id": "a"}))).await.ok(201);
    let link =
        with(&kit, TOKEN, Method::POST, "/v1/links", Some(json!({"run": "a", "name": "approval"}))).await.ok(201);
    let token = link["token"].as_str().unwrap();
    kit.get(&format!("/v1/links/{token}")).await.ok(200);
    kit.get("/v1/runs/a/events?access_token=a-wrong-but-secret-token").await.problem("not_authenticated");
    with(&kit, "another-wrong-secret", Method::GET, "/v1/runs", None).await.problem("not_authenticated");
    let text = written.0.lock().unwrap().clone();
    assert!(text.contains("http.route=\"/v1/links/{token}\"") && text.contains("trace_id"), "it writes down: {text}");
    for secret in [token, TOKEN, "a-wrong-but-secret-token", "another-wrong-secret"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}
