//! Totals of waits and runs: groups, ages, order by deadline, ends by time. Read from the board, which lists only keys.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wigwag::{ErrorKind, OpenWait, Time};
use wigwag_core::{Family, Key, Run, Status, TypeName, kind_of};
use wigwag_store::{Clock as _, System};

use crate::app::App;
use crate::board::{Facts, Snapshot, Waits};
use crate::extract::Query;
use crate::limits::PAGE_MAX;
use crate::problem::{Code, Problem, Result};
use crate::wire::{self, Page, Raw};
use crate::words;

/// How long a response waits for a listing; after this time it contains the waits known so far.
const PATIENCE: Duration = Duration::from_millis(500);

/// Waits that one page considers.
const CONSIDERED_MAX: usize = 1_000;

/// Runs that are read concurrently for a page.
const READS_AT_ONCE: usize = 16;

/// Ages that a summary counts: below an hour, a day, a week, and older.
const AGES: [u64; 3] = [3_600, 24 * 3_600, 7 * 24 * 3_600];

/// Signals that are read to count the senders of a quorum.
const SENDERS_READ_MAX: usize = 50;

/// Maximum number of characters that describe a waiting run.
const ABOUT_CHARS_MAX: usize = 120;

/// Signals with open waits.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WaitingSummary {
    /// Time of the listing.
    at: String,
    /// Whether all waits are counted; if not, a listing is in progress.
    exact: bool,
    /// Seconds until a request lists the index again.
    again_in: f64,
    /// Open waits in total.
    total: usize,
    groups: Vec<Group>,
}

/// Waits for one signal.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Group {
    /// Name of the signal.
    name: String,
    count: usize,
    /// Start of the oldest wait.
    oldest: Option<String>,
    /// Number of waits younger than an hour, a day, a week, and older.
    ages: [usize; 4],
    /// Waits whose deadline is within an hour; absent if there are too many waits to read all deadlines.
    #[serde(skip_serializing_if = "Option::is_none")]
    due_within_1h: Option<usize>,
    /// Workflows of the waiting runs; absent if there are too many waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    types: Option<BTreeSet<String>>,
}

pub(crate) async fn waiting_summary(State(app): State<App>) -> Result<Raw> {
    let snapshot = waits(&app).await?;
    let facts = all_facts(&app, &snapshot.found).await?;
    let now = System.wall().micros();
    let soon = Time::from_micros(now).after(Duration::from_secs(3_600));
    let mut groups: HashMap<&str, Group> = HashMap::new();
    for (name, count) in &snapshot.found.counts {
        let (due_within_1h, types) = (facts.as_ref().map(|_| 0), facts.as_ref().map(|_| BTreeSet::new()));
        let group = Group { name: name.to_string(), count: *count, oldest: None, ages: [0; 4], due_within_1h, types };
        groups.insert(name, group);
    }
    for (place, (key, since)) in snapshot.found.all.iter().enumerate() {
        let Some(group) = name_of(key).and_then(|name| groups.get_mut(name)) else { continue };
        let age = now.saturating_sub(*since) / 1_000_000;
        let slot = AGES.iter().position(|limit| age < *limit).unwrap_or(AGES.len());
        if let Some(count) = group.ages.get_mut(slot) {
            *count += 1;
        }
        let since = Time::from_micros(*since).to_string();
        if group.oldest.as_ref().is_none_or(|oldest| since < *oldest) {
            group.oldest = Some(since);
        }
        let Some(facts) = facts.as_ref().and_then(|facts| facts.get(place)?.as_ref()) else { continue };
        if let Some(due) = group.due_within_1h.as_mut().filter(|_| facts.deadline.is_some_and(|at| at <= soon)) {
            *due += 1;
        }
        group.types.as_mut().map(|types| types.insert(facts.of.clone()));
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by(|one, other| (Reverse(one.count), &one.name).cmp(&(Reverse(other.count), &other.name)));
    let total = snapshot.found.total();
    let at = Time::from_micros(snapshot.at).to_string();
    let again_in = snapshot.interval.as_secs_f64();
    wire::json(200, &WaitingSummary { at, exact: snapshot.exact, again_in, total, groups })
}

fn name_of(key: &str) -> Option<&str> {
    key.strip_prefix("waiting/")?.split('/').next()
}

async fn waits(app: &App) -> Result<Arc<Snapshot<Waits>>> {
    let found = app.board.waits.ask(app.client.store(), PATIENCE).await;
    found.ok_or_else(|| Problem::new(Code::Unavailable, "the index of waits could not be listed in time"))
}

/// Types and deadlines of all waits, unless there are too many.
async fn all_facts(app: &App, waits: &Waits) -> Result<Option<Vec<Option<Arc<Facts>>>>> {
    if !waits.is_whole() || waits.all.len() > crate::board::READ_MAX {
        return Ok(None);
    }
    let keys: Vec<&str> = waits.all.iter().map(|(key, _)| &**key).collect();
    let read = app.board.facts.read(&**app.client.store(), &keys).await.map_err(wigwag::Error::from)?;
    Ok(Some(read))
}

/// Filter, order and page of a list of waits.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitingQuery {
    /// Only signals of this name.
    #[schemars(with = "Option<words::Word>")]
    name: Option<String>,
    /// Only runs of this type; requires `order`.
    #[serde(rename = "type")]
    #[schemars(with = "Option<words::Type>")]
    of: Option<String>,
    /// `due`: the nearest deadline first; `oldest`: the longest wait first; by name and id if absent.
    order: Option<Order>,
    /// Most items on the page: 50 by default, 1000 at most.
    #[schemars(range(min = 1, max = PAGE_MAX))]
    limit: Option<usize>,
    /// Cursor: `next` of the page before.
    #[schemars(with = "Option<words::Cursor>")]
    after: Option<String>,
}

