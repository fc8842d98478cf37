//! The server in a separate process, over HTTP, compared with the engine in this process and with Restate.

mod held;
mod load;
mod parked;
pub(crate) mod process;
mod server;
mod show;
mod side;
mod start;
mod wire;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use self::held::Held;
use self::load::{Cost, Figures};
use self::parked::Parked;
use self::side::{Side, Work};
use self::start::Installed;
use crate::engine::{Bar, in_process};
use crate::measure::{Load, RunFigures};

pub(crate) use self::server::run as serve;

/// Clients, tasks and processes share their errors.
pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Number of concurrent clients, where many are needed.
const CLIENTS: usize = 64;

const ROUNDS: usize = 3;

/// Threads of the clients; servers choose their own number.
const CLIENT_THREADS: usize = 1;

/// Parts that can be measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Runs of three steps, and signals
    Load,
    /// Ten thousand parked runs
    Parked,
    /// Ten thousand long-polls and a thousand followers
    Held,
    /// Only runs of three steps by 64 clients on our server: for a profiler
    Profile,
    /// Only signals by 1 client on our server: for a profiler
    ProfileSignal,
}

impl Part {
    /// Whether it is measured only on request.
    fn is_profile(self) -> bool {
        matches!(self, Self::Profile | Self::ProfileSignal)
    }
}

/// Parameters of the benchmark.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) span: Duration,
    pub(crate) restate: bool,
    pub(crate) only: Option<Part>,
}

/// All figures of one run of the benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    client_threads: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    restate_version: Option<String>,
    works: Vec<Compared>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parked: Option<Parked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restate_parked: Option<Parked>,
    #[serde(skip_serializing_if = "Option::is_none")]
    polls: Option<Held>,
    #[serde(skip_serializing_if = "Option::is_none")]
    followers: Option<Held>,
    bars: Vec<Bar>,
}

/// One load on all servers.
#[derive(Debug, Serialize)]
struct Compared {
    what: &'static str,
    clients: usize,
    wigwag: Figures,
    #[serde(skip_serializing_if = "Option::is_none")]
    restate: Option<Figures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_process: Option<RunFigures>,
    /// Ratios to Restate for each round.
    rounds: Vec<Ratios>,
}

/// Wigwag's figures as multiples of Restate's.
#[derive(Clone, Copy, Debug, Serialize)]
struct Ratios {
    runs_per_s: f64,
    p50: f64,
    server_cpu: f64,
}

/// A load: name, work, number of clients, and the same work in this process.
struct Item {
    what: &'static str,
    work: Work,
    clients: usize,
    in_process: in_process::Work,
}

const ITEMS: [Item; 4] = [
    Item { what: "W1", work: Work::Three, clients: 1, in_process: in_process::Work::Three },
    Item { what: "W1", work: Work::Three, clients: CLIENTS, in_process: in_process::Work::Three },
    Item { what: "W2", work: Work::SignalParked, clients: 1, in_process: in_process::Work::Signal },
    Item { what: "W2", work: Work::Signal, clients: CLIENTS, in_process: in_process::Work::Signal },
];

/// Sums over all rounds of a load.
#[derive(Debug, Default)]
struct Sums {
    wigwag: Cost,
    restate: Cost,
    in_process: Load,
    rounds: Vec<Ratios>,
}

pub(crate) fn run(wanted: &Wanted<'_>) -> Result<Report> {
    std::fs::create_dir_all(wanted.dir)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(CLIENT_THREADS).enable_all().build()?;
    let installed = wanted.restate.then(start::install).transpose()?;
    let wants = |part: Part| wanted.only.map_or(!part.is_profile(), |only| only == part);
    let mut report = Report {
        client_threads: CLIENT_THREADS,
        restate_version: installed.as_ref().map(|installed| installed.version.clone()),
        works: Vec::new(),
        parked: None,
        restate_parked: None,
        polls: None,
        followers: None,
        bars: Vec::new(),
    };
    runtime.block_on(async {
        if wants(Part::Parked) {
            report.parked = Some(parked_on(start::wigwag(wanted.dir, false)?).await?);
            if let Some(installed) = &installed {
                report.restate_parked = Some(parked_on(start::restate(wanted.dir, installed).await?).await?);
            }
        }
        if wants(Part::Held) {
            let side = start::wigwag(wanted.dir, true)?;
            report.polls = Some(held::polls(&side).await?);
            side.stop().await?;
            let side = start::wigwag(wanted.dir, true)?;
            report.followers = Some(held::followers(&side).await?);
            side.stop().await?;
        }
        if wants(Part::Profile) {
            report.works = vec![profile(wanted, "W1", Work::Three, CLIENTS).await?];
        }
        if wants(Part::ProfileSignal) {
            report.works = vec![profile(wanted, "W2", Work::SignalParked, 1).await?];
        }
        Result::Ok(())
    })?;
    if wants(Part::Load) {
        report.works = loads(wanted, installed.as_ref(), &runtime)?;
    }
    report.bars = report.bars();
    Ok(report)
}

