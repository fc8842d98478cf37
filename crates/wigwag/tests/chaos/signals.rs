//! Signals from several concurrent senders, some slow, some with repeated requests: each acknowledged signal is
//! consumed once, in the order of its sender, and every wait is closed once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use wigwag::testing::ManualClock;
use wigwag::{Client, Ctx, Engine, Failure, RunHandle, Settings};
use wigwag_core::Event;
use wigwag_store::{Batch, Faults, Faulty, LAYOUT_KEY, Memory, Retry as RetryLayer, RetrySettings, Store};

use super::{Yielding, dump, patient, pump, seeds};

const RUNS: [&str; 4] = ["collector-0", "collector-1", "racer-0", "racer-1"];
const SENDERS: usize = 3;
const EACH: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Word {
    sender: usize,
    name: String,
    number: usize,
}

/// Consumes signals, with timeouts and work in between, until the signal `stop`; then drains the inbox.
async fn collector(ctx: Ctx, (): ()) -> Result<Vec<Word>, Failure> {
    let mut got = Vec::new();
    loop {
        let come = ctx.wait_any::<Option<Word>, _>(["a", "b", "stop"]).timeout(Duration::from_secs(3)).await?;
        match come {
            None => ctx.sleep("nap", Duration::from_millis(500)).await?,
            Some((_, Some(word))) => {
                got.push(word);
                ctx.step("work", || async { Ok::<_, Failure>(()) }).await?;
            }
            Some((_, None)) => break,
        }
    }
    drain(&ctx, got).await
}

/// Like [`collector`], with a race of waits whose losers are dropped.
async fn racer(ctx: Ctx, (): ()) -> Result<Vec<Word>, Failure> {
    let mut got = Vec::new();
    loop {
        let come = tokio::select! {
            word = ctx.wait::<Option<Word>>("a") => word?,
            word = ctx.wait::<Option<Word>>("b") => word?,
            stop = ctx.wait::<Option<Word>>("stop") => stop?,
            _ = ctx.sleep("pause", Duration::from_secs(4)) => continue,
        };
        match come {
            Some(word) => got.push(word),
            None => break,
        }
        ctx.step("work", || async { Ok::<_, Failure>(()) }).await?;
    }
    drain(&ctx, got).await
}

async fn drain(ctx: &Ctx, mut got: Vec<Word>) -> Result<Vec<Word>, Failure> {
    for name in ["a", "b"] {
        while let Some(word) = ctx.wait::<Word>(name).timeout(Duration::ZERO).await? {
            got.push(word);
        }
    }
    Ok(got)
}

async fn engine(store: &Arc<dyn Store>, clock: &ManualClock) -> Result<Engine, wigwag::Error> {
    let mut settings = Settings::default();
    settings.lease = Duration::from_secs(6);
    Engine::builder(Arc::clone(store))
        .settings(settings)
        .clock(Arc::new(clock.clone()))
        .function("collector", 1, collector)
        .function("racer", 1, racer)
        .start()
        .await
}

/// Signals that senders have sent, by the knowledge of their outcome.
#[derive(Debug, Default)]
struct Said {
    acknowledged: BTreeSet<(String, Word)>,
    /// Signals sent without a key and never acknowledged: they may have arrived.
    unknown: BTreeSet<(String, Word)>,
}

/// Sends numbered signals to one run, each after the previous one was acknowledged or abandoned.
async fn sender(client: Client, clock: ManualClock, run: String, sender: usize, seed: u64, said: Arc<Mutex<Said>>) {
    let mut chance = fastrand::Rng::with_seed(seed ^ (sender as u64 + 1) << 32 ^ run.len() as u64);
    for number in 0..EACH {
        let name = if chance.bool() { "a" } else { "b" };
        let word = Word { sender, name: name.into(), number };
        if chance.bool() {
            // A signal with a key is repeated until it is acknowledged, and sometimes once more.
            let mut extra = chance.u32(..3);
            loop {
                let sent = client.signal(&run, name, &word).key(format!("{sender}-{number}")).await;
                if sent.is_ok() {
                    said.lock().unwrap().acknowledged.insert((run.clone(), word.clone()));
                    if extra == 0 {
                        break;
                    }
                    extra -= 1;
                }
                pause(&clock, &mut chance).await;
            }
        } else {
            let sent = client.signal(&run, name, &word).await;
            let mut said = said.lock().unwrap();
            let known = if sent.is_ok() { &mut said.acknowledged } else { &mut said.unknown };
            known.insert((run.clone(), word));
        }
        pause(&clock, &mut chance).await;
    }
}

async fn pause(clock: &ManualClock, chance: &mut fastrand::Rng) {
    use wigwag_store::Clock as _;
    clock.sleep(Duration::from_millis(chance.u64(..4_000))).await;
}

fn faulty(memory: &Memory, seed: u64, slow_for: Duration, late: f64, clock: &ManualClock) -> Arc<dyn Store> {
    let faults = Faults {
        refused: 0.03,
        answer_lost: 0.03,
        request_lost: 0.02,
        late,
        slow: 0.05,
        slow_for,
        ..Faults::default()
    };
    let shared = Arc::new(clock.clone());
    let faulty = Faulty::with_clock(Yielding(memory.clone()), faults, seed, shared.clone());
    Arc::new(RetryLayer::with_clock(faulty, RetrySettings::default(), shared))
}

