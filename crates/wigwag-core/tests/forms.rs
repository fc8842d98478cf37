//! Stored forms decode to the encoded values: entries, payloads, control objects and keys; and keys
//! sort by time.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod common;

use std::time::Duration;

use common::*;
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value};
use wigwag_core::*;

fn texts() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z]{0,8}", ".{0,12}"]
}

fn a_name() -> impl Strategy<Value = Name> {
    "[A-Za-z0-9_-][A-Za-z0-9._-]{0,12}".prop_filter_map("not a name", |text| text.parse().ok())
}

fn an_id() -> impl Strategy<Value = RunId> {
    "[A-Za-z0-9_:-][A-Za-z0-9._:-]{0,20}".prop_filter_map("not an id", |text| text.parse().ok())
}

fn a_type() -> impl Strategy<Value = TypeName> {
    "[A-Za-z0-9_:-][A-Za-z0-9._:-]{0,20}".prop_filter_map("not a type", |text| text.parse().ok())
}

fn a_point() -> impl Strategy<Value = Path> {
    "[a-z][a-z0-9.]{0,6}(#[2-9])?(/[a-z]{1,3}(#[1-9][0-9])?){0,2}(/\\.delay)?"
        .prop_filter_map("not a point", |text| text.parse().ok())
}

fn a_run() -> impl Strategy<Value = RunRef> {
    (any::<bool>(), an_id()).prop_map(|(task, id)| if task { RunRef::task(id) } else { RunRef::workflow(id) })
}

fn a_time() -> impl Strategy<Value = Time> {
    prop_oneof![(0..=Time::MAX.micros()), Just(0), Just(Time::MAX.micros())].prop_map(Time::from_micros)
}

fn a_span() -> impl Strategy<Value = Duration> {
    (0..=u64::MAX).prop_map(Duration::from_micros)
}

