//! The phases of a turn, one row for each rule: a state, an input, and the next action.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::*;
use wigwag_core::turn::ending::{Halt, UndoMove, final_event, is_held_by_pause, recorded_ending};
use wigwag_core::turn::park::{After, Before, BodyView, Situation, is_held_up, next_at, timers_of};
use wigwag_core::turn::phase::{Claim, Phase, Stop};
use wigwag_core::turn::waits::{ScanNeed, Waits};
use wigwag_core::*;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn failing() -> Phase {
    Phase::of(Some(Ending::Failed(fault("no"))))
}

fn completing() -> Phase {
    Phase::Completing(Payload::null())
}

fn cancelling() -> Phase {
    let mut phase = Phase::Driving;
    assert!(phase.cancel(None, secs(5)));
    phase
}

/// A claimed run that a control object cancelled.
fn cancel_requested(points: &str) -> Run {
    let mut run = run_with(points);
    add(&mut run, vec![RunCancelRequested { reason: None, control: "c".into(), refused: None, by: None }.into()])
        .unwrap();
    run
}

fn paused_run(points: &str) -> Run {
    let mut run = run_with(points);
    add(&mut run, vec![paused(PauseCause::ByHand)]).unwrap();
    run
}

/// A run that compensates `a`, completed before.
fn compensating() -> Run {
    let mut run = run_with("");
    add(&mut run, vec![begun_undoable("a"), done("a"), begun_undoable("b"), done("b")]).unwrap();
    add(&mut run, vec![undoing("b")]).unwrap();
    run
}

#[test]
fn a_phase_changes_only_in_the_order_of_a_turn() {
    let failed = || Ending::Failed(fault("no"));
    type Change = fn(&mut Phase);
    let rows: Vec<(&str, Phase, Change, Phase)> = vec![
        ("a driven run fails", Phase::Driving, |phase| phase.end(Ending::Failed(fault("no"))), failing()),
        ("the first failure counts", failing(), |phase| phase.end(Ending::Failed(fault("later"))), failing()),
        ("a failing run is not cancelled", failing(), |phase| _ = phase.cancel(None, secs(5)), failing()),
        (
            "a function that returned is not cancelled",
            completing(),
            |phase| _ = phase.cancel(None, secs(5)),
            completing(),
        ),
        ("a driven run is cancelled", Phase::Driving, |phase| _ = phase.cancel(None, secs(5)), cancelling()),
        ("a driven run completes", Phase::Driving, |phase| phase.complete(Payload::null()), completing()),
        ("a failing run does not complete", failing(), |phase| phase.complete(Payload::null()), failing()),
        (
            "a released run does not fail",
            Phase::Releasing,
            |phase| phase.end(Ending::Failed(fault("no"))),
            Phase::Releasing,
        ),
        (
            "a released run does not complete",
            Phase::Releasing,
            |phase| phase.complete(Payload::null()),
            Phase::Releasing,
        ),
        (
            "a result is taken once",
            completing(),
            |phase| assert!(phase.take_result().is_some() && phase.take_result().is_none()),
            Phase::Driving,
        ),
    ];
    for (row, mut phase, change, want) in rows {
        change(&mut phase);
        assert_eq!(phase, want, "{row}");
    }
    assert_eq!(Phase::of(None), Phase::Driving);
    assert_eq!(failing().ending(), Some(&failed()));
    assert!(cancelling().is_cancelling() && !failing().is_cancelling());
}

#[test]
fn running_steps_of_a_cancelled_run_are_dropped_once() {
    let mut phase = cancelling();
    assert_eq!(phase.grace_ends(), Some(secs(5)));
    assert!(!phase.ends_grace(secs(4)), "the grace time lasts");
    assert!(phase.ends_grace(secs(5)));
    assert!(!phase.ends_grace(secs(6)), "they were dropped");
    assert!(!failing().ends_grace(secs(9)), "a failing run waits for its steps");
}

#[test]
fn a_claim_is_held_once_its_entry_is_durable() {
    let parking = || Claim::Parking { hint: "h".into(), is_first: true };
    let rows = [
        ("of a new run", Claim::Staged { is_new: true }, Claim::Held),
        ("of a run that exists", Claim::Staged { is_new: false }, Claim::Held),
        ("that parks the run", parking(), Claim::Parked { hint: "h".into(), is_first: true }),
        ("held before", Claim::Held, Claim::Held),
    ];
    for (row, mut claim, want) in rows {
        claim.landed();
        assert_eq!(claim, want, "{row}");
        assert!(claim.is_durable() && !claim.is_new(), "{row}");
    }
    assert!(!Claim::Staged { is_new: false }.is_durable() && Claim::Staged { is_new: true }.is_new());
}

