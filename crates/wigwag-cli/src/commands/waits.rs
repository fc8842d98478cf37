//! Open waits in words: since when, until when, what they take, and the command that sends it.

use serde_json::Value;
use wigwag::core::{Family, RunRef};
use wigwag::{Mode, OpenWait, Status, Time};

use super::command;
use crate::args::StoreArgs;
use crate::output::{quoted, span, when};
use crate::schema;

/// Stands for a payload of which too little is known.
const PLACEHOLDER: &str = "JSON";

/// What a wait takes.
pub(super) fn takes(wait: &OpenWait) -> String {
    let payload = match &wait.schema {
        Some(schema) => schema::words(schema),
        None => "any JSON".into(),
    };
    let mut words = vec![payload];
    if wait.mode == Mode::Latest {
        words.push("the newest counts".into());
    }
    if wait.quorum > 1 {
        words.push(format!("one each of {} senders", wait.quorum));
    }
    if wait.authenticated {
        words.push("from authenticated senders only".into());
    }
    match (&wait.schema, example(wait)) {
        (None, _) => words.push("put yours in place of `null`".into()),
        (Some(_), None) => words.push(format!("put yours in place of `{PLACEHOLDER}`")),
        (Some(_), Some(_)) => {}
    }
    words.join("; ")
}

/// The command that sends a wait what it takes; `others` are the waits of the same run.
pub(super) fn send(args: &StoreArgs, run: &RunRef, wait: &OpenWait, others: &[OpenWait]) -> String {
    let payload = example(wait).map_or_else(|| PLACEHOLDER.to_owned(), |payload| payload.to_string());
    let mut rest = format!("signal {} {} {}", run.id, wait.name, quoted(&payload));
    if others.iter().any(|other| other.name == wait.name && other.point != wait.point) {
        rest += &format!(" --point {}", quoted(wait.point.as_str()));
    }
    if wait.quorum > 1 {
        rest += " --by WHO";
    }
    if run.family == Family::Task {
        rest += " --task";
    }
    command(args, &rest)
}

fn example(wait: &OpenWait) -> Option<Value> {
    wait.schema.as_ref().map_or(Some(Value::Null), schema::example)
}

/// Until when, for the end of a sentence.
pub(super) fn until(deadline: Option<Time>, now: Time) -> String {
    deadline.map_or_else(|| ", without a deadline".into(), |at| format!(" until {}", when(at, now)))
}

/// In how long a wait ends, for the end of a row.
pub(super) fn left(deadline: Option<Time>, now: Time) -> String {
    match deadline {
        Some(at) if at > now => format!("in {}", span(at.since(now))),
        Some(at) => format!("over since {}", span(now.since(at))),
        None => "none".into(),
    }
}

/// What a run does once a signal was taken.
pub(super) fn next(status: Status, waits: &[OpenWait], now: Time) -> String {
    let names = |wait: &OpenWait| format!("`{}`{}", wait.name, until(wait.deadline, now));
    match waits {
        [] if status.is_final() => format!("it is `{status}`"),
        [] => format!("it is `{status}`, and waits for no signal"),
        waits => format!("it now waits for {}", waits.iter().map(names).collect::<Vec<_>>().join(" and ")),
    }
}
