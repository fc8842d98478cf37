//! `wigwag doctor`: proves that a store keeps its word.

use std::io::Write as _;

use serde_json::json;
use wigwag_store::doctor::{self, Finding, Outcome, Races, Report};
use wigwag_store::{Cost, Opened};

use crate::args::StoreArgs;
use crate::error::Failed;
use crate::output::Progress;

pub(super) async fn run(args: &StoreArgs, json: bool) -> Result<(), Failed> {
    let mut settings = super::settings(args);
    settings.unproven = true;
    let opened = wigwag_store::open(&args.store, &settings)?;
    let progress = Progress::new();
    let report = doctor::examine(&*opened.store, Races::THOROUGH, |name| progress.say(name)).await?;
    if let Some(embedded) = &opened.embedded {
        progress.say("integrity");
        embedded.check_integrity().await?;
    }
    drop(progress);
    show(args, &opened, &report, json)?;
    if report.is_good() {
        return Ok(());
    }
    let failed = Failed::new(format!("`{}` does not keep what wigwag rests on", args.store));
    let hint = report.findings.iter().find_map(|finding| finding.hint.clone());
    Err(match hint {
        Some(hint) => failed.hint(hint),
        None => failed,
    })
}

fn show(args: &StoreArgs, opened: &Opened, report: &Report, json: bool) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    let (usage, kind) = (opened.usage(), opened.store.traits().kind);
    let requests = usage.gets + usage.puts + usage.lists + usage.deletes;
    if json {
        let findings: Vec<_> = report.findings.iter().map(as_json).collect();
        let shown = json!({"store": args.store, "kind": kind, "good": report.is_good(), "findings": findings, "requests": requests});
        return writeln!(stdout, "{shown:#}");
    }
    for Finding { name, outcome, detail, .. } in &report.findings {
        writeln!(stdout, "{:<8} {name:<20} {detail}", word(*outcome))?;
    }
    if opened.embedded.is_some() {
        writeln!(stdout, "{:<8} {:<20} every page was read, table and index agree", "proven", "integrity")?;
    }
    let verdict = if report.is_good() { "is good" } else { "cannot be used" };
    let cost = if kind == "bucket" {
        format!(", ${:.4} at S3's list price", usage.dollars(Cost::S3_STANDARD))
    } else {
        String::new()
    };
    writeln!(stdout, "\n`{}` {verdict} ({requests} requests{cost})", args.store)
}

fn as_json(finding: &Finding) -> serde_json::Value {
    json!({"name": finding.name, "outcome": word(finding.outcome), "detail": finding.detail, "hint": finding.hint})
}

fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Proven => "proven",
        Outcome::Note => "note",
        Outcome::Failed => "FAILED",
    }
}
