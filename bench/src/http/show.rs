//! Prints the figures of the HTTP benchmark.

use std::fmt;

use super::held::Held;
use super::load::Figures;
use super::parked::Parked;
use super::{Compared, Report};
use crate::measure::RunFigures;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = self.client_threads;
        writeln!(
            f,
            "all on one machine; clients: {threads} thread, one connection kept for each, and one more for signals"
        )?;
        if let Some(version) = &self.restate_version {
            writeln!(f, "compared with {version}, whose handlers are a separate process")?;
        }
        writeln!(f)?;
        if !self.works.is_empty() {
            show_works(f, &self.works)?;
        }
        let parked = [("wigwag", &self.parked), ("Restate", &self.restate_parked)];
        for (name, parked) in parked.iter().filter_map(|(name, parked)| Some((name, parked.as_ref()?))) {
            show_parked(f, name, parked)?;
        }
        let held = [("long-polls", &self.polls), ("followers", &self.followers)];
        for (name, held) in held.iter().filter_map(|(name, held)| Some((name, held.as_ref()?))) {
            show_held(f, name, held)?;
        }
        writeln!(f)?;
        for bar in &self.bars {
            writeln!(f, "{bar}")?;
        }
        Ok(())
    }
}

fn show_works(f: &mut fmt::Formatter<'_>, works: &[Compared]) -> fmt::Result {
    writeln!(
        f,
        "{:<30} {:>9} {:>9} {:>9} {:>13} {:>15} {:>13}",
        "", "runs/s", "p50 ms", "p99 ms", "server µs/run", "handlers µs/run", "client µs/run"
    )?;
    for work in works {
        let name = |side: &str| format!("{}, {} clients: {side}", work.what, work.clients);
        show_figures(f, &name("wigwag"), &work.wigwag)?;
        if let Some(figures) = &work.restate {
            show_figures(f, &name("Restate"), figures)?;
        }
        if let Some(RunFigures { runs_per_s, p50_ms, p99_ms, cpu_us_per_run }) = &work.in_process {
            let name = name("in process");
            writeln!(f, "{name:<30} {runs_per_s:>9.0} {p50_ms:>9.2} {p99_ms:>9.2} {cpu_us_per_run:>13.0}")?;
        }
        if !work.rounds.is_empty() {
            let each = work.rounds.iter().map(|round| {
                format!("{:.1} x runs/s, {:.2} x p50, {:.2} x CPU", round.runs_per_s, round.p50, round.server_cpu)
            });
            writeln!(f, "  by round, compared with Restate: {}", each.collect::<Vec<_>>().join("; "))?;
        }
    }
    writeln!(f)
}

fn show_figures(f: &mut fmt::Formatter<'_>, name: &str, figures: &Figures) -> fmt::Result {
    let Figures { runs_per_s, p50_ms, p99_ms, server_cpu_us, handlers_cpu_us, client_cpu_us, .. } = figures;
    writeln!(
        f,
        "{name:<30} {runs_per_s:>9.0} {p50_ms:>9.2} {p99_ms:>9.2} {server_cpu_us:>13.0} {handlers_cpu_us:>15.0} {client_cpu_us:>13.0}"
    )
}

fn show_parked(f: &mut fmt::Formatter<'_>, name: &str, parked: &Parked) -> fmt::Result {
    let Parked { runs, start_s, idle, server, handlers } = parked;
    let handlers = handlers.map(|memory| format!(", its handlers {:.1} MB", memory.resident_mb)).unwrap_or_default();
    writeln!(
        f,
        "{runs} parked on {name}, started in {start_s:.1} s: server {:.1} MB ({:.1} MB anonymous; {:.1} MB when idle){handlers}",
        server.resident_mb, server.anonymous_mb, idle.resident_mb
    )
}

fn show_held(f: &mut fmt::Formatter<'_>, name: &str, held: &Held) -> fmt::Result {
    let Held { connections, before, with, kb_each, answered_s } = held;
    writeln!(
        f,
        "{connections} idle {name} held: {:.1} MB, {:.1} MB before ({kb_each:.1} KB each); all answered {answered_s:.1} s after the first signal",
        with.resident_mb, before.resident_mb
    )
}
