//! Lists the open waits of a run, the runs that wait for a signal, and the outcome of each signal.

use std::sync::Arc;

use futures_util::future::try_join_all;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use tracing::warn;
use wigwag_core::{
    Definition, Fate, Key, Mode, Name, Path, Payload, Run, RunId, RunRef, Signal, Source, Status, Time, prefix,
};
use wigwag_store::Listed;
use wigwag_store::limits::LIST_PAGE;

use super::signal::signal_name;
use super::{Client, RunHandle, control};
use crate::engine_core::{EngineCore, lock};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::WAITING_ROWS_AT_ONCE;
use crate::log;
use crate::pages::Pages;

/// An open wait of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OpenWait {
    /// The signal's name.
    pub name: Name,
    /// Path of the wait.
    pub point: Path,
    /// Start of the wait.
    pub since: Option<Time>,
    /// Deadline of the wait; none if absent.
    pub deadline: Option<Time>,
    /// Consumption mode of the wait.
    pub mode: Mode,
    /// Number of different senders that must send one signal each.
    pub quorum: u32,
    /// Whether only signals of authenticated senders count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub authenticated: bool,
    /// JSON Schema of the payload.
    pub schema: Option<Value>,
    /// Description of the wait by its workflow, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
}

/// A run that waits for a signal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaitingRun {
    /// The run's id.
    pub id: RunId,
    /// Family and id of the run.
    pub run: RunRef,
    /// Name of the run's workflow or task.
    #[serde(rename = "type")]
    pub of: String,
    /// Status of the run.
    pub status: Status,
    /// The open wait.
    #[serde(flatten)]
    pub wait: OpenWait,
}

/// A page of the waiting runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct WaitingRuns {
    /// The runs, in the order of their names and ids.
    pub runs: Vec<WaitingRun>,
    /// Cursor of the next page; absent after the last.
    pub next: Option<String>,
}

/// A signal in a run's inbox, with its outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SignalView {
    /// Id of the signal.
    pub id: String,
    /// The last part of its key: its place in the inbox.
    pub suffix: String,
    /// Name of the signal.
    pub name: Name,
    /// Payload of the signal.
    pub payload: Payload,
    /// Time of the signal.
    pub created_at: Time,
    /// Sender and channel.
    pub source: Source,
    /// Step that the signal is addressed to, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meant_for: Option<Path>,
    /// Outcome of the signal.
    #[serde(flatten)]
    pub fate: Fate,
    /// Why the open wait does not consume the signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub misfit: Option<String>,
}

/// Deserialized field by field: a payload is kept as raw text, which a flattened field does not support.
impl<'de> Deserialize<'de> for SignalView {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Flat {
            id: String,
            suffix: String,
            name: Name,
            payload: Payload,
            created_at: Time,
            source: Source,
            meant_for: Option<Path>,
            fate: Value,
            #[serde(default)]
            point: Value,
            #[serde(default)]
            at: Value,
            misfit: Option<String>,
        }
        let Flat { id, suffix, name, payload, created_at, source, meant_for, fate, point, at, misfit } =
            Flat::deserialize(from)?;
        let fate = serde_json::json!({"fate": fate, "point": point, "at": at});
        let fate = Fate::deserialize(fate).map_err(D::Error::custom)?;
        Ok(Self { id, suffix, name, payload, created_at, source, meant_for, fate, misfit })
    }
}

/// A page of a run's signals.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SignalViews {
    /// The signals, in the order of their names and places.
    pub signals: Vec<SignalView>,
    /// Cursor of the next page; absent after the last.
    pub next: Option<String>,
}

impl WaitingRun {
    /// Describes an open wait of a run.
    #[must_use]
    pub fn of(run: &Run, wait: OpenWait) -> Self {
        Self { id: run.run.id.clone(), run: run.run.clone(), of: run.of.to_string(), status: run.status, wait }
    }
}

