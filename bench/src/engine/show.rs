//! Prints the figures of the engine.

use std::fmt;

use super::backlog::Backlog;
use super::burst::Burst;
use super::load::{Asked, Pair};
use super::parked::{Crowd, Parked};
use super::signals::{Many, Trips};
use super::sleeps::Sleeps;
use super::steps::Steps;
use super::{Bar, Report};
use crate::measure::RunFigures;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} worker threads, for the engine and the raw store alike\n", self.worker_threads)?;
        if let Some(steps) = &self.steps {
            show_steps(f, steps)?;
        }
        if let Some(figures) = &self.profiled {
            show_runs(f, "engine, 64 clients", figures)?;
        }
        if let Some(sleeps) = &self.sleeps {
            show_sleeps(f, sleeps)?;
        }
        if !self.backlogs.is_empty() {
            show_backlogs(f, &self.backlogs)?;
        }
        if let Some(signals) = &self.signals {
            show_trips(f, &signals.one)?;
            show_many(f, &signals.many)?;
            show_burst(f, &signals.burst)?;
            show_parked(f, "parked on a signal, woken by it", &signals.crowd)?;
        }
        if let Some(crowd) = &self.parked {
            show_parked(f, "asleep, woken by cancel", crowd)?;
        }
        for bar in &self.bars {
            writeln!(f, "{bar}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, value, than, wanted, passed } = self;
        let outcome = if *passed { "pass" } else { "FAIL" };
        write!(f, "{outcome}  {what:<50} {value:>8.2}  (wanted: {than} {wanted})")
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
        show_runs(f, &format!("raw store, {} writers", pair.clients), &pair.bare)?;
    }
    show_runs(f, &format!("engine, as a graph, {} clients", steps.many.clients), &steps.graph)?;
    writeln!(f)?;
    show_ratios(f, &steps.one)?;
    show_ratios(f, &steps.many)?;
    writeln!(f)
}

fn show_ratios(f: &mut fmt::Formatter<'_>, pair: &Pair) -> fmt::Result {
    let Pair { clients, share, cpu, p50, rounds, .. } = pair;
    let share = share * 100.0;
    let each = rounds.iter().map(|round| format!("{:.0} % / {:.2} / {:.2}", round.share * 100.0, round.cpu, round.p50));
    let each = each.collect::<Vec<_>>().join(", ");
    writeln!(
        f,
        "{clients:>3} clients: {share:.0} % of the raw store's runs/s, {cpu:.2} x its CPU per run, {p50:.2} x its p50 (by round: {each})"
    )
}

fn show_trips(f: &mut fmt::Formatter<'_>, one: &Trips) -> fmt::Result {
    let Trips { trips, signal, commit, commit_bytes, p50, rounds } = one;
    let each = rounds.iter().map(|round| format!("{round:.2}")).collect::<Vec<_>>().join(", ");
    writeln!(f, "W2: 1 client, {trips} runs; one is parked, then signalled, and its result awaited")?;
    writeln!(f, "{:<44} {:>9} {:>9}", "", "p50 ms", "p99 ms")?;
    writeln!(f, "{:<44} {:>9.3} {:>9.3}", "signal to result", signal.p50_ms, signal.p99_ms)?;
    let name = format!("one commit of the raw store, {commit_bytes} bytes");
    writeln!(f, "{name:<44} {:>9.3} {:>9.3}", commit.p50_ms, commit.p99_ms)?;
    writeln!(f, "{p50:.2} x one commit (by round: {each})\n")
}

