//! The rules of signals, one by one: which wait consumes which signal, how far an inbox is read, and what happens
//! to the rest.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use common::*;
use wigwag_core::*;

/// The suffix of a signal: `5a` was stamped at second 5 and has the id `a`.
fn key(short: &str) -> String {
    let (second, id) = short.split_at(short.find(|letter: char| !letter.is_ascii_digit()).unwrap());
    suffix(at(second.parse().unwrap()), id)
}

/// The short text of a suffix or a floor: seconds may be below zero, and a floor has no id.
fn short(suffix: &str) -> String {
    let (stamp, id) = suffix.split_once('_').unwrap_or((suffix, ""));
    let micros = |time: Time| i64::try_from(time.micros()).unwrap();
    match stamp.parse() {
        Ok(stamp) => format!("{}{id}", (micros(stamp) - micros(at(0))) / 1_000_000),
        Err(_) => String::new(),
    }
}

fn shorts<'a>(suffixes: impl IntoIterator<Item = &'a String>) -> String {
    suffixes.into_iter().map(|suffix| short(suffix)).collect::<Vec<_>>().join(" ")
}

/// One signal in one word: `vote:5a@ann>p` is called `vote` (else `go`), is from `ann` and for point `p`; `5a@ann!` is from
/// `ann`, authenticated; `5a=p.2` is for the wait alone that entry 2 opened at `p`.
fn sent(word: &str) -> (String, Signal) {
    let (of, word) = word.split_once(':').unwrap_or(("go", word));
    let (word, only) = word.split_once('=').map_or((word, None), |(word, only)| (word, Some(only)));
    let (word, point) = word.split_once('>').map_or((word, None), |(word, point)| (word, Some(path(point))));
    let (word, is_authenticated) = word.strip_suffix('!').map_or((word, false), |word| (word, true));
    let (word, by) = word.split_once('@').map_or((word, None), |(word, by)| (word, Some(by.to_owned())));
    let only = only.map(|only| only.split_once('.').unwrap());
    let only = only.map(|(point, seq)| Bound { point: path(point), seq: seq.parse().unwrap() });
    let (mut source, payload, created_at) = (Source::new(by, "cli"), Payload::null(), at(0));
    source.authenticated = is_authenticated;
    (key(word), Signal { id: word.into(), name: name(of), payload, created_at, source, only, point })
}

/// What a look finds that began at that second, all of it read. Inboxes with nothing in them are called `vote:`.
fn found(since: u64, words: &str) -> Inboxes {
    let mut names: BTreeMap<Name, Seen> = BTreeMap::from([(go(), Seen::default())]);
    for word in words.split_whitespace() {
        if let Some(empty) = word.strip_suffix(':') {
            names.entry(name(empty)).or_default();
            continue;
        }
        let (suffix, signal) = sent(word);
        let seen = names.entry(signal.name.clone()).or_default();
        seen.suffixes.insert(suffix.clone());
        seen.signals.insert(suffix, Arc::new(signal));
    }
    Inboxes { since: at(since), names }
}

/// A run with these waits, the first opened by entry 2, each by a separate entry.
fn waits(waits: impl IntoIterator<Item = SignalWaiting>) -> Run {
    let mut run = run_with("");
    for wait in waits {
        add(&mut run, vec![wait.into()]).unwrap();
    }
    run
}

/// A run that waits at these points, in a queue.
fn waits_at(points: &str) -> Run {
    waits(points.split_whitespace().map(wait_at))
}

fn latest_at(point: &str) -> SignalWaiting {
    SignalWaiting { mode: Mode::Latest, ..wait_at(point) }
}

fn until(deadline: u64, point: &str) -> SignalWaiting {
    SignalWaiting { deadline: Some(at(deadline)), ..wait_at(point) }
}

fn quorum(count: u32, point: &str) -> SignalWaiting {
    SignalWaiting { quorum: count, ..wait_at(point) }
}

/// Waits for these names at points called the same, which race.
fn racing(names: &str) -> Vec<SignalWaiting> {
    let first = names.split_whitespace().next().map(path);
    let rival = |of| SignalWaiting { name: name(of), race: first.clone(), ..wait_at(of) };
    names.split_whitespace().map(rival).collect()
}

/// The decision when code waits at all waits and all payloads match: `p takes 5a`, `p times out`, or nothing.
fn decided(run: &Run, found: &Inboxes) -> String {
    told(run.decide(found, |_| true, |_, _, _| true).as_ref())
}

fn told(decision: Option<&Decision>) -> String {
    match decision {
        Some(Decision::Receive { point, signals }) => format!("{point} takes {}", shorts(signals)),
        Some(Decision::TimeOut { point }) => format!("{point} times out"),
        None => String::new(),
    }
}

/// The event by which a wait has these signals.
fn receipt(run: &Run, point: &str, signals: &[String], found: &Inboxes) -> SignalReceived {
    let wait = run.points[&path(point)].wait.clone().unwrap();
    let (cursor, floor) = run.read_up_to(&wait, signals, found);
    let signals = signals.iter().map(|signal| Taken { signal: signal.clone(), by: None }).collect();
    let (point, at, payload, patch) = (path(point), at(run.seq + 1), data("null"), None);
    SignalReceived { point, name: wait.name, signals, at, payload, patch, cursor, floor }
}