impl Client {
    /// Lists the runs that wait for a signal of that name, with start and deadline of each wait.
    ///
    /// `after` must be the `next` of the previous page. Waits that a run opened together share a place in the index, so a
    /// page may hold a few more than asked.
    pub async fn runs_waiting_for(&self, name: &str, limit: usize, after: Option<&str>) -> Result<WaitingRuns> {
        list_waiting(&self.inner, &prefix::waiting(&signal_name(name)?), limit, after).await
    }

    /// Lists all runs that wait for any signal.
    pub async fn waiting_runs(&self, limit: usize, after: Option<&str>) -> Result<WaitingRuns> {
        list_waiting(&self.inner, "waiting/", limit, after).await
    }
}

impl RunHandle {
    /// Returns the open waits of this run, the earliest opened first.
    pub async fn waiting(&self) -> Result<Vec<OpenWait>> {
        let run = self.read().await?.run;
        Ok(open_waits(&run))
    }

    /// Lists the signals that were sent to this run, of one name or of all, with the outcome of each.
    pub async fn signals(&self, name: Option<&str>) -> Result<Vec<SignalView>> {
        let (run, definition, below) = self.inbox(name).await?;
        let mut views = Vec::new();
        let mut pages = Pages::new(&*self.inner.store, &below);
        while let Some(entries) = pages.next().await? {
            views.extend(self.views(&run, definition.as_deref(), &entries).await?);
        }
        Ok(views)
    }

    /// Lists one page: at most `limit` signals, after the `next` cursor of the previous page.
    pub async fn signals_page(&self, name: Option<&str>, limit: usize, after: Option<&str>) -> Result<SignalViews> {
        let all = prefix::signals(&self.run);
        let mut place = match after {
            Some(after) => format!("{all}{after}.json"),
            None => String::new(),
        };
        let is_place = |key: &str| matches!(key.parse(), Ok(Key::Signal { suffix, .. }) if !suffix.is_empty());
        if !place.is_empty() && !is_place(&place) {
            let after = after.unwrap_or_default().escape_debug();
            return Err(Error::invalid(format!("invalid cursor (want the `next` of the previous page): `{after}`")));
        }
        let (run, definition, below) = self.inbox(name).await?;
        let limit = limit.clamp(1, LIST_PAGE);
        let mut answer = SignalViews::default();
        while answer.signals.len() < limit {
            let page = self.inner.store.list(&below, &place, limit - answer.signals.len()).await?;
            answer.signals.extend(self.views(&run, definition.as_deref(), &page.entries).await?);
            match page.entries.last() {
                Some(last) if page.more => place.clone_from(&last.key),
                _ => return Ok(answer),
            }
        }
        answer.next = place.strip_prefix(&all).and_then(|place| place.strip_suffix(".json")).map(str::to_owned);
        Ok(answer)
    }

    /// Reads the run and its definition, and returns the prefix of its signals: of one name, or of all.
    async fn inbox(&self, name: Option<&str>) -> Result<(Run, Option<Arc<Definition>>, String)> {
        let name = name.map(signal_name).transpose()?;
        let loaded = log::read_whole(&*self.inner.store, &self.run).await?.ok_or_else(|| self.not_found())?;
        let definition = definition_at_hand(&self.inner, &loaded.run).await?;
        let below = match &name {
            Some(name) => prefix::inbox(&self.run, name),
            None => prefix::signals(&self.run),
        };
        Ok((loaded.run, definition, below))
    }

    async fn views(&self, run: &Run, definition: Option<&Definition>, listed: &[Listed]) -> Result<Vec<SignalView>> {
        let mut views = Vec::new();
        for some in listed.chunks(16) {
            let read = some.iter().map(|listed| self.view(run, definition, &listed.key));
            views.extend(try_join_all(read).await?.into_iter().flatten());
        }
        Ok(views)
    }

