//! Listing runs: unfinished ones first in key order, then finished ones, the newest first.
//!
//! A page is bounded in requests and memory ([`Budget`]), however many runs there are and however few of them the filter
//! selects. A page that used up its budget is shorter than its limit and names the place where the next page continues.
//!
//! Holds: a run that does not change during the listing is on exactly one page, even if other runs change. A run that ends
//! or is restarted between two pages is on at least one if it was started before the first page; it may be on two, once
//! as unfinished and once as finished.

mod backwards;

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};
use wigwag_core::{Family, Key, Run, RunId, RunRef, Status, Time, TypeName, kind_of};
use wigwag_store::limits::{KEY_BYTES_MAX, LIST_PAGE};

use self::backwards::{Backwards, NEWEST, start_of};
use crate::engine_core::EngineCore;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{LIST_PAGE_RUNS_MAX, LIST_READS_CONCURRENT, LIST_READS_MAX, LIST_REQUESTS_MAX};
use crate::log;

/// How much the time of a stored key may lag behind the clock of the process that wrote it.
const CLOCK_SKEW_MAX: Duration = Duration::from_secs(60);

/// Selects the runs of a list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Filter {
    /// Only runs of this type; for tasks `task:QUEUE:TYPE`.
    pub of: Option<String>,
    /// Only runs with one of these statuses; all runs if empty.
    pub statuses: Vec<Status>,
    /// Earliest end of a listed run; unfinished runs are compared by their start.
    pub since: Option<Time>,
    /// Latest end of a listed run, exclusive; unfinished runs are compared by their start.
    pub until: Option<Time>,
    /// Lists tasks instead of workflows.
    pub tasks: bool,
    /// Maximum number of runs on the page, 1 to 1,000.
    pub limit: usize,
    /// Cursor from [`Listing::next`] of the page before.
    pub after: Option<String>,
}

impl Default for Filter {
    fn default() -> Self {
        Self { of: None, statuses: Vec::new(), since: None, until: None, tasks: false, limit: 50, after: None }
    }
}

/// A page of runs.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    /// Runs of the page.
    pub runs: Vec<Summary>,
    /// Cursor of the next page, if there may be more runs. A page with a cursor may have fewer runs than its limit, or
    /// none: it reads a bounded number of runs.
    pub next: Option<String>,
    /// Number of runs that were read for this page.
    pub examined: usize,
    /// Errors of listed runs that cannot be read.
    pub unreadable: Vec<Error>,
}

/// A run in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// Id of the run.
    pub id: RunId,
    /// Name of the run's workflow or task; for a task without its queue.
    #[serde(rename = "type")]
    pub of: TypeName,
    /// Status of the run.
    pub status: Status,
    /// Start time of the run.
    pub created_at: Time,
    /// Time of the last entry.
    pub updated_at: Time,
    /// Time of the next due timer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Time>,
    /// Steps that have started and not ended.
    pub current_steps: Vec<String>,
    /// Message of the run's error.
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

/// Remaining store requests of one page.
#[derive(Debug)]
struct Budget {
    lists: usize,
    reads: usize,
}

/// A page under construction.
struct Scan<'a> {
    inner: &'a Arc<EngineCore>,
    filter: &'a Filter,
    of: Option<TypeName>,
    limit: usize,
    budget: Budget,
    listing: Listing,
}

