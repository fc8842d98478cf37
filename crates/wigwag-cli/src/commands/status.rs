//! `wigwag status`: shows the status of a run.

use std::collections::BTreeMap;
use std::io::Write as _;

use wigwag::{OpenWait, Status, Time};
use wigwag_core::{
    Data, Ending, Fault, Path, PauseCause, Point, PointKind, PointStatus, Requests, Run, Style, shown_to_json, version,
};

use super::migrate::short_hash;
use super::steps::children;
use super::{command, find, target, waits};
use crate::args::StoreArgs;
use crate::error::Failed;
use crate::output::{line, now, pretty, short, span, warn, when};
use crate::target::Target;

/// Maximum length of a printed result; `--json` prints all of it.
const RESULT_MAX: usize = 500;

pub(super) async fn run(args: &StoreArgs, id: &str, json: bool) -> Result<(), Failed> {
    let target = target(args).await?;
    let run = find(&*target, id).await?;
    show(args, &*target, run, json).await
}

pub(super) async fn show(args: &StoreArgs, target: &dyn Target, run: Run, json: bool) -> Result<(), Failed> {
    let run = target.whole(run, json).await?;
    let warnings = if run.status.is_final() { Vec::new() } else { target.diagnose(&run).await? };
    if json {
        let state = shown_to_json(&run, "wigwag status", wigwag::dollars(&run.requests));
        warnings.iter().for_each(|warning| warn(warning));
        writeln!(std::io::stdout().lock(), "{}", pretty(&String::from_utf8_lossy(&state)))?;
        return Ok(());
    }
    let fits_plainly = fits_plainly(target, &run).await?;
    let open = if run.waits().next().is_some() { target.open_waits(&run.run).await? } else { Vec::new() };
    let mut stdout = std::io::stdout().lock();
    let mut lines = describe(args, &run, &open, fits_plainly, now());
    let above = lines.iter().position(|(name, _)| *name == "started").unwrap_or_default();
    lines.splice(above..above, warnings.into_iter().map(|warning| ("warning", warning)));
    for (name, value) in lines {
        writeln!(stdout, "{name:<10}  {value}")?;
    }
    stdout.flush()?;
    Ok(())
}

/// Whether `migrate` without flags makes a run compatible, because only dependencies changed.
async fn fits_plainly(target: &dyn Target, run: &Run) -> Result<bool, Failed> {
    let found = run.error.as_ref().and_then(|error| error.found.as_ref());
    let Some(found) = found.filter(|_| run.pause.as_ref().is_some_and(|pause| pause.why == PauseCause::Version)) else {
        return Ok(false);
    };
    let known = target.definitions(run.of.as_str()).await?;
    let Some(code) = known.iter().find(|known| known.hash == *found && known.style == Style::Graph) else {
        return Ok(false);
    };
    let mut whole = run.clone();
    whole.points = target.steps(&run.run, false).await?.into_iter().collect();
    Ok(version::migrate(&whole, code, &BTreeMap::new()).is_ok())
}