/// Applies decisions until none is left, and lists them. Checks that the snapshot decodes to the same run.
fn settle(run: &mut Run, found: &Inboxes) -> String {
    let mut done = Vec::new();
    while let Some(decision) = run.decide(found, |_| true, |_, _, _| true) {
        done.push(told(Some(&decision)));
        let events = match decision {
            Decision::Receive { point, signals } => {
                let losers = run.losers_to(&point).into_iter().map(|loser| closed(loser.as_str(), Closing::Lost));
                [receipt(run, point.as_str(), &signals, found).into()].into_iter().chain(losers).collect()
            }
            Decision::TimeOut { point } => vec![timed_out(point.as_str(), None)],
        };
        add(run, events).unwrap();
        assert_eq!(read_state(the_run(), &state_to_json(run, "by")).as_ref(), Ok(&*run));
    }
    done.join(", ")
}

/// Opens a wait in `queue` mode at the path and applies the decisions.
fn next(run: &mut Run, point: &str, found: &Inboxes) -> String {
    add(run, vec![wait_at(point).into()]).unwrap();
    settle(run, found)
}

/// How far the inbox of `go` was read: the cursor, the floor, and the consumed signals above it.
fn read(run: &Run) -> (String, String, String) {
    let inbox = run.signals.get(&go()).cloned().unwrap_or_default();
    (short(&inbox.cursor), short(&inbox.floor), shorts(&inbox.taken))
}

/// The same as text, to compare with.
fn up_to(cursor: &str, floor: &str, taken: &str) -> (String, String, String) {
    (cursor.into(), floor.into(), taken.into())
}

/// Folds a late note in; gives why it had no effect.
fn late(run: &mut Run, signal: &str) -> Option<String> {
    let order = Order::Late { name: go(), signal: key(signal) };
    let control = Control { id: "c1".into(), created_at: at(0), by: None, order };
    let function = Definition::function("order".parse().unwrap(), 1);
    let events = run.fold_control("c1", &control, &function, at(0));
    let [Event::SignalLate(note)] = &events[..] else { panic!("{events:?}") };
    let refused = note.refused.clone();
    add(run, events).unwrap();
    refused
}

fn fate(run: &Run, word: &str, mode: Mode) -> Fate {
    let (suffix, signal) = sent(word);
    run.fate_of(&suffix, &signal, mode)
}

fn consumed(point: &str, at: Time) -> Fate {
    Fate::Consumed { point: path(point), at }
}

// Which wait takes which signal.

#[test]
fn in_queue_mode_the_oldest_signal_after_the_cursor_is_consumed() {
    let mut run = waits_at("p");
    let inbox = found(20, "7b 5a 9c");
    assert_eq!(settle(&mut run, &inbox), "p takes 5a");
    assert_eq!(read(&run).0, "5a");
    assert_eq!(next(&mut run, "q", &inbox), "q takes 7b");
    assert_eq!(next(&mut run, "r", &inbox), "r takes 9c");
    assert_eq!(next(&mut run, "s", &inbox), "", "each is taken once");
    assert_eq!(read(&run).0, "9c");
}

#[test]
fn of_one_moment_the_order_is_that_of_the_ids() {
    assert_eq!(decided(&waits_at("p"), &found(20, "5b 5a 5c")), "p takes 5a");
    assert_eq!(decided(&waits([latest_at("p")]), &found(20, "5b 5c 5a")), "p takes 5c");
}

#[test]
fn in_latest_mode_the_newest_is_consumed_and_older_ones_are_superseded() {
    let mut run = waits([latest_at("p")]);
    let inbox = found(20, "5a 7b 9c");
    assert_eq!(settle(&mut run, &inbox), "p takes 9c");
    assert_eq!(read(&run), up_to("9c", "9c", ""));
    let fates = ["5a", "7b", "9c", "9d"].map(|word| fate(&run, word, Mode::Latest));
    let taken = consumed("p", at(3));
    assert_eq!(fates, [Fate::Superseded, Fate::Superseded, taken, Fate::Unconsumed]);
    add(&mut run, vec![latest_at("q").into()]).unwrap();
    assert_eq!(decided(&run, &inbox), "", "a superseded signal is never consumed");
    assert_eq!(decided(&run, &found(30, "5a 7b 9c 11d")), "q takes 11d");
}

#[test]
fn of_several_open_waits_the_earliest_opened_gets_it() {
    let mut run = waits_at("z y x");
    assert_eq!(settle(&mut run, &found(20, "5a 7b")), "z takes 5a, y takes 7b");
    let mut run = run_with("");
    add(&mut run, vec![wait_at("b").into(), wait_at("a").into()]).unwrap();
    assert_eq!(decided(&run, &found(20, "5a")), "b takes 5a", "in one entry too");
}

#[test]
fn waits_for_other_names_take_nothing_of_it() {
    let vote = SignalWaiting { name: name("vote"), ..wait_at("v") };
    let mut run = waits([vote, wait_at("p")]);
    assert_eq!(settle(&mut run, &found(20, "9a vote:")), "p takes 9a");
    assert_eq!(settle(&mut run, &found(20, "5a vote:5a")), "v takes 5a");
    assert_eq!(run.signals[&name("vote")].cursor, key("5a"), "each name is read for itself");
    assert_eq!(run.signals[&go()].cursor, key("9a"));
}

