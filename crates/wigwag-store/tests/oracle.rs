//! Random operations on every store, compared with the memory store as the oracle.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use wigwag_store::conformance;
use wigwag_store::{
    Batch, Clear, Embedded, ErrorKind, Faults, Faulty, Memory, Meter, OpenSettings, Prefix, Proven, Retry,
    RetrySettings, Store, Version, open,
};

/// One thing to do to both stores.
#[derive(Clone, Debug)]
enum Step {
    /// Puts, at most one of them conditional, and deletes.
    Write(Vec<Part>),
    Get(usize),
    List {
        prefix: usize,
        after: usize,
        limit: usize,
    },
    /// Closes the store and opens it again, where it can be.
    Reopen,
}

#[derive(Clone, Debug)]
enum Part {
    Put(usize, u8),
    Create(usize, u8),
    /// At the version that the key had after that many writes from the last.
    Update(usize, u8, usize),
    Delete(usize),
    /// Only if nothing lies below that prefix behind that key, but for some keys: a bit for each.
    Clear(usize, usize, u16),
}

/// Keys whose order is easily got wrong.
const KEYS: [&str; 12] = ["a", "a-b/1", "a/1", "a/1/2", "a/2", "a0", "a~", "aa", "b/x", "b/y", "é", "日/本"];
/// The same without what directory order gets wrong.
const FLAT_KEYS: [&str; 12] =
    ["p/00", "p/01", "p/02", "p/03", "p/04", "p/05", "q/00", "q/01", "q/02", "q/03", "r/00", "r/01"];
const PREFIXES: [&str; 8] = ["", "a", "a/", "a-", "b/", "é", "p/", "q/0"];
const AFTERS: [&str; 8] = ["", "a", "a/1", "a0", "b", "p/02", "p/03x", "zz"];

fn part() -> impl Strategy<Value = Part> {
    let key = 0..KEYS.len();
    prop_oneof![
        3 => (key.clone(), any::<u8>()).prop_map(|(key, body)| Part::Put(key, body)),
        3 => (key.clone(), any::<u8>()).prop_map(|(key, body)| Part::Create(key, body)),
        2 => (key.clone(), any::<u8>(), 0..3_usize).prop_map(|(key, body, back)| Part::Update(key, body, back)),
        2 => key.prop_map(Part::Delete),
        2 => (0..PREFIXES.len(), 0..AFTERS.len(), any::<u16>()).prop_map(|(prefix, after, known)| Part::Clear(prefix, after, known)),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => prop::collection::vec(part(), 1..5).prop_map(Step::Write),
        3 => (0..KEYS.len()).prop_map(Step::Get),
        4 => (0..PREFIXES.len(), 0..AFTERS.len(), 0..15_usize).prop_map(|(prefix, after, limit)| Step::List { prefix, after, limit }),
        1 => Just(Step::Reopen),
    ];
    prop::collection::vec(step, 1..40)
}

/// A store to be compared, with how it is opened again.
struct Subject {
    store: Arc<dyn Store>,
    reopen: Box<dyn Fn() -> Arc<dyn Store>>,
    /// Says `more` only when there is more; buckets may say it at a page's end.
    exact: bool,
    /// Loses requests, so that it cannot always know whether an update was refused for its own sake.
    doubts: bool,
}

impl Subject {
    fn lasting(store: impl Store) -> Self {
        let store: Arc<dyn Store> = Arc::new(store);
        let same = Arc::clone(&store);
        Self { store, reopen: Box::new(move || Arc::clone(&same)), exact: true, doubts: false }
    }
}

/// The versions that each key had, in both stores, oldest first.
type History = Vec<Vec<(Version, Version)>>;

