//! Prints the figures of the hub benchmark.

use std::fmt;

use super::drain::Drained;
use super::idle::Idle;
use super::pairs::Rate;
use super::{Compared, Measure, Of, Report, Size};

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size { pairs, window, subscribers, .. } = self.size;
        writeln!(f, "each server on a separate core, the load generator on another; 256 bytes of JSON")?;
        writeln!(f, "H1: one pair; H2: {pairs} pairs, window {window}; H3: one publisher, {subscribers} subscribers")?;
        if let Some(version) = &self.nats_version {
            writeln!(f, "compared with {version} over WebSocket")?;
        }
        writeln!(f)?;
        self.loads.iter().try_for_each(|load| show_load(f, load))?;
        self.idle.iter().try_for_each(|of| show_idle(f, of))?;
        self.drained.iter().try_for_each(|of| show_drained(f, of))?;
        writeln!(f)?;
        self.bars.iter().try_for_each(|bar| writeln!(f, "{bar}"))
    }
}

fn show_load(f: &mut fmt::Formatter<'_>, load: &Compared) -> fmt::Result {
    let columns = match load.sides.first().map(|of| of.figures.all) {
        Some(Measure::Trip { .. }) => format!("{:>10} {:>10}", "p50 µs", "p99 µs"),
        _ => format!("{:>10} {:>10} {:>10} {:>10}", "1/s", "server µs", "load µs", "load busy"),
    };
    writeln!(f, "{:<18} {:<24} {columns}   each round", load.what, "")?;
    for Of { side, figures } in &load.sides {
        let figure = match figures.all {
            Measure::Trip { p50_us, p99_us } => format!("{p50_us:>10.0} {p99_us:>10.0}"),
            Measure::Rate(Rate { per_s, server_us_each, load_us_each, load_share }) => {
                let busy = load_share * 100.0;
                format!("{per_s:>10.0} {server_us_each:>10.2} {load_us_each:>10.2} {busy:>8.0} %")
            }
        };
        let rounds = figures.rounds.iter().map(|value| format!("{value:.0}")).collect::<Vec<_>>().join(", ");
        writeln!(f, "{:<18} {:<24} {figure}   {rounds}", "", side.title())?;
    }
    writeln!(f)
}

fn show_idle(f: &mut fmt::Formatter<'_>, of: &Of<Idle>) -> fmt::Result {
    let Idle { connections, named, before, with, kib_each } = of.figures;
    let (title, name) = (of.side.title(), if named { " with a name each" } else { "" });
    writeln!(
        f,
        "H4: {connections} idle connections{name}, {title}: {kib_each:.1} KiB each ({:.1} MB, {:.1} MB before)",
        with.resident_mb, before.resident_mb
    )
}

fn show_drained(f: &mut fmt::Formatter<'_>, of: &Of<Drained>) -> fmt::Result {
    let Drained { messages, targets, stored_ms, drained_ms } = of.figures;
    writeln!(
        f,
        "H5: {messages} messages for {targets} away, {}: stored in {stored_ms:.1} ms; after SIGKILL all there, in order, in {drained_ms:.1} ms",
        of.side.title()
    )
}
