//! Logs of events in any order: an entry is rejected with a message, or the resulting run is consistent.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use wigwag_core::{
    Entry, Event, Path, PointKind, PointStatus, Requests, Run, RunRef, Status, chunk_to_json, read_chunk, read_entry,
    read_state, state_to_json, suffix,
};
use wigwag_fuzz::{Choices, Form, RUN, at, exercise, fuzz, graph, of_form};
use wigwag_store::{Clock as _, System};

const POINTS: [&str; 8] = ["a", "b", "c", "approve", "a/x", "a#2", "b/y", "a/.delay"];

/// Returns one stored event of each kind.
fn templates() -> Vec<Value> {
    let entries = of_form(Form::Entry);
    let entry = entries.iter().find_map(|body| serde_json::from_slice::<Value>(body).ok()?.get("events").cloned());
    entry.unwrap().as_array().unwrap().clone()
}

/// Returns an event of any kind at one of a few steps.
fn event(choices: &mut Choices<'_>, templates: &[Value], run: &Run) -> Option<Event> {
    let undoing = run.chain.as_ref().and_then(|chain| chain.current.as_ref());
    let mut event = choices.pick(templates).clone();
    let fields: Vec<String> = event.as_object()?.keys().cloned().collect();
    for field in fields {
        let any = match field.as_str() {
            // Most events concern the same step, so that they build on each other.
            "point" if choices.once_in(2) => undoing.map_or(json!("a"), |undoing| json!(undoing.point)),
            "point" => json!(choices.pick(&POINTS)),
            "from" | "race" if choices.once_in(2) => json!(choices.pick(&POINTS)),
            "dropped" | "skipped" => json!([choices.pick(&POINTS)]),
            "renamed" => json!({ *choices.pick(&POINTS): choices.pick(&POINTS) }),
            "name" => json!(choices.pick(&["go", "stop"])),
            "attempt" => json!(1 + choices.below(3)),
            "quorum" => json!(choices.below(3)),
            "signals" => json!([{ "signal": any_suffix(choices) }]),
            "signal" | "cursor" | "floor" => json!(any_suffix(choices)),
            "control" => json!(choices.pick(&["c1", "c2"])),
            "at" | "until" | "deadline" | "next_at" | "retry_at" => json!(at(choices.below(50) as u64).to_string()),
            "children" => choices
                .pick(&[json!({"numbered": {"count": 2}}), json!({"one": "task/x"}), json!({"tasks": []})])
                .clone(),
            // Optional fields are often absent.
            "refused" | "error" | "patch" if choices.once_in(2) => Value::Null,
            _ => continue,
        };
        event[&field] = any;
        if event[&field].is_null() {
            event.as_object_mut()?.remove(&field);
        }
    }
    serde_json::from_str(&event.to_string()).ok()
}

fn any_suffix(choices: &mut Choices<'_>) -> String {
    let id = *choices.pick(&["0a", "0b"]);
    suffix(at(choices.below(20) as u64), id)
}

/// Invariants of a run after each entry, when all its steps are in memory.
fn holds(run: &Run) {
    let settled = |path: &Path| run.points[path].status.is_settled();
    let open: BTreeSet<Path> = run.points.keys().filter(|path| !settled(path)).cloned().collect();
    assert_eq!(run.open, open, "open steps are the unsettled ones");
    let last = run.rolled.last().map_or(0, |rolled| rolled.to);
    let mut unrolled: Vec<&Path> =
        run.points.iter().filter(|(path, point)| settled(path) && point.seq > last).map(|(path, _)| path).collect();
    unrolled.sort_by_key(|path| (run.points[*path].seq, run.points[*path].place));
    assert_eq!(run.unrolled.iter().collect::<Vec<_>>(), unrolled, "settled steps are unrolled or rolled, in order");
    assert!(run.is_whole());
    assert!(!(run.parked && run.lease.is_some()), "a parked run has no owner");
    if run.status.is_final() {
        assert!(run.lease.is_none() && !run.parked && run.next_at.is_none(), "an ended run has no owner");
    }
    assert_eq!(run.pause.is_some(), run.status == Status::Paused);
    assert_eq!(run.result.is_some(), run.status == Status::Completed);
    assert!(run.status != Status::Failed || run.error.is_some(), "a failure has a reason");
    assert!(run.status != Status::Compensating || run.chain.is_some());
    for point in run.points.values() {
        assert!(point.seq <= run.seq && point.started_at.is_some());
        assert_eq!(point.ended_at.is_some(), point.status.is_settled());
        assert_eq!(point.wait.is_some(), point.kind == PointKind::Wait);
        assert!(point.status != PointStatus::Completed || point.error.is_none());
    }
    for inbox in run.signals.values() {
        assert!(inbox.taken.iter().all(|signal| *signal > inbox.floor), "consumed signals below the floor are dropped");
    }
}

fn the_run() -> RunRef {
    RUN.parse().unwrap()
}

