//! Costs of runs on a bucket: requests and bytes, counted by the metering store over a store that behaves as a bucket.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use wigwag::testing::{Kit, ManualClock};
use wigwag::{Builder, Client, Ctx, Engine, Failure, Graph, RunHandle, Status, StepCtx};
use wigwag_core::Requests;
use wigwag_store::{Batch, LAYOUT_KEY, Memory, Meter, Store, Usage};

struct Metered {
    kit: Kit,
    meter: Meter<Memory>,
}

impl Metered {
    async fn start(memory: fn(Arc<ManualClock>) -> Memory, shards: u16, code: impl FnOnce(Builder) -> Builder) -> Self {
        let clock = ManualClock::default();
        let meter = Meter::new(memory(Arc::new(clock.clone())));
        let layout = format!("{{\"layout\":1,\"shards\":{shards}}}");
        meter.write(Batch::new().put(LAYOUT_KEY, layout)).await.unwrap();
        let kit = Kit::on(Arc::new(meter.clone()), clock, code).await.unwrap();
        kit.settle().await.unwrap();
        Self { kit, meter }
    }

    /// Lets all tasks run as far as possible without an advance of the clock.
    async fn quiet(&self) {
        for _ in 0..300 {
            tokio::task::yield_now().await;
        }
    }

    async fn client(&self) -> Client {
        let clock = Arc::new(self.kit.clock().clone());
        Engine::builder(Arc::new(self.meter.clone())).clock(clock).client().await.unwrap()
    }
}

fn bucket(clock: Arc<ManualClock>) -> Memory {
    Memory::bucket_with_clock(clock)
}

fn atomic(clock: Arc<ManualClock>) -> Memory {
    Memory::with_clock(clock)
}

fn steps(count: usize) -> impl FnOnce(Builder) -> Builder {
    let function = move |ctx: Ctx, (): ()| async move {
        for number in 0..count {
            ctx.step(&format!("step-{number}"), || async { Ok::<_, Failure>(number) }).await?;
        }
        Ok::<_, Failure>(count)
    };
    let graph = (0..count).fold(Graph::<Value>::new("graph"), |graph, number| {
        let graph = graph.step(format!("step-{number}"), |_: StepCtx<Value>| async { Ok::<_, Failure>(()) });
        if number == 0 { graph } else { graph.after(format!("step-{}", number - 1)) }
    });
    move |engine| engine.function("function", 1, function).workflow(graph)
}

fn requests(usage: &Usage) -> (u64, u64, u64) {
    (usage.puts, usage.gets, usage.lists)
}

/// The first start of a workflow by a process costs one LIST more, to warn if no worker has registered it.
async fn ask_whether_it_is_registered(client: &Client, of: &str) {
    let year = Duration::from_secs(365 * 24 * 3_600);
    client.start(of, &json!(null)).id("next-year").delay(year).await.unwrap();
}