#[test]
fn the_log_says_how_a_run_ends() {
    let graph = graph("a, b");
    let mut lenient = nodes("a, b");
    lenient[0].on_failure = OnFailure::Continue;
    let lenient = Definition::graph("order".parse().unwrap(), lenient).unwrap();
    let error = Some(Ending::Failed(fault("no")));
    assert_eq!(recorded_ending(&run_with("a=done b=running"), &graph), None);
    assert_eq!(recorded_ending(&run_with("a=failed b=running"), &graph), error);
    assert_eq!(recorded_ending(&run_with("a=retrying"), &graph), None);
    assert_eq!(recorded_ending(&run_with("a=failed"), &lenient), None, "the graph continues without it");
    assert_eq!(recorded_ending(&compensating(), &graph), Some(Ending::Failed(fault("why"))), "the chain has a cause");
    assert_eq!(final_event(Ending::Cancelled(None)).name(), "run.cancelled");
    assert_eq!(final_event(Ending::Failed(fault("no"))).name(), "run.failed");
}

#[test]
fn compensation_follows_the_recorded_chain() {
    let order = compensating().undo_order();
    assert_eq!(order, paths("b a"), "the latest first");
    let with = |events: Vec<Event>| {
        let mut run = compensating();
        events.into_iter().for_each(|event| add(&mut run, vec![event]).unwrap());
        run
    };
    let start = |step: &str, attempt| UndoMove::Start { step: path(step), attempt };
    let mut unbegun = run_with("");
    add(&mut unbegun, vec![begun_undoable("b"), done("b")]).unwrap();
    let rows = [
        ("nothing was begun", unbegun, false, start("b", 1)),
        ("it runs here", compensating(), true, UndoMove::Wait),
        ("its worker died", compensating(), false, UndoMove::Rerun { step: path("b"), attempt: 1 }),
        ("it failed, its time has not come", with(vec![not_undone("b", Some(at(21)))]), false, UndoMove::Wait),
        ("it failed, its time has come", with(vec![not_undone("b", Some(at(20)))]), false, start("b", 2)),
        ("it failed for good: the rest continues", with(vec![not_undone("b", None)]), false, start("a", 1)),
        ("one is done", with(vec![undone("b")]), false, start("a", 1)),
        ("all are done", with(vec![undone("b"), undoing("a"), undone("a")]), false, UndoMove::End),
    ];
    for (row, run, runs, want) in rows {
        assert_eq!(UndoMove::of(&run, &order, at(20), |_| runs), want, "{row}");
    }
    assert_eq!(UndoMove::of(&run_with("a=done"), &[], at(20), |_| false), UndoMove::End, "nothing to compensate");
}

#[test]
fn a_run_that_cannot_be_recorded_is_paused_or_ends() {
    let rows = [
        ("driven", run_with("a=running"), Halt::Pause),
        ("paused", paused_run("a=running"), Halt::Nothing),
        ("being cancelled", cancel_requested("a=running"), Halt::Cancel),
        ("being compensated", compensating(), Halt::Fail),
    ];
    for (row, run, want) in rows {
        assert_eq!(Halt::of(&run), want, "{row}");
    }
    assert!(is_held_by_pause(&paused_run("")) && !is_held_by_pause(&run_with("")));
}

#[test]
fn a_body_may_be_dropped_if_it_only_waits() {
    let idle = BodyView { compensates: false, is_idle: true, waits: 1, runs_step: false, mismatched: false };
    let rows = [
        ("it waits for a point", idle, true),
        ("it is not idle", BodyView { is_idle: false, ..idle }, false),
        ("it waits for nothing of ours", BodyView { waits: 0, ..idle }, false),
        ("a step of it runs", BodyView { runs_step: true, ..idle }, false),
        ("it compensates a step", BodyView { compensates: true, ..idle }, false),
        ("it came to a point of another kind", BodyView { waits: 0, mismatched: true, ..idle }, true),
    ];
    for (row, view, want) in rows {
        assert_eq!(view.is_parkable(), want, "{row}");
    }
}

