//! The decisions of a turn, one row for each rule: a state, an input, and the decision.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use std::time::Duration;

use common::*;
use wigwag_core::turn::body::Progress;
use wigwag_core::turn::step::{AfterFailure, Attempt, Begin, FailedAttempt, Owner, Policy};
use wigwag_core::*;

/// What happens between a turn and a body.
#[derive(Clone, Copy, Debug)]
enum Happens {
    Reply,
    Poll,
    Report,
    Hold,
    Release,
}

#[test]
fn a_body_is_idle_only_when_it_has_seen_every_reply() {
    use Happens::{Hold, Poll, Release, Reply, Report};
    let rows: &[(&str, &[Happens], bool)] = &[
        ("never polled", &[], false),
        ("its first poll is under way", &[Poll], false),
        ("its first poll has ended", &[Poll, Report], true),
        ("it was given a reply since", &[Poll, Report, Reply], false),
        ("the reply came while it was polled: that poll may have missed it", &[Poll, Reply, Report], false),
        ("a poll that saw the reply is under way", &[Poll, Report, Reply, Poll], false),
        ("a poll that saw the reply has ended", &[Poll, Report, Reply, Poll, Report], true),
        ("of two replies it has seen one", &[Poll, Report, Reply, Poll, Reply, Report], false),
        ("it continues elsewhere", &[Poll, Hold, Report], false),
        ("it continued elsewhere between two polls", &[Poll, Hold, Report, Release], true),
        ("two things continue elsewhere, one is over", &[Poll, Hold, Hold, Report, Release], false),
        ("a spare release is harmless", &[Poll, Report, Release, Hold], false),
        ("a report without a poll says nothing", &[Report], false),
    ];
    for (row, happens, is_idle) in rows {
        let mut progress = Progress::default();
        for one in *happens {
            match one {
                Reply => _ = progress.reply(),
                Poll => progress.begin_poll(),
                Report => progress.report(),
                Hold => progress.hold(),
                Release => progress.release(),
            }
        }
        assert_eq!(progress.is_idle(), *is_idle, "{row}: {happens:?}");
    }
}

#[test]
fn a_reply_is_seen_by_a_poll_that_began_after_it() {
    let mut progress = Progress::default();
    progress.begin_poll();
    let first = progress.reply();
    assert!(progress.is_polled());
    progress.report();
    assert!(!progress.has_seen(first), "the poll began before the reply");
    progress.begin_poll();
    assert!(!progress.has_seen(first), "the poll that sees it has not ended");
    progress.report();
    assert!(progress.has_seen(first) && !progress.has_seen(first + 1));
    progress.begin_poll();
    assert!(progress.has_seen(first), "a seen reply stays seen during the next poll");
}

/// The step `a` of a run with these events, each in a separate entry.
fn point_of(events: &[Event]) -> Point {
    let mut log = vec![vec![run_started()], vec![claimed("w-1", at(30))]];
    log.extend(events.iter().cloned().map(|event| vec![event]));
    run_of(log).points[&path("a")].clone()
}