/// Lets tasks run until a run has ended, without moving the clock. Its polling is counted as GETs.
async fn ended(run: &RunHandle) {
    while !run.status().await.unwrap().is_final() {
        tokio::task::yield_now().await;
    }
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn budget_n_steps_started_and_driven_by_one_process_cost_n_plus_5_puts_and_nothing_else() {
    for of in ["function", "graph"] {
        for count in [1, 4, 30] {
            let metered = Metered::start(bucket, 4, steps(count)).await;
            let before = metered.meter.usage();
            let run = metered.kit.client().start(of, &json!(null)).await.unwrap();
            run.wait().await.unwrap();
            for _ in 0..50 {
                tokio::task::yield_now().await;
            }
            let used = metered.meter.usage().since(&before);
            assert_eq!(requests(&used), (count as u64 + 5, 0, 0), "{of} of {count} steps: {used:?}");
        }
    }
}

#[tokio::test]
async fn budget_n_steps_started_by_a_client_and_driven_by_another_cost_at_most_n_plus_8_puts_3_gets_2_lists() {
    for of in ["function", "graph"] {
        let count = 4;
        let metered = Metered::start(bucket, 1, steps(count)).await;
        let client = metered.client().await;
        ask_whether_it_is_registered(&client, of).await;
        let before = metered.meter.usage();
        let run = client.start(of, &json!(null)).id("r").await.unwrap();
        metered.kit.clock().advance(Duration::from_secs(11));
        for _ in 0..300 {
            tokio::task::yield_now().await;
        }
        let used = metered.meter.usage().since(&before);
        assert_eq!(run.status().await.unwrap(), Status::Completed);
        let (puts, gets, lists) = requests(&used);
        assert!(puts <= count as u64 + 8 && gets <= 3 && lists <= 2, "{of}: {used:?}");
    }
}

#[tokio::test]
async fn budget_a_durable_sleep_costs_a_park_and_a_claim() {
    let code = |ctx: Ctx, (): ()| async move { ctx.sleep("nap", Duration::from_secs(3_600)).await };
    let metered = Metered::start(bucket, 1, |engine| engine.function("nap", 1, code)).await;
    let before = metered.meter.usage();
    let run = metered.kit.client().start("nap", &()).await.unwrap();
    for _ in 0..300 {
        tokio::task::yield_now().await;
    }
    let parked = metered.meter.usage().since(&before);
    // `live/`, the timer's wake-up, entry 1 that also parks the run, the snapshot.
    assert_eq!(requests(&parked), (4, 0, 0), "{parked:?}");
    let before = metered.meter.usage();
    metered.kit.clock().advance(Duration::from_secs(3_601));
    ended(&run).await;
    let used = metered.meter.usage().since(&before);
    // Lease wake-up, claim with the end, snapshot, `done/`.
    assert!(used.puts <= 5, "{used:?}");
}

async fn idle_minute(memory: fn(Arc<ManualClock>) -> Memory) -> Usage {
    let metered = Metered::start(memory, 4, steps(1)).await;
    let tick = async |span| {
        metered.kit.clock().advance(span);
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    };
    for _ in 0..600 {
        tick(Duration::from_millis(200)).await;
    }
    let before = metered.meter.usage();
    for _ in 0..600 {
        tick(Duration::from_millis(100)).await;
    }
    metered.meter.usage().since(&before)
}

#[tokio::test]
async fn budget_an_idle_worker_alone_on_4_shards_makes_at_most_30_requests_a_minute_and_12_with_nudges() {
    let silent = idle_minute(bucket).await;
    let (puts, gets, lists) = requests(&silent);
    assert!((20..=30).contains(&(puts + gets + lists)), "{silent:?}");
    let nudged = idle_minute(atomic).await;
    let (puts, gets, lists) = requests(&nudged);
    assert!((4..=12).contains(&(puts + gets + lists)), "{nudged:?}");
}

/// Bytes written before each step of a long run, by the step's number.
async fn bytes_per_step(memory: fn(Arc<ManualClock>) -> Memory, count: usize) -> (f64, f64) {
    let clock = ManualClock::default();
    let meter = Meter::new(memory(Arc::new(clock.clone())));
    let marks = Arc::new(Mutex::new(vec![0_u64; count + 1]));
    let (noted, counted) = (Arc::clone(&marks), meter.clone());
    let code = move |ctx: Ctx, (): ()| {
        let (marks, meter) = (Arc::clone(&noted), counted.clone());
        async move {
            for number in 1..=count {
                ctx.step(&format!("step-{number}"), || async {
                    marks.lock().unwrap()[number] = meter.usage().bytes_written;
                    Ok::<_, Failure>(json!({"charged": number, "currency": "EUR"}))
                })
                .await?;
            }
            Ok::<_, Failure>(())
        }
    };
    let kit = Kit::on(Arc::new(meter.clone()), clock, |engine| engine.function("long", 1, code)).await.unwrap();
    let run = kit.client().start("long", &()).await.unwrap();
    assert_eq!(run.wait().await.unwrap().status(), Status::Completed);
    let marks = marks.lock().unwrap();
    let mean = |from: usize, to: usize| (marks[to] - marks[from]) as f64 / (to - from) as f64;
    (mean(37, 165), mean(count - 127, count))
}

#[tokio::test]
async fn linear_the_bytes_of_a_step_do_not_grow_with_the_steps_before_it() {
    for memory in [bucket, atomic] {
        let (early, late) = bytes_per_step(memory, 10_000).await;
        assert!(early > 100.0, "something was counted: {early}");
        assert!(late <= 3.0 * early, "{early} bytes a step early, {late} late");
    }
}

/// The cost of resuming a run with this many recorded steps: requests, bytes read, and time.
async fn resume(count: usize, graph: bool) -> (u64, u64, Duration) {
    let clock = ManualClock::default();
    let meter = Meter::new(bucket(Arc::new(clock.clone())));
    let code = move || {
        let function = move |ctx: Ctx, (): ()| async move {
            for number in 0..count {
                ctx.step(&format!("step-{number}"), || async { Ok::<_, Failure>(number) }).await?;
            }
            ctx.sleep("nap", Duration::from_secs(3_600)).await?;
            Ok::<_, Failure>(count)
        };
        let graph = (0..=count).fold(Graph::<Value>::new("graph"), |graph, number| {
            let graph = graph.step(format!("step-{number}"), |_: StepCtx<Value>| async { Ok::<_, Failure>(()) });
            let graph = if number == 0 { graph } else { graph.after(format!("step-{}", number - 1)) };
            if number == count { graph.delay(Duration::from_secs(3_600)) } else { graph }
        });
        move |engine: Builder| engine.function("function", 1, function).workflow(graph)
    };
    let kit = Kit::on(Arc::new(meter.clone()), clock, code()).await.unwrap();
    let of = if graph { "graph" } else { "function" };
    kit.client().start(of, &json!(null)).id("r").await.unwrap();
    kit.settle().await.unwrap();
    let kit = kit.crash(code()).await.unwrap();
    kit.settle().await.unwrap();
    let before = meter.usage();
    kit.clock().advance(Duration::from_secs(3_600));
    #[expect(clippy::disallowed_methods, reason = "it compares real times within one run")]
    let began = std::time::Instant::now();
    kit.settle().await.unwrap();
    let took = began.elapsed();
    let used = meter.usage().since(&before);
    assert_eq!(kit.client().run("r").unwrap().status().await.unwrap(), Status::Completed, "{of} of {count}");
    (used.gets + used.lists, used.bytes_read, took)
}

#[tokio::test]
async fn linear_taking_up_a_long_run_again_costs_as_much_as_it_is_long() {
    for (graph, small, large) in [(false, 2_500, 10_000), (true, 250, 1_000)] {
        let (few, little, mut short) = resume(small, graph).await;
        let (many, much, mut long) = resume(large, graph).await;
        assert!(much <= 5 * little && many <= 5 * few + 20, "{few} requests, {little} bytes; {many}, {much}");
        let is_linear = |short: Duration, long: Duration| long < 12 * short.max(Duration::from_millis(2));
        // Other processes may slow the machine down: the best of a few measurements counts.
        for _ in 0..8 {
            if is_linear(short, long) {
                break;
            }
            short = short.min(resume(small, graph).await.2);
            long = long.min(resume(large, graph).await.2);
        }
        assert!(is_linear(short, long), "graph: {graph}, {short:?} for {small}, {long:?} for {large}");
    }
}

#[tokio::test]
async fn budget_one_wait_with_a_deadline_signal_included_costs_at_most_8_puts_4_lists_6_gets() {
    let code = |ctx: Ctx, (): ()| async move {
        ctx.step("before", || async { Ok::<_, Failure>(()) }).await?;
        let heard = ctx.wait::<u32>("go").timeout(Duration::from_secs(3_600)).await?;
        ctx.step("after", || async { Ok::<_, Failure>(()) }).await?;
        Ok::<_, Failure>(heard)
    };
    let metered = Metered::start(bucket, 1, |engine| engine.function("waits", 1, code)).await;
    let client = metered.client().await;
    let before = metered.meter.usage();
    let run = metered.kit.client().start("waits", &()).id("r").await.unwrap();
    metered.quiet().await;
    client.signal("r", "go", &7).await.unwrap();
    metered.kit.clock().advance(Duration::from_secs(11));
    metered.quiet().await;
    let used = metered.meter.usage().since(&before);
    assert_eq!(run.result::<Option<u32>>().await.unwrap(), Some(7));
    // The costs above those of two steps without a wait between them.
    let (puts, gets, lists) = requests(&used);
    assert!(puts - 7 <= 8 && gets <= 6 && lists <= 4, "{used:?}");
}

#[tokio::test]
async fn budget_whoever_waits_for_an_end_and_will_be_told_of_it_looks_less_and_less_often() {
    let clock = ManualClock::default();
    let memory = Memory::with_clock(Arc::new(clock.clone()));
    let waits = |ctx: Ctx, (): ()| async move { ctx.wait::<u32>("go").await };
    let kit = Kit::on(Arc::new(memory.clone()), clock.clone(), |engine| engine.function("waits", 1, waits)).await;
    let kit = kit.unwrap();
    let run = kit.client().start("waits", &()).id("r").await.unwrap();
    kit.settle().await.unwrap();
    let meter = Meter::new(memory);
    let client = Engine::builder(Arc::new(meter.clone())).clock(Arc::new(clock.clone())).client().await.unwrap();
    let waiting = tokio::spawn(async move { client.run("r").unwrap().result::<u32>().await });
    for _ in 0..3_600 {
        clock.advance(Duration::from_secs(1));
        for _ in 0..5 {
            tokio::task::yield_now().await;
        }
    }
    let used = meter.usage();
    assert!((60..=80).contains(&used.gets), "in an hour: {used:?}");
    run.signal("go", &7).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), 7, "notified at once, without moving the clock");
}