    async fn view(&self, run: &Run, definition: Option<&Definition>, key: &str) -> Result<Option<SignalView>> {
        let Ok(Key::Signal { suffix, name, .. }) = key.parse::<Key>() else { return Ok(None) };
        let Some(object) = self.inner.store.get(key).await? else { return Ok(None) };
        let signal = match Signal::read(&object.body) {
            Ok(signal) => signal,
            Err(refusal) => {
                warn!(key, %refusal, "passed over");
                return Ok(None);
            }
        };
        let mode = run.mode_of(&name, definition);
        let mut fate = run.fate_of(&suffix, &signal, mode);
        let passed =
            run.signals.get(&name).is_some_and(|inbox| suffix <= inbox.cursor || inbox.taken.contains(&suffix));
        // A restart drops the steps that consumed signals; the log still contains the consumption.
        if !matches!(fate, Fate::Consumed { .. })
            && passed
            && run.restarts > 0
            && let Some(said) = log::fate_in_log(&*self.inner.store, &self.run, &name, &suffix).await?
        {
            fate = said;
        }
        let misfit = if fate == Fate::Unconsumed { misfit(&self.inner, run, &signal) } else { None };
        let Signal { id, payload, created_at, source, only, point, .. } = signal;
        let meant_for = only.map(|only| only.point).or(point);
        Ok(Some(SignalView { id, suffix, name, payload, created_at, source, meant_for, fate, misfit }))
    }
}

/// Returns why no open wait for its name consumes a signal.
fn misfit(inner: &EngineCore, run: &Run, signal: &Signal) -> Option<String> {
    let waits = run.waits_in_order().into_iter().filter(|(_, _, wait)| wait.name == signal.name);
    let mut why = None;
    for (path, _, wait) in waits {
        let reason = match (wait.rejects_sender(&signal.source), &wait.schema) {
            (Some(misfit), _) => format!("`{path}` rejects it: {misfit}"),
            (None, Some(schema)) => match inner.caches.schemas.check(schema, &signal.payload) {
                Err(misfit) => format!("`{path}` rejects it {misfit}"),
                Ok(()) => return None,
            },
            (None, None) => return None,
        };
        why.get_or_insert(reason);
    }
    why
}

/// Returns the open waits of a run, the earliest opened first.
#[must_use]
pub fn open_waits(run: &Run) -> Vec<OpenWait> {
    let view = |(path, point, wait): (&Path, &wigwag_core::Point, &wigwag_core::Wait)| OpenWait {
        name: wait.name.clone(),
        point: path.clone(),
        since: point.started_at,
        deadline: point.until,
        mode: wait.mode,
        quorum: wait.quorum,
        authenticated: wait.authenticated,
        schema: wait.schema.clone(),
        about: wait.about.clone(),
    };
    run.waits_in_order().into_iter().map(view).collect()
}

/// Returns the stored definition of a run, if there is one. Definitions never change, so they are cached.
pub(crate) async fn definition_at_hand(inner: &EngineCore, run: &Run) -> Result<Option<Arc<Definition>>> {
    // A function's definition does not describe its signals: its waits do.
    if run.task.is_some() || run.version.is_some() {
        return Ok(None);
    }
    if run.definition_hash.is_empty() {
        // No worker with the code has claimed the run yet.
        return newest_definition(inner, &run.of).await;
    }
    let known = lock(&inner.caches.definitions).get(&run.definition_hash).cloned();
    if known.is_some() {
        return Ok(known);
    }
    let own = inner.registry.workflow(&run.of).map(|workflow| workflow.definition.clone());
    let found = match own.filter(|own| own.hash == run.definition_hash) {
        Some(own) => Some(own),
        None => control::definition_by_hash(inner, &run.of, &run.definition_hash).await?,
    };
    let found = found.map(Arc::new);
    if let Some(found) = &found {
        lock(&inner.caches.definitions).insert(run.definition_hash.clone(), Arc::clone(found));
    }
    Ok(found)
}

/// Returns the definition of a type in this engine, or the newest that workers have stored.
pub(super) async fn newest_definition(
    inner: &EngineCore,
    of: &wigwag_core::TypeName,
) -> Result<Option<Arc<Definition>>> {
    Ok(control::current_definition(inner, of).await?.map(Arc::new))
}