#[test]
fn a_signal_addressed_to_a_point_goes_only_there() {
    let mut run = waits_at("p q");
    assert_eq!(decided(&run, &found(20, "5a>r")), "");
    assert_eq!(settle(&mut run, &found(20, "5a>q 7b")), "p takes 7b, q takes 5a");
    let latest = waits([latest_at("p")]);
    assert_eq!(decided(&latest, &found(20, "5a 7b>q")), "p takes 5a");
}

#[test]
fn a_signal_bound_to_a_wait_goes_only_there() {
    let run = waits_at("p q");
    let rows = [
        ("5a=p.2", "p takes 5a"),
        ("5a=q.3", "q takes 5a"),
        ("5a=q.2", ""),
        ("5a=p.3", ""),
        ("5a>p=q.3", ""),
        ("5a>q=q.3", "q takes 5a"),
    ];
    for (word, expected) in rows {
        assert_eq!(decided(&run, &found(20, word)), expected, "{word}");
    }
}

#[test]
fn a_signal_bound_to_an_ended_wait_is_void_and_counts_as_consumed() {
    let mut run = waits_at("p");
    let inbox = found(20, "5a=p.2 7b");
    add(&mut run, vec![timed_out("p", None)]).unwrap();
    assert!(run.is_void(&sent("5a=p.2").1));
    assert_eq!(next(&mut run, "q", &inbox), "q takes 7b", "no other takes it");
    assert_eq!(read(&run), up_to("7b", "-3", "7b"), "the cursor passes it");
    assert_eq!(fate(&run, "5a=p.2", Mode::Queue), Fate::Void);
    // Where a restart comes to the same point again, that is another wait.
    add(&mut run, vec![restarted(), claimed("w1", at(60)), wait_at("p").into()]).unwrap();
    assert_eq!(decided(&run, &inbox), "");
    assert_eq!(fate(&run, "5a=p.2", Mode::Queue), Fate::Void);
}

#[test]
fn a_signal_for_an_ended_step_is_void_and_one_for_a_future_step_is_not() {
    let mut run = waits_at("p");
    add(&mut run, vec![closed("p", Closing::Lost)]).unwrap();
    let inbox = found(20, "5a>p 6b>r 7c");
    assert_eq!(next(&mut run, "q", &inbox), "q takes 7c");
    assert_eq!(read(&run), up_to("5a", "-5", "7c"));
    let fates = ["5a>p", "6b>r"].map(|word| fate(&run, word, Mode::Queue));
    assert_eq!(fates, [Fate::Void, Fate::Unconsumed]);
    // The inbox is read far past it; then a restart comes to the point again.
    let mut later = run.clone();
    assert_eq!(next(&mut later, "s", &found(60, "50d")), "s takes 50d");
    add(&mut later, vec![restarted(), claimed("w1", at(90)), wait_at("p").into()]).unwrap();
    assert_eq!(decided(&later, &found(60, "5a>p")), "");
    assert_eq!(fate(&later, "5a>p", Mode::Queue), Fate::Void);
    assert_eq!(next(&mut run, "r", &inbox), "r takes 6b");
    assert_eq!(read(&run).0, "7c");
}

#[test]
fn a_wait_that_ended_consumes_nothing() {
    let rows = [
        ("received", received("p")),
        ("timed out", timed_out("p", None)),
        ("failed", timed_out("p", Some(fault("late")))),
        ("cancelled", closed("p", Closing::Cancelled)),
        ("lost", closed("p", Closing::Lost)),
        ("finished", closed("p", Closing::Finished)),
        ("dropped", PointDropped { point: path("p"), at: at(3) }.into()),
    ];
    for (how, event) in rows {
        let mut run = waits_at("p");
        assert_eq!(decided(&run, &found(20, "5a")), "p takes 5a", "{how}");
        add(&mut run, vec![event]).unwrap();
        assert_eq!(decided(&run, &found(20, "5a")), "", "{how}");
        assert_eq!(next(&mut run, "q", &found(20, "5a")), "q takes 5a", "{how}: the next one gets it");
    }
}

#[test]
fn a_wait_without_waiting_code_consumes_nothing_and_does_not_time_out() {
    let run = waits([until(10, "p"), wait_at("q")]);
    let asked = |point: &str| {
        let decide = |found: &Inboxes| told(run.decide(found, |path| path.as_str() == point, |_, _, _| true).as_ref());
        [decide(&found(20, "5a")), decide(&found(20, ""))]
    };
    assert_eq!(asked("p"), ["p takes 5a", "p times out"]);
    assert_eq!(asked("q"), ["q takes 5a", ""]);
    assert_eq!(asked("r"), ["", ""]);
}