/// Returns the metered requests that the run's entries do not record: puts, gets, lists, deletes.
fn beside(used: &Usage, said: Requests) -> [u64; 4] {
    [used.puts - said.puts, used.gets - said.gets, used.lists - said.lists, used.deletes - said.deletes]
}

/// A step with a large result, a wait for a signal, and a step.
async fn waits(ctx: Ctx, (): ()) -> Result<u32, Failure> {
    ctx.step("before", || async { Ok::<_, Failure>("x".repeat(20_000)) }).await?;
    let heard = ctx.wait::<u32>("go").await?;
    ctx.step("after", || async { Ok::<_, Failure>(()) }).await?;
    Ok(heard)
}

#[tokio::test]
async fn cost_steps_on_an_atomic_store_are_recorded_to_the_last_request() {
    for of in ["function", "graph"] {
        let metered = Metered::start(atomic, 1, steps(4)).await;
        let before = metered.meter.usage();
        let run = metered.kit.client().start(of, &json!(null)).await.unwrap();
        run.wait().await.unwrap();
        metered.quiet().await;
        let used = metered.meter.usage().since(&before);
        let said = run.get().await.unwrap().run().requests;
        assert_eq!(beside(&used, said), [0; 4], "{of}: {said:?}");
    }
}

#[tokio::test]
async fn cost_steps_on_a_bucket_are_recorded_but_for_what_follows_the_last_entry() {
    for of in ["function", "graph"] {
        let metered = Metered::start(bucket, 1, steps(4)).await;
        let before = metered.meter.usage();
        let run = metered.kit.client().start(of, &json!(null)).await.unwrap();
        run.wait().await.unwrap();
        metered.quiet().await;
        let used = metered.meter.usage().since(&before);
        let said = run.get().await.unwrap().run().requests;
        // The last snapshot and `done/` are put; `live/` and the lease's wake-up are deleted.
        assert_eq!(beside(&used, said), [2, 0, 0, 2], "{of}: {said:?}");
    }
}

