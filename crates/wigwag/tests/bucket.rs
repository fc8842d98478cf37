//! Costs on a bucket: the depth of a call (the number of requests that follow each other until its effect), the requests of
//! waiting, following and listing clients, and the effect of an outage.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use serde_json::{Value, json};
use wigwag::{Builder, Client, Ctx, Engine, Failure, RunHandle, Settings, Status, permanent};
use wigwag_store::{
    Announced, Batch, Changes, Clock, Error, ErrorKind, LAYOUT_KEY, Memory, Meter, Notices, Notifications, Now, Object,
    Operation, Page, Peers, Receipt, Retry, RetrySettings, Stamp, Store, Traits,
};

/// Duration of a request. All other work takes no time.
const UNIT: Duration = Duration::from_millis(100);

/// A clock that shows the paused time of the runtime.
#[derive(Clone, Debug)]
struct Paused(tokio::time::Instant);

#[async_trait]
impl Clock for Paused {
    fn wall(&self) -> Stamp {
        Stamp::from_micros(1_767_225_600_000_000).after(self.0.elapsed())
    }

    fn boot(&self) -> Duration {
        self.0.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "it is paused time that passes")]
    async fn sleep(&self, span: Duration) {
        tokio::time::sleep(span).await;
    }
}

/// A bucket whose requests take one unit of time each, so that depth is elapsed time.
#[derive(Clone, Debug)]
struct Deep {
    memory: Memory,
    clock: Paused,
    is_down: Arc<AtomicBool>,
    /// Large values cannot be read.
    has_lost_blobs: Arc<AtomicBool>,
    /// The process that uses this view of the bucket is dead.
    is_dead: Arc<AtomicBool>,
}

impl Deep {
    fn new() -> Self {
        let clock = Paused(tokio::time::Instant::now());
        Self {
            memory: Memory::bucket_with_clock(Arc::new(clock.clone())),
            clock,
            is_down: Arc::default(),
            has_lost_blobs: Arc::default(),
            is_dead: Arc::default(),
        }
    }

    /// Returns the same bucket as another process sees it.
    fn elsewhere(&self) -> Self {
        Self { is_dead: Arc::default(), ..self.clone() }
    }