async fn one(seed: u64, as_bucket: bool) {
    let clock = ManualClock::default();
    let shared = Arc::new(clock.clone());
    let memory = if as_bucket { Memory::bucket_with_clock(shared) } else { Memory::with_clock(shared) };
    memory.write(Batch::new().put(LAYOUT_KEY, "{\"layout\":1,\"shards\":2}")).await.unwrap();
    let late = if as_bucket { 0.02 } else { 0.0 };
    let store = faulty(&memory, seed, Duration::from_millis(900), late, &clock);
    // Some senders are slower than the time by which readers look back.
    let slow = faulty(&memory, seed + 1, Duration::from_millis(6_500), late, &clock);
    let calm = Engine::builder(Arc::new(memory.clone())).clock(Arc::new(clock.clone())).client().await.unwrap();
    let client = patient(&clock, Engine::builder(slow).clock(Arc::new(clock.clone())).client()).await.unwrap();
    for run in RUNS {
        let of = run.split('-').next().unwrap();
        calm.start(of, &()).id(run).await.unwrap();
    }
    let said = Arc::new(Mutex::new(Said::default()));
    let mut senders = Vec::new();
    for run in RUNS {
        for number in 0..SENDERS {
            let (client, clock, said) = (client.clone(), clock.clone(), Arc::clone(&said));
            senders.push(tokio::spawn(sender(client, clock, run.to_owned(), number, seed, said)));
        }
    }
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut engines: Vec<Option<Engine>> = vec![None, None];
    let mut stopped = false;
    for round in 0..6_000 {
        for place in &mut engines {
            if place.is_none() && chance.u32(..20) == 0 {
                let (store, clock_of) = (Arc::clone(&store), clock.clone());
                *place = patient(&clock, async move { engine(&store, &clock_of).await }).await.ok();
            } else if round < 600 && chance.u32(..100) == 0 {
                *place = None;
            }
        }
        pump(&clock, Duration::from_millis(100)).await;
        if !stopped && senders.iter().all(tokio::task::JoinHandle::is_finished) {
            stopped = true;
            for run in RUNS {
                calm.signal(run, "stop", &()).await.unwrap();
            }
        }
        if stopped && round % 20 == 0 && all_ended(&calm).await {
            break;
        }
    }
    for _ in 0..150 {
        pump(&clock, Duration::from_millis(200)).await;
    }
    for sender in senders {
        sender.await.unwrap();
    }
    let said = std::mem::take(&mut *said.lock().unwrap());
    check(seed, &memory, &calm, &said).await;
    if !as_bucket {
        let left = memory.list("waiting/", "", 100).await.unwrap().entries;
        assert!(left.is_empty(), "seed {seed}: {left:?}");
    }
}

async fn all_ended(client: &Client) -> bool {
    for run in RUNS {
        if !client.run(run).unwrap().status().await.unwrap().is_final() {
            return false;
        }
    }
    true
}

async fn check(seed: u64, memory: &Memory, client: &Client, said: &Said) {
    for name in RUNS {
        let run = client.run(name).unwrap();
        if !run.status().await.unwrap().is_final() {
            dump(memory, name).await;
            panic!("seed {seed}: {name} has not ended");
        }
        let got: Vec<Word> = run.result().await.unwrap();
        let counted = got.iter().fold(BTreeMap::<&Word, usize>::new(), |mut counted, word| {
            *counted.entry(word).or_default() += 1;
            counted
        });
        let sent = |words: &BTreeSet<(String, Word)>| -> Vec<Word> {
            words.iter().filter(|(run, _)| run == name).map(|(_, word)| word.clone()).collect()
        };
        let (acknowledged, unknown) = (sent(&said.acknowledged), sent(&said.unknown));
        let lost: Vec<&Word> = acknowledged.iter().filter(|word| !counted.contains_key(word)).collect();
        let twice: Vec<_> = counted.iter().filter(|(_, times)| **times > 1).collect();
        let strange: Vec<_> =
            counted.keys().filter(|word| !acknowledged.contains(word) && !unknown.contains(word)).collect();
        if !lost.is_empty() || !twice.is_empty() || !strange.is_empty() {
            dump(memory, name).await;
            panic!("seed {seed}: {name}: lost {lost:?}, twice {twice:?}, strange {strange:?}");
        }
        for sender in 0..SENDERS {
            for signal in ["a", "b"] {
                let order: Vec<usize> = got
                    .iter()
                    .filter(|word| word.sender == sender && word.name == signal && acknowledged.contains(word))
                    .map(|word| word.number)
                    .collect();
                if !order.is_sorted() {
                    dump(memory, name).await;
                    panic!("seed {seed}: {name}: signals of sender {sender} were consumed in the order {order:?}");
                }
            }
        }
        every_wait_is_closed_once(&run).await;
    }
}

async fn every_wait_is_closed_once(run: &RunHandle) {
    let mut open = BTreeSet::new();
    for entry in run.history(1, 100_000).await.unwrap() {
        for event in entry.events {
            let closed = match event {
                Event::SignalWaiting(event) => {
                    assert!(open.insert(event.point.clone()), "{} is opened twice", event.point);
                    continue;
                }
                Event::SignalReceived(event) => event.point,
                Event::SignalTimeout(event) => event.point,
                Event::SignalClosed(event) => event.point,
                _ => continue,
            };
            assert!(open.remove(&closed), "{closed} is closed, but was not open");
        }
    }
    assert_eq!(open, BTreeSet::new(), "waits that were never closed");
}

#[tokio::test]
async fn chaos_on_a_store_like_a_bucket_loses_no_acknowledged_signal_and_takes_none_twice() {
    for seed in seeds() {
        one(seed, true).await;
    }
}

#[tokio::test]
async fn chaos_on_an_atomic_store_loses_no_acknowledged_signal_and_takes_none_twice() {
    for seed in seeds() {
        one(seed, false).await;
    }
}
