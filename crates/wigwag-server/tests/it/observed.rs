//! Tests of metrics and traces.

use reqwest::Method;
use serde_json::json;
use wigwag_server::Metrics;

use crate::kit::{Kit, answer};

#[tokio::test]
async fn requests_are_counted_by_route_and_nothing_secret_is_among_the_figures() {
    let kit = Kit::with(|server| server.metrics(Metrics::install().unwrap())).await;
    kit.waiting("counted-run").await;
    let link = kit.post("/v1/links", json!({"run": "counted-run", "name": "approval"})).await.ok(201);
    let token = link["token"].as_str().unwrap();
    kit.get(&format!("/v1/links/{token}")).await.ok(200);
    kit.get("/v1/no-such-path/with-a-secret").await.problem("no_route");
    let answer = kit.get("/metrics").await;
    assert!(answer.header("content-type").starts_with("text/plain"));
    let text = answer.text;
    for part in [
        "wigwag_http_requests_total{method=\"POST\",route=\"/v1/runs\",status=\"201\"}",
        "wigwag_http_requests_total{method=\"GET\",route=\"/v1/links/{token}\",status=\"200\"}",
        "wigwag_http_requests_total{method=\"GET\",route=\"(none)\",status=\"404\"}",
        "wigwag_http_request_seconds_bucket{method=\"POST\",route=\"/v1/runs\",le=",
        "wigwag_http_problems_total{code=\"no_route\"}",
        "wigwag_http_requests_under_way",
        "wigwag_runs_started_total",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    for secret in [token, "counted-run", "with-a-secret"] {
        assert!(!text.contains(secret), "{secret}");
    }
    Kit::new().await.get("/metrics").await.problem("not_found");
}

#[tokio::test]
async fn every_figure_is_in_the_docs() {
    let kit = Kit::with(|server| server.metrics(Metrics::install().unwrap())).await;
    kit.waiting("a").await;
    kit.post("/v1/runs/a/signals/approval", json!({"wait": "50s"})).await.ok(200);
    kit.get("/v1/runs/a/wait").await.ok(200);
    kit.get("/v1/runs/nobody").await.problem("not_found");
    let text = kit.get("/metrics").await.text;
    let named: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(named.len() > 8, "{named:?}");
    let docs = include_str!("../../../../docs/observability.md");
    for name in named {
        assert!(docs.contains(&format!("| `{name}` |")), "docs/observability.md says nothing of `{name}`");
    }
}

#[tokio::test]
async fn a_trace_is_taken_up_and_answered() {
    let kit = Kit::new().await;
    let (id, parent) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
    let request = kit.request(Method::GET, "/v1/health").header("traceparent", format!("00-{id}-{parent}-01"));
    let answered = answer(request).await.header("traceparent").to_owned();
    assert!(answered.starts_with(&format!("00-{id}-")) && answered.ends_with("-01"), "{answered}");
    assert!(!answered.contains(parent), "the span must be new: {answered}");
    let fresh = answer(kit.request(Method::GET, "/v1/health").header("traceparent", "nonsense")).await;
    assert_eq!(fresh.header("traceparent").len(), 55, "{}", fresh.header("traceparent"));
}