#[test]
fn a_turn_parks_when_nothing_can_proceed_soon() {
    let (driving, failing, completing) = (Phase::Driving, failing(), completing());
    let (run, chained, held) = (run_with("s=waiting"), compensating(), paused_run("a=running"));
    let idle = Situation {
        stop: Stop::No,
        phase: &driving,
        run: &run,
        is_full: false,
        is_pending: false,
        is_parkable: true,
        mismatched: false,
        next_at: None,
        now: at(100),
        park_after: secs(2),
    };
    let rows = [
        ("it only waits", idle, true),
        ("something is due later", Situation { next_at: Some(at(103)), ..idle }, true),
        ("something is due soon", Situation { next_at: Some(at(102)), ..idle }, false),
        ("due soon, and the engine drains", Situation { next_at: Some(at(102)), stop: Stop::Drain, ..idle }, true),
        ("due soon, and the code does not fit", Situation { next_at: Some(at(102)), mismatched: true, ..idle }, true),
        ("code runs", Situation { is_parkable: false, ..idle }, false),
        ("code runs, and the engine drains", Situation { is_parkable: false, stop: Stop::Drain, ..idle }, false),
        ("code runs, and the engine stops now", Situation { is_parkable: false, stop: Stop::Now, ..idle }, true),
        ("the entry is full", Situation { is_full: true, ..idle }, false),
        ("requests were not handled", Situation { is_pending: true, ..idle }, false),
        ("the function has returned", Situation { phase: &completing, ..idle }, false),
        ("the run fails, and nothing was compensated yet", Situation { phase: &failing, ..idle }, false),
        ("the run fails, and a compensation waits", Situation { phase: &failing, run: &chained, ..idle }, true),
        ("the run fails while it is paused", Situation { phase: &failing, run: &held, ..idle }, true),
    ];
    for (row, situation, want) in rows {
        assert_eq!(situation.may_park(), want, "{row}");
    }
}

#[test]
fn the_next_time_that_matters_is_the_earliest() {
    let timers = |text: &str, second| BTreeSet::from([(at(second), path(text))]);
    let asleep_run = run_of(vec![vec![run_started(), claimed("w1", at(900)), asleep("z", at(50), true)]]);
    let mut retried = compensating();
    add(&mut retried, vec![not_undone("b", Some(at(70)))]).unwrap();
    let rows = [
        ("a sleep", &asleep_run, timers("z", 50), None, Some(at(50))),
        ("a timer that no longer counts", &asleep_run, timers("z", 40), None, None),
        ("a deadline before it", &asleep_run, timers("z", 50), Some(at(30)), Some(at(30))),
        ("only a deadline", &run_with("s=waiting"), BTreeSet::new(), Some(at(30)), Some(at(30))),
        ("a paused run has none", &paused_run("a=retrying"), timers("a", 90), Some(at(30)), None),
        ("the next attempt of a compensation", &retried, timers("z", 50), Some(at(30)), Some(at(70))),
        ("a compensation that runs", &compensating(), BTreeSet::new(), None, None),
    ];
    for (row, run, timers, deadline, want) in rows {
        assert_eq!(next_at(run, &timers, deadline), want, "{row}");
    }
    assert_eq!(timers_of(&asleep_run), timers("z", 50));
    assert_eq!(timers_of(&run_with("a=retrying")), timers("a", 90));
    assert!(timers_of(&run_with("s=waiting a=done")).is_empty());
}

#[test]
fn no_step_begins_in_a_run_that_is_held_up() {
    let run = run_with("a=running");
    let rows = [
        ("driven", &run, Phase::Driving, Stop::No, false),
        ("paused", &paused_run("a=running"), Phase::Driving, Stop::No, true),
        ("cancel requested", &cancel_requested("a=running"), Phase::Driving, Stop::No, true),
        ("compensating", &compensating(), Phase::Driving, Stop::No, true),
        ("failing", &run, failing(), Stop::No, true),
        ("released", &run, Phase::Releasing, Stop::No, true),
        ("the engine drains", &run, Phase::Driving, Stop::Drain, true),
    ];
    for (row, run, phase, stop, want) in rows {
        assert_eq!(is_held_up(run, &phase, stop), want, "{row}");
    }
}

#[test]
fn a_turn_renews_its_lease_before_other_actions() {
    let (run, mut ended) = (run_with("a=running"), run_with("a=done"));
    add(&mut ended, vec![completed()]).unwrap();
    let driving = Phase::Driving;
    let rows = [
        ("the process counts as dead", Stop::Dead, (false, true, true), &ended, &driving, Before::Abandon),
        ("the lease is to be renewed", Stop::No, (false, true, true), &run, &driving, Before::Renew),
        ("not over a staged entry", Stop::No, (true, true, true), &run, &driving, Before::Gather),
        ("a notification came", Stop::No, (false, false, true), &run, &driving, Before::Check),
        ("the run has ended", Stop::No, (true, false, false), &ended, &driving, Before::End),
        ("the run was restarted", Stop::No, (false, false, false), &run, &Phase::Releasing, Before::Release),
        ("nothing else", Stop::Drain, (false, false, false), &run, &driving, Before::Gather),
    ];
    for (row, stop, (is_staged, renewal_due, notified), run, phase, want) in rows {
        assert_eq!(Before::of(stop, is_staged, renewal_due, notified, run, phase), want, "{row}");
    }
}

