//! Control requests to a run, and the order of compensations.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::*;
use wigwag_core::*;

fn control(order: Order) -> Control {
    Control { id: "c1".into(), created_at: at(0), by: None, order }
}

/// What a control object becomes at second 50.
fn folded(run: &Run, order: Order, definition: &Definition) -> Vec<Event> {
    run.fold_control("c1", &control(order), definition, at(50))
}

fn cancel() -> Order {
    Order::Cancel { reason: Some("enough".into()) }
}

fn pause() -> Order {
    Order::Pause { reason: Some("lunch".into()) }
}

fn restart(from: Option<&str>, expected_seq: u64) -> Order {
    Order::Restart { from: from.map(path), expected_seq }
}

fn migrate(hash: &str, expected_seq: u64) -> Order {
    Order::Migrate { definition_hash: hash.into(), mapping: BTreeMap::new(), expected_seq }
}

fn late(signal: &str) -> Order {
    Order::Late { name: go(), signal: suffix(at(0), signal) }
}

/// Why an event had no effect.
fn refused(event: &Event) -> Option<&str> {
    match event {
        Event::RunCancelRequested(event) => event.refused.as_deref(),
        Event::RunPaused(event) => event.refused.as_deref(),
        Event::RunResumed(event) => event.refused.as_deref(),
        Event::RunRestarted(event) => event.refused.as_deref(),
        Event::RunMigrated(event) => event.refused.as_deref(),
        Event::SignalLate(event) => event.refused.as_deref(),
        other => panic!("not of a control object: {other:?}"),
    }
}

fn after(mut run: Run, events: Vec<Event>) -> Run {
    add(&mut run, events).unwrap();
    run
}

#[test]
fn an_order_has_its_effect_or_says_why_not() {
    let definition = graph("a, b<a");
    let running = run_with("a=running");
    let ask = |order| folded(&running, order, &definition);
    let cancelling = after(running.clone(), ask(cancel()));
    let paused_run = after(running.clone(), ask(pause()));
    let undoing_run = after(run_with(""), vec![begun_undoable("a"), undoing("a")]);
    let ended = after(running.clone(), vec![completed()]);
    let misfit = Fault::version_mismatch("old", "new", vec!["a".into(), "b".into()]);
    let why = PauseCause::Version;
    let mismatched = RunPaused { why, error: Some(misfit), reason: None, control: None, refused: None, by: None };
    let mismatched = after(running.clone(), vec![mismatched.into()]);
    // The run, the order, the event, and why it had no effect.
    let rows = [
        (&running, cancel(), "run.cancel_requested", None),
        (&cancelling, cancel(), "run.cancel_requested", Some("it is being cancelled")),
        (&ended, cancel(), "run.cancel_requested", Some("the run is `completed`")),
        (&paused_run, cancel(), "run.cancel_requested", None),
        (&undoing_run, cancel(), "run.cancel_requested", None),
        (&running, pause(), "run.paused", None),
        (&paused_run, pause(), "run.paused", Some("the run is `paused`")),
        (&cancelling, pause(), "run.paused", Some("the run is `running`")),
        (&undoing_run, pause(), "run.paused", Some("the run is `compensating`")),
        (&ended, pause(), "run.paused", Some("the run is `completed`")),
        (&paused_run, Order::Resume, "run.resumed", None),
        (&running, Order::Resume, "run.resumed", Some("the run is `running`")),
        (&ended, Order::Resume, "run.resumed", Some("the run is `completed`")),
        (&mismatched, Order::Resume, "run.resumed", Some("does not fit the run at `a`, `b`; migrate it")),
        (&running, restart(None, 2), "run.restarted", None),
        (&ended, restart(None, 3), "run.restarted", None),
        (&ended, restart(None, 2), "run.restarted", Some("the run has moved on: entry 3, expected 2")),
        (&ended, restart(Some("a"), 4), "run.restarted", Some("the run has moved on: entry 3, expected 4")),
        (&ended, restart(Some("x"), 3), "run.restarted", Some("run `order-1` never came to `x`; it has: `a`")),
        (&mismatched, migrate(&definition.hash, 3), "run.migrated", None),
        (&mismatched, migrate(&definition.hash, 2), "run.migrated", Some("the run has moved on")),
        (&mismatched, migrate("other", 3), "run.migrated", Some("this worker has other code")),
        (&undoing_run, migrate(&definition.hash, 2), "run.migrated", Some("the run is `compensating`")),
        (&ended, migrate(&definition.hash, 3), "run.migrated", Some("the run is `completed`")),
        (&running, late("x"), "signal.late", None),
        (&undoing_run, late("x"), "signal.late", None),
        (&ended, late("x"), "signal.late", Some("the run is `completed`")),
    ];
    for (run, order, event, why) in rows {
        let events = folded(run, order.clone(), &definition);
        let found = refused(&events[0]);
        let case = format!("{order:?} of a run that is {}", run.status);
        assert_eq!((events[0].name(), found.is_some()), (event, why.is_some()), "{case}: {found:?}");
        assert!(found.unwrap_or_default().contains(why.unwrap_or_default()), "{case}: {found:?}");
        let mut then = after(run.clone(), events);
        assert!(then.controls.contains_key("c1"), "{case}");
        if why.is_some() {
            (then.seq, then.updated_at, then.controls) = (run.seq, run.updated_at, run.controls.clone());
            assert_eq!(then, *run, "{case}");
        }
    }
}

