//! Runs at every limit: each continues, or stops with a reason; none is stuck.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Notify;
use wigwag::testing::{Kit, ManualClock};
use wigwag::{Builder, Client, Ctx, Engine, Failure, Graph, Retry, Settings, Status, StepCtx, permanent};
use wigwag_core::{Control, Key, Order, RunId, RunRef, Time, limits};
use wigwag_store::limits::{BATCH_OPERATIONS_MAX, LIST_PAGE};
use wigwag_store::{
    Batch, Changes, LAYOUT_KEY, Memory, Now, Object, Page, Peers, Receipt, Result as Stored, Store, Traits,
};

/// A store and a client, and no worker yet.
struct NobodyHome {
    memory: Memory,
    store: Arc<dyn Store>,
    clock: ManualClock,
    client: Client,
}

impl NobodyHome {
    async fn new() -> Self {
        let clock = ManualClock::default();
        let memory = Memory::with_clock(Arc::new(clock.clone()));
        let store: Arc<dyn Store> = Arc::new(memory.clone());
        let client = Engine::builder(Arc::clone(&store)).clock(Arc::new(clock.clone())).client().await.unwrap();
        Self { memory, store, clock, client }
    }

    /// Starts a worker.
    async fn open(&self, configure: impl FnOnce(Builder) -> Builder) -> Kit {
        Kit::on(Arc::clone(&self.store), self.clock.clone(), configure).await.unwrap()
    }

    /// Puts a control object as a sender does.
    async fn control(&self, run: &str, number: usize, order: Order) {
        let created_at = Time::from_micros(1_767_225_600_000_000 + number as u64);
        let suffix = format!("{created_at}_{number:05}");
        let control = Control { id: format!("{number}"), created_at, by: None, order };
        let key = Key::Control { run: RunRef::workflow(run.parse().unwrap()), suffix }.to_string();
        self.store.write(Batch::new().put(key, control.to_json())).await.unwrap();
    }
}

async fn finish(kit: &Kit, run: &str) -> Status {
    kit.run_until_idle().await.unwrap();
    kit.client().run(run).unwrap().status().await.unwrap()
}

fn nothing() -> impl Fn(StepCtx<Value>) -> std::future::Ready<Result<(), Failure>> + Send + Sync + 'static {
    |_| std::future::ready(Ok(()))
}

#[tokio::test]
async fn a_graph_with_more_steps_to_skip_than_an_entry_holds_completes() {
    let steps = (0..300).map(|number| format!("s{number}"));
    let graph = steps.fold(Graph::<Value>::new("g"), |graph, name| graph.step(name, nothing()).when(|_| false));
    let kit = Kit::start(|engine| engine.workflow(graph)).await.unwrap();
    kit.client().start("g", &json!({})).id("r").await.unwrap();
    assert_eq!(finish(&kit, "r").await, Status::Completed);
}

#[tokio::test]
async fn a_graph_whose_last_step_fills_an_entry_ends() {
    let nobody = NobodyHome::new().await;
    let graph = || {
        (0..128).fold(Graph::<Value>::new("g"), |graph, number| {
            let graph = graph.signal_at(format!("w{number}"), format!("n{number}"));
            graph.step(format!("s{number}"), nothing()).after(format!("w{number}")).when(|_| false)
        })
    };
    let run = nobody.client.start("g", &json!({})).id("r").await.unwrap();
    for number in 0..128 {
        run.signal(format!("n{number}"), &()).await.unwrap();
    }
    let kit = nobody.open(|engine| engine.workflow(graph())).await;
    assert_eq!(finish(&kit, "r").await, Status::Completed);
}

#[tokio::test]
async fn delays_beyond_the_first_entry_begin_at_once() {
    let graph = (0..300).fold(Graph::<Value>::new("g"), |graph, number| {
        graph.step(format!("s{number}"), nothing()).delay(Duration::from_secs(3_600))
    });
    let kit = Kit::start(|engine| engine.workflow(graph)).await.unwrap();
    kit.client().start("g", &json!({})).id("r").await.unwrap();
    assert_eq!(finish(&kit, "r").await, Status::Completed);
    assert!(kit.elapsed() < Duration::from_secs(3_601), "all delays began at the same time");
}

