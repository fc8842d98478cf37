//! The guarantees that can only be checked from outside: which requests were acknowledged, to which client, in which order. The guarantees that the store
//! alone can prove are checked by [`wigwag_core::audit`] and [`Client::audit`], which `wigwag doctor` uses too.

mod clients;
mod frontier;
mod order;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use wigwag::{AuditOptions, Client, Fate, Status};
use wigwag_core::audit::{Breach, Promise, Told};
use wigwag_core::{Entry, Event, Key, Mode, PauseCause, PointKind, Run, RunRef, read_entry, stamp_of};
use wigwag_store::{Memory, Store as _};

use crate::code::{FORM, REWRITTEN};
use crate::watch::{keys_below, objects_below};
use crate::world::{Known, Sent};

pub use clients::lists_are_complete;

/// Checks every guarantee. Returns the violations.
pub async fn all(memory: &Memory, client: &Client, known: &Known) -> Vec<Breach> {
    let mut broken = known.wrong.clone();
    match client.audit(&AuditOptions::at_rest(), |_| {}).await {
        Ok(audit) => {
            broken.extend(audit.broken.into_iter().filter(|breach| !is_unacknowledged_control(breach, known)));
            // Where batches are not atomic, a crash may leave a superfluous index entry for the sweeper; otherwise there must be none.
            let indexes = |breach: &Breach| memory.traits().atomic && breach.promise == Promise::IndexesFollow;
            broken.extend(audit.untidy.into_iter().filter(indexes));
        }
        Err(error) => broken.push(Breach::new(Promise::RecordedStays, format!("the audit failed: {error}"))),
    }
    match client.sweep(true).await {
        Ok(swept) if swept.lost_runs + swept.lost_waits == 0 => {}
        swept => broken.push(Breach::new(Promise::WokenUp, format!("the sweeper finds something: {swept:?}"))),
    }
    let runs = read_all(memory).await;
    let mut say = |promise, said: Vec<String>| broken.extend(said.into_iter().map(|what| Breach::new(promise, what)));
    let views = views(client, &runs).await;
    say(Promise::AcknowledgedIsKept, an_acknowledged_signal_is_never_gone(&runs, &views, known));
    say(Promise::AcknowledgedIsKept, what_was_consumed_was_heard(memory, &runs).await);
    for told in &runs {
        say(Promise::OverTakesNothing, a_signal_in_time_beats_the_timeout(told, known));
    }
    say(Promise::SameKeySameOutcome, the_same_key_is_the_same_signal(known));
    // A sender whose clock is worse than it believes keeps no order; its signals must not be lost.
    if !known.wild_clocks {
        say(Promise::SendersInOrder, order::senders_are_heard_in_order(&runs, known));
        say(Promise::SendersInOrder, order::senders_that_wait_for_each_other_are_heard_in_order(&runs, known));
        say(Promise::SendersInOrder, order::waits_take_the_right_signal(&runs, known));
    }
    say(Promise::OneRunPerId, one_run_per_id(&runs, known));
    say(Promise::RecordedStays, code_that_did_not_change_fits(&runs));
    say(Promise::RecordedStays, code_begins_as_often_as_recorded(&runs, known));
    say(Promise::WokenUp, whoever_can_go_on_does(&runs, &views, known));
    say(Promise::WokenUp, frontier::graphs_go_on(memory, &runs).await);
    say(Promise::WokenUp, frontier::nothing_is_open_after_its_time(memory, &runs).await);
    say(Promise::WokenUp, frontier::wake_ups_are_followed(memory, &runs).await);
    say(Promise::AcknowledgedIsKept, frontier::acknowledged_controls_are_recorded(memory, &runs, known).await);
    broken
}

/// Whether a control object without an acknowledgement waits for the next check of its run. It may have
/// been written long after its sender gave up.
pub(crate) fn is_unacknowledged_control(breach: &Breach, known: &Known) -> bool {
    let control = breach.what.split_once("has a control object `").and_then(|(_, rest)| rest.split('`').next());
    control.is_some_and(|control| !known.controls.iter().any(|(_, acknowledged, _)| control.contains(acknowledged)))
}

