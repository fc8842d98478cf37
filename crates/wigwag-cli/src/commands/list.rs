//! `wigwag list`: runs, page by page.

use std::io::{BufWriter, Write as _};

use serde_json::{Value, json};
use wigwag::Summary;
use wigwag::core::{Name, TypeName};

use super::{command, target};
use crate::args::{List, StoreArgs};
use crate::error::Failed;
use crate::output::{Progress, count, line, moment, now, span, table, talk};
use crate::target::{Listing, Target, Which};

pub(super) async fn run(args: &StoreArgs, wanted: &List, json: bool) -> Result<(), Failed> {
    check_type(wanted)?;
    let List { of, status, tasks, queue, limit, after } = wanted.clone();
    let listing = fill(&*target(args).await?, Which { of, status, tasks, queue, limit, after }).await?;
    match json {
        true => show_json(&listing.runs)?,
        false => table(&["ID", "TYPE", "STATUS", "STARTED", "SINCE", "NOW"], listing.runs.iter().map(row).collect())?,
    }
    for error in &listing.unreadable {
        talk(&format!("passed over: {error}"));
    }
    match listing.next {
        Some(next) => talk(&format!("there may be more: `{}`", again(args, wanted, &next))),
        None if listing.runs.is_empty() && !json => talk(if wanted.tasks { "no tasks" } else { "no runs" }),
        None => {}
    }
    Ok(())
}

/// Lists until the page is full. One request reads a bounded number of runs, however few of them fit.
async fn fill(target: &dyn Target, mut which: Which) -> Result<Listing, Failed> {
    let progress = Progress::new();
    let mut whole = Listing { runs: Vec::new(), next: None, unreadable: Vec::new() };
    loop {
        let page = target.list(&which).await.map_err(|failed| {
            failed.or_hint(|| "give the place that the page before has named, or leave `--after` out".into())
        })?;
        which.limit = which.limit.saturating_sub(u16::try_from(page.runs.len()).unwrap_or(u16::MAX));
        whole.runs.extend(page.runs);
        whole.unreadable.extend(page.unreadable);
        whole.next = page.next;
        if which.limit == 0 || whole.next.is_none() {
            return Ok(whole);
        }
        progress.say(&format!("{} found so far", count(whole.runs.len(), "run")));
        which.after.clone_from(&whole.next);
    }
}

/// What cannot be the name of a type is not looked for.
fn check_type(wanted: &List) -> Result<(), Failed> {
    let wrong = |refusal: wigwag::core::Refusal| {
        Failed::wrong(refusal.to_string()).hint("`--type` is the name of a workflow, or with `--tasks` of a task")
    };
    let Some(name) = &wanted.of else { return Ok(()) };
    let of = TypeName::new(name).map_err(wrong)?;
    if wanted.tasks {
        TypeName::of_task(&Name::new(&wanted.queue).map_err(wrong)?, &of).map_err(wrong)?;
    }
    Ok(())
}

fn again(args: &StoreArgs, wanted: &List, next: &str) -> String {
    let mut rest = "list".to_owned();
    if let Some(of) = &wanted.of {
        rest += &format!(" --type {of}");
    }
    if let Some(status) = wanted.status {
        rest += &format!(" --status {status}");
    }
    if wanted.tasks {
        rest += " --tasks";
        if wanted.of.is_some() {
            rest += &format!(" --queue {}", wanted.queue);
        }
    }
    rest += &format!(" --limit {} --after {next}", wanted.limit);
    command(args, &rest)
}

fn show_json(runs: &[Summary]) -> std::io::Result<()> {
    let mut stdout = BufWriter::new(std::io::stdout().lock());
    for run in runs {
        writeln!(stdout, "{}", as_json(run))?;
    }
    stdout.flush()
}

fn as_json(run: &Summary) -> Value {
    json!({
        "id": run.id.as_str(),
        "type": run.of.as_str(),
        "status": run.status.name(),
        "created_at": run.created_at.to_string(),
        "updated_at": run.updated_at.to_string(),
        "next_at": run.next_at.map(|at| at.to_string()),
        "current_steps": run.current_steps,
        "error": run.error,
    })
}

fn row(run: &Summary) -> Vec<String> {
    let doing = match (&run.error, run.current_steps.is_empty()) {
        (Some(error), _) => line(error),
        (None, false) if !run.status.is_final() => run.current_steps.join(", "),
        (None, _) => "-".into(),
    };
    let since = span(now().since(run.updated_at));
    vec![
        run.id.to_string(),
        run.of.to_string(),
        run.status.to_string(),
        moment(run.created_at),
        since.replace(' ', ""),
        doing,
    ]
}