fn batches(
    number: usize,
    parts: &[Part],
    keys: [&str; 12],
    atomic: bool,
    history: &History,
) -> Option<(Batch, Batch, Vec<usize>)> {
    let (mut one, mut other, mut put) = (Batch::new(), Batch::new(), Vec::new());
    let (mut used, mut conditional) = (Vec::new(), false);
    // No two puts write the same bytes: to many servers equal bytes are the same version.
    let bytes = |body: &u8| format!("{body} {number}");
    for part in parts {
        let key = match part {
            Part::Clear(prefix, after, known) => {
                let known =
                    (0..keys.len()).filter(|key| known >> key & 1 == 1).map(|key| keys[key].to_owned()).collect();
                let clear = Clear { prefix: PREFIXES[*prefix].into(), after: AFTERS[*after].into(), known };
                if atomic {
                    (one, other) = (one.only_if_clear(clear.clone()), other.only_if_clear(clear));
                }
                continue;
            }
            Part::Put(key, _) | Part::Create(key, _) | Part::Update(key, ..) | Part::Delete(key) => key,
        };
        let is_conditional = matches!(part, Part::Create(..) | Part::Update(..));
        if used.contains(key) || (is_conditional && conditional) {
            continue;
        }
        used.push(*key);
        conditional |= is_conditional;
        match part {
            Part::Put(_, body) => (one, other) = (one.put(keys[*key], bytes(body)), other.put(keys[*key], bytes(body))),
            Part::Create(_, body) => {
                (one, other) = (one.create(keys[*key], bytes(body)), other.create(keys[*key], bytes(body)));
            }
            Part::Update(_, body, back) => {
                let (a, b) = history[*key].iter().rev().nth(*back)?.clone();
                (one, other) = (one.update(keys[*key], bytes(body), a), other.update(keys[*key], bytes(body), b));
            }
            Part::Clear(..) => {}
            Part::Delete(_) => (one, other) = (one.delete(keys[*key]), other.delete(keys[*key])),
        }
        if !matches!(part, Part::Delete(_)) {
            put.push(*key);
        }
    }
    Some((one, other, put))
}

async fn compare(
    oracle: Memory,
    mut subject: Subject,
    keys: [&str; 12],
    steps: Vec<Step>,
) -> Result<(), TestCaseError> {
    let mut history: History = vec![Vec::new(); KEYS.len()];
    // Elsewhere nothing can be kept clear.
    let atomic = oracle.traits().atomic && subject.store.traits().atomic;
    for (number, step) in steps.into_iter().enumerate() {
        match &step {
            Step::Write(parts) => {
                let Some((one, other, put)) = batches(number, parts, keys, atomic, &history) else { continue };
                match (oracle.write(one).await, subject.store.write(other).await) {
                    (Ok(expected), Ok(found)) => {
                        prop_assert_eq!(expected.versions.len(), found.versions.len());
                        for (key, versions) in put.iter().zip(expected.versions.into_iter().zip(found.versions)) {
                            history[*key].push(versions);
                        }
                    }
                    (Err(expected), Err(found))
                        if subject.doubts && expected.kind() == ErrorKind::Changed && found.is_unknown() => {}
                    (Err(expected), Err(found)) => {
                        prop_assert_eq!(expected.kind(), found.kind(), "{:?}: {:?}", &step, found);
                        prop_assert_eq!(expected.key(), found.key());
                        prop_assert_eq!(expected.landed(), found.landed());
                        // Operations before the rejection have versions that neither store returned: they
                        // are never updated.
                    }
                    (expected, found) => prop_assert!(false, "{step:?}: {expected:?} but {found:?}"),
                }
            }
            Step::Get(key) => {
                let (expected, found) = (oracle.get(keys[*key]).await, subject.store.get(keys[*key]).await);
                let body = |object: Option<wigwag_store::Object>| object.map(|object| object.body);
                prop_assert_eq!(body(expected.unwrap()), body(found.unwrap()), "{:?}", &step);
            }
            Step::List { prefix, after, limit } => {
                let list =
                    async |store: &dyn Store| store.list(PREFIXES[*prefix], AFTERS[*after], *limit).await.unwrap();
                let (expected, found) = (list(&oracle).await, list(&*subject.store).await);
                let shown = |page: &wigwag_store::Page| -> Vec<(String, u64)> {
                    page.entries.iter().map(|entry| (entry.key.clone(), entry.size)).collect()
                };
                prop_assert_eq!(shown(&expected), shown(&found), "{:?}", &step);
                prop_assert!(found.more >= expected.more);
                prop_assert!(!subject.exact || found.more == expected.more);
            }
            Step::Reopen => subject.store = (subject.reopen)(),
        }
    }
    Ok(())
}

