//! Requests of clients, of a store and of a server alike.

use serde::Deserialize;
use serde_json::Value;
use wigwag::{Payload, Status, Time};

use crate::spec::RetrySpec;

/// A request. `task` says that the id is a task's.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Op {
    Check {},
    Now {},
    Start(Start),
    Submit(Submit),
    Get {
        id: String,
        #[serde(default)]
        task: bool,
    },
    Wait {
        id: String,
        #[serde(default)]
        task: bool,
        timeout: Option<f64>,
    },
    Cancel {
        id: String,
        #[serde(default)]
        task: bool,
        reason: Option<String>,
    },
    Pause {
        id: String,
    },
    Resume {
        id: String,
        #[serde(default)]
        anyway: bool,
    },
    Restart {
        id: String,
        from: Option<String>,
    },
    Migrate {
        id: String,
        to: Option<String>,
        #[serde(default)]
        mapping: std::collections::BTreeMap<String, Option<String>>,
    },
    Signal(Signal),
    SignalMany {
        signals: Vec<Signal>,
    },
    List {
        #[serde(default)]
        tasks: bool,
        of: Option<String>,
        status: Option<Status>,
        limit: usize,
        after: Option<String>,
    },
    Counts {},
    Steps {
        id: String,
        #[serde(default)]
        task: bool,
    },
    History {
        id: String,
        #[serde(default)]
        task: bool,
        from: u64,
        limit: u64,
    },
    Follow {
        id: String,
        from: u64,
    },
    Waiting {
        name: Option<String>,
        limit: usize,
        after: Option<String>,
    },
    OpenWaits {
        id: String,
    },
    Inbox {
        id: String,
        name: Option<String>,
    },
    Definitions {
        of: String,
    },
    Explain {
        id: String,
    },
    Link {
        id: String,
        name: String,
        expires_in: f64,
        #[serde(default)]
        once: bool,
        sender: Option<String>,
        server: Option<String>,
    },
}

#[derive(Debug, Deserialize)]
pub(crate) struct Start {
    pub(crate) of: String,
    pub(crate) input: Payload,
    pub(crate) id: Option<String>,
    pub(crate) at: Option<Time>,
    pub(crate) delay: Option<f64>,
    #[serde(default)]
    pub(crate) registered_only: bool,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Submit {
    pub(crate) of: String,
    pub(crate) input: Payload,
    pub(crate) key: Option<String>,
    pub(crate) queue: Option<String>,
    pub(crate) retry: Option<RetrySpec>,
    pub(crate) timeout: Option<f64>,
    pub(crate) at: Option<Time>,
    pub(crate) delay: Option<f64>,
    pub(crate) expires_at: Option<Time>,
    pub(crate) expires_in: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Signal {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) payload: Payload,
    pub(crate) key: Option<String>,
    pub(crate) by: Option<String>,
    #[serde(default)]
    pub(crate) only_if_waiting: bool,
    pub(crate) point: Option<String>,
    pub(crate) start: Option<(String, Payload)>,
    pub(crate) wait: Option<f64>,
}

/// An entry of a log, as JSON.
pub(crate) fn entry(entry: &wigwag_core::Entry) -> Value {
    serde_json::from_slice(&entry.to_json()).unwrap_or_default()
}
