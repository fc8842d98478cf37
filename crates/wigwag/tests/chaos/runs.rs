//! Steps, sleeps, children and tasks: no run is lost, and no recorded step runs again.

use std::collections::BTreeMap;
use std::future::IntoFuture as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use wigwag::testing::ManualClock;
use wigwag::{Client, Ctx, Engine, Failure, Graph, Retry, Settings, Status, StepCtx, permanent, retryable};
use wigwag_core::Event;
use wigwag_store::{Batch, Faults, Faulty, LAYOUT_KEY, Memory, Retry as RetryLayer, RetrySettings, Store};

use super::{Yielding, dump, patient, pump, seeds};

const RUNS: usize = 12;

/// Counts the starts of each step's code, and notes starts of steps whose result is already recorded.
#[derive(Clone, Debug)]
struct Ledger {
    store: Memory,
    begun: Arc<Mutex<BTreeMap<String, u32>>>,
    wrong: Arc<Mutex<Vec<String>>>,
}

impl Ledger {
    async fn begin(&self, run: &str, point: &str) {
        *self.begun.lock().unwrap().entry(format!("{run}:{point}")).or_default() += 1;
        for seq in 1.. {
            let Some(entry) = self.store.get(&format!("workflow/{run}/log/{seq:010}.json")).await.unwrap() else {
                break;
            };
            let text = String::from_utf8(entry.body.to_vec()).unwrap();
            if text.contains(&format!("\"type\":\"step.completed\",\"point\":\"{point}\"")) {
                self.wrong.lock().unwrap().push(format!("{run}:{point} began again after entry {seq}"));
            }
        }
    }
}

fn graph(ledger: &Ledger) -> Graph<Value> {
    let step = |name: &'static str, outcome: fn(u64) -> Result<u64, Failure>| {
        let ledger = ledger.clone();
        move |ctx: StepCtx<Value>| {
            let ledger = ledger.clone();
            async move {
                ledger.begin(ctx.workflow_id().as_str(), name).await;
                outcome(ctx.input()?["number"].as_u64().unwrap() + u64::from(ctx.attempt()))
            }
        }
    };
    let undo = |_: StepCtx<Value>, _: Option<u64>| async { Ok::<_, Failure>(()) };
    Graph::new("graph")
        .step("a", step("a", Ok))
        .compensate(undo)
        .step("b", step("b", |number| if number % 3 == 1 { Err(retryable("again")) } else { Ok(number) }))
        .after("a")
        .compensate(undo)
        .retry(Retry::times(10).first(Duration::from_millis(200)))
        .step("c", step("c", Ok))
        .after("a")
        .delay(Duration::from_secs(2))
        .step("d", |ctx: StepCtx<Value>| async move {
            match ctx.input()?["number"].as_u64().unwrap() % 4 {
                3 => Err(permanent("no")),
                number => Ok(number),
            }
        })
        .after(["b", "c"])
}

async fn function(ctx: Ctx, ledger: Ledger, number: u64) -> Result<u64, Failure> {
    let run = ctx.workflow_id().to_string();
    let mut sum = 0;
    for name in ["one", "two", "three"] {
        sum += ctx
            .step(name, || async {
                ledger.begin(&run, name).await;
                Ok::<_, Failure>(number)
            })
            .compensate(|_| async { Ok::<_, Failure>(()) })
            .await?;
        ctx.sleep("nap", Duration::from_millis(700)).await?;
    }
    if number % 4 == 3 {
        return Err(permanent("no"));
    }
    let doubled: u64 = ctx.child("kid", "child", &sum).await?;
    // A race whose loser is dropped, and a result too large for an entry.
    let quick = Box::pin(ctx.step("quick", || async { Ok::<_, Failure>("x".repeat(20_000)) }).into_future());
    let large = match futures_util::future::select(ctx.sleep("slow", Duration::from_secs(5)), quick).await {
        futures_util::future::Either::Left(_) => String::new(),
        futures_util::future::Either::Right((large, _)) => large?,
    };
    assert_eq!(large.len() % 20_000, 0);
    let joined = ctx.fan_out("many", "triple", [doubled, doubled]).await?;
    Ok(joined.results::<u64>()?.iter().sum())
}

async fn engine(store: &Arc<dyn Store>, clock: &ManualClock, ledger: &Ledger) -> Result<Engine, wigwag::Error> {
    let mut settings = Settings::default();
    settings.lease = Duration::from_secs(6);
    let noted = ledger.clone();
    Engine::builder(Arc::clone(store))
        .settings(settings)
        .clock(Arc::new(clock.clone()))
        .workflow(graph(ledger))
        .function("function", 1, move |ctx: Ctx, number: u64| function(ctx, noted.clone(), number))
        .function("child", 1, |ctx: Ctx, number: u64| async move {
            ctx.step("double", || async { Ok::<_, Failure>(number * 2) }).await
        })
        .task("triple", |ctx: StepCtx<u64>| async move { Ok::<_, Failure>(ctx.input()? * 3) })
        .start()
        .await
}

async fn start_all(client: &Client, clock: &ManualClock) {
    for number in 0..RUNS as u64 {
        for of in ["graph", "function"] {
            let input = if of == "graph" { json!({"number": number}) } else { json!(number) };
            // A start that fails is repeated under the same id: the same run.
            for attempt in 0.. {
                assert!(attempt < 200, "a start never succeeds");
                let start = tokio::spawn(client.start(of, &input).id(format!("{of}-{number}")).into_future());
                while !start.is_finished() {
                    pump(clock, Duration::from_millis(20)).await;
                }
                if start.await.unwrap().is_ok() {
                    break;
                }
            }
        }
    }
}

