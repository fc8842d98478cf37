//! Listing runs: unfinished ones first in key order, then finished ones, the newest first.
//!
//! A page is bounded in requests and memory ([`Budget`]), however many runs there are and however few of them the filter
//! selects. A page that used up its budget is shorter than its limit and names the place where the next page continues.
//!
//! Holds: a run that does not change while it is listed is on exactly one page, whatever other runs do. A run that ends or
//! is restarted between two pages is on at least one if it was started before the first page; it may be on two, once as
//! unfinished and once as finished.

mod backwards;

use std::str::FromStr as _;
use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};
use wigwag_core::{Family, Key, Run, RunId, RunRef, Status, Time, TypeName, kind_of};
use wigwag_store::limits::{KEY_BYTES_MAX, LIST_PAGE};

use self::backwards::{Backwards, NEWEST};
use crate::error::{Error, ErrorKind, Result};
use crate::inner::Inner;
use crate::log;

/// Which runs are listed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Filter {
    /// Only of this type; for tasks `task:QUEUE:TYPE`.
    pub of: Option<String>,
    /// Only those that are so far.
    pub status: Option<Status>,
    /// Tasks instead of workflows.
    pub tasks: bool,
    /// Maximum number of runs on the page, 1 to 1,000.
    pub limit: usize,
    /// Cursor from [`Listing::next`] of the page before.
    pub after: Option<String>,
}

impl Default for Filter {
    fn default() -> Self {
        Self { of: None, status: None, tasks: false, limit: 50, after: None }
    }
}

/// Some runs.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// The runs.
    pub runs: Vec<Summary>,
    /// Cursor of the next page, if there may be more runs. A page with a cursor may have fewer runs than its limit, or
    /// none: it reads a bounded number of runs.
    pub next: Option<String>,
    /// Runs that would be in this list, and cannot be read.
    pub unreadable: Vec<Error>,
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// Its id.
    pub id: RunId,
    /// What it is a run of; of a task without its queue.
    #[serde(rename = "type")]
    pub of: TypeName,
    /// How far it is.
    pub status: Status,
    /// When it was started.
    pub created_at: Time,
    /// When its last entry was made.
    pub updated_at: Time,
    /// When something is due next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Time>,
    /// The steps that are under way.
    pub current_steps: Vec<String>,
    /// What went wrong, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl From<&Run> for Summary {
    fn from(run: &Run) -> Self {
        Self {
            id: run.run.id.clone(),
            of: run.of.clone(),
            status: run.status,
            created_at: run.created_at,
            updated_at: run.updated_at,
            next_at: run.next_at,
            current_steps: run.open.iter().take(20).map(ToString::to_string).collect(),
            error: run.error.as_ref().map(|error| error.message.clone()),
        }
    }
}

/// Most runs that one page returns.
const PAGE_MAX: usize = 1_000;

/// LIST requests of one page: 64,000 keys.
const LISTS_MAX: usize = 64;

/// Runs that one page reads: enough to fill the largest page if every second run fits the filter.
const READS_MAX: usize = 2 * PAGE_MAX;

/// Runs that are read concurrently.
const READS_AT_ONCE: usize = 16;

/// What one page may still request of the store.
#[derive(Debug)]
struct Budget {
    lists: usize,
    reads: usize,
}

/// A page in the making.
struct Scan<'a> {
    inner: &'a Arc<Inner>,
    filter: &'a Filter,
    of: Option<TypeName>,
    limit: usize,
    budget: Budget,
    listing: Listing,
}

pub(super) async fn list(inner: &Arc<Inner>, filter: &Filter) -> Result<Listing> {
    let of = filter.of.as_deref().map(TypeName::from_str).transpose()?;
    let limit = filter.limit.clamp(1, PAGE_MAX);
    let budget = Budget { lists: LISTS_MAX, reads: READS_MAX };
    let mut scan = Scan { inner, filter, of, limit, budget, listing: Listing::default() };
    let after = filter.after.clone().unwrap_or_default();
    let is_place = after.starts_with("live/") || after.starts_with("done/");
    if !(after.is_empty() || is_place) || after.len() > KEY_BYTES_MAX {
        let shown: String = after.chars().take(80).collect();
        return Err(Error::invalid(format!("not a place in a list of runs: `{}`", shown.escape_debug())));
    }
    let want_live = filter.status.is_none_or(|status| !status.is_final());
    let want_done = filter.status.is_none_or(Status::is_final);
    let mut next = None;
    if want_live && !after.starts_with("done/") {
        next = scan.unfinished(&after).await?;
    }
    if want_done && next.is_none() {
        next = scan.finished(if after.starts_with("done/") { &after } else { NEWEST }).await?;
    }
    scan.listing.next = next;
    Ok(scan.listing)
}

