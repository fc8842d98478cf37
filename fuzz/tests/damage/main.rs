//! A live store with one damaged object: clients and workers get an answer or an error that names the object, no
//! unreadable object is changed or deleted, and other runs continue.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use wigwag::testing::{Kit, ManualClock};
use wigwag::{Client, Error, ErrorKind, Filter, PruneOptions, Status};
use wigwag_core::{Control, Key, read_state};
use wigwag_fuzz::{Choices, body, fuzz, text, without_panics};
use wigwag_store::{Batch, Memory, Store};

use world::{HEALTHY, Objects, RUNS, World, code};

const HOUR: Duration = Duration::from_secs(3_600);

/// Time limit of any operation: each takes milliseconds, so that exceeding it means a hang.
const PATIENCE: Duration = Duration::from_secs(20);

/// A change to the store.
struct Damage {
    key: String,
    /// The new body; `None`: the object was removed.
    body: Option<Vec<u8>>,
    /// The object did not exist before.
    foreign: bool,
}

/// Returns the kind of an object and its run, derived from its key.
fn kind(key: &str) -> String {
    let parts = key.split('/').take(4).enumerate();
    // Times and hashes are irrelevant to the kind.
    let plain =
        |(place, part): (usize, &str)| if place < 3 { part.chars().take(8).collect() } else { part.len().to_string() };
    parts.map(plain).collect::<Vec<String>>().join("/")
}

impl std::fmt::Debug for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.body {
            None => write!(f, "`{}` was removed", self.key),
            Some(body) => write!(f, "`{}` was made `{}`", self.key, String::from_utf8_lossy(body)),
        }
    }
}

impl Damage {
    fn choose(choices: &mut Choices<'_>, objects: &Objects) -> Self {
        let places: Vec<&String> = objects.keys().filter(|key| !key.contains(HEALTHY)).collect();
        // Pick the kind and run first: one kind may have hundreds of objects, and another one.
        let kinds: Vec<String> = places.iter().map(|key| kind(key)).collect::<BTreeSet<_>>().into_iter().collect();
        let of = choices.pick(&kinds);
        let alike: Vec<&String> = places.iter().copied().filter(|key| kind(key) == *of).collect();
        let key = (*choices.pick(&alike)).clone();
        let like: Vec<Vec<u8>> = vec![objects[&key].clone()];
        match choices.below(8) {
            0 => Self { key, body: None, foreign: false },
            1 => {
                let key = text(choices, &[&key]);
                let foreign = !objects.contains_key(&key) && !key.contains(HEALTHY);
                let body = Some(body(choices, &like)).filter(|_| wigwag_store::check_key(&key).is_ok() && foreign);
                Self { key, body, foreign: true }
            }
            2 => {
                let other = objects[*choices.pick(&places)].clone();
                Self { key, body: Some(other), foreign: false }
            }
            _ => Self { key, body: Some(body(choices, &like)), foreign: false },
        }
    }

    fn apply(&self, objects: &Objects) -> Objects {
        let mut damaged = objects.clone();
        match &self.body {
            Some(body) => _ = damaged.insert(self.key.clone(), body.clone()),
            None => _ = damaged.remove(&self.key),
        }
        damaged
    }

    /// Checks an error of a read: the caller's request was valid, and the store is available.
    fn check(&self, what: &str, error: &Error) {
        let kind = error.kind();
        let wrong = matches!(kind, ErrorKind::Invalid | ErrorKind::Unavailable | ErrorKind::Stopped);
        assert!(!wrong, "{what} of a store in which {self:?}: {kind:?}: {error}");
        if kind == ErrorKind::Damaged && !self.foreign {
            let named = error.to_string().contains(&self.key);
            // A missing object is reported under the key of the object that refers to it, a surplus object under the key that it blocks.
            assert!(named || self.body.is_none(), "{what} does not name `{}`: {error}", self.key);
            assert!(error.advice().is_some(), "{what} gives no advice: {error}");
        }
    }
}

