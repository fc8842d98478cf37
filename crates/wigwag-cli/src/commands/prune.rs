//! `wigwag prune`: deletes old finished runs.

use std::io::Write as _;

use serde_json::json;
use wigwag::{PruneOptions, Pruned};

use super::target;
use crate::args::{Prune, StoreArgs};
use crate::error::Failed;
use crate::output::{Progress, count};

pub(super) async fn run(args: &StoreArgs, wanted: &Prune, json: bool) -> Result<(), Failed> {
    let target = target(args).await?;
    let mut options = PruneOptions::older_than(wanted.older_than);
    options.status = wanted.status;
    options.dry_run = wanted.dry_run;
    let total = if Progress::is_shown() { target.prunable(&options).await? } else { None };
    let progress = Progress::towards(total);
    let pruned = target.prune(&options, &mut |pruned| progress.done(pruned.runs, "runs")).await?;
    drop(progress);
    let mut stdout = std::io::stdout().lock();
    let Pruned { runs, objects, freed, .. } = pruned;
    if json {
        let shown = json!({"dry_run": wanted.dry_run, "runs": runs, "objects": objects, "freed": freed});
        writeln!(stdout, "{shown}")?;
    } else if wanted.dry_run {
        writeln!(stdout, "would delete {}", count(runs, "run"))?;
    } else {
        let (runs, objects, freed) = (count(runs, "run"), count(objects, "object"), count(freed, "id"));
        writeln!(stdout, "deleted {runs} ({objects}); {freed} available again")?;
    }
    Ok(())
}