#[test]
fn a_folded_order_shows_in_the_run() {
    let definition = graph("a, b<a");
    let running = run_with("a=running");
    let cancelling = after(running.clone(), folded(&running, cancel(), &definition));
    assert_eq!(cancelling.cancel, Some(CancelRequest { reason: Some("enough".into()), at: at(3) }));
    assert_eq!(cancelling.status, Status::Running);
    let paused = after(running.clone(), folded(&running, pause(), &definition));
    let since = Pause { why: PauseCause::ByHand, reason: Some("lunch".into()), at: at(3) };
    assert_eq!((paused.status, &paused.pause), (Status::Paused, &Some(since)));
    let paused = after(paused, vec![done("a")]);
    assert_eq!((paused.status, paused.open.len()), (Status::Paused, 0), "it takes effect after the current step");
    let resumed = after(paused.clone(), folded(&paused, Order::Resume, &definition));
    assert_eq!((resumed.status, &resumed.pause), (Status::Running, &None));
    let why = PauseCause::Failure;
    let broke = RunPaused { why, error: Some(fault("no")), reason: None, control: None, refused: None, by: None };
    let paused = after(running, vec![broke.into()]);
    assert_eq!(paused.error, Some(fault("no")));
    let resumed = after(paused.clone(), folded(&paused, Order::Resume, &definition));
    assert_eq!(resumed.error, None, "the cause of the pause is resolved");
}

#[test]
fn every_event_of_a_control_request_names_its_caller_if_known() {
    let definition = graph("a");
    let run = run_with("");
    let run = after(run.clone(), folded(&run, pause(), &definition));
    let orders = [cancel(), pause(), Order::Resume, restart(None, run.seq), migrate(&definition.hash, run.seq)];
    for order in orders {
        for caller in [None, Some("ada")] {
            let asked = Control { by: caller.map(str::to_owned), ..control(order.clone()) };
            let events = run.fold_control("c1", &asked, &definition, at(9));
            let named: Vec<Option<String>> = events.iter().filter_map(caller_of).collect();
            assert!(!named.is_empty(), "{order:?}");
            assert!(named.iter().all(|by| by.as_deref() == caller), "{order:?}: {named:?}");
        }
    }
}

/// The caller that a control event names; `None` for any other event.
fn caller_of(event: &Event) -> Option<Option<String>> {
    let event = serde_json::to_value(event).unwrap();
    let kinds = ["run.cancel_requested", "run.paused", "run.resumed", "run.restarted", "run.migrated"];
    let is_control = kinds.iter().any(|kind| event["type"] == *kind);
    is_control.then(|| event["by"].as_str().map(str::to_owned))
}

/// A run that has folded `folded` control objects, one second apart, and then one more at
/// the given second.
fn remembered(folded: u64, last_at: u64) -> Vec<String> {
    let mut run = run_with("");
    let times = (0..folded).map(|number| (number, at(2 + number))).chain([(folded, at(last_at))]);
    for (number, at) in times {
        let order = RunPaused {
            why: PauseCause::ByHand,
            error: None,
            reason: None,
            control: Some(format!("c{number:03}")),
            refused: Some("no".into()),
            by: None,
        };
        let (seq, events) = (run.seq + 1, vec![order.into()]);
        run.apply(&Entry { seq, by: "b".into(), at, events, requests: Requests::default() }).unwrap();
    }
    run.controls.into_keys().collect()
}