async fn filled(objects: &Objects, bucket: bool, clock: &ManualClock) -> Memory {
    let clock = Arc::new(clock.clone());
    let store = if bucket { Memory::bucket_with_clock(clock) } else { Memory::with_clock(clock) };
    let all: Vec<_> = objects.iter().collect();
    for some in all.chunks(100) {
        let batch = some.iter().fold(Batch::new(), |batch, (key, body)| batch.put(*key, (*body).clone()));
        store.write(batch).await.unwrap();
    }
    store
}

/// Performs every read that clients can make of a run.
async fn ask(client: &Client, id: &str, damage: &Damage) {
    let run = client.run(id).unwrap();
    let mut errors = vec![
        ("get", run.get().await.err()),
        ("steps", run.steps().await.err()),
        ("history", run.history(1, 100).await.err()),
        ("signals", run.signals(None).await.err()),
        ("waiting", run.waiting().await.err()),
        ("input", run.input().await.err()),
        ("output", run.output_payload().await.err()),
        ("last page", run.history(u64::MAX, u64::MAX).await.err()),
    ];
    for step in ["big", "small", "kid", "tasks"] {
        let output = run.output::<serde_json::Value>(step).await;
        // A type mismatch of the step's result is the caller's error.
        errors.push(("output of a step", output.err().filter(|error| error.kind() != ErrorKind::Invalid)));
    }
    for (what, error) in errors.into_iter().filter_map(|(what, error)| Some((what, error?))) {
        damage.check(what, &error);
    }
}

/// Operations on all runs must not fail because of one.
async fn list(client: &Client, damage: &Damage) {
    for status in [None, Some(Status::Completed)] {
        let mut filter = Filter::default();
        filter.statuses = status.into_iter().collect();
        let listing = client.list(&filter).await.unwrap_or_else(|error| panic!("{damage:?}: {error}"));
        let healthy = listing.runs.iter().any(|run| run.id.as_str() == HEALTHY);
        assert_eq!(healthy, status.is_none(), "{damage:?}: {listing:?}");
    }
    let waiting = client.waiting_runs(100, None).await.unwrap_or_else(|error| panic!("{damage:?}: {error}"));
    assert!(waiting.runs.len() <= RUNS.len() * 4, "{damage:?}");
    client.runs_waiting_for("go", 1, None).await.unwrap_or_else(|error| panic!("{damage:?}: {error}"));
}

async fn send(client: &Client, damage: &Damage, id: &str, key: Option<&str>) {
    let call = client.signal(id, "go", &true);
    let call = if let Some(key) = key { call.key(key) } else { call };
    if let Err(error) = call.await {
        damage.check("signal", &error);
    }
}

/// Runs one case: first the clients' reads, then the workers, then the services.
async fn run(choices: &mut Choices<'_>, world: &World, damage: &Damage, bucket: bool) {
    let clock = ManualClock::default();
    clock.advance(world.elapsed);
    let damaged = damage.apply(&world.objects);
    let store = filled(&damaged, bucket, &clock).await;
    let reader = wigwag::Engine::builder(Arc::new(store.clone())).clock(Arc::new(clock.clone())).client().await;
    let Ok(client) = reader else {
        // The store as a whole is rejected only if its layout file is damaged.
        assert_eq!(damage.key, "wigwag.json", "{:?}", reader.err());
        return;
    };
    for id in RUNS {
        ask(&client, id, damage).await;
    }
    list(&client, damage).await;
    let any = *choices.pick(&RUNS);
    send(&client, damage, any, None).await;
    send(&client, damage, "talk-1", Some("click-1")).await;
    let kit = Kit::on(Arc::new(store.clone()), clock, code).await.unwrap();
    kit.settle().await.unwrap();
    for span in [HOUR, 2 * HOUR, 50 * HOUR] {
        kit.advance(span).await.unwrap();
    }
    let healthy = kit.client().run(HEALTHY).unwrap().status().await.unwrap();
    assert_eq!(healthy, Status::Completed, "{damage:?}");
    let swept = kit.client().sweep(false).await;
    swept.unwrap_or_else(|error| panic!("{damage:?}: {error}"));
    kit.settle().await.unwrap();
    for id in RUNS {
        ask(&kit.client(), id, damage).await;
    }
    kept(damage, &damaged, &store, &[]).await;
    let ended = ended(&kit.client()).await;
    let pruned = kit.client().prune(&PruneOptions::older_than(HOUR)).await;
    pruned.unwrap_or_else(|error| panic!("{damage:?}: {error}"));
    kept(damage, &damaged, &store, &ended).await;
}

