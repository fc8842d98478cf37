//! How many runs there are, by type and status, from the keys of indexes: no run is read.
//!
//! Does not hold: that the figures are exact at one moment. Runs end while they are counted, and a run that was restarted is
//! counted at its earlier end too until that is removed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wigwag_core::{Key, Status, TypeName, kind_of};

use crate::engine_core::EngineCore;
use crate::error::Result;
use crate::pages::Pages;

/// Number of runs of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TypeCounts {
    /// Runs that have not ended.
    pub unfinished: u64,
    /// Runs that completed.
    pub completed: u64,
    /// Runs that failed.
    pub failed: u64,
    /// Runs that were cancelled.
    pub cancelled: u64,
}

/// Number of runs, by type. Tasks are listed as `task:QUEUE:TYPE`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counts {
    /// The types, by name. A type that no worker has registered and of which no run is left is called by its hash.
    pub types: BTreeMap<String, TypeCounts>,
    /// Waits that are open, by the name of their signal.
    pub waiting: BTreeMap<String, u64>,
}

impl TypeCounts {
    fn of(&mut self, status: Status) -> &mut u64 {
        match status {
            Status::Completed => &mut self.completed,
            Status::Cancelled => &mut self.cancelled,
            _ => &mut self.failed,
        }
    }
}

pub(super) async fn counts(inner: &EngineCore) -> Result<Counts> {
    let mut counts = Counts::default();
    // Keys of ended runs contain a hash of the type; the names come from definitions and live runs.
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    let mut name = |of: &TypeName| names.insert(kind_of(of), of.to_string());
    let mut pages = Pages::new(&*inner.store, "definition/");
    while let Some(entries) = pages.next().await? {
        for listed in &entries {
            if let Ok(Key::Definition { of, .. }) = listed.key.parse::<Key>() {
                name(&of);
            }
        }
    }
    let mut pages = Pages::new(&*inner.store, "live/");
    while let Some(entries) = pages.next().await? {
        for listed in &entries {
            if let Ok(Key::Live { of, .. }) = listed.key.parse::<Key>() {
                name(&of);
                counts.types.entry(of.to_string()).or_default().unfinished += 1;
            }
        }
    }
    let mut pages = Pages::new(&*inner.store, "waiting/");
    while let Some(entries) = pages.next().await? {
        for listed in &entries {
            if let Ok(Key::Waiting { name, .. }) = listed.key.parse::<Key>() {
                *counts.waiting.entry(name.to_string()).or_default() += 1;
            }
        }
    }
    for (kind, (ended, example)) in ended(inner).await? {
        let of = match names.get(&kind) {
            Some(of) => of.clone(),
            None => type_in_index(inner, &example).await?.unwrap_or(kind),
        };
        let of = counts.types.entry(of).or_default();
        (of.completed, of.failed, of.cancelled) = (ended.completed, ended.failed, ended.cancelled);
    }
    Ok(counts)
}

/// Counts ends by the hash of the type, with the key of one of them.
async fn ended(inner: &EngineCore) -> Result<BTreeMap<String, (TypeCounts, String)>> {
    let mut found: BTreeMap<String, (TypeCounts, String)> = BTreeMap::new();
    let mut pages = Pages::new(&*inner.store, "done/");
    while let Some(entries) = pages.next().await? {
        for listed in entries {
            if let Ok(Key::Done { kind, status, .. }) = listed.key.parse::<Key>() {
                let (counts, example) = found.entry(kind).or_default();
                *counts.of(status) += 1;
                *example = listed.key;
            }
        }
    }
    Ok(found)
}

/// The type that the body of an index object names.
async fn type_in_index(inner: &EngineCore, key: &str) -> Result<Option<String>> {
    let Some(object) = inner.store.get(key).await? else { return Ok(None) };
    let facts: serde_json::Value = serde_json::from_slice(&object.body).unwrap_or_default();
    Ok(facts["type"].as_str().map(str::to_owned))
}
