//! Waits: by signal, by age and by deadline.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::Deserialize;
use wigwag::{RunId, Time};
use wigwag_core::RunRef;
use wigwag_store::{Result, Store};

use super::Listing;

/// Maximum number of waits in memory; beyond it the counts stay exact, and the oldest waits are kept.
pub(crate) const KEPT_MAX: usize = 500_000;

/// Index entries whose bodies are read to learn types and deadlines; with more waits only ages are known.
pub(crate) const READ_MAX: usize = 5_000;

/// Bodies that are read concurrently.
const READS_AT_ONCE: usize = 32;

/// The open waits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    /// Key and time of each, in key order unless some were dropped.
    pub(crate) all: Vec<(Box<str>, u64)>,
    /// Time of the newest wait that is kept, once some were dropped.
    newest: Option<u64>,
    /// Positions in `all`, the oldest first.
    pub(crate) by_age: Vec<u32>,
    pub(crate) counts: HashMap<Box<str>, usize>,
}

impl Waits {
    pub(crate) fn total(&self) -> usize {
        self.counts.values().sum()
    }

    /// Whether every wait is kept.
    pub(crate) fn is_whole(&self) -> bool {
        self.all.len() == self.total()
    }

    /// Adds a wait, unless it is newer than the dropped ones. People answer the oldest waits first, so the limit drops the newest.
    fn insert(&mut self, key: &str, modified: u64, most: usize) {
        if self.newest.is_some_and(|newest| modified > newest) {
            return;
        }
        self.all.push((key.into(), modified));
        if self.all.len() > most {
            // Half of them at once, so that a wait is moved a bounded number of times.
            let (_, newest, _) = self.all.select_nth_unstable_by_key(most / 2, |(_, since)| *since);
            self.newest = Some(newest.1);
            self.all.truncate(most / 2 + 1);
        }
    }
}

impl Listing for Waits {
    const PREFIX: &'static str = "waiting/";

    fn add(&mut self, key: &str, modified: u64) {
        let Some((name, _)) = split(key) else { return };
        match self.counts.get_mut(name) {
            Some(count) => *count += 1,
            None => _ = self.counts.insert(name.into(), 1),
        }
        self.insert(key, modified, KEPT_MAX);
    }

    fn finish(&mut self) {
        self.by_age = (0..u32::try_from(self.all.len()).unwrap_or(u32::MAX)).collect();
        let all = &self.all;
        self.by_age.sort_by(|one, other| {
            let place = |at: &u32| all.get(*at as usize).map(|(key, since)| (*since, key));
            place(one).cmp(&place(other))
        });
    }
}

/// Signal and run of a key of the index.
pub(crate) fn split(key: &str) -> Option<(&str, &str)> {
    let (name, rest) = key.strip_prefix(Waits::PREFIX)?.split_once('/')?;
    let (run, _) = rest.rsplit_once('~')?;
    Some((name, run))
}

/// Facts about a wait from its index entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Facts {
    pub(crate) run: RunRef,
    pub(crate) of: String,
    pub(crate) deadline: Option<Time>,
}

/// Bodies of index entries, which are never changed, by key. The least recently used entries are evicted first.
#[derive(Debug, Default)]
pub(crate) struct FactsCache(Mutex<Generations>);

/// Two generations of entries. A used entry moves to the young one; when the young one is full it replaces the old one.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<Box<str>, Arc<Facts>>,
    old: HashMap<Box<str>, Arc<Facts>>,
}

impl Generations {
    fn get(&mut self, key: &str, most: usize) -> Option<Arc<Facts>> {
        if let Some(facts) = self.young.get(key) {
            return Some(Arc::clone(facts));
        }
        let (key, facts) = self.old.remove_entry(key)?;
        self.insert(key, Arc::clone(&facts), most);
        Some(facts)
    }

    fn insert(&mut self, key: Box<str>, facts: Arc<Facts>, most: usize) {
        if self.young.len() >= most {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, facts);
    }
}

/// Bodies in one generation: those of several pages of the largest size.
const GENERATION_MAX: usize = 2 * READ_MAX;

/// Reads an index entry; an unreadable entry is a workflow of unknown type.
pub(crate) fn facts_of(key: &str, body: &[u8]) -> Option<Facts> {
    #[derive(Default, Deserialize)]
    struct Body {
        #[serde(rename = "type", default)]
        of: String,
        run: Option<String>,
        deadline: Option<Time>,
    }
    let (_, id) = split(key)?;
    let body: Body = serde_json::from_slice(body).unwrap_or_default();
    let run = body.run.and_then(|run| run.parse::<RunRef>().ok()).filter(|run| run.id.as_str() == id);
    let run = run.or_else(|| RunId::new(id).ok().map(RunRef::workflow))?;
    Some(Facts { run, of: body.of, deadline: body.deadline })
}

