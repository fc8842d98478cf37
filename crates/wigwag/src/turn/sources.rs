//! Sources beside the log: signals, control objects and the results of children, which the owner of the turn folds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::future::{BoxFuture, try_join, try_join_all};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use tracing::warn;
use wigwag_core::turn::park::timers_of;
use wigwag_core::turn::phase::Phase;
use wigwag_core::{
    ChildCompleted, ChildFailed, Children, Control, Event, Inboxes, Key, Order, Path, Payload, Point, PointKind,
    PointStatus, Run, RunId, RunRef, Status, Time, limits, prefix,
};
use wigwag_store::{Listed, Page, Store, limits::LIST_PAGE};

use super::advance::numbered_child;
use super::ended::ChildEnd;
use super::scan::{list_inboxes, names_waited_for, sort_inboxes, waiting_key};
use super::{Release, Turn};
use crate::context::{Joined, TaskEnd};
use crate::engine_core::EngineCore;
use crate::error::Result;
use crate::failure::Failure;
use crate::limits::CONTROLS_CONCURRENT;
use crate::log::CommitError as Lost;
use crate::mailbox::Reply;
use crate::pages::Pages;

/// Objects that a scan found beside the log.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Control objects that were not folded yet, by the last part of their key.
    pub(crate) controls: Vec<(String, Control)>,
    /// Control objects that were folded, but not deleted yet.
    pub(crate) folded: Vec<String>,
    /// Signals in the inboxes of open waits.
    pub(crate) inboxes: Inboxes,
    /// Ends of children, by step, for each step whose children have all ended.
    pub(crate) children: Vec<(Path, BTreeMap<RunId, ChildEnd>)>,
}

impl Found {
    pub(crate) fn is_empty(&self) -> bool {
        self.controls.is_empty() && self.children.is_empty()
    }

    /// Whether there are signals that open waits may take.
    pub(crate) fn has_unread(&self) -> bool {
        self.inboxes.names.values().any(|seen| seen.suffixes.len() > seen.misfits.len())
    }
}

/// A listing of a run's inboxes and control objects at the start of a scan, made while the run is read.
///
/// Later changes of the run do no harm: a signal sent after the listing comes with a separate wake-up, or the owner
/// finds it in the scan after it recorded a wait.
#[derive(Debug)]
pub(crate) struct EarlyList {
    since: Time,
    page: Page,
}

impl EarlyList {
    pub(crate) async fn of(inner: &EngineCore, run: &RunRef) -> Result<Self> {
        let now = inner.now().await?;
        let page = inner.store.list(&prefix::signals(run), "", LIST_PAGE).await?;
        Ok(Self { since: now.at.before(now.uncertainty), page })
    }

    /// Whether there is a control object that the run did not fold.
    pub(crate) fn has_controls(&self, run: &Run) -> bool {
        self.page.entries.iter().any(|listed| match listed.key.parse() {
            Ok(Key::Control { suffix, .. }) => !run.controls.contains_key(&suffix),
            _ => false,
        })
    }
}

/// Scans all sources: signals and control objects, and concurrently the reports of children.
pub(crate) async fn look_at_sources(inner: &Arc<EngineCore>, run: &Run, early: Option<EarlyList>) -> Result<Found> {
    let (mut found, children) = try_join(look_at_signals(inner, run, early), look_at_children(inner, run)).await?;
    found.children = children;
    Ok(found)
}

async fn look_at_children(inner: &Arc<EngineCore>, run: &Run) -> Result<Vec<(Path, BTreeMap<RunId, ChildEnd>)>> {
    let mut children = Vec::new();
    let waiting: Vec<(&Path, &Point)> = run
        .open
        .iter()
        .filter_map(|path| run.points.get_key_value(path))
        // The task of a step that failed and is tried again has ended: its end is recorded.
        .filter(|(_, point)| point.children.is_some() && point.status != PointStatus::Retrying)
        .collect();
    // During compensation no other event is recorded: it would change the list of steps to compensate.
    if !waiting.is_empty() && run.chain.is_none() {
        let ended = list_names(&*inner.store, &prefix::children(&run.run)).await?;
        for (path, point) in waiting {
            let wanted = wanted_children(run, path, point);
            if wanted.iter().all(|id| ended.contains(id.as_str())) {
                children.push((path.clone(), read_ends(inner, run, wanted).await?));
            }
        }
    }
    Ok(children)
}

