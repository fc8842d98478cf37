//! `wigwag start`: starts a run.

use std::io::Write as _;
use std::time::Duration;

use serde_json::json;
use wigwag_core::RunRef;
use wigwag_server::Code;

use super::{command, show_payload, target_of_new};
use crate::args::{Start, StoreArgs};
use crate::error::Failed;
use crate::input;
use crate::output::{Progress, warn};
use crate::target::{NewRun, Target};

pub(super) async fn run(args: &StoreArgs, wanted: Start, json: bool) -> Result<(), Failed> {
    let input = input::json(&wanted.input)?;
    let target = target_of_new(args).await?;
    let new = NewRun { of: wanted.of, input, id: wanted.id, at: wanted.when.at, delay: wanted.when.delay };
    let started = target.start(new).await;
    let started = started.map_err(|failed| refused(failed, "TYPE is the name of a workflow, `--id` a run id"));
    let (run, warnings) = started?;
    warnings.iter().for_each(|warning| warn(warning));
    match (wanted.wait, json) {
        (true, _) => wait(args, &*target, &run, wanted.timeout).await,
        (false, true) if !warnings.is_empty() => {
            let shown = json!({"id": run.id.as_str(), "warnings": warnings});
            Ok(writeln!(std::io::stdout().lock(), "{shown}")?)
        }
        (false, _) => show_id(&run, json),
    }
}

/// Adds a hint that names the argument that an error refers to.
pub(super) fn refused(failed: Failed, hint: &str) -> Failed {
    let hint = match failed.code() {
        Some(Code::Invalid) => hint,
        Some(Code::Gone) => "use another id",
        _ => return failed,
    };
    failed.or_hint(|| hint.to_owned())
}

pub(super) fn show_id(run: &RunRef, json: bool) -> Result<(), Failed> {
    let mut stdout = std::io::stdout().lock();
    match json {
        true => writeln!(stdout, "{}", json!({"id": run.id.as_str()}))?,
        false => writeln!(stdout, "{}", run.id)?,
    }
    Ok(())
}

/// Waits until the run finishes and prints its result.
pub(super) async fn wait(
    args: &StoreArgs,
    target: &dyn Target,
    run: &RunRef,
    timeout: Option<Duration>,
) -> Result<(), Failed> {
    let id = &run.id;
    let progress = Progress::new();
    progress.say(&format!("`{id}` is running"));
    let result = target.result(run, timeout).await;
    drop(progress);
    show_payload(&result.map_err(|failed| {
        let look = |what: &str, hint: &str| format!("{hint} with `{}`", command(args, &format!("{what} {id}")));
        let hint = match failed.code() {
            Some(Code::RunFailed | Code::RunCancelled) => look("steps", "list its steps"),
            _ => look("status", "check its status"),
        };
        failed.or_hint(|| hint)
    })?)
}