/// Number of runs that stay paused because of a failure.
pub async fn paused_by_failure(memory: &Memory) -> usize {
    let runs = read_all(memory).await;
    runs.iter().filter(|told| told.run.pause.as_ref().is_some_and(|pause| pause.why == PauseCause::Failure)).count()
}

/// Keys of wake-ups whose run has ended, or is not there.
pub async fn wake_ups_of_ended_runs(memory: &Memory) -> Vec<String> {
    let runs = read_all(memory).await;
    let unfinished = runs.iter().filter(|told| !told.run.status.is_final()).map(|told| &told.run.run.id);
    let unfinished: BTreeSet<_> = unfinished.collect();
    let is_left = |key: &String| matches!(key.parse(), Ok(Key::Due(hint)) if !unfinished.contains(&hint.run));
    keys_below(memory, "due/").await.into_iter().filter(is_left).collect()
}

/// Ids of the unfinished runs of a type that wait for a signal.
pub async fn waiting_for(memory: &Memory, of: &str, name: &str) -> Vec<String> {
    let runs = read_all(memory).await;
    let mine = runs.iter().filter(|told| told.run.of.as_str() == of && told.run.pause.is_none());
    let waits = mine.filter(|told| told.run.waits_in_order().iter().any(|(_, _, wait)| wait.name.as_str() == name));
    waits.map(|told| told.run.run.id.to_string()).collect()
}

/// Formats the logs of all runs for inspection.
pub async fn logs(memory: &Memory) -> String {
    let objects = objects_below(memory, "workflow/").await;
    let logs = objects.into_iter().filter(|(key, _)| key.contains("/log/"));
    logs.map(|(key, body)| format!("{key} {}", String::from_utf8_lossy(&body))).collect()
}

/// Reads and folds all readable logs; the audit reports the others.
async fn read_all(memory: &Memory) -> Vec<Told> {
    let mut logs: BTreeMap<RunRef, Vec<Entry>> = BTreeMap::new();
    for prefix in ["workflow/", "task/"] {
        for key in keys_below(memory, prefix).await {
            let Ok(Key::Entry { run, .. }) = key.parse::<Key>() else { continue };
            let object = memory.get(&key).await.ok().flatten();
            let entry = object.and_then(|object| read_entry(&object.body).ok()?.ok());
            logs.entry(run).or_default().extend(entry);
        }
    }
    logs.into_iter().filter_map(|(run, log)| Told::fold(&run, log).ok()).collect()
}

/// Outcomes of the signals of each run.
type Views = BTreeMap<String, Result<Vec<wigwag::SignalView>, String>>;

async fn views(client: &Client, runs: &[Told]) -> Views {
    let mut views = Views::new();
    for told in runs.iter().filter(|told| told.run.task.is_none()) {
        let Ok(handle) = client.run(told.run.run.id.as_str()) else { continue };
        let signals = handle.signals(None).await.map_err(|error| error.to_string());
        views.insert(told.run.run.id.to_string(), signals);
    }
    views
}

fn events(told: &Told) -> impl Iterator<Item = (&Entry, &Event)> {
    told.log.iter().flat_map(|entry| entry.events.iter().map(move |event| (entry, event)))
}

