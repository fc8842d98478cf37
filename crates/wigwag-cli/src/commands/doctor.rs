//! `wigwag doctor`: checks the guarantees of a store and the consistency of the runs in it.

use std::io::Write as _;
use std::sync::Arc;

use serde_json::json;
use wigwag::{Audit, AuditOptions, Counts, Engine};
use wigwag_core::audit::Breach;
use wigwag_store::doctor::{self, Finding, Outcome, Races, Report};
use wigwag_store::limits::LIST_PAGE;
use wigwag_store::{Cost, Embedded, Opened, Store};

use crate::args::{Doctor, StoreArgs};
use crate::error::Failed;
use crate::output::{Progress, count};

/// Maximum number of findings of each kind in text output.
const SHOWN_MAX: usize = 20;

pub(super) async fn run(args: &StoreArgs, wanted: &Doctor, json: bool) -> Result<(), Failed> {
    super::no_server(args)?;
    let mut settings = super::settings(args);
    settings.unproven = true;
    settings.embedded.read_only = true;
    let opened = wigwag_store::open(&args.store, &settings)?;
    let progress = Progress::new();
    let read_only = opened.embedded.as_ref().is_some_and(Embedded::is_read_only);
    let mut found = Found { read_only, ..Found::default() };
    if !wanted.no_store {
        if !found.read_only {
            found.store = Some(doctor::examine(&*opened.store, Races::THOROUGH, |name| progress.say(name)).await?);
        }
        if let Some(embedded) = &opened.embedded {
            progress.say("integrity");
            embedded.check_integrity().await?;
            found.integrity = true;
        }
    }
    if !wanted.no_runs && found.store.as_ref().is_none_or(Report::is_good) {
        drop(progress);
        found.runs = Some(audit(&opened, wanted).await?);
    }
    found.unreadable = unreadable_messages(&*opened.store).await?;
    if json { show_json(args, &opened, &found) } else { show(args, &opened, &found) }?;
    found.verdict(args)
}

async fn audit(opened: &Opened, wanted: &Doctor) -> Result<Audit, Failed> {
    let client = Engine::builder(Arc::clone(&opened.store)).client().await?;
    let mut options = AuditOptions::default();
    options.limit = wanted.limit;
    let total = if Progress::is_shown() { Some(runs(&client.counts().await?)) } else { None };
    let progress = Progress::towards(total.map(|total| wanted.limit.map_or(total, |limit| total.min(limit))));
    let say = |audit: &Audit| progress.done(audit.runs, "runs checked");
    Ok(client.audit(&options, say).await?)
}

/// Returns the keys of the messages that the hub could not read and has set aside.
async fn unreadable_messages(store: &dyn Store) -> Result<Vec<String>, Failed> {
    let (mut keys, mut after) = (Vec::new(), String::new());
    loop {
        let page = store.list(wigwag_server::UNREADABLE_MESSAGES, &after, LIST_PAGE).await?;
        keys.extend(page.entries.into_iter().map(|listed| listed.key));
        match keys.last() {
            Some(last) if page.more => after.clone_from(last),
            _ => return Ok(keys),
        }
    }
}

/// Returns the number of all runs.
fn runs(counts: &Counts) -> usize {
    let all = counts.types.values().map(|of| of.unfinished + of.completed + of.failed + of.cancelled);
    usize::try_from(all.sum::<u64>()).unwrap_or(usize::MAX)
}

#[derive(Default)]
struct Found {
    /// The store is read-only, so the write checks were skipped.
    read_only: bool,
    /// The integrity check of an embedded store passed.
    integrity: bool,
    store: Option<Report>,
    runs: Option<Audit>,
    /// Keys of the messages that the hub could not read.
    unreadable: Vec<String>,
}

impl Found {
    fn is_good(&self) -> bool {
        self.store.as_ref().is_none_or(Report::is_good) && self.runs.as_ref().is_none_or(|runs| runs.broken.is_empty())
    }

    fn verdict(&self, args: &StoreArgs) -> Result<(), Failed> {
        if let Some(report) = self.store.as_ref().filter(|report| !report.is_good()) {
            let failed = Failed::new(format!("`{}` does not provide the guarantees that wigwag needs", args.store));
            let hint = report.findings.iter().find_map(|finding| finding.hint.clone());
            return Err(match hint {
                Some(hint) => failed.hint(hint),
                None => failed,
            });
        }
        let broken = self.runs.as_ref().map_or(0, |runs| runs.broken.len());
        if broken == 0 {
            return Ok(());
        }
        let what = format!("`{}` violates a guarantee in {}", args.store, count(broken, "place"));
        Err(Failed::new(what).hint("back up the store and report this; `wigwag history ID` shows the log of a run"))
    }
}

