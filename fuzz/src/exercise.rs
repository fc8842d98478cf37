//! Calls every read and transition of a run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use wigwag_core::{
    Control, Definition, Entry, Frontier, Hint, Inboxes, Mode, Name, Node, Order, Path, Requests, Run, Seen, Signal,
    SignalSpec, Time, kind_of, look, state_to_json, suffix, version,
};

use crate::{Choices, at};

/// Returns a graph with every feature of graphs, of the workflow type of the golden runs.
///
/// # Panics
///
/// If the definition is invalid.
#[must_use]
pub fn graph() -> Definition {
    let path = |text: &str| text.parse::<Path>().expect("a plain path");
    let mut undoable = Node::step(path("a"));
    undoable.compensate = true;
    let mut waits = Node::signal(path("approve"), SignalSpec::new("go".parse().expect("a plain name")));
    waits.after = vec![path("a")];
    let mut last = Node::step(path("b"));
    last.after = vec![path("a"), path("approve")];
    let of = "order".parse().expect("a plain name");
    Definition::graph(of, vec![undoable, waits, last, Node::step(path("c"))]).expect("a graph")
}

/// Applies every operation of workers and clients to a run.
pub fn exercise(choices: &mut Choices<'_>, run: &Run, definition: &Definition) {
    let now = at(choices.below(100_000) as u64);
    let _ = (run.current_steps(), run.index_type(), run.has_anything_to_undo(), run.is_whole());
    let _ = Frontier::new(&graph(), run).ready(&graph()).count();
    let hint = hint_of(run, now);
    let _ = look(Some(run), &hint, now, Duration::from_millis(5), |_| None);
    let _ = (hint.successor(now), hint.generation());
    ask_of_signals(choices, run, definition, now);
    ask_of_versions(run, definition);
    for order in orders(choices, run, definition) {
        let control = Control { id: "c1".into(), created_at: now, by: None, order };
        let events = run.fold_control("x_c1", &control, definition, now);
        assert!(!events.is_empty(), "a control object always becomes an event");
        // Rejections must name their reason; a panic is a failure.
        let mut entry = Entry {
            seq: run.seq.saturating_add(1),
            by: "by".into(),
            at: now,
            events: Vec::new(),
            requests: Requests::default(),
        };
        let mut copy = run.clone();
        let _ = events.into_iter().try_for_each(|event| copy.stage(&mut entry, event));
    }
    let mut copy = run.clone();
    for chunk in copy.roll() {
        copy.unroll(chunk);
    }
    let _ = state_to_json(&copy, "by");
    let _ = copy.take();
}

fn hint_of(run: &Run, now: Time) -> Hint {
    let nonce = run.hints.first().cloned().unwrap_or_else(|| "w.1".into());
    Hint { shard: 0, due: now, kind: kind_of(&run.of), run: run.id().clone(), nonce }
}

fn orders(choices: &mut Choices<'_>, run: &Run, definition: &Definition) -> Vec<Order> {
    let paths: Vec<Path> = run.points.keys().chain(definition.steps.iter().map(|node| &node.name)).cloned().collect();
    let mut any = || paths.get(choices.below(paths.len().max(1))).cloned();
    let mapping: BTreeMap<Path, Option<Path>> = any().into_iter().map(|path| (path, any())).collect();
    let (definition_hash, expected_seq) = (definition.hash.clone(), run.seq);
    vec![
        Order::Cancel { reason: None },
        Order::Pause { reason: None },
        Order::Resume,
        Order::Restart { from: None, expected_seq },
        Order::Restart { from: any(), expected_seq },
        Order::Migrate { definition_hash, mapping, expected_seq },
        Order::Late { name: name("go"), signal: suffix(at(5), "late") },
    ]
}

fn name(text: &str) -> Name {
    text.parse().expect("a plain name")
}

fn ask_of_signals(choices: &mut Choices<'_>, run: &Run, definition: &Definition, now: Time) {
    let waits = run.waits_in_order();
    let names = waits.iter().map(|(_, _, wait)| wait.name.clone()).chain([name("go")]);
    let mut found = Inboxes { since: now, names: names.map(|name| (name, Seen::default())).collect() };
    for (name, seen) in &mut found.names {
        for number in 0..choices.below(4) {
            let mut source = wigwag_core::Source::default();
            source.by = choices.once_in(2).then(|| number.to_string());
            let payload = wigwag_core::Payload::null();
            let signal = Signal {
                id: number.to_string(),
                name: name.clone(),
                payload,
                created_at: now,
                source,
                only: None,
                point: None,
            };
            let place = suffix(at(choices.below(100) as u64), &signal.id);
            let _ = (run.fate_of(&place, &signal, Mode::Queue), run.fate_of(&place, &signal, Mode::Latest));
            let _ = (run.is_void(&signal), run.taker_of(&place));
            seen.suffixes.insert(place.clone());
            seen.signals.insert(place, Arc::new(signal));
        }
    }
    if let Some(decision) = run.decide(&found, |_| true, |_, _, _| true) {
        let _ = run.losers_to(decision.point());
    }
    for (path, _, wait) in waits {
        let took = found.names[&wait.name].suffixes.iter().take(1).cloned().collect::<Vec<_>>();
        let _ = (run.read_up_to(wait, &took, &found), run.mode_of(&wait.name, Some(definition)), run.losers_to(path));
    }
}

fn ask_of_versions(run: &Run, definition: &Definition) {
    let _ = (version::misfits(run, definition, &graph()), version::misfits(run, &graph(), definition));
    for path in run.points.keys().take(8) {
        let _ = version::downstream(definition, path);
        let _ = run.steps_to_restart(path, definition);
    }
}