/// A wait consumes a signal that was stamped before its deadline and acknowledged before its timeout was recorded.
fn a_signal_in_time_beats_the_timeout(told: &Told, known: &Known) -> Vec<String> {
    let mut wrong = Vec::new();
    let id = told.run.run.id.as_str();
    let mine: Vec<&Sent> = known.sent.iter().filter(|sent| sent.run == id && sent.suffix.is_some()).collect();
    let Some(mut folded) = told.log.first().and_then(|first| Run::begin(told.run.run.clone(), first).ok()) else {
        return wrong;
    };
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for entry in &told.log[1..] {
        let before = folded.clone();
        if folded.apply(entry).is_err() {
            return wrong;
        }
        let mut cursors: BTreeMap<&str, &str> = BTreeMap::new();
        for event in &entry.events {
            if let Event::SignalReceived(event) = event {
                taken.extend(event.signals.iter().map(|taken| taken.signal.clone()));
            }
        }
        for event in &entry.events {
            if let Event::SignalReceived(event) = event {
                // A `latest` wait that the same entry closed may have skipped the rest.
                cursors.insert(event.name.as_str(), &event.cursor);
            }
            let Event::SignalTimeout(event) = event else { continue };
            let open = before.points.get(&event.point);
            let Some((wait, until)) = open.and_then(|point| Some((point.wait.as_deref()?, point.until?))) else {
                continue;
            };
            // In a graph, code may fail on a signal.
            let is_function = told.run.version.is_some();
            let plain = wait.quorum <= 1 && wait.mode == Mode::Queue && is_function;
            let cursor = before.signals.get(&wait.name).map(|inbox| inbox.cursor.as_str()).unwrap_or_default();
            let cursor = cursors.get(wait.name.as_str()).copied().unwrap_or(cursor);
            let missed = mine.iter().find(|sent| {
                let suffix = sent.suffix.as_deref().unwrap_or_default();
                let in_time = stamp_of(suffix).is_some_and(|stamp| stamp <= until);
                let known_before = sent.at.is_some_and(|at| at < until);
                sent.name == wait.name.as_str()
                    && !sent.strict
                    && !sent.addressed
                    && (sent.fits || wait.schema.is_none())
                    && in_time
                    && known_before
                    && !taken.contains(suffix)
                    && suffix > cursor
            });
            if let Some(missed) = missed.filter(|_| plain) {
                wrong.push(format!("`{}` of `{id}` timed out although this was there: {missed:?}", event.point));
            }
        }
    }
    wrong
}

fn an_acknowledged_signal_is_never_gone(runs: &[Told], views: &Views, known: &Known) -> Vec<String> {
    let mut wrong = Vec::new();
    for told in runs.iter().filter(|told| told.run.task.is_none()) {
        let id = told.run.run.id.as_str();
        let signals = match views.get(id) {
            Some(Ok(signals)) => signals,
            other => {
                wrong.push(format!("the signals of `{id}` cannot be read: {other:?}"));
                continue;
            }
        };
        let acknowledged = known.sent.iter().filter(|sent| sent.run == id);
        for (sent, suffix) in acknowledged.filter_map(|sent| Some((sent, sent.suffix.as_ref()?))) {
            match signals.iter().find(|signal| signal.suffix == *suffix).map(|signal| &signal.fate) {
                None => wrong.push(format!("an acknowledged signal is gone: {sent:?}")),
                Some(Fate::Unacknowledged) => wrong.push(format!("no scan found an acknowledged signal: {sent:?}")),
                Some(_) => {}
            }
        }
    }
    wrong
}

/// The result of a function names every signal that it consumed once, so the code received each consumed signal.
async fn what_was_consumed_was_heard(memory: &Memory, runs: &[Told]) -> Vec<String> {
    let mut wrong = Vec::new();
    for told in runs.iter().filter(|told| told.run.status == Status::Completed && told.run.of.as_str() == "script") {
        // Only inline results are checked here; other checks read large results.
        let Some(result) = told.run.result.as_ref().and_then(|result| result.inline()) else { continue };
        let mut heard: Vec<(u64, u64)> = Vec::new();
        gather(&serde_json::from_str(result.text()).unwrap_or_default(), &mut heard);
        let mut consumed: Vec<(u64, u64)> = Vec::new();
        let mut plain = told.run.restarts == 0;
        for (_, event) in events(told) {
            let Event::SignalReceived(event) = event else { continue };
            // Only the winner of a race is in the result, and several waits only if all of them completed.
            plain &= told.run.points.get(&event.point).is_some_and(|point| point.wait.is_some());
            for taken in &event.signals {
                let name = told.run.points.get(&event.point).and_then(|point| Some(point.wait.as_ref()?.name.clone()));
                let Some(name) = name else { continue };
                let key = Key::Signal { run: told.run.run.clone(), name, suffix: taken.signal.clone() }.to_string();
                let object = memory.get(&key).await.ok().flatten();
                let payload = object.and_then(|object| serde_json::from_slice::<Value>(&object.body).ok());
                gather(&payload.unwrap_or_default(), &mut consumed);
            }
        }
        heard.sort_unstable();
        consumed.sort_unstable();
        if plain && heard != consumed {
            let id = &told.run.run.id;
            wrong.push(format!("`{id}` consumed {consumed:?}, but its code received {heard:?}"));
        }
    }
    wrong
}

