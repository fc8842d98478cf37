//! Stored forms stay readable: one file for each form, which decodes and encodes back byte for byte.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use common::*;
use wigwag_core::*;

/// All that can happen, as the design lists it.
const EVENTS: &str = "run.started run.claimed run.parked run.paused run.resumed run.cancel_requested run.restarted \
    run.migrated run.completed run.failed run.cancelled step.started step.completed step.failed step.skipped \
    sleep.started sleep.fired signal.waiting signal.received signal.refused signal.timeout signal.closed signal.late child.started \
    child.completed child.failed compensation.started compensation.completed compensation.failed point.dropped";

#[expect(clippy::disallowed_methods, reason = "whether files are made is said from outside")]
fn may_make_files() -> bool {
    std::env::var("WIGWAG_BLESS").is_ok_and(|value| value == "1")
}

/// The bytes of a stored form. A file that is there is never changed: there may be runs that were stored so.
fn stored(file: &str, sample: &[u8]) -> Vec<u8> {
    let place = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(file);
    if !place.exists() && may_make_files() {
        std::fs::write(&place, sample).unwrap();
    }
    std::fs::read(&place).unwrap_or_else(|error| {
        panic!("no `{file}` ({error}): make it by `WIGWAG_BLESS=1 cargo test -p wigwag-core --test golden`")
    })
}

/// Checks that a golden file decodes to the sample, and that the sample encodes to the same bytes.
fn keeps<T>(file: &str, sample: &T, write: impl Fn(&T) -> Vec<u8>, read: impl Fn(&[u8]) -> T)
where
    T: PartialEq + std::fmt::Debug,
{
    let bytes = stored(file, &write(sample));
    let found = read(&bytes);
    assert_eq!(found, *sample, "{file}: it reads as something else; if the form is to change, both must be read");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert_eq!(text(write(&found)), text(bytes), "{file}: it is written otherwise");
}

fn object(text: &str) -> Option<serde_json::Map<String, serde_json::Value>> {
    Some(serde_json::from_str(text).unwrap())
}

fn blob() -> Data {
    Data::Blob(Blob { nonce: "w1-7".into(), bytes: 70_000 })
}

/// An error with all its parts.
fn whole_fault() -> Fault {
    let fault = Fault::version_mismatch("sha256:old", "sha256:new", vec!["pay".into()]);
    fault.detail(Some("caused by: rain\n  at roof".into())).at(&path("pay"))
}

fn task_spec() -> TaskSpec {
    let retry = Retry::times(5).first(Duration::from_millis(100)).factor(1.5).jitter(0.1);
    TaskSpec { queue: name("mail"), retry, timeout: Duration::from_secs(30), expires_at: Some(at(3_600)) }
}

