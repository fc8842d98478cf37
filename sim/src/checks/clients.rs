//! Lists as a client sees them, page by page: each item is on exactly one page.

use std::collections::BTreeMap;
use std::fmt::Debug;

use wigwag::{Client, Filter};
use wigwag_core::Family;
use wigwag_core::audit::{Breach, Promise, Told};
use wigwag_store::{Memory, Store as _};

use super::read_all;
use crate::program::NAMES;

/// A limit of pages, above the length of any list.
const PAGES_MAX: usize = 2_000;

/// Lists runs, waits and signals with small pages. Returns missing and duplicate items.
pub async fn lists_are_complete(memory: &Memory, client: &Client, chance: &mut fastrand::Rng) -> Vec<Breach> {
    let runs = read_all(memory).await;
    let limit = chance.usize(1..6);
    let mut wrong = Vec::new();
    wrong.extend(runs_are_listed(memory, client, &runs, limit).await);
    for name in NAMES {
        wrong.extend(waits_are_listed(client, &runs, name, limit).await);
    }
    for told in runs.iter().filter(|told| told.run.run.family == Family::Workflow) {
        wrong.extend(signals_are_listed(client, told, limit).await);
    }
    wrong.into_iter().map(|what| Breach::new(Promise::IndexesFollow, what)).collect()
}

async fn runs_are_listed(memory: &Memory, client: &Client, runs: &[Told], limit: usize) -> Option<String> {
    let mut listed = Vec::new();
    let mut filter = Filter::default();
    filter.limit = limit;
    for _ in 0..PAGES_MAX {
        let page = match client.list(&filter).await {
            Ok(page) => page,
            Err(error) => return Some(format!("runs cannot be listed after {:?}: {error}", filter.after)),
        };
        listed.extend(page.runs.iter().map(|run| run.id.to_string()));
        filter.after = page.next;
        if filter.after.is_none() {
            break;
        }
    }
    let mine = runs.iter().filter(|told| told.run.run.family == Family::Workflow);
    // On a bucket a run that was restarted while its end was being completed may be missing temporarily.
    let (sure, unsure): (Vec<&Told>, Vec<&Told>) =
        mine.partition(|told| memory.traits().atomic || told.run.restarts == 0);
    let id = |told: &&Told| told.run.run.id.to_string();
    let unsure: Vec<String> = unsure.iter().map(id).collect();
    listed.retain(|id| !unsure.contains(id));
    differs("runs", sure.iter().map(id).collect(), listed)
}

async fn waits_are_listed(client: &Client, runs: &[Told], name: &str, limit: usize) -> Option<String> {
    let mut listed = Vec::new();
    let mut after = None;
    for _ in 0..PAGES_MAX {
        let page = match client.runs_waiting_for(name, limit, after.as_deref()).await {
            Ok(page) => page,
            Err(error) => return Some(format!("waits for `{name}` cannot be listed after {after:?}: {error}")),
        };
        listed.extend(page.runs.iter().map(|run| format!("{}:{}", run.id, run.wait.point)));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let open = runs.iter().filter(|told| !told.run.status.is_final()).flat_map(|told| {
        let waits = told.run.waits_in_order().into_iter().filter(|(_, _, wait)| wait.name.as_str() == name);
        waits.map(|(path, ..)| format!("{}:{path}", told.run.run.id)).collect::<Vec<_>>()
    });
    differs(&format!("waits for `{name}`"), open.collect(), listed)
}

async fn signals_are_listed(client: &Client, told: &Told, limit: usize) -> Option<String> {
    let handle = client.run(told.run.run.id.as_str()).ok()?;
    let all = handle.signals(None).await.ok()?;
    let mut listed = Vec::new();
    let mut after = None;
    for _ in 0..PAGES_MAX {
        let page = match handle.signals_page(None, limit, after.as_deref()).await {
            Ok(page) => page,
            Err(error) => return Some(format!("signals cannot be listed after {after:?}: {error}")),
        };
        listed.extend(page.signals.into_iter().map(|signal| signal.suffix));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let what = format!("signals of `{}`", told.run.run.id);
    differs(&what, all.into_iter().map(|signal| signal.suffix).collect(), listed)
}

/// Returns the items whose number differs between the two lists.
fn differs<T: Ord + Debug>(what: &str, want: Vec<T>, got: Vec<T>) -> Option<String> {
    let mut count: BTreeMap<T, i32> = BTreeMap::new();
    want.into_iter().for_each(|one| *count.entry(one).or_default() += 1);
    got.into_iter().for_each(|one| *count.entry(one).or_default() -= 1);
    count.retain(|_, count| *count != 0);
    let missing: Vec<&T> = count.iter().filter(|(_, count)| **count > 0).map(|(one, _)| one).collect();
    let extra: Vec<&T> = count.iter().filter(|(_, count)| **count < 0).map(|(one, _)| one).collect();
    (!count.is_empty()).then(|| format!("list of {what}: missing {missing:?}, too many {extra:?}"))
}