async fn parked_on(side: Side) -> Result<Parked> {
    let parked = parked::measure(&side).await?;
    side.stop().await?;
    Ok(parked)
}

async fn profile(wanted: &Wanted<'_>, what: &'static str, work: Work, clients: usize) -> Result<Compared> {
    let side = start::wigwag(wanted.dir, false)?;
    let mut cost = load::load(&side, work, clients, wanted.span).await?;
    side.stop().await?;
    let wigwag = cost.figures();
    Ok(Compared { what, clients, wigwag, restate: None, in_process: None, rounds: Vec::new() })
}

/// Measures each server alone, alternating, so that none idles while another is measured and a slow minute affects all.
fn loads(
    wanted: &Wanted<'_>,
    installed: Option<&Installed>,
    runtime: &tokio::runtime::Runtime,
) -> Result<Vec<Compared>> {
    let mut sums: [Sums; ITEMS.len()] = Default::default();
    for _ in 0..ROUNDS {
        let mut ours = runtime.block_on(async { all_loads(start::wigwag(wanted.dir, false)?, wanted.span).await })?;
        if let Some(installed) = installed {
            let theirs = async { all_loads(start::restate(wanted.dir, installed).await?, wanted.span).await };
            for ((sums, ours), mut theirs) in sums.iter_mut().zip(&mut ours).zip(runtime.block_on(theirs)?) {
                sums.rounds.push(Ratios::new(&ours.figures(), &theirs.figures()));
                sums.restate.add(theirs);
            }
        }
        for ((sums, ours), item) in sums.iter_mut().zip(ours).zip(&ITEMS) {
            sums.wigwag.add(ours);
            sums.in_process.add(in_process::load(wanted.dir, item.in_process, item.clients, wanted.span)?);
        }
    }
    Ok(ITEMS.iter().zip(sums).map(|(item, sums)| sums.compared(item, installed.is_some())).collect())
}

async fn all_loads(side: Side, span: Duration) -> Result<Vec<Cost>> {
    let mut costs = Vec::new();
    for item in &ITEMS {
        costs.push(load::load(&side, item.work, item.clients, span).await?);
    }
    side.stop().await?;
    Ok(costs)
}

impl Sums {
    fn compared(mut self, item: &Item, restate: bool) -> Compared {
        Compared {
            what: item.what,
            clients: item.clients,
            wigwag: self.wigwag.figures(),
            restate: restate.then(|| self.restate.figures()),
            in_process: Some(self.in_process.runs()),
            rounds: self.rounds,
        }
    }
}

impl Ratios {
    fn new(ours: &Figures, theirs: &Figures) -> Self {
        Self {
            runs_per_s: ours.runs_per_s / theirs.runs_per_s,
            p50: ours.p50_ms / theirs.p50_ms,
            server_cpu: ours.server_cpu_us / theirs.server_cpu_us,
        }
    }
}

/// Returns the median.
fn median(rounds: &[Ratios], of: fn(&Ratios) -> f64) -> Option<f64> {
    let mut values: Vec<f64> = rounds.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

impl Report {
    fn bars(&self) -> Vec<Bar> {
        let mut bars = Vec::new();
        let of = |what: &str, clients: usize| {
            self.works.iter().find(|work| work.what == what && work.clients == clients).map(|work| &*work.rounds)
        };
        let value = |what, clients, of_round| of(what, clients).and_then(|rounds| median(rounds, of_round));
        if let Some(value) = value("W1", CLIENTS, |round| round.runs_per_s) {
            bars.push(Bar::at_least("W1, 64 clients: runs/s / Restate's", value, 4.0));
        }
        if let Some(value) = value("W1", CLIENTS, |round| round.server_cpu) {
            bars.push(Bar::at_most("W1, 64 clients: server CPU per run / Restate's", value, 0.2));
        }
        if let Some(value) = value("W2", 1, |round| round.p50) {
            bars.push(Bar::at_most("W2, 1 client: signal to done, p50 / Restate's", value, 0.5));
        }
        if let Some(value) = value("W2", CLIENTS, |round| round.p50) {
            bars.push(Bar::at_most("W2, 64 clients: signal to done, p50 / Restate's", value, 0.5));
        }
        if let (Some(ours), Some(theirs)) = (&self.parked, &self.restate_parked) {
            let value = ours.server.resident_mb / theirs.server.resident_mb;
            bars.push(Bar::at_most("10,000 parked: memory of the server / Restate's", value, 0.2));
        }
        bars
    }
}
