//! The tables of the design, row by row: failures, statuses, versions, retries, hints, names.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use common::*;
use wigwag_core::*;

fn secs(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

#[test]
fn the_consequence_of_a_failure_follows_the_table_of_failures() {
    let retry = Retry::times(2);
    let rows = [
        (Outcome::Success, 1, false, Then::GoOn),
        (Outcome::Success, 3, true, Then::GoOn),
        (Outcome::Retryable, 1, false, Then::Retry(secs(1.0))),
        (Outcome::Retryable, 2, true, Then::Retry(secs(2.0))),
        (Outcome::Retryable, 3, false, Then::Fail),
        (Outcome::Retryable, 3, true, Then::CompensateThenFail),
        (Outcome::Permanent, 1, false, Then::Fail),
        (Outcome::Permanent, 1, true, Then::CompensateThenFail),
        (Outcome::Cancelled, 1, false, Then::Cancel),
        (Outcome::Cancelled, 1, true, Then::CompensateThenCancel),
    ];
    for (outcome, attempt, to_undo, then) in rows {
        assert_eq!(
            after_failure(outcome, attempt, &retry, to_undo, 0.5),
            then,
            "{outcome:?} {attempt} to undo: {to_undo}"
        );
    }
}

#[test]
fn retries_are_delayed_by_the_policy() {
    let usual = Retry::default();
    let plain = Retry::times(9).jitter(0.0);
    let rows = [
        ("the usual: 1 s", &usual, 1, 0.5, Some(1.0)),
        ("times 2", &usual, 2, 0.5, Some(2.0)),
        ("times 2", &usual, 3, 0.5, Some(4.0)),
        ("three retries after the first try", &usual, 4, 0.5, None),
        ("a quarter shorter", &usual, 1, 0.0, Some(0.75)),
        ("a quarter longer", &usual, 1, 1.0, Some(1.25)),
        ("chance is held between 0 and 1", &usual, 1, 7.0, Some(1.25)),
        ("below the cap", &plain, 6, 0.9, Some(32.0)),
        ("at the cap", &plain, 7, 0.9, Some(60.0)),
        ("long at the cap", &Retry::times(u32::MAX).jitter(0.0), 1_000_000, 0.5, Some(60.0)),
        ("another beginning", &plain.clone().first(secs(0.1)), 2, 0.5, Some(0.2)),
        ("another factor", &plain.clone().factor(3.0), 3, 0.5, Some(9.0)),
        ("another cap", &plain.clone().cap(secs(5.0)), 4, 0.5, Some(5.0)),
        ("none", &Retry::never(), 1, 0.5, None),
    ];
    for (row, retry, attempt, chance, delay) in rows {
        assert_eq!(retry.delay_after(attempt, chance), delay.map(secs), "{row}, after attempt {attempt}");
    }
}

/// Rows and columns in the order of `Status::ALL`; the possible next statuses are marked by their column.
const MOVES: [(&str, &str); 8] = [
    ("pending", "running paused failed cancelled"),
    ("running", "paused waiting_signal compensating completed failed cancelled"),
    ("paused", "running compensating cancelled"),
    ("waiting_signal", "running paused compensating cancelled"),
    ("compensating", "failed cancelled"),
    ("completed", ""),
    ("failed", ""),
    ("cancelled", ""),
];

#[test]
fn a_status_changes_only_as_the_table_allows() {
    assert_eq!(Status::ALL.map(Status::name), MOVES.map(|(from, _)| from));
    for (from, allowed) in MOVES {
        let allowed: BTreeSet<&str> = allowed.split_whitespace().collect();
        let from: Status = from.parse().unwrap();
        for to in Status::ALL {
            assert_eq!(from.may_become(to), allowed.contains(to.name()), "{from} to {to}");
        }
        assert_eq!(from.is_final(), allowed.is_empty(), "{from}");
    }
}

/// A run of that status with a step `a` that can be undone and, unless it ended, an open wait.
fn run_that_is(status: Status) -> Run {
    let begin = vec![run_started(), begun_undoable("a"), waiting("s", None, false)];
    let drive = vec![claimed("w1", at(60))];
    let last = match status {
        Status::Pending => return run_of(vec![begin]),
        Status::Running => return run_of(vec![begin, drive]),
        Status::Paused => paused(PauseCause::ByHand),
        Status::WaitingSignal => parked(),
        Status::Compensating => undoing("a"),
        Status::Completed => completed(),
        Status::Failed => failed("no"),
        Status::Cancelled => cancelled(),
    };
    let run = run_of(vec![begin, drive, vec![last]]);
    assert_eq!(run.status, status);
    run
}

#[test]
fn an_event_changes_the_status_as_the_table_allows_or_is_rejected() {
    // What each status becomes, in the order of `Status::ALL`; `-` is refused.
    let rows = [
        (claimed("w2", at(99)), "running running paused running compensating - - -"),
        (parked(), "pending waiting_signal paused waiting_signal compensating - - -"),
        (paused(PauseCause::Version), "paused paused paused paused - - - -"),
        (resumed(secs(1.0)), "running running running running - - - -"),
        (undoing("a"), "- compensating compensating compensating compensating - - -"),
        (completed(), "- completed - - - - - -"),
        (failed("no"), "failed failed - - failed - - -"),
        (cancelled(), "cancelled cancelled cancelled cancelled cancelled - - -"),
        (restarted(), "running running running running running running running running"),
        (run_started(), "- - - - - - - -"),
    ];
    for (event, becomes) in rows {
        let becomes: Vec<&str> = becomes.split_whitespace().collect();
        assert_eq!(becomes.len(), Status::ALL.len());
        for (from, expected) in Status::ALL.into_iter().zip(becomes) {
            let mut run = run_that_is(from);
            let case = format!("{} of a run that is {from}", event.name());
            match add(&mut run, vec![event.clone()]) {
                Ok(()) => assert_eq!(run.status.name(), expected, "{case}"),
                Err(refusal) => {
                    assert_eq!("-", expected, "{case}: {refusal}");
                    assert!(refusal.to_string().contains(event.name()), "{case}: {refusal}");
                }
            }
        }
    }
}

#[test]
fn a_final_status_changes_only_by_a_restart() {
    for status in Status::ALL.into_iter().filter(|status| status.is_final()) {
        let mut run = run_that_is(status);
        add(&mut run, vec![restarted()]).unwrap();
        assert_eq!((run.status, run.restarts), (Status::Running, 1));
        assert_eq!((run.result, run.error, run.points.len()), (None, None, 0));
    }
}

#[test]
fn a_parked_run_waits_for_a_signal_only_if_a_wait_is_open() {
    let rows = [
        ("a=running", Status::Running),
        ("a=retrying", Status::Running),
        ("s=received", Status::Running),
        ("s=waiting", Status::WaitingSignal),
        ("a=done s=waiting", Status::WaitingSignal),
    ];
    for (points, status) in rows {
        let mut run = run_with(points);
        add(&mut run, vec![RunParked { next_at: Some(at(70)), hints: vec![] }.into()]).unwrap();
        assert_eq!((run.status, run.next_at, run.parked, run.lease), (status, Some(at(70)), true, None), "{points}");
    }
}

#[test]
fn an_event_that_cannot_follow_is_rejected_by_name() {
    let rows = [
        ("a=running", begun("a"), "`a` is there already"),
        ("a=done", begun("a"), "`a` is there already"),
        ("a=done", done("a"), "`a` is no open step"),
        ("a=failed", broken("a", None), "`a` is no open step"),
        ("a=skipped", done("a"), "`a` is no open step"),
        ("a=running", skipped("a"), "`a` is there already"),
        ("", done("a"), "no point `a`"),
        ("a=running", received("a"), "`a` is no open wait"),
        ("", received("s"), "no point `s`"),
        ("s=received", closed("s", Closing::Finished), "`s` is no open wait"),
        ("a=running", SleepFired { point: path("a"), at: at(3) }.into(), "`a` is no open sleep"),
        ("s=waiting", done("s"), "`s` is no open step"),
        ("s=received", timed_out("s", None), "`s` is no open wait"),
        ("a=done", undone("a"), "`a` is not being undone"),
        ("a=done", not_undone("a", Some(at(3))), "`a` is not being undone"),
    ];
    for (points, event, words) in rows {
        let mut run = run_with(points);
        let refusal = add(&mut run, vec![event]).unwrap_err().to_string();
        assert!(refusal.contains(words), "{points}: {refusal}");
    }
}

#[test]
fn a_log_begins_with_entry_1_and_has_no_gap() {
    let begin = |seq, events| Run::begin(the_run(), &entry(seq, events)).unwrap_err().to_string();
    assert!(begin(1, vec![claimed("w1", at(1))]).contains("does not begin with `run.started`"));
    assert!(begin(2, vec![run_started()]).contains("begins with entry 2"));
    let task = Run::begin("task/order-1".parse().unwrap(), &entry(1, vec![run_started()]));
    assert!(task.unwrap_err().to_string().contains("is not what its log says"));
    let mut run = run_with("a=done");
    let first = run_of(vec![vec![run_started(), claimed("w1", at(9)), begun("a")]]);
    assert_eq!((first.points[&path("a")].seq, first.points[&path("a")].place), (1, 2));
    let gap = run.apply(&entry(4, vec![begun("b")])).unwrap_err().to_string();
    assert!(gap.contains("entry 4 of `workflow/order-1` does not follow entry 2"), "{gap}");
}

fn asked([puts, gets, lists, deletes]: [u64; 4]) -> Requests {
    Requests { puts, gets, lists, deletes }
}

#[test]
fn the_store_requests_of_a_run_are_the_sum_of_those_of_its_entries() {
    let most = u64::MAX;
    let rows: [(&[[u64; 4]], [u64; 4]); 6] = [
        (&[[0, 0, 0, 0]], [0, 0, 0, 0]),
        (&[[3, 0, 0, 0]], [3, 0, 0, 0]),
        (&[[3, 1, 0, 0], [1, 0, 2, 5]], [4, 1, 2, 5]),
        (&[[0, 0, 0, 0], [1, 2, 3, 4]], [1, 2, 3, 4]),
        (&[[1, 2, 3, 4], [0, 0, 0, 0], [1, 1, 1, 1]], [2, 3, 4, 5]),
        (&[[most, 1, 0, most], [1, most, most, most]], [most, most, most, most]),
    ];
    for (counts, sum) in rows {
        let events = |seq| if seq == 1 { vec![run_started()] } else { vec![claimed("w1", at(9))] };
        let log: Vec<Entry> = (1..)
            .zip(counts)
            .map(|(seq, counts)| Entry { requests: asked(*counts), ..entry(seq, events(seq)) })
            .collect();
        let mut run = Run::begin(the_run(), &log[0]).unwrap();
        for _ in 0..2 {
            log.iter().for_each(|entry| run.apply(entry).unwrap());
            assert_eq!(run.requests, asked(sum), "{counts:?}: folded twice is folded once");
        }
        let read = read_state(the_run(), &state_to_json(&run, "by")).unwrap();
        assert_eq!(read.requests, run.requests, "{counts:?}: a snapshot has them");
    }
}

#[test]
fn requests_are_stored_only_where_there_are_some_and_dollars_never() {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let mut run = run_with("");
    let mut next = entry(run.seq + 1, Vec::new());
    assert!(!text(next.to_json()).contains("requests"));
    assert!(!text(state_to_json(&run, "by")).contains("requests"));
    assert!(!text(shown_to_json(&run, "by", 0.0)).contains("dollars"), "nobody counted");
    run.stage_requests(&mut next, asked([2, 0, 0, 1]));
    assert!(text(next.to_json()).ends_with(",\"requests\":{\"puts\":2,\"deletes\":1}}\n"));
    assert!(!text(state_to_json(&run, "by")).contains("dollars"));
    let shown = text(shown_to_json(&run, "by", 0.25));
    assert!(shown.contains(",\"requests\":{\"puts\":2,\"deletes\":1},\"dollars\":0.25,"), "{shown}");
    assert_eq!(read_state(the_run(), shown.as_bytes()), Ok(run), "the displayed form decodes like the stored one");
}

#[test]
fn new_code_fits_an_old_run_as_the_table_of_versions_says() {
    // The change, the old steps, how far the run is, the new steps, what does not fit.
    let rows = [
        ("same hash", "a, b<a", "a=running", "b<a, a", ""),
        ("added at the end", "a, b<a", "a=done b=running", "a, b<a, c<b", ""),
        ("added beside", "a, b<a", "a=done", "a, b<a, c<a", ""),
        ("added, all else passed", "a, b<a", "a=done b=done", "a, b<a, c<b", ""),
        ("removed, completed", "a, b<a", "a=done", "b", ""),
        ("removed, completed, between two", "a, b<a, c<a+b", "a=done b=done", "a, c<a", ""),
        ("removed, a completed signal", "?s, b<s", "s=received", "b", ""),
        ("removed, skipped", "a, b<a", "a=skipped", "b", ""),
        ("removed, not yet run", "a, b<a", "a=done", "a", "b"),
        ("removed, running", "a, b<a", "a=running", "b", "a b"),
        ("removed, between two tries", "a, b", "a=retrying", "b", "a"),
        ("removed, a signal still waited for", "?s, b", "s=waiting", "b", "s"),
        ("dependency added, not yet run", "a, b, c<a", "", "a, b, c<a+b", "c"),
        ("dependency added, finished", "a, b, c<a", "a=done c=done", "a, b, c<a+b", "c"),
        ("dependency dropped", "a, b<a", "a=done", "a, b", "b"),
        ("dependency swapped", "a, b, c<a", "a=done", "a, b, c<b", "c"),
        ("new before a finished one", "a, b<a", "a=done b=done", "a, n<a, b<n", "b n"),
        ("new before a running one", "a", "a=running", "n, a<n", "a n"),
        ("new before one not yet begun", "a, b<a", "a=done", "a, n<a, b<n", "b"),
        ("renamed, not yet run", "a, b<a", "a=done", "a, bb<a", "b"),
        ("renamed, finished, waited for", "a, b<a", "a=done", "aa, b<aa", "b"),
        ("another kind, not yet passed", "a, s<a", "a=done", "a, ?s<a", "s"),
        ("another kind, waited for", "?s", "s=waiting", "s", "s"),
        ("another kind, passed", "?s, b<s", "s=received", "s, b<s", ""),
    ];
    for (change, old, points, new, misfits) in rows {
        let found = version::misfits(&run_with(points), &graph(old), &graph(new));
        assert_eq!(found, paths(misfits), "{change}");
    }
}

#[test]
fn functions_are_compared_while_they_are_replayed() {
    let of: TypeName = "order".parse().unwrap();
    let (old, new) = (Definition::function(of.clone(), 1), Definition::function(of, 2));
    assert_ne!(old.hash, new.hash);
    assert_eq!(version::misfits(&run_with("a=running"), &old, &new), []);
    let rows =
        [(Some(PointKind::Sleep), "a (recorded as step, now a sleep)"), (None, "a (recorded as step, not reached)")];
    for (found, words) in rows {
        assert_eq!(version::describe(&path("a"), PointKind::Step, found), words);
    }
}

/// `a>b c>-` renames `a` and passes over `c`.
fn mapping(text: &str) -> BTreeMap<Path, Option<Path>> {
    let pairs = text.split_whitespace().map(|word| word.split_once('>').unwrap());
    pairs.map(|(old, new)| (path(old), (new != "-").then(|| path(new)))).collect()
}

#[test]
fn a_migration_renames_and_skips_and_checks_the_result() {
    // The progress of the run, the new steps, the mapping, and the result: the steps after it, or the text
    // of the error.
    let rows = [
        ("a=done b=running", "a, b<a", "", Ok("a=completed b=running")),
        ("a=done b=running", "a, c<a", "b>c", Ok("a=completed c=running")),
        ("a=done b=done", "x, b<x", "a>x", Ok("b=completed x=completed")),
        ("a=done b=running", "a, c<a", "b>-", Ok("a=completed b=skipped")),
        ("a=done", "a, n<a, c<n", "n>-", Ok("a=completed n=skipped")),
        ("a=done", "a, c<a", "b>c", Ok("a=completed")),
        ("a=done b=done", "a", "", Ok("a=completed b=completed")),
        ("s=received b=running", "?s, b<s", "", Ok("b=running s=completed")),
        ("s=waiting", "?t", "s>t", Ok("t=running")),
        ("a=running a/x=done a/y=waiting", "b", "a>b", Ok("b=running b/x=completed b/y=running")),
        ("a=running a/y=waiting", "b", "a>-", Ok("a=skipped")),
        ("a=running aa=running", "b, aa", "a>b", Ok("aa=running b=running")),
        ("a=done b=running", "a, c<a", "", Err("at `b`: rename or skip")),
        ("s=waiting", "?t", "", Err("at `s`: rename or skip")),
        ("s=waiting", "s", "", Err("at `s`: rename or skip")),
        ("a=done b=done", "a, n<a, b<n", "", Err("at `n`: rename or skip")),
        ("a=running b=done", "a, b<a", "", Err("at `a`: rename or skip")),
        ("a=running", "b", "a>c", Err("`a` cannot become `c`, which is no step of `order`")),
        ("a=running b=running", "b", "a>b", Err("`a` cannot become `b`, which the run has already")),
        ("a=done b=done", "c", "a>c b>c", Err("cannot both become `c`")),
        ("a=done", "c", "a>c c>-", Err("cannot become `c`, which is passed over")),
        ("b=done", "a, b, c", "a>c", Err("`a` was not run and is a step of `order`")),
    ];
    for (points, new, map, expected) in rows {
        let mut run = run_with(points);
        let case = format!("{points} to {new} by {map}");
        let outcome = version::migrate(&run, &graph(new), &mapping(map)).map(|migration| {
            let version::Migration { renamed, skipped } = migration;
            let (definition_hash, version, control, refused) = ("new".into(), None, None, None);
            let event = RunMigrated { definition_hash, version, renamed, skipped, control, refused, by: None };
            add(&mut run, vec![event.into()]).unwrap();
            let points: Vec<String> =
                run.points.iter().map(|(path, point)| format!("{path}={}", point.status)).collect();
            points.join(" ")
        });
        match (outcome, expected) {
            (Ok(points), expected) => assert_eq!(Ok(&*points), expected, "{case}"),
            (Err(refusal), Err(words)) => assert!(refusal.to_string().contains(words), "{case}: {refusal}"),
            (Err(refusal), Ok(_)) => panic!("{case}: {refusal}"),
        }
    }
}

#[test]
fn the_steps_after_a_step_are_all_that_depend_on_it() {
    let definition = graph("a, b<a, c<a, d<b+c, e");
    let rows = [("a", "a b c d"), ("b", "b d"), ("c/x", "c d"), ("d", "d"), ("e", "e")];
    for (from, after) in rows {
        assert_eq!(version::downstream(&definition, &path(from)), paths(after).into_iter().collect(), "{from}");
    }
}

fn hint(due: Time) -> Hint {
    Hint { shard: 0, due, kind: "00000000".into(), run: "order-1".parse().unwrap(), nonce: "n".into() }
}

#[test]
fn a_worker_that_found_a_wake_up_acts_by_the_state_of_the_run() {
    let leased = |peer: Option<&str>| {
        let claim = RunClaimed { owner: "w1".into(), peer: peer.map(Into::into), until: at(100), hints: vec![] };
        run_of(vec![vec![run_started(), claim.into()]])
    };
    let (lone, local) = (leased(None), leased(Some("p1")));
    let ended = run_that_is(Status::Failed);
    let (pending, asleep) = (run_that_is(Status::Pending), run_that_is(Status::WaitingSignal));
    let later = Look::Leave { until: at(102) };
    // The run, the time, whether the owner's process lives, and what to do; the clock is off by 2 s at most.
    let rows = [
        ("no run", None, 0, None, Look::Unborn),
        ("no run after an hour", None, 3_600, None, Look::Unborn),
        ("no run after more", None, 3_601, None, Look::Orphan),
        ("ended", Some(&ended), 50, None, Look::Ended),
        ("not yet claimed", Some(&pending), 50, None, Look::Free),
        ("parked", Some(&asleep), 50, None, Look::Free),
        ("leased", Some(&lone), 50, None, later.clone()),
        ("leased by one who cannot prove it", Some(&lone), 50, Some(false), later.clone()),
        ("leased, maybe over", Some(&lone), 102, None, later.clone()),
        ("leased, over", Some(&lone), 103, None, Look::Free),
        ("the process lives", Some(&local), 50, Some(true), later.clone()),
        ("the process is unknown", Some(&local), 50, None, later),
        ("the process is dead", Some(&local), 50, Some(false), Look::Free),
        ("the process lives, but the lease is over", Some(&local), 103, Some(true), Look::Free),
    ];
    for (row, run, now, lives, verdict) in rows {
        let found = look(run, &hint(at(0)), at(now), Duration::from_secs(2), |peer| {
            assert_eq!(peer, "p1");
            lives
        });
        assert_eq!(found, verdict, "{row}");
    }
}

#[test]
fn a_hint_knows_its_owner_and_its_line() {
    let mut lease = hint(at(1));
    lease.nonce = Hint::lease_nonce("w.1", 7);
    assert_eq!((lease.owner(), lease.generation()), (Some("w.1"), 0));
    let plain = hint(at(1));
    let second = plain.successor(at(2));
    let third = second.successor(at(3));
    assert_eq!((plain.owner(), plain.generation(), third.generation(), third.due), (None, 0, 2, at(3)));
    let other = Hint { nonce: "m".into(), ..plain.clone() };
    let strange = Hint { run: "order-2".parse().unwrap(), ..plain.clone() };
    let rows = [
        (&plain, Key::Due(plain.clone()).to_string(), true),
        (&third, Key::Due(plain.clone()).to_string(), true),
        (&third, Key::Due(second).to_string(), true),
        (&other, Key::Due(plain.clone()).to_string(), false),
        (&strange, Key::Due(plain.clone()).to_string(), false),
        (&plain, "not a key".into(), false),
    ];
    for (hint, listed, descends) in rows {
        assert_eq!(hint.descends_from(&listed), descends, "{hint:?} from {listed}");
    }
}

#[test]
fn names_and_ids_are_checked_where_text_enters() {
    let long = |count| "x".repeat(count);
    let many = |count| vec!["x".repeat(63); count].join("/");
    // The text, and whether it is an id, a name, a type, a point.
    let rows = [
        ("a".to_owned(), "id name type point"),
        ("A-z_0.9".into(), "id name type point"),
        ("a:b".into(), "id type"),
        ("a/b".into(), "point"),
        ("a#2".into(), "point"),
        ("a#10/b.c#3".into(), "point"),
        ("a/.delay".into(), "point"),
        ("a.json.b".into(), "id name type point"),
        (long(64), "id name type point"),
        (long(65), "id type"),
        (long(100), "id type"),
        (long(101), "type"),
        (long(190), "type"),
        (long(191), ""),
        (many(8), "point"),
        (many(8) + "x", "point"),
        (many(8) + "/x", ""),
        (String::new(), ""),
        (".".into(), ""),
        (".control".into(), ""),
        (".input".into(), ""),
        ("a.json".into(), ""),
        ("a b".into(), ""),
        ("a~b".into(), ""),
        ("ä".into(), ""),
        ("a\n".into(), ""),
        ("a//b".into(), ""),
        ("/a".into(), ""),
        ("a/".into(), ""),
        ("a#1".into(), ""),
        ("a#02".into(), ""),
        ("a#".into(), ""),
        ("a#2#3".into(), ""),
    ];
    for (text, good) in rows {
        let is = [
            text.parse::<RunId>().map(|_| "id"),
            text.parse::<Name>().map(|_| "name"),
            text.parse::<TypeName>().map(|_| "type"),
            text.parse::<Path>().map(|_| "point"),
        ];
        let found: Vec<&str> = is.iter().flatten().copied().collect();
        assert_eq!(found.join(" "), good, "{text:?}");
        for refusal in is.into_iter().filter_map(Result::err) {
            assert!(refusal.to_string().contains("want"), "{refusal}");
        }
    }
}

#[test]
fn times_have_one_text() {
    let rows = [
        ("2026-01-28T12:00:00.000000Z", true),
        ("1970-01-01T00:00:00.000000Z", true),
        ("9999-12-30T22:00:00.000000Z", true),
        ("9999-12-30T22:00:00.000001Z", false),
        ("1969-12-31T23:59:59.999999Z", false),
        ("2026-01-28T12:00:00Z", false),
        ("2026-01-28T12:00:00.0000000Z", false),
        ("2026-01-28T13:00:00.000000+01:00", false),
        ("2026-01-28 12:00:00.000000Z", false),
        ("", false),
    ];
    for (text, good) in rows {
        assert_eq!(text.parse::<Time>().map(|time| time.to_string()).ok(), good.then(|| text.into()), "{text}");
    }
    assert_eq!(at(0).day(), "2026-01-28");
    assert_eq!(at(1).after(Duration::from_micros(1)).next_second(), at(2));
    assert_eq!(at(1).next_second(), at(1));
    assert_eq!(Time::MAX.after(secs(1.0)), Time::MAX);
    assert_eq!((at(1).since(at(2)), at(2).since(at(1))), (Duration::ZERO, secs(1.0)));
}

#[test]
fn ids_that_are_made_are_ids() {
    let id: RunId = "order-1".parse().unwrap();
    let rows = [("a", 0, "order-1:a"), ("a#2/b", 0, "order-1:a::2:b"), ("a", 1, "order-1:a::r1")];
    for (point, restarts, child) in rows {
        assert_eq!(id.child(&path(point), restarts).as_str(), child);
    }
    let deep = path(&["x".repeat(60), "y".repeat(60)].join("/"));
    let (first, again) = (id.child(&deep, 0), id.child(&deep, 1));
    assert_eq!((first.as_str().len(), again.as_str().len()), (40, 40));
    assert_ne!(first, again);
    let (early, late) = (RunId::at(at(1), u128::MAX), RunId::at(at(2), 0));
    assert!(early < late && early.as_str().len() == 26, "{early} {late}");
    assert!(RunId::new(early.as_str()).is_ok());
}

#[test]
fn a_definition_that_cannot_be_executed_is_rejected_with_its_steps() {
    let rows = [
        ("a, b<x", "step `b` of workflow `order` comes after `x`, which is no step of it: `a`, `b`"),
        ("a, b, a", "workflow `order` has two steps called `a`"),
        ("a<a", "wait for each other: `a` after `a`"),
        ("a, b<a+d, c<b, d<c", "wait for each other: `b` after `d` after `c` after `b`"),
        ("x<y, y, z<x, a<b+y, b<a", "wait for each other: `a` after `b` after `a`"),
    ];
    for (steps, words) in rows {
        let refusal = Definition::graph("order".parse().unwrap(), nodes(steps)).unwrap_err().to_string();
        assert!(refusal.contains(words), "{steps}: {refusal}");
    }
    let latest = |node: &mut Node| node.signal.iter_mut().for_each(|signal| signal.mode = Mode::Latest);
    let typed = |node: &mut Node| node.signal.iter_mut().for_each(|signal| signal.schema = Some(true.into()));
    let change: [&dyn Fn(&mut Node); 2] = [&latest, &typed];
    for change in change {
        let mut steps = nodes("a, ?s, ?t<a");
        change(&mut steps[2]);
        let refusal = Definition::graph("order".parse().unwrap(), steps.clone()).unwrap_err().to_string();
        let words = "`s` and `t` of workflow `order` wait for signal `go` with different modes or schemas";
        assert!(refusal.contains(words), "{refusal}");
        change(&mut steps[1]);
        assert!(Definition::graph("order".parse().unwrap(), steps).is_ok(), "what they say is the same");
    }
    let empty = Definition::graph("order".parse().unwrap(), vec![]).unwrap_err().to_string();
    assert!(empty.contains("has no steps"), "{empty}");
}

#[test]
fn a_hash_follows_names_kinds_and_dependencies_alone() {
    let base = "a, b<a, c<a+b";
    let changed = |change: fn(&mut Node)| {
        let mut steps = nodes(base);
        steps.iter_mut().for_each(change);
        Definition::graph("order".parse().unwrap(), steps).unwrap().hash
    };
    let rows = [
        ("order of writing", graph("c<a+b, a, b<a").hash, true),
        ("order of dependencies", graph("a, b<a, c<b+a").hash, true),
        ("a dependency said twice", graph("a, b<a+a, c<a+b").hash, true),
        ("retries", changed(|node| node.retry = Retry::never()), true),
        ("timeout", changed(|node| node.timeout = Duration::from_secs(1)), true),
        ("delay", changed(|node| node.delay = Some(Duration::from_secs(1))), true),
        ("compensation", changed(|node| node.compensate = true), true),
        ("queue", changed(|node| node.queue = Some(name("q"))), true),
        ("what a failure does", changed(|node| node.on_failure = OnFailure::Pause), true),
        ("a name", graph("a, b<a, d<a+b").hash, false),
        ("a kind", graph("a, b<a, ?c<a+b").hash, false),
        ("a dependency", graph("a, b<a, c<b").hash, false),
        ("a step more", graph("a, b<a, c<a+b, d").hash, false),
    ];
    for (what, hash, same) in rows {
        assert_eq!(hash == graph(base).hash, same, "{what}");
    }
    // A hash that changes by itself would pause every run there is.
    assert_eq!(graph(base).hash, "sha256:adda463efe6eef867c31ae9bbc6fca15c5ce6262851bd308b26ee8f4f368616d");
}

#[test]
fn a_hash_covers_the_properties_of_a_signal_that_senders_need() {
    let changed = |change: fn(&mut SignalSpec)| {
        let mut steps = nodes("a, ?s<a");
        steps[1].signal.iter_mut().for_each(change);
        Definition::graph("order".parse().unwrap(), steps).unwrap().hash
    };
    let rows = [
        ("its name", changed(|signal| signal.name = name("other")), false),
        ("its mode", changed(|signal| signal.mode = Mode::Latest), false),
        ("its schema", changed(|signal| signal.schema = Some(true.into())), false),
        ("how many are wanted", changed(|signal| signal.quorum = 2), true),
        ("how long it is waited for", changed(|signal| signal.timeout = Some(secs(1.0))), true),
    ];
    for (what, hash, same) in rows {
        assert_eq!(hash == graph("a, ?s<a").hash, same, "{what}");
    }
}

#[test]
fn a_graph_is_ready_where_all_before_is_passed() {
    let mut lenient = graph("b<a, a, c<a");
    lenient.steps[1].on_failure = OnFailure::Continue;
    let strict = graph("d<b+c, c<a, b<a, a");
    // The steps, the progress of the run, and the ready steps in order of declaration; `.` when all have ended.
    let rows = [
        (&strict, "", "a"),
        (&strict, "a=running", "a"),
        (&strict, "a=retrying", "a"),
        (&strict, "a=done", "c b"),
        (&strict, "a=done b=done", "c"),
        (&strict, "a=done b=done c=skipped", "d"),
        (&strict, "a=done b=done c=done d=done", "."),
        (&lenient, "a=failed", "b c"),
        (&lenient, "a=failed b=done", "c"),
        (&lenient, "a=failed b=done c=skipped", "."),
    ];
    for (definition, points, ready) in rows {
        let frontier = Frontier::new(definition, &run_with(points));
        let found: Vec<Path> = frontier.ready(definition).map(|node| node.name.clone()).collect();
        let expected = if ready == "." { Vec::new() } else { paths(ready) };
        assert_eq!((found, frontier.is_done()), (expected, ready == "."), "{points}");
    }
    let failed = Frontier::new(&strict, &run_with("a=failed"));
    assert!(!failed.is_done() && failed.ready(&strict).all(|node| node.name == path("a")), "{failed:?}");
}

#[test]
fn a_frontier_updated_by_a_step_equals_one_created_after_it() {
    let definition = graph("d<b+c, c<a, b<a, a");
    let mut told = Frontier::new(&definition, &run_with(""));
    let rows = [
        ("a", "a=done"),
        ("c", "a=done c=done"),
        ("c", "a=done c=done"),
        ("x", "a=done c=done"),
        ("b", "a=done c=done b=done"),
        ("d", "a=done c=done b=done d=done"),
    ];
    for (passed, points) in rows {
        told.passed(&path(passed));
        let made = Frontier::new(&definition, &run_with(points));
        let names = |frontier: &Frontier| frontier.ready(&definition).map(|node| node.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&told), names(&made), "{points}");
        assert_eq!(told.is_done(), made.is_done(), "{points}");
    }
}

