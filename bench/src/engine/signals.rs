//! W2: a run waits for one signal and ends with it.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::runtime::Runtime;
use wigwag::{Builder, Client, Ctx, Engine, Failure, RunHandle, Status};
use wigwag_core::Event;
use wigwag_store::{Clock as _, Embedded, OpenSettings, Store as _, System, Usage};

use super::burst::{self, Burst};
use super::load::{Asked, MANY, Pair, ROUNDS, Turns, WARM, bare_load, load};
use super::parked::{self, Crowd, On};
use super::record::{Recorder, Script, new_id};
use crate::measure::{Load, RunFigures, Spread};

/// Name of the workflow and of its signal.
pub(crate) const GO: &str = "go";

/// Payload of the signal, and result of the run.
pub(crate) const PAYLOAD: u64 = 42;

/// Number of recorded runs, to find the most common commits.
const RECORDED: usize = 15;

/// Number of runs whose logs are read afterwards.
const SAMPLE: usize = 200;

#[derive(Debug, Serialize)]
pub(crate) struct Signals {
    pub(crate) one: Trips,
    pub(crate) many: Many,
    pub(crate) burst: Burst,
    pub(crate) crowd: Crowd,
}

/// One client: the time from calling `signal` to receiving the run's result, and one durable commit before each.
#[derive(Debug, Serialize)]
pub(crate) struct Trips {
    pub(crate) trips: usize,
    pub(crate) signal: Spread,
    pub(crate) commit: Spread,
    pub(crate) commit_bytes: usize,
    /// p50 of the round trip as a multiple of the commit's.
    pub(crate) p50: f64,
    /// The same for each round.
    pub(crate) rounds: Vec<f64>,
}

/// Many clients, which repeatedly start a run, signal it and await its result.
#[derive(Debug, Serialize)]
pub(crate) struct Many {
    pub(crate) commits_per_run: usize,
    pub(crate) puts_per_run: usize,
    pub(crate) deletes_per_run: usize,
    pub(crate) bytes_per_run: usize,
    pub(crate) pair: Pair,
    /// Number of runs in the sample that were parked before their signal.
    pub(crate) sample: usize,
    pub(crate) sample_parked: usize,
    /// Store requests of the engine for each round.
    pub(crate) asked: Asked,
}

async fn go(ctx: Ctx, (): ()) -> Result<u64, Failure> {
    ctx.wait::<u64>(GO).await
}

pub(crate) fn with_go(builder: Builder) -> Builder {
    builder.function(GO, 1, go)
}

/// Signals a run and awaits its result.
pub(crate) async fn signal(client: &Client, run: &RunHandle) -> Result<(), wigwag::Error> {
    client.signal(run.id(), GO, &PAYLOAD).await?;
    let result: u64 = run.result().await?;
    assert_eq!(result, PAYLOAD, "run `{}` ends with its signal", run.id());
    Ok(())
}

/// `fresh`: this process has done no other work yet, so that its memory is meaningful.
pub(crate) fn measure(
    folder: &Path,
    span: Duration,
    long: bool,
    fresh: bool,
    runtime: &Runtime,
) -> Result<Signals, Box<dyn std::error::Error>> {
    let crowd = runtime.block_on(parked::measure(&folder.join("waiting"), On::Signal, long, fresh))?;
    let script = Arc::new(runtime.block_on(record(&folder.join("recorded-signal")))?);
    let one = runtime.block_on(trips(folder, span, &script))?;
    let many = many(folder, span, runtime, &script)?;
    let burst = burst::measure(folder, runtime, &script)?;
    Ok(Signals { one, many, burst, crowd })
}

/// Only the engine, which repeatedly parks and signals ten thousand runs, for a profiler.
pub(crate) fn profile(folder: &Path, span: Duration, runtime: &Runtime) -> burst::Result<RunFigures> {
    let (end, mut load) = (Instant::now() + span, Load::default());
    while Instant::now() < end {
        load.add(runtime.block_on(burst::engine_round(folder))?.signalled);
    }
    Ok(load.runs())
}

/// Executes some runs in sequence on a recording store, and returns the most common commits.
///
/// Runs differ: whether the entry that starts a run also parks it depends on thread scheduling.
async fn record(path: &Path) -> Result<Script, Box<dyn std::error::Error>> {
    let store = Arc::new(Recorder::new(Embedded::open(path)?));
    let engine = with_go(Engine::builder(Arc::clone(&store) as _)).start().await?;
    let (client, mut runs) = (engine.client(), Vec::new());
    for _ in 0..RECORDED {
        // The id has the same length as its replacements.
        let run = client.start(GO, &()).id(new_id().as_str()).await?;
        until_parked(&engine, &run).await?;
        signal(&client, &run).await?;
        runs.push(run);
    }
    // After the stop, all writes of the run are recorded, including those after the answer.
    engine.stop().await;
    let shape = |run: &RunHandle| -> Vec<usize> {
        store.batches_of(run.id()).iter().map(|batch| batch.operations().len()).collect()
    };
    let shapes: Vec<Vec<usize>> = runs.iter().map(shape).collect();
    let alike = |place: usize| shapes.iter().filter(|other| **other == shapes[place]).count();
    let usual = (0..runs.len()).max_by_key(|place| alike(*place)).ok_or("no run was recorded")?;
    let run = runs[usual].id();
    Script::new(&store.batches_of(run), run)
}