type Lines = Vec<(&'static str, String)>;

/// Describes a run as labelled lines.
fn describe(args: &StoreArgs, run: &Run, open: &[OpenWait], fits_plainly: bool, now: Time) -> Lines {
    let mut lines: Lines = vec![("id", run.id().to_string()), ("status", run.status.to_string()), ("type", of(run))];
    lines.push(("started", when(run.created_at, now)));
    if run.seq > 1 {
        let last = if run.status.is_final() { "ended" } else { "updated" };
        lines.push((last, when(run.updated_at, now)));
    }
    if let Some(at) = run.not_before.filter(|_| run.status == Status::Pending) {
        lines.push(("not before", when(at, now)));
    }
    if let Some(expires) = run.task.as_ref().and_then(|task| task.expires_at).filter(|_| run.status == Status::Pending)
    {
        lines.push(("expires", when(expires, now)));
    }
    if let Some(parent) = &run.parent {
        lines.push(("child of", format!("`{}` at `{}`", parent.run.id, parent.point)));
    }
    if run.restarts > 0 {
        lines.push(("restarted", if run.restarts == 1 { "once".into() } else { format!("{} times", run.restarts) }));
    }
    if let Some(lease) = run.lease.as_ref().filter(|_| !run.status.is_final()) {
        lines.push(("worker", format!("`{}`", lease.owner)));
    }
    for path in run.open.iter().filter(|_| !run.status.is_final()) {
        if let Some(point) = run.points.get(path) {
            lines.push(("now", doing(path, point, now)));
        }
        if let Some(wait) = open.iter().find(|wait| wait.point == *path) {
            lines.extend(wait.about.as_ref().map(|about| ("about", line(about))));
            lines.push(("takes", waits::takes(wait)));
            lines.push(("signal", waits::send(args, &run.run, wait, open)));
        }
    }
    if let Some(cancel) = &run.cancel {
        let reason = cancel.reason.as_ref().map(|reason| format!(": {}", line(reason))).unwrap_or_default();
        lines.push(("cancel", format!("requested {}{reason}", when(cancel.at, now))));
    }
    describe_pause(args, run, fits_plainly, now, &mut lines);
    describe_undoing(run, now, &mut lines);
    if let Some(error) = run.error.as_ref().filter(|_| run.pause.is_none()) {
        lines.push(("error", fault(error)));
        lines.extend(causes(error).map(|causes| ("", causes)));
    }
    if let Some(Data::Inline(result)) = &run.result {
        lines.push(("result", short(result.text(), RESULT_MAX)));
    }
    if !run.requests.is_none() {
        lines.push(("cost", cost(&run.requests)));
    }
    lines
}

/// Formats the store requests of a run and their price.
fn cost(requests: &Requests) -> String {
    let Requests { puts, gets, lists, deletes } = requests;
    let kinds = [(puts, "PUT"), (gets, "GET"), (lists, "LIST"), (deletes, "DELETE")];
    let kinds: Vec<String> =
        kinds.into_iter().filter(|(count, _)| **count > 0).map(|(count, kind)| format!("{count} {kind}")).collect();
    let dollars = format!("{:.7}", wigwag::dollars(requests));
    format!("{}: ${} at S3 list prices", kinds.join(", "), dollars.trim_end_matches('0').trim_end_matches('.'))
}

fn of(run: &Run) -> String {
    let mut words = match &run.task {
        Some(task) => vec![
            format!("task in queue `{}`", task.queue),
            format!("up to {} attempts of {}", task.retry.attempts_max(), span(task.timeout)),
        ],
        None => Vec::new(),
    };
    words.extend(run.version.map(|version| format!("version {version}")));
    if run.task.is_none() && !run.definition_hash.is_empty() {
        words.push(format!("definition {}", short_hash(&run.definition_hash)));
    }
    let words = if words.is_empty() { String::new() } else { format!(" ({})", words.join(", ")) };
    format!("{}{words}", run.of)
}

/// Describes an open step.
fn doing(path: &Path, point: &Point, now: Time) -> String {
    let until = point.until.map(|at| format!(" until {}", when(at, now)));
    let since = point.started_at.map(|at| format!(" since {}", when(at, now))).unwrap_or_default();
    let again = if point.attempt > 1 { format!(", attempt {}", point.attempt) } else { String::new() };
    match (point.kind, point.status) {
        (_, PointStatus::Retrying) => {
            let error = point.error.as_ref().map(|error| format!(": {}", fault(error))).unwrap_or_default();
            let next =
                point.until.map_or_else(|| "when the run is resumed".into(), |at| format!("at {}", when(at, now)));
            format!("`{path}` will be retried {next}; attempt {} failed{error}", point.attempt)
        }
        (PointKind::Step, _) => {
            let task = point.children.as_ref().map(|runs| format!(", waits {}", children(runs))).unwrap_or_default();
            format!("`{path}` is running{since}{again}{task}{}", until.unwrap_or_default())
        }
        (PointKind::Sleep, _) => format!("`{path}` sleeps{}", until.unwrap_or_default()),
        (PointKind::Wait, _) => {
            let name = point.wait.as_ref().map_or(path.as_str(), |wait| wait.name.as_str());
            format!("`{path}` waits for signal `{name}`{since}{}", waits::until(point.until, now))
        }
        (PointKind::Child, _) => {
            let runs = point.children.as_ref().map(children).unwrap_or_default();
            format!("`{path}` waits {runs}{}", until.unwrap_or_default())
        }
        (PointKind::Mark, _) => format!("`{path}`"),
    }
}

/// Describes why a run is paused and how to resume it.
fn describe_pause(args: &StoreArgs, run: &Run, fits_plainly: bool, now: Time, lines: &mut Lines) {
    let Some(pause) = &run.pause else { return };
    let id = run.id();
    let why = match pause.why {
        PauseCause::ByHand => "by request",
        PauseCause::Version => "version mismatch",
        PauseCause::Failure => "step failure",
    };
    let reason = pause.reason.as_ref().map(|reason| format!(": {}", line(reason))).unwrap_or_default();
    lines.push(("paused", format!("{why}, {}{reason}", when(pause.at, now))));
    if let Some(error) = &run.error {
        lines.push(("error", fault(error)));
        lines.extend(causes(error).map(|causes| ("", causes)));
    }
    if pause.why != PauseCause::Version {
        lines.push(("resume", command(args, &format!("resume {id}"))));
        return;
    }
    let misfits = run.error.as_ref().map(|error| error.incompatible_steps.as_slice()).unwrap_or_default();
    lines.extend(misfits.iter().map(|misfit| ("mismatch", line(misfit))));
    if let Some((expected, found)) =
        run.error.as_ref().and_then(|error| error.expected.as_ref().zip(error.found.as_ref()))
    {
        let (expected, found) = (short_hash(expected), short_hash(found));
        lines.push(("code", format!("run: definition {expected}, worker: definition {found}")));
    }
    // A step may be followed by the way it was recorded.
    let step = misfits.first().and_then(|misfit| misfit.split(' ').next()).unwrap_or("OLD");
    if fits_plainly {
        lines.push(("migrate", command(args, &format!("migrate {id}"))));
    } else {
        lines.push(("migrate", command(args, &format!("migrate {id} --rename {step}=NEW"))));
        lines.push(("or", command(args, &format!("migrate {id} --skip {step}"))));
    }
    lines.push((
        "or",
        format!("roll back to the previous code, then {}", command(args, &format!("resume {id} --anyway"))),
    ));
}

/// Describes the progress of compensation and its failures.
fn describe_undoing(run: &Run, now: Time, lines: &mut Lines) {
    if let Some(chain) = run.chain.as_ref().filter(|_| !run.status.is_final()) {
        let cause = match &chain.cause {
            Ending::Failed(error) => format!("the run failed: {}", fault(error)),
            Ending::Cancelled(_) => "the run was cancelled".into(),
        };
        lines.push(("compensate", format!("{} steps compensated so far; {cause}", chain.behind)));
        if let Some(current) = &chain.current {
            let next = current.retry_at.map(|at| format!(", next attempt {}", when(at, now))).unwrap_or_default();
            lines.push(("now", format!("compensating `{}`, attempt {}{next}", current.point, current.attempt)));
        }
    }
    for failed in &run.compensation_errors {
        lines.push(("compensate", format!("`{}` failed: {}", failed.point, fault(&failed.error))));
    }
}

fn fault(fault: &Fault) -> String {
    let place = fault.point.as_ref().map(|point| format!(" (at `{point}`)")).unwrap_or_default();
    format!("{}: {}{place}", line(&fault.kind), line(&fault.message))
}

/// Returns the causes of an error, without the backtrace, which `--json` prints.
fn causes(fault: &Fault) -> Option<String> {
    fault.detail.as_deref().filter(|detail| detail.starts_with("because: ")).map(line)
}
