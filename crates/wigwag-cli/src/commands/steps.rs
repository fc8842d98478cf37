//! `wigwag steps`: lists the steps of a run.

use std::io::{BufWriter, Write as _};

use wigwag_core::{Children, Data, Path, Point, PointKind, PointStatus, Wait};

use super::{find, target};
use crate::args::StoreArgs;
use crate::error::Failed;
use crate::output::{line, moment, short, span, table};

/// Maximum length of a printed result.
const RESULT_MAX: usize = 120;

pub(super) async fn run(args: &StoreArgs, id: &str, json: bool) -> Result<(), Failed> {
    let target = target(args).await?;
    let run = find(&*target, id).await?.run;
    let mut points = target.steps(&run, json).await?;
    points.sort_by_key(|(_, point)| (point.started_at.or(point.ended_at), point.seq, point.place));
    if json {
        return show_json(&points);
    }
    let header = ["STEP", "KIND", "STATUS", "ATTEMPT", "STARTED", "TOOK", "RESULT"];
    table(&header, points.iter().map(|(path, point)| row(path, point)).collect())?;
    Ok(())
}

/// Prints the stored records with path, kind and full results.
fn show_json(points: &[(Path, Point)]) -> Result<(), Failed> {
    let mut stdout = BufWriter::new(std::io::stdout().lock());
    for (path, point) in points {
        let kind = if point.kind == PointKind::Step { "\"kind\":\"step\"," } else { "" };
        let rest = serde_json::to_string(point).map_err(|error| Failed::new(error.to_string()))?;
        writeln!(stdout, "{{\"path\":\"{path}\",{kind}{}", rest.get(1..).unwrap_or_default())?;
    }
    stdout.flush()?;
    Ok(())
}

fn row(path: &Path, point: &Point) -> Vec<String> {
    let took = point.started_at.zip(point.ended_at).map(|(from, to)| span(to.since(from)).replace(' ', ""));
    vec![
        path.to_string(),
        point.kind.to_string(),
        point.status.to_string(),
        point.attempt.to_string(),
        point.started_at.map_or_else(|| "-".into(), moment),
        took.unwrap_or_else(|| "-".into()),
        outcome(point),
    ]
}

/// Describes the result of a step, or the runs it waits for.
fn outcome(point: &Point) -> String {
    if let (PointKind::Wait, Some(wait)) = (point.kind, &point.wait) {
        return outcome_of_wait(point, wait);
    }
    let until = point.until.map(|at| format!("until {}", moment(at)));
    match (&point.error, &point.result, point.status) {
        (Some(error), _, PointStatus::Retrying) => {
            let again = point.until.map(|at| format!("retry at {}: ", moment(at))).unwrap_or_default();
            format!("{again}{}: {}", error.kind, line(&error.message))
        }
        (Some(error), ..) => format!("{}: {}", error.kind, line(&error.message)),
        (None, Some(Data::Inline(payload)), _) => short(payload.text(), RESULT_MAX),
        (None, Some(Data::Blob(blob)), _) => format!("{} bytes", blob.bytes),
        (None, None, status) if status.is_settled() => "-".into(),
        (None, None, _) => {
            let children = point.children.as_ref().map(children);
            let known: Vec<String> = [children, until].into_iter().flatten().collect();
            if known.is_empty() { "-".into() } else { known.join(" ") }
        }
    }
}

/// Describes an open wait, or the signal it received.
fn outcome_of_wait(point: &Point, wait: &Wait) -> String {
    let error = point.error.as_ref().map(|error| format!("{}: {}", error.kind, line(&error.message)));
    let error = error.unwrap_or_default();
    let is_late = point.error.as_ref().is_some_and(|error| error.kind == "SignalTimeout");
    match (point.status, &point.result) {
        (PointStatus::Running, _) => {
            let until =
                point.until.map_or_else(|| ", without a deadline".into(), |at| format!(" until {}", moment(at)));
            format!("waits for signal `{}`{until}", wait.name)
        }
        (PointStatus::Completed, Some(Data::Inline(payload))) => {
            format!("received {}", short(payload.text(), RESULT_MAX))
        }
        (PointStatus::Completed, Some(Data::Blob(blob))) => format!("received {} bytes", blob.bytes),
        (PointStatus::Completed, None) => "timed out".into(),
        (PointStatus::Failed, _) if is_late => format!("timed out: {error}"),
        (PointStatus::Skipped, _) if !error.is_empty() => format!("closed: {error}"),
        (PointStatus::Retrying, _) => {
            let again = point.until.map(|at| format!("retry at {}: ", moment(at))).unwrap_or_default();
            format!("{again}{error}")
        }
        _ if error.is_empty() => "-".into(),
        _ => error,
    }
}

/// Describes the runs that a step waits for.
pub(super) fn children(children: &Children) -> String {
    match children {
        Children::One(run) => format!("for `{}`", run.id),
        Children::Tasks(ids) if ids.len() == 1 => format!("for task `{}`", ids[0]),
        Children::Tasks(ids) => format!("for {} tasks", ids.len()),
        Children::Numbered { count, .. } => format!("for {count} tasks"),
    }
}
