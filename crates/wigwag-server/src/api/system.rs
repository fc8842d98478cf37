//! Whether the server lives, whether its store answers, and what workers know.

use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::{App, stopping};
use crate::extract::Path;
use crate::problem::{Code, Problem, Result};
use crate::wire::{self, Page, Raw};

/// It does what it should.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Health {
    /// `ok`.
    status: &'static str,
}

pub(crate) async fn health() -> Result<Raw> {
    wire::json(200, &Health { status: "ok" })
}

/// A server that stops, or whose store does not answer, is to be asked nothing.
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
