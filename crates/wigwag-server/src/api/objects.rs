//! Keys and objects of the store, read only.

use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::app::App;
use crate::extract::Query;
use crate::limits::PAGE_MAX;
use crate::problem::{Code, Problem, Result};
use crate::wire::{self, Page, Raw};
use crate::words;

/// Maximum number of bytes of an object that are shown.
const SHOWN_BYTES_MAX: usize = 1024 * 1024;

/// Filter of keys.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeysQuery {
    /// Prefix of the keys; all keys if absent.
    #[serde(default)]
    prefix: String,
    /// Most items on the page: 50 by default, 1000 at most.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
    /// Cursor: `next` of the page before.
    #[schemars(with = "Option<words::Cursor>")]
    after: Option<String>,
}

/// A key of the store.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Listed {
    key: String,
    modified: String,
}

pub(crate) async fn list(State(app): State<App>, Query(wanted): Query<KeysQuery>) -> Result<Raw> {
    let (limit, after) = (wire::limit(wanted.limit)?, wire::cursor(wanted.after)?.unwrap_or_default());
    if !after.is_empty() && !after.starts_with(&wanted.prefix) {
        return Err(Problem::new(Code::InvalidQuery, "`after` must be the `next` of the previous page"));
    }
    let page = app.client.store().list(&wanted.prefix, &after, limit).await.map_err(wigwag::Error::from)?;
    let next = page.entries.last().filter(|_| page.more).map(|last| last.key.clone());
    let items: Vec<Listed> =
        page.entries.into_iter().map(|listed| Listed { key: listed.key, modified: time(listed.modified) }).collect();
    wire::json(200, &Page { items, next })
}

fn time(stamp: wigwag_store::Stamp) -> String {
    wigwag::Time::from_micros(stamp.micros()).to_string()
}

/// An object of the store.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Object {
    key: String,
    /// Length in bytes.
    bytes: usize,
    modified: String,
    /// The object, if it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Value>")]
    json: Option<Box<RawValue>>,
    /// Its first MiB as text, if it is other text.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// Its first MiB as base64, if it is neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
}

/// Key of an object to read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ObjectQuery {
    /// Key of the object.
    #[schemars(with = "words::ObjectKey")]
    key: String,
}

pub(crate) async fn get(State(app): State<App>, Query(ObjectQuery { key }): Query<ObjectQuery>) -> Result<Raw> {
    wigwag_store::check_key(&key).map_err(|error| Problem::new(Code::InvalidQuery, error.to_string()))?;
    let object = app.client.store().get(&key).await.map_err(wigwag::Error::from)?;
    let object = object.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no object `{key}`")))?;
    let mut shown =
        Object { bytes: object.body.len(), modified: time(object.modified), json: None, text: None, base64: None, key };
    let body = &object.body[..object.body.len().min(SHOWN_BYTES_MAX)];
    let json = std::str::from_utf8(&object.body).ok().filter(|_| object.body.len() <= SHOWN_BYTES_MAX);
    match json.and_then(|text| RawValue::from_string(text.trim().to_owned()).ok()) {
        Some(json) => shown.json = Some(json),
        None => match std::str::from_utf8(body) {
            Ok(text) => shown.text = Some(text.to_owned()),
            Err(_) => shown.base64 = Some(STANDARD.encode(body)),
        },
    }
    wire::json(200, &shown)
}
