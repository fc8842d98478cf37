//! Short ways to write down definitions, events and runs.
#![allow(dead_code, reason = "each test file uses its own part of this")]

use std::time::Duration;

use wigwag_core::*;

/// A moment that many seconds after a fixed one.
pub(crate) fn at(seconds: u64) -> Time {
    Time::from_micros(1_769_601_600_000_000).after(Duration::from_secs(seconds))
}

pub(crate) fn path(text: &str) -> Path {
    text.parse().unwrap()
}

pub(crate) fn paths(text: &str) -> Vec<Path> {
    text.split_whitespace().map(path).collect()
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn data(text: &str) -> Data {
    Data::Inline(Payload::parse(text).unwrap())
}

pub(crate) fn fault(message: &str) -> Fault {
    Fault::new("StepFailed", message)
}

pub(crate) fn the_run() -> RunRef {
    "workflow/order-1".parse().unwrap()
}

/// A graph in one line: `a, b<a, ?s<a+b` is a step, one after it, and a signal after both.
pub(crate) fn nodes(text: &str) -> Vec<Node> {
    text.split(", ")
        .map(|step| {
            let (name, after) = step.split_once('<').unwrap_or((step, ""));
            let mut node = match name.strip_prefix('?') {
                Some(signal) => Node::signal(path(signal), SignalSpec::new(go())),
                None => Node::step(path(name)),
            };
            node.after = after.split('+').filter(|name| !name.is_empty()).map(path).collect();
            node
        })
        .collect()
}

pub(crate) fn graph(text: &str) -> Definition {
    Definition::graph("order".parse().unwrap(), nodes(text)).unwrap()
}

pub(crate) fn run_started() -> Event {
    let input = data(r#"{"item":"tea"}"#);
    let definition_hash = "sha256:old".into();
    let (not_before, parent, task) = (None, None, None);
    let of = "order".parse().unwrap();
    RunStarted { of, definition_hash, version: None, input, not_before, parent, task, hints: vec![] }.into()
}

pub(crate) fn claimed(owner: &str, until: Time) -> Event {
    RunClaimed { owner: owner.into(), peer: None, until, hints: vec![format!("hint of {owner}")] }.into()
}

pub(crate) fn parked() -> Event {
    RunParked { next_at: None, hints: vec!["hint of nobody".into()] }.into()
}

pub(crate) fn paused(why: PauseCause) -> Event {
    RunPaused { why, error: None, reason: None, control: None, refused: None, by: None }.into()
}

pub(crate) fn resumed(shift: Duration) -> Event {
    RunResumed { shift, control: None, refused: None, by: None }.into()
}

pub(crate) fn restarted() -> Event {
    RunRestarted { from: None, steps: vec![], control: "c".into(), refused: None, by: None }.into()
}

pub(crate) fn completed() -> Event {
    RunCompleted { result: data("null") }.into()
}

pub(crate) fn failed(message: &str) -> Event {
    RunFailed { error: fault(message) }.into()
}

pub(crate) fn cancelled() -> Event {
    RunCancelled { reason: None }.into()
}

pub(crate) fn begun(point: &str) -> Event {
    StepStarted { point: path(point), attempt: 1, compensate: false, task: None, deadline: None }.into()
}

/// A step that can be undone.
pub(crate) fn begun_undoable(point: &str) -> Event {
    StepStarted { point: path(point), attempt: 1, compensate: true, task: None, deadline: None }.into()
}

pub(crate) fn done(point: &str) -> Event {
    StepCompleted { point: path(point), at: at(0), result: data("1"), patch: None, mark: false }.into()
}

pub(crate) fn broken(point: &str, retry_at: Option<Time>) -> Event {
    StepFailed { point: path(point), attempt: 1, at: at(0), error: fault("no"), retry_at, held: false }.into()
}

pub(crate) fn skipped(point: &str) -> Event {
    StepSkipped { point: path(point) }.into()
}

pub(crate) fn asleep(point: &str, until: Time, relative: bool) -> Event {
    SleepStarted { point: path(point), until, relative }.into()
}

/// The signal that waits are for unless they say otherwise.
pub(crate) fn go() -> Name {
    name("go")
}

/// A wait without a deadline, in `queue` mode, for one sender.
pub(crate) fn wait_at(point: &str) -> SignalWaiting {
    let (deadline, relative, mode, quorum, race, schema) = (None, false, Mode::Queue, 1, None, None);
    let authenticated = false;
    let about = None;
    SignalWaiting {
        point: path(point),
        name: go(),
        deadline,
        relative,
        mode,
        quorum,
        authenticated,
        race,
        schema,
        about,
    }
}

pub(crate) fn waiting(point: &str, deadline: Option<Time>, relative: bool) -> Event {
    SignalWaiting { deadline, relative, ..wait_at(point) }.into()
}

/// The wait at that point took a signal that no other takes.
pub(crate) fn received(point: &str) -> Event {
    received_one(point, &suffix(at(0), point))
}

pub(crate) fn received_one(point: &str, signal: &str) -> Event {
    let signals = vec![Taken { signal: signal.into(), by: None }];
    let (cursor, floor) = (signal.into(), String::new());
    SignalReceived {
        point: path(point),
        name: go(),
        signals,
        at: at(0),
        payload: data("{}"),
        patch: None,
        cursor,
        floor,
    }
    .into()
}

pub(crate) fn timed_out(point: &str, error: Option<Fault>) -> Event {
    SignalTimeout { point: path(point), at: at(0), error, patch: None }.into()
}

pub(crate) fn closed(point: &str, why: Closing) -> Event {
    SignalClosed { point: path(point), why, at: at(0) }.into()
}

/// The beginning of undoing `point`, because the run fails.
pub(crate) fn undoing(point: &str) -> Event {
    CompensationStarted { point: path(point), attempt: 1, cause: Some(Ending::Failed(fault("why"))) }.into()
}

pub(crate) fn undone(point: &str) -> Event {
    CompensationCompleted { point: path(point) }.into()
}

pub(crate) fn not_undone(point: &str, retry_at: Option<Time>) -> Event {
    CompensationFailed { point: path(point), attempt: 1, error: fault("stuck"), retry_at }.into()
}

/// The entry after `seq`, one second after it.
pub(crate) fn entry(seq: u64, events: Vec<Event>) -> Entry {
    Entry { seq, by: format!("by-{seq}"), at: at(seq), events, requests: Requests::default() }
}

/// A run with one entry for each group of events; entry `n` is made at second `n`.
pub(crate) fn run_of(entries: Vec<Vec<Event>>) -> Run {
    let mut entries = entries.into_iter().zip(1..).map(|(events, seq)| entry(seq, events));
    let mut run = Run::begin(the_run(), &entries.next().unwrap()).unwrap();
    for next in entries {
        run.apply(&next).unwrap();
    }
    run
}

/// Adds an entry with these events.
pub(crate) fn add(run: &mut Run, events: Vec<Event>) -> Result<(), Refusal> {
    let next = entry(run.seq + 1, events);
    run.apply(&next)
}

/// A claimed run with points as written: `a=done b=running c=retrying d=failed e=skipped s=waiting t=received`, each
/// in a separate entry.
pub(crate) fn run_with(points: &str) -> Run {
    let mut run = run_of(vec![vec![run_started(), claimed("w1", at(1_000))]]);
    for word in points.split_whitespace() {
        let (point, state) = word.split_once('=').unwrap();
        let events = match state {
            "done" => vec![begun(point), done(point)],
            "running" => vec![begun(point)],
            "retrying" => vec![begun(point), broken(point, Some(at(90)))],
            "failed" => vec![begun(point), broken(point, None)],
            "skipped" => vec![skipped(point)],
            "waiting" => vec![waiting(point, None, false)],
            "received" => vec![waiting(point, None, false), received(point)],
            other => panic!("no such state: {other}"),
        };
        add(&mut run, events).unwrap();
    }
    run
}
