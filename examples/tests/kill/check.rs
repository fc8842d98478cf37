//! Invariants that must hold in the end, regardless of crashes and outages.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use wigwag::{Client, ErrorKind, RunHandle, Status};
use wigwag_core::{Entry, Event};
use wigwag_store::doctor::{self, Races};
use wigwag_store::{Clock as _, Store, System};

use super::answers::{self, Answered};
use super::cases::{Case, End, Kind};
use super::clients;
use super::fleet::Kill;
use super::ledger::{self, Line};

/// Maximum difference between timestamps of log entries and of the ledger.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slack {
    /// Between the store's clock and the machine's.
    pub(crate) clocks: Duration,
    /// Between the end of a step's body and its log entry; `None` where the store may be unavailable for long.
    pub(crate) commit: Option<Duration>,
}

impl Slack {
    /// Adds a time during which the disk stalled.
    pub(crate) fn and(self, still: Duration) -> Self {
        Self { commit: self.commit.map(|commit| commit + still * 2), ..self }
    }
}

/// Counts of the check.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) runs: usize,
    pub(crate) points: usize,
    pub(crate) begins: usize,
    pub(crate) again: usize,
    pub(crate) undone: usize,
    pub(crate) claims: usize,
    /// Turns that were taken over from a worker that had not given them up.
    pub(crate) held: usize,
    /// Effects that completed without a log entry: the worker was killed in between.
    pub(crate) unrecorded: usize,
}

/// Everything that a check needs.
pub(crate) struct Scene {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) client: Client,
    pub(crate) ledger: PathBuf,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) slack: Slack,
    /// Time limit for a run to end after the last kill.
    pub(crate) patience: Duration,
    pub(crate) tidy: Tidy,
    /// Time limit for the indexes to be empty after that.
    pub(crate) tidy_within: Duration,
}

impl Scene {
    /// Checks all guarantees. The clients have finished; the workers are still running.
    pub(crate) async fn check(&self, kills: &[Kill]) -> (Counted, Answered) {
        let notes = clients::all_notes(&self.ledger);
        let cases = clients::cases(&self.kinds, &notes);
        let (store, client) = (&*self.store, &self.client);
        ends(store, client, &cases, self.patience).await;
        let waiting: Vec<&Case> = cases.iter().filter(|case| matches!(case.end, End::Waits { .. })).collect();
        only_these_are_left(store, client, &waiting, self.tidy, self.tidy_within).await;
        let answered = answers::check(client, &cases, &notes, kills, self.slack.clocks).await;
        for case in &waiting {
            let End::Waits { name } = case.end else { continue };
            client.signal(&case.id, name, &3).by("the test").await.unwrap();
        }
        for case in &waiting {
            let ended = client.run(&case.id).unwrap().wait_for(self.patience).await.unwrap();
            assert_eq!(ended.status(), Status::Completed, "{} got all signals that it waited for", case.id);
        }
        only_these_are_left(store, client, &[], self.tidy, self.tidy_within).await;
        let evidence = evidence(client, &ledger::read(&self.ledger)).await;
        let counted = evidence.check(kills, self.slack);
        let report = doctor::examine(store, Races::AT_FIRST_USE, |_| ()).await.unwrap();
        assert!(report.is_good(), "{report:#?}");
        assert!(counted.runs > cases.len() / 2, "most had steps: {counted:?}");
        eprintln!("{counted:?}\n{answered:?}");
        (counted, answered)
    }
}

/// The ledger's lines and the histories of their runs.
pub(crate) struct Evidence {
    lines: BTreeMap<String, Vec<Line>>,
    histories: BTreeMap<String, Vec<Entry>>,
}

/// Every run ended as expected.
pub(crate) async fn ends(store: &dyn Store, client: &Client, cases: &[Case], within: Duration) {
    for case in cases {
        let handle = client.run(&case.id).unwrap();
        if let End::Waits { name } = case.end {
            waits(store, client, &case.id, name, within).await;
            continue;
        }
        let slowly = ledger::wall() + 5_000_000;
        let ended = match handle.wait_for(within).await {
            Ok(ended) => ended,
            Err(error) => panic!("{error}: {}", family_text(store, client, &case.id).await),
        };
        if ledger::wall() > slowly {
            eprintln!("{} took long: {}", case.id, family_text(store, client, &case.id).await);
        }
        let End::So(status, result) = &case.end else { continue };
        let why = ended.run().error.clone();
        assert_eq!(ended.status(), *status, "{}: {why:?}\n{}", case.id, history_text(&handle).await);
        if let Some(result) = result {
            let given = handle.output_payload().await.unwrap().map(|payload| payload.text().to_owned());
            assert_eq!(given.as_ref(), Some(result), "{} of {}", case.id, case.of);
        }
    }
}

