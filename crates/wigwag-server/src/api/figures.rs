//! Workers, and figures of this process over the last hour.

use axum::extract::State;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use wigwag::Time;
use wigwag_store::limits::LIST_PAGE;
use wigwag_store::{Clock as _, Cost, System};

use crate::app::App;
use crate::problem::Result;
use crate::wire::{self, Raw};

/// Workers of the store.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Workers {
    items: Vec<Worker>,
    /// Whether a lock on this machine shows that workers are alive; otherwise they write heartbeats to the store.
    by_lock: bool,
}

/// A worker of the store.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Worker {
    id: String,
    /// Time of the last heartbeat.
    seen: String,
    /// Host, process, version, workflows and slots, as far as the worker reports them.
    about: Value,
}

pub(crate) async fn workers(State(app): State<App>) -> Result<Raw> {
    let store = app.client.store();
    if let Some(peers) = store.peers() {
        let seen = Time::from_micros(System.wall().micros()).to_string();
        let items = peers.living().into_iter().map(|id| Worker {
            about: serde_json::json!({"this_process": id == peers.me()}),
            seen: seen.clone(),
            id,
        });
        return wire::json(200, &Workers { items: items.collect(), by_lock: true });
    }
    let page = store.list("workers/", "", LIST_PAGE).await.map_err(wigwag::Error::from)?;
    let reads = page.entries.into_iter().map(|listed| async move {
        let object = store.get(&listed.key).await.map_err(wigwag::Error::from)?;
        let about = object.and_then(|object| serde_json::from_slice(&object.body).ok()).unwrap_or(Value::Null);
        let id = listed.key.trim_start_matches("workers/").trim_end_matches(".json").to_owned();
        let seen = Time::from_micros(listed.modified.micros()).to_string();
        Ok::<_, crate::problem::Problem>(Worker { id, seen, about })
    });
    let items = stream::iter(reads).buffered(16).try_collect().await?;
    wire::json(200, &Workers { items, by_lock: false })
}

/// Figures of this process over the last hour.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Figures {
    /// Seconds between two samples.
    step: f64,
    steps: Vec<crate::series::Step>,
    /// Seconds since the server started.
    up: f64,
    /// Dollars a day at the list prices of S3, at the rate of the last hour; absent if requests are not counted. An embedded
    /// store costs nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    dollars_a_day: Option<f64>,
    /// Repairs of the sweeper since the server started; anything but 0 is a bug.
    sweeper_repairs: u64,
    hub: Value,
}

pub(crate) async fn series(State(app): State<App>) -> Result<Raw> {
    let (usage, since) = app.usage_since_start();
    let up = since.as_secs_f64().max(1.0);
    let is_bucket = !app.client.store().traits().notifications.is_complete();
    let dollars = usage.map(|usage| usage.dollars(Cost::S3_STANDARD) / up * 86_400.0);
    let repairs = app.metrics.as_ref().map(|metrics| metrics.sum("wigwag_sweeper_repairs_total")).unwrap_or_default();
    let figures = Figures {
        step: crate::series::STEP.as_secs_f64(),
        steps: app.series.steps(),
        up,
        dollars_a_day: dollars.filter(|_| is_bucket),
        sweeper_repairs: repairs as u64,
        hub: app.hub.figures(),
    };
    wire::json(200, &figures)
}