#[test]
fn mismatched_signals_are_skipped_and_kept() {
    let strict = |_: &Path, wait: &Wait, signal: &Signal| wait.schema.is_none() || signal.source.by.is_some();
    let schema = Some(serde_json::json!({"type": "object"}));
    let mut run = waits([SignalWaiting { schema, ..wait_at("p") }]);
    let inbox = found(20, "5a 7b@ann");
    let decision = run.decide(&inbox, |_| true, strict);
    assert_eq!(told(decision.as_ref()), "p takes 7b");
    let event = receipt(&run, "p", &[key("7b")], &inbox);
    add(&mut run, vec![event.into()]).unwrap();
    assert_eq!(read(&run), up_to("", "-1769601600", "7b"), "the cursor does not pass it");
    assert_eq!(fate(&run, "5a", Mode::Queue), Fate::Unconsumed);
    add(&mut run, vec![wait_at("q").into()]).unwrap();
    assert_eq!(told(run.decide(&inbox, |_| true, strict).as_ref()), "q takes 5a");
}

// How far an inbox is read.

#[test]
fn the_cursor_never_passes_a_scanned_signal_that_was_not_consumed() {
    // The wait, the stored signals, the decision, the cursor, and the consumed signals listed beyond it.
    let rows = [
        ("in order", wait_at("p"), "5a 7b 9c", "p takes 5a", "5a", "5a"),
        ("by point", wait_at("p"), "5a>q 7b>q 9c", "p takes 9c", "", "9c"),
        ("by point, in the midst", wait_at("p"), "5a>x 7b>p 9c>q", "p takes 7b", "", "7b"),
        ("by a quorum", quorum(2, "p"), "5a@ann 6b@ann 7c@bob 8d@ann", "p takes 5a 7c", "5a", "5a 7c"),
        ("too late", until(6, "p"), "5a 7b", "p takes 5a", "5a", "5a"),
        ("void ones count as consumed", wait_at("p"), "4a=x.2 5b 6c=x.2 7d=x.2 9e", "p takes 5b", "7d", "5b"),
    ];
    for (row, wait, inbox, takes, cursor, taken) in rows {
        let mut run = waits([wait]);
        assert_eq!(settle(&mut run, &found(20, inbox)), takes, "{row}");
        let (found_cursor, _, found_taken) = read(&run);
        assert_eq!((&*found_cursor, &*found_taken), (cursor, taken), "{row}");
    }
}

#[test]
fn the_cursor_advances_over_signals_consumed_beyond_it() {
    let mut run = waits_at("q p");
    let inbox = found(20, "5a>p 7b>q 9c 11d");
    assert_eq!(settle(&mut run, &found(20, "7b>q")), "q takes 7b");
    assert_eq!(settle(&mut run, &inbox), "p takes 5a");
    assert_eq!(read(&run), up_to("7b", "-3", "5a 7b"));
}

#[test]
fn a_listed_signal_that_was_not_read_is_not_passed() {
    let mut run = waits_at("p");
    let mut inbox = found(20, "5a 7b 9c");
    for unread in [key("5a"), key("9c")] {
        inbox.names.get_mut(&go()).unwrap().signals.remove(&unread);
    }
    assert_eq!(settle(&mut run, &inbox), "", "what the first one carries is not known");
    inbox.names.get_mut(&go()).unwrap().misfits.insert(key("5a"));
    assert_eq!(settle(&mut run, &inbox), "p takes 7b", "it is known not to fit");
    assert_eq!((read(&run).0, read(&run).2), (String::new(), "7b".into()));
}

#[test]
fn a_wait_for_the_newest_does_not_overtake_a_queue_that_was_opened_before_it() {
    let mut run = waits([wait_at("p"), latest_at("newest")]);
    let mut inbox = found(20, "5a 7b 9c");
    // A queue reads the first ones first, a wait for the newest the last ones.
    inbox.names.get_mut(&go()).unwrap().signals.remove(&key("5a"));
    assert_eq!(settle(&mut run, &inbox), "", "the newest would supersede what the queue has not read");
    assert_eq!(settle(&mut run, &found(20, "5a 7b 9c")), "p takes 5a, newest takes 9c");
}

#[test]
fn a_signal_that_appears_behind_the_cursor_is_offered_within_the_look_back() {
    let mut run = waits_at("p");
    assert_eq!(settle(&mut run, &found(31, "30x")), "p takes 30x");
    assert_eq!(read(&run), up_to("30x", "20", "30x"));
    assert_eq!(next(&mut run, "q", &found(32, "19a 30x")), "", "it lies below the floor");
    assert_eq!(settle(&mut run, &found(32, "20b 21c 30x")), "q takes 20b", "at the floor it does not");
    assert_eq!(read(&run), up_to("30x", "20", "20b 30x"), "the cursor does not go back");
    assert_eq!(next(&mut run, "r", &found(32, "20b 21c 30x")), "r takes 21c");
}

#[test]
fn the_look_back_is_counted_from_the_cursor_or_the_look_whichever_is_earlier() {
    // Start of the scan, the consumed signal, and the floor.
    let rows = [(100, "30x", "20"), (30, "30x", "20"), (25, "30x", "15"), (100, "5x", "-5"), (3, "5x", "-7")];
    for (since, word, floor) in rows {
        let mut run = waits_at("p");
        settle(&mut run, &found(since, word));
        assert_eq!(read(&run).1, floor, "{word} by a scan at {since}");
    }
    assert_eq!(limits::LOOK_BACK, Duration::from_secs(10));
}