/// Name of the rule, events of the run, whether the step runs here and whether its code is elsewhere, decision.
type BeginRow = (&'static str, Vec<Event>, (bool, bool), Begin);

#[test]
fn a_step_that_is_reached_begins_by_its_record() {
    let dispatched: Event = StepStarted {
        point: path("a"),
        attempt: 1,
        compensate: false,
        task: Some("t-1".parse().unwrap()),
        deadline: None,
    }
    .into();
    let held: Event =
        StepFailed { point: path("a"), attempt: 3, at: at(0), error: fault("no"), retry_at: None, held: true }.into();
    let deaths = |count: u32| {
        let claims = (0..count).map(|owner| claimed(&format!("w-{}", owner + 2), at(60)));
        std::iter::once(begun("a")).chain(claims).collect::<Vec<_>>()
    };
    let max = limits::current().interruptions_max;
    let rows: Vec<BeginRow> = vec![
        ("it runs here", vec![begun("a")], (true, false), Begin::Wait),
        ("its worker released the run", vec![begun("a")], (false, false), Begin::Rerun { attempt: 1 }),
        ("its worker died", deaths(1), (false, false), Begin::Rerun { attempt: 1 }),
        ("too many workers died", deaths(max), (false, false), Begin::Lost { attempt: 1, workers: max }),
        ("its code is elsewhere by now", vec![begun("a")], (false, true), Begin::Lost { attempt: 1, workers: 1 }),
        ("a task runs it", vec![dispatched.clone()], (false, true), Begin::Wait),
        (
            "it failed, and its time has come",
            vec![begun("a"), broken("a", Some(at(5)))],
            (false, false),
            Begin::Start { attempt: 2 },
        ),
        (
            "it failed, and its time has not come",
            vec![begun("a"), broken("a", Some(at(11)))],
            (false, false),
            Begin::RetryAt(at(11)),
        ),
        (
            "its failure paused the run: it starts over",
            vec![begun("a"), held.clone()],
            (false, false),
            Begin::Start { attempt: 1 },
        ),
        (
            "its task failed and paused the run: another task",
            vec![dispatched, held],
            (false, true),
            Begin::Start { attempt: 4 },
        ),
        ("it is completed", vec![begun("a"), done("a")], (false, false), Begin::Settled),
        ("it failed for good", vec![begun("a"), broken("a", None)], (false, false), Begin::Settled),
        ("it was skipped", vec![skipped("a")], (false, false), Begin::Settled),
        ("it is a sleep", vec![asleep("a", at(5), true)], (false, false), Begin::Wait),
    ];
    assert_eq!(Begin::of(None, at(10), false, false), Begin::New);
    for (row, events, (runs, is_dispatched), begin) in rows {
        assert_eq!(Begin::of(Some(&point_of(&events)), at(10), runs, is_dispatched), begin, "{row}");
    }
}

#[test]
fn the_consequence_of_a_failed_attempt_depends_on_its_owner() {
    let plain = Retry::times(1).jitter(0.0);
    let graph = |on_failure| Owner::Graph(on_failure);
    let error = fault("no").at(&path("a"));
    let end = AfterFailure::EndRun(error.clone());
    let again = AfterFailure::RetryAt(at(11));
    use Outcome::{Permanent, Retryable};
    let rows = [
        ("retries left", Retryable, 1, true, graph(OnFailure::Fail), false, again.clone()),
        ("retries left, of a function", Retryable, 1, true, Owner::Code, false, again.clone()),
        ("retries left, and the run would be paused", Retryable, 1, true, graph(OnFailure::Pause), false, again),
        ("no retries left", Retryable, 2, true, graph(OnFailure::Fail), false, end.clone()),
        ("permanent", Permanent, 1, true, graph(OnFailure::Fail), false, end.clone()),
        ("a task was retried elsewhere", Retryable, 1, false, graph(OnFailure::Fail), false, end),
        ("the graph pauses", Permanent, 1, true, graph(OnFailure::Pause), false, AfterFailure::Pause),
        ("the graph continues", Permanent, 1, true, graph(OnFailure::Continue), false, AfterFailure::Continue),
        ("the function receives the error", Permanent, 1, true, Owner::Code, false, AfterFailure::ReplyToCode),
        ("a run that ends retries nothing", Retryable, 1, true, graph(OnFailure::Fail), true, AfterFailure::Nothing),
        ("a run that ends is not paused", Permanent, 1, true, graph(OnFailure::Pause), true, AfterFailure::Nothing),
        ("a run that ends continues", Permanent, 1, true, graph(OnFailure::Continue), true, AfterFailure::Continue),
        ("a run that ends tells its function", Retryable, 1, true, Owner::Code, true, AfterFailure::ReplyToCode),
    ];
    for (row, outcome, attempt, retries, owner, run_ends, then) in rows {
        let failed = FailedAttempt { step: path("a"), attempt, at: at(10), outcome, error: fault("no"), after: None };
        let policy = Policy { retry: retries.then(|| plain.clone()), owner, run_ends };
        let (event, got) = failed.settle(&policy, 0.5);
        assert_eq!(got, then, "{row}");
        let retry_at = if let AfterFailure::RetryAt(at) = &then { Some(*at) } else { None };
        let held = then == AfterFailure::Pause;
        let want = StepFailed { point: path("a"), attempt, at: at(10), error: error.clone(), retry_at, held };
        assert_eq!(event, want, "{row}");
    }
}

#[test]
fn an_outcome_after_the_deadline_is_a_timeout_at_the_deadline() {
    let attempt = Attempt::new(2, at(10), Duration::from_secs(5));
    let rows = [("in time", 14, Ok(at(14))), ("at the deadline", 15, Ok(at(15))), ("too late", 16, Err(at(15)))];
    for (row, second, accepted) in rows {
        assert_eq!(attempt.accept(at(second)), accepted, "{row}");
    }
    assert!(!attempt.is_overdue(at(14)) && attempt.is_overdue(at(15)));
}