/// Order of a list of waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    Due,
    Oldest,
}

/// A page of waits in the requested order.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct WaitingPage {
    #[schemars(with = "Vec<super::shape::WaitingRun>")]
    items: Vec<Row>,
    /// Cursor of the next page, for `after`; absent on the last page.
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// Order of the items: `oldest` even for a request with `due` if there are too many waits. Absent without `order`.
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<Order>,
    /// Time of the listing. Absent without `order`.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
}

/// A wait in a list.
#[derive(Clone, Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    run: wigwag::WaitingRun,
    /// Senders that a quorum has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    have: Vec<String>,
}

pub(crate) async fn waiting(State(app): State<App>, Query(wanted): Query<WaitingQuery>) -> Result<Raw> {
    let limit = wire::limit(wanted.limit)?;
    let after = wire::cursor(wanted.after)?;
    let Some(order) = wanted.order else {
        if wanted.of.is_some() {
            return Err(Problem::new(Code::InvalidQuery, "`type` needs an `order`").hint("add `order=oldest`"));
        }
        let found = match &wanted.name {
            Some(name) => app.client.runs_waiting_for(name, limit, after.as_deref()).await?,
            None => app.client.waiting_runs(limit, after.as_deref()).await?,
        };
        return wire::json(200, &Page { items: found.runs, next: found.next });
    };
    let snapshot = waits(&app).await?;
    let (order, keys) = ordered(&app, &snapshot, order, wanted.name.as_deref()).await?;
    let mut rest = keys.filter(|(place, _)| after.as_ref().is_none_or(|after| place > after));
    let mut items = Vec::new();
    let mut last = None;
    let mut considered = 0;
    while items.len() < limit && considered < CONSIDERED_MAX {
        let some: Vec<(String, &str)> = rest.by_ref().take((limit - items.len()).max(1)).collect();
        let Some((place, _)) = some.last() else {
            last = None;
            break;
        };
        last = Some(place.clone());
        considered += some.len();
        let keys: Vec<&str> = some.iter().map(|(_, key)| *key).collect();
        items.extend(rows(&app, &keys, wanted.of.as_deref()).await?);
    }
    let next = last.filter(|_| rest.next().is_some());
    let at = Some(Time::from_micros(snapshot.at).to_string());
    wire::json(200, &WaitingPage { items, next, order: Some(order), at })
}

/// Keys, each with its cursor.
type Keys<'a> = Box<dyn Iterator<Item = (String, &'a str)> + Send + 'a>;