#[test]
fn the_newest_folded_controls_are_remembered_however_old_and_all_others_for_an_hour() {
    // (folded before, second of the last, first that is remembered, how many are)
    let cases = [
        (1, 2 + 3_599, "c000", 2),
        (1, 2 + 86_400, "c000", 2),
        (31, 86_400, "c000", 32),
        (32, 2 + 3_599, "c000", 33),
        (32, 2 + 3_600, "c001", 32),
        (40, 2 + 3_605, "c006", 35),
        (40, 86_400, "c009", 32),
    ];
    for (folded, last_at, first, count) in cases {
        let remembered = remembered(folded, last_at);
        assert_eq!((&*remembered[0], remembered.len()), (first, count), "{folded} folded, then one at {last_at}");
    }
}

#[test]
fn a_resumed_run_has_lost_no_time_it_was_given_as_a_span() {
    let deadline: Event =
        StepStarted { point: path("task"), attempt: 1, compensate: false, task: None, deadline: Some(at(20)) }.into();
    let again = |point: &str| {
        let (compensate, task) = (false, None);
        StepStarted { point: path(point), attempt: 2, compensate, task, deadline: Some(at(20)) }.into()
    };
    // The beginning, the point, and until when it waits: before the pause and after it.
    let rows = [
        ("a sleep for a span", vec![asleep("p", at(20), true)], "p", Some(20), Some(67)),
        ("a sleep until a time", vec![asleep("p", at(20), false)], "p", Some(20), Some(20)),
        ("a wait for a span", vec![waiting("p", Some(at(20)), true)], "p", Some(20), Some(67)),
        ("a wait until a time", vec![waiting("p", Some(at(20)), false)], "p", Some(20), Some(20)),
        ("a wait for ever", vec![waiting("p", None, true)], "p", None, None),
        ("a retry", vec![begun("p"), broken("p", Some(at(20)))], "p", Some(20), Some(67)),
        ("the deadline of a task", vec![deadline], "task", Some(20), Some(20)),
        ("that of its second try", vec![begun("p"), broken("p", Some(at(9))), again("p")], "p", Some(20), Some(20)),
    ];
    let definition = graph("p");
    for (row, events, point, before, later) in rows {
        // Paused by entry 3, at second 3; resumed at second 50.
        let run = after(run_with(""), events);
        let run = after(run.clone(), folded(&run, pause(), &definition));
        assert_eq!(run.points[&path(point)].until, before.map(at), "{row}");
        let run = after(run.clone(), folded(&run, Order::Resume, &definition));
        assert_eq!(run.points[&path(point)].until, later.map(at), "{row}");
    }
}

#[test]
fn a_restart_drops_what_it_must_and_keeps_the_rest() {
    let diamond = graph("a, b<a, c<a, d<b+c, e");
    let function = Definition::function("order".parse().unwrap(), 1);
    let all = "a=done e=done b=done b/x=done c=done d=failed";
    let renamed = graph("a, f<a, c<f");
    let before = "z=done a=done b=received c=done";
    // The definition, the progress of the run, the first step to restart, the dropped
    // records, the remaining ones.
    let rows = [
        ("from the start", &diamond, all, None, "", ""),
        ("from a step", &diamond, all, Some("b"), "b b/x d", "a c e"),
        ("from the first", &diamond, all, Some("a"), "a b b/x c d", "e"),
        ("from the last", &diamond, all, Some("d"), "d", "a b b/x c e"),
        ("from below a step", &diamond, all, Some("b/x"), "b b/x d", "a c e"),
        ("from a step beside", &diamond, all, Some("e"), "d e", "a b b/x c"),
        ("a step that is gone and began later", &renamed, before, Some("a"), "a b c", "z"),
        ("a step that is gone and began earlier", &renamed, before, Some("c"), "c", "a b z"),
        ("a function from the start", &function, all, None, "", ""),
        ("a function from a point", &function, all, Some("b"), "b b/x c d", "a e"),
        ("a function from its last point", &function, all, Some("d"), "d", "a b b/x c e"),
    ];
    for (row, definition, points, from, dropped, left) in rows {
        let run = after(run_with(points), vec![failed("no")]);
        let events = folded(&run, restart(from, run.seq), definition);
        let Event::RunRestarted(event) = &events[0] else { panic!("{row}: {events:?}") };
        let all_or_named = if from.is_none() { run.points.keys().cloned().collect() } else { paths(dropped) };
        assert_eq!((run.dropped_by(event), &event.refused), (all_or_named, &None), "{row}");
        let run = after(run, events.clone());
        assert_eq!(run.points.keys().cloned().collect::<Vec<_>>(), paths(left), "{row}");
        let of_the_end = (&run.error, &run.result, &run.chain, &run.cancel);
        assert_eq!((run.status, run.restarts, of_the_end), (Status::Running, 1, (&None, &None, &None, &None)), "{row}");
        assert_eq!(run.unrolled.len(), run.points.len(), "{row}");
    }
}