/// One listing serves control objects and all inboxes while it fits a page; else each gets its own.
pub(super) async fn look_at_signals(inner: &Arc<EngineCore>, run: &Run, early: Option<EarlyList>) -> Result<Found> {
    let names = if run.status.is_final() { Default::default() } else { names_waited_for(run) };
    let mut found = Found::default();
    let EarlyList { since, page } = match early {
        Some(early) => early,
        None => EarlyList::of(inner, &run.run).await?,
    };
    if !page.more {
        found.inboxes = sort_inboxes(run, &names, since, &page.entries);
        inner.caches.misfits.mark(run, &mut found.inboxes);
        look_at_controls(inner, run, page.entries, &mut found).await?;
        return Ok(found);
    }
    found.inboxes = list_inboxes(inner, run, &names, since).await?;
    inner.caches.misfits.mark(run, &mut found.inboxes);
    let below = prefix::controls(&run.run);
    let mut pages = Pages::new(&*inner.store, &below);
    while let Some(entries) = pages.next().await? {
        look_at_controls(inner, run, entries, &mut found).await?;
        // More than these are found when they are folded.
        if found.controls.len() >= LIST_PAGE {
            break;
        }
    }
    Ok(found)
}

async fn look_at_controls(inner: &Arc<EngineCore>, run: &Run, listed: Vec<Listed>, found: &mut Found) -> Result<()> {
    let mut unread = Vec::new();
    for listed in listed {
        let Ok(Key::Control { suffix, .. }) = listed.key.parse::<Key>() else { continue };
        match run.controls.contains_key(&suffix) {
            true => found.folded.push(listed.key),
            false => unread.push((suffix, listed.key)),
        }
    }
    for some in unread.chunks(CONTROLS_CONCURRENT) {
        let reads = try_join_all(some.iter().map(|(_, key)| inner.store.get(key))).await?;
        for ((suffix, key), object) in some.iter().zip(reads) {
            let Some(object) = object else { continue };
            match Control::read(&object.body) {
                Ok(control) => found.controls.push((suffix.clone(), control)),
                Err(refusal) => warn!(key, %refusal, "skipped an unreadable control object"),
            }
        }
    }
    Ok(())
}

/// The names below a prefix, without `.json`.
async fn list_names(store: &dyn Store, prefix: &str) -> Result<std::collections::HashSet<String>> {
    let mut names = std::collections::HashSet::new();
    let mut pages = Pages::new(store, prefix);
    while let Some(entries) = pages.next().await? {
        names.extend(entries.iter().map(|listed| listed.key[prefix.len()..].trim_end_matches(".json").to_owned()));
    }
    Ok(names)
}

/// The children that a point waits for.
fn wanted_children(run: &Run, path: &Path, point: &Point) -> Vec<RunId> {
    match &point.children {
        None => Vec::new(),
        Some(Children::One(child)) => vec![child.id.clone()],
        Some(Children::Tasks(ids)) => ids.clone(),
        Some(Children::Numbered { count, restarts }) => {
            (0..*count as usize).map(|number| numbered_child(&run.run, path, number, *restarts)).collect()
        }
    }
}

