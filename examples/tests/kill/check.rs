//! What must hold when all runs have ended, whoever was killed on the way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use wigwag::core::{Entry, Event};
use wigwag::{Client, ErrorKind, RunHandle};
use wigwag_store::Store;

use super::fleet::Kill;
use super::ledger::Line;
use super::load::Started;

/// How far off the stamps of entries and those of the ledger may be from each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slack {
    /// Between the store's time and the machine's.
    pub(crate) clocks: Duration,
    /// From the end of a step's body to its entry.
    pub(crate) commit: Duration,
}

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) runs: usize,
    pub(crate) points: usize,
    pub(crate) begins: usize,
    pub(crate) again: usize,
    pub(crate) undone: usize,
    pub(crate) claims: usize,
}

/// All runs of which the ledger tells, with their history.
pub(crate) struct Evidence {
    lines: BTreeMap<String, Vec<Line>>,
    histories: BTreeMap<String, Vec<Entry>>,
}

/// Every run ended as it was to end.
pub(crate) async fn ends(store: &dyn Store, client: &Client, started: &[Started], within: Duration) {
    for run in started {
        let handle = client.run(&run.id).unwrap();
        let ended = match handle.wait_for(within).await {
            Ok(ended) => ended,
            Err(error) => panic!("{error}: {}", family_text(store, client, &run.id).await),
        };
        let why = ended.run().error.clone();
        assert_eq!(ended.status(), run.status, "{}: {why:?}\n{}", run.id, history_text(&handle).await);
        if let Some(result) = &run.result {
            let given = handle.output_payload().await.unwrap().map(|payload| payload.text().to_owned());
            assert_eq!(given.as_ref(), Some(result), "{} of {}", run.id, run.of);
        }
    }
}

/// All that the store knows of a run and its children.
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

/// The run of a key in the ledger; ids of children have colons of their own.
fn run_of(key: &str) -> &str {
    key.trim_end_matches(":undo").rsplit_once(':').unwrap().0
}

/// Reads what there is.
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
    /// No recorded step ran again; each was recorded once; undoing went from the last to the first.
    pub(crate) fn check(&self, kills: &[Kill], slack: Slack) -> Counted {
        let mut counted = Counted { runs: self.histories.len(), ..Counted::default() };
        for (run, history) in &self.histories {
            self.check_records(run, history, slack, &mut counted);
            check_undo_order(run, history, &mut counted);
        }
        for (key, lines) in &self.lines {
            counted.begins += lines.iter().filter(|line| !line.done).count();
            counted.again += lines.iter().filter(|line| !line.done).count() - 1;
            check_nothing_follows_a_result(key, lines, kills, slack);
        }
        counted
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
        for key in self.lines.keys().filter(|key| run_of(key) == run) {
            assert!(recorded.contains_key(key), "{key} was begun and never recorded: {}", text(history));
        }
    }
}

/// Once a body was done and its worker lived on long enough to record it, nobody begins it again.
fn check_nothing_follows_a_result(key: &str, lines: &[Line], kills: &[Kill], slack: Slack) {
    let commit = u64::try_from(slack.commit.as_micros()).unwrap();
    for done in lines.iter().filter(|line| line.done) {
        let killed = kills.iter().find(|(process, _)| *process == done.process).map_or(u64::MAX, |(_, at)| *at);
        if killed.saturating_sub(done.at) > commit {
            let after = lines.iter().find(|line| !line.done && line.at > done.at);
            assert_eq!(after, None, "{key} was done at {done:?}, its worker died at {killed}");
        }
    }
}

fn text(history: &[Entry]) -> String {
    history.iter().map(|entry| String::from_utf8(entry.to_json()).unwrap()).collect()
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
    if undone.is_empty() {
        return;
    }
    counted.undone += undone.len();
    done.retain(|point| compensable.contains(point));
    done.reverse();
    assert_eq!(undone, done, "{run} was undone in another order than the reverse: {}", text(history));
}

/// All keys below a prefix.
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

/// Nothing is left in the indexes of what is unfinished: soon after the end, and by the sweeper's own word.
pub(crate) async fn nothing_is_left(store: &dyn Store, client: &Client, within: Duration) {
    let mut left = Vec::new();
    let pause = Duration::from_millis(100);
    for _ in 0..within.as_millis() / pause.as_millis() + 1 {
        left = [keys(store, "due/").await, keys(store, "live/").await, keys(store, "waiting/").await].concat();
        if left.is_empty() {
            break;
        }
        wigwag_store::Clock::sleep(&wigwag_store::System, pause).await;
    }
    assert!(left.is_empty(), "all runs have ended, and these are left: {left:#?}");
    let swept = client.sweep(true).await.unwrap();
    assert_eq!(swept.repaired(), 0, "{swept:?}");
}

/// A run `r` whose step `s` was begun at 1 s, done, and recorded; and what else the ledger says of it.
fn staged(further: Line) -> Evidence {
    use wigwag::core::{Data, StepCompleted};
    use wigwag::{Payload, Time};
    let at = Time::from_micros(1_000_000);
    let result = Data::Inline(Payload::null());
    let done = StepCompleted { point: "s".parse().unwrap(), at, result, patch: None, mark: false };
    let entry = Entry { seq: 1, by: "1.0".into(), at, events: vec![done.into()] };
    let line = |done| Line { at: 1_000_000, process: 1, done, key: "r:s".into() };
    Evidence {
        lines: [("r:s".to_owned(), vec![line(false), line(true), further])].into(),
        histories: [("r".to_owned(), vec![entry])].into(),
    }
}

fn a_second() -> Slack {
    Slack { clocks: Duration::from_secs(1), commit: Duration::from_secs(1) }
}

#[test]
#[should_panic(expected = "began again")]
fn a_step_that_begins_again_after_its_record_is_noticed() {
    let again = Line { at: 2_000_001, process: 2, done: false, key: "r:s".into() };
    staged(again).check(&[(1, 1_500_000)], a_second());
}

#[test]
#[should_panic(expected = "its worker died at")]
fn a_step_that_begins_again_although_its_worker_lived_on_is_noticed() {
    let again = Line { at: 1_900_000, process: 2, done: false, key: "r:s".into() };
    staged(again).check(&[(1, 2_100_000)], a_second());
}

#[test]
fn a_step_that_begins_again_because_its_worker_died_is_as_it_should_be() {
    let again = Line { at: 1_900_000, process: 2, done: false, key: "r:s".into() };
    assert_eq!(staged(again).check(&[(1, 1_500_000)], a_second()).again, 1);
}
