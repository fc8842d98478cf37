//! Keys, ids, names and times: each prints as it was parsed, and sorts as intended.

use std::time::Duration;

use wigwag_core::{Hint, Key, Name, Path, RunId, RunRef, Status, Time, TypeName, kind_of, shard_of, stamp_of, suffix};
use wigwag_fuzz::{Choices, at, fuzz, text};

const KEYS: [&str; 16] = [
    "definition/order/sha256:00ff.json",
    "workflow/order-1/log/0000000001.json",
    "task/t:1/log/9999999999.json",
    "workflow/order-1/state.json",
    "workflow/order-1/steps/a~b=2/w1.7.json",
    "workflow/order-1/steps/.input/w1.7.json",
    "workflow/order-1/chunk/0000000001-0000000064.json",
    "workflow/order-1/children/order-1:a.json",
    "workflow/order-1/signals/go/2026-01-28T12:00:05.000000Z_0a1b.json",
    "workflow/order-1/keys/go/00ff.json",
    "workflow/order-1/signals/.control/2026-01-28T12:00:05.000000Z_c1.json",
    "due/00/2026-01-28T12:00:05.000000Z~00ff00ff~order-1~o.w1-1.7+3",
    "waiting/go/order-1~0000000007",
    "live/task:mail:send/t-1",
    "done/2026-01-28/2026-01-28T12:00:05.000000Z~00ff00ff~completed~order-1",
    "workers/w1.json",
];

#[test]
fn a_key_is_rejected_or_prints_unchanged() {
    fuzz!(20_000, |input: &[u8]| {
        let given = text(&mut Choices::new(input), &KEYS);
        let Ok(key) = given.parse::<Key>() else { return };
        assert_eq!(key.to_string(), given);
        if let Key::Due(hint) = key {
            let next = hint.successor(at(9));
            assert!(next.descends_from(&given), "{given}");
            assert_eq!(Key::Due(next.clone()).to_string().parse(), Ok(Key::Due(next)));
            let _ = (hint.owner(), hint.generation());
        }
    });
}

#[test]
fn raw_text_is_rejected_or_prints_unchanged() {
    fuzz!(10_000, |input: &[u8]| {
        let given = String::from_utf8_lossy(input);
        if let Ok(key) = given.parse::<Key>() {
            assert_eq!(key.to_string(), given);
        }
        printed::<RunId>(&given);
        printed::<Name>(&given);
        printed::<TypeName>(&given);
        printed::<Path>(&given);
        printed::<RunRef>(&given);
        printed::<Status>(&given);
        printed::<Time>(&given);
        let _ = (stamp_of(&given), wigwag_core::sha256_u32(&given));
    });
}

/// Checks that an accepted text prints as it was given.
fn printed<T: std::str::FromStr + std::fmt::Display>(given: &str) {
    if let Ok(taken) = given.parse::<T>() {
        assert_eq!(taken.to_string(), given);
    }
}

#[test]
fn ids_and_names_make_keys_that_can_be_parsed() {
    let ids = ["order-1", "a:b::2", "x.y_z", "0"];
    let names = ["go", "approve", "a.b"];
    let paths = ["a", "a/b", "a#2/b", "group/step/.delay"];
    fuzz!(10_000, |input: &[u8]| {
        let mut choices = Choices::new(input);
        let (id, name) = (text(&mut choices, &ids).parse::<RunId>(), text(&mut choices, &names).parse::<Name>());
        let (path, of) = (text(&mut choices, &paths).parse::<Path>(), text(&mut choices, &ids).parse::<TypeName>());
        let (Ok(id), Ok(name), Ok(path), Ok(of)) = (id, name, path, of) else { return };
        let run = if choices.once_in(2) { RunRef::task(id.clone()) } else { RunRef::workflow(id.clone()) };
        let (seq, at) = (choices.number(), Time::from_micros(choices.number()));
        let restarts = u32::from(choices.byte());
        let child = id.child(&path, restarts);
        assert_ne!(child, id.child(&path, restarts + 1));
        let hint =
            Hint { shard: 3, due: at, kind: kind_of(&of), run: id.clone(), nonce: Hint::lease_nonce("w-1", seq) };
        let keys = [
            Key::Entry { run: run.clone(), seq: seq % 10_000_000_000 },
            Key::blob(&run, Some(&path), "w.1"),
            Key::blob(&run, None, "w.1"),
            Key::Child { run: run.clone(), child: child.clone() },
            Key::Signal { run: run.clone(), name: name.clone(), suffix: suffix(at, "0a") },
            Key::Sent { run: run.clone(), name: name.clone(), hash: "00".into() },
            Key::Control { run: run.clone(), suffix: suffix(at, "0a") },
            Key::Due(hint),
            Key::Waiting { name: name.clone(), run: id.clone(), seq: 7 },
            Key::Live { of: of.clone(), run: id.clone() },
            Key::Done { at, kind: kind_of(&of), status: Status::Failed, run: id.clone() },
        ];
        for key in keys {
            assert_eq!(key.to_string().parse(), Ok(key.clone()));
            assert!(wigwag_store::check_key(&key.to_string()).is_ok(), "no store takes `{key}`");
        }
        assert!(shard_of(&id, 4) < 4);
        assert_eq!(RunId::new(child.as_str()), Ok(child));
        // A key of valid parts is valid, or rejected when it is built rather than when it is read.
        let below = path.join(name.as_str());
        let elsewhere = TypeName::of_step(&of, &path).and_then(|of| of.as_str().parse());
        for made in [below, elsewhere].into_iter().flatten() {
            for point in [made.clone(), made.delay(), made.repeated(u32::MAX), made.repeated(u32::MAX).delay()] {
                assert_eq!(Path::new(point.as_str()), Ok(point));
            }
        }
    });
}

#[test]
fn keys_sort_as_their_times_do() {
    fuzz!(10_000, |input: &[u8]| {
        let mut choices = Choices::new(input);
        let one = Time::from_micros(choices.number());
        let other = match choices.below(3) {
            0 => one.after(Duration::from_micros(1)),
            1 => one.after(Duration::from_micros(choices.number())),
            _ => Time::from_micros(choices.number()),
        };
        let ids = [text(&mut choices, &["0a", "~", "zz"]), text(&mut choices, &["0a", "~", "zz"])];
        let [first, second] = [suffix(one, &ids[0]), suffix(other, &ids[1])];
        assert!(one == other || one.cmp(&other) == first.cmp(&second), "{first} {second}");
        assert_eq!((stamp_of(&first), stamp_of(&second)), (Some(one), Some(other)));
        assert_eq!(one.to_string().parse(), Ok(one));
        assert!(one.next_second() >= one || one.next_second() == Time::MAX);
        let due = |due, nonce: &str| {
            let (run, kind) = ("r".parse().unwrap(), "00ff00ff".into());
            Key::Due(Hint { shard: 1, due, kind, run, nonce: nonce.into() }).to_string()
        };
        assert!(one == other || one.cmp(&other) == due(one, &ids[0]).cmp(&due(other, &ids[1])));
        let entry = |seq| Key::Entry { run: "workflow/r".parse().unwrap(), seq }.to_string();
        let (low, high) = (choices.number() % 10_000_000_000, choices.number() % 10_000_000_000);
        assert_eq!(low.cmp(&high), entry(low).cmp(&entry(high)));
    });
}