/// Returns the prefixes of readable runs and tasks that have ended, which retention may delete.
async fn ended(client: &Client) -> Vec<String> {
    let mut folders = Vec::new();
    for tasks in [false, true] {
        let mut filter = Filter::default();
        (filter.tasks, filter.limit) = (tasks, 1_000);
        let runs = client.list(&filter).await.unwrap().runs.into_iter().filter(|run| run.status.is_final());
        let family = if tasks { "task" } else { "workflow" };
        folders.extend(runs.map(|run| format!("{family}/{}/", run.id)));
    }
    folders
}

/// Checks that logs, inboxes, step results and unreadable objects are unchanged, except for
/// runs that retention deleted.
async fn kept(damage: &Damage, before: &Objects, store: &Memory, pruned: &[String]) {
    for (key, body) in before.iter().filter(|(key, _)| !pruned.iter().any(|folder| key.starts_with(folder))) {
        let must_stay = match key.parse::<Key>() {
            Ok(Key::State { run }) => read_state(run, body).is_err(),
            Ok(Key::Control { .. }) => Control::read(body).is_err(),
            Ok(
                Key::Entry { .. }
                | Key::Blob { .. }
                | Key::Chunk { .. }
                | Key::Child { .. }
                | Key::Signal { .. }
                | Key::Sent { .. }
                | Key::Definition { .. },
            ) => true,
            // Indexes are rebuilt, which removes damaged entries.
            Ok(_) => false,
            Err(_) => true,
        };
        if must_stay {
            let there = store.get(key).await.unwrap().map(|object| object.body.to_vec());
            assert!(there.as_deref() == Some(body), "`{key}` was changed or deleted: {damage:?}");
        }
    }
}

#[test]
fn one_damaged_object_affects_no_other() {
    let worlds = [World::new(false), World::new(true)];
    fuzz!(100, |input: &[u8]| {
        let mut choices = Choices::new(input);
        let bucket = choices.once_in(3);
        let world = &worlds[usize::from(bucket)];
        let damage = Damage::choose(&mut choices, &world.objects);
        live_with(&mut choices, world, &damage, bucket);
    });
}

fn live_with(choices: &mut Choices<'_>, world: &World, damage: &Damage, bucket: bool) {
    fastrand::seed(7);
    without_panics(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let done = tokio::time::timeout(PATIENCE, run(choices, world, damage, bucket)).await;
            assert!(done.is_ok(), "it hangs: {damage:?}");
        });
    });
}

/// A regression: an unreadable payload of a step blocked its turn while the clock did not advance.
#[test]
fn one_object_of_each_kind_may_be_truncated_or_missing() {
    for bucket in [false, true] {
        let world = World::new(bucket);
        let kinds: BTreeMap<String, &String> =
            world.objects.keys().filter(|key| !key.contains(HEALTHY)).map(|key| (kind(key), key)).collect();
        for (number, key) in kinds.into_values().enumerate() {
            // Each of the two kinds of damage is tested on one of the two kinds of store.
            let body = ((number % 2 == 0) == bucket).then(|| b"{".to_vec());
            let damage = Damage { key: key.clone(), body, foreign: false };
            live_with(&mut Choices::new(&[]), &world, &damage, bucket);
        }
    }
}

#[test]
fn without_damage_every_operation_succeeds() {
    for bucket in [false, true] {
        let world = World::new(bucket);
        let kinds: BTreeMap<String, usize> = world.objects.keys().fold(BTreeMap::new(), |mut kinds, key| {
            let parts: Vec<&str> = key.split('/').collect();
            *kinds.entry(parts.get(2).unwrap_or(&parts[0]).to_string()).or_default() += 1;
            kinds
        });
        for kind in ["log", "signals", "keys", "steps", "chunk", "children", "state.json"] {
            assert!(kinds.contains_key(kind), "no object of kind `{kind}`: {kinds:?}");
        }
        let damage = Damage { key: "nothing".into(), body: None, foreign: true };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(run(&mut Choices::new(&[]), &world, &damage, bucket));
    }
}