impl FactsCache {
    /// Returns the facts of these waits; a wait that was removed in between has none.
    pub(crate) async fn read(&self, store: &dyn Store, keys: &[&str]) -> Result<Vec<Option<Arc<Facts>>>> {
        let known: Vec<Option<Arc<Facts>>> = {
            let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            keys.iter().map(|key| cache.get(key, GENERATION_MAX)).collect()
        };
        // Owned, because the compiler cannot see that a stream of borrowing futures may go to another thread.
        let mut owned: Vec<(String, Option<Arc<Facts>>)> = Vec::with_capacity(keys.len());
        for (key, known) in keys.iter().zip(known) {
            owned.push(((*key).to_owned(), known));
        }
        let reads = owned.into_iter().map(|(key, known)| async move {
            if known.is_some() {
                return Ok(known);
            }
            let object = store.get(&key).await?;
            Ok(object.and_then(|object| facts_of(&key, &object.body)).map(Arc::new))
        });
        let found: Vec<Option<Arc<Facts>>> = stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await?;
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (key, facts) in keys.iter().zip(&found) {
            if let Some(facts) = facts {
                cache.insert((*key).into(), Arc::clone(facts), GENERATION_MAX);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_counted_by_signal_and_ordered_by_age() {
        let mut waits = Waits::default();
        waits.add("waiting/approval/b~0000000004", 7);
        waits.add("waiting/approval/c~0000000004", 3);
        waits.add("waiting/vote/a~0000000002", 5);
        waits.add("not a wait", 1);
        waits.finish();
        let ages: Vec<&str> = waits.by_age.iter().filter_map(|at| Some(split(&waits.all[*at as usize].0)?.1)).collect();
        assert_eq!((waits.total(), ages), (3, vec!["c", "a", "b"]));
        assert_eq!(waits.counts["approval"], 2);
    }

    #[test]
    fn of_too_many_waits_the_oldest_are_kept_whatever_their_names() {
        let mut waits = Waits::default();
        // Keys come in the order of their names; the oldest waits are those of the last signal.
        for (name, from) in [("approval", 1_000), ("vote", 0)] {
            for run in 0..50 {
                let key = format!("waiting/{name}/r{run:03}~0000000004");
                *waits.counts.entry(name.into()).or_default() += 1;
                waits.insert(&key, from + run, 60);
            }
        }
        waits.finish();
        assert_eq!((waits.total(), waits.is_whole()), (100, false));
        let oldest: Vec<u64> = waits.by_age.iter().map(|at| waits.all[*at as usize].1).collect();
        assert!(oldest.len() <= 60, "{}", oldest.len());
        assert_eq!(oldest[..30], (0..30).collect::<Vec<u64>>(), "the oldest waits of the whole index");
    }

    #[test]
    fn bodies_that_are_used_stay_and_others_are_dropped() {
        let facts = |of: &str| Arc::new(facts_of("waiting/a/b~1", format!(r#"{{"type":"{of}"}}"#).as_bytes()).unwrap());
        let mut cache = Generations::default();
        cache.insert("used".into(), facts("used"), 4);
        cache.insert("unused".into(), facts("unused"), 4);
        for run in 0..20 {
            cache.insert(format!("other{run}").into(), facts("other"), 4);
            assert_eq!(cache.get("used", 4).unwrap().of, "used");
        }
        assert!(cache.get("unused", 4).is_none());
        assert!(cache.young.len() + cache.old.len() <= 8);
    }

    #[test]
    fn an_index_entry_that_lies_about_its_run_is_not_believed() {
        let key = "waiting/approval/a~0000000004";
        let facts =
            facts_of(key, br#"{"type":"order","run":"task/a","deadline":"2026-01-01T00:00:00.000000Z"}"#).unwrap();
        assert_eq!(
            (facts.run.to_string(), facts.of.as_str(), facts.deadline.is_some()),
            ("task/a".into(), "order", true)
        );
        assert_eq!(facts_of(key, br#"{"run":"task/other"}"#).unwrap().run.to_string(), "workflow/a");
        assert_eq!(facts_of(key, b"no json").unwrap().run.to_string(), "workflow/a");
    }
}