async fn read_ends(inner: &Arc<EngineCore>, run: &Run, wanted: Vec<RunId>) -> Result<BTreeMap<RunId, ChildEnd>> {
    type Read = BoxFuture<'static, Result<Option<(RunId, ChildEnd)>>>;
    let mut reads: Vec<Read> = Vec::with_capacity(wanted.len());
    for child in wanted {
        let (inner, key) = (Arc::clone(inner), Key::Child { run: run.run.clone(), child: child.clone() }.to_string());
        reads.push(Box::pin(async move {
            let object = inner.store.get(&key).await?;
            let unreadable = |error| ChildEnd {
                child: RunRef::task(child.clone()),
                status: Status::Failed,
                result: None,
                error: Some(wigwag_core::Fault::new("Damaged", format!("`{key}` cannot be read: {error}"))),
            };
            let end = object.map(|object| serde_json::from_slice(&object.body).unwrap_or_else(unreadable));
            Ok(end.map(|end| (child, end)))
        }));
    }
    let ends: Vec<Option<(RunId, ChildEnd)>> = stream::iter(reads).buffer_unordered(64).try_collect().await?;
    Ok(ends.into_iter().flatten().collect())
}

impl Turn {
    /// Scans all sources, and folds the new messages.
    pub(super) async fn look_outside(&mut self) -> Result<(), Lost> {
        // Wake-ups that arrive after this are for the next scan.
        let mut hints: BTreeSet<String> = self.handle.take_hints().into_iter().collect();
        let found = look_at_sources(&self.inner, &self.log.run, None).await?;
        self.waits.scanned_after_entry();
        self.now = self.inner.now().await?.at;
        self.fold(found).await?;
        if self.log.is_staged() {
            self.plan.around.delete.extend(hints);
            return self.commit().await;
        }
        // The wake-ups that led here have done their work; the lease's wake-up stays for the run.
        if self.give_back_if_overtaken(&mut hints).await? {
            return Err(Lost::Taken);
        }
        if !hints.is_empty() && self.log.holds_lease() {
            self.inner.delete_all(hints).await?;
        }
        Ok(())
    }

    /// Folds messages found before the claim into the claim.
    pub(crate) async fn take_found(&mut self, found: Found) -> Result<(), Lost> {
        self.fold(found).await
    }

    pub(super) async fn fold(&mut self, found: Found) -> Result<(), Lost> {
        // Waits consume these signals later, in `receive`.
        // A scan may take long; its events are not older than the scan.
        self.now = self.now.max(found.inboxes.since);
        self.waits.scanned(found.inboxes);
        for (path, ends) in found.children {
            if self.log.is_full() || !self.offers.is_empty() {
                // The rest is found again.
                _ = self.handle.poke(None);
                break;
            }
            self.fold_children(&path, ends).await?;
        }
        // Control objects folded by a staged entry stay until that entry is durable.
        self.plan.releases.extend(found.folded.into_iter().map(Release::DeleteControl));
        for (suffix, control) in found.controls {
            if self.log.is_full() {
                // The rest is found again.
                _ = self.handle.poke(None);
                break;
            }
            // Each control request is folded into the run as the previous request left it.
            let mut events = self.log.run.fold_control(&suffix, &control, &self.workflow.definition, self.now);
            if let Order::Late { name, signal } = &control.order {
                refuse_if_received(&self.inner, &self.log.run, signal, &mut events).await?;
                // Forgetting the name makes the turn list its inbox again.
                self.waits.inboxes.names.remove(name);
            }
            let key = Key::Control { run: self.run_ref().clone(), suffix }.to_string();
            self.plan.around.delete.extend(index_of_closed(&self.log.run, &events));
            let mut resumed = false;
            for event in events {
                let begins_afresh = match &event {
                    Event::RunRestarted(event) => event.refused.is_none(),
                    Event::RunMigrated(event) => event.refused.is_none(),
                    _ => false,
                };
                if begins_afresh {
                    self.phase = Phase::Releasing;
                }
                resumed |= matches!(&event, Event::RunResumed(event) if event.refused.is_none());
                self.log.stage(event, self.now)?;
            }
            self.plan.releases.push(Release::DeleteControl(key));
            if matches!(control.order, Order::Cancel { .. }) {
                self.cancel_children().await?;
            }
            if resumed {
                self.steps.timers = timers_of(&self.log.run);
                self.mail.queue.extend(std::mem::take(&mut self.mail.held));
                // A run that was claimed while it was paused has not started its function.
                self.code.begins = true;
            }
        }
        Ok(())
    }