#[test]
fn one_below_the_floor_is_offered_only_if_a_late_note_names_it() {
    let mut run = waits_at("p");
    let inbox = found(40, "5a 6b 30x");
    assert_eq!(settle(&mut run, &found(31, "30x")), "p takes 30x");
    assert_eq!(next(&mut run, "q", &inbox), "");
    assert_eq!(fate(&run, "5a", Mode::Queue), Fate::Unacknowledged);
    assert_eq!(late(&mut run, "5a"), None);
    assert_eq!(fate(&run, "5a", Mode::Queue), Fate::Unconsumed);
    assert_eq!(settle(&mut run, &inbox), "q takes 5a");
    assert_eq!(read(&run), up_to("30x", "20", "30x"), "consumed signals below the floor are not listed");
    assert!(run.signals[&go()].late.is_empty());
    assert_eq!(next(&mut run, "r", &inbox), "", "it is taken once");
}

#[test]
fn a_late_signal_comes_before_newer_ones() {
    let mut run = waits_at("p");
    settle(&mut run, &found(31, "30x"));
    late(&mut run, "5a");
    assert_eq!(next(&mut run, "q", &found(40, "5a 35y")), "q takes 5a");
}

#[test]
fn a_late_note_about_one_that_was_seen_changes_nothing() {
    let mut run = waits_at("p");
    assert_eq!(late(&mut run, "7b"), None);
    let inbox = found(20, "5a 7b");
    assert_eq!(settle(&mut run, &inbox), "p takes 5a");
    assert_eq!(next(&mut run, "q", &inbox), "q takes 7b");
    assert_eq!(next(&mut run, "r", &inbox), "");
    assert!(run.signals[&go()].late.is_empty());
}

#[test]
fn under_latest_nothing_at_or_below_the_cursor_is_offered() {
    let mut run = waits([latest_at("p")]);
    assert_eq!(late(&mut run, "20b"), None, "nothing newer was taken yet");
    assert_eq!(settle(&mut run, &found(31, "30x")), "p takes 30x");
    assert_eq!(late(&mut run, "29c").as_deref(), Some("a newer one has superseded it"));
    add(&mut run, vec![latest_at("q").into()]).unwrap();
    assert_eq!(decided(&run, &found(32, "20b 29c 30a 30x")), "", "late note or not");
    assert_eq!(decided(&run, &found(32, "20b 30y")), "q takes 30y");
}

#[test]
fn a_late_note_is_rejected_with_a_reason() {
    let mut run = waits_at("p q");
    settle(&mut run, &found(20, "5a"));
    settle(&mut run, &found(90, "80b"));
    assert_eq!(read(&run), up_to("80b", "70", "80b"), "5a is below the floor and no longer listed");
    let rows = [("5a", Some("`p` has received it")), ("80b", Some("`q` has received it")), ("6c", None)];
    for (signal, why) in rows {
        assert_eq!(late(&mut run, signal).as_deref(), why, "{signal}");
        assert_eq!(run.signals[&go()].late.contains(&key(signal)), why.is_none(), "{signal}");
    }
    // A restart dropped the steps, but the consumed signals above the floor are still known.
    add(&mut run, vec![restarted()]).unwrap();
    assert_eq!(late(&mut run, "80b").as_deref(), Some("it was received"));
    add(&mut run, vec![completed()]).unwrap();
    assert_eq!(late(&mut run, "7d").as_deref(), Some("the run is `completed`"));
}

#[test]
fn the_mode_of_a_name_is_that_of_the_definition_else_that_of_the_last_wait() {
    let function = Definition::function("order".parse().unwrap(), 1);
    let mut node = SignalSpec::new(go());
    node.mode = Mode::Latest;
    let latest = Definition::graph("order".parse().unwrap(), vec![Node::signal(path("p"), node)]).unwrap();
    let rows = [
        ("nobody says", run_with(""), &function, Mode::Queue),
        ("the definition says", run_with(""), &latest, Mode::Latest),
        ("the definition has priority", waits_at("p"), &latest, Mode::Latest),
        ("the only wait", waits([latest_at("p")]), &function, Mode::Latest),
        ("the last wait", waits([latest_at("p"), wait_at("a")]), &function, Mode::Queue),
        ("the last wait", waits([wait_at("p"), latest_at("a")]), &function, Mode::Latest),
    ];
    for (row, run, definition, mode) in rows {
        assert_eq!(run.mode_of(&go(), Some(definition)), mode, "{row}");
        assert_eq!(run.mode_of(&name("vote"), Some(&function)), Mode::Queue, "{row}: not of another name");
    }
}

#[test]
fn the_floor_never_goes_back() {
    let mut run = waits_at("p");
    settle(&mut run, &found(31, "30x"));
    assert_eq!(read(&run).1, "20");
    let before = found(22, "30x 31y");
    add(&mut run, vec![wait_at("q").into()]).unwrap();
    assert_eq!(short(&receipt(&run, "q", &[key("31y")], &before).floor), "20", "whatever an earlier look says");
    assert_eq!(settle(&mut run, &before), "q takes 31y");
    assert_eq!(read(&run), up_to("31y", "20", "30x 31y"));
    // Not even by an event that says so.
    add(&mut run, vec![wait_at("r").into()]).unwrap();
    let event = SignalReceived { floor: at(1).to_string(), ..receipt(&run, "r", &[key("32z")], &found(40, "32z")) };
    add(&mut run, vec![event.into()]).unwrap();
    assert_eq!(read(&run).1, "20");
}

