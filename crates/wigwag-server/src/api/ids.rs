//! Ids that begin with a text, and the workflows that workers have registered.

use axum::extract::State;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wigwag_core::Key;
use wigwag_store::limits::LIST_PAGE;

use crate::app::App;
use crate::auth::{Caller, Need};
use crate::extract::{Path, Query};
use crate::problem::{Code, Problem, Result};
use crate::wire::{self, Page, Raw};
use crate::words;

/// LIST requests of one answer.
const LISTS_MAX: usize = 8;

/// Default and maximum number of ids in one answer.
const IDS: usize = 20;
const IDS_MAX: usize = 100;

/// Filter of ids.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct IdsQuery {
    /// Prefix of the id; all ids if absent.
    #[serde(default)]
    #[schemars(with = "Option<words::Id>")]
    prefix: String,
    /// Most ids: 20 by default, 100 at most.
    #[schemars(range(min = 1, max = IDS_MAX))]
    limit: Option<usize>,
}

/// Id of a run or task.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Found {
    id: String,
    /// Whether it is a task.
    task: bool,
}

pub(crate) async fn ids(State(app): State<App>, caller: Caller, Query(wanted): Query<IdsQuery>) -> Result<Raw> {
    let limit = wanted.limit.unwrap_or(IDS);
    if !(1..=IDS_MAX).contains(&limit) {
        return Err(Problem::new(Code::InvalidQuery, format!("`limit` is 1 to {IDS_MAX}, got: {limit}")));
    }
    if !wanted.prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte)) {
        return Err(Problem::new(Code::InvalidQuery, "`prefix` has letters that no id has"));
    }
    let mut items = below(&app, "workflow/", &wanted.prefix, limit).await?;
    if caller.may(Need::Tasks).is_ok() && items.len() < limit {
        items.extend(below(&app, "task/", &wanted.prefix, limit - items.len()).await?);
    }
    wire::json(200, &Page { items, next: None })
}

/// Distinct ids below a prefix: one run may have thousands of keys, which are skipped.
async fn below(app: &App, family: &str, prefix: &str, limit: usize) -> Result<Vec<Found>> {
    let store = app.client.store();
    let within = format!("{family}{prefix}");
    let mut after = String::new();
    let mut found: Vec<Found> = Vec::new();
    for _ in 0..LISTS_MAX {
        let page = store.list(&within, &after, 200).await.map_err(wigwag::Error::from)?;
        for listed in &page.entries {
            let Some(id) = listed.key.strip_prefix(family).and_then(|rest| rest.split('/').next()) else { continue };
            if found.last().is_none_or(|last| last.id != id) {
                found.push(Found { id: id.to_owned(), task: family == "task/" });
            }
        }
        found.truncate(limit);
        let Some(last) = found.last().filter(|_| page.more && found.len() < limit) else { break };
        // `0` follows `/`: the first key after all keys of that run.
        after = format!("{family}{}0", last.id);
    }
    Ok(found)
}

/// A workflow that workers have registered.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Workflow {
    /// Name of the workflow.
    #[serde(rename = "type")]
    of: String,
    /// Hash of its newest definition.
    hash: String,
    /// `graph`, `function` or `task`.
    #[schemars(with = "String")]
    style: wigwag_core::Style,
    /// Version of a function.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    /// Number of steps of the newest definition; 0 for a function.
    steps: usize,
    /// Number of definitions that workers have stored.
    definitions: usize,
}

pub(crate) async fn workflows(State(app): State<App>) -> Result<Raw> {
    let store = app.client.store();
    let mut newest: std::collections::BTreeMap<String, (usize, wigwag_store::Stamp, String)> = Default::default();
    let mut after = String::new();
    for _ in 0..LISTS_MAX {
        let page = store.list("definition/", &after, LIST_PAGE).await.map_err(wigwag::Error::from)?;
        for listed in &page.entries {
            let Ok(Key::Definition { of, .. }) = listed.key.parse() else { continue };
            let known = newest.entry(of.to_string()).or_insert((0, listed.modified, listed.key.clone()));
            known.0 += 1;
            if listed.modified >= known.1 {
                (known.1, known.2) = (listed.modified, listed.key.clone());
            }
        }
        match page.entries.last() {
            Some(last) if page.more => after.clone_from(&last.key),
            _ => break,
        }
    }
    let read = newest.into_values().map(|(count, _, key)| async move {
        let object = store.get(&key).await.map_err(wigwag::Error::from)?;
        let read = object.and_then(|object| serde_json::from_slice::<wigwag_core::Definition>(&object.body).ok());
        Ok::<_, Problem>(read.map(|read| Workflow {
            of: read.of.to_string(),
            hash: read.hash,
            style: read.style,
            version: read.version,
            steps: read.steps.len(),
            definitions: count,
        }))
    });
    let items: Vec<Option<Workflow>> = stream::iter(read).buffered(16).try_collect().await?;
    wire::json(200, &Page { items: items.into_iter().flatten().collect::<Vec<_>>(), next: None })
}

/// One definition, which never changes.
pub(crate) async fn definition(State(app): State<App>, Path((of, hash)): Path<(String, String)>) -> Result<Raw> {
    let all = app.client.definitions(&of).await?;
    let found = all.into_iter().find(|definition| definition.hash == hash);
    let none =
        || Problem::new(Code::NotFound, format!("no worker has stored definition `{}` of that type", shown(&hash)));
    wire::json(200, &found.ok_or_else(none)?)
}

fn shown(text: &str) -> String {
    text.chars().take(80).collect::<String>().escape_debug().to_string()
}