#[test]
fn a_restart_starts_children_again_that_ended_with_the_run_and_keeps_those_of_a_run_that_continues() {
    let function = Definition::function("order".parse().unwrap(), 1);
    let started = |point: &str| {
        let children = Children::Numbered { count: 2, restarts: 0 };
        Event::from(ChildStarted { point: path(point), children, deadline: None })
    };
    let mut running = run_with("");
    add(&mut running, vec![started("tasks")]).unwrap();
    add(&mut running, vec![begun("a"), done("a")]).unwrap();
    let ended = after(running.clone(), vec![failed("no")]);
    for (row, run, dropped) in [("it goes on", running, "a"), ("it has ended", ended, "a tasks")] {
        let events = folded(&run, restart(Some("a"), run.seq), &function);
        let Event::RunRestarted(event) = &events[0] else { panic!("{row}: {events:?}") };
        assert_eq!((run.dropped_by(event), &event.refused), (paths(dropped), &None), "{row}");
    }
}

#[test]
fn a_restart_from_a_step_repeats_compensated_steps() {
    let definition = graph("a, b<a, c<b");
    let mut run = run_with("");
    for step in ["a", "b"] {
        add(&mut run, vec![begun_undoable(step), done(step)]).unwrap();
    }
    add(&mut run, vec![begun("c"), broken("c", None), undoing("b"), undone("b")]).unwrap();
    let dropped = |run: &Run| {
        let events = folded(run, restart(Some("c"), run.seq), &definition);
        let Some(Event::RunRestarted(event)) = events.last() else { panic!("{events:?}") };
        run.dropped_by(event)
    };
    assert_eq!(dropped(&run), paths("b c"));
    add(&mut run, vec![undoing("a"), not_undone("a", None), failed("no")]).unwrap();
    assert_eq!(dropped(&run), paths("a b c"));
    let run = after(run.clone(), folded(&run, restart(Some("c"), run.seq), &definition));
    assert_eq!((run.chain, run.compensation_errors), (None, vec![]));
}

#[test]
fn a_restart_from_the_start_begins_with_the_input() {
    let mut run = run_with("");
    let patch = serde_json::json!({"item": null, "paid": true}).as_object().cloned();
    let step = StepCompleted { point: path("a"), at: at(2), result: data("1"), patch, mark: false };
    add(&mut run, vec![begun("a"), step.into()]).unwrap();
    assert_eq!(serde_json::Value::from(run.data.clone()), serde_json::json!({"paid": true}));
    add(&mut run, vec![completed(), restarted()]).unwrap();
    assert_eq!(serde_json::Value::from(run.data), serde_json::json!({"item": "tea"}));
}

#[test]
fn a_migration_resumes_a_run_that_is_paused() {
    let definition = graph("a, c<a");
    let run = after(run_with("a=done b=running"), vec![paused(PauseCause::Version)]);
    let mapping = BTreeMap::from([(path("b"), Some(path("c")))]);
    let order = Order::Migrate { definition_hash: definition.hash.clone(), mapping, expected_seq: run.seq };
    let events = folded(&run, order, &definition);
    assert_eq!(events.iter().map(Event::name).collect::<Vec<_>>(), ["run.migrated", "run.resumed"]);
    let run = after(run, events);
    assert_eq!((run.status, &run.definition_hash, &run.pause), (Status::Running, &definition.hash, &None));
    assert_eq!(run.points.keys().cloned().collect::<Vec<_>>(), paths("a c"));
    assert_eq!(run.open.into_iter().collect::<Vec<_>>(), paths("c"));
}

#[test]
fn of_a_run_that_ended_only_restarts_of_its_end_and_late_notes_are_kept() {
    let restart = |expected_seq| Order::Restart { from: None, expected_seq };
    let late = Order::Late { name: name("go"), signal: "s".into() };
    let rows = [
        (Order::Cancel { reason: None }, true),
        (Order::Pause { reason: None }, true),
        (Order::Resume, true),
        (restart(6), true),
        (restart(7), false),
        (late, false),
    ];
    for (order, is_late) in rows {
        assert_eq!(order.is_late_for_end(7), is_late, "{order:?}");
    }
}