/// The run consumed all its signals and waits for more.
async fn waits(store: &dyn Store, client: &Client, id: &str, name: &str, within: Duration) {
    let handle = client.run(id).unwrap();
    let patience = ledger::wall() + u64::try_from(within.as_micros()).unwrap();
    loop {
        let signals = handle.signals(Some(name)).await.unwrap();
        let taken = signals.iter().filter(|signal| matches!(signal.fate, wigwag::Fate::Consumed { .. })).count();
        let view = handle.get().await.unwrap();
        if view.status() == Status::WaitingSignal && view.run().parked && taken == 3 {
            return;
        }
        if ledger::wall() > patience {
            panic!("{id} has taken {taken} of 3 and is {}: {}", view.status(), family_text(store, client, id).await);
        }
        System.sleep(Duration::from_millis(20)).await;
    }
}

/// Returns everything that the store knows of a run and its children.
async fn family_text(store: &dyn Store, client: &Client, id: &str) -> String {
    let mut said = String::new();
    for (family, run) in [("workflow", true), ("task", false)] {
        let keys = keys(store, &format!("{family}/{id}")).await;
        let ids: BTreeSet<&str> = keys.iter().filter_map(|key| key.split('/').nth(1)).collect();
        for id in ids.into_iter().filter(|found| *found == id || found.starts_with(&format!("{id}:"))) {
            let handle = if run { client.run(id) } else { client.task(id) }.unwrap();
            said += &format!("\n{family} {id}:\n{}", history_text(&handle).await);
        }
    }
    let hints = [keys(store, "due/").await, keys(store, "live/").await].concat();
    said + &hints.into_iter().filter(|key| key.contains(id)).collect::<Vec<_>>().join("\n")
}

async fn history_text(handle: &RunHandle) -> String {
    text(&handle.history(1, 10_000).await.unwrap())
}

/// Returns the run of a ledger key; ids of children contain colons themselves.
fn run_of(key: &str) -> &str {
    key.trim_end_matches(":undo").rsplit_once(':').unwrap().0
}

/// Reads the histories of all runs in the ledger.
pub(crate) async fn evidence(client: &Client, ledger: &[Line]) -> Evidence {
    let mut lines = BTreeMap::<String, Vec<Line>>::new();
    for line in ledger {
        lines.entry(line.key.clone()).or_default().push(line.clone());
    }
    let runs: BTreeSet<&str> = lines.keys().map(|key| run_of(key)).collect();
    let mut histories = BTreeMap::new();
    for run in runs {
        let history = match client.run(run).unwrap().history(1, 10_000).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                client.task(run).unwrap().history(1, 10_000).await.unwrap()
            }
            other => other.unwrap(),
        };
        histories.insert(run.to_owned(), history);
    }
    Evidence { lines, histories }
}

impl Evidence {
    /// No recorded step ran again, each step was recorded once, and compensation ran in reverse order.
    pub(crate) fn check(&self, kills: &[Kill], slack: Slack) -> Counted {
        let mut counted = Counted { runs: self.histories.len(), ..Counted::default() };
        for (run, history) in &self.histories {
            self.check_records(run, history, slack, &mut counted);
            check_undo_order(run, history, &mut counted);
            check_sleeps(run, history);
        }
        counted.held = self.owners_that_lost_a_turn().len();
        for (key, lines) in &self.lines {
            counted.unrecorded += lines.iter().filter(|line| line.done).count().saturating_sub(1);
            counted.begins += lines.iter().filter(|line| !line.done).count();
            counted.again += lines.iter().filter(|line| !line.done).count() - 1;
            check_nothing_follows_a_result(key, lines, kills, slack);
        }
        counted
    }

    /// Returns the workers whose turns were taken over before they gave them up.
    fn owners_that_lost_a_turn(&self) -> BTreeSet<&str> {
        let mut lost = BTreeSet::new();
        for history in self.histories.values() {
            let mut owner = None;
            for event in history.iter().flat_map(|entry| &entry.events) {
                match event {
                    Event::RunClaimed(claim) => {
                        let before = owner.replace(claim.owner.as_str());
                        lost.extend(before.filter(|before| *before != claim.owner));
                    }
                    Event::RunParked(_) | Event::RunPaused(_) => owner = None,
                    _ => {}
                }
            }
        }
        lost
    }

