//! `wigwag signal --all-waiting`: sends one signal to every run that waits for it.
//!
//! Holds: a run that stopped waiting after it was listed gets no signal, and is not a failure.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use serde_json::json;
use wigwag::{Payload, Receipt, WaitingRun};
use wigwag_core::{Name, RunId, RunRef, TypeName};
use wigwag_server::Code;

use super::super::inbox::{nothing_waits, show_table, signal_name};
use super::super::{command, target};
use super::{CALLS, receipt_json, signal_of};
use crate::args::{Signal, StoreArgs};
use crate::error::Failed;
use crate::input;
use crate::output::{Progress, count, now, short, talk};
use crate::target::Target;

/// Number of runs per page and per request.
const PAGE: usize = 256;

/// Maximum number of runs named per rejection reason.
const NAMED_MAX: usize = 5;

/// Maximum length of the printed payload.
const PAYLOAD_MAX: usize = 60;

pub(super) async fn run(args: &StoreArgs, wanted: &Signal, json: bool) -> Result<(), Failed> {
    let (name, payload) = read(wanted)?;
    if let Some(of) = &wanted.of {
        TypeName::new(of)
            .map_err(|refusal| Failed::wrong(refusal.to_string()).hint("`--type` is the name of a workflow"))?;
    }
    let target = target(args).await?;
    let mut waiting =
        Waiting { target: &*target, name: &name, of: wanted.of.as_deref(), seen: BTreeSet::new(), place: Place::First };
    match wanted.dry_run {
        true => list(args, &mut waiting, &payload, json).await,
        false => send(args, &mut waiting, wanted, &payload, json).await,
    }
}

/// Parses the arguments: without RUN, the first one is the name.
fn read(wanted: &Signal) -> Result<(Name, Payload), Failed> {
    let wrong = |what: String| Failed::wrong(what).hint(CALLS);
    let Some(name) = &wanted.first else { return Err(wrong("missing signal name".into())) };
    if wanted.third.is_some() {
        return Err(wrong(format!("`--all-waiting` takes no RUN, got: `{name}`")));
    }
    let payload = input::payload(wanted.second.as_deref().unwrap_or("null"))?;
    Ok((signal_name(name)?, payload))
}

/// Pages of waiting runs. Each run is returned once, because it may wait again right after the signal.
struct Waiting<'a> {
    target: &'a dyn Target,
    name: &'a Name,
    of: Option<&'a str>,
    seen: BTreeSet<RunRef>,
    place: Place,
}

enum Place {
    First,
    After(String),
    End,
}

impl Waiting<'_> {
    async fn page(&mut self) -> Result<Option<Vec<WaitingRun>>, Failed> {
        let after = match &self.place {
            Place::First => None,
            Place::After(place) => Some(place.as_str()),
            Place::End => return Ok(None),
        };
        let found = self.target.waiting(Some(self.name), PAGE, after).await?;
        self.place = found.next.map_or(Place::End, Place::After);
        let mut runs = found.runs;
        runs.retain(|run| self.of.is_none_or(|of| run.of == of) && self.seen.insert(run.run.clone()));
        Ok(Some(runs))
    }
}

/// Lists the recipients.
async fn list(args: &StoreArgs, waiting: &mut Waiting<'_>, payload: &Payload, json: bool) -> Result<(), Failed> {
    let mut found = Vec::new();
    while let Some(runs) = waiting.page().await? {
        found.extend(runs);
    }
    let (name, now) = (waiting.name, now());
    if json {
        let mut stdout = std::io::stdout().lock();
        for run in &found {
            let (id, point) = (&run.id, &run.wait.point);
            let shown = json!({
                "run": id, "type": run.of, "name": name, "point": point, "payload": payload, "dry_run": true,
            });
            writeln!(stdout, "{shown}")?;
        }
        return Ok(());
    }
    show_table(&found, now)?;
    let mut stdout = std::io::stdout().lock();
    let (payload, runs) = (short(payload.text(), PAYLOAD_MAX), count(found.len(), "run"));
    writeln!(stdout, "would send `{name}` with {payload} to {runs}")?;
    if found.is_empty() {
        talk(&nothing_waits(args, Some(name)));
    }
    Ok(())
}