pub(super) async fn list(inner: &Arc<EngineCore>, filter: &Filter) -> Result<Listing> {
    let of = filter.of.as_deref().map(TypeName::from_str).transpose()?;
    let limit = filter.limit.clamp(1, LIST_PAGE_RUNS_MAX);
    let budget = Budget { lists: LIST_REQUESTS_MAX, reads: LIST_READS_MAX };
    let mut scan = Scan { inner, filter, of, limit, budget, listing: Listing::default() };
    let after = filter.after.clone().unwrap_or_default();
    let is_place = after.starts_with("live/") || after.starts_with("done/");
    if !(after.is_empty() || is_place) || after.len() > KEY_BYTES_MAX {
        let shown: String = after.chars().take(80).collect();
        return Err(Error::invalid(format!("invalid cursor for a list of runs: `{}`", shown.escape_debug())));
    }
    let want_live = filter.statuses.is_empty() || filter.statuses.iter().any(|status| !status.is_final());
    let want_done = filter.statuses.is_empty() || filter.statuses.iter().any(|status| status.is_final());
    let mut next = None;
    if want_live && !after.starts_with("done/") {
        next = scan.unfinished(&after).await?;
    }
    if want_done && next.is_none() {
        let newest = filter.until.map_or_else(|| NEWEST.to_owned(), start_of);
        next = scan.finished(if after.starts_with("done/") { &after } else { &newest }).await?;
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
        let is_filtered =
            !self.filter.statuses.is_empty() || self.filter.since.is_some() || self.filter.until.is_some();
        // Without a filter most keys become rows.
        let size = if is_filtered { LIST_PAGE } else { (self.limit * 2).min(LIST_PAGE) };
        let mut after = after.to_owned();
        loop {
            self.budget.lists = self.budget.lists.saturating_sub(1);
            let page = self.inner.store.list(&prefix, &after, size).await?;
            let Some(last) = page.entries.last().map(|listed| listed.key.clone()) else { return Ok(None) };
            // A key is written when its run starts, or later: an old key belongs to an old run, which need not be read.
            let since = self.filter.since.map_or(0, |since| since.before(CLOCK_SKEW_MAX).micros());
            let refs =
                page.entries.iter().filter(|listed| listed.modified.micros() >= since).filter_map(
                    |listed| match listed.key.parse() {
                        Ok(Key::Live { of, run }) if of.is_task() == self.filter.tasks => {
                            let family = if of.is_task() { Family::Task } else { Family::Workflow };
                            Some((listed.key.clone(), RunRef { family, id: run }))
                        }
                        _ => None,
                    },
                );
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
        let oldest = self.filter.since.map(start_of).unwrap_or_default();
        if bound <= oldest.as_str() {
            return Ok(None);
        }
        let mut keys = Backwards::new(&*inner.store, bound, inner.recent_now().await?);
        while let Some(window) = keys.next().await? {
            self.budget.lists = self.budget.lists.saturating_sub(1);
            let refs = window.into_iter().filter_map(|key| match key.parse() {
                Ok(Key::Done { kind: found, status, run, .. })
                    if key >= oldest && kind.as_ref().is_none_or(|kind| *kind == found) && self.has_status(status) =>
                {
                    Some((key, RunRef { family, id: run }))
                }
                _ => None,
            });
            let refs = refs.collect();
            if let Some(next) = self.read(refs, Index::Finished).await? {
                return Ok(Some(next));
            }
            if keys.bound() <= oldest.as_str() {
                return Ok(None);
            }
            if self.budget.lists == 0 {
                return Ok(Some(keys.bound().to_owned()));
            }
        }
        Ok(None)
    }

    /// Reads runs until the page is full or its budget is used up; returns the key of the last one then.
    async fn read(&mut self, refs: Vec<(String, RunRef)>, index: Index) -> Result<Option<String>> {
        let inner = self.inner;
        for some in refs.chunks(LIST_READS_CONCURRENT) {
            // Owned, because the compiler cannot see that a stream of borrowing futures may go to another thread.
            let read = some.iter().cloned().map(|(key, run)| async move {
                match read_indexed(inner, &key, &run, index).await {
                    Ok(run) => Ok((key, Ok(run))),
                    // A run that cannot be read does not hide the others.
                    Err(error) if error.kind() == ErrorKind::Damaged => Ok((key, Err(error))),
                    Err(error) => Err(error),
                }
            });
            let found: Vec<_> = stream::iter(read).buffered(LIST_READS_CONCURRENT).try_collect().await?;
            self.budget.reads = self.budget.reads.saturating_sub(found.len());
            self.listing.examined += found.len();
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
        // The end of a finished run is the time of its key, which was compared before.
        let is_in_time = run.status.is_final()
            || (self.filter.since.is_none_or(|since| run.created_at >= since)
                && self.filter.until.is_none_or(|until| run.created_at < until));
        same_type && is_in_time && self.has_status(run.status)
    }

    fn has_status(&self, status: Status) -> bool {
        self.filter.statuses.is_empty() || self.filter.statuses.contains(&status)
    }
}

/// Index in which a key of a run was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Index {
    Unfinished,
    Finished,
}

/// Reads a run that was found in an index; `None` if it belongs to another part of the list, or is gone.
async fn read_indexed(inner: &EngineCore, key: &str, run: &RunRef, index: Index) -> Result<Option<Run>> {
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
        // Its end is recorded; if it is not in the index of ended runs yet, only this index contains it.
        Index::Unfinished => inner.store.get(&run.done_key().to_string()).await?.is_none(),
        // A run that was restarted leaves the keys of its earlier ends behind.
        Index::Finished => run.status.is_final() && run.done_key().to_string() == key,
    };
    Ok(belongs.then_some(run))
}
