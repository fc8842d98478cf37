//! W3: ten thousand runs parked on a signal, all signalled concurrently, compared with the raw store committing the same batches.

use std::collections::BTreeSet;
use std::future::Future;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::runtime::Runtime;
use wigwag::{Engine, RunId};
use wigwag_store::limits::LIST_PAGE;
use wigwag_store::{Change, Changes, Clock as _, Embedded, OpenSettings, Store as _, System, Usage};

use super::load::{Asked, MANY, ROUNDS, commit, to_each};
use super::record::{Script, new_id};
use super::signals::{GO, PAYLOAD, with_go};
use crate::measure::{Load, Span};

const RUNS: usize = 10_000;

/// For information: the engine commits ends while other runs are still being signalled, so it has more writers than senders.
const MORE_WRITERS: usize = 2 * MANY;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Figures of several rounds, each in a new store.
#[derive(Debug, Serialize)]
pub(crate) struct Burst {
    pub(crate) runs: usize,
    pub(crate) senders: usize,
    /// Seconds from the first start until all runs are parked.
    pub(crate) start_s: f64,
    /// Seconds from the first signal until the last one is durable.
    pub(crate) all_sent_s: f64,
    /// Seconds from the first signal until the last run has ended.
    pub(crate) complete_s: f64,
    pub(crate) runs_per_s: f64,
    pub(crate) cpu_us_per_run: f64,
    pub(crate) bare_runs_per_s: f64,
    pub(crate) bare_cpu_us_per_run: f64,
    /// The same with more writers, for information.
    pub(crate) more_writers: usize,
    pub(crate) more_writers_runs_per_s: f64,
    /// Runs per second as a share of the raw store's.
    pub(crate) share: f64,
    pub(crate) rounds: Vec<f64>,
    /// Number of commits of the raw store for each run, from its signal to its end.
    pub(crate) commits_per_run: usize,
    pub(crate) puts_per_run: usize,
    pub(crate) deletes_per_run: usize,
    pub(crate) bytes_per_run: usize,
    /// Store requests of the engine for each run from the first signal on.
    pub(crate) asked: Asked,
}

/// Figures of one round.
#[derive(Debug)]
pub(crate) struct Round {
    parked: Duration,
    sent: Duration,
    /// From the first signal to the last end; a latency is that of sending one signal.
    pub(crate) signalled: Load,
    asked: Usage,
}

/// Alternates between both, so that a slow minute of the machine affects both.
pub(crate) fn measure(folder: &Path, runtime: &Runtime, script: &Arc<Script>) -> Result<Burst> {
    let (mut engine, mut bare, mut more) = (Load::default(), Load::default(), Load::default());
    let (mut parked, mut sent, mut rounds, mut asked) = (Duration::ZERO, Duration::ZERO, Vec::new(), Asked::default());
    for _ in 0..ROUNDS {
        let round = runtime.block_on(engine_round(folder))?;
        let of_bare = runtime.block_on(bare_round(folder, MANY, script))?;
        rounds.push(of_bare.elapsed.as_secs_f64() / round.signalled.elapsed.as_secs_f64());
        parked += round.parked;
        sent += round.sent;
        asked.add(&round.asked, RUNS * ROUNDS);
        engine.add(round.signalled);
        bare.add(of_bare);
        more.add(runtime.block_on(bare_round(folder, MORE_WRITERS, script))?);
    }
    let mean = |span: Duration| span.as_secs_f64() / ROUNDS as f64;
    let (complete_s, engine, bare) = (mean(engine.elapsed), engine.runs(), bare.runs());
    let wakes = wakes(script)?;
    let (puts_per_run, deletes_per_run, bytes_per_run) = script.size(wakes.clone());
    Ok(Burst {
        runs: RUNS,
        senders: MANY,
        start_s: mean(parked),
        all_sent_s: mean(sent),
        complete_s,
        runs_per_s: engine.runs_per_s,
        cpu_us_per_run: engine.cpu_us_per_run,
        bare_runs_per_s: bare.runs_per_s,
        bare_cpu_us_per_run: bare.cpu_us_per_run,
        more_writers: MORE_WRITERS,
        more_writers_runs_per_s: more.runs().runs_per_s,
        share: engine.runs_per_s / bare.runs_per_s,
        rounds,
        commits_per_run: wakes.len(),
        puts_per_run,
        deletes_per_run,
        bytes_per_run,
        asked,
    })
}

/// Returns the commits from the signal on.
fn wakes(script: &Script) -> Result<Range<usize>> {
    let signal = script.place_of("/signals/").ok_or("the recorded run wrote no signal")?;
    Ok(signal..script.commits())
}

