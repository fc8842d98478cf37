//! `wigwag signals`: lists the signals sent to a run and their outcomes.

use std::io::{BufWriter, Write as _};

use wigwag::{Fate, SignalView};

use super::inbox::signal_name;
use super::{command, find, target};
use crate::args::StoreArgs;
use crate::error::Failed;
use crate::output::{line, moment, short, table_with, talk};

/// Maximum length of a printed payload.
const PAYLOAD_MAX: usize = 40;

/// Maximum length of a cell, long enough for the reason of a rejection.
const CELL_MAX: usize = 300;

pub(super) async fn run(args: &StoreArgs, id: &str, name: Option<&str>, json: bool) -> Result<(), Failed> {
    let name = name.map(signal_name).transpose()?;
    let target = target(args).await?;
    let run = find(&*target, id).await?.run;
    let signals = target.signals(&run, name.as_ref()).await?;
    if json {
        return show_json(&signals);
    }
    let header = ["ID", "NAME", "SENT", "SENDER", "PAYLOAD", "OUTCOME"];
    table_with(&header, signals.iter().map(row).collect(), CELL_MAX)?;
    if signals.is_empty() {
        let see = command(args, &format!("status {id}"));
        let what = name.map(|name| format!("no signal `{name}`")).unwrap_or_else(|| "no signal".into());
        talk(&format!("{what} was sent to `{id}`; show its open waits with `{see}`"));
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
        Fate::Superseded => "superseded by a newer signal".into(),
        Fate::Void => "void: its wait ended first".into(),
        Fate::NeverConsumed => "never consumed (run finished)".into(),
        Fate::Unacknowledged => "unacknowledged: stored too late to be delivered".into(),
        other => format!("{other:?}"),
    };
    let misfit = signal.misfit.as_ref().map(|misfit| format!(": {}", line(misfit))).unwrap_or_default();
    format!("{fate}{misfit}")
}