    /// Cancels the children of a cancelled run; a child that has already ended is no error.
    async fn cancel_children(&mut self) -> Result<(), Lost> {
        let run = &self.log.run;
        let open = run.open.iter().filter_map(|path| run.points.get_key_value(path));
        let family = |child: &Option<Children>, id: RunId| match child {
            Some(Children::One(child)) => child.clone(),
            _ => RunRef::task(id),
        };
        let children: Vec<RunRef> = open
            .flat_map(|(path, point)| {
                wanted_children(run, path, point).into_iter().map(|id| family(&point.children, id)).collect::<Vec<_>>()
            })
            .collect();
        let reason = Some(format!("`{}` was cancelled", run.run.id));
        let mut cancels: Vec<BoxFuture<'static, Result<()>>> = Vec::with_capacity(children.len());
        for child in children {
            let (inner, reason) = (Arc::clone(&self.inner), reason.clone());
            cancels.push(Box::pin(async move { crate::client::cancel_child(&inner, &child, reason).await }));
        }
        stream::iter(cancels).buffer_unordered(32).try_collect::<Vec<()>>().await?;
        Ok(())
    }

    /// All that a point waited for has ended.
    async fn fold_children(&mut self, path: &Path, mut ends: BTreeMap<RunId, ChildEnd>) -> Result<(), Lost> {
        let Some(point) = self.log.run.points.get(path).filter(|point| !point.status.is_settled()).cloned() else {
            return Ok(());
        };
        if point.kind == PointKind::Step {
            let end = ends.pop_first().map(|(_, end)| end);
            return self.fold_task_of_step(path, point.attempt, end);
        }
        if let Some(Children::One(_)) = &point.children {
            let Some((_, end)) = ends.pop_first() else { return Ok(()) };
            return self.fold_child(path, end);
        }
        let joined = join(&self.log.run, path, &point, &mut ends);
        self.close_joined(path, &joined, self.now)
    }

    fn fold_child(&mut self, path: &Path, end: ChildEnd) -> Result<(), Lost> {
        let at = self.now;
        let reply = if end.status == Status::Completed {
            let payload = end.result.unwrap_or_else(Payload::null);
            let result = self.log.data(Some(path), &payload);
            self.log.stage(ChildCompleted { point: path.clone(), at, result }, at)?;
            Reply::Closed { result: payload, at }
        } else {
            let error = end.error.unwrap_or_else(|| wigwag_core::Fault::new("ChildFailed", "it did not say why"));
            let error = error.at(path);
            self.log.stage(ChildFailed { point: path.clone(), at, error: error.clone() }, at)?;
            Reply::Failed { failure: Failure::recorded(error), at }
        };
        if let Some(open) = self.steps.slots.remove(path) {
            self.plan.releases.push(Release::Reply(open.slot, reply));
        }
        Ok(())
    }

    /// The task that ran a step elsewhere has ended.
    fn fold_task_of_step(&mut self, path: &Path, attempt: u32, end: Option<ChildEnd>) -> Result<(), Lost> {
        let Some(end) = end else { return Ok(()) };
        if end.status == Status::Completed {
            let done: crate::remote::Done = match end.result.as_ref().map(Payload::read) {
                Some(Ok(done)) => done,
                _ => crate::remote::Done { result: Payload::null(), patch: None },
            };
            let returned = self.check_data(crate::mailbox::Returned { result: done.result, patch: done.patch });
            return match returned {
                Ok(returned) => self.complete_step(path, &returned.result, self.now, returned.patch),
                Err(failure) => self.fail_step(path, attempt, &failure, self.now),
            };
        }
        let fault = end.error.unwrap_or_else(|| wigwag_core::Fault::new("TaskFailed", "it did not say why"));
        self.fail_step(path, attempt, &Failure::recorded(fault), self.now)
    }

