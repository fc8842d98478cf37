//! Arbitrary bytes in place of a stored form: rejected with a message, or read and written back unchanged.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use wigwag_core::{
    Chunk, Control, Data, Definition, Payload, Run, RunRef, Signal, chunk_to_json, read_chunk, read_entry, read_state,
    state_to_json,
};
use wigwag_fuzz::{Choices, Form, RUN, at, body, exercise, fuzz, golden, graph, of_form};
use wigwag_store::Layout;

/// Returns the run of a snapshot: one of the golden snapshots is of a task.
fn run_of(body: &[u8]) -> RunRef {
    let task = body.windows(9).any(|part| part == br#""id":"t1""#);
    if task { "task/t1".parse().unwrap() } else { RUN.parse().unwrap() }
}

/// Checks that every readable body of a form is written back unchanged.
fn reads(form: Form, body: &[u8]) {
    match form {
        Form::Entry => match read_entry(body) {
            Ok(Ok(entry)) => assert_eq!(read_entry(&entry.to_json()), Ok(Ok(entry))),
            Ok(Err(tombstone)) => assert_eq!(read_entry(&tombstone.to_json()), Ok(Err(tombstone))),
            Err(refusal) => assert!(refusal.to_string().starts_with("not a log entry: "), "{refusal}"),
        },
        Form::Snapshot => {
            if let Ok(run) = read_state(run_of(body), body) {
                assert_eq!(read_state(run_of(body), &state_to_json(&run, "by")), Ok(run));
            }
        }
        Form::Chunk => {
            if let Ok(chunk) = read_chunk(body) {
                assert_eq!(read_chunk(&chunk_to_json(&chunk)), Ok(chunk));
            }
        }
        Form::Control => {
            if let Ok(control) = Control::read(body) {
                assert_eq!(Control::read(&control.to_json()), Ok(control));
            }
        }
        Form::Signal => {
            if let Ok(signal) = Signal::read(body) {
                assert_eq!(Signal::read(&signal.to_json()), Ok(signal));
            }
        }
        Form::Definition => {
            if let Ok(definition) = serde_json::from_slice::<Definition>(body) {
                let again = serde_json::to_vec(&definition).unwrap();
                assert_eq!(serde_json::from_slice::<Definition>(&again).unwrap(), definition);
            }
        }
    }
}

#[test]
fn any_bytes_are_rejected_or_read() {
    fuzz!(4_000, |input: &[u8]| Form::ALL.into_iter().for_each(|form| reads(form, input)));
}

#[test]
fn damaged_forms_are_rejected_or_read() {
    let seeds: Vec<_> = Form::ALL.map(|form| (form, of_form(form))).into_iter().collect();
    fuzz!(10_000, |input: &[u8]| {
        let mut choices = Choices::new(input);
        let (form, seeds) = choices.pick(&seeds);
        reads(*form, &body(&mut choices, seeds));
    });
}

#[test]
fn any_readable_snapshot_can_be_queried_and_driven() {
    let snapshots = of_form(Form::Snapshot);
    let entries = of_form(Form::Entry);
    let chunks = of_form(Form::Chunk);
    let definitions: Vec<Definition> =
        of_form(Form::Definition).iter().map(|body| serde_json::from_slice(body).unwrap()).chain([graph()]).collect();
    fuzz!(3_000, |input: &[u8]| {
        let mut choices = Choices::new(input);
        let snapshot = body(&mut choices, &snapshots);
        let Ok(mut run) = read_state(run_of(&snapshot), &snapshot) else { return };
        let definition = choices.pick(&definitions).clone();
        exercise(&mut choices, &run, &definition);
        if let Ok(chunk) = read_chunk(&body(&mut choices, &chunks)) {
            unroll(&mut run, chunk);
            exercise(&mut choices, &run, &definition);
        }
        if let Ok(Ok(mut entry)) = read_entry(&body(&mut choices, &entries)) {
            // Entries are read by their number; use the next one.
            entry.seq = run.seq.saturating_add(1);
            // A rejected event hides the later events of its entry, so drop some of the first ones.
            let first = choices.below(entry.events.len().max(1));
            entry.events.drain(..first.min(entry.events.len()));
            if run.apply(&entry).is_ok() {
                exercise(&mut choices, &run, &definition);
            }
        }
    });
}

fn unroll(run: &mut Run, chunk: Chunk) {
    run.unroll(chunk);
    let _ = run.is_whole();
}

#[test]
fn foreign_definitions_can_be_queried() {
    let seeds = of_form(Form::Definition);
    let snapshots = of_form(Form::Snapshot);
    fuzz!(4_000, |input: &[u8]| {
        let mut choices = Choices::new(input);
        let Ok(definition) = serde_json::from_slice::<Definition>(&body(&mut choices, &seeds)) else { return };
        let snapshot = choices.pick(&snapshots);
        let run = read_state(run_of(snapshot), snapshot).unwrap();
        exercise(&mut choices, &run, &definition);
        for node in &definition.steps {
            let _ = node.retry.delay_after(choices.byte().into(), f64::from(choices.byte()) / 255.0);
        }
    });
}

#[test]
fn a_payload_is_json_through_and_through() {
    let seeds: Vec<Vec<u8>> = golden().into_iter().map(|(_, body)| body).collect();
    fuzz!(4_000, |input: &[u8]| {
        let mut choices = Choices::new(input);
        let bytes = body(&mut choices, &seeds);
        let Ok(payload) = Payload::parse(String::from_utf8_lossy(&bytes)) else { return };
        // A payload may be parsed at any later time.
        let _ = payload.value();
        let entry = format!("{{\"input\":{}}}", payload.text());
        let data = serde_json::from_str::<std::collections::BTreeMap<String, Data>>(&entry);
        if Data::fits(&payload) {
            assert_eq!(data.unwrap()["input"], Data::Inline(payload));
        }
    });
}

#[test]
fn the_layout_is_rejected_with_advice_or_read() {
    let seeds = vec![
        br#"{"layout":1,"shards":1}"#.to_vec(),
        br#"{"layout":1,"shards":4,"proof":{"create_if_absent":true,"update_if_version":true,"at":"2026-01-28T12:00:00.000000Z","races":"8 x 4"}}"#
            .to_vec(),
    ];
    fuzz!(4_000, |input: &[u8]| {
        let mut choices = Choices::new(input);
        match Layout::read(&body(&mut choices, &seeds)) {
            Ok(layout) => assert_eq!(layout.layout, 1),
            Err(error) => assert!(error.advice().is_some(), "{error}"),
        }
    });
}

#[test]
fn every_seed_is_readable() {
    for form in Form::ALL {
        assert!(!of_form(form).is_empty(), "{form:?}");
    }
    for snapshot in of_form(Form::Snapshot) {
        let run = read_state(run_of(&snapshot), &snapshot).unwrap();
        exercise(&mut Choices::new(&[7; 400]), &run, &graph());
    }
    assert!(at(1) > at(0));
}