#[test]
fn consumed_signals_are_forgotten_below_the_floor() {
    let mut run = waits_at("p q r");
    settle(&mut run, &found(31, "30x 33y"));
    assert_eq!(read(&run), up_to("33y", "21", "30x 33y"));
    settle(&mut run, &found(99, "30x 33y 40z"));
    assert_eq!(read(&run), up_to("40z", "30", "30x 33y 40z"), "a signal at the floor is scanned again");
    assert_eq!(next(&mut run, "s", &found(99, "30x 33y 40z 43w")), "s takes 43w");
    assert_eq!(read(&run), up_to("43w", "33", "33y 40z 43w"));
    assert_eq!(next(&mut run, "t", &found(99, "30x 33y 40z 43w")), "", "forgotten or not, nothing is taken again");
}

#[test]
fn no_signal_is_taken_twice() {
    let mut run = waits_at("p q");
    let inbox = found(20, "5a");
    settle(&mut run, &inbox);
    let again = receipt(&run, "q", &[key("5a")], &inbox);
    let refusal = add(&mut run, vec![again.into()]).unwrap_err().to_string();
    assert!(refusal.contains(&format!("signal `{}` was taken before", key("5a"))), "{refusal}");
}

#[test]
fn a_consumption_of_another_signal_or_none_is_rejected() {
    let mut run = waits_at("p");
    let inbox = found(20, "5a");
    let good = receipt(&run, "p", &[key("5a")], &inbox);
    let other = SignalReceived { name: name("other"), ..good.clone() };
    let empty = SignalReceived { signals: Vec::new(), ..good.clone() };
    for wrong in [other, empty] {
        let refusal = add(&mut run.clone(), vec![wrong.into()]).unwrap_err().to_string();
        assert!(refusal.contains("`p` does not wait for"), "{refusal}");
    }
    add(&mut run, vec![good.into()]).unwrap();
}

#[test]
fn a_wait_whose_handler_failed_consumes_the_signal_when_the_handler_is_retried() {
    let mut run = waits_at("p");
    let refused = SignalRefused { point: path("p"), attempt: 1, at: at(6), error: fault("no"), retry_at: at(9) };
    add(&mut run, vec![refused.into()]).unwrap();
    for (since, expected) in [(8, ""), (9, "p takes 5a"), (20, "p takes 5a")] {
        assert_eq!(decided(&run, &found(since, "5a")), expected, "by a scan at {since}");
    }
    let point = &run.points[&path("p")];
    assert_eq!((point.attempt, point.error.clone()), (1, Some(fault("no"))));
    settle(&mut run, &found(20, "5a"));
    assert_eq!(run.points[&path("p")].error, None, "a satisfied wait has no error");
}

// Deadlines of waits.

#[test]
fn a_signal_stamped_at_or_before_the_deadline_wins_even_if_the_look_began_after_it() {
    let rows = [
        (5, "4a", "p takes 4a"),
        (50, "4a", "p takes 4a"),
        (50, "10a", "p takes 10a"),
        (50, "10a 11b", "p takes 10a"),
        (50, "11b", "p times out"),
        (10, "11b", "p times out"),
        (9, "11b", ""),
    ];
    for (since, inbox, expected) in rows {
        assert_eq!(decided(&waits([until(10, "p")]), &found(since, inbox)), expected, "{inbox} by a look at {since}");
    }
    let newest = waits([SignalWaiting { deadline: Some(at(10)), ..latest_at("p") }]);
    assert_eq!(decided(&newest, &found(50, "4a 9b 11c")), "p takes 9b", "the newest that came in time");
}

#[test]
fn one_stamped_after_the_deadline_is_for_the_next_wait() {
    let mut run = waits([until(10, "p"), wait_at("q")]);
    assert_eq!(settle(&mut run, &found(50, "11b")), "q takes 11b, p times out");
    let mut run = waits([until(10, "p")]);
    assert_eq!(settle(&mut run, &found(50, "11b")), "p times out");
    assert_eq!(next(&mut run, "q", &found(50, "11b")), "q takes 11b");
}

#[test]
fn a_timeout_needs_a_look_that_began_at_or_after_the_deadline() {
    let run = waits([until(10, "p")]);
    let rows = [(9, ""), (10, "p times out"), (11, "p times out")];
    for (since, expected) in rows {
        assert_eq!(decided(&run, &found(since, "")), expected, "a look at {since}");
    }
    let elsewhere = SignalWaiting { name: name("vote"), ..until(10, "v") };
    assert_eq!(decided(&waits([elsewhere]), &found(20, "")), "", "and into that inbox");
    assert_eq!(decided(&waits_at("p"), &found(20, "")), "", "and a deadline");
}