    fn check_records(&self, run: &str, history: &[Entry], slack: Slack, counted: &mut Counted) {
        let mut recorded = BTreeMap::<String, u64>::new();
        for entry in history {
            for event in &entry.events {
                let key = match event {
                    Event::StepCompleted(event) => format!("{run}:{}", event.point),
                    Event::CompensationCompleted(event) => format!("{run}:{}:undo", event.point),
                    Event::RunClaimed(_) => {
                        counted.claims += 1;
                        continue;
                    }
                    _ => continue,
                };
                counted.points += 1;
                let before = recorded.insert(key.clone(), entry.at.micros());
                assert_eq!(before, None, "{key} was recorded twice: {}", text(history));
            }
        }
        for (key, at) in &recorded {
            let lines = self.lines.get(key).map(Vec::as_slice).unwrap_or_default();
            assert!(lines.iter().any(|line| line.done), "{key} was recorded and never done: {lines:?}");
            let latest = at + u64::try_from(slack.clocks.as_micros()).unwrap();
            let again: Vec<&Line> = lines.iter().filter(|line| !line.done && line.at > latest).collect();
            assert!(again.is_empty(), "{key} was recorded at {at} and began again: {again:?}\n{}", text(history));
        }
        // A step interrupted by a cancel is not recorded, whichever worker started it.
        let cancelled = has_ended(history, |event| matches!(event, Event::RunCancelled(_)));
        for key in self.lines.keys().filter(|key| run_of(key) == run && !cancelled) {
            assert!(recorded.contains_key(key), "{key} was started and never recorded: {}", text(history));
        }
    }
}

/// A completed body is not run again if its worker lived long enough to record it.
fn check_nothing_follows_a_result(key: &str, lines: &[Line], kills: &[Kill], slack: Slack) {
    let Some(commit) = slack.commit else { return };
    let commit = u64::try_from(commit.as_micros()).unwrap();
    for done in lines.iter().filter(|line| line.done) {
        let killed = kills.iter().find(|(process, _)| *process == done.process).map_or(u64::MAX, |(_, at)| *at);
        if killed.saturating_sub(done.at) > commit {
            let after = lines.iter().find(|line| !line.done && line.at > done.at);
            assert_eq!(after, None, "{key} was done at {done:?}, its worker died at {killed}");
        }
    }
}

fn has_ended(history: &[Entry], how: impl Fn(&Event) -> bool) -> bool {
    history.last().is_some_and(|entry| entry.events.iter().any(how))
}

pub(crate) fn text(history: &[Entry]) -> String {
    history.iter().map(|entry| String::from_utf8(entry.to_json()).unwrap()).collect()
}

/// No sleep ends early.
fn check_sleeps(run: &str, history: &[Entry]) {
    let mut until = BTreeMap::new();
    for event in history.iter().flat_map(|entry| &entry.events) {
        match event {
            Event::SleepStarted(event) => _ = until.insert(&event.point, event.until),
            Event::SleepFired(event) => {
                assert!(event.at >= until[&event.point], "{run} woke up early: {}", text(history));
            }
            _ => {}
        }
    }
}

fn check_undo_order(run: &str, history: &[Entry], counted: &mut Counted) {
    let (mut done, mut undone) = (Vec::new(), Vec::new());
    let mut compensable = BTreeSet::new();
    for event in history.iter().flat_map(|entry| &entry.events) {
        match event {
            Event::StepStarted(event) if event.compensate => _ = compensable.insert(event.point.clone()),
            Event::StepCompleted(event) => done.push(event.point.clone()),
            Event::CompensationCompleted(event) => undone.push(event.point.clone()),
            _ => {}
        }
    }
    let badly = |event: &Event| matches!(event, Event::RunFailed(_) | Event::RunCancelled(_));
    if !has_ended(history, badly) {
        assert!(undone.is_empty(), "{run} was compensated and completed: {}", text(history));
        return;
    }
    counted.undone += undone.len();
    done.retain(|point| compensable.contains(point));
    done.reverse();
    // A step in progress is compensated too, because its effects are unknown.
    undone.retain(|point| done.contains(point));
    assert_eq!(undone, done, "{run} was not compensated in reverse order: {}", text(history));
}

/// Returns all keys with a prefix.
pub(crate) async fn keys(store: &dyn Store, prefix: &str) -> Vec<String> {
    let mut keys = Vec::<String>::new();
    loop {
        let after = keys.last().cloned().unwrap_or_default();
        let page = store.list(prefix, &after, 1_000).await.unwrap();
        keys.extend(page.entries.into_iter().map(|listed| listed.key));
        if !page.more {
            return keys;
        }
    }
}

/// The indexes of unfinished runs are soon empty, and the sweeper finds nothing to repair.
pub(crate) async fn nothing_is_left(store: &dyn Store, client: &Client, within: Duration) {
    only_these_are_left(store, client, &[], Tidy::Spotless, within).await;
}

/// The expected state of the indexes in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tidy {
    /// Only entries of waiting runs.
    Spotless,
    /// Stale wake-ups of ended runs and of closed waits may be left: on a bucket by a worker that died between
    /// putting them and the entry that names them, elsewhere by a store that rejected deletes for longer than a
    /// lease. The first kind is found when it is due, the second by the sweeper; neither is visible to users.
    Harmless,
}