fn show_many(f: &mut fmt::Formatter<'_>, many: &Many) -> fmt::Result {
    let Many { commits_per_run, puts_per_run, deletes_per_run, bytes_per_run, pair, sample, sample_parked, .. } = many;
    writeln!(f, "W2: {} clients, each starts a run, signals it and awaits its result", pair.clients)?;
    writeln!(
        f,
        "each writes {puts_per_run} puts and {deletes_per_run} deletes, {bytes_per_run} bytes, in {commits_per_run} commits; parked before the signal: {sample_parked} of {sample}"
    )?;
    show_asked(f, &many.asked)?;
    writeln!(f, "{:<34} {:>10} {:>9} {:>9} {:>11}", "", "rounds/s", "p50 ms", "p99 ms", "CPU µs/run")?;
    show_runs(f, &format!("engine, {} clients", pair.clients), &pair.engine)?;
    show_runs(f, &format!("raw store, {} writers", pair.clients), &pair.bare)?;
    show_ratios(f, pair)?;
    writeln!(f)
}

fn show_asked(f: &mut fmt::Formatter<'_>, asked: &Asked) -> fmt::Result {
    let Asked { gets, lists, puts, deletes } = asked;
    writeln!(f, "the engine asked for {puts:.2} puts, {deletes:.2} deletes, {gets:.2} gets and {lists:.2} lists each")
}

fn show_burst(f: &mut fmt::Formatter<'_>, burst: &Burst) -> fmt::Result {
    let Burst { runs, senders, start_s, all_sent_s, complete_s, more_writers, .. } = burst;
    writeln!(
        f,
        "W3: {runs} runs parked in {start_s:.2} s, then signalled by {senders} senders: all sent after {all_sent_s:.2} s, all complete after {complete_s:.2} s"
    )?;
    let (commits, puts, deletes) = (burst.commits_per_run, burst.puts_per_run, burst.deletes_per_run);
    let bytes = burst.bytes_per_run;
    writeln!(f, "each writes {puts} puts and {deletes} deletes, {bytes} bytes, in {commits} commits")?;
    show_asked(f, &burst.asked)?;
    writeln!(f, "{:<34} {:>10} {:>11}", "", "runs/s", "CPU µs/run")?;
    writeln!(f, "{:<34} {:>10.0} {:>11.1}", "engine", burst.runs_per_s, burst.cpu_us_per_run)?;
    let name = format!("raw store, {senders} writers");
    writeln!(f, "{name:<34} {:>10.0} {:>11.1}", burst.bare_runs_per_s, burst.bare_cpu_us_per_run)?;
    let name = format!("raw store, {more_writers} writers");
    writeln!(f, "{name:<34} {:>10.0}", burst.more_writers_runs_per_s)?;
    let each = burst.rounds.iter().map(|round| format!("{:.0} %", round * 100.0)).collect::<Vec<_>>().join(", ");
    writeln!(f, "{:.0} % of the raw store's runs/s (by round: {each})\n", burst.share * 100.0)
}

fn show_backlogs(f: &mut fmt::Formatter<'_>, backlogs: &[Backlog]) -> fmt::Result {
    writeln!(f, "signals buffered for one run, from the start of its worker to its result")?;
    for Backlog { signals, seconds, snapshot_bytes } in backlogs {
        writeln!(f, "{signals:>9} signals {seconds:>9.3} s, snapshot {snapshot_bytes} bytes")?;
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

fn show_parked(f: &mut fmt::Formatter<'_>, what: &str, crowd: &Crowd) -> fmt::Result {
    writeln!(f, "runs {what}; an idle engine has {:.1} MB of anonymous memory", crowd.idle_mb)?;
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
        let Parked { runs, starts_per_s, all_parked_s, cpu_us_per_run, disk_mb, wake, .. } = size;
        let memory = size.memory_mb_above_idle.map_or_else(|| "not first".to_owned(), |memory| format!("{memory:.1}"));
        let sample = format!("{}/{}", size.sample_parked, size.sample);
        writeln!(
            f,
            "{runs:>9} {starts_per_s:>9.0} {all_parked_s:>13.2} {cpu_us_per_run:>11.1} {memory:>15} {disk_mb:>9.0} {:>12.2} {:>12.2} {sample:>12}",
            wake.p50_ms, wake.p99_ms
        )?;
    }
    writeln!(f)
}
