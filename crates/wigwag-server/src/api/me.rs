//! The caller, its permissions, and the server.

use axum::extract::State;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::auth::Caller;
use crate::problem::Result;
use crate::wire::{self, Raw};

/// The caller, and the server that answers.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Me {
    /// Name of the token; absent on a server without tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Scopes of the token; absent on a server without tokens, where everything is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    scopes: Option<Vec<String>>,
    /// End of the token, in seconds since 1970; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    /// Whether signals may be sent under any name: on a server without tokens, or with the scope `admin`.
    by_free: bool,
    /// Version of the server.
    version: &'static str,
    /// Version of the dashboard that it serves; absent if it serves none.
    #[serde(skip_serializing_if = "Option::is_none")]
    dashboard: Option<&'static str>,
    store: StoreFacts,
}

/// The store of a server.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct StoreFacts {
    /// URL that the server was started with; absent if it is not configured to show it.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// Whether the store notifies of changes; a bucket has to be listed.
    notifies: bool,
}

pub(crate) async fn me(State(app): State<App>, caller: Caller) -> Result<Raw> {
    #[cfg(feature = "dashboard")]
    let dashboard = Some(crate::dashboard::version());
    #[cfg(not(feature = "dashboard"))]
    let dashboard = None;
    wire::json(
        200,
        &Me {
            name: caller.name().map(str::to_owned),
            scopes: caller.scopes().map(|scopes| scopes.iter().map(ToString::to_string).collect()),
            until: caller.expires(),
            by_free: caller.may_name_senders(),
            version: env!("CARGO_PKG_VERSION"),
            dashboard,
            store: StoreFacts {
                url: app.settings.store_url.clone(),
                notifies: app.client.store().traits().notifications.is_complete(),
            },
        },
    )
}