/// Lists waiting runs. The index names runs that may wait; the run itself decides.
async fn list_waiting(inner: &EngineCore, below: &str, limit: usize, after: Option<&str>) -> Result<WaitingRuns> {
    let limit = limit.clamp(1, LIST_PAGE);
    if let Some(after) = after.filter(|after| !after.starts_with(below)) {
        let what = format!("invalid cursor (want the `next` of the previous page): `{}`", after.escape_debug());
        return Err(Error::invalid(what));
    }
    let mut answer = WaitingRuns::default();
    let mut place = after.unwrap_or_default().to_owned();
    while answer.runs.len() < limit {
        let page = inner.store.list(below, &place, limit - answer.runs.len()).await?;
        for some in page.entries.chunks(WAITING_ROWS_AT_ONCE) {
            for checks in try_join_all(some.iter().map(|listed| check_waiting(inner, &listed.key))).await? {
                answer.runs.extend(checks);
            }
        }
        match page.entries.last() {
            Some(last) if page.more => place.clone_from(&last.key),
            _ => return Ok(answer),
        }
    }
    answer.next = Some(place);
    Ok(answer)
}

async fn check_waiting(inner: &EngineCore, key: &str) -> Result<Vec<WaitingRun>> {
    let Ok(Key::Waiting { name, run, seq }) = key.parse::<Key>() else { return Ok(Vec::new()) };
    if !inner.store.traits().atomic
        && let Some(rows) = waiting_in_snapshot(inner, &run, &name, seq).await?
    {
        return Ok(rows);
    }
    let Some(run) = run_of_index(inner, key, run).await? else { return Ok(Vec::new()) };
    let loaded = match log::read(&*inner.store, &run).await {
        Err(error) if matches!(error.kind(), ErrorKind::Gone | ErrorKind::Damaged) => None,
        read => read?,
    };
    let Some(loaded) = loaded.filter(|loaded| !loaded.run.status.is_final()) else { return Ok(Vec::new()) };
    Ok(rows_of(&loaded.run, &name, seq))
}

/// The rows of a wait by the snapshot alone, which a run writes when it parks: one request on a bucket, where a wait that was
/// consumed a moment ago may still be shown. `None` if the snapshot does not have the wait.
async fn waiting_in_snapshot(inner: &EngineCore, id: &RunId, name: &Name, seq: u64) -> Result<Option<Vec<WaitingRun>>> {
    let run = RunRef::workflow(id.clone());
    let Some(object) = inner.store.get(&Key::State { run: run.clone() }.to_string()).await? else { return Ok(None) };
    let Ok(run) = wigwag_core::read_state(run, &object.body) else { return Ok(None) };
    let rows = rows_of(&run, name, seq);
    Ok((!run.status.is_final() && !rows.is_empty()).then_some(rows))
}

fn rows_of(run: &Run, name: &Name, seq: u64) -> Vec<WaitingRun> {
    let points: Vec<Path> = run
        .waits_in_order()
        .into_iter()
        .filter(|(_, _, wait)| wait.name == *name && wait.seq == seq)
        .map(|(path, ..)| path.clone())
        .collect();
    let mine = open_waits(run).into_iter().filter(|wait| points.contains(&wait.point));
    let view = |wait| WaitingRun {
        id: run.run.id.clone(),
        run: run.run.clone(),
        of: run.of.to_string(),
        status: run.status,
        wait,
    };
    mine.map(view).collect()
}

/// The run of an index entry; the body of the entry contains its family.
pub(crate) async fn run_of_index(inner: &EngineCore, key: &str, id: RunId) -> Result<Option<RunRef>> {
    let Some(object) = inner.store.get(key).await? else { return Ok(None) };
    let facts: Value = serde_json::from_slice(&object.body).unwrap_or_default();
    let run = facts["run"].as_str().and_then(|run| run.parse::<RunRef>().ok()).filter(|run| run.id == id);
    Ok(Some(run.unwrap_or_else(|| RunRef::workflow(id))))
}