async fn all_ended(client: &Client) -> bool {
    for number in 0..RUNS {
        for of in ["graph", "function"] {
            if !client.run(format!("{of}-{number}")).unwrap().status().await.unwrap().is_final() {
                return false;
            }
        }
    }
    true
}

/// Checks the invariants once no work is left.
async fn check(seed: u64, memory: &Memory, client: &Client, ledger: &Ledger) {
    for number in 0..RUNS {
        for of in ["graph", "function"] {
            let run = client.run(format!("{of}-{number}")).unwrap();
            let expected = if number % 4 == 3 { Status::Failed } else { Status::Completed };
            let view = run.get().await.unwrap();
            if view.status() != expected {
                dump(memory, &format!("{of}-{number}")).await;
            }
            assert_eq!(view.status(), expected, "seed {seed}: {of}-{number}: {:?}", view.run().error);
            let mut completed = BTreeMap::<String, u32>::new();
            for entry in run.history(1, 10_000).await.unwrap() {
                for event in &entry.events {
                    if let Event::StepCompleted(event) = event {
                        *completed.entry(event.point.to_string()).or_default() += 1;
                    }
                }
            }
            assert!(completed.values().all(|times| *times == 1), "seed {seed}: {of}-{number}: {completed:?}");
        }
    }
    assert_eq!(*ledger.wrong.lock().unwrap(), Vec::<String>::new(), "seed {seed}");
    let left = |prefix: &'static str| async move {
        let page = memory.list(prefix, "", 1_000).await.unwrap();
        page.entries.into_iter().map(|listed| listed.key).collect::<Vec<_>>()
    };
    assert_eq!(left("live/").await, Vec::<String>::new(), "seed {seed}");
    // A put that lands late may also restore a wake-up; it is deleted when it is due.
    let now = memory.now().await.unwrap().at.to_string();
    let due = left("due/").await.into_iter().filter(|key| key[7..] < now[..]).collect::<Vec<_>>();
    assert_eq!(due, Vec::<String>::new(), "seed {seed}");
}

async fn one(seed: u64, as_bucket: bool) {
    let clock = ManualClock::default();
    let shared = Arc::new(clock.clone());
    let memory = if as_bucket { Memory::bucket_with_clock(shared.clone()) } else { Memory::with_clock(shared.clone()) };
    memory.write(Batch::new().put(LAYOUT_KEY, "{\"layout\":1,\"shards\":2}")).await.unwrap();
    let faults = Faults {
        refused: 0.03,
        answer_lost: 0.03,
        request_lost: 0.02,
        late: if as_bucket { 0.02 } else { 0.0 },
        bucket_missing: if as_bucket { 0.01 } else { 0.0 },
        slow: 0.05,
        slow_for: Duration::from_millis(900),
    };
    let faulty = Faulty::with_clock(Yielding(memory.clone()), faults, seed, shared.clone());
    let store: Arc<dyn Store> = Arc::new(RetryLayer::with_clock(faulty, RetrySettings::default(), shared));
    let ledger = Ledger { store: memory.clone(), begun: Arc::default(), wrong: Arc::default() };
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut engines: Vec<Option<Engine>> = vec![None, None];
    let calm = Engine::builder(Arc::new(memory.clone())).clock(Arc::new(clock.clone())).client().await.unwrap();
    let asks = Engine::builder(Arc::clone(&store)).clock(Arc::new(clock.clone())).client();
    let client = patient(&clock, asks).await.unwrap();
    start_all(&client, &clock).await;
    for round in 0..6_000 {
        for place in &mut engines {
            if place.is_none() && chance.u32(..20) == 0 {
                let (store, clock_of, ledger) = (Arc::clone(&store), clock.clone(), ledger.clone());
                let start = async move { engine(&store, &clock_of, &ledger).await };
                *place = patient(&clock, start).await.ok();
            } else if round < 400 && chance.u32(..100) == 0 {
                *place = None;
            }
        }
        pump(&clock, Duration::from_millis(100)).await;
        if round % 20 == 0 && all_ended(&calm).await {
            break;
        }
    }
    for place in engines.iter_mut().filter(|place| place.is_none()) {
        let (store, clock_of, ledger) = (Arc::clone(&store), clock.clone(), ledger.clone());
        let start = async move { engine(&store, &clock_of, &ledger).await };
        *place = patient(&clock, start).await.ok();
    }
    // Wake-ups lead to interrupted work, at the latest when a lease or a late write has ended.
    for _ in 0..150 {
        pump(&clock, Duration::from_millis(200)).await;
    }
    // A put that lands late may restore an index entry; the sweeper removes entries older than an hour.
    if as_bucket {
        for _ in 0..5 {
            pump(&clock, Duration::from_secs(1_800)).await;
        }
        let swept = calm.sweep(false).await.unwrap();
        assert_eq!(swept.lost_runs, 0, "seed {seed}: {swept:?}");
    }
    check(seed, &memory, &calm, &ledger).await;
}

#[tokio::test]
async fn chaos_on_a_store_like_a_bucket_loses_no_run_and_repeats_no_recorded_step() {
    for seed in seeds() {
        one(seed, true).await;
    }
}

#[tokio::test]
async fn chaos_on_an_atomic_store_loses_no_run_and_repeats_no_recorded_step() {
    for seed in seeds() {
        one(seed, false).await;
    }
}