/// Collects all payloads of signals in a value.
fn gather(value: &Value, into: &mut Vec<(u64, u64)>) {
    match value {
        Value::Object(map) => {
            if let (Some(sender), Some(number)) = (map.get("sender"), map.get("number")) {
                into.extend(sender.as_u64().zip(number.as_u64()));
            }
            map.values().for_each(|value| gather(value, into));
        }
        Value::Array(values) => values.iter().for_each(|value| gather(value, into)),
        _ => {}
    }
}

fn the_same_key_is_the_same_signal(known: &Known) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut seen: BTreeMap<(&str, &str, &str), &str> = BTreeMap::new();
    for sent in &known.sent {
        if let (Some(key), Some(suffix)) = (&sent.key, &sent.suffix) {
            let first = seen.entry((&sent.run, &sent.name, key)).or_insert(suffix);
            if first != suffix {
                wrong.push(format!("key `{key}` gave `{first}` and `{suffix}`"));
            }
        }
    }
    wrong
}

fn one_run_per_id(runs: &[Told], known: &Known) -> Vec<String> {
    let mut wrong = Vec::new();
    for (id, (of, input)) in &known.started {
        let mut there = runs.iter().filter(|told| told.run.run.id.as_str() == id && told.run.task.is_none());
        let Some(told) = there.next() else {
            wrong.push(format!("the start of `{id}` was acknowledged, and it is not there"));
            continue;
        };
        let given = told.run.input.inline().map(|input| serde_json::from_str(input.text()).unwrap_or_default());
        if told.run.of.as_str() != of || given.is_some_and(|given: Value| given != *input) {
            wrong.push(format!("`{id}` was started as `{of}` with {input}, and is another"));
        }
    }
    wrong
}

/// A function that did not change is never paused because of a mismatch with its log.
fn code_that_did_not_change_fits(runs: &[Told]) -> Vec<String> {
    let paused = events_of(runs).filter_map(|(told, event)| match event {
        Event::RunPaused(event) if event.why == PauseCause::Version && told.run.of.as_str() == "script" => {
            Some(format!("`{}` was paused: its code does not fit its log", told.run.run.id))
        }
        _ => None,
    });
    paused.collect()
}

fn events_of(runs: &[Told]) -> impl Iterator<Item = (&Told, &Event)> {
    runs.iter().flat_map(|told| events(told).map(move |(_, event)| (told, event)))
}

/// Without faults, the code of a step starts as often as the log records a start, and `on_receive` is called as often
/// as the log records that a signal was consumed or rejected.
fn code_begins_as_often_as_recorded(runs: &[Told], known: &Known) -> Vec<String> {
    let mut wrong = Vec::new();
    for told in runs.iter().filter(|told| told.run.task.is_none()) {
        let id = told.run.run.id.as_str();
        let takeovers = takeovers(told);
        if takeovers > TAKEOVERS_MAX && !(known.begun.is_empty() && known.received.is_empty()) {
            wrong.push(format!("`{id}` was taken over {takeovers} times, and nothing failed"));
        }
        let count = |is_it: &dyn Fn(&Event) -> bool| events(told).filter(|(_, event)| is_it(event)).count();
        for ((_, step), begun) in
            known.begun.range((id.to_owned(), String::new())..).take_while(|((run, _), _)| run == id)
        {
            let started = count(&|event| matches!(event, Event::StepStarted(event) if event.point.as_str() == step));
            if *begun as usize > started + takeovers {
                wrong.push(format!("the code of `{step}` in `{id}` began {begun} times, and {started} are recorded"));
            }
        }
        let mut calls: BTreeMap<&str, usize> = BTreeMap::new();
        for ((run, step, signal), times) in &known.received {
            // For a quorum the code gets all payloads together, which do not name their senders.
            if run == id && !signal.contains("null") {
                *calls.entry(step).or_default() += *times as usize;
            }
        }
        for (step, calls) in calls {
            let recorded = count(&|event| match event {
                Event::SignalReceived(event) => event.point.as_str() == step,
                Event::SignalRefused(event) => event.point.as_str() == step,
                Event::StepFailed(event) => event.point.as_str() == step,
                Event::RunFailed(_) | Event::CompensationStarted(_) => true,
                _ => false,
            });
            if calls > recorded + takeovers {
                wrong.push(format!(
                    "`on_receive` of `{step}` in `{id}` was called {calls} times for {recorded} signals"
                ));
            }
        }
    }
    wrong
}