/// Returns the keys in order, and the order that was possible. Deadlines are not read while the index is still being listed.
async fn ordered<'a>(
    app: &App,
    snapshot: &'a Snapshot<Waits>,
    order: Order,
    name: Option<&str>,
) -> Result<(Order, Keys<'a>)> {
    let waits = &snapshot.found;
    let below = name.map(|name| format!("waiting/{name}/"));
    let count = name.map_or(waits.all.len(), |name| waits.counts.get(name).copied().unwrap_or_default());
    let aged = waits.by_age.iter().filter_map(|place| waits.all.get(*place as usize));
    let aged = aged.map(|(key, since)| (&**key, *since));
    let aged = aged.filter(move |(key, _)| below.as_ref().is_none_or(|below| key.starts_with(below)));
    if order == Order::Due && snapshot.exact && count <= crate::board::READ_MAX {
        let aged: Vec<(&str, u64)> = aged.collect();
        let keys: Vec<&str> = aged.iter().map(|(key, _)| *key).collect();
        let facts = app.board.facts.read(&**app.client.store(), &keys).await.map_err(wigwag::Error::from)?;
        let places = aged.iter().zip(facts).map(|((key, since), facts)| {
            // Waits without a deadline come last, the oldest first.
            let deadline = facts.and_then(|facts| facts.deadline).map_or(Time::MAX, |at| at).micros();
            (format!("d{deadline:018}~{since:018}~{key}"), *key)
        });
        let mut places: Vec<(String, &str)> = places.collect();
        places.sort_unstable();
        return Ok((Order::Due, Box::new(places.into_iter())));
    }
    Ok((Order::Oldest, Box::new(aged.map(|(key, since)| (format!("o{since:018}~{key}"), key)))))
}

/// Returns the current state of the waits that are still open.
async fn rows(app: &App, keys: &[&str], of: Option<&str>) -> Result<Vec<Row>> {
    let facts = app.board.facts.read(&**app.client.store(), keys).await.map_err(wigwag::Error::from)?;
    let mut wanted: Vec<(String, Arc<Facts>)> = Vec::with_capacity(keys.len());
    for (key, facts) in keys.iter().zip(facts) {
        if let Some(facts) = facts.filter(|facts| of.is_none_or(|of| facts.of == of)) {
            wanted.push(((*key).to_owned(), facts));
        }
    }
    let reads = wanted.into_iter().map(|(key, facts)| async move { row(app, &key, &facts).await });
    let found: Vec<Vec<Row>> = stream::iter(reads).buffered(READS_AT_ONCE).try_collect().await?;
    Ok(found.into_iter().flatten().collect())
}

async fn row(app: &App, key: &str, facts: &Facts) -> Result<Vec<Row>> {
    let Ok(Key::Waiting { name, seq, .. }) = key.parse::<Key>() else { return Ok(Vec::new()) };
    let id = facts.run.id.as_str();
    let handle = if facts.run.family == Family::Task { app.task(id)? } else { app.run(id)? };
    let view = match handle.get().await {
        Ok(view) => view,
        // The run was deleted or cannot be read; its page shows the error.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Gone | ErrorKind::Damaged) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error.into()),
    };
    let run = view.run();
    let about = about(run);
    let open: Vec<OpenWait> = if run.status.is_final() { Vec::new() } else { wigwag::open_waits(run) };
    let own = |wait: &OpenWait| run.points.get(&wait.point).and_then(|point| point.wait.as_ref());
    let mine = open.into_iter().filter(|wait| wait.name == name && own(wait).is_some_and(|own| own.seq == seq));
    let mut rows = Vec::new();
    for wait in mine {
        let have = if wait.quorum > 1 { senders(&handle, &wait).await? } else { Vec::new() };
        let mut row = wigwag::WaitingRun::of(run, wait);
        row.wait.about = row.wait.about.or_else(|| about.clone());
        rows.push(Row { run: row, have });
    }
    Ok(rows)
}

/// Senders whose signals a quorum has.
async fn senders(handle: &wigwag::RunHandle, wait: &OpenWait) -> Result<Vec<String>> {
    let page = handle.signals_page(Some(wait.name.as_str()), SENDERS_READ_MAX, None).await?;
    let counted =
        page.signals.into_iter().filter(|signal| signal.fate == wigwag::Fate::Unconsumed && signal.misfit.is_none());
    let names: BTreeSet<String> = counted.filter_map(|signal| signal.source.by).collect();
    Ok(names.into_iter().collect())
}

