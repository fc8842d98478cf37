//! `wigwag explain`: explains why a run does not proceed.

use std::io::Write as _;

use wigwag::Time;
use wigwag_core::Explanation;

use super::{command, find, target};
use crate::args::StoreArgs;
use crate::error::Failed;
use crate::output::{line, now, span, talk};

pub(super) async fn run(args: &StoreArgs, id: &str, json: bool) -> Result<(), Failed> {
    let target = target(args).await?;
    let run = find(&*target, id).await?.run;
    let explained = target.explain(&run).await?;
    if json {
        let text = serde_json::to_string(&explained).map_err(|error| Failed::new(error.to_string()))?;
        writeln!(std::io::stdout().lock(), "{text}")?;
        return Ok(());
    }
    let waits = explained.points.iter().any(|point| point.kind == wigwag_core::PointKind::Wait);
    writeln!(std::io::stdout().lock(), "{}", words(&explained, now()))?;
    if waits {
        talk(&format!("show the expected payload with `{}`", command(args, &format!("status {id}"))));
    }
    Ok(())
}

/// Formats the explanation as lines of text.
fn words(explained: &Explanation, now: Time) -> String {
    let mut lines = vec![format!("{} is {}", explained.id, explained.status), line(&explained.why)];
    for point in &explained.points {
        let since = point.since.map(|since| format!(", for {}", span(now.since(since)))).unwrap_or_default();
        let until = match point.until {
            Some(until) if until > now => format!(", times out in {}", span(until.since(now))),
            Some(until) => format!(", overdue by {}", span(now.since(until))),
            None => String::new(),
        };
        lines.push(String::new());
        lines.push(format!("{} ({}{since}{until})", point.point, point.kind));
        let about = point.about.clone().unwrap_or_default();
        let lines_of = [("about", &about), ("needs", &point.needs), ("has", &point.have), ("then", &point.then)];
        for (label, text) in lines_of {
            if !text.is_empty() {
                lines.push(format!("  {label:<6}{}", line(text)));
            }
        }
        for misfit in &point.misfits {
            let by = misfit.by.as_deref().unwrap_or("an unknown sender");
            lines.push(format!("  rejected signal from {}: {}", line(by), line(&misfit.reason)));
        }
    }
    for one in &explained.compensated {
        let error = one.error.as_ref().map(|error| format!(": {}", line(&error.message))).unwrap_or_default();
        lines.push(format!("compensation of {}: {}{error}", one.point, one.status));
    }
    lines.join("\n")
}
