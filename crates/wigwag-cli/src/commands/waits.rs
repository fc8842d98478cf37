//! Describes open waits: age, deadline, expected payload, and the command that sends it.

use serde_json::Value;
use wigwag::{Mode, OpenWait, Status, Time};
use wigwag_core::{Family, RunRef};

use super::command;
use crate::args::StoreArgs;
use crate::output::{quoted, span, when};
use crate::schema;

/// Placeholder for a payload without an example.
const PLACEHOLDER: &str = "JSON";

/// Describes the payload that a wait expects.
pub(super) fn takes(wait: &OpenWait) -> String {
    let payload = match &wait.schema {
        Some(schema) => schema::words(schema),
        None => "any JSON".into(),
    };
    let mut words = vec![payload];
    if wait.mode == Mode::Latest {
        words.push("the latest signal is consumed".into());
    }
    if wait.quorum > 1 {
        words.push(format!("one signal from each of {} senders", wait.quorum));
    }
    if wait.authenticated {
        words.push("from authenticated senders only".into());
    }
    match (&wait.schema, example(wait)) {
        (None, _) => words.push("replace `null` with your payload".into()),
        (Some(_), None) => words.push(format!("replace `{PLACEHOLDER}` with your payload")),
        (Some(_), Some(_)) => {}
    }
    words.join("; ")
}

/// Formats the command that sends the signal; `others` are the waits of the same run.
pub(super) fn send(args: &StoreArgs, run: &RunRef, wait: &OpenWait, others: &[OpenWait]) -> String {
    let payload = example(wait).map_or_else(|| PLACEHOLDER.to_owned(), |payload| payload.to_string());
    let mut rest = format!("signal {} {} {}", run.id, wait.name, quoted(&payload));
    if others.iter().any(|other| other.name == wait.name && other.point != wait.point) {
        rest += &format!(" --point {}", quoted(wait.point.as_str()));
    }
    if wait.quorum > 1 {
        rest += " --by NAME";
    }
    if run.family == Family::Task {
        rest += " --task";
    }
    command(args, &rest)
}

fn example(wait: &OpenWait) -> Option<Value> {
    wait.schema.as_ref().map_or(Some(Value::Null), schema::example)
}

/// Formats a deadline for the end of a sentence.
pub(super) fn until(deadline: Option<Time>, now: Time) -> String {
    deadline.map_or_else(|| ", without a deadline".into(), |at| format!(" until {}", when(at, now)))
}

/// Formats the remaining time of a wait for a table cell.
pub(super) fn left(deadline: Option<Time>, now: Time) -> String {
    match deadline {
        Some(at) if at > now => format!("in {}", span(at.since(now))),
        Some(at) => format!("expired {} ago", span(now.since(at))),
        None => "none".into(),
    }
}

/// Describes the run after it consumed a signal.
pub(super) fn next(status: Status, waits: &[OpenWait], now: Time) -> String {
    let names = |wait: &OpenWait| format!("`{}`{}", wait.name, until(wait.deadline, now));
    match waits {
        [] if status.is_final() => format!("the run is `{status}`"),
        [] => format!("the run is `{status}` and waits for no signal"),
        waits => format!("it now waits for {}", waits.iter().map(names).collect::<Vec<_>>().join(" and ")),
    }
}