#[test]
fn a_timeout_fails_the_step_or_lets_the_run_continue() {
    let mut failed = waits_at("p");
    add(&mut failed, vec![timed_out("p", Some(fault("late")))]).unwrap();
    let point = &failed.points[&path("p")];
    assert_eq!((point.status, &point.error), (PointStatus::Failed, &Some(fault("late"))));
    assert!(!point.is_timed_out());
    let mut passed = waits_at("p q");
    let patch = serde_json::json!({"item": null, "late": true}).as_object().cloned();
    add(&mut passed, vec![SignalTimeout { point: path("p"), at: at(9), error: None, patch }.into()]).unwrap();
    let point = &passed.points[&path("p")];
    assert_eq!((point.status, &point.error, point.ended_at), (PointStatus::Completed, &None, Some(at(9))));
    assert!(point.is_timed_out());
    assert_eq!(serde_json::Value::from(passed.data.clone()), serde_json::json!({"late": true}));
    settle(&mut passed, &found(20, "5a"));
    assert!(!passed.points[&path("q")].is_timed_out(), "it has its signal");
}

#[test]
fn a_wait_that_is_closed_says_why() {
    let rows = [(Closing::Lost, true), (Closing::Cancelled, false), (Closing::Finished, false)];
    for (why, dropped) in rows {
        let mut run = waits_at("p");
        add(&mut run, vec![closed("p", why)]).unwrap();
        let point = &run.points[&path("p")];
        assert_eq!((point.status, point.is_dropped()), (PointStatus::Skipped, dropped), "{why:?}");
        assert!(point.error.is_some() && !point.is_timed_out(), "{why:?}");
    }
}

// Races between waits.

#[test]
fn of_waits_that_race_the_one_with_the_oldest_signal_wins() {
    let rows = [
        ("no:5a ok:7b", "no takes 5a"),
        ("no:7a ok:5b", "ok takes 5b"),
        ("no: ok:5b", "ok takes 5b"),
        ("no:7a ok:", "no takes 7a"),
        ("no: ok:", ""),
    ];
    for (inbox, expected) in rows {
        assert_eq!(decided(&waits(racing("ok no")), &found(20, inbox)), expected, "{inbox}");
        assert_eq!(decided(&waits(racing("no ok")), &found(20, inbox)), expected, "{inbox}");
    }
    let twice = [wait_at("b"), wait_at("a")].map(|wait| SignalWaiting { race: Some(path("b")), ..wait });
    assert_eq!(decided(&waits(twice), &found(20, "5a")), "b takes 5a", "for one signal it is the earliest opened");
}

#[test]
fn the_losers_of_a_race_are_the_other_waits_of_that_race() {
    let others = racing("x y").into_iter().chain([wait_at("z")]);
    let mut run = waits(racing("ok no").into_iter().chain(others));
    assert_eq!(run.losers_to(&path("ok")), paths("no"));
    assert_eq!(run.losers_to(&path("y")), paths("x"));
    assert_eq!(run.losers_to(&path("z")), []);
    assert_eq!(run.losers_to(&path("nowhere")), []);
    let inbox = found(20, "no:5a ok:7b");
    let event = receipt(&run, "no", &[key("5a")], &inbox);
    add(&mut run, vec![event.into()]).unwrap();
    assert_eq!(run.losers_to(&path("no")), paths("ok"), "the winner is named before and after it has its signal");
    add(&mut run, vec![closed("ok", Closing::Lost)]).unwrap();
    assert_eq!(run.losers_to(&path("no")), []);
    assert_eq!(decided(&run, &inbox), "", "the loser takes nothing");
    assert_eq!(fate(&run, "ok:7b", Mode::Queue), Fate::Unconsumed, "its signal is for the next wait");
}

#[test]
fn a_race_is_decided_among_its_own() {
    let mut run = waits(racing("ok no").into_iter().chain([wait_at("p")]));
    // An older signal for another wait does not matter.
    assert_eq!(settle(&mut run, &found(20, "3a ok:7b no:9c")), "ok takes 7b, p takes 3a");
}

#[test]
fn a_race_does_not_consume_the_signal_of_an_earlier_wait_outside() {
    let [ok, no] = <[SignalWaiting; 2]>::try_from(racing("ok no")).unwrap();
    let outside = SignalWaiting { name: name("no"), ..wait_at("p") };
    let settled = |order: [&SignalWaiting; 3], inbox| settle(&mut waits(order.map(Clone::clone)), &found(20, inbox));
    assert_eq!(settled([&ok, &outside, &no], "no:5a ok:7b"), "p takes 5a, ok takes 7b", "`p` was opened before `no`");
    assert_eq!(settled([&ok, &outside, &no], "no:5a no:6b ok:7c"), "p takes 5a, no takes 6b", "the next is its own");
    assert_eq!(settled([&ok, &outside, &no], "no:8a ok:7b"), "ok takes 7b, p takes 8a");
    assert_eq!(settled([&ok, &no, &outside], "no:5a ok:7b"), "no takes 5a", "`no` was opened before `p`");
}

// Quorums of several senders.