/// Parks all runs, signals them, and waits until all have ended, in a new store that is removed afterwards.
pub(crate) async fn engine_round(folder: &Path) -> Result<Round> {
    let place = tempfile::tempdir_in(folder)?;
    let opened = wigwag_store::open(&place.path().to_string_lossy(), &OpenSettings::default())?;
    let engine = with_go(Engine::builder(Arc::clone(&opened.store))).start().await?;
    let began = Instant::now();
    let ids = park(&engine).await;
    let parked = began.elapsed();
    let embedded = opened.embedded.clone().ok_or("want an embedded store")?;
    let ends = tokio::spawn(Ends::follow(embedded).wait_for(RUNS));
    let (to, by, before) = (Arc::new(ids), engine.client(), opened.usage());
    let measured = Span::begin();
    let began = Instant::now();
    let sends = to_each(MANY, RUNS, move |place| {
        let call = by.signal(&to[place], GO, &PAYLOAD);
        async move { drop(call.await.expect("a run that waits takes a signal")) }
    })
    .await;
    let sent = began.elapsed();
    ends.await??;
    let signalled = measured.end(sends.latencies, 0);
    let asked = opened.usage().since(&before);
    engine.stop().await;
    Ok(Round { parked, sent, signalled, asked })
}

/// Starts all runs, and waits until none is in progress.
async fn park(engine: &Engine) -> Vec<RunId> {
    let client = engine.client();
    let ids = make_all(move || {
        let client = client.clone();
        async move { client.start(GO, &()).await.expect("the benchmark's store takes a run").id().clone() }
    })
    .await;
    while engine.active_runs() > 0 {
        System.sleep(Duration::from_millis(1)).await;
    }
    ids
}

/// Creates all runs, and returns their ids in the order of creation.
async fn make_all<F, Fut>(make: F) -> Vec<RunId>
where
    F: Fn() -> Fut + Clone + Send + 'static,
    Fut: Future<Output = RunId> + Send + 'static,
{
    let ids = Arc::new(Mutex::new(Vec::with_capacity(RUNS)));
    let kept = Arc::clone(&ids);
    to_each(MANY, RUNS, move |_| {
        let (make, kept) = (make.clone(), Arc::clone(&kept));
        async move {
            let id = make().await;
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(id);
        }
    })
    .await;
    std::mem::take(&mut *ids.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The ended runs according to the store's notifications: cheaper than a request for each, and not counted as requests of the engine.
struct Ends {
    store: Embedded,
    changes: Changes,
    keys: BTreeSet<String>,
}

impl Ends {
    const PREFIX: &str = "done/";

    fn follow(store: Embedded) -> Self {
        Self { changes: store.changes(Self::PREFIX), store, keys: BTreeSet::new() }
    }

    async fn wait_for(mut self, count: usize) -> wigwag_store::Result<()> {
        while self.keys.len() < count {
            match self.changes.next().await {
                Change::Put(key) => _ = self.keys.insert(key),
                _ => self.list().await?,
            }
        }
        // The key contains the status of the run.
        let other = self.keys.iter().find(|key| !key.contains("~completed~"));
        assert_eq!(other, None, "all runs complete");
        Ok(())
    }

    /// Lists the ends after missed notifications.
    async fn list(&mut self) -> wigwag_store::Result<()> {
        let mut after = String::new();
        loop {
            let page = self.store.list(Self::PREFIX, &after, LIST_PAGE).await?;
            self.keys.extend(page.entries.iter().map(|listed| listed.key.clone()));
            match page.entries.last() {
                Some(last) if page.more => after.clone_from(&last.key),
                _ => return Ok(()),
            }
        }
    }
}

/// The same commits on the raw store, which holds the same number of parked runs.
async fn bare_round(folder: &Path, writers: usize, script: &Arc<Script>) -> Result<Load> {
    let place = tempfile::tempdir_in(folder)?;
    let (store, script, wakes) = (Embedded::open(place.path())?, Arc::clone(script), wakes(script)?);
    let (to, by, parks) = (store.clone(), Arc::clone(&script), 0..wakes.start);
    // Ids are created one by one, as in the engine: ids created in advance would sort in another order than they are written.
    let ids = make_all(move || {
        let (to, by, parks, id) = (to.clone(), Arc::clone(&by), parks.clone(), new_id());
        async move {
            commit(&to, &by, parks, id.as_str()).await;
            id
        }
    });
    let ids = Arc::new(ids.await);
    let load = to_each(writers, RUNS, move |place| {
        let (store, script, ids, wakes) = (store.clone(), Arc::clone(&script), Arc::clone(&ids), wakes.clone());
        async move { commit(&store, &script, wakes, ids[place].as_str()).await }
    });
    Ok(load.await)
}