#[test]
fn offloaded_steps_return_to_the_snapshot_when_they_change() {
    let renamed = BTreeMap::from([(path("a"), path("x"))]);
    let (definition_hash, version, control, refused) = ("new".to_owned(), None, None, None);
    let skipped = paths("b");
    let migrated = RunMigrated { definition_hash, version, renamed, skipped, control, refused, by: None }.into();
    let back =
        RunRestarted { from: Some(path("b")), steps: paths("b"), control: "c1".into(), refused: None, by: None }.into();
    let rows = [(migrated, "b=skipped c=completed x=completed"), (back, "a=completed c=completed")];
    for (event, points) in rows {
        let mut run = run_with("a=done b=done c=done");
        let chunk = run.roll().remove(0);
        assert_eq!((chunk.steps.len(), chunk.range), (3, Rolled { from: 1, to: 4, points: 3, taken: None }));
        add(&mut run, vec![event]).unwrap();
        let run = taken_over(&run);
        let found: Vec<String> = run.points.iter().map(|(path, point)| format!("{path}={}", point.status)).collect();
        assert_eq!((found.join(" "), run.rolled.len()), (points.into(), 0));
    }
}

#[test]
fn completed_steps_are_compensated_in_reverse_order() {
    // The events, entry by entry, and the order of undoing.
    let plain = begun("p");
    let rows = [
        ("nothing to undo", vec![vec![plain, done("p")]], ""),
        ("one", vec![vec![begun_undoable("a"), done("a")]], "a"),
        (
            "the order is that of completion, not of beginning",
            vec![vec![begun_undoable("a"), begun_undoable("b")], vec![done("b")], vec![done("a")]],
            "a b",
        ),
        ("in one entry too", vec![vec![begun_undoable("a"), begun_undoable("b")], vec![done("a"), done("b")]], "b a"),
        (
            "the failed step's own comes first",
            vec![
                vec![begun_undoable("f"), begun_undoable("a"), begun_undoable("b")],
                vec![done("a")],
                vec![broken("f", None)],
                vec![done("b")],
            ],
            "f b a",
        ),
        ("one of unknown effect too", vec![vec![begun_undoable("r")], vec![begun_undoable("a"), done("a")]], "r a"),
        (
            "a step that will be retried too",
            vec![vec![begun_undoable("r"), broken("r", Some(at(9)))], vec![begun_undoable("a"), done("a")]],
            "r a",
        ),
        ("skipped steps are excluded", vec![vec![skipped("s")], vec![begun_undoable("a"), done("a")]], "a"),
    ];
    for (row, entries, order) in rows {
        let mut run = run_with("");
        for events in entries {
            add(&mut run, events).unwrap();
        }
        assert_eq!(run.undo_order(), paths(order), "{row}");
        assert_eq!(run.has_anything_to_undo(), !order.is_empty(), "{row}");
    }
}

/// Steps `a`, `b`, `c` done, `d` failed, all of which can be undone.
fn run_to_undo() -> Run {
    let mut run = run_with("");
    for step in ["a", "b", "c"] {
        add(&mut run, vec![begun_undoable(step), done(step)]).unwrap();
    }
    add(&mut run, vec![begun_undoable("d"), broken("d", None)]).unwrap();
    run
}

/// Reads a run back from its snapshot, as the worker does that takes it over.
fn taken_over(run: &Run) -> Run {
    let read = read_state(the_run(), &state_to_json(run, "w1-1")).unwrap();
    assert_eq!(read, *run);
    read
}

#[test]
fn compensations_resume_where_they_stopped_and_skip_failed_ones() {
    let mut run = run_to_undo();
    let next = |run: &Run| run.undo_order().get(run.chain.as_ref().map_or(0, |chain| chain.behind)).cloned();
    let mut undone_in_order = Vec::new();
    while let Some(point) = next(&run) {
        let cause = run.chain.is_none().then(|| Ending::Failed(fault("why")));
        add(&mut run, vec![CompensationStarted { point: point.clone(), attempt: 1, cause }.into()]).unwrap();
        run = taken_over(&run);
        let current = run.chain.as_ref().unwrap().current.as_ref().unwrap();
        assert_eq!((&current.point, current.attempt), (&point, 1), "the interrupted compensation is retried");
        let last = if point == path("c") { not_undone("c", None) } else { undone(point.as_str()) };
        add(&mut run, vec![last]).unwrap();
        run = taken_over(&run);
        undone_in_order.push(point);
    }
    assert_eq!(undone_in_order, paths("d c b a"));
    assert_eq!((run.status, &run.error), (Status::Compensating, &Some(fault("why"))));
    let errors: Vec<_> = run.compensation_errors.iter().map(|error| (&error.point, &*error.error.message)).collect();
    assert_eq!(errors, [(&path("c"), "stuck")]);
    assert_eq!(run.compensation_errors[0].error.point, Some(path("c")));
    let Some(Ending::Failed(error)) = run.chain.clone().map(|chain| chain.cause) else { panic!("{:?}", run.chain) };
    add(&mut run, vec![RunFailed { error }.into()]).unwrap();
    assert_eq!((run.status, run.error), (Status::Failed, Some(fault("why"))));
}