/// Maximum number of takeovers of a run without faults: two workers may race for a lease that is about to end.
const TAKEOVERS_MAX: usize = 3;

/// Number of times that a worker claimed a run that another worker had claimed and not released.
fn takeovers(told: &Told) -> usize {
    let mut owner: Option<&str> = None;
    let mut count = 0;
    for (_, event) in events(told) {
        match event {
            Event::RunClaimed(event) => {
                count += usize::from(owner.is_some_and(|owner| owner != event.owner));
                owner = Some(&event.owner);
            }
            Event::RunParked(_) | Event::RunCompleted(_) | Event::RunFailed(_) | Event::RunCancelled(_) => owner = None,
            _ => {}
        }
    }
    count
}

/// Liveness: after the faults, every run has ended or waits for input that was never sent.
fn whoever_can_go_on_does(runs: &[Told], views: &Views, known: &Known) -> Vec<String> {
    let mut wrong = Vec::new();
    // A signal without an acknowledgement may have no wake-up.
    let acknowledged: BTreeSet<&str> = known.sent.iter().filter_map(|sent| sent.suffix.as_deref()).collect();
    for told in runs.iter().filter(|told| !told.run.status.is_final()) {
        let id = told.run.run.id.as_str();
        let waits = told.run.waits_in_order();
        let children = told.run.open.iter().any(|path| {
            told.run.points.get(path).is_some_and(|point| point.kind == PointKind::Child || point.children.is_some())
        });
        let waits_for_child = children
            && runs.iter().any(|child| {
                !child.run.status.is_final()
                    && child.run.parent.as_ref().is_some_and(|parent| parent.run == told.run.run)
            });
        // Operators of paused runs give up after some failures, and a rewritten function may no longer match.
        let rests = told.run.pause.as_ref().is_some_and(|pause| match pause.why {
            PauseCause::ByHand | PauseCause::Failure => true,
            PauseCause::Version => told.run.of.as_str() == REWRITTEN,
        });
        let is_ending = told.run.cancel.is_some() || told.run.chain.is_some();
        if (rests && !is_ending) || waits_for_child {
            continue;
        }
        if waits.is_empty() || told.run.status == Status::Paused || is_ending {
            wrong.push(format!("`{id}` is `{}` and nothing happens", told.run.status));
            continue;
        }
        let signals = views.get(id).and_then(|signals| signals.as_deref().ok()).unwrap_or_default();
        for (path, point, wait) in waits {
            if point.until.is_some() {
                wrong.push(format!("`{path}` of `{id}` is open long after its time"));
            }
            let there = signals.iter().filter(|signal| {
                let meant = signal.meant_for.as_ref().is_none_or(|meant| meant == path);
                let told = acknowledged.contains(signal.suffix.as_str());
                let fits = wait.schema.is_none() || signal.payload.text().contains("\"fit\"");
                signal.name == wait.name
                    && signal.fate == Fate::Unconsumed
                    && meant
                    && told
                    && fits
                    && wait.rejects_sender(&signal.source).is_none()
            });
            // Signals to a changed form are tested separately; the schemas of other graphs are in their definitions.
            let there = there.filter(|signal| match told.run.of.as_str() {
                FORM => false,
                _ => told.run.version.is_some() || signal.misfit.is_none(),
            });
            let senders: BTreeSet<Option<&String>> = there.map(|signal| signal.source.by.as_ref()).collect();
            if senders.len() >= wait.quorum.max(1) as usize {
                wrong.push(format!("`{path}` of `{id}` waits for `{}`, which is there", wait.name));
            }
        }
    }
    wrong
}