    async fn request(&self) -> wigwag_store::Result<()> {
        self.clock.sleep(UNIT).await;
        if self.is_dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        match self.is_down.load(Ordering::Relaxed) {
            true => Err(Error::of_kind(ErrorKind::Unavailable)),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Store for Deep {
    async fn get(&self, key: &str) -> wigwag_store::Result<Option<Object>> {
        self.request().await?;
        if key.contains("/steps/") && self.has_lost_blobs.load(Ordering::Relaxed) {
            return Err(Error::of_kind(ErrorKind::Unavailable));
        }
        self.memory.get(key).await
    }

    /// Writes as a bucket does: put after put, and consecutive deletes in one request.
    async fn write(&self, batch: Batch) -> wigwag_store::Result<Receipt> {
        let mut was_delete = false;
        for operation in batch.operations() {
            let is_delete = matches!(operation, Operation::Delete(_));
            if !(is_delete && was_delete) {
                self.request().await?;
            }
            was_delete = is_delete;
        }
        self.memory.write(batch).await
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> wigwag_store::Result<Page> {
        self.request().await?;
        self.memory.list(prefix, after, limit).await
    }

    async fn now(&self) -> wigwag_store::Result<Now> {
        self.memory.now().await
    }

    fn changes(&self, prefix: &str) -> Changes {
        self.memory.changes(prefix)
    }

    fn traits(&self) -> Traits {
        self.memory.traits()
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        None
    }
}

/// Two engines on one bucket that are notified of each other's writes at once.
struct World {
    deep: Deep,
    notices: Notices,
    meter: Meter<Deep>,
    engine: Engine,
}

thread_local! {
    /// Start of the step of `notes`.
    static BEGAN: Cell<Option<tokio::time::Instant>> = const { Cell::new(None) };
}

fn code(engine: Builder) -> Builder {
    engine
        .function("steps", 1, |ctx: Ctx, (): ()| async move {
            for step in ["one", "two", "three"] {
                ctx.step(step, || async { Ok::<_, Failure>(()) }).await?;
            }
            Ok::<_, Failure>(3)
        })
        .function("go", 1, |ctx: Ctx, (): ()| async move { ctx.wait::<Value>("go").await })
        .function("large", 1, |_: Ctx, (): ()| async move { Ok::<_, Failure>("x".repeat(100_000)) })
        .function("breaks", 1, |ctx: Ctx, (): ()| async move {
            ctx.wait::<Value>("go").await?;
            Err::<(), _>(permanent("no"))
        })
        .function("notes", 1, |ctx: Ctx, (): ()| async move {
            ctx.step("note", || async {
                BEGAN.set(Some(tokio::time::Instant::now()));
                Ok::<_, Failure>(())
            })
            .await
        })
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    settings.lease = Duration::from_secs(3_600);
    settings.sweep_every = None;
    // Polling is disabled in effect, so a quick reaction is due to a notification.
    (settings.look_min, settings.look_max) = (Duration::from_secs(1_800), Duration::from_secs(1_800));
    settings
}

/// Returns the number of sequential requests in that time.
fn units(span: Duration) -> u64 {
    u64::try_from(span.as_millis() / UNIT.as_millis()).unwrap()
}

impl World {
    async fn start() -> Self {
        let deep = Deep::new();
        deep.memory.write(Batch::new().put(LAYOUT_KEY, "{\"layout\":1,\"shards\":1}")).await.unwrap();
        let meter = Meter::new(deep.clone());
        let notices = Notices::new();
        let store = Announced::new(meter.clone(), notices.clone());
        let builder = Engine::builder(Arc::new(store)).notices(notices.clone());
        let builder = builder.settings(settings()).clock(Arc::new(deep.clock.clone()));
        let engine = code(builder).start().await.unwrap();
        let world = Self { deep, notices, meter, engine };
        world.pass(100).await;
        world
    }

    fn client(&self) -> Client {
        self.engine.client()
    }

    async fn pass(&self, seconds: u64) {
        self.deep.clock.sleep(Duration::from_secs(seconds)).await;
    }

    /// Returns the number of sequential requests until the future is done.
    async fn depth<T>(&self, doing: impl Future<Output = T>) -> (u64, T) {
        let begun = self.deep.clock.boot();
        let done = doing.await;
        (units(self.deep.clock.boot() - begun), done)
    }

    /// Returns a run that waits, once all of its writes are done.
    async fn parked(&self, id: &str) -> RunHandle {
        let run = self.client().start("go", &()).id(id).await.unwrap();
        self.pass(100).await;
        assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
        run
    }
}

#[tokio::test(start_paused = true)]
async fn depth_of_what_people_wait_for() {
    let world = World::start().await;
    let mut depths = Vec::new();
    // The first start checks whether a worker has registered the type.
    world.client().start("steps", &()).id("first").await.unwrap();
    world.pass(100).await;

    let (depth, (acknowledged, _)) = world
        .depth(async {
            let (depth, run) = world.depth(async { world.client().start("steps", &()).id("r").await.unwrap() }).await;
            (depth, run.result::<u32>().await.unwrap())
        })
        .await;
    depths.push(("start → acknowledged", acknowledged));
    depths.push(("start → result of 3 steps", depth));

    let run = world.parked("signalled").await;
    let result = tokio::spawn({
        let run = run.clone();
        async move { run.result::<Value>().await.unwrap() }
    });
    world.pass(100).await;
    let (depth, (acknowledged, _)) = world
        .depth(async {
            let (depth, _) = world.depth(async { run.signal("go", &json!(7)).await.unwrap() }).await;
            (depth, result.await.unwrap())
        })
        .await;
    depths.push(("signal → acknowledged", acknowledged));
    depths.push(("signal → result", depth));

    let (depth, _) = world
        .depth(async {
            let run = world.client().start("go", &()).id("parks").await.unwrap();
            while world.deep.memory.get(&format!("workflow/{}/state.json", run.id())).await.unwrap().is_none() {
                world.deep.clock.sleep(UNIT / 10).await;
            }
        })
        .await;
    depths.push(("start → parked", depth));

    let run = world.parked("cancelled").await;
    let (depth, _) = world
        .depth(async {
            run.cancel().await.unwrap();
            run.wait().await.unwrap()
        })
        .await;
    depths.push(("cancel → cancelled", depth));
    depths.push(("start by a client → first step elsewhere", first_step_elsewhere(&world).await));
    depths.push(("lease over → result of 3 steps elsewhere", taken_over().await));
    // Current figures: a change here is a change of the latency that users see.
    let noted: Vec<String> = depths.iter().map(|(what, depth)| format!("{what}: {depth}")).collect();
    let expected: Vec<String> = EXPECTED.iter().map(|(what, depth)| format!("{what}: {depth}")).collect();
    assert_eq!(noted, expected);
}

/// Requests in a row, also in `docs/internals/runs.md`.
const EXPECTED: [(&str, u64); 8] = [
    ("start → acknowledged", 2),
    ("start → result of 3 steps", 5),
    ("signal → acknowledged", 4),
    ("signal → result", 8),
    ("start → parked", 3),
    ("cancel → cancelled", 9),
    ("start by a client → first step elsewhere", 6),
    ("lease over → result of 3 steps elsewhere", 9),
];

/// Measures the start of a run by a client that cannot drive it.
async fn first_step_elsewhere(world: &World) -> u64 {
    let clock = Arc::new(world.deep.clock.clone());
    let store = Announced::new(world.meter.clone(), world.notices.clone());
    let client = Engine::builder(Arc::new(store)).notices(world.notices.clone()).clock(clock).client().await.unwrap();
    client.start("notes", &()).id("notes-before").await.unwrap();
    world.pass(100).await;
    let begun = world.deep.clock.boot();
    let run = client.start("notes", &()).id("notes").await.unwrap();
    run.wait().await.unwrap();
    units(BEGAN.get().unwrap().duration_since(world.deep.clock.0) - begun)
}

/// Measures the takeover of a run whose worker died, once the lease is over.
async fn taken_over() -> u64 {
    let deep = Deep::new();
    deep.memory.write(Batch::new().put(LAYOUT_KEY, "{\"layout\":1,\"shards\":1}")).await.unwrap();
    let start = async |deep: &Deep| {
        let (store, clock) = (Arc::new(deep.clone()), Arc::new(deep.clock.clone()));
        code(Engine::builder(store).settings(settings()).clock(clock)).start().await.unwrap()
    };
    let dies = deep.elsewhere();
    let engine = start(&dies).await;
    let run = engine.client().start("steps", &()).id("orphan").await.unwrap();
    dies.is_dead.store(true, Ordering::Relaxed);
    let other = start(&deep).await;
    let run = other.client().run(run.id().as_str()).unwrap();
    let until = run.get().await.unwrap().run().lease.as_ref().unwrap().until;
    run.result::<u32>().await.unwrap();
    let over = Stamp::from_micros(until.micros());
    units(Duration::from_micros(deep.clock.wall().micros() - over.micros()))
}

#[tokio::test(start_paused = true)]
async fn a_signal_of_the_same_process_is_not_found_by_polling() {
    let world = World::start().await;
    let run = world.parked("r").await;
    let (depth, _) = world
        .depth(async {
            run.signal("go", &json!(7)).await.unwrap();
            run.result::<Value>().await.unwrap()
        })
        .await;
    assert!(depth < 600, "a poll comes after half an hour: {depth}");
}

/// A notification transport that claims to be connected and loses every message.
#[derive(Debug)]
struct Lossy;

#[async_trait]
impl wigwag_store::Notifier for Lossy {
    fn send(&self, _: &[String]) {}
    fn subscribed(&self) {}
    fn is_connected(&self) -> bool {
        true
    }
    fn advertise(&self, _: wigwag_store::Advertisement) {}
    fn withdraw(&self) {}
    async fn flush(&self) {}
}

/// Returns a client whose process gets no notifications of other processes' writes, although it expects them.
async fn deaf_client(world: &World) -> Client {
    let notices = Notices::new();
    notices.connect(Arc::new(Lossy));
    let store = Announced::new(world.meter.clone(), notices.clone());
    assert_eq!(store.traits().notifications, Notifications::Fleet);
    let clock = Arc::new(world.deep.clock.clone());
    Engine::builder(Arc::new(store)).notices(notices).settings(settings()).clock(clock).client().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn with_a_stream_a_waiter_costs_a_request_in_30_s_and_finds_an_end_of_which_it_was_not_told() {
    let world = World::start().await;
    let run = world.parked("r").await;
    let client = deaf_client(&world).await;
    let waiting = tokio::spawn({
        let run = client.run("r").unwrap();
        async move { run.result::<Value>().await.unwrap() }
    });
    world.pass(100).await;
    let before = world.meter.usage();
    world.pass(600).await;
    let gets = world.meter.usage().since(&before).gets;
    assert!((15..=21).contains(&gets), "0.035 a second at most: {gets} in 600 s");
    run.signal("go", &json!(7)).await.unwrap();
    let (depth, result) = world.depth(waiting).await;
    assert_eq!(result.unwrap(), json!(7));
    assert!(depth < 1_200, "a look comes after 30 s: {depth}");
}

/// Hands the keys that concern others to another process, as a server does.
#[derive(Debug)]
struct Relay(Notices);

#[async_trait]
impl wigwag_store::Notifier for Relay {
    fn send(&self, keys: &[String]) {
        let wanted: Vec<String> = keys.iter().filter(|key| wigwag::concerns_others(key)).cloned().collect();
        self.0.receive(&wanted);
    }
    fn subscribed(&self) {}
    fn is_connected(&self) -> bool {
        true
    }
    fn advertise(&self, _: wigwag_store::Advertisement) {}
    fn withdraw(&self) {}
    async fn flush(&self) {}
}

#[tokio::test(start_paused = true)]
async fn a_waiter_in_another_process_is_notified_of_every_kind_of_end() {
    let world = World::start().await;
    let there = Notices::new();
    there.connect(Arc::new(Lossy));
    world.notices.connect(Arc::new(Relay(there.clone())));
    let store = Announced::new(world.meter.clone(), there.clone());
    let clock = Arc::new(world.deep.clock.clone());
    let client =
        Engine::builder(Arc::new(store)).notices(there).settings(settings()).clock(clock).client().await.unwrap();
    for (of, expected) in [("go", Status::Completed), ("breaks", Status::Failed), ("go", Status::Cancelled)] {
        let run = world.client().start(of, &()).id(format!("{expected:?}").to_lowercase()).await.unwrap();
        world.pass(100).await;
        let waiting = tokio::spawn({
            let run = client.run(run.id().as_str()).unwrap();
            async move { run.wait().await.unwrap().status() }
        });
        world.pass(100).await;
        let (depth, status) = world
            .depth(async {
                match expected {
                    Status::Cancelled => _ = run.cancel().await.unwrap(),
                    _ => _ = run.signal("go", &json!(7)).await.unwrap(),
                }
                waiting.await.unwrap()
            })
            .await;
        assert_eq!(status, expected);
        assert!(depth < 60, "a poll would come after up to 300: {expected:?} after {depth}");
    }
}

#[tokio::test(start_paused = true)]
async fn following_a_parked_run_backs_off_to_one_request_in_15_s() {
    let world = World::start().await;
    let run = world.parked("r").await;
    // The client gets notifications only about its process's writes, as in a fleet without servers.
    let clock = Arc::new(world.deep.clock.clone());
    let client = Engine::builder(Arc::new(world.meter.clone())).clock(clock).client().await.unwrap();
    let following = tokio::spawn({
        let run = client.run("r").unwrap();
        async move {
            let (mut log, mut count) = (run.follow(1), 0);
            while let Some(entries) = log.next().await.unwrap() {
                count += entries.len();
            }
            count
        }
    });
    world.pass(300).await;
    let before = world.meter.usage();
    world.pass(600).await;
    let gets = world.meter.usage().since(&before).gets;
    assert!((30..=45).contains(&gets), "one in 15 s and the time it takes: {gets} in 600 s");
    run.signal("go", &json!(7)).await.unwrap();
    let entries = run.history(1, 100).await.unwrap().len();
    world.pass(100).await;
    assert!(following.await.unwrap() >= entries);
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_half_a_minute_fails_no_wait_follow_start_or_signal() {
    let world = World::start().await;
    let clock: Arc<dyn Clock> = Arc::new(world.deep.clock.clone());
    let patient = Retry::with_clock(world.deep.clone(), RetrySettings::default(), Arc::clone(&clock));
    let client = Engine::builder(Arc::new(patient)).clock(clock).client().await.unwrap();
    for id in ["a", "b"] {
        world.parked(id).await;
    }
    let waits = ["a", "b"].map(|id| {
        let run = client.run(id).unwrap();
        tokio::spawn(async move { run.result::<Value>().await.map(|_| ()) })
    });
    let follows = ["a", "b"].map(|id| {
        let mut log = client.run(id).unwrap().follow(1);
        tokio::spawn(async move {
            while log.next().await?.is_some() {}
            Ok::<_, wigwag::Error>(())
        })
    });
    world.pass(20).await;
    world.deep.is_down.store(true, Ordering::Relaxed);
    let signals = ["a", "b"].map(|id| {
        let run = client.run(id).unwrap();
        tokio::spawn(async move { run.signal("go", &json!(7)).await.map(|_| ()) })
    });
    world.pass(30).await;
    world.deep.is_down.store(false, Ordering::Relaxed);
    for done in join_all(waits.into_iter().chain(follows).chain(signals)).await {
        done.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_large_result_is_read_once_the_store_is_back() {
    let world = World::start().await;
    let run = world.client().start("large", &()).id("r").await.unwrap();
    run.wait().await.unwrap();
    let client = deaf_client(&world).await;
    world.deep.has_lost_blobs.store(true, Ordering::Relaxed);
    let reading = tokio::spawn({
        let run = client.run("r").unwrap();
        async move { run.result::<String>().await }
    });
    world.pass(300).await;
    assert!(!reading.is_finished(), "it waits for the store");
    world.deep.has_lost_blobs.store(false, Ordering::Relaxed);
    assert_eq!(reading.await.unwrap().unwrap().len(), 100_000);
}

#[tokio::test(start_paused = true)]
async fn a_worker_and_a_client_can_start_during_an_outage() {
    let deep = Deep::new();
    deep.memory.write(Batch::new().put(LAYOUT_KEY, "{\"layout\":1,\"shards\":1}")).await.unwrap();
    let clock: Arc<dyn Clock> = Arc::new(deep.clock.clone());
    deep.is_down.store(true, Ordering::Relaxed);
    let builder = || {
        let patient = Retry::with_clock(deep.clone(), RetrySettings::default(), Arc::clone(&clock));
        Engine::builder(Arc::new(patient)).settings(settings()).clock(Arc::clone(&clock))
    };
    let starting = (tokio::spawn(code(builder()).start()), tokio::spawn(builder().client()));
    deep.clock.sleep(Duration::from_secs(50)).await;
    assert!(!starting.0.is_finished() && !starting.1.is_finished(), "both wait for the store");
    deep.is_down.store(false, Ordering::Relaxed);
    let (engine, client) = (starting.0.await.unwrap().unwrap(), starting.1.await.unwrap().unwrap());
    assert_eq!(engine.client().start("steps", &()).await.unwrap().result::<u32>().await.unwrap(), 3);
    client.check().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_start_takes_longer_than_a_lease_is_driven_all_the_same() {
    let deep = Deep::new();
    deep.memory.write(Batch::new().put(LAYOUT_KEY, "{\"layout\":1,\"shards\":1}")).await.unwrap();
    let clock: Arc<dyn Clock> = Arc::new(deep.clock.clone());
    let patient = Retry::with_clock(deep.clone(), RetrySettings::default(), Arc::clone(&clock));
    let mut settings = Settings::default();
    settings.lease = Duration::from_secs(20);
    let engine = code(Engine::builder(Arc::new(patient)).settings(settings).clock(clock)).start().await.unwrap();
    deep.is_down.store(true, Ordering::Relaxed);
    let starting = tokio::spawn({
        let client = engine.client();
        async move { client.start("steps", &()).id("r").await }
    });
    deep.clock.sleep(Duration::from_secs(40)).await;
    deep.is_down.store(false, Ordering::Relaxed);
    let run = starting.await.unwrap().unwrap();
    assert_eq!(run.result::<u32>().await.unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_without_a_retry_layer_survives_an_outage() {
    let world = World::start().await;
    let run = world.parked("r").await;
    let client = deaf_client(&world).await;
    let waiting = tokio::spawn({
        let run = client.run("r").unwrap();
        async move { run.result::<Value>().await }
    });
    world.pass(10).await;
    world.deep.is_down.store(true, Ordering::Relaxed);
    world.pass(300).await;
    world.deep.is_down.store(false, Ordering::Relaxed);
    run.signal("go", &json!(7)).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), json!(7));
}

#[tokio::test(start_paused = true)]
async fn the_waits_of_many_runs_are_listed_with_one_read_each_and_counted_with_none() {
    let world = World::start().await;
    for number in 0..20 {
        world.client().start("go", &()).id(format!("r-{number}")).await.unwrap();
    }
    world.client().start("steps", &()).id("done").await.unwrap();
    world.pass(200).await;
    let before = world.meter.usage();
    let waiting = world.client().waiting_runs(100, None).await.unwrap();
    assert_eq!(waiting.runs.len(), 20);
    let used = world.meter.usage().since(&before);
    assert_eq!((used.gets, used.lists), (20, 1), "{used:?}");

    let before = world.meter.usage();
    let counts = world.client().counts().await.unwrap();
    let used = world.meter.usage().since(&before);
    assert_eq!(used.gets, 0, "{used:?}");
    assert_eq!((counts.types["go"].unfinished, counts.types["steps"].completed), (20, 1), "{counts:?}");
    assert_eq!(counts.waiting["go"], 20);
}

#[tokio::test(start_paused = true)]
async fn made_up_ids_begin_with_chance_on_a_bucket_and_with_the_time_elsewhere() {
    let world = World::start().await;
    let mut leads = std::collections::BTreeSet::new();
    for _ in 0..8 {
        let run = world.client().start("steps", &()).await.unwrap();
        assert_eq!(run.id().as_str().len(), 30);
        leads.insert(run.id().as_str()[..4].to_owned());
    }
    assert!(leads.len() >= 7, "{leads:?}");
    let engine = code(Engine::builder(Arc::new(Memory::new()))).start().await.unwrap();
    let run = engine.client().start("steps", &()).await.unwrap();
    assert_eq!(run.id().as_str().len(), 26);
}
