//! `wigwag inbox`: what waits for a signal, page by page.

use std::io::{BufWriter, Write as _};

use wigwag::core::Name;
use wigwag::{Time, WaitingRun};

use super::waits::left;
use super::{command, target};
use crate::args::{Inbox, StoreArgs};
use crate::error::Failed;
use crate::output::{now, span, table, talk};

/// The columns of [`row`].
pub(super) const HEADER: [&str; 6] = ["RUN", "TYPE", "SIGNAL", "POINT", "WAITING", "DEADLINE"];

pub(super) async fn run(args: &StoreArgs, wanted: &Inbox, json: bool) -> Result<(), Failed> {
    let name = wanted.name.as_deref().map(signal_name).transpose()?;
    check_place(wanted, name.as_ref())?;
    let target = target(args).await?;
    let found = target.waiting(name.as_ref(), wanted.limit.into(), wanted.after.as_deref()).await?;
    let now = now();
    match json {
        true => show_json(&found.runs)?,
        false => table(&HEADER, found.runs.iter().map(|run| row(run, now)).collect())?,
    }
    match found.next {
        Some(next) => talk(&format!("there may be more: `{}`", again(args, wanted, &next))),
        None if found.runs.is_empty() && !json => talk(&nothing_waits(args, name.as_ref())),
        None => {}
    }
    Ok(())
}

pub(super) fn signal_name(text: &str) -> Result<Name, Failed> {
    Name::new(text).map_err(|refusal| {
        Failed::wrong(refusal.to_string()).hint("NAME is that of a signal, such as `approval` or `payment.received`")
    })
}

/// A place of another list would show the wrong part of this one.
fn check_place(wanted: &Inbox, name: Option<&Name>) -> Result<(), Failed> {
    let Some(place) = &wanted.after else { return Ok(()) };
    let below = name.map_or_else(|| "waiting/".to_owned(), |name| format!("waiting/{name}/"));
    match place.starts_with(&below) {
        true => Ok(()),
        false => Err(Failed::wrong(format!("not a place in this inbox: `{place}`"))
            .hint("give the place that the page before has named, or leave `--after` out")),
    }
}

pub(super) fn nothing_waits(args: &StoreArgs, name: Option<&Name>) -> String {
    match name {
        Some(name) => {
            format!("no run waits for `{name}`; see what others wait for with `{}`", command(args, "inbox"))
        }
        None => format!("no run waits for a signal; see how they are with `{}`", command(args, "list")),
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

pub(super) fn row(run: &WaitingRun, now: Time) -> Vec<String> {
    let wait = &run.wait;
    let age = wait.since.map_or_else(|| "-".into(), |since| span(now.since(since)).replace(' ', ""));
    vec![
        run.id.to_string(),
        run.of.clone(),
        wait.name.to_string(),
        wait.point.to_string(),
        age,
        left(wait.deadline, now),
    ]
}