/// The indexes of unfinished runs name these waiting runs and no others.
async fn only_these_are_left(store: &dyn Store, client: &Client, waiting: &[&Case], tidy: Tidy, within: Duration) {
    let ids: BTreeSet<&str> = waiting.iter().map(|case| case.id.as_str()).collect();
    let patience = ledger::wall() + u64::try_from(within.as_micros()).unwrap();
    let mut late = Some(ledger::wall() + 5_000_000);
    loop {
        let [due, live, open] = [keys(store, "due/").await, keys(store, "live/").await, keys(store, "waiting/").await];
        let hinted = ids.iter().all(|id| due.iter().any(|key| is_of(key, id)));
        assert!(hinted, "a waiting run has no wake-up: {ids:?} {due:#?}");
        let left = [due, open].concat();
        let left: Vec<&String> = left.iter().filter(|key| !ids.iter().any(|id| is_of(key, id))).collect();
        let stray = match tidy {
            Tidy::Spotless => left.clone(),
            Tidy::Harmless => unfinished(client, &left).await,
        };
        if stray.is_empty() && live.len() == ids.len() {
            if !left.is_empty() {
                eprintln!("{} stale entries stay in the indexes", left.len());
            }
            break;
        }
        if let Some(at) = late.filter(|at| ledger::wall() > *at) {
            late = None;
            eprintln!("still there after {at}: {stray:?}");
        }
        assert!(ledger::wall() < patience, "{} runs wait, and these are left: {stray:#?} {live:?}", ids.len());
        System.sleep(Duration::from_millis(100)).await;
    }
    let seen = client.waiting_runs(1_000, None).await.unwrap().runs;
    let seen: BTreeSet<&str> = seen.iter().map(|run| run.id.as_str()).collect();
    assert_eq!(seen, ids, "the list of waiting runs has others");
    let swept = client.sweep(true).await.unwrap();
    assert_eq!(swept.repaired(), 0, "{swept:?}");
}

/// Whether an index entry belongs to this run.
fn is_of(key: &str, id: &str) -> bool {
    key.split(['/', '~']).any(|part| part == id)
}

/// Returns the index entries of runs that have not ended.
async fn unfinished<'a>(client: &Client, keys: &[&'a String]) -> Vec<&'a String> {
    let mut unfinished = Vec::new();
    for key in keys {
        let parts: Vec<&str> = key.split(['/', '~']).collect();
        let id = if parts[0] == "due" { parts[4] } else { parts[2] };
        let as_run = client.run(id).unwrap().status().await;
        let as_task = client.task(id).unwrap().status().await;
        if !as_run.or(as_task).is_ok_and(|status| status.is_final()) {
            unfinished.push(*key);
        }
    }
    unfinished
}

/// Returns a run `r` whose step `s` was started at 1 s, completed and recorded, plus one more ledger line.
fn staged(further: Line) -> Evidence {
    use wigwag::{Payload, Time};
    use wigwag_core::{Data, Requests, StepCompleted};
    let at = Time::from_micros(1_000_000);
    let result = Data::Inline(Payload::null());
    let done = StepCompleted { point: "s".parse().unwrap(), at, result, patch: None, mark: false };
    let entry = Entry { seq: 1, by: "1.0".into(), at, events: vec![done.into()], requests: Requests::default() };
    let line = |done| Line { at: 1_000_000, process: 1, done, key: "r:s".into() };
    Evidence {
        lines: [("r:s".to_owned(), vec![line(false), line(true), further])].into(),
        histories: [("r".to_owned(), vec![entry])].into(),
    }
}

fn a_second() -> Slack {
    Slack { clocks: Duration::from_secs(1), commit: Some(Duration::from_secs(1)) }
}

#[test]
#[should_panic(expected = "began again")]
fn a_step_repeated_after_its_record_is_detected() {
    let again = Line { at: 2_000_001, process: 2, done: false, key: "r:s".into() };
    staged(again).check(&[(1, 1_500_000)], a_second());
}

#[test]
#[should_panic(expected = "its worker died at")]
fn a_step_repeated_although_its_worker_was_alive_is_detected() {
    let again = Line { at: 1_900_000, process: 2, done: false, key: "r:s".into() };
    staged(again).check(&[(1, 2_100_000)], a_second());
}

#[test]
fn a_step_repeated_because_its_worker_died_is_accepted() {
    let again = Line { at: 1_900_000, process: 2, done: false, key: "r:s".into() };
    assert_eq!(staged(again).check(&[(1, 1_500_000)], a_second()).again, 1);
}