#[test]
fn a_list_of_hints_that_was_damaged_names_nothing_but_hints() {
    let mut run = run_that_is(Status::Running);
    let hint = "due/17/2026-01-28T12:00:00.000000Z~order~order-17~w1-1";
    run.hints = ["", "workflow/other/log/0000000001.json", hint, "due/x"].map(Into::into).into();
    assert_eq!(run.due_hints().collect::<Vec<_>>(), [hint]);
}

#[test]
fn only_a_run_that_waits_for_signals_alone_takes_inline_delivery() {
    let now = Time::from_micros(1_000_000);
    let asleep = run_that_is(Status::WaitingSignal);
    assert!(asleep.waits_only(now));
    for status in [Status::Pending, Status::Running, Status::Paused, Status::Compensating, Status::Failed] {
        assert!(!run_that_is(status).waits_only(now), "{status}");
    }
    let but = |change: fn(&mut Run)| {
        let mut run = asleep.clone();
        change(&mut run);
        run.waits_only(now)
    };
    assert!(!but(|run| run.parked = false), "somebody drives it");
    assert!(!but(|run| run.next_at = Some(Time::from_micros(1_000_000))), "a time has come");
    assert!(but(|run| run.next_at = Some(Time::from_micros(1_000_001))), "it has not");
    let late = |run: &mut Run| {
        run.signals.entry("go".parse().unwrap()).or_default().late.insert("x".into());
    };
    assert!(!but(late), "an earlier signal is to be taken first");
    let child = |run: &mut Run| {
        let point = run.points.values_mut().find(|point| point.wait.is_some()).unwrap();
        point.children = Some(Children::Numbered { count: 1, restarts: 0 });
    };
    assert!(!but(child), "a child may have ended");
}
