//! `wigwag signals`: what was sent to a run, and what became of it.

use std::io::{BufWriter, Write as _};

use wigwag::{Fate, SignalView};

use super::inbox::signal_name;
use super::{command, find, target};
use crate::args::StoreArgs;
use crate::error::Failed;
use crate::output::{line, moment, short, table_with, talk};

/// What of a payload stands in a row.
const PAYLOAD_MAX: usize = 40;

/// Why a signal is not taken is said whole.
const CELL_MAX: usize = 300;

pub(super) async fn run(args: &StoreArgs, id: &str, name: Option<&str>, json: bool) -> Result<(), Failed> {
    let name = name.map(signal_name).transpose()?;
    let target = target(args).await?;
    let run = find(&*target, id).await?.run;
    let signals = target.signals(&run, name.as_ref()).await?;
    if json {
        return show_json(&signals);
    }
    let header = ["ID", "NAME", "SENT", "BY", "PAYLOAD", "FATE"];
    table_with(&header, signals.iter().map(row).collect(), CELL_MAX)?;
    if signals.is_empty() {
        let see = command(args, &format!("status {id}"));
        let what = name.map(|name| format!("no signal `{name}`")).unwrap_or_else(|| "no signal".into());
        talk(&format!("{what} was sent to `{id}`; see what it waits for with `{see}`"));
    }
    Ok(())
}

fn show_json(signals: &[SignalView]) -> Result<(), Failed> {
    let mut stdout = BufWriter::new(std::io::stdout().lock());
    for signal in signals {
        let shown = serde_json::to_string(signal).map_err(|error| Failed::new(error.to_string()))?;
        writeln!(stdout, "{shown}")?;
    }
    stdout.flush()?;
    Ok(())
}

fn row(signal: &SignalView) -> Vec<String> {
    let by = match (&signal.source.by, &signal.source.via) {
        (Some(by), Some(via)) => format!("{} ({})", line(by), line(via)),
        (Some(by), None) => line(by),
        (None, Some(via)) => format!("({})", line(via)),
        (None, None) => "-".into(),
    };
    vec![
        signal.id.clone(),
        signal.name.to_string(),
        moment(signal.created_at),
        by,
        short(signal.payload.text(), PAYLOAD_MAX),
        fate(signal),
    ]
}

fn fate(signal: &SignalView) -> String {
    let fate = match &signal.fate {
        Fate::Unconsumed => "unconsumed".into(),
        Fate::Consumed { point, at } => format!("consumed by `{point}` at {}", moment(*at)),
        Fate::Superseded => "superseded by a newer one".into(),
        Fate::Void => "void: it was meant for one wait alone, which ended first".into(),
        Fate::NeverConsumed => "never consumed (run finished)".into(),
        Fate::Unacknowledged => "unacknowledged: it came too late, and its sender was not told otherwise".into(),
        other => format!("{other:?}"),
    };
    let misfit = signal.misfit.as_ref().map(|misfit| format!(": {}", line(misfit))).unwrap_or_default();
    format!("{fate}{misfit}")
}
