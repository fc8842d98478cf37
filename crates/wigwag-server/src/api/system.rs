//! Health of the server and its store, and registered definitions.

use axum::extract::State;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::{App, stopping};
use crate::extract::Path;
use crate::problem::{Code, Problem, Result};
use crate::wire::{self, Page, Raw};

/// Health of the server.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Health {
    /// Always `ok`.
    status: &'static str,
}

pub(crate) async fn health() -> Result<Raw> {
    wire::json(200, &Health { status: "ok" })
}

/// Readiness: fails while the server stops or its store does not respond, so that load balancers send no requests.
pub(crate) async fn ready(State(app): State<App>) -> Result<Raw> {
    if *app.stopping.borrow() {
        return Err(stopping());
    }
    app.client.check().await?;
    wire::json(200, &Health { status: "ok" })
}

pub(crate) async fn definitions(State(app): State<App>, Path(of): Path<String>) -> Result<Raw> {
    let items = app.client.definitions(&of).await?;
    if items.is_empty() {
        return Err(Problem::new(Code::NotFound, format!("no worker has stored a definition of `{of}`")));
    }
    wire::json(200, &Page { items, next: None })
}

pub(crate) async fn metrics(State(app): State<App>) -> Result<Response> {
    let none = || Problem::new(Code::NotFound, "this server collects no metrics").hint("start it with metrics");
    let text = app.metrics.as_ref().ok_or_else(none)?.text();
    Ok(([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response())
}

pub(crate) async fn description(State(app): State<App>) -> Raw {
    Raw::ok(app.description.clone())
}

/// Serves the page of the API documentation, which loads only files of this server.
pub(crate) async fn docs() -> impl IntoResponse {
    let policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
                  form-action 'none'; frame-ancestors 'none'";
    let headers = [(CONTENT_TYPE, "text/html; charset=utf-8"), (CONTENT_SECURITY_POLICY, policy)];
    (headers, include_str!("../docs.html"))
}

pub(crate) async fn docs_script() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("../docs.js"))
}

pub(crate) async fn docs_style() -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("../docs.css"))
}
