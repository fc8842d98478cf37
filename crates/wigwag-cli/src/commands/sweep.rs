//! `wigwag sweep`: looks for runs that nobody would look at.

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
        progress.say("looking at every hint and every unfinished run");
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
    writeln!(stdout, "looked at {} and {}", count(*hints, "old hint"), count(*runs, "unfinished run"))?;
    let would = if dry_run { "would be " } else { "" };
    let found = [
        (*lost_runs, "unfinished, that nobody would look at", "given a hint"),
        (*orphan_hints, "of the hints, without a run", "removed"),
        (*stale_live, "listed as unfinished though they have ended", "removed"),
        (*stale_waits, "of the waits that are listed, over", "removed"),
        (*lost_waits, "open waits that were not listed", "listed"),
        (*lost_live, "unfinished runs that were not listed", "listed"),
    ];
    for (number, what, done) in found.iter().filter(|(number, ..)| *number > 0) {
        writeln!(stdout, "{number} {what}: {would}{done}")?;
    }
    if *too_young > 0 {
        let changed = if *too_young == 1 { "run changed" } else { "runs changed" };
        writeln!(stdout, "{too_young} {changed} too recently to judge: sweep again in an hour")?;
    }
    match swept.repaired() {
        0 => writeln!(stdout, "nothing was wrong"),
        _ => Ok(()),
    }
}