/// A function whose compensation never returns the first time it is called.
fn saga(calls: &Arc<AtomicU32>) -> impl FnOnce(Builder) -> Builder {
    let calls = Arc::clone(calls);
    move |engine| {
        engine.function("saga", 1, move |ctx: Ctx, (): ()| {
            let calls = Arc::clone(&calls);
            async move {
                let undo = move |_: Option<u32>| {
                    let calls = Arc::clone(&calls);
                    async move {
                        if calls.fetch_add(1, Ordering::Relaxed) == 0 {
                            std::future::pending::<()>().await;
                        }
                        Ok::<_, Failure>(())
                    }
                };
                ctx.step("a", || async { Ok::<_, Failure>(1) }).compensate(undo).await?;
                Err::<(), Failure>(permanent("no"))
            }
        })
    }
}

#[tokio::test]
async fn a_compensation_continues_behind_a_claim_whose_entry_is_full() {
    let nobody = NobodyHome::new().await;
    let calls = Arc::<AtomicU32>::default();
    let kit = nobody.open(saga(&calls)).await;
    let run = kit.client().start("saga", &()).id("r").await.unwrap();
    while calls.load(Ordering::Relaxed) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(run.status().await.unwrap(), Status::Compensating);
    for number in 0..300 {
        let signal = format!("2026-01-01T00:00:00.{number:06}Z_{number:032x}");
        nobody.control("r", number, Order::Late { name: "x".parse().unwrap(), signal }).await;
    }
    let kit = kit.crash(saga(&calls)).await.unwrap();
    assert_eq!(finish(&kit, "r").await, Status::Failed);
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn joined_results_count_towards_the_size_of_an_entry() {
    let nobody = NobodyHome::new().await;
    let task = |_: StepCtx<u32>| async { Ok::<_, Failure>("x".repeat(5_000)) };
    let parent = |ctx: Ctx, count: u32| async move {
        let fans = (0..count).map(|_| ctx.fan_out("f", "big", 0..3_u32).into_future());
        let joined: Vec<_> = join_all(fans).await;
        Ok::<_, Failure>(joined.len())
    };
    // The parent's worker leaves after it has submitted the tasks; they end while it is away.
    let kit = nobody.open(|engine| engine.function("p", 1, parent)).await;
    kit.client().start("p", &80).id("r").await.unwrap();
    kit.settle().await.unwrap();
    drop(kit);
    nobody.clock.advance(Duration::from_secs(61));
    let tasks = nobody.open(|engine| engine.task("big", task)).await;
    tasks.settle().await.unwrap();
    drop(tasks);
    nobody.clock.advance(Duration::from_secs(61));
    let kit = nobody.open(|engine| engine.function("p", 1, parent)).await;
    assert_eq!(finish(&kit, "r").await, Status::Completed);
}

#[tokio::test]
async fn a_cancel_with_a_reason_beyond_all_bounds_still_cancels() {
    let nobody = NobodyHome::new().await;
    let code = |ctx: Ctx, (): ()| async move { ctx.wait::<()>("never").await };
    let kit = nobody.open(|engine| engine.function("f", 1, code)).await;
    kit.client().start("f", &()).id("r").await.unwrap();
    kit.settle().await.unwrap();
    drop(kit);
    nobody.clock.advance(Duration::from_secs(61));
    // The client rejects it; a direct write to the store bypasses the client.
    nobody.control("r", 1, Order::Cancel { reason: Some("why ".repeat(300_000)) }).await;
    let kit = nobody.open(|engine| engine.function("f", 1, code)).await;
    kit.client().run("r").unwrap().pause().await.unwrap();
    assert_eq!(finish(&kit, "r").await, Status::Cancelled);
}

#[tokio::test]
async fn a_long_function_goes_back_to_a_step_and_its_results_leave_the_snapshot_in_pieces() {
    let mut small = limits::Limits::REAL;
    small.chunk_bytes_max = 64 * 1024;
    limits::set(small);
    let fails = Arc::new(AtomicU32::new(1));
    let code = {
        let fails = Arc::clone(&fails);
        move |ctx: Ctx, (): ()| {
            let fails = Arc::clone(&fails);
            async move {
                for _ in 0..2_000 {
                    let name = "a-step-with-a-name-as-long-as-names-of-steps-are-at-times";
                    ctx.step(name, || async { Ok::<_, Failure>("x".repeat(500)) }).await?;
                }
                match fails.fetch_sub(1, Ordering::Relaxed) {
                    1 => Err(permanent("once")),
                    _ => Ok("done"),
                }
            }
        }
    };
    let kit = Kit::start(|engine| engine.function("f", 1, code)).await.unwrap();
    let run = kit.client().start("f", &()).id("r").await.unwrap();
    assert_eq!(finish(&kit, "r").await, Status::Failed);
    fails.store(0, Ordering::Relaxed);
    run.restart().from("a-step-with-a-name-as-long-as-names-of-steps-are-at-times#1000").await.unwrap();
    assert_eq!(finish(&kit, "r").await, Status::Completed);
    let page = kit.store().list("workflow/r/", "", 1_000).await.unwrap();
    for listed in page.entries.iter().filter(|listed| listed.key.contains("chunk")) {
        let bytes = kit.store().get(&listed.key).await.unwrap().unwrap().body.len();
        assert!(bytes < 400 * 1024, "`{}` has {bytes} bytes", listed.key);
    }
    limits::set(limits::Limits::REAL);
}

#[tokio::test]
async fn a_function_with_more_steps_to_drop_than_an_entry_could_name_goes_back_to_one() {
    let mut small = limits::Limits::REAL;
    // 300 names of 57 bytes would take twice what an entry may have.
    (small.entry_bytes_soft, small.entry_bytes_max) = (4 * 1024, 8 * 1024);
    limits::set(small);
    let name = "a-step-with-a-name-as-long-as-names-of-steps-are-at-times";
    let code = move |ctx: Ctx, (): ()| async move {
        for _ in 0..300 {
            ctx.step(name, || async { Ok::<_, Failure>(()) }).await?;
        }
        ctx.wait::<()>("go").await
    };
    let kit = Kit::start(|engine| engine.function("f", 1, code)).await.unwrap();
    let run = kit.client().start("f", &()).id("r").await.unwrap();
    kit.settle().await.unwrap();
    run.cancel().await.unwrap();
    assert_eq!(finish(&kit, "r").await, Status::Cancelled);
    run.restart().from(format!("{name}#2")).await.unwrap();
    kit.settle().await.unwrap();
    assert_eq!(run.status().await.unwrap(), Status::WaitingSignal);
    run.signal("go", &()).await.unwrap();
    assert_eq!(finish(&kit, "r").await, Status::Completed);
    limits::set(limits::Limits::REAL);
}

#[tokio::test]
async fn a_restart_of_more_steps_than_an_event_can_name_is_rejected_with_a_hint() {
    let mut small = limits::Limits::REAL;
    small.named_steps_bytes_max = 1_024;
    limits::set(small);
    let first = Graph::<Value>::new("g").step("first", nothing());
    let graph = (0..60).fold(first, |graph, number| {
        graph.step(format!("a-step-with-a-rather-long-name-{number:02}"), nothing()).after("first")
    });
    let kit = Kit::start(|engine| engine.workflow(graph)).await.unwrap();
    let run = kit.client().start("g", &json!({})).id("r").await.unwrap();
    assert_eq!(finish(&kit, "r").await, Status::Completed);
    let refused = run.restart().from("first").await.unwrap_err().to_string();
    assert!(refused.contains("an entry has room for 1024; restart the run from its beginning"), "{refused}");
    run.restart().await.unwrap();
    assert_eq!(finish(&kit, "r").await, Status::Completed);
    limits::set(limits::Limits::REAL);
}

#[tokio::test]
async fn a_parked_graph_whose_results_left_the_snapshot_is_not_claimed_without_a_reason() {
    let mut small = limits::Limits::REAL;
    (small.snapshot_entries, small.snapshot_points_bytes_max) = (1, 64);
    limits::set(small);
    let step = |_: StepCtx<Value>| async { Ok::<_, Failure>("x".repeat(200)) };
    let graph = Graph::<Value>::new("g").step("a", step).step("b", step).after("a").signal("go").after("b");
    let kit = Kit::start(|engine| engine.workflow(graph)).await.unwrap();
    let run = kit.client().start("g", &json!({})).id("r").await.unwrap();
    kit.settle().await.unwrap();
    let page = kit.store().list("workflow/r/chunk/", "", 10).await.unwrap();
    assert!(!page.entries.is_empty(), "steps left the snapshot");
    let parked = run.get().await.unwrap().run().seq;
    for _ in 0..3 {
        kit.advance(Duration::from_secs(25 * 3_600)).await.unwrap();
    }
    assert_eq!(run.get().await.unwrap().run().seq, parked, "reading the run adds nothing to its log");
    run.signal("go", &1).await.unwrap();
    assert_eq!(finish(&kit, "r").await, Status::Completed);
    limits::set(limits::Limits::REAL);
}

#[tokio::test]
async fn a_function_that_no_longer_fits_thousands_of_records_is_paused() {
    let many = |ctx: Ctx, count: u32| async move {
        for _ in 0..count {
            ctx.step("a-step-with-a-name-as-long-as-names-of-steps-are-at-times", || async { Ok::<_, Failure>(()) })
                .await?;
        }
        ctx.wait::<()>("go").await
    };
    let other = |ctx: Ctx, _: u32| async move { ctx.wait::<()>("other").await };
    let mut small = limits::Limits::REAL;
    (small.entry_bytes_soft, small.entry_bytes_max) = (32 * 1024, 64 * 1024);
    limits::set(small);
    let kit = Kit::start(|engine| engine.function("f", 1, many)).await.unwrap();
    let run = kit.client().start("f", &1_000).id("r").await.unwrap();
    kit.settle().await.unwrap();
    let kit = kit.crash(|engine| engine.function("f", 1, other)).await.unwrap();
    run.signal("go", &()).await.unwrap();
    assert_eq!(finish(&kit, "r").await, Status::Paused);
    let error = kit.client().run("r").unwrap().get().await.unwrap().run().error.clone().unwrap();
    assert!(error.message.contains("more"), "{}", error.message);
    limits::set(limits::Limits::REAL);
}

#[tokio::test]
async fn quorums_of_long_sender_names_are_split_over_entries() {
    let nobody = NobodyHome::new().await;
    let graph = || {
        (0..60).fold(Graph::<Value>::new("g"), |graph, number| {
            graph.signal_at(format!("w{number}"), format!("n{number}")).quorum(64)
        })
    };
    let run = nobody.client.start("g", &json!({})).id("r").await.unwrap();
    for number in 0..60 {
        let name = format!("n{number}");
        let calls = (0..64).map(|sender| run.signal(&name, &()).by(format!("{sender:0>250}")));
        assert!(nobody.client.signal_many(calls).await.iter().all(Result::is_ok));
    }
    let kit = nobody.open(|engine| engine.workflow(graph())).await;
    assert_eq!(finish(&kit, "r").await, Status::Completed);
}

#[tokio::test]
async fn lists_of_tasks_that_fill_an_entry_each_are_waited_for_at_once() {
    let code = |ctx: Ctx, (): ()| async move {
        let id = |list: u32, number: u32| format!("{list}-{number:0>95}").parse::<RunId>().unwrap();
        let ids = |list: u32| (0..3_900).map(|number| id(list, number)).collect();
        let wait = |list| ctx.wait_for_tasks(ids(list), Some(Duration::from_secs(60)));
        let joined = join_all((0..3).map(wait).map(IntoFuture::into_future)).await;
        Ok::<_, Failure>(joined.iter().filter(|joined| joined.is_ok()).count())
    };
    let kit = Kit::start(|engine| engine.function("f", 1, code)).await.unwrap();
    let run = kit.client().start("f", &()).id("r").await.unwrap();
    assert_eq!(finish(&kit, "r").await, Status::Completed);
    assert_eq!(run.result::<usize>().await.unwrap(), 3);
}

#[tokio::test]
async fn one_wait_more_than_a_run_may_have_fails_and_is_recorded() {
    let code = |ctx: Ctx, count: usize| async move {
        let waits = (0..count).map(|number| ctx.wait::<()>(&format!("n{number}")).into_future());
        let got = join_all(waits).await;
        Ok::<_, Failure>(got.iter().filter(|got| got.is_err()).count())
    };
    let mut small = limits::Limits::REAL;
    small.waits_max = 100;
    limits::set(small);
    let kit = Kit::start(|engine| engine.function("f", 1, code)).await.unwrap();
    let run = kit.client().start("f", &101).id("r").await.unwrap();
    kit.settle().await.unwrap();
    run.signal("n0", &()).await.unwrap();
    // The replayed code must see the same failure, although a wait has closed since.
    let kit = kit.crash(|engine| engine.function("f", 1, code)).await.unwrap();
    let run = kit.client().run("r").unwrap();
    let calls = (1..100).map(|number| run.signal(format!("n{number}"), &()));
    assert!(kit.client().signal_many(calls).await.iter().all(Result::is_ok));
    assert_eq!(finish(&kit, "r").await, Status::Completed);
    assert_eq!(run.result::<usize>().await.unwrap(), 1);
    limits::set(limits::Limits::REAL);
}

#[tokio::test]
async fn a_cancel_behind_a_page_of_folded_controls_is_seen() {
    let nobody = NobodyHome::new().await;
    let code = |ctx: Ctx, (): ()| async move { ctx.wait::<()>("never").await };
    let kit = nobody.open(|engine| engine.function("f", 1, code)).await;
    kit.client().start("f", &()).id("r").await.unwrap();
    kit.settle().await.unwrap();
    drop(kit);
    nobody.clock.advance(Duration::from_secs(61));
    for number in 0..1_000 {
        nobody.control("r", number, Order::Pause { reason: None }).await;
    }
    // The worker dies after it folds the control objects and before it deletes them, so they are still stored.
    let (hint, body) = wake_up(&nobody, "r").await;
    nobody.store.write(Batch::new().put(hint, body)).await.unwrap();
    let kit = nobody.open(|engine| engine.function("f", 1, code)).await;
    kit.settle().await.unwrap();
    assert_eq!(kit.client().run("r").unwrap().status().await.unwrap(), Status::Paused);
    for number in 0..1_000 {
        nobody.control("r", number, Order::Pause { reason: None }).await;
    }
    kit.client().run("r").unwrap().cancel().await.unwrap();
    assert_eq!(finish(&kit, "r").await, Status::Cancelled);
}

/// A wake-up for a run that is due now.
async fn wake_up(nobody: &NobodyHome, run: &str) -> (String, String) {
    let page = nobody.store.list("due/", "", 1_000).await.unwrap();
    let listed = page.entries.iter().find(|listed| listed.key.contains(&format!("~{run}~"))).unwrap();
    let Ok(Key::Due(mut hint)) = listed.key.parse::<Key>() else { panic!("{}", listed.key) };
    hint.due = Time::from_micros(1_767_225_600_000_000);
    hint.nonce = "test".into();
    let body = nobody.store.get(&listed.key).await.unwrap().unwrap().body;
    (Key::Due(hint).to_string(), String::from_utf8(body.to_vec()).unwrap())
}

/// A store in memory that notes the wake-ups that a listing returned.
#[derive(Clone, Debug)]
struct Listing {
    memory: Memory,
    wake_ups: Arc<Mutex<BTreeSet<String>>>,
}

#[async_trait::async_trait]
impl Store for Listing {
    async fn get(&self, key: &str) -> Stored<Option<Object>> {
        self.memory.get(key).await
    }
    async fn write(&self, batch: Batch) -> Stored<Receipt> {
        self.memory.write(batch).await
    }
    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Stored<Page> {
        let page = self.memory.list(prefix, after, limit).await?;
        let keys = page.entries.iter().map(|listed| listed.key.clone());
        self.wake_ups.lock().unwrap().extend(keys.filter(|key| key.starts_with("due/")));
        Ok(page)
    }
    async fn now(&self) -> Stored<Now> {
        self.memory.now().await
    }
    fn changes(&self, prefix: &str) -> Changes {
        self.memory.changes(prefix)
    }
    fn traits(&self) -> Traits {
        self.memory.traits()
    }
    fn peers(&self) -> Option<Arc<dyn Peers>> {
        self.memory.peers()
    }
}

#[tokio::test]
async fn more_wake_ups_than_a_batch_deletes_are_handed_to_one_turn() {
    const WAKE_UPS: usize = BATCH_OPERATIONS_MAX + 200;
    let nobody = NobodyHome::new().await;
    let store = Listing { memory: nobody.memory.clone(), wake_ups: Arc::default() };
    let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let parts = (Arc::clone(&begun), Arc::clone(&go));
    let busy = move |_: StepCtx<Value>| {
        let (begun, go) = parts.clone();
        async move {
            begun.notify_one();
            go.notified().await;
            Ok::<_, Failure>(())
        }
    };
    let waits = |ctx: Ctx, (): ()| async move { ctx.wait::<u32>("n").await };
    // While this engine drives one run, it collects the wake-ups of the other for one check.
    let mut settings = Settings::default();
    (settings.turns_max, settings.linger, settings.sweep_every) = (1, Duration::ZERO, None);
    let engine = Engine::builder(Arc::new(store.clone())).settings(settings).clock(Arc::new(nobody.clock.clone()));
    let engine = engine.function("waits", 1, waits).workflow(Graph::<Value>::new("busy").step("s", busy));
    let engine = engine.start().await.unwrap();
    let run = nobody.client.start("waits", &()).id("r").await.unwrap();
    while run.waiting().await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    nobody.client.start("busy", &json!({})).id("busy").await.unwrap();
    begun.notified().await;
    run.signal("n", &7).await.unwrap();
    let (hint, body) = wake_up(&nobody, "r").await;
    let hints: Vec<String> = (0..WAKE_UPS).map(|number| format!("{hint}{number}")).collect();
    for hints in hints.chunks(BATCH_OPERATIONS_MAX) {
        let batch = hints.iter().fold(Batch::new(), |batch, hint| batch.put(hint, body.clone()));
        nobody.store.write(batch).await.unwrap();
    }
    while !hints.iter().all(|hint| store.wake_ups.lock().unwrap().contains(hint)) {
        tokio::task::yield_now().await;
    }
    go.notify_one();
    let mut status = run.status().await.unwrap();
    // A turn that is rejected is tried again by a clock that stands still.
    for _ in 0..20_000 {
        if status.is_final() || status == Status::Paused {
            break;
        }
        tokio::task::yield_now().await;
        status = run.status().await.unwrap();
    }
    assert_eq!(status, Status::Completed);
    while !nobody.store.list("due/", "", 1).await.unwrap().entries.is_empty() {
        tokio::task::yield_now().await;
    }
    drop(engine);
}

#[tokio::test]
async fn both_modes_consume_the_same_signals_as_if_all_were_read() {
    let code = |ctx: Ctx, (): ()| async move {
        let schema = |least: u32, most: u32| json!({"type": "integer", "minimum": least, "maximum": most});
        let queue = ctx.wait::<u32>("n").schema(schema(30, 1_000)).into_future();
        let newest = ctx.wait::<u32>("n").latest().schema(schema(0, 70)).into_future();
        let (queue, newest) = futures_util::future::join(queue, newest).await;
        Ok::<_, Failure>((queue?, newest?))
    };
    let nobody = NobodyHome::new().await;
    let run = nobody.client.start("f", &()).id("r").await.unwrap();
    for number in 0..100 {
        run.signal("n", &number).await.unwrap();
    }
    let kit = nobody.open(|engine| engine.function("f", 1, code)).await;
    assert_eq!(finish(&kit, "r").await, Status::Completed);
    assert_eq!(run.result::<(u32, u32)>().await.unwrap(), (30, 70));
}

#[tokio::test]
async fn a_graph_with_more_points_than_a_run_may_have_fails() {
    let mut small = limits::Limits::REAL;
    small.points_max = 20;
    limits::set(small);
    let graph = (0..30).fold(Graph::<Value>::new("g"), |graph, number| graph.step(format!("s{number}"), nothing()));
    let kit = Kit::start(|engine| engine.workflow(graph)).await.unwrap();
    kit.client().start("g", &json!({})).id("r").await.unwrap();
    assert_eq!(finish(&kit, "r").await, Status::Failed);
    let error = kit.client().run("r").unwrap().get().await.unwrap().run().error.clone().unwrap();
    assert!(error.message.contains("at most 20 points"), "{}", error.message);
    limits::set(limits::Limits::REAL);
}

#[tokio::test]
async fn an_entry_that_can_never_be_recorded_pauses_the_run_with_the_reason() {
    let mut small = limits::Limits::REAL;
    (small.entry_bytes_max, small.inline_bytes_max) = (8 * 1024, 16 * 1024);
    let code = |ctx: Ctx, (): ()| async move {
        ctx.wait::<()>("go").await?;
        ctx.step("big", || async { Ok::<_, Failure>("x".repeat(10_000)) }).retry(Retry::never()).await
    };
    let kit = Kit::start(|engine| engine.function("f", 1, code)).await.unwrap();
    let run = kit.client().start("f", &()).id("r").await.unwrap();
    kit.settle().await.unwrap();
    limits::set(small);
    run.signal("go", &()).await.unwrap();
    assert_eq!(finish(&kit, "r").await, Status::Paused);
    let error = run.get().await.unwrap().run().error.clone().unwrap();
    assert!(error.kind == "Unrecordable" && error.message.contains("bytes"), "{error:?}");
    run.cancel().await.unwrap();
    assert_eq!(finish(&kit, "r").await, Status::Cancelled, "it still takes orders");
    limits::set(limits::Limits::REAL);
}

#[tokio::test]
async fn a_worker_knows_more_others_than_fit_a_page_of_announcements() {
    let clock = ManualClock::default();
    let memory = Memory::bucket_with_clock(Arc::new(clock.clone()));
    let put = |batch: Batch, id: String| batch.put(format!("workers/{id}.json"), "{}");
    let first = Batch::new().put(LAYOUT_KEY, "{\"layout\":1,\"shards\":2}");
    memory.write(put(first, "z-dead".into())).await.unwrap();
    clock.advance(Duration::from_secs(3_600));
    memory.write((0..LIST_PAGE).map(|number| format!("a-{number:04}")).fold(Batch::new(), put)).await.unwrap();
    let code = |ctx: Ctx, (): ()| async move { ctx.wait::<()>("never").await };
    let kit = Kit::on(Arc::new(memory.clone()), clock, |engine| engine.function("f", 1, code)).await.unwrap();
    kit.settle().await.unwrap();
    assert!(memory.get("workers/z-dead.json").await.unwrap().is_none(), "the announcement of a dead worker is removed");
    assert!(memory.get("workers/a-0000.json").await.unwrap().is_some(), "that of a living one stays");
}