fn json() -> impl Strategy<Value = Value> {
    let number = prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        number.prop_map(Value::from),
        texts().prop_map(Value::from),
    ];
    let key = prop_oneof![texts(), Just("$blob".to_owned()), Just("bytes".to_owned())];
    leaf.prop_recursive(3, 16, 4, move |inner| {
        let object = btree_map(key.clone(), inner.clone(), 0..4);
        prop_oneof![
            vec(inner, 0..4).prop_map(Value::from),
            object.prop_map(|map| Value::from(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

fn an_object() -> impl Strategy<Value = Map<String, Value>> {
    btree_map(texts(), json(), 0..4).prop_map(|map| map.into_iter().collect())
}

fn a_payload() -> impl Strategy<Value = Payload> {
    (json(), any::<bool>()).prop_map(|(value, pretty)| {
        let text = if pretty { format!(" {value:#}\n") } else { value.to_string() };
        Payload::parse(text).unwrap()
    })
}

/// A payload in place where it may stand there, as the engine puts it.
fn a_datum() -> impl Strategy<Value = Data> {
    let blob = |nonce, bytes| Data::Blob(Blob { nonce, bytes });
    (a_payload(), texts(), any::<usize>(), any::<bool>()).prop_map(move |(payload, nonce, bytes, inline)| {
        if inline && Data::fits(&payload) { Data::Inline(payload) } else { blob(nonce, bytes) }
    })
}

fn a_fault() -> impl Strategy<Value = Fault> {
    let parts = (texts(), texts(), option::of(texts()), option::of(a_point()), vec(texts(), 0..3));
    parts.prop_map(|(kind, message, detail, point, steps)| {
        let fault = match steps.is_empty() {
            true => Fault::new(kind, message),
            false => Fault::version_mismatch(&kind, &message, steps),
        };
        let fault = fault.detail(detail);
        point.iter().fold(fault, Fault::at)
    })
}

fn a_retry() -> impl Strategy<Value = Retry> {
    let parts = (any::<u32>(), a_span(), 1.0..1e6_f64, a_span(), 0.0..=1.0_f64);
    parts.prop_map(|(retries, first, factor, cap, jitter)| {
        Retry::times(retries).first(first).factor(factor).cap(cap).jitter(jitter)
    })
}

fn an_ending() -> impl Strategy<Value = Ending> {
    prop_oneof![a_fault().prop_map(Ending::Failed), option::of(texts()).prop_map(Ending::Cancelled)]
}

fn some_children() -> impl Strategy<Value = Children> {
    prop_oneof![
        a_run().prop_map(Children::One),
        vec(an_id(), 0..3).prop_map(Children::Tasks),
        any::<(u32, u32)>().prop_map(|(count, restarts)| Children::Numbered { count, restarts }),
    ]
}

fn a_start() -> impl Strategy<Value = Event> {
    let parent = (a_run(), a_point()).prop_map(|(run, point)| Parent { run, point });
    let task = (a_name(), a_retry(), a_span(), option::of(a_time()))
        .prop_map(|(queue, retry, timeout, expires_at)| TaskSpec { queue, retry, timeout, expires_at });
    let parts = (
        (a_type(), texts(), option::of(any::<u32>()), a_datum()),
        (option::of(a_time()), option::of(parent), option::of(task), vec(texts(), 0..3)),
    );
    parts.prop_map(|((of, definition_hash, version, input), (not_before, parent, task, hints))| {
        RunStarted { of, definition_hash, version, input, not_before, parent, task, hints }.into()
    })
}

/// What happens to the run as a whole.
fn a_turn() -> impl Strategy<Value = Event> {
    let why = select(&[PauseCause::ByHand, PauseCause::Version, PauseCause::Failure][..]);
    let text = || option::of(texts());
    prop_oneof![
        a_start(),
        (texts(), text(), a_time(), vec(texts(), 0..3)).prop_map(|(owner, peer, until, hints)| RunClaimed {
            owner,
            peer,
            until,
            hints
        }
        .into()),
        (option::of(a_time()), vec(texts(), 0..3)).prop_map(|(next_at, hints)| RunParked { next_at, hints }.into()),
        (why, option::of(a_fault()), text(), text(), text()).prop_map(|(why, error, reason, control, refused)| {
            RunPaused { why, error, reason, control, refused, by: None }.into()
        }),
        (a_span(), text(), text()).prop_map(|(shift, control, refused)| RunResumed {
            shift,
            control,
            by: refused.clone(),
            refused
        }
        .into()),
        (text(), texts(), text()).prop_map(|(reason, control, refused)| RunCancelRequested {
            reason,
            control,
            by: refused.clone(),
            refused
        }
        .into()),
        (option::of(a_point()), vec(a_point(), 0..3), texts(), text())
            .prop_map(|(from, steps, control, refused)| RunRestarted { from, steps, control, refused, by: None }.into()),
        (texts(), option::of(any::<u32>()), btree_map(a_point(), a_point(), 0..3), vec(a_point(), 0..3), text())
            .prop_map(|(definition_hash, version, renamed, skipped, control)| {
                RunMigrated { definition_hash, version, renamed, skipped, refused: control.clone(), control, by: None }
                    .into()
            }),
        a_datum().prop_map(|result| RunCompleted { result }.into()),
        a_fault().prop_map(|error| RunFailed { error }.into()),
        text().prop_map(|reason| RunCancelled { reason }.into()),
    ]
}

/// What happens at a step.
fn a_step() -> impl Strategy<Value = Event> {
    let flag = any::<bool>;
    prop_oneof![
        (a_point(), any::<u32>(), flag(), option::of(an_id()), option::of(a_time())).prop_map(
            |(point, attempt, compensate, task, deadline)| {
                StepStarted { point, attempt, compensate, task, deadline }.into()
            }
        ),
        (a_point(), a_time(), a_datum(), option::of(an_object()), flag())
            .prop_map(|(point, at, result, patch, mark)| StepCompleted { point, at, result, patch, mark }.into()),
        (a_point(), any::<u32>(), a_time(), a_fault(), option::of(a_time()), flag()).prop_map(
            |(point, attempt, at, error, retry_at, held)| {
                StepFailed { point, attempt, at, error, retry_at, held }.into()
            }
        ),
        a_point().prop_map(|point| StepSkipped { point }.into()),
        (a_point(), any::<u32>(), option::of(an_ending()))
            .prop_map(|(point, attempt, cause)| CompensationStarted { point, attempt, cause }.into()),
        a_point().prop_map(|point| CompensationCompleted { point }.into()),
        (a_point(), any::<u32>(), a_fault(), option::of(a_time()))
            .prop_map(|(point, attempt, error, retry_at)| CompensationFailed { point, attempt, error, retry_at }.into()),
    ]
}

/// What happens at a point that waits.
fn a_waiting() -> impl Strategy<Value = Event> {
    prop_oneof![
        (a_point(), a_time(), any::<bool>()).prop_map(|(point, until, relative)| SleepStarted {
            point,
            until,
            relative
        }
        .into()),
        (a_point(), a_time()).prop_map(|(point, at)| SleepFired { point, at }.into()),
        (a_point(), some_children(), option::of(a_time())).prop_map(|(point, children, deadline)| ChildStarted {
            point,
            children,
            deadline
        }
        .into()),
        (a_point(), a_time(), a_datum()).prop_map(|(point, at, result)| ChildCompleted { point, at, result }.into()),
        (a_point(), a_time(), a_fault()).prop_map(|(point, at, error)| ChildFailed { point, at, error }.into()),
        (a_point(), a_time()).prop_map(|(point, at)| PointDropped { point, at }.into()),
    ]
}

fn a_mode() -> impl Strategy<Value = Mode> {
    select(&[Mode::Queue, Mode::Latest][..])
}

fn a_suffix() -> impl Strategy<Value = String> {
    (a_time(), "[0-9a-f-]{1,36}").prop_map(|(time, id)| suffix(time, &id))
}

fn some_taken() -> impl Strategy<Value = Vec<Taken>> {
    vec((a_suffix(), option::of(texts())).prop_map(|(signal, by)| Taken { signal, by }), 1..4)
}

/// A schema that is there: `null` is none.
fn a_schema() -> impl Strategy<Value = Option<Value>> {
    option::of(an_object().prop_map(Value::from))
}

/// The beginning of a wait for a signal.
fn a_wait() -> impl Strategy<Value = SignalWaiting> {
    let parts = (
        (a_point(), a_name(), option::of(a_time()), any::<bool>()),
        (a_mode(), any::<u32>(), option::of(a_point()), a_schema(), option::of(texts())),
    );
    parts.prop_map(|((point, name, deadline, relative), (mode, quorum, race, schema, about))| SignalWaiting {
        point,
        name,
        deadline,
        relative,
        mode,
        quorum,
        authenticated: relative,
        race,
        schema,
        about,
    })
}

/// A wait that took its signals.
fn a_receipt() -> impl Strategy<Value = SignalReceived> {
    let parts = (
        (a_point(), a_name(), some_taken(), a_time()),
        (a_datum(), option::of(an_object()), a_suffix(), prop_oneof![a_suffix(), Just(String::new())]),
    );
    parts.prop_map(|((point, name, signals, at), (payload, patch, cursor, floor))| SignalReceived {
        point,
        name,
        signals,
        at,
        payload,
        patch,
        cursor,
        floor,
    })
}

/// What happens at a wait for a signal.
fn a_signalling() -> impl Strategy<Value = Event> {
    let why = select(&[Closing::Cancelled, Closing::Lost, Closing::Finished][..]);
    prop_oneof![
        a_wait().prop_map(Event::from),
        a_receipt().prop_map(Event::from),
        (a_point(), a_time(), option::of(a_fault()), option::of(an_object()))
            .prop_map(|(point, at, error, patch)| SignalTimeout { point, at, error, patch }.into()),
        (a_point(), any::<u32>(), a_time(), a_fault(), a_time()).prop_map(|(point, attempt, at, error, retry_at)| {
            SignalRefused { point, attempt, at, error, retry_at }.into()
        }),
        (a_point(), why, a_time()).prop_map(|(point, why, at)| SignalClosed { point, why, at }.into()),
        (a_name(), texts(), texts(), option::of(texts())).prop_map(|(name, signal, control, refused)| SignalLate {
            name,
            signal,
            control,
            refused
        }
        .into()),
    ]
}

fn a_signal() -> impl Strategy<Value = Signal> {
    let source = (option::of(texts()), option::of(texts())).prop_map(|(by, via)| match via {
        Some(via) => {
            let mut source = Source::new(by, via);
            source.authenticated = source.by.is_some();
            source
        }
        None => Source::default(),
    });
    let bound = (a_point(), any::<u64>()).prop_map(|(point, seq)| Bound { point, seq });
    let parts = (texts(), a_name(), a_payload(), a_time(), source, option::of(bound), option::of(a_point()));
    parts.prop_map(|(id, name, payload, created_at, source, only, point)| Signal {
        id,
        name,
        payload,
        created_at,
        source,
        only,
        point,
    })
}

fn an_entry() -> impl Strategy<Value = Entry> {
    let events = vec(prop_oneof![a_turn(), a_step(), a_waiting(), a_signalling()], 0..6);
    let counts = prop_oneof![Just([0; 4]), any::<[u64; 4]>()];
    let requests = counts.prop_map(|[puts, gets, lists, deletes]| Requests { puts, gets, lists, deletes });
    (any::<u64>(), texts(), a_time(), events, requests).prop_map(|(seq, by, at, events, requests)| Entry {
        seq,
        by,
        at,
        events,
        requests,
    })
}

fn an_order() -> impl Strategy<Value = Order> {
    prop_oneof![
        option::of(texts()).prop_map(|reason| Order::Cancel { reason }),
        option::of(texts()).prop_map(|reason| Order::Pause { reason }),
        Just(Order::Resume),
        (option::of(a_point()), any::<u64>()).prop_map(|(from, expected_seq)| Order::Restart { from, expected_seq }),
        (texts(), btree_map(a_point(), option::of(a_point()), 0..3), any::<u64>()).prop_map(
            |(definition_hash, mapping, expected_seq)| Order::Migrate { definition_hash, mapping, expected_seq }
        ),
        (a_name(), a_suffix()).prop_map(|(name, signal)| Order::Late { name, signal }),
    ]
}

fn a_hint() -> impl Strategy<Value = Hint> {
    (0..100_u16, a_time(), "[0-9a-f]{8}", an_id(), "[a-z0-9.+~-]{1,40}")
        .prop_map(|(shard, due, kind, run, nonce)| Hint { shard, due, kind, run, nonce })
}

fn a_key() -> impl Strategy<Value = Key> {
    let seq = || 0..10_000_000_000_u64;
    let segment = || a_point().prop_map(|point| point.as_segment());
    prop_oneof![
        (a_type(), "sha256:[0-9a-f]{64}").prop_map(|(of, hash)| Key::Definition { of, hash }),
        (a_run(), seq()).prop_map(|(run, seq)| Key::Entry { run, seq }),
        a_run().prop_map(|run| Key::State { run }),
        (a_run(), segment(), "[a-z0-9-]{1,20}").prop_map(|(run, point, nonce)| Key::Blob { run, point, nonce }),
        (a_run(), seq(), seq()).prop_map(|(run, from, to)| Key::Chunk { run, from, to }),
        (a_run(), an_id()).prop_map(|(run, child)| Key::Child { run, child }),
        (a_run(), a_name(), a_suffix()).prop_map(|(run, name, suffix)| Key::Signal { run, name, suffix }),
        (a_run(), a_name(), "[0-9a-f]{64}").prop_map(|(run, name, hash)| Key::Sent { run, name, hash }),
        (a_run(), a_suffix()).prop_map(|(run, suffix)| Key::Control { run, suffix }),
        (a_run(), "[0-9a-f]{32}").prop_map(|(run, id)| Key::RevokedLink { run, id }),
        a_hint().prop_map(Key::Due),
        (a_name(), an_id(), seq()).prop_map(|(name, run, seq)| Key::Waiting { name, run, seq }),
        (a_type(), an_id()).prop_map(|(of, run)| Key::Live { of, run }),
        (a_time(), "[0-9a-f]{8}", select(&Status::ALL[..]), an_id()).prop_map(|(at, kind, status, run)| Key::Done {
            at,
            kind,
            status,
            run
        }),
        "[a-z0-9.-]{1,30}".prop_map(|id| Key::Worker { id }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_entry_reads_back_as_it_was(entry in an_entry()) {
        let bytes = entry.to_json();
        let read = read_entry(&bytes).unwrap().unwrap();
        prop_assert_eq!(read.to_json(), bytes);
        prop_assert_eq!(read, entry);
    }

    #[test]
    fn a_control_object_reads_back_as_it_was(
        id in texts(), created_at in a_time(), by in option::of(texts()), order in an_order(),
    ) {
        let control = Control { id, created_at, by, order };
        prop_assert_eq!(Control::read(&control.to_json()).unwrap(), control);
    }

    #[test]
    fn a_signal_reads_back_as_it_was(signal in a_signal()) {
        let bytes = signal.to_json();
        let read = Signal::read(&bytes).unwrap();
        prop_assert_eq!(read.to_json(), bytes);
        prop_assert_eq!(read, signal);
    }

    #[test]
    fn a_node_that_waits_for_a_signal_reads_back_as_it_was(
        name in a_name(), mode in a_mode(), quorum in any::<u32>(), timeout in option::of(a_span()), schema in a_schema(),
    ) {
        let mut spec = SignalSpec::new(name);
        (spec.mode, spec.quorum, spec.timeout, spec.schema) = (mode, quorum, timeout, schema);
        let definition = Definition::graph("order".parse().unwrap(), vec![Node::signal(path("s"), spec)]).unwrap();
        let read: Definition = serde_json::from_str(&serde_json::to_string(&definition).unwrap()).unwrap();
        prop_assert_eq!(read, definition);
    }

    #[test]
    fn a_payload_is_passed_on_as_the_text_it_came_as(payload in a_payload()) {
        let text = serde_json::to_string(&Data::Inline(payload.clone())).unwrap();
        prop_assert_eq!(&text, payload.text());
        let read: Result<Data, _> = serde_json::from_str(&text);
        prop_assert_eq!(read.ok() == Some(Data::Inline(payload.clone())), Data::fits(&payload));
    }

    #[test]
    fn the_data_of_a_run_survives_its_snapshot(patch in an_object(), result in a_datum(), end in a_datum()) {
        let mut run = run_with("a=running");
        let step = StepCompleted { point: path("a"), at: at(2), result, patch: Some(patch), mark: false };
        add(&mut run, vec![step.into(), RunCompleted { result: end }.into()]).unwrap();
        let read = read_state(the_run(), &state_to_json(&run, "by")).unwrap();
        prop_assert_eq!(read, run);
    }

    #[test]
    fn waits_and_inboxes_survive_the_snapshot(
        open in a_wait(), over in a_wait(), receipt in a_receipt(), late in a_suffix(), park in any::<bool>(),
    ) {
        let mut run = run_with("");
        let (open, over) = (SignalWaiting { point: path("open"), ..open }, SignalWaiting { point: path("over"), ..over });
        let receipt = SignalReceived { point: path("over"), name: over.name.clone(), ..receipt };
        let note = SignalLate { name: open.name.clone(), signal: late, control: "c1".into(), refused: None };
        add(&mut run, vec![open.into(), over.into(), receipt.into(), note.into()]).unwrap();
        add(&mut run, if park { vec![parked()] } else { Vec::new() }).unwrap();
        let read = read_state(the_run(), &state_to_json(&run, "by")).unwrap();
        prop_assert_eq!(read, run);
    }

    #[test]
    fn signals_in_an_inbox_sort_by_stamp(one in (a_time(), "[0-9a-f_-]{1,36}"), two in (a_time(), "[0-9a-f]{4}")) {
        let [first, second] = [&one, &two].map(|(stamp, id)| suffix(*stamp, id));
        prop_assert_eq!((stamp_of(&first), stamp_of(&second)), (Some(one.0), Some(two.0)));
        prop_assert_eq!(first.cmp(&second), one.0.cmp(&two.0).then(one.1.cmp(&two.1)));
        // The floor of an inbox is a time alone: it lies below all that is stamped so.
        prop_assert!(one.0.to_string() < first);
    }

    #[test]
    fn a_key_reads_back_as_it_was(key in a_key()) {
        prop_assert_eq!(key.to_string().parse::<Key>().unwrap(), key);
    }

    #[test]
    fn no_key_is_another_and_more(one in a_key(), two in a_key(), tail in "(/[a-z.]{1,8}){1,2}") {
        let (text, other) = (one.to_string(), two.to_string());
        prop_assert!(!other.starts_with(&format!("{text}/")), "{text} {other}");
        prop_assert!(format!("{text}{tail}").parse::<Key>().is_err(), "{text}{tail}");
        prop_assert!(text.len() <= 1_024 && text.split('/').all(|segment| segment.len() <= 200), "{text}");
    }

    #[test]
    fn ordered_keys_sort_by_time(one in a_hint(), two in a_hint(), seqs in any::<(u32, u32)>()) {
        let two = Hint { shard: one.shard, ..two };
        let key = |hint: &Hint| Key::Due(hint.clone()).to_string();
        let expected = one.due.cmp(&two.due);
        if expected.is_ne() {
            prop_assert_eq!(key(&one).cmp(&key(&two)), expected);
            prop_assert_eq!(one.due.to_string().cmp(&two.due.to_string()), expected);
            let done = |hint: &Hint, status| {
                let (at, kind, run) = (hint.due, hint.kind.clone(), hint.run.clone());
                Key::Done { at, kind, status, run }.to_string()
            };
            prop_assert_eq!(done(&one, Status::Failed).cmp(&done(&two, Status::Cancelled)), expected);
        }
        prop_assert!(key(&one).starts_with(&prefix::due(one.shard)));
        let log = |seq: u32| Key::Entry { run: the_run(), seq: seq.into() }.to_string();
        prop_assert_eq!(log(seqs.0).cmp(&log(seqs.1)), seqs.0.cmp(&seqs.1));
    }

    #[test]
    fn different_points_have_different_segments_and_children(one in a_point(), two in a_point()) {
        prop_assume!(one != two);
        prop_assert_ne!(one.as_segment(), two.as_segment());
        let id: RunId = "order-1".parse().unwrap();
        prop_assert_ne!(id.child(&one, 0), id.child(&two, 0));
    }
}

#[test]
fn a_key_of_another_form_is_rejected() {
    let rows = [
        "",
        "workflow",
        "workflow/a",
        "workflow/a/log/1.json",
        "workflow/a/log/0000000001",
        "workflow/a/log/+000000001.json",
        "workflow/.a/state.json",
        "workflow/a/chunk/0000000001.json",
        "workflow/a/signals/.other/x.json",
        "workflow/a/keys/.other/x.json",
        "workflow/a/keys/go/x",
        "due/0/2026-01-28T12:00:00.000000Z~00000000~a~n",
        "due/00/2026-01-28T12:00:00Z~00000000~a~n",
        "due/00/2026-01-28T12:00:00.000000Z~00000000~a",
        "done/2026-01-29/2026-01-28T12:00:00.000000Z~00000000~failed~a",
        "done/2026-01-28/2026-01-28T12:00:00.000000Z~00000000~lost~a",
        "live/a",
        "live/a/b/c",
        "waiting/go/a~1",
    ];
    for text in rows {
        assert!(text.parse::<Key>().is_err(), "{text}");
    }
}

#[test]
fn the_longest_names_make_keys_that_fit() {
    let id: RunId = "i".repeat(limits::ID_BYTES_MAX).parse().unwrap();
    let of: TypeName = "t".repeat(limits::TASK_TYPE_BYTES_MAX).parse().unwrap();
    let word = name(&"n".repeat(limits::NAME_BYTES_MAX));
    let point = path(&vec!["p".repeat(63); 8].join("/"));
    let run = RunRef::workflow(id.clone());
    let time = Time::MAX;
    let nonce = Hint::lease_nonce(&"w".repeat(40), 9_999);
    let keys = [
        Key::Due(Hint { shard: 99, due: time, kind: kind_of(&of), run: id.clone(), nonce }),
        Key::Blob { run: run.clone(), point: point.as_segment(), nonce: "n".repeat(100) },
        Key::Signal { run: run.clone(), name: word.clone(), suffix: format!("{time}_{}", "u".repeat(36)) },
        Key::Sent { run: run.clone(), name: word.clone(), hash: sha256_hex(&["key"]) },
        Key::Waiting { name: word, run: id.clone(), seq: u64::MAX },
        Key::Live { of: of.clone(), run: id.clone() },
        Key::Done { at: time, kind: kind_of(&of), status: Status::WaitingSignal, run: id.clone() },
        Key::Child { run, child: id },
    ];
    for key in keys {
        let text = key.to_string();
        assert!(text.len() <= 1_024 && text.split('/').all(|segment| segment.len() <= 200), "{text}");
        assert_eq!(text.parse::<Key>(), Ok(key));
    }
}

#[test]
fn shards_and_kinds_are_those_of_the_design() {
    // The first four bytes of SHA-256("abc") are ba 78 16 bf.
    let (id, of): (RunId, TypeName) = ("abc".parse().unwrap(), "abc".parse().unwrap());
    assert_eq!(kind_of(&of), "ba7816bf");
    let rows = [(1, 0), (4, 3), (16, 15), (10, 9)];
    for (shards, shard) in rows {
        assert_eq!(shard_of(&id, shards), shard, "of {shards}");
    }
}

#[test]
fn counters_that_no_log_can_produce_are_rejected() {
    let run = run_with("a=done b=running");
    let text = String::from_utf8(state_to_json(&run, "by")).unwrap();
    let seq = format!("\"seq\":{},\"lease\"", run.seq);
    assert!(text.contains(&seq), "{text}");
    for (number, good) in [("0", false), ("1", true), ("9999999999", true), ("10000000000", false)] {
        let changed = text.replace(&seq, &format!("\"seq\":{number},\"lease\""));
        assert_eq!(read_state(the_run(), changed.as_bytes()).is_ok(), good, "{number}");
    }
    for chunk in [
        "{\"from\":1,\"to\":9,\"points\":1}",
        "{\"from\":0,\"to\":1,\"points\":1}",
        "{\"from\":1,\"to\":1,\"points\":100001}",
    ] {
        let changed = text.replace("\"by\":\"by\"", &format!("\"chunks\":[{chunk}],\"by\":\"by\""));
        assert!(read_state(the_run(), changed.as_bytes()).is_err(), "{chunk}");
    }
}

#[test]
fn a_hint_that_was_put_off_without_end_stays_a_hint() {
    let listed = "due/00/2026-01-28T12:00:05.000000Z~00ff00ff~order-1~w+4294967295";
    let Ok(Key::Due(hint)) = listed.parse() else { panic!("{listed}") };
    assert!(hint.successor(at(9)).descends_from(listed));
}

#[test]
fn text_that_no_parser_accepts_is_no_payload() {
    let deep = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    for good in ["1e308", "\"\\ud83d\\ude00\"", "12345678901234567890123", &deep(100)] {
        assert_eq!(Payload::parse(good).unwrap().value(), serde_json::from_str::<Value>(good).unwrap());
    }
    for wrong in ["1e999", "[-1e999]", "\"\\ud800\"", "{\"\\udc00\":1}", &deep(101), &deep(100_000)] {
        assert!(Payload::parse(wrong).is_err(), "{}", &wrong[..wrong.len().min(20)]);
    }
}