#[test]
fn one_entry_carries_all_that_is_ready_together() {
    // is final, is staged, lets code continue, may park, needs a scan
    let rows = [
        ("the end goes with its completion", (true, true, true, false, true), After::End),
        ("code waits for the entry", (false, true, true, true, false), After::Commit),
        ("other code is still running", (false, true, false, false, true), After::Commit),
        ("recorded events share the entry that parks", (false, true, false, true, true), After::Park),
        ("nothing is staged", (false, false, false, true, false), After::Park),
        ("waits were recorded since the last scan", (false, false, false, false, true), After::Scan),
        ("nothing to do", (false, false, false, false, false), After::Wait),
    ];
    for (row, (is_final, is_staged, lets_continue, may_park, needs_scan), want) in rows {
        assert_eq!(After::of(is_final, is_staged, lets_continue, may_park, needs_scan), want, "{row}");
    }
}

/// A run with a wait at `s` until second 40.
fn waiting_run() -> Run {
    let mut run = run_with("");
    add(&mut run, vec![waiting("s", Some(at(40)), false)]).unwrap();
    run
}

/// The inbox of `go`, scanned at that second and empty.
fn scanned_at(second: u64) -> Inboxes {
    Inboxes { since: at(second), names: [(go(), Seen::default())].into() }
}

#[test]
fn inboxes_are_scanned_before_nothing_counts_as_there() {
    let run = waiting_run();
    let fresh = |second: u64, opened: bool, is_new: bool| {
        let mut waits = Waits::default();
        if second > 0 {
            waits.scanned(scanned_at(second));
        }
        if opened {
            waits.open(&wait_at("s"), is_new, at(second));
        }
        waits
    };
    let rows = [
        ("the inbox was never scanned", fresh(0, false, false), 20, true, ScanNeed::Now),
        ("nobody waits there", fresh(0, false, false), 20, false, ScanNeed::No),
        ("it was scanned", fresh(10, false, false), 20, true, ScanNeed::No),
        ("the wait was opened since", fresh(10, true, false), 20, true, ScanNeed::Now),
        ("the run did not exist before: its inbox is empty", fresh(0, true, true), 20, true, ScanNeed::No),
        ("its deadline has passed since", fresh(10, false, false), 41, true, ScanNeed::Deadline(at(40))),
        ("a scan after the deadline says all", fresh(40, false, false), 41, true, ScanNeed::No),
    ];
    for (row, mut waits, second, may_take, want) in rows {
        assert_eq!(waits.scan_need(&run, at(second), |_| may_take), want, "{row}");
    }
}

#[test]
fn a_wait_times_out_by_the_pessimistic_side_of_the_clock() {
    let run = waiting_run();
    let mut waits = Waits::default();
    waits.scanned(scanned_at(10));
    assert_eq!(waits.next_check(&run, at(20), |_| true), Some(at(40)), "its deadline");
    assert_eq!(waits.next_check(&run, at(20), |_| false), None, "nobody waits there");
    assert!(!waits.is_over(at(40), at(41), secs(3)), "the clock may be 3 s ahead");
    assert_eq!(waits.next_check(&run, at(41), |_| true), Some(at(43)), "then for sure");
    assert!(waits.is_over(at(40), at(43), secs(3)));
    waits.scanned(scanned_at(43));
    assert_eq!(waits.next_check(&run, at(43), |_| true), Some(at(40)));
}

#[test]
fn a_recorded_wait_is_scanned_for_after_its_entry() {
    let mut waits = Waits::default();
    assert!(!waits.needs_scan());
    waits.open(&wait_at("s"), true, at(1));
    assert!(!waits.needs_scan(), "nothing can have been sent to a run that did not exist");
    waits.open(&wait_at("t"), false, at(2));
    waits.scanned(scanned_at(2));
    assert!(waits.needs_scan(), "that scan began before the entry was durable");
    waits.scanned_after_entry();
    assert!(!waits.needs_scan());
}

#[test]
fn a_signal_that_earlier_waits_rejected_is_read_for_a_new_one() {
    let mut waits = Waits::default();
    let mut found = scanned_at(1);
    found.names.get_mut(&go()).unwrap().misfits.insert(suffix(at(0), "x"));
    waits.scanned(found);
    waits.open(&wait_at("s"), false, at(2));
    assert!(waits.inboxes.names[&go()].misfits.is_empty());
}
