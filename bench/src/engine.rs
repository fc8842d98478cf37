//! The engine compared with the raw store.

mod backlog;
mod burst;
pub(crate) mod in_process;
mod load;
mod parked;
mod record;
mod show;
mod signals;
mod sleeps;
mod steps;

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use self::backlog::Backlog;
pub(crate) use self::in_process::workloads;
use self::parked::{Crowd, On};
use self::signals::Signals;
use self::sleeps::Sleeps;
use self::steps::Steps;
use crate::measure::RunFigures;

/// Threads of the engine and clients, or of the raw store's writers; the store has additional threads.
const WORKER_THREADS: usize = 2;

/// Parts that can be measured separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Runs of three steps
    Steps,
    /// A thousand durable sleeps
    Sleeps,
    /// Parked runs
    Parked,
    /// Runs that wait for a signal
    Signals,
    /// Thousands of signals buffered for one run
    Backlog,
    /// Only the engine, runs of three steps, 64 clients: for a profiler
    Profile,
    /// Only the engine, ten thousand runs parked and signalled: for a profiler
    ProfileSignals,
}

impl Part {
    /// Whether it is measured only on request.
    fn is_extra(self) -> bool {
        matches!(self, Self::Profile | Self::ProfileSignals)
    }
}

/// All figures of one run of the benchmark.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    worker_threads: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Steps>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sleeps: Option<Sleeps>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parked: Option<Crowd>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signals: Option<Signals>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    backlogs: Vec<Backlog>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profiled: Option<RunFigures>,
    bars: Vec<Bar>,
}

/// A target for a ratio.
#[derive(Debug, Serialize)]
pub(crate) struct Bar {
    what: &'static str,
    value: f64,
    /// The relation of the value to the target.
    than: &'static str,
    wanted: f64,
    passed: bool,
}

impl Bar {
    pub(crate) fn at_least(what: &'static str, value: f64, wanted: f64) -> Self {
        Self { what, value, than: ">=", wanted, passed: value >= wanted }
    }

    pub(crate) fn at_most(what: &'static str, value: f64, wanted: f64) -> Self {
        Self { what, value, than: "<=", wanted, passed: value <= wanted }
    }
}

pub(crate) fn run(
    dir: &Path,
    span: Duration,
    long: bool,
    only: Option<Part>,
) -> Result<Report, Box<dyn std::error::Error>> {
    std::fs::create_dir_all(dir)?;
    let folder = tempfile::tempdir_in(dir)?;
    let folder = folder.path();
    let threads = WORKER_THREADS;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    let wants = |part: Part| only.map_or(!part.is_extra(), |only| only == part);
    let mut report = Report {
        worker_threads: threads,
        steps: None,
        sleeps: None,
        parked: None,
        signals: None,
        backlogs: Vec::new(),
        profiled: None,
        bars: Vec::new(),
    };
    // First, because memory that other parts leave in the allocator would hide the memory of parked runs.
    if wants(Part::Parked) {
        report.parked = Some(runtime.block_on(parked::measure(&folder.join("parked"), On::Sleep, long, true))?);
    }
    if wants(Part::Signals) {
        let fresh = !wants(Part::Parked);
        report.signals = Some(signals::measure(folder, span, long, fresh, &runtime)?);
    }
    if wants(Part::Backlog) {
        report.backlogs = runtime.block_on(backlog::measure(folder))?;
    }
    if wants(Part::Steps) {
        report.steps = Some(steps::measure(folder, span, &runtime)?);
    }
    if wants(Part::Sleeps) {
        report.sleeps = Some(runtime.block_on(sleeps::measure(&folder.join("sleeps")))?);
    }
    if wants(Part::Profile) {
        report.profiled = Some(steps::profile(folder, span, &runtime)?);
    }
    if wants(Part::ProfileSignals) {
        report.profiled = Some(signals::profile(folder, span, &runtime)?);
    }
    report.bars = report.bars();
    Ok(report)
}

impl Report {
    /// Whether every figure reached its target.
    pub(crate) fn passed(&self) -> bool {
        self.bars.iter().all(|bar| bar.passed)
    }

    fn bars(&self) -> Vec<Bar> {
        let mut bars = Vec::new();
        if let Some(steps) = &self.steps {
            bars.push(Bar::at_least("64 clients: share of the raw store's runs/s", steps.many.share, 0.65));
            bars.push(Bar::at_most("64 clients: CPU per run / the raw store's", steps.many.cpu, 2.0));
            bars.push(Bar::at_most("1 client: p50 / the raw store's", steps.one.p50, 1.5));
        }
        if let Some([few, many]) = self.parked.as_ref().map(|crowd| &*crowd.sizes) {
            if let Some(memory) = many.memory_mb_above_idle {
                bars.push(Bar::at_most("a million parked: MB above idle", memory, 150.0));
            }
            let wake = many.wake.p50_ms / few.wake.p50_ms;
            bars.push(Bar::at_most("waking one of a million / one of ten thousand", wake, 2.0));
        }
        if let Some(signals) = &self.signals {
            bars.push(Bar::at_most("W2: signal to result, p50 / one commit's", signals.one.p50, 4.0));
            bars.push(Bar::at_least("W3: share of the raw store's runs/s", signals.burst.share, 0.4));
            if let [few, many] = &*signals.crowd.sizes {
                let wake = many.wake.p50_ms / few.wake.p50_ms;
                bars.push(Bar::at_most("signalling one of a million / one of ten thousand", wake, 2.0));
            }
        }
        if let [few, .., many] = &*self.backlogs {
            let growth = many.seconds / few.seconds;
            bars.push(Bar::at_most("10,000 buffered signals / 1,000, time to consume", growth, 12.0));
        }
        bars
    }
}
