//! Listing runs: unfinished ones first, then finished ones from the last day back.

use std::str::FromStr as _;
use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde::{Deserialize, Serialize};
use wigwag_core::{Family, Key, Run, RunId, RunRef, Status, Time, TypeName, kind_of, limits};
use wigwag_store::limits::LIST_PAGE;

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
    /// At most so many.
    pub limit: usize,
    /// After the place that [`Listing::next`] named.
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
    /// Where to go on, if there may be more.
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

pub(super) async fn list(inner: &Arc<Inner>, filter: &Filter) -> Result<Listing> {
    let of = filter.of.as_deref().map(TypeName::from_str).transpose()?;
    let limit = filter.limit.clamp(1, 1_000);
    let mut listing = Listing::default();
    let after = filter.after.clone().unwrap_or_default();
    let want_live = filter.status.is_none_or(|status| !status.is_final());
    let want_done = filter.status.is_none_or(Status::is_final);
    if want_live && (after.is_empty() || after.starts_with("live/")) {
        listing.next = list_live(inner, filter, of.as_ref(), &after, limit, &mut listing).await?;
        if listing.next.is_some() {
            return Ok(listing);
        }
    } else if !after.is_empty() && !after.starts_with("done/") {
        return Err(Error::invalid(format!("not a place in a list of runs: `{after}`")));
    }
    if want_done {
        listing.next = list_done(inner, filter, of.as_ref(), &after, limit, &mut listing).await?;
    }
    Ok(listing)
}

async fn list_live(
    inner: &Arc<Inner>,
    filter: &Filter,
    of: Option<&TypeName>,
    after: &str,
    limit: usize,
    listing: &mut Listing,
) -> Result<Option<String>> {
    let prefix = match of {
        Some(of) => format!("live/{of}/"),
        None => "live/".to_owned(),
    };
    let mut after = after.to_owned();
    loop {
        let page = inner.store.list(&prefix, &after, (limit * 2).min(LIST_PAGE)).await?;
        let Some(last) = page.entries.last().map(|listed| listed.key.clone()) else { return Ok(None) };
        let refs = page.entries.iter().filter_map(|listed| match listed.key.parse() {
            Ok(Key::Live { of, run }) if of.is_task() == filter.tasks => {
                let family = if of.is_task() { Family::Task } else { Family::Workflow };
                Some((listed.key.clone(), RunRef { family, id: run }))
            }
            _ => None,
        });
        let wanted = |run: &Run| !run.status.is_final() && filter.status.is_none_or(|status| run.status == status);
        if let Some(next) = read_into(inner, refs.collect(), wanted, limit, listing).await? {
            return Ok(Some(next));
        }
        if !page.more {
            return Ok(None);
        }
        after = last;
    }
}

async fn list_done(
    inner: &Arc<Inner>,
    filter: &Filter,
    of: Option<&TypeName>,
    after: &str,
    limit: usize,
    listing: &mut Listing,
) -> Result<Option<String>> {
    let kind = of.map(kind_of);
    let mut place = after.strip_prefix("done/").map(str::to_owned);
    for day in days(inner, place.as_deref()).await? {
        let mut keys = day_keys(inner, &day).await?;
        keys.reverse();
        let cut = place.take().map(|place| format!("done/{place}"));
        let refs = keys.into_iter().filter(|key| cut.as_ref().is_none_or(|cut| key < cut)).filter_map(|key| match key
            .parse()
        {
            Ok(Key::Done { kind: found, status, run, .. })
                if kind.as_ref().is_none_or(|kind| *kind == found)
                    && filter.status.is_none_or(|wanted| wanted == status) =>
            {
                let family = if filter.tasks { Family::Task } else { Family::Workflow };
                Some((key, RunRef { family, id: run }))
            }
            _ => None,
        });
        let wanted = |run: &Run| {
            let same_type = of.is_none_or(|of| run.index_type() == *of);
            same_type && run.status.is_final() && filter.status.is_none_or(|status| run.status == status)
        };
        if let Some(next) = read_into(inner, refs.collect(), wanted, limit, listing).await? {
            return Ok(Some(next));
        }
    }
    Ok(None)
}

/// The days on which runs ended, the last first, from that of a place on.
async fn days(inner: &Inner, place: Option<&str>) -> Result<Vec<String>> {
    let mut days = Vec::new();
    let mut after = String::new();
    // One key of each day is enough to know the day; the next listing skips the rest of it, whatever that is: `0` comes
    // after `/`.
    while let Some(listed) = inner.store.list("done/", &after, 1).await?.entries.into_iter().next() {
        let Some(day) = listed.key.split('/').nth(1).map(str::to_owned) else { break };
        after = format!("done/{day}0");
        days.push(day);
    }
    let from = place.and_then(|place| place.split('/').next());
    days.retain(|day| from.is_none_or(|from| day.as_str() <= from));
    days.reverse();
    Ok(days)
}

async fn day_keys(inner: &Inner, day: &str) -> Result<Vec<String>> {
    let prefix = format!("done/{day}/");
    let mut keys = Vec::new();
    let mut after = String::new();
    while keys.len() < limits::current().day_keys_max {
        let page = inner.store.list(&prefix, &after, LIST_PAGE).await?;
        let Some(last) = page.entries.last() else { break };
        after.clone_from(&last.key);
        keys.extend(page.entries.into_iter().map(|listed| listed.key));
        if !page.more {
            break;
        }
    }
    Ok(keys)
}

/// Reads runs until the limit is reached; then says where to go on.
async fn read_into(
    inner: &Arc<Inner>,
    refs: Vec<(String, RunRef)>,
    wanted: impl Fn(&Run) -> bool,
    limit: usize,
    listing: &mut Listing,
) -> Result<Option<String>> {
    for some in refs.chunks(16) {
        // Owned, because the compiler cannot see that a stream of borrowing futures may go to another thread.
        let read = some.iter().cloned().map(|(key, run)| async move {
            match log::read(&*inner.store, &run).await {
                Ok(loaded) => Ok((key, Ok(loaded))),
                Err(error) if error.kind() == ErrorKind::Gone => Ok((key, Ok(None))),
                // One that cannot be read does not hide the others.
                Err(error) if error.kind() == ErrorKind::Damaged => Ok((key, Err(error))),
                Err(error) => Err(error),
            }
        });
        let found: Vec<_> = stream::iter(read).buffered(16).try_collect().await?;
        for (key, loaded) in found {
            match loaded {
                Ok(Some(loaded)) if wanted(&loaded.run) => listing.runs.push(Summary::from(&loaded.run)),
                Ok(_) => {}
                Err(error) => listing.unreadable.push(error),
            }
            if listing.runs.len() >= limit {
                return Ok(Some(key));
            }
        }
    }
    Ok(None)
}