#[tokio::test]
async fn cost_a_run_that_waits_is_recorded_but_for_the_look_after_parking_and_its_sender() {
    let metered = Metered::start(atomic, 1, |engine| engine.function("waits", 1, waits)).await;
    let before = metered.meter.usage();
    let run = metered.kit.client().start("waits", &()).id("r").await.unwrap();
    metered.quiet().await;
    let used = metered.meter.usage().since(&before);
    let parked = run.get().await.unwrap().run().requests;
    // The second scan lists the sent signal; the lease's wake-up is deleted.
    assert_eq!(beside(&used, parked), [0, 0, 1, 1], "{parked:?}");
    let before = metered.meter.usage();
    run.signal("go", &7).await.unwrap();
    metered.quiet().await;
    let used = metered.meter.usage().since(&before);
    let ended = run.get().await.unwrap();
    assert_eq!(ended.status(), Status::Completed);
    let said = ended.run().requests.since(parked);
    // The sender reads the run.
    assert_eq!(beside(&used, said), [0, 2, 0, 0], "{said:?}");
    assert_eq!(said.gets, 1, "the code that is run again reads its large result: {said:?}");
}

#[tokio::test]
async fn cost_a_run_that_a_client_starts_and_a_worker_drives_counts_both() {
    let metered = Metered::start(bucket, 1, steps(4)).await;
    let client = metered.client().await;
    ask_whether_it_is_registered(&client, "function").await;
    let before = metered.meter.usage();
    let run = client.start("function", &json!(null)).id("r").await.unwrap();
    let started = metered.meter.usage().since(&before);
    let born = run.get().await.unwrap().run().requests;
    // The snapshot follows entry 1.
    assert_eq!(beside(&started, born), [1, 0, 0, 0], "{born:?}");
    let before = metered.meter.usage();
    metered.kit.clock().advance(Duration::from_secs(11));
    metered.quiet().await;
    let used = metered.meter.usage().since(&before);
    let said = run.get().await.unwrap().run().requests.since(born);
    // The index was listed; as after any last entry, the snapshot and `done/` are put, and `live/` and a wake-up deleted.
    assert_eq!(beside(&used, said), [2, 0, 1, 2], "{said:?}");
    assert!(said.gets > 0, "the worker read the run: {said:?}");
}

#[tokio::test]
async fn cost_a_child_counts_for_itself() {
    let parent = |ctx: Ctx, (): ()| async move { ctx.child::<Value, ()>("child", "function", &()).await };
    let metered = Metered::start(atomic, 1, |engine| steps(2)(engine).function("parent", 1, parent)).await;
    let before = metered.meter.usage();
    let run = metered.kit.client().start("parent", &()).id("r").await.unwrap();
    run.wait().await.unwrap();
    metered.quiet().await;
    let used = metered.meter.usage().since(&before);
    let child = metered.kit.client().run("r:child").unwrap().get().await.unwrap().run().requests;
    let parent = run.get().await.unwrap().run().requests;
    assert!(child.puts > 0, "{child:?}");
    // The second scan of the parent lists signals and children. The child's end wakes the parent: it reads the parent and
    // puts a wake-up. The wake-ups of both leases are deleted.
    assert_eq!(beside(&used, parent.and(child)), [1, 2, 2, 2], "{parent:?} {child:?}");
}