/// Describes a run whose wait has no description, in one line: the first plain fields of its input.
fn about(run: &Run) -> Option<String> {
    let input = run.input.inline()?.value();
    let text = match &input {
        serde_json::Value::Object(fields) => {
            let (texts, others): (Vec<_>, Vec<_>) = fields.values().partition(|value| value.is_string());
            let plain = texts.into_iter().chain(others).filter_map(plain).take(3);
            plain.collect::<Vec<_>>().join(" · ")
        }
        other => plain(other)?,
    };
    let cut: String = text.chars().take(ABOUT_CHARS_MAX).collect();
    (!cut.is_empty()).then_some(cut)
}

fn plain(value: &serde_json::Value) -> Option<String> {
    match value {
        serde_json::Value::String(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Unfinished runs by type, and ends of the last 24 hours by quarter of an hour.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RunsSummary {
    at: String,
    /// Whether all runs are counted.
    exact: bool,
    unfinished: usize,
    /// Ends of the last 24 hours.
    ended: Counts,
    /// By start of the quarter of an hour; a quarter without ends is absent.
    steps: Vec<EndStep>,
    types: Vec<TypeCounts>,
}

/// Ends by status.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
pub(crate) struct Counts {
    completed: usize,
    failed: usize,
    cancelled: usize,
}

impl Counts {
    fn add(&mut self, status: Status, count: usize) {
        match status {
            Status::Failed => self.failed += count,
            Status::Cancelled => self.cancelled += count,
            _ => self.completed += count,
        }
    }
}

/// Ends of one quarter of an hour.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EndStep {
    at: String,
    #[serde(flatten)]
    counts: Counts,
}

/// Runs of one type.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct TypeCounts {
    /// Name of the workflow, or `task:QUEUE:NAME`.
    #[serde(rename = "type")]
    of: String,
    unfinished: usize,
    ended: Counts,
}

pub(crate) async fn runs_summary(State(app): State<App>) -> Result<Raw> {
    let store = app.client.store();
    let live = app.board.live.ask(store, PATIENCE).await;
    let live = live.ok_or_else(|| Problem::new(Code::Unavailable, "the index of runs could not be listed in time"))?;
    let ends = app.board.ends.ask(&**store).await.map_err(wigwag::Error::from)?;
    let mut types: BTreeMap<String, TypeCounts> = BTreeMap::new();
    let registered = app.client.workflow_names().await?;
    for of in live.found.by_type.keys().cloned().chain(registered) {
        let unfinished = live.found.by_type.get(&of).copied().unwrap_or_default();
        types.entry(of.clone()).or_insert(TypeCounts { of, unfinished, ended: Counts::default() });
    }
    let kinds: HashMap<String, String> =
        types.keys().filter_map(|of| Some((kind_of(&of.parse::<TypeName>().ok()?), of.clone()))).collect();
    let (mut ended, mut steps) = (Counts::default(), BTreeMap::<u64, Counts>::new());
    for ((step, kind, status), count) in &ends.counts {
        // Ends of tasks are in the same index. Tasks have no definition, so their types are unknown here and skipped.
        let Some(known) = kinds.get(kind).and_then(|of| types.get_mut(of)) else { continue };
        known.ended.add(*status, *count);
        if !known.of.starts_with("task:") {
            ended.add(*status, *count);
            steps.entry(*step).or_default().add(*status, *count);
        }
    }
    let steps = steps.into_iter().map(|(at, counts)| EndStep { at: Time::from_micros(at).to_string(), counts });
    let summary = RunsSummary {
        at: Time::from_micros(live.at).to_string(),
        exact: live.exact && ends.exact,
        unfinished: live.found.by_type.iter().filter(|(of, _)| !of.starts_with("task:")).map(|(_, count)| count).sum(),
        ended,
        steps: steps.collect(),
        types: types.into_values().collect(),
    };
    wire::json(200, &summary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_value_is_text_or_a_number() {
        let value = |text: &str| plain(&serde_json::from_str(text).unwrap());
        assert_eq!(value("\"a\"").as_deref(), Some("a"));
        assert_eq!(value("12").as_deref(), Some("12"));
        assert_eq!((value("null"), value("\"\""), value("true"), value("[1]")), (None, None, None, None));
    }
}