    /// Closes a wait whose tasks did not all end in time: the ended tasks count.
    pub(super) fn close_overdue(&mut self, path: &Path, point: &Point) -> Result<(), Lost> {
        self.steps.overdue.push((path.clone(), point.clone()));
        Ok(())
    }

    /// Reads the reports of the children that ended in time.
    pub(super) async fn close_all_overdue(&mut self) -> Result<(), Lost> {
        while !self.log.is_full()
            && let Some((path, point)) = self.steps.overdue.pop()
        {
            let wanted = wanted_children(&self.log.run, &path, &point);
            let mut ends = read_ends(&self.inner, &self.log.run, wanted).await?;
            let joined = join(&self.log.run, &path, &point, &mut ends);
            self.close_joined(&path, &joined, self.now)?;
        }
        Ok(())
    }

    fn close_joined(&mut self, path: &Path, joined: &Joined, at: Time) -> Result<(), Lost> {
        // The joined results of thousands of tasks may exceed the payload limit, which is not the user's fault.
        let text = serde_json::to_string(joined).expect("ends of tasks are JSON");
        if text.len() > limits::current().joined_bytes_max {
            let error = wigwag_core::Fault::new("TooLarge", format!("the results take {} bytes together", text.len()));
            self.log.stage(ChildFailed { point: path.clone(), at, error: error.clone() }, at)?;
            if let Some(open) = self.steps.slots.remove(path) {
                let reply = Reply::Failed { failure: Failure::recorded(error), at };
                self.plan.releases.push(Release::Reply(open.slot, reply));
            }
            return Ok(());
        }
        let payload: Payload = serde_json::from_str(&text).expect("it was just written");
        let result = self.log.data(Some(path), &payload);
        self.log.stage(ChildCompleted { point: path.clone(), at, result }, at)?;
        if let Some(open) = self.steps.slots.remove(path) {
            self.plan.releases.push(Release::Reply(open.slot, Reply::Closed { result: payload, at }));
        }
        Ok(())
    }
}

/// The places in the index of waits that these events close.
pub(crate) fn index_of_closed(run: &Run, events: &[Event]) -> Vec<String> {
    let closed = events.iter().filter_map(|event| match event {
        Event::SignalClosed(closed) => run.points.get(&closed.point)?.wait.as_deref(),
        _ => None,
    });
    closed.map(|wait| waiting_key(run, wait)).collect()
}

/// Of a run that went back, points that took signals are gone; the log still has them.
async fn refuse_if_received(inner: &Arc<EngineCore>, run: &Run, signal: &str, events: &mut [Event]) -> Result<()> {
    // A migration leaves a skipped step in the place of a dropped one.
    let is_gap = |point: &Point| point.kind == PointKind::Step && point.status == PointStatus::Skipped;
    if run.restarts == 0 && !run.points.values().any(is_gap) {
        return Ok(());
    }
    for event in events {
        if let Event::SignalLate(late) = event
            && late.refused.is_none()
            && crate::log::is_taken_in_log(&*inner.store, &run.run, &late.name, signal).await?
        {
            late.refused = Some("it was received by a point that is gone".into());
        }
    }
    Ok(())
}

fn join(run: &Run, path: &Path, point: &Point, ends: &mut BTreeMap<RunId, ChildEnd>) -> Joined {
    let end = |id: RunId| match ends.remove(&id) {
        None => TaskEnd::Missing(id),
        Some(end) if end.status == Status::Completed => TaskEnd::Completed(end.result.unwrap_or_else(Payload::null)),
        Some(end) => {
            let unknown = || wigwag_core::Fault::new("TaskFailed", "it did not say why");
            TaskEnd::Failed(end.error.unwrap_or_else(unknown))
        }
    };
    Joined { tasks: wanted_children(run, path, point).into_iter().map(end).collect() }
}