/// Waits until the run has left memory.
async fn until_parked(engine: &Engine, run: &RunHandle) -> Result<(), wigwag::Error> {
    loop {
        let view = run.get().await?;
        if view.run().parked && view.status() == Status::WaitingSignal && engine.active_runs() == 0 {
            return Ok(());
        }
        System.sleep(Duration::from_millis(1)).await;
    }
}

async fn trips(folder: &Path, span: Duration, script: &Script) -> Result<Trips, Box<dyn std::error::Error>> {
    let (mut signals, mut commits, mut rounds) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let (mut of_signals, mut of_commits) = trips_for(folder, span, script).await?;
        rounds.push(Spread::of(&mut of_signals).p50_ms / Spread::of(&mut of_commits).p50_ms);
        signals.extend(of_signals);
        commits.extend(of_commits);
    }
    let (signal, commit) = (Spread::of(&mut signals), Spread::of(&mut commits));
    let commit_bytes = script.entry(script.commits() - 1, new_id().as_str()).body_bytes();
    Ok(Trips { trips: signals.len(), signal, commit, commit_bytes, p50: signal.p50_ms / commit.p50_ms, rounds })
}

/// Alternates a commit of the raw store with a signal, so that a slow moment of the disk affects both.
async fn trips_for(
    folder: &Path,
    span: Duration,
    script: &Script,
) -> Result<(Vec<Duration>, Vec<Duration>), Box<dyn std::error::Error>> {
    let bare = Embedded::open(folder.join("commits"))?;
    let engine = with_go(Engine::open(&folder.join("trips").to_string_lossy())?).start().await?;
    let client = engine.client();
    let (mut signals, mut commits) = (Vec::new(), Vec::new());
    let warm = Instant::now() + WARM;
    while Instant::now() < warm + span {
        // The last commit of a run has the largest entry: the claim, the received signal, and the end.
        let batch = script.entry(script.commits() - 1, new_id().as_str());
        let began = Instant::now();
        bare.write(batch).await?;
        let committed = began.elapsed();
        let run = client.start(GO, &()).await?;
        until_parked(&engine, &run).await?;
        let began = Instant::now();
        signal(&client, &run).await?;
        let signalled = began.elapsed();
        if Instant::now() > warm {
            commits.push(committed);
            signals.push(signalled);
        }
    }
    engine.stop().await;
    Ok((signals, commits))
}

fn many(
    folder: &Path,
    span: Duration,
    runtime: &Runtime,
    script: &Arc<Script>,
) -> Result<Many, Box<dyn std::error::Error>> {
    let (mut turns, mut sample, mut sample_parked, mut asked) = (Turns::default(), 0, 0, Asked::default());
    for _ in 0..ROUNDS {
        let round = runtime.block_on(many_for(&folder.join("many"), span))?;
        let of_bare = runtime.block_on(bare_load(&folder.join("many-bare"), MANY, span, script))?;
        sample += round.sample;
        sample_parked += round.sample_parked;
        asked.add(&round.asked, round.load.latencies.len() * ROUNDS);
        turns.add(round.load, of_bare);
    }
    let (puts_per_run, deletes_per_run, bytes_per_run) = script.size(0..script.commits());
    Ok(Many {
        commits_per_run: script.commits(),
        puts_per_run,
        deletes_per_run,
        bytes_per_run,
        pair: turns.pair(MANY),
        sample,
        sample_parked,
        asked,
    })
}

/// Load of many clients, and the number of parked runs in a sample.
struct ManyRound {
    load: Load,
    asked: Usage,
    sample: usize,
    sample_parked: usize,
}

/// Whether runs were parked is read from their logs afterwards: a request before each signal would add load.
async fn many_for(path: &Path, span: Duration) -> Result<ManyRound, Box<dyn std::error::Error>> {
    let opened = wigwag_store::open(&path.to_string_lossy(), &OpenSettings::default())?;
    let engine = with_go(Engine::builder(Arc::clone(&opened.store))).start().await?;
    let (client, some) = (engine.client(), Arc::new(Mutex::new(Vec::new())));
    let kept = Arc::clone(&some);
    let once = move || {
        let (client, kept) = (client.clone(), Arc::clone(&kept));
        async move {
            let run = client.start(GO, &()).await.expect("the benchmark's store takes a run");
            signal(&client, &run).await.expect("a run that is signalled completes");
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < SAMPLE {
                kept.push(run);
            }
        }
    };
    load(MANY, WARM, once.clone()).await;
    some.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let before = opened.usage();
    let load = load(MANY, span, once).await;
    let asked = opened.usage().since(&before);
    let runs = std::mem::take(&mut *some.lock().unwrap_or_else(PoisonError::into_inner));
    let mut sample_parked = 0;
    for run in &runs {
        sample_parked += usize::from(was_parked(run).await?);
    }
    engine.stop().await;
    Ok(ManyRound { load, asked, sample: runs.len(), sample_parked })
}

/// Whether the run was parked before it consumed its signal, according to its log.
async fn was_parked(run: &RunHandle) -> Result<bool, wigwag::Error> {
    let events = run.history(1, 100).await?.into_iter().flat_map(|entry| entry.events);
    let mut before = events.take_while(|event| !matches!(event, Event::SignalReceived(_)));
    Ok(before.any(|event| matches!(event, Event::RunParked(_))))
}
