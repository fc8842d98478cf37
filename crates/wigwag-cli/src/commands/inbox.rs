//! `wigwag inbox`: lists open waits.

use std::io::{BufWriter, Write as _};

use wigwag::{Time, WaitingRun};
use wigwag_core::Name;

use super::waits::left;
use super::{command, target};
use crate::args::{Inbox, StoreArgs};
use crate::error::Failed;
use crate::output::{line, now, span, table, talk};

/// The columns of [`row`]; the last one is shown if a wait has a description.
const HEADER: [&str; 7] = ["RUN", "TYPE", "SIGNAL", "STEP", "WAITING", "DEADLINE", "ABOUT"];

pub(super) async fn run(args: &StoreArgs, wanted: &Inbox, json: bool) -> Result<(), Failed> {
    let name = wanted.name.as_deref().map(signal_name).transpose()?;
    check_place(wanted, name.as_ref())?;
    let target = target(args).await?;
    let found = target.waiting(name.as_ref(), wanted.limit.into(), wanted.after.as_deref()).await?;
    let now = now();
    match json {
        true => show_json(&found.runs)?,
        false => show_table(&found.runs, now)?,
    }
    match found.next {
        Some(next) => talk(&format!("next page: `{}`", again(args, wanted, &next))),
        None if found.runs.is_empty() && !json => talk(&nothing_waits(args, name.as_ref())),
        None => {}
    }
    Ok(())
}

pub(super) fn signal_name(text: &str) -> Result<Name, Failed> {
    Name::new(text).map_err(|refusal| {
        Failed::wrong(refusal.to_string())
            .hint("NAME is the name of a signal, such as `approval` or `payment.received`")
    })
}

/// Rejects the cursor of another list.
fn check_place(wanted: &Inbox, name: Option<&Name>) -> Result<(), Failed> {
    let Some(place) = &wanted.after else { return Ok(()) };
    let below = name.map_or_else(|| "waiting/".to_owned(), |name| format!("waiting/{name}/"));
    match place.starts_with(&below) {
        true => Ok(()),
        false => Err(Failed::wrong(format!("invalid cursor for this list: `{place}`"))
            .hint("use the cursor printed by the previous page, or omit `--after`")),
    }
}

pub(super) fn nothing_waits(args: &StoreArgs, name: Option<&Name>) -> String {
    match name {
        Some(name) => {
            format!("no run waits for `{name}`; list all waits with `{}`", command(args, "inbox"))
        }
        None => format!("no run waits for a signal; list runs with `{}`", command(args, "list")),
    }
}

fn again(args: &StoreArgs, wanted: &Inbox, next: &str) -> String {
    let name = wanted.name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
    command(args, &format!("inbox{name} --limit {} --after {next}", wanted.limit))
}

fn show_json(runs: &[WaitingRun]) -> Result<(), Failed> {
    let mut stdout = BufWriter::new(std::io::stdout().lock());
    for run in runs {
        let shown = serde_json::to_string(run).map_err(|error| Failed::new(error.to_string()))?;
        writeln!(stdout, "{shown}")?;
    }
    stdout.flush()?;
    Ok(())
}

/// Prints waits as a table.
pub(super) fn show_table(runs: &[WaitingRun], now: Time) -> std::io::Result<()> {
    let is_described = runs.iter().any(|run| run.wait.about.is_some());
    let columns = HEADER.len() - usize::from(!is_described);
    let rows = runs.iter().map(|run| row(run, now).into_iter().take(columns).collect());
    table(HEADER.get(..columns).unwrap_or(&HEADER), rows.collect())
}

fn row(run: &WaitingRun, now: Time) -> Vec<String> {
    let wait = &run.wait;
    let age = wait.since.map_or_else(|| "-".into(), |since| span(now.since(since)).replace(' ', ""));
    vec![
        run.id.to_string(),
        run.of.clone(),
        wait.name.to_string(),
        wait.point.to_string(),
        age,
        left(wait.deadline, now),
        wait.about.as_deref().map_or_else(|| "-".into(), line),
    ]
}
