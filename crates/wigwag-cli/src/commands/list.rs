//! `wigwag list`: lists runs.

use std::io::{BufWriter, Write as _};

use serde_json::{Value, json};
use wigwag::{Counts, Summary, TypeCounts};
use wigwag_core::{Name, TypeName};

use super::{command, target};
use crate::args::{List, StoreArgs};
use crate::error::Failed;
use crate::output::{Progress, count, line, moment, now, span, table, talk};
use crate::target::{Listing, Target, Which};

pub(super) async fn run(args: &StoreArgs, wanted: &List, json: bool) -> Result<(), Failed> {
    check_type(wanted)?;
    if wanted.count {
        return show_counts(&target(args).await?.counts().await?, wanted, json);
    }
    let List { of, status, tasks, queue, limit, after, .. } = wanted.clone();
    let listing = fill(&*target(args).await?, Which { of, status, tasks, queue, limit, after }).await?;
    match json {
        true => show_json(&listing.runs)?,
        false => {
            table(&["ID", "TYPE", "STATUS", "STARTED", "UPDATED", "CURRENT"], listing.runs.iter().map(row).collect())?
        }
    }
    for error in &listing.unreadable {
        talk(&format!("skipped an unreadable run: {error}"));
    }
    match listing.next {
        Some(next) => talk(&format!("next page: `{}`", again(args, wanted, &next))),
        None if listing.runs.is_empty() && !json => talk(if wanted.tasks { "no tasks" } else { "no runs" }),
        None => {}
    }
    Ok(())
}

/// Prints the number of runs by type, or of tasks with `--tasks`.
fn show_counts(counts: &Counts, wanted: &List, json: bool) -> Result<(), Failed> {
    let shown = counts.types.iter().filter(|(of, _)| {
        let name = of.strip_prefix("task:");
        let is_wanted = |of: &str| wanted.of.as_deref().is_none_or(|wanted| wanted == of);
        match name {
            Some(task) => wanted.tasks && task.split_once(':').is_some_and(|(_, of)| is_wanted(of)),
            None => !wanted.tasks && is_wanted(of),
        }
    });
    if json {
        let types: serde_json::Map<String, Value> = shown.map(|(of, counts)| (of.clone(), json!(counts))).collect();
        writeln!(std::io::stdout().lock(), "{}", json!({"types": types, "waiting": counts.waiting}))?;
        return Ok(());
    }
    let row = |(of, counts): (&String, &TypeCounts)| {
        let TypeCounts { unfinished, completed, failed, cancelled, .. } = counts;
        let figures = [unfinished, completed, failed, cancelled].map(ToString::to_string);
        std::iter::once(of.clone()).chain(figures).collect()
    };
    table(&["TYPE", "UNFINISHED", "COMPLETED", "FAILED", "CANCELLED"], shown.map(row).collect())?;
    Ok(())
}

/// Fills a page. One request reads a bounded number of runs, even if few of them match.
async fn fill(target: &dyn Target, mut which: Which) -> Result<Listing, Failed> {
    let progress = Progress::new();
    let mut whole = Listing { runs: Vec::new(), next: None, unreadable: Vec::new() };
    loop {
        let page = target.list(&which).await.map_err(|failed| {
            failed.or_hint(|| "use the cursor printed by the previous page, or omit `--after`".into())
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

/// Rejects an invalid type name before listing.
fn check_type(wanted: &List) -> Result<(), Failed> {
    let wrong = |refusal: wigwag_core::Refusal| {
        Failed::wrong(refusal.to_string()).hint("`--type` is the name of a workflow, or of a task with `--tasks`")
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