#[test]
fn a_quorum_takes_one_of_each_of_so_many_senders_or_nothing() {
    let rows = [
        ("", ""),
        ("5a@ann", ""),
        ("5a@ann 6b@ann 7c@ann", ""),
        ("5a@ann 6b@bob", "p takes 5a 6b"),
        ("5a@ann 6b@ann 7c@bob 8d@cy", "p takes 5a 7c"),
        ("5a 6b", ""),
        ("5a 6b 7c@ann", ""),
        ("5a 6b@ann 7c 8d@bob", "p takes 6b 8d"),
        ("5a@ann>q 6b@bob 7c@ann", "p takes 6b 7c"),
    ];
    for (inbox, expected) in rows {
        let mut run = waits([quorum(2, "p")]);
        assert_eq!(settle(&mut run, &found(20, inbox)), expected, "{inbox}");
        if expected.is_empty() {
            assert_eq!(read(&run), up_to("", "", ""), "{inbox}: nothing is taken until it is full");
        }
    }
    assert_eq!(decided(&waits([quorum(0, "p")]), &found(20, "5a")), "p takes 5a", "none is one");
}

#[test]
fn a_wait_for_authenticated_senders_takes_no_claims() {
    let demanding = |quorum| SignalWaiting { authenticated: true, quorum, ..wait_at("p") };
    let rows = [
        (1, "5a 6b@ann 7c@bob!", "p takes 7c"),
        (1, "5a 6b@ann", ""),
        (2, "5a@ann! 6b@bob 7c@ann!", ""),
        (2, "5a@ann! 6b@ann 7c@bob!", "p takes 5a 7c"),
        (2, "5a@ann 6b@ann! 7c@bob!", "p takes 6b 7c"),
    ];
    for (quorum, inbox, expected) in rows {
        assert_eq!(decided(&waits([demanding(quorum)]), &found(20, inbox)), expected, "{quorum} of {inbox}");
    }
    assert_eq!(decided(&waits([quorum(2, "p")]), &found(20, "5a@ann! 6b@ann 7c@bob")), "p takes 5a 7c", "one person");
}

#[test]
fn signals_that_a_quorum_did_not_count_are_left_for_the_next_wait() {
    let mut run = waits([quorum(2, "p")]);
    let inbox = found(20, "5a@ann 6b@ann 7c@bob");
    settle(&mut run, &inbox);
    assert_eq!(next(&mut run, "q", &inbox), "q takes 6b");
    assert_eq!(read(&run), up_to("7c", "-3", "5a 6b 7c"));
}

#[test]
fn a_quorum_that_is_not_full_leaves_its_signals_to_others() {
    let mut run = waits([quorum(2, "p"), wait_at("q")]);
    assert_eq!(settle(&mut run, &found(20, "5a@ann")), "q takes 5a");
    assert_eq!(settle(&mut run, &found(20, "5a@ann 6b@bob")), "");
    assert_eq!(settle(&mut run, &found(20, "5a@ann 6b@bob 7c@ann")), "p takes 6b 7c");
}

#[test]
fn a_quorum_under_latest_takes_the_newest_of_each_sender() {
    let mut run = waits([SignalWaiting { quorum: 2, ..latest_at("p") }]);
    let inbox = "3z@cy 5a@ann 6b@ann 7c@bob";
    assert_eq!(settle(&mut run, &found(20, inbox)), "p takes 6b 7c");
    assert_eq!(read(&run), up_to("7c", "7c", ""));
    let fates = ["3z@cy", "5a@ann"].map(|word| fate(&run, word, Mode::Latest));
    assert_eq!(fates, [Fate::Superseded, Fate::Superseded]);
}

#[test]
fn a_quorum_counts_signals_sent_before_the_deadline() {
    let run = waits([SignalWaiting { quorum: 2, ..until(10, "p") }]);
    assert_eq!(decided(&run, &found(20, "5a@ann 11b@bob")), "p times out");
    assert_eq!(decided(&run, &found(20, "5a@ann 10b@bob")), "p takes 5a 10b");
}

// Outcomes of a signal.

#[test]
fn every_signal_has_a_fate() {
    let mut run = waits_at("p q");
    settle(&mut run, &found(31, "30x"));
    add(&mut run, vec![closed("q", Closing::Cancelled)]).unwrap();
    // The signal, its outcome while the run continues, and its outcome once the run has ended.
    let rows = [
        ("30x", consumed("p", at(4)), consumed("p", at(4))),
        ("40y", Fate::Unconsumed, Fate::NeverConsumed),
        ("25z", Fate::Unconsumed, Fate::NeverConsumed),
        ("19a", Fate::Unacknowledged, Fate::NeverConsumed),
        ("25b=q.3", Fate::Void, Fate::Void),
        ("25c>q", Fate::Void, Fate::Void),
        ("25d>later", Fate::Unconsumed, Fate::NeverConsumed),
    ];
    let mut ended = run.clone();
    add(&mut ended, vec![completed()]).unwrap();
    for (word, before, after) in rows {
        assert_eq!((fate(&run, word, Mode::Queue), fate(&ended, word, Mode::Queue)), (before, after), "{word}");
    }
    assert_eq!(run.taker_of(&key("30x")), Some((&path("p"), at(4))));
    assert_eq!(run.taker_of(&key("40y")), None);
}