async fn send(
    args: &StoreArgs,
    waiting: &mut Waiting<'_>,
    wanted: &Signal,
    payload: &Payload,
    json: bool,
) -> Result<(), Failed> {
    let mut tally = Tally::default();
    let mut signal = signal_of(wanted, waiting.name.as_str(), payload);
    signal.only_if_waiting = true;
    // The count includes runs of other types.
    let total = match Progress::is_shown() && waiting.of.is_none() {
        true => waiting.target.counts().await?.waiting.get(waiting.name.as_str()).copied(),
        false => None,
    };
    let progress = Progress::towards(total.and_then(|total| usize::try_from(total).ok()));
    // Report the signals sent so far even if listing fails.
    let listed = loop {
        let runs = match waiting.page().await {
            Ok(Some(runs)) => runs,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        let to: Vec<RunRef> = runs.iter().map(|run| run.run.clone()).collect();
        let outcomes = waiting.target.signal_many(&to, &signal).await;
        for (run, outcome) in runs.iter().zip(outcomes) {
            if json {
                show_json(waiting.name, run, &outcome)?;
            }
            tally.add(&run.id, outcome);
        }
        progress.done(waiting.seen.len(), "runs signalled");
    };
    drop(progress);
    tally.show(waiting.name, json)?;
    if tally.is_empty() && listed.is_ok() && !json {
        talk(&nothing_waits(args, Some(waiting.name)));
    }
    listed?;
    tally.verdict(args, waiting.name)
}

fn show_json(name: &Name, run: &WaitingRun, outcome: &Result<Receipt, Failed>) -> Result<(), Failed> {
    let mut stdout = std::io::stdout().lock();
    let shown = match outcome {
        Ok(receipt) => receipt_json(run.id.as_str(), name.as_str(), receipt),
        Err(error) => {
            let (id, state) = (&run.id, if is_over(error) { "not_waiting" } else { "refused" });
            json!({"run": id, "name": name, "state": state, "error": error.what()})
        }
    };
    writeln!(stdout, "{shown}")?;
    Ok(())
}

/// Whether the run stopped waiting after it was listed.
fn is_over(failed: &Failed) -> bool {
    use Code::{Gone, NotFound, NotRunning, NotWaiting};
    matches!(failed.code(), Some(NotWaiting | NotRunning | NotFound | Gone))
}

/// Results of all sends.
#[derive(Default)]
struct Tally {
    sent: usize,
    repeated: usize,
    over: usize,
    /// Rejected runs by reason.
    refused: BTreeMap<String, Vec<String>>,
    advice: Option<String>,
}

impl Tally {
    fn add(&mut self, run: &RunId, outcome: Result<Receipt, Failed>) {
        match outcome {
            Ok(receipt) if receipt.repeated => self.repeated += 1,
            Ok(_) => self.sent += 1,
            Err(error) if is_over(&error) => self.over += 1,
            Err(error) => {
                let advice = error.advice().map(str::to_owned);
                self.advice = self.advice.take().or(advice);
                self.refused.entry(error.what().to_owned()).or_default().push(format!("`{run}`"));
            }
        }
    }

    fn refusals(&self) -> usize {
        self.refused.values().map(Vec::len).sum()
    }

    fn is_empty(&self) -> bool {
        self.sent + self.repeated + self.over + self.refusals() == 0
    }

    /// Prints the totals; with JSON, to standard error, because each run already has its own line.
    fn show(&self, name: &Name, json: bool) -> std::io::Result<()> {
        match json {
            true => self.lines(name).iter().for_each(|line| talk(line)),
            false => writeln!(std::io::stdout().lock(), "{}", self.lines(name).join("\n"))?,
        }
        Ok(())
    }

    fn lines(&self, name: &Name) -> Vec<String> {
        let mut parts = vec![format!("sent `{name}` to {}", count(self.sent, "run"))];
        if self.repeated > 0 {
            parts.push(format!("{} already received it with this key", count(self.repeated, "run")));
        }
        if self.over > 0 {
            parts.push(format!("{} no longer waiting", count(self.over, "run")));
        }
        if self.refusals() > 0 {
            parts.push(format!("rejected by {}", count(self.refusals(), "run")));
        }
        let mut lines = vec![parts.join("; ")];
        lines.extend(self.refused.iter().map(|(reason, runs)| {
            let named = runs.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
            let rest = runs.len().saturating_sub(NAMED_MAX);
            let rest = if rest > 0 { format!(" and {rest} more") } else { String::new() };
            format!("rejected by {named}{rest}: {}", crate::output::line(reason))
        }));
        lines
    }

    fn verdict(self, args: &StoreArgs, name: &Name) -> Result<(), Failed> {
        match self.refusals() {
            0 => Ok(()),
            refusals => {
                let look = || format!("list the waits with `{}`", command(args, &format!("inbox {name}")));
                let advice = self.advice.unwrap_or_else(look);
                Err(Failed::new(format!("{} rejected `{name}`", count(refusals, "run"))).hint(advice))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wigwag::Engine;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_run_that_stopped_waiting_is_no_failure_and_rejections_are_grouped_by_reason() {
        let client = Engine::open("memory:").unwrap().client().await.unwrap();
        client.start("order", &()).id("a").await.unwrap();
        let not_waiting =
            || async { client.signal("a", "approval", &()).only_if_waiting().await.map_err(Failed::from) };
        let refused = || async { client.signal("a", "no name", &()).await.map_err(Failed::from) };
        let mut tally = Tally::default();
        tally.add(&"a".parse().unwrap(), client.signal("a", "approval", &()).await.map_err(Failed::from));
        for id in ["b", "c"] {
            tally.add(&id.parse().unwrap(), not_waiting().await);
        }
        let name: Name = "approval".parse().unwrap();
        assert_eq!(tally.lines(&name), ["sent `approval` to 1 run; 2 runs no longer waiting"]);
        for id in ["d", "e", "f", "g", "h", "i", "j"] {
            tally.add(&id.parse().unwrap(), refused().await);
        }
        let lines = tally.lines(&name);
        assert_eq!(lines[0], "sent `approval` to 1 run; 2 runs no longer waiting; rejected by 7 runs");
        assert!(lines[1].starts_with("rejected by `d`, `e`, `f`, `g`, `h` and 2 more: not a name"), "{}", lines[1]);
        assert_eq!(lines.len(), 2, "one line for each reason");
    }
}
