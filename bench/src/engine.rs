//! The engine beside the bare store it writes to.

mod parked;
mod record;
mod sleeps;
mod steps;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use self::parked::Crowd;
use self::sleeps::Sleeps;
use self::steps::{Pair, Steps};
use crate::measure::RunFigures;

/// The engine, the clients and the bare store's writers share so many threads; the store has its own besides.
const WORKER_THREADS: usize = 2;

/// What can be measured by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Runs of three steps
    Steps,
    /// A thousand durable sleeps
    Sleeps,
    /// Parked runs
    Parked,
    /// Only the engine, runs of three steps, 64 clients: for a profiler
    Profile,
}

/// All figures of one run.
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
    profiled: Option<RunFigures>,
    bars: Vec<Bar>,
}

/// What a ratio is wanted to be.
#[derive(Debug, Serialize)]
struct Bar {
    what: &'static str,
    value: f64,
    /// What the value is to be beside what is wanted.
    than: &'static str,
    wanted: f64,
    passed: bool,
}

impl Bar {
    fn at_least(what: &'static str, value: f64, wanted: f64) -> Self {
        Self { what, value, than: ">=", wanted, passed: value >= wanted }
    }

    fn at_most(what: &'static str, value: f64, wanted: f64) -> Self {
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
    let wants = |part: Part| only.map_or(part != Part::Profile, |only| only == part);
    let mut report =
        Report { worker_threads: threads, steps: None, sleeps: None, parked: None, profiled: None, bars: Vec::new() };
    // First, because what others leave in the allocator would hide what parked runs take.
    if wants(Part::Parked) {
        report.parked = Some(runtime.block_on(parked::measure(&folder.join("parked"), long))?);
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
    report.bars = report.bars();
    Ok(report)
}

impl Report {
    fn bars(&self) -> Vec<Bar> {
        let mut bars = Vec::new();
        if let Some(steps) = &self.steps {
            bars.push(Bar::at_least("64 clients: share of the bare store's runs/s", steps.many.share, 0.5));
            bars.push(Bar::at_most("64 clients: CPU per run / the bare store's", steps.many.cpu, 2.5));
            bars.push(Bar::at_most("1 client: p50 / the bare store's", steps.one.p50, 1.5));
        }
        if let Some([few, many]) = self.parked.as_ref().map(|crowd| &*crowd.sizes) {
            bars.push(Bar::at_most("a million parked: MB above idle", many.memory_mb_above_idle, 150.0));
            let wake = many.wake.p50_ms / few.wake.p50_ms;
            bars.push(Bar::at_most("waking one of a million / one of ten thousand", wake, 2.0));
        }
        bars
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} worker threads, for the engine and the bare store alike\n", self.worker_threads)?;
        if let Some(steps) = &self.steps {
            show_steps(f, steps)?;
        }
        if let Some(figures) = &self.profiled {
            show_runs(f, "engine, 64 clients", figures)?;
        }
        if let Some(sleeps) = &self.sleeps {
            show_sleeps(f, sleeps)?;
        }
        if let Some(crowd) = &self.parked {
            show_parked(f, crowd)?;
        }
        for bar in &self.bars {
            let Bar { what, value, than, wanted, passed } = bar;
            let outcome = if *passed { "pass" } else { "FAIL" };
            writeln!(f, "{outcome}  {what:<48} {value:>8.2}  (wanted: {than} {wanted})")?;
        }
        Ok(())
    }
}

fn show_runs(f: &mut fmt::Formatter<'_>, name: &str, figures: &RunFigures) -> fmt::Result {
    let RunFigures { runs_per_s, p50_ms, p99_ms, cpu_us_per_run } = figures;
    writeln!(f, "{name:<34} {runs_per_s:>10.0} {p50_ms:>9.3} {p99_ms:>9.3} {cpu_us_per_run:>11.1}")
}

fn show_steps(f: &mut fmt::Formatter<'_>, steps: &Steps) -> fmt::Result {
    let Steps { commits_per_run, puts_per_run, deletes_per_run, bytes_per_run, .. } = steps;
    writeln!(
        f,
        "W1: a run of three steps writes {puts_per_run} puts and {deletes_per_run} deletes, {bytes_per_run} bytes, in {commits_per_run} commits"
    )?;
    writeln!(f, "{:<34} {:>10} {:>9} {:>9} {:>11}", "", "runs/s", "p50 ms", "p99 ms", "CPU µs/run")?;
    for pair in [&steps.one, &steps.many] {
        show_runs(f, &format!("engine, {} clients", pair.clients), &pair.engine)?;
        show_runs(f, &format!("bare store, {} writers", pair.clients), &pair.bare)?;
    }
    show_runs(f, &format!("engine, as a graph, {} clients", steps.many.clients), &steps.graph)?;
    writeln!(f)?;
    for pair in [&steps.one, &steps.many] {
        let Pair { clients, share, cpu, p50, rounds, .. } = pair;
        let share = share * 100.0;
        let each =
            rounds.iter().map(|round| format!("{:.0} % / {:.2} / {:.2}", round.share * 100.0, round.cpu, round.p50));
        let each = each.collect::<Vec<_>>().join(", ");
        writeln!(
            f,
            "{clients:>3} clients: {share:.0} % of the bare store's runs/s, {cpu:.2} x its CPU per run, {p50:.2} x its p50 (by round: {each})"
        )?;
    }
    writeln!(f)
}

fn show_sleeps(f: &mut fmt::Formatter<'_>, sleeps: &Sleeps) -> fmt::Result {
    let Sleeps { parked, seen_parked, overshoot, .. } = sleeps;
    writeln!(f, "W4: 1,000 sleeps of 1 s; {parked} were parked, {seen_parked} seen so when all had been started")?;
    writeln!(
        f,
        "overshoot: mean {:.1} ms, p50 {:.1}, p99 {:.1}, max {:.1}\n",
        overshoot.mean_ms, overshoot.p50_ms, overshoot.p99_ms, overshoot.max_ms
    )
}

fn show_parked(f: &mut fmt::Formatter<'_>, crowd: &Crowd) -> fmt::Result {
    writeln!(f, "parked runs; an idle engine has {:.1} MB of anonymous memory", crowd.idle_mb)?;
    writeln!(
        f,
        "{:>9} {:>9} {:>13} {:>11} {:>15} {:>9} {:>12} {:>12} {:>12}",
        "runs",
        "starts/s",
        "all parked s",
        "CPU µs/run",
        "MB above idle",
        "disk MB",
        "wake p50 ms",
        "wake p99 ms",
        "sample"
    )?;
    for size in &crowd.sizes {
        writeln!(
            f,
            "{:>9} {:>9.0} {:>13.2} {:>11.1} {:>15.1} {:>9.0} {:>12.2} {:>12.2} {:>12}",
            size.runs,
            size.starts_per_s,
            size.all_parked_s,
            size.cpu_us_per_run,
            size.memory_mb_above_idle,
            size.disk_mb,
            size.wake.p50_ms,
            size.wake.p99_ms,
            format!("{}/{}", size.sample_parked, size.sample)
        )?;
    }
    writeln!(f)
}