/// Runs random steps on an oracle and on what `make` makes, a new one for each case.
fn agree<F: Future<Output = Subject>>(cases: u32, keys: [&'static str; 12], as_bucket: bool, make: impl Fn(u64) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let outcome = TestRunner::new(config).run(&(steps(), any::<u64>()), |(steps, seed)| {
        runtime.block_on(async {
            let oracle = if as_bucket { Memory::bucket() } else { Memory::new() };
            compare(oracle, make(seed).await, keys, steps).await
        })
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

fn patient() -> RetrySettings {
    RetrySettings::new(100, Duration::from_micros(20))
}

#[test]
fn the_embedded_store_agrees_with_memory() {
    let folder = tempfile::tempdir().unwrap();
    agree(150, KEYS, false, |seed| {
        let path = folder.path().join(format!("{seed:016x}"));
        async move {
            // `wigwag.json` is in every embedded store; a corner of it starts empty.
            let open =
                move || -> Arc<dyn Store> { Arc::new(Prefix::new(Embedded::open(&path).unwrap(), "c").unwrap()) };
            Subject { store: open(), reopen: Box::new(open), exact: true, doubts: false }
        }
    });
}

#[test]
fn the_layers_agree_with_memory() {
    agree(200, KEYS, false, async |_| Subject::lasting(Meter::new(Prefix::new(Memory::new(), "some/corner").unwrap())));
    agree(200, KEYS, true, async |_| {
        let proven = Proven::new(Memory::bucket());
        proven.layout().await.unwrap();
        proven.write(Batch::new().delete("wigwag.json")).await.unwrap();
        Subject::lasting(proven)
    });
}

#[test]
fn a_faulty_bucket_behind_retry_agrees_with_memory() {
    let faults = Faults { refused: 0.2, answer_lost: 0.1, request_lost: 0.1, ..Faults::default() };
    agree(300, KEYS, true, async |seed| {
        let store = Retry::new(Faulty::new(Memory::bucket(), faults, seed), patient());
        Subject { doubts: true, ..Subject::lasting(store) }
    });
}

/// A corner of a real server's bucket, or a loud word that the test is skipped.
fn on_server(server: &str, cases: u32, keys: [&'static str; 12]) {
    let Ok(endpoint) = std::env::var(format!("WIGWAG_TEST_{server}")) else {
        conformance::skip(&format!("{server} does not run; `cargo xtask test` starts it"));
        return;
    };
    agree(cases, keys, true, |seed| {
        let endpoint = endpoint.clone();
        async move {
            let mut settings = OpenSettings::default();
            settings.bucket.endpoint = Some(endpoint);
            settings.unproven = true;
            let opened = open(&format!("s3://wigwag/oracle-{seed:016x}"), &settings).unwrap();
            Subject { exact: false, ..Subject::lasting(opened.store) }
        }
    });
}

#[test]
fn s3_seaweedfs_agrees_with_memory() {
    on_server("SEAWEEDFS", 15, FLAT_KEYS);
}

#[test]
fn s3_ministack_agrees_with_memory() {
    on_server("MINISTACK", 15, KEYS);
}

#[test]
fn s3_moto_agrees_with_memory() {
    on_server("MOTO", 8, KEYS);
}