#[test]
fn undoing_has_tries_of_its_own() {
    let mut run = run_to_undo();
    add(&mut run, vec![undoing("d"), not_undone("d", Some(at(30)))]).unwrap();
    let chain = run.chain.clone().unwrap();
    assert_eq!((chain.behind, chain.current.unwrap().retry_at), (0, Some(at(30))));
    assert_eq!(run.compensation_errors, []);
    let again = CompensationStarted { point: path("d"), attempt: 2, cause: None };
    add(&mut run, vec![again.into()]).unwrap();
    let current = run.chain.as_ref().unwrap().current.clone().unwrap();
    assert_eq!((current.attempt, current.retry_at), (2, None));
    add(&mut run, vec![undone("d")]).unwrap();
    assert_eq!(run.chain.unwrap(), Chain { cause: Ending::Failed(fault("why")), behind: 1, current: None });
}

#[test]
fn compensations_record_their_cause_and_include_only_steps_that_have_one() {
    let without = |point: &str| CompensationStarted { point: path(point), attempt: 1, cause: None }.into();
    let rows = [
        (vec![without("d")], "the first says why"),
        (vec![undoing("x")], "`x`"),
        (vec![begun("p"), done("p"), undoing("p")], "`p`"),
        (vec![undoing("d"), undone("c")], "`c` is not being undone"),
        (vec![undoing("d"), undone("d"), undone("d")], "`d` is not being undone"),
        (vec![undoing("d"), undone("d"), not_undone("d", None)], "`d` is not being undone"),
    ];
    for (events, words) in rows {
        let refusal = add(&mut run_to_undo(), events).unwrap_err().to_string();
        assert!(refusal.contains(words), "{refusal}");
    }
}

#[test]
fn a_takeover_counts_an_interruption_of_running_steps() {
    let mut run = run_with("a=running b=retrying c=done s=waiting");
    let count = |run: &Run, point: &str| run.points[&path(point)].interrupted;
    add(&mut run, vec![claimed("w1", at(2_000))]).unwrap();
    assert_eq!(count(&run, "a"), 0, "a renewal is no interruption");
    add(&mut run, vec![claimed("w2", at(2_000))]).unwrap();
    assert_eq!(["a", "b", "c", "s"].map(|point| count(&run, point)), [1, 0, 0, 0]);
    add(&mut run, vec![parked()]).unwrap();
    add(&mut run, vec![claimed("w3", at(3_000))]).unwrap();
    assert_eq!(count(&run, "a"), 1, "a worker that parked did not die");
    add(&mut run, vec![broken("a", Some(at(20)))]).unwrap();
    assert_eq!(count(&run, "a"), 0, "a failure is the step's own");
    add(&mut run, vec![begun("a"), claimed("w4", at(4_000)), done("a")]).unwrap();
    assert_eq!(count(&run, "a"), 0);
}

#[test]
fn waits_hold_shifted_deadlines_in_the_snapshot_too() {
    let mut run = after(run_with(""), vec![waiting("s", Some(at(20)), true), paused(PauseCause::ByHand)]);
    add(&mut run, vec![resumed(Duration::from_secs(5))]).unwrap();
    assert_eq!(taken_over(&run).points[&path("s")].until, Some(at(25)));
}

#[test]
fn a_late_note_with_an_invalid_suffix_is_rejected() {
    let run = run_with("a=running");
    for wrong in
        ["x", "", "2026-01-28T12:00:05.000000Z", "2026-01-28T12:00:05.000000Z_a/b", "2026-01-28T12:00:05.000000Z_\n"]
    {
        let events = folded(&run, Order::Late { name: go(), signal: wrong.into() }, &graph("a"));
        assert_eq!(refused(&events[0]), Some("it is no place in an inbox"), "{wrong:?}");
    }
}
