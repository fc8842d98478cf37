//! `wigwag sweep`: finds orphaned runs and reschedules them.

use std::io::Write as _;

use serde_json::json;
use wigwag::Swept;
use wigwag_store::{Clock as _, System};

use super::target;
use crate::args::{StoreArgs, Sweep};
use crate::error::Failed;
use crate::output::{Progress, count};

pub(super) async fn run(args: &StoreArgs, wanted: &Sweep, json: bool) -> Result<(), Failed> {
    let target = target(args).await?;
    loop {
        let progress = Progress::new();
        progress.say("checking wake-ups and unfinished runs");
        let swept = target.sweep(wanted.dry_run).await?;
        drop(progress);
        show(&swept, wanted.dry_run, json)?;
        match wanted.interval.filter(|_| !wanted.once) {
            Some(span) => System.sleep(span).await,
            None => return Ok(()),
        }
    }
}

fn show(swept: &Swept, dry_run: bool, json: bool) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    let Swept {
        hints, orphan_hints, stale_live, runs, too_young, lost_runs, stale_waits, lost_waits, lost_live, ..
    } = swept;
    if json {
        let shown = json!({
            "dry_run": dry_run, "hints": hints, "runs": runs, "too_young": too_young,
            "orphan_hints": orphan_hints, "stale_live": stale_live, "lost_runs": lost_runs,
            "stale_waits": stale_waits, "lost_waits": lost_waits, "lost_live": lost_live,
        });
        return writeln!(stdout, "{shown}");
    }
    writeln!(stdout, "checked {} and {}", count(*hints, "old wake-up"), count(*runs, "unfinished run"))?;
    let would = if dry_run { "would be " } else { "" };
    let found = [
        (*lost_runs, "orphaned runs without a wake-up", "rescheduled"),
        (*orphan_hints, "wake-ups without a run", "removed"),
        (*stale_live, "finished runs listed as unfinished", "unlisted"),
        (*stale_waits, "closed waits listed as open", "unlisted"),
        (*lost_waits, "open waits missing from the index", "listed"),
        (*lost_live, "unfinished runs missing from the index", "listed"),
    ];
    for (number, what, done) in found.iter().filter(|(number, ..)| *number > 0) {
        writeln!(stdout, "{number} {what}: {would}{done}")?;
    }
    if *too_young > 0 {
        let changed = if *too_young == 1 { "run changed" } else { "runs changed" };
        writeln!(stdout, "{too_young} {changed} too recently to check; sweep again in an hour")?;
    }
    match swept.repaired() {
        0 => writeln!(stdout, "no problems found"),
        _ => Ok(()),
    }
}