impl Scan<'_> {
    /// Lists unfinished runs in key order. Returns the cursor if the page ends before the index does.
    async fn unfinished(&mut self, after: &str) -> Result<Option<String>> {
        let prefix = match &self.of {
            Some(of) => format!("live/{of}/"),
            None if self.filter.tasks => "live/task:".to_owned(),
            None => "live/".to_owned(),
        };
        // Without a status filter most keys become rows.
        let size = if self.filter.status.is_some() { LIST_PAGE } else { (self.limit * 2).min(LIST_PAGE) };
        let mut after = after.to_owned();
        loop {
            self.budget.lists = self.budget.lists.saturating_sub(1);
            let page = self.inner.store.list(&prefix, &after, size).await?;
            let Some(last) = page.entries.last().map(|listed| listed.key.clone()) else { return Ok(None) };
            let refs = page.entries.iter().filter_map(|listed| match listed.key.parse() {
                Ok(Key::Live { of, run }) if of.is_task() == self.filter.tasks => {
                    let family = if of.is_task() { Family::Task } else { Family::Workflow };
                    Some((listed.key.clone(), RunRef { family, id: run }))
                }
                _ => None,
            });
            let refs = refs.collect();
            if let Some(next) = self.read(refs, Index::Unfinished).await? {
                return Ok(Some(next));
            }
            if !page.more {
                return Ok(None);
            }
            // Tasks are one range of keys, which a list of workflows skips: `;` follows `:`.
            let skip = !self.filter.tasks && last.starts_with("live/task:");
            after = if skip { "live/task;".to_owned() } else { last };
            if self.budget.lists == 0 {
                return Ok(Some(after));
            }
        }
    }

    /// Lists finished runs, the newest first. Returns the cursor if the page ends before the index does.
    async fn finished(&mut self, bound: &str) -> Result<Option<String>> {
        let kind = self.of.as_ref().map(kind_of);
        let family = if self.filter.tasks { Family::Task } else { Family::Workflow };
        let inner = Arc::clone(self.inner);
        let mut keys = Backwards::new(&*inner.store, bound, inner.recent_now().await?);
        while let Some(window) = keys.next().await? {
            self.budget.lists = self.budget.lists.saturating_sub(1);
            let refs = window.into_iter().filter_map(|key| match key.parse() {
                Ok(Key::Done { kind: found, status, run, .. })
                    if kind.as_ref().is_none_or(|kind| *kind == found)
                        && self.filter.status.is_none_or(|wanted| wanted == status) =>
                {
                    Some((key, RunRef { family, id: run }))
                }
                _ => None,
            });
            let refs = refs.collect();
            if let Some(next) = self.read(refs, Index::Finished).await? {
                return Ok(Some(next));
            }
            if self.budget.lists == 0 && !keys.bound().is_empty() {
                return Ok(Some(keys.bound().to_owned()));
            }
        }
        Ok(None)
    }

    /// Reads runs until the page is full or its budget is used up; returns the key of the last one then.
    async fn read(&mut self, refs: Vec<(String, RunRef)>, index: Index) -> Result<Option<String>> {
        let inner = self.inner;
        for some in refs.chunks(READS_AT_ONCE) {
            // Owned, because the compiler cannot see that a stream of borrowing futures may go to another thread.
            let read = some.iter().cloned().map(|(key, run)| async move {
                match read_indexed(inner, &key, &run, index).await {
                    Ok(run) => Ok((key, Ok(run))),
                    // A run that cannot be read does not hide the others.
                    Err(error) if error.kind() == ErrorKind::Damaged => Ok((key, Err(error))),
                    Err(error) => Err(error),
                }
            });
            let found: Vec<_> = stream::iter(read).buffered(READS_AT_ONCE).try_collect().await?;
            self.budget.reads = self.budget.reads.saturating_sub(found.len());
            for (key, run) in found {
                match run {
                    Ok(Some(run)) if self.is_wanted(&run) => self.listing.runs.push(Summary::from(&run)),
                    Ok(_) => {}
                    Err(error) => self.listing.unreadable.push(error),
                }
                if self.listing.runs.len() >= self.limit {
                    return Ok(Some(key));
                }
            }
            if self.budget.reads == 0 {
                return Ok(some.last().map(|(key, _)| key.clone()));
            }
        }
        Ok(None)
    }

    fn is_wanted(&self, run: &Run) -> bool {
        let same_type = self.of.as_ref().is_none_or(|of| run.index_type() == *of);
        same_type && self.filter.status.is_none_or(|status| run.status == status)
    }
}

/// Index in which a key of a run was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Index {
    Unfinished,
    Finished,
}

/// Reads a run that was found in an index; `None` if it belongs to another part of the list, or is gone.
async fn read_indexed(inner: &Inner, key: &str, run: &RunRef, index: Index) -> Result<Option<Run>> {
    let run = match log::read(&*inner.store, run).await {
        Ok(Some(loaded)) => loaded.run,
        Ok(None) => return Ok(None),
        Err(error) if error.kind() == ErrorKind::Gone => return Ok(None),
        Err(error) => return Err(error),
    };
    let belongs = match index {
        // A starter that lost the race for an id to a run of another type leaves its key behind.
        Index::Unfinished if inner.live(&run).0 != key => false,
        Index::Unfinished if !run.status.is_final() => true,
        // Its end is recorded; if it is not in the index of ends yet, this is the only place to find it.
        Index::Unfinished => inner.store.get(&run.done_key().to_string()).await?.is_none(),
        // A run that was restarted leaves the keys of its earlier ends behind.
        Index::Finished => run.status.is_final() && run.done_key().to_string() == key,
    };
    Ok(belongs.then_some(run))
}
