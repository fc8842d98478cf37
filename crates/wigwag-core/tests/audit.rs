//! That each question asked of a log can be answered with no.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use common::*;
use wigwag_core::audit::{self, Told};
use wigwag_core::*;

/// A log of entries written as JSON events; entry 1 is a plain birth, and all others are by the owner `w`.
fn log(entries: &[&str]) -> Vec<Entry> {
    let entry = |(place, events): (usize, &str)| Entry {
        seq: place as u64 + 1,
        by: format!("w.{place}"),
        at: at(place as u64),
        events: serde_json::from_str(events).unwrap(),
        requests: Requests::default(),
    };
    let birth = serde_json::to_string(&[run_started()]).unwrap();
    [birth.as_str()].into_iter().chain(entries.iter().copied()).enumerate().map(entry).collect()
}

/// A log that violates a guarantee, with the run left at its start.
fn told(entries: &[&str]) -> Told {
    let log = log(entries);
    let mut told = Told::fold(&the_run(), log[..1].to_vec()).unwrap();
    told.log = log;
    told
}

fn claim(owner: &str, until: u64) -> String {
    format!(r#"{{"type":"run.claimed","owner":"{owner}","until":"{}","hints":[]}}"#, at(until))
}

fn received(point: &str, signal: &str) -> String {
    let taken = format!(r#"[{{"signal":"{signal}"}}]"#);
    let rest = format!(r#""at":"{}","payload":null,"cursor":"","floor":"""#, at(9));
    format!(r#"{{"type":"signal.received","point":"{point}","name":"go","signals":{taken},{rest}}}"#)
}

const WAITING: &str = r#"{"type":"signal.waiting","point":"p","name":"go"}"#;

fn list(events: &[&str]) -> String {
    format!("[{}]", events.join(","))
}

#[track_caller]
fn assert_says(said: &[String], what: &str) {
    assert!(said.iter().any(|said| said.contains(what)), "it says `{what}`: {said:?}");
}

#[test]
fn a_plain_log_breaks_nothing() {
    let (claim, done) = (claim("w", 30), r#"{"type":"run.completed","result":null}"#);
    let told = Told::fold(&the_run(), log(&[&list(&[&claim, done])])).unwrap();
    assert_eq!(audit::of_log(&told), []);
    assert_eq!(told.at(1).unwrap().status, Status::Pending);
    assert_eq!(told.at(2).unwrap(), told.run);
}

#[test]
fn a_signal_that_is_consumed_twice() {
    let once = received("p", "2026-01-28T12:00:05.000000Z_a");
    let told = told(&[&list(&[WAITING, &once]), &list(&[&received("q", "2026-01-28T12:00:05.000000Z_a")])]);
    assert_says(&audit::no_signal_is_consumed_twice(&told), "`2026-01-28T12:00:05.000000Z_a` is consumed twice");
}

#[test]
fn a_wait_that_consumes_after_its_time() {
    let waiting = format!(r#"{{"type":"signal.waiting","point":"p","name":"go","deadline":"{}"}}"#, at(5));
    let in_time = suffix(at(5), "a");
    for (stamp, over) in [(in_time.as_str(), false), (&suffix(at(6), "a"), true)] {
        let log = log(&[&list(&[&claim("w", 90), &waiting]), &list(&[&received("p", stamp)])]);
        let told = Told::fold(&the_run(), log).unwrap();
        let said = audit::a_wait_that_is_over_consumes_nothing(&told);
        assert_eq!(said.iter().any(|said| said.contains("after its time")), over, "{said:?}");
    }
}

#[test]
fn a_log_with_two_births_a_gap_or_a_writer_of_two_entries() {
    let birth = serde_json::to_string(&[run_started()]).unwrap();
    assert_says(&audit::one_run_per_id(&told(&[&birth])), "it was started 2 times");
    let mut gap = told(&["[]", "[]"]);
    gap.log.remove(1);
    assert_says(&audit::one_run_per_id(&gap), "entry 3 is the 2th of the log");
    let mut twin = told(&["[]", "[]"]);
    twin.log[2].by = twin.log[1].by.clone();
    assert_says(&audit::one_run_per_id(&twin), "wrote two entries in one attempt");
}

#[test]
fn a_result_that_is_recorded_twice_or_whose_step_begins_again() {
    let completed = format!(r#"{{"type":"step.completed","point":"a","at":"{}","result":1}}"#, at(3));
    let started = r#"{"type":"step.started","point":"a","attempt":1}"#;
    let twice = told(&[&list(&[&completed]), &list(&[&completed])]);
    assert_says(&audit::a_recorded_result_never_changes(&twice), "`a` is recorded again in entry 3");
    let again = told(&[&list(&[&completed]), &list(&[started])]);
    assert_says(&audit::a_recorded_result_never_changes(&again), "`a` is recorded, and begins again in entry 3");
    let restarted = r#"{"type":"run.restarted","control":"c"}"#;
    let restart = told(&[&list(&[&completed]), &list(&[restarted, started, &completed])]);
    assert_eq!(audit::a_recorded_result_never_changes(&restart), [] as [String; 0], "a restart drops it");
    let some = r#"{"type":"run.restarted","from":"b","steps":["b"],"control":"c"}"#;
    let kept = told(&[&list(&[&completed]), &list(&[some, &completed])]);
    assert_says(&audit::a_recorded_result_never_changes(&kept), "`a` is recorded again");
    let migrated = r#"{"type":"run.migrated","definition_hash":"h","renamed":{"a":"b"}}"#;
    let renamed = told(&[&list(&[&completed]), &list(&[migrated, &completed.replace("\"a\"", "\"b\"")])]);
    assert_says(&audit::a_recorded_result_never_changes(&renamed), "`b` is recorded again");
}

#[test]
fn an_entry_without_the_turn_and_a_claim_under_anothers_lease() {
    let mine = list(&[&claim("w", 30)]);
    let mut foreign = told(&[&mine, "[]"]);
    foreign.log[2].by = "v.1".into();
    assert_says(&audit::a_writer_without_the_turn_cannot_commit(&foreign), "entry 3 is by `v.1`, but `w` has the turn");
    let mut early = told(&[&mine, &list(&[&claim("v", 60)])]);
    early.log[2].by = "v.1".into();
    let said = audit::a_writer_without_the_turn_cannot_commit(&early);
    assert_says(&said, "`v` claimed it while the lease of `w` lasted");
    early.log[2].at = at(26);
    assert_eq!(
        audit::a_writer_without_the_turn_cannot_commit(&early),
        [] as [String; 0],
        "clocks are apart by a few seconds"
    );
    let parked = r#"{"type":"run.parked","hints":[]}"#;
    let mut free = told(&[&list(&[&claim("w", 30), parked]), &list(&[&claim("v", 60)])]);
    free.log[2].by = "v.1".into();
    assert_eq!(
        audit::a_writer_without_the_turn_cannot_commit(&free),
        [] as [String; 0],
        "a worker that parks gives up the turn"
    );
}

#[test]
fn a_wait_that_is_closed_twice_or_never_opened_or_never_closed() {
    let closed = format!(r#"{{"type":"signal.closed","point":"p","why":"cancelled","at":"{}"}}"#, at(3));
    let closed = closed.as_str();
    let twice = told(&[&list(&[WAITING, closed]), &list(&[closed])]);
    assert_says(&audit::every_wait_is_closed_once(&twice), "wait `p` is closed, but was not open");
    let opened = told(&[&list(&[WAITING]), &list(&[WAITING])]);
    assert_says(&audit::every_wait_is_closed_once(&opened), "wait `p` is opened twice");
    let mut ended = told(&[&list(&[WAITING])]);
    ended.run.status = Status::Completed;
    assert_says(&audit::every_wait_is_closed_once(&ended), "waits were never closed");
}

#[test]
fn a_sleep_that_is_over_early() {
    let sleep = format!(r#"{{"type":"sleep.started","point":"s","until":"{}"}}"#, at(50));
    for (second, early) in [(49, true), (50, false)] {
        let fired = format!(r#"{{"type":"sleep.fired","point":"s","at":"{}"}}"#, at(second));
        let told = Told::fold(&the_run(), log(&[&list(&[&claim("w", 90), &sleep]), &list(&[&fired])])).unwrap();
        let said = audit::timers_are_never_early(&told);
        assert_eq!(said.iter().any(|said| said.contains("`s` was over at")), early, "{said:?}");
    }
}

#[test]
fn an_entry_after_the_end() {
    let done = r#"{"type":"run.completed","result":null}"#;
    let after = told(&[&list(&[done]), &list(&[WAITING])]);
    assert_says(&audit::final_is_final(&after), "entry 3 comes after the end");
    let twice = told(&[&list(&[done]), &list(&[done])]);
    assert_says(&audit::final_is_final(&twice), "entry 3 comes after the end");
}

#[test]
fn compensation_in_the_order_of_completion() {
    let completed = |step| format!(r#"{{"type":"step.completed","point":"{step}","at":"{}","result":1}}"#, at(3));
    let undone = |step| format!(r#"{{"type":"compensation.completed","point":"{step}"}}"#);
    let (a, b) = (completed("a"), completed("b"));
    for (order, wrong) in [(["b", "a"], false), (["a", "b"], true), (["a", "a"], true)] {
        let told = told(&[&list(&[&a, &b]), &list(&[&undone(order[0]), &undone(order[1])])]);
        assert_eq!(!audit::compensation_runs_in_reverse(&told).is_empty(), wrong, "{order:?}");
    }
}