fn start() -> Run {
    let started = r#"{"type":"run.started","of":"order","definition_hash":"sha256:old","input":{"item":"tea"}}"#;
    let event = serde_json::from_str(started).unwrap();
    Run::begin(
        the_run(),
        &Entry { seq: 1, by: "by".into(), at: at(1), events: vec![event], requests: Requests::default() },
    )
    .unwrap()
}

/// Applies an entry in all possible ways, which must agree.
fn applied(run: &Run, entry: &Entry) -> Option<Run> {
    let mut applied = run.clone();
    let mut staged = run.clone();
    let mut made = Entry { events: Vec::new(), requests: Requests::default(), ..entry.clone() };
    let outcome = applied.apply(entry);
    let refused = entry.events.iter().find_map(|event| staged.stage(&mut made, event.clone()).err());
    staged.stage_requests(&mut made, entry.requests);
    assert_eq!(outcome.is_err(), refused.is_some(), "staging is applying: {outcome:?} {refused:?}");
    outcome.ok()?;
    assert_eq!(applied, staged);
    let once = applied.clone();
    applied.apply(entry).unwrap();
    assert_eq!(applied, once, "an entry that was folded before changes nothing");
    assert_eq!(read_entry(&entry.to_json()), Ok(Ok(entry.clone())));
    Some(applied)
}

#[test]
fn any_log_is_rejected_or_consistent() {
    let templates = templates();
    let definition = graph();
    fuzz!(800, |input: &[u8]| {
        let mut choices = Choices::new(input);
        let mut run = start();
        let mut chunks: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        while !choices.is_empty() {
            let events: Vec<_> = (0..=choices.below(3)).filter_map(|_| event(&mut choices, &templates, &run)).collect();
            if events.is_empty() {
                continue;
            }
            let puts = if choices.once_in(4) { u64::MAX } else { choices.below(9) as u64 };
            let requests = Requests { puts, ..Requests::default() };
            let entry = Entry { seq: run.seq + 1, by: "by".into(), at: at(run.seq + 1), events, requests };
            let Some(next) = applied(&run, &entry) else { continue };
            run = next;
            holds(&run);
            if choices.once_in(8) {
                chunks.extend(run.roll().iter().map(|chunk| (chunk.range.from, chunk_to_json(chunk))));
            }
            let mut read = read_state(the_run(), &state_to_json(&run, "by")).unwrap();
            for rolled in read.rolled.clone() {
                read.unroll(read_chunk(&chunks[&rolled.from]).unwrap());
            }
            assert_eq!(read, run, "a snapshot and its chunks are the run");
        }
        exercise(&mut Choices::new(input), &run, &definition);
    });
}

#[test]
fn an_event_that_changes_many_steps_takes_linear_time() {
    let mut run = start();
    let mut entry = Entry { seq: 2, by: "by".into(), at: at(2), events: Vec::new(), requests: Requests::default() };
    let points: Vec<Path> = (0..30_000).map(|number| format!("p/{number}").parse().unwrap()).collect();
    for point in &points {
        let skipped = json!({"type": "step.skipped", "point": point});
        run.stage(&mut entry, serde_json::from_str(&skipped.to_string()).unwrap()).unwrap();
    }
    let renamed: BTreeMap<Path, Path> =
        points.iter().map(|point| (point.clone(), point.as_str().replace('p', "q").parse().unwrap())).collect();
    let migrated = json!({"type": "run.migrated", "definition_hash": "new", "renamed": renamed, "skipped": []});
    let dropped: Vec<&Path> = renamed.values().collect();
    let restarted = json!({"type": "run.restarted", "from": "q/0", "steps": dropped, "control": "c1"});
    let events = [migrated, restarted].map(|event| serde_json::from_str(&event.to_string()).unwrap()).to_vec();
    let began = System.boot();
    run.apply(&Entry { seq: 3, by: "by".into(), at: at(3), events, requests: Requests::default() }).unwrap();
    assert!(System.boot() - began < Duration::from_secs(3), "it took {:?}", System.boot() - began);
    assert!(run.points.is_empty() && run.unrolled.is_empty());
}

#[test]
fn every_kind_of_event_can_happen() {
    let templates = templates();
    let mut seen = BTreeSet::new();
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let bytes: Vec<u8> = (0..1_000).map(|_| random.u8(..)).collect();
        let mut choices = Choices::new(&bytes);
        let mut run = start();
        while !choices.is_empty() {
            let Some(event) = event(&mut choices, &templates, &run) else { continue };
            let name = event.name();
            let entry = Entry {
                seq: run.seq + 1,
                by: "by".into(),
                at: at(run.seq),
                events: vec![event],
                requests: Requests::default(),
            };
            if let Some(next) = applied(&run, &entry) {
                run = next;
                seen.insert(name);
            }
        }
    }
    let all: BTreeSet<&str> = templates.iter().filter_map(|event| event["type"].as_str()).collect();
    let missing: Vec<_> = all.iter().filter(|name| !seen.contains(*name) && **name != "run.started").collect();
    assert!(missing.is_empty(), "these never happen: {missing:?}");
}