fn events_of_the_run() -> Vec<Event> {
    let parent = Parent { run: "workflow/parent".parse().unwrap(), point: path("items/3") };
    let (control, refused) = (Some("c1".to_owned()), Some("the run is `completed`".to_owned()));
    let reason = Some("lunch".to_owned());
    vec![
        RunStarted {
            of: "send".parse().unwrap(),
            definition_hash: "sha256:old".into(),
            version: Some(2),
            input: data(r#"{"item": "tea",  "grams": 100.0}"#),
            not_before: Some(at(1)),
            parent: Some(parent),
            task: Some(task_spec()),
            hints: vec!["due/00/h1".into()],
        }
        .into(),
        RunClaimed { owner: "w1".into(), peer: Some("p1".into()), until: at(30), hints: vec!["due/00/h2".into()] }
            .into(),
        RunParked { next_at: Some(at(9)), hints: vec!["due/00/h3".into()] }.into(),
        RunPaused {
            why: PauseCause::Version,
            error: Some(whole_fault()),
            reason: reason.clone(),
            control: control.clone(),
            refused: refused.clone(),
            by: None,
        }
        .into(),
        RunPaused { why: PauseCause::ByHand, error: None, reason: None, control: None, refused: None, by: None }.into(),
        RunPaused { why: PauseCause::Failure, error: None, reason: None, control: None, refused: None, by: None }
            .into(),
        RunResumed {
            shift: Duration::from_micros(1_500_000),
            control: control.clone(),
            refused: refused.clone(),
            by: None,
        }
        .into(),
        RunCancelRequested { reason: reason.clone(), control: "c2".into(), refused: refused.clone(), by: None }.into(),
        RunRestarted {
            from: Some(path("a")),
            steps: paths("a b"),
            control: "c3".into(),
            refused: refused.clone(),
            by: None,
        }
        .into(),
        RunMigrated {
            definition_hash: "sha256:new".into(),
            version: Some(3),
            renamed: BTreeMap::from([(path("a"), path("b"))]),
            skipped: paths("c"),
            control,
            refused,
            by: None,
        }
        .into(),
        RunCompleted { result: data("null") }.into(),
        RunFailed { error: fault("no\nway") }.into(),
        RunCancelled { reason }.into(),
    ]
}

fn events_of_steps() -> Vec<Event> {
    let (point, task) = (path("pay#2/card"), Some("order-1:pay".parse().unwrap()));
    vec![
        StepStarted { point: point.clone(), attempt: 2, compensate: true, task, deadline: Some(at(60)) }.into(),
        begun("plain"),
        StepCompleted {
            point: point.clone(),
            at: at(2),
            result: blob(),
            patch: object(r#"{"gone":null,"paid":[1,2.5,"ü"]}"#),
            mark: false,
        }
        .into(),
        StepCompleted { point: path("mark"), at: at(2), result: data("true"), patch: None, mark: true }.into(),
        StepFailed { point, attempt: 2, at: at(3), error: fault("no"), retry_at: Some(at(4)), held: true }.into(),
        skipped("plain"),
        asleep("a/.delay", at(10), true),
        SleepFired { point: path("a/.delay"), at: at(11) }.into(),
        undoing("pay"),
        CompensationStarted { point: path("pay"), attempt: 2, cause: Some(Ending::Cancelled(None)) }.into(),
        CompensationStarted { point: path("pay"), attempt: 2, cause: None }.into(),
        undone("pay"),
        not_undone("pay", Some(at(12))),
    ]
}

fn events_of_others() -> Vec<Event> {
    let one = Children::One("task/order-1:pay".parse().unwrap());
    let tasks = Children::Tasks(vec!["t1".parse().unwrap(), "t2".parse().unwrap()]);
    let begun = |children, deadline| ChildStarted { point: path("kids"), children, deadline }.into();
    vec![
        begun(one, Some(at(60))),
        begun(tasks, None),
        begun(Children::Numbered { count: 10_000, restarts: 2 }, None),
        ChildCompleted { point: path("kids"), at: at(6), result: data("[1, 2]") }.into(),
        ChildFailed { point: path("kids"), at: at(6), error: fault("no") }.into(),
        PointDropped { point: path("approve"), at: at(21) }.into(),
    ]
}

/// A wait that says all that can be said.
fn whole_wait(point: &str) -> SignalWaiting {
    let (mode, race, schema) = (Mode::Latest, Some(path("approve")), Some(serde_json::json!({"type": "boolean"})));
    let (deadline, authenticated) = (Some(at(20)), true);
    SignalWaiting { deadline, relative: true, mode, quorum: 2, authenticated, race, schema, ..wait_at(point) }
}

/// A quorum of two; one signal has no sender.
fn whole_receipt(point: &str, payload: Data) -> SignalReceived {
    let (first, second) = (suffix(at(4), "7f3c"), suffix(at(5), "0a1b"));
    let (cursor, floor) = (first.clone(), at(0).before(Duration::from_secs(6)).to_string());
    let signals = vec![Taken { signal: first, by: Some("ann".into()) }, Taken { signal: second, by: None }];
    let (point, patch) = (path(point), object(r#"{"votes":2}"#));
    SignalReceived { point, name: go(), signals, at: at(5), payload, patch, cursor, floor }
}

fn events_of_signals() -> Vec<Event> {
    let signal = suffix(at(5), "0a1b");
    let late = |refused| SignalLate { name: go(), signal: signal.clone(), control: "c4".into(), refused }.into();
    let (error, patch) = (Some(fault("nobody came")), object(r#"{"tries":2}"#));
    vec![
        SignalWaiting::into(wait_at("approve")),
        waiting("approve#2", Some(at(20)), false),
        whole_wait("approve#3").into(),
        received("approve"),
        whole_receipt("approve#3", data(r#"[{"yes":true},null]"#)).into(),
        timed_out("approve#2", None),
        SignalRefused { point: path("approve#3"), attempt: 2, at: at(6), error: fault("not now"), retry_at: at(8) }
            .into(),
        SignalTimeout { point: path("approve#3"), at: at(20), error, patch }.into(),
        closed("approve", Closing::Cancelled),
        closed("approve", Closing::Lost),
        closed("approve", Closing::Finished),
        late(None),
        late(Some("`approve` has received it".into())),
    ]
}

#[test]
fn an_entry_with_every_event_is_kept() {
    let all = [events_of_the_run(), events_of_steps(), events_of_others(), events_of_signals()];
    let events: Vec<Event> = all.concat();
    let mut names: Vec<&str> = events.iter().map(Event::name).collect();
    names.sort_unstable();
    names.dedup();
    let mut listed: Vec<&str> = EVENTS.split_whitespace().collect();
    listed.sort_unstable();
    assert_eq!(names, listed);
    let sample = Entry { seq: 7, by: "w1-7".into(), at: at(7), events, requests: Requests::default() };
    keeps("entry.json", &sample, Entry::to_json, |bytes| read_entry(bytes).unwrap().unwrap());
}

#[test]
fn store_requests_of_a_run_are_kept_in_entries_and_snapshots() {
    let requests = Requests { puts: 3, gets: 2, lists: 1, deletes: 4 };
    let sample = Entry { requests, ..entry(1, vec![run_started(), claimed("w1", at(30))]) };
    keeps("entry-requests.json", &sample, Entry::to_json, |bytes| read_entry(bytes).unwrap().unwrap());
    let run = Run::begin(the_run(), &sample).unwrap();
    let read = |bytes: &[u8]| read_state(the_run(), bytes).unwrap();
    keeps("snapshot-requests.json", &run, |run| state_to_json(run, "w1-9"), read);
}

#[test]
fn callers_are_kept_in_control_objects_and_in_their_events() {
    let by = Some("ada \"ops\"".to_owned());
    let sample = Control { id: "c1".into(), created_at: at(7), by: by.clone(), order: Order::Resume };
    keeps("control-named.json", &sample, Control::to_json, |bytes| Control::read(bytes).unwrap());
    let why = PauseCause::ByHand;
    let (shift, control, mapping) = (Duration::ZERO, Some("c1".to_owned()), BTreeMap::new());
    let events = vec![
        RunPaused { why, error: None, reason: None, control: control.clone(), refused: None, by: by.clone() }.into(),
        RunResumed { shift, control: control.clone(), refused: None, by: by.clone() }.into(),
        RunCancelRequested { reason: None, control: "c1".into(), refused: None, by: by.clone() }.into(),
        RunRestarted { from: None, steps: vec![], control: "c1".into(), refused: None, by: by.clone() }.into(),
        RunMigrated {
            definition_hash: "sha256:new".into(),
            version: None,
            renamed: mapping,
            skipped: vec![],
            control,
            refused: None,
            by,
        }
        .into(),
    ];
    keeps("entry-named.json", &entry(3, events), Entry::to_json, |bytes| read_entry(bytes).unwrap().unwrap());
}

#[test]
fn an_entry_with_an_unknown_event_is_rejected_by_name() {
    let bytes = br#"{"seq":1,"by":"x","at":"2026-01-28T12:00:00.000000Z","events":[{"type":"run.exploded"}]}"#;
    let refusal = read_entry(bytes).unwrap_err().to_string();
    assert!(refusal.contains("no event is called `run.exploded`"), "{refusal}");
}

/// A task with something of everything that a snapshot can hold, and the chunk that was rolled out of it.
fn whole_run() -> (Run, Chunk) {
    let first = events_of_the_run().into_iter().take(2).collect();
    let mut run = Run::begin("task/t1".parse().unwrap(), &entry(1, first)).unwrap();
    let [old, finished, failing]: [Event; 3] = ["old", "finished", "failing"].map(begun_undoable);
    add(&mut run, vec![old, done("old"), skipped("left-out")]).unwrap();
    let chunk = run.roll().remove(0);
    let nothing = StepCompleted {
        point: path("finished"),
        at: at(3),
        result: data("null"),
        patch: object(r#"{"paid":1.5}"#),
        mark: false,
    };
    add(&mut run, vec![finished, nothing.into(), failing, broken("failing", Some(at(90)))]).unwrap();
    let children = Children::Numbered { count: 3, restarts: 0 };
    let late = |of| SignalLate { name: name(of), signal: suffix(at(3), "5e"), control: "c4".into(), refused: None };
    add(
        &mut run,
        vec![
            ChildStarted { point: path("kids"), children, deadline: Some(at(99)) }.into(),
            asleep("nap", at(80), true),
            whole_wait("s").into(),
            whole_receipt("s", blob()).into(),
            waiting("s#2", Some(at(70)), true),
            SignalWaiting { deadline: None, ..whole_wait("s#3") }.into(),
            SignalWaiting::into(wait_at("s#4")),
            timed_out("s#4", Some(fault("nobody came"))),
            SignalWaiting::into(wait_at("s#5")),
            timed_out("s#5", None),
            SignalWaiting::into(wait_at("s#6")),
            closed("s#6", Closing::Lost),
            late("go").into(),
            late("never-waited-for").into(),
            claimed("w2", at(60)),
        ],
    )
    .unwrap();
    (run, chunk)
}

/// The moments of a run: a snapshot of each is kept.
fn moments() -> (Vec<(&'static str, Run)>, Chunk) {
    let (driven, chunk) = whole_run();
    let next = |run: &Run, events| {
        let mut run = run.clone();
        add(&mut run, events).unwrap();
        run
    };
    let parked = next(&driven, vec![RunParked { next_at: Some(at(70)), hints: vec!["due/00/h4".into()] }.into()]);
    let (reason, control) = (Some("lunch".to_owned()), Some("c1".to_owned()));
    let why = PauseCause::Failure;
    let stop = RunPaused { why, error: Some(whole_fault()), reason: reason.clone(), control, refused: None, by: None };
    let asked = RunCancelRequested { reason, control: "c2".into(), refused: None, by: None };
    let paused = next(&driven, vec![stop.into(), asked.into()]);
    let undoing_all = next(
        &paused,
        vec![
            undoing("failing"),
            not_undone("failing", None),
            undoing("finished"),
            not_undone("finished", Some(at(50))),
        ],
    );
    let failed = next(&undoing_all, vec![undone("finished"), undoing("old"), undone("old"), failed("why")]);
    let completed = next(&driven, vec![completed()]);
    let all = vec![
        ("snapshot-driven.json", driven),
        ("snapshot-parked.json", parked),
        ("snapshot-paused.json", paused),
        ("snapshot-compensating.json", undoing_all),
        ("snapshot-failed.json", failed),
        ("snapshot-completed.json", completed),
    ];
    (all, chunk)
}

#[test]
fn snapshots_stay_readable_with_their_offloaded_steps() {
    let (moments, chunk) = moments();
    for (file, run) in moments {
        let read = |bytes: &[u8]| {
            let mut run = read_state("task/t1".parse().unwrap(), bytes).unwrap();
            assert!(!run.is_whole(), "{file}: the offloaded steps are missing");
            run.unroll(chunk.clone());
            assert!(run.is_whole(), "{file}");
            run
        };
        keeps(file, &run, |run| state_to_json(run, "w1-9"), read);
    }
}

#[test]
fn a_snapshot_of_another_run_or_version_is_rejected() {
    let (moments, _) = moments();
    let bytes = state_to_json(&moments[0].1, "w1-9");
    let refusal = read_state("task/t2".parse().unwrap(), &bytes).unwrap_err().to_string();
    assert!(refusal.contains("not a snapshot of `task/t2` in version 1: of `t1` in version 1"), "{refusal}");
    let newer = String::from_utf8(bytes).unwrap().replacen("\"v\":1", "\"v\":2", 1);
    let refusal = read_state("task/t1".parse().unwrap(), newer.as_bytes()).unwrap_err().to_string();
    assert!(refusal.contains("of `t1` in version 2"), "{refusal}");
}

#[test]
fn a_chunk_is_kept() {
    let (_, chunk) = whole_run();
    keeps("chunk.json", &chunk, chunk_to_json, |bytes| read_chunk(bytes).unwrap());
}

#[test]
fn a_tombstone_is_kept() {
    let sample = Tombstone { gone_at: at(7), status: Status::Cancelled };
    keeps("tombstone.json", &sample, Tombstone::to_json, |bytes| read_entry(bytes).unwrap().unwrap_err());
}

#[test]
fn control_objects_of_each_kind_are_kept() {
    let reason = Some("lunch \"break\"".to_owned());
    let mapping = BTreeMap::from([(path("a"), Some(path("b"))), (path("c/d#2"), None)]);
    let rows = [
        ("control-cancel.json", Order::Cancel { reason: reason.clone() }),
        ("control-cancel-plain.json", Order::Cancel { reason: None }),
        ("control-pause.json", Order::Pause { reason }),
        ("control-resume.json", Order::Resume),
        ("control-restart.json", Order::Restart { from: None, expected_seq: 7 }),
        ("control-restart-from.json", Order::Restart { from: Some(path("a/b#2")), expected_seq: 7 }),
        ("control-migrate.json", Order::Migrate { definition_hash: "sha256:new".into(), mapping, expected_seq: 7 }),
        ("control-late.json", Order::Late { name: go(), signal: suffix(at(5), "0a1b") }),
    ];
    for (file, order) in rows {
        let sample = Control { id: "c1".into(), created_at: at(7), by: None, order };
        keeps(file, &sample, Control::to_json, |bytes| Control::read(bytes).unwrap());
    }
}

#[test]
fn signals_are_kept() {
    let (point, only) = (Some(path("approve#2")), Some(Bound { point: path("approve#2"), seq: 7 }));
    let mut source = Source::new(Some("ann@example.org".into()), "http");
    source.authenticated = true;
    let payload = Payload::parse(r#"{"yes": true,  "grams": 100.0}"#).unwrap();
    let (id, created_at) = ("0a1b".to_owned(), at(5));
    let whole = Signal { id: id.clone(), name: go(), payload, created_at, source, only, point };
    let (payload, source, only, point) = (Payload::null(), Source::default(), None, None);
    let plain = Signal { id, name: go(), payload, created_at, source, only, point };
    for (file, sample) in [("signal.json", &whole), ("signal-plain.json", &plain)] {
        keeps(file, sample, Signal::to_json, |bytes| Signal::read(bytes).unwrap());
    }
    let bare = br#"{"id":"0a1b","name":"go","payload":null,"created_at":"2026-01-28T12:00:05.000000Z"}"#;
    assert_eq!(Signal::read(bare), Ok(plain), "the sender is optional");
    let refusal = Signal::read(br#"{"id":"0a1b"}"#).unwrap_err().to_string();
    assert!(refusal.contains("not a signal: missing field `name`"), "{refusal}");
}

#[test]
fn definitions_are_kept() {
    let mut steps = nodes("a, ?approve<a, shop/pay<a+approve");
    steps[2].delay = Some(Duration::from_secs(2));
    steps[2].retry = Retry::never();
    steps[2].compensate = true;
    steps[2].queue = Some(name("mail"));
    steps[2].on_failure = OnFailure::Continue;
    steps[0].on_failure = OnFailure::Pause;
    let mut votes = SignalSpec::new(name("votes"));
    (votes.mode, votes.quorum, votes.timeout) = (Mode::Latest, 3, Some(Duration::from_secs(86_400)));
    votes.schema = Some(serde_json::json!({"type": "object", "required": ["yes"]}));
    steps.push(Node::signal(path("vote"), votes));
    let of: TypeName = "order".parse().unwrap();
    let rows = [
        ("definition-graph.json", Definition::graph(of.clone(), steps).unwrap()),
        ("definition-function.json", Definition::function(of.clone(), 3)),
        ("definition-task.json", Definition::task(of)),
    ];
    let write = |definition: &Definition| [&serde_json::to_vec(definition).unwrap()[..], b"\n"].concat();
    for (file, sample) in rows {
        keeps(file, &sample, write, |bytes| serde_json::from_slice(bytes).unwrap());
    }
}
