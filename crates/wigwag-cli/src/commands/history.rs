//! `wigwag history`: prints the events of a run's log.

use std::io::{BufWriter, Write};
use std::time::Duration;

use serde_json::{Map, Value};
use wigwag_core::{Entry, Event, Run};

use super::migrate::short_hash;
use super::{command, find, target};
use crate::args::{History, StoreArgs};
use crate::error::Failed;
use crate::output::{short, span, talk};
use crate::target::Target;

/// Number of entries per read.
const PAGE: u64 = 256;

pub(super) async fn run(args: &StoreArgs, wanted: &History, json: bool) -> Result<(), Failed> {
    let target = target(args).await?;
    let run = find(&*target, &wanted.id).await?;
    let left = wanted.limit.unwrap_or(u64::MAX);
    let shown = match wanted.follow {
        true => follow(&*target, &run, wanted.from, left, json).await?,
        false => show_from(&*target, &run, wanted.from, left, json).await?,
    };
    let next = wanted.from + shown;
    if shown == left && next <= run.seq {
        let rest = command(args, &format!("history {} --from {next}", wanted.id));
        talk(&format!("more entries: `{rest}`"));
    }
    Ok(())
}

/// Prints new entries until the run finishes; returns their number.
async fn follow(target: &dyn Target, run: &Run, from: u64, left: u64, json: bool) -> Result<u64, Failed> {
    if from > run.seq + 1 {
        let what = format!("run `{}` has no entry {from}: the last is {}", run.id(), run.seq);
        return Err(Failed::wrong(what).hint("omit `--from`, or continue after the last entry"));
    }
    let mut log = target.follow(&run.run, from).await?;
    let mut shown = 0;
    while shown < left {
        let Some(mut entries) = log.next().await? else { break };
        entries.truncate(usize::try_from(left - shown).unwrap_or(usize::MAX));
        show_all(&entries, json)?;
        shown += entries.len() as u64;
    }
    Ok(shown)
}

/// Prints entries starting at `from`; returns their number.
async fn show_from(target: &dyn Target, run: &Run, from: u64, left: u64, json: bool) -> Result<u64, Failed> {
    let mut shown = 0;
    while shown < left {
        let wanted = (left - shown).min(PAGE);
        let entries = target.history(&run.run, from + shown, wanted).await?;
        show_all(&entries, json)?;
        shown += entries.len() as u64;
        if (entries.len() as u64) < wanted {
            break;
        }
    }
    Ok(shown)
}

fn show_all(entries: &[Entry], json: bool) -> std::io::Result<()> {
    let mut stdout = BufWriter::new(std::io::stdout().lock());
    for entry in entries {
        show(&mut stdout, entry, json)?;
    }
    stdout.flush()
}

fn show(to: &mut impl Write, entry: &Entry, json: bool) -> std::io::Result<()> {
    if json {
        return to.write_all(&entry.to_json());
    }
    let at = entry.at.to_string();
    let at = at.get(..23).unwrap_or(&at);
    for event in &entry.events {
        let text = format!("{:>4}  {at}Z  {:<22}  {}", entry.seq, event.name(), facts(event));
        writeln!(to, "{}", text.trim_end())?;
    }
    Ok(())
}

/// Internal event fields that are not printed.
const HIDDEN: [&str; 12] =
    ["type", "point", "at", "hints", "peer", "control", "relative", "compensate", "patch", "parent", "cursor", "floor"];

/// Maximum length of a printed value.
const VALUE_MAX: usize = 100;

/// Formats the step and the public fields of an event.
fn facts(event: &Event) -> String {
    let fields: Map<String, Value> = match serde_json::to_value(event) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let point = fields.get("point").and_then(Value::as_str).map(str::to_owned);
    let known = fields.iter().filter(|(name, value)| !HIDDEN.contains(&name.as_str()) && value.as_str() != Some(""));
    let others = known.map(|(name, value)| match (name.as_str(), value.as_str()) {
        ("definition_hash", Some(hash)) => format!("definition={}", short_hash(hash)),
        ("signals", None) => format!("by={}", senders(value)),
        ("shift", None) => format!("shift={}", span(Duration::from_micros(value.as_u64().unwrap_or(0)))),
        _ => format!("{name}={}", short(&value_text(value), VALUE_MAX)),
    });
    point.into_iter().chain(others).collect::<Vec<_>>().join("  ")
}

/// Lists the senders of consumed signals.
fn senders(signals: &Value) -> String {
    let by =
        |signal: &Value| signal.get("by").and_then(Value::as_str).map_or_else(|| "-".into(), |by| short(by, VALUE_MAX));
    signals.as_array().into_iter().flatten().map(by).collect::<Vec<_>>().join(",")
}

/// Formats errors as text, words unquoted, and everything else as JSON.
fn value_text(value: &Value) -> String {
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    // The cause of a compensation wraps the error.
    let error = value.get("failed").unwrap_or(value);
    match (value, text(error, "type"), text(error, "message")) {
        (_, Some(kind), Some(message)) => format!("{:?}", format!("{kind}: {message}")),
        (Value::String(text), ..) if !text.contains(char::is_whitespace) => text.clone(),
        _ => value.to_string(),
    }
}