fn show_json(args: &StoreArgs, opened: &Opened, found: &Found) -> std::io::Result<()> {
    let breach = |breach: &Breach| json!({"promise": breach.promise.number(), "what": breach.what});
    let findings = found.store.as_ref().map(|report| report.findings.iter().map(as_json).collect::<Vec<_>>());
    let runs = found.runs.as_ref().map(|audit| {
        json!({
            "runs": audit.runs, "unfinished": audit.unfinished, "gone": audit.gone,
            "entries": audit.entries, "signals": audit.signals,
            "broken": audit.broken.iter().map(breach).collect::<Vec<_>>(),
            "untidy": audit.untidy.iter().map(breach).collect::<Vec<_>>(),
            "stuck": audit.stuck.iter().map(breach).collect::<Vec<_>>(),
        })
    });
    let shown = json!({
        "store": args.store, "kind": opened.store.traits().kind, "good": found.is_good(), "read_only": found.read_only,
        "findings": findings, "runs": runs, "unreadable_messages": found.unreadable, "requests": requests(opened),
    });
    writeln!(std::io::stdout().lock(), "{shown:#}")
}

fn requests(opened: &Opened) -> u64 {
    let usage = opened.usage();
    usage.gets + usage.puts + usage.lists + usage.deletes
}

fn show(args: &StoreArgs, opened: &Opened, found: &Found) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    if found.read_only {
        let note = "the store is read-only: write checks skipped";
        writeln!(stdout, "{:<8} {:<20} {note}", label(Outcome::Note), "read-only")?;
    }
    if let Some(report) = &found.store {
        for Finding { name, outcome, detail, .. } in &report.findings {
            writeln!(stdout, "{:<8} {name:<20} {detail}", label(*outcome))?;
        }
    }
    if found.integrity {
        writeln!(stdout, "{:<8} {:<20} every page is readable; table and index agree", "ok", "integrity")?;
    }
    if let Some(audit) = &found.runs {
        show_runs(&mut stdout, audit)?;
    }
    for key in found.unreadable.iter().take(SHOWN_MAX) {
        let what = format!("a queued message cannot be read: `wigwag cat {key}`");
        writeln!(stdout, "{:<8} {:<20} {what}", label(Outcome::Note), "hub")?;
    }
    if found.unreadable.len() > SHOWN_MAX {
        let more = found.unreadable.len() - SHOWN_MAX;
        writeln!(stdout, "{:<8} {:<20} and {more} more; use --json to list all", label(Outcome::Note), "hub")?;
    }
    let verdict = match &found.store {
        Some(report) if !report.is_good() => "failed: it cannot be used as a store",
        _ if found.is_good() => "passed all checks",
        _ => "has damaged runs",
    };
    let cost = if opened.store.traits().kind == "bucket" {
        format!(", ${:.4} at S3 list prices", opened.usage().dollars(Cost::S3_STANDARD))
    } else {
        String::new()
    };
    writeln!(stdout, "\n`{}` {verdict} ({} requests{cost})", args.store, requests(opened))
}

fn show_runs(stdout: &mut impl std::io::Write, audit: &Audit) -> std::io::Result<()> {
    let outcome = if audit.broken.is_empty() { Outcome::Proven } else { Outcome::Failed };
    let (runs, entries, signals) = (
        count(audit.runs, "run"),
        count(audit.entries, "log entry").replace("entrys", "entries"),
        count(audit.signals, "signal"),
    );
    let seen = format!("{runs} ({} unfinished), {entries}, {signals}", audit.unfinished);
    writeln!(stdout, "{:<8} {:<20} {seen}", label(outcome), "runs")?;
    for (breaches, word) in [(&audit.broken, "BROKEN"), (&audit.stuck, "STUCK"), (&audit.untidy, "untidy")] {
        for breach in breaches.iter().take(SHOWN_MAX) {
            writeln!(stdout, "{word:<8} {:<20} {}", format!("guarantee {}", breach.promise.number()), breach.what)?;
        }
        if breaches.len() > SHOWN_MAX {
            writeln!(stdout, "{word:<8} {:<20} and {} more; use --json to list all", "", breaches.len() - SHOWN_MAX)?;
        }
    }
    Ok(())
}

fn as_json(finding: &Finding) -> serde_json::Value {
    json!({"name": finding.name, "outcome": word(finding.outcome), "detail": finding.detail, "hint": finding.hint})
}

/// The outcome in text output.
fn label(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Proven => "ok",
        other => word(other),
    }
}

/// The outcome in JSON output.
fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Proven => "proven",
        Outcome::Note => "note",
        Outcome::Failed => "FAILED",
    }
}
