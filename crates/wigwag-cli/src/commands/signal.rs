//! `wigwag signal`: sends a signal to a run.

mod all_waiting;

use std::io::Write as _;

use serde_json::{Value, json};
use wigwag::{Payload, Receipt, SignalState};
use wigwag_core::{RunId, RunRef};
use wigwag_server::Code;

use super::inbox::signal_name;
use super::waits::next;
use super::{command, target, target_of_new};
use crate::args::{Signal, StoreArgs};
use crate::error::Failed;
use crate::input;
use crate::output::{Progress, now, warn};
use crate::target::{self, Taken, Target};

/// Hint for calls with missing arguments.
const CALLS: &str = "use `signal RUN NAME [PAYLOAD]` or `signal --all-waiting NAME [PAYLOAD]`";

pub(super) async fn run(args: &StoreArgs, wanted: Signal, json: bool) -> Result<(), Failed> {
    match wanted.all_waiting {
        true => all_waiting::run(args, &wanted, json).await,
        false => send(args, &wanted, json).await,
    }
}

async fn send(args: &StoreArgs, wanted: &Signal, json: bool) -> Result<(), Failed> {
    let message = Message::of(wanted)?;
    let target = match wanted.start {
        Some(_) => target_of_new(args).await?,
        None => target(args).await?,
    };
    let run = message.to(wanted)?;
    let signal = message.signal(wanted);
    match wanted.wait {
        None => {
            let receipt = target.signal(&run, &signal).await;
            let receipt = told(args, &*target, wanted, &message, receipt).await?;
            show(&message, &receipt, json)
        }
        Some(span) => {
            let progress = Progress::new();
            progress.say(&format!("waiting for `{}` to consume `{}`", message.run, message.name));
            let taken = target.signal_and_wait(&run, &signal, span).await;
            drop(progress);
            let taken = told(args, &*target, wanted, &message, taken).await?;
            show_taken(&message, &taken, json)
        }
    }
}

/// A signal and the run it goes to.
struct Message<'a> {
    run: &'a str,
    /// `run` or `task`.
    kind: &'static str,
    name: &'a str,
    payload: Payload,
    input: Payload,
}

impl<'a> Message<'a> {
    fn of(wanted: &'a Signal) -> Result<Self, Failed> {
        let (run, name) = match (&wanted.first, &wanted.second) {
            (Some(run), Some(name)) => (run, name),
            (Some(run), None) => {
                return Err(Failed::wrong(format!("missing signal name for run `{run}`")).hint(CALLS));
            }
            (None, _) => return Err(Failed::wrong("missing RUN or `--all-waiting`").hint(CALLS)),
        };
        signal_name(name)?;
        if wanted.third.as_deref() == Some("-") && wanted.input == "-" {
            return Err(Failed::wrong("standard input cannot be both PAYLOAD and `--input`")
                .hint("pass one of them as `@file`"));
        }
        let payload = input::payload(wanted.third.as_deref().unwrap_or("null"))?;
        let kind = if wanted.task { "task" } else { "run" };
        Ok(Self { run, kind, name, payload, input: input::json(&wanted.input)? })
    }

    /// Returns the run that receives the signal.
    fn to(&self, wanted: &Signal) -> Result<RunRef, Failed> {
        let id = RunId::new(self.run).map_err(|refusal| {
            Failed::of(Code::Invalid, refusal.to_string()).hint("RUN is the id of a run; list them with `wigwag list`")
        })?;
        Ok(if wanted.task { RunRef::task(id) } else { RunRef::workflow(id) })
    }

    fn signal(&self, wanted: &Signal) -> target::Message {
        let mut signal = signal_of(wanted, self.name, &self.payload);
        signal.only_if_waiting = wanted.only_if_waiting;
        signal.point.clone_from(&wanted.point);
        signal.start = wanted.start.as_ref().map(|of| (of.clone(), self.input.clone()));
        signal
    }

    /// Formats the result: new or duplicate, and the state of the signal.
    fn line(&self, receipt: &Receipt, fate: &str) -> String {
        let sent = if receipt.repeated { "already sent with this key" } else { "sent" };
        format!("signal `{}` {sent}: {fate}", self.name)
    }
}

/// Builds the message with the options that all signals share.
fn signal_of(wanted: &Signal, name: &str, payload: &Payload) -> target::Message {
    target::Message {
        name: name.to_owned(),
        payload: payload.clone(),
        key: wanted.key.clone(),
        by: wanted.by.clone(),
        only_if_waiting: false,
        point: None,
        start: None,
    }
}

/// Adds a hint that names the flags of this command.
async fn told<T>(
    args: &StoreArgs,
    target: &dyn Target,
    wanted: &Signal,
    message: &Message<'_>,
    outcome: Result<T, Failed>,
) -> Result<T, Failed> {
    let failed = match outcome {
        Err(failed) => failed,
        done => return done,
    };
    let run = message.run;
    let status = command(args, &format!("status {run}"));
    let hint = match failed.code() {
        Some(Code::NotFound) if wanted.task => "list tasks with `wigwag list --tasks`".to_owned(),
        Some(Code::NotFound) if is_task(target, run).await => format!("`{run}` is a task: add `--task`"),
        Some(Code::NotFound) => "list runs with `wigwag list`, or add `--start TYPE` to start it first".to_owned(),
        Some(Code::NotRunning) => {
            format!("a finished run accepts no signals; restart it with `wigwag restart {run}`")
        }
        Some(Code::NotWaiting) => {
            format!("the open waits are in `{status}`; without `--only-if-waiting` the signal is buffered")
        }
        Some(Code::UnknownPoint) => {
            format!("omit `--point` to address the oldest wait; list the open waits with `{status}`")
        }
        Some(Code::TimedOut) => {
            let see = command(args, &format!("signals {run} {}", message.name));
            format!("the signal is stored; check its outcome with `{see}`")
        }
        Some(Code::Invalid) => {
            let hint =
                "`--start` takes a workflow name, `--point` the path of a waiting step, `--key` and `--by` short texts";
            return Err(failed.or_hint(|| hint.into()));
        }
        _ => return Err(failed.or_hint(|| format!("check the run with `{status}`"))),
    };
    Err(failed.hint(hint))
}

async fn is_task(target: &dyn Target, id: &str) -> bool {
    match RunId::new(id) {
        Ok(id) => target.get(&RunRef::task(id)).await.is_ok(),
        Err(_) => false,
    }
}

fn show(message: &Message<'_>, receipt: &Receipt, json: bool) -> Result<(), Failed> {
    if let Some(warning) = &receipt.warning {
        warn(warning);
    }
    let mut stdout = std::io::stdout().lock();
    if json {
        writeln!(stdout, "{}", receipt_json(message.run, message.name, receipt))?;
        return Ok(());
    }
    let Message { run, kind, .. } = message;
    let fate = match receipt.state {
        SignalState::Waiting => format!("{kind} `{run}` was waiting for it"),
        SignalState::Buffered => format!("buffered until {kind} `{run}` waits for it"),
        SignalState::Superseded => format!("superseded: {kind} `{run}` has consumed a newer signal"),
        other => format!("{other:?}"),
    };
    writeln!(stdout, "{}", message.line(receipt, &fate))?;
    Ok(())
}

fn show_taken(message: &Message<'_>, taken: &Taken, json: bool) -> Result<(), Failed> {
    let Taken { receipt, point, at, status, next: waits } = taken;
    let mut stdout = std::io::stdout().lock();
    if json {
        let mut shown = receipt_json(message.run, message.name, receipt);
        let more = [("point", json!(point)), ("at", json!(at)), ("status", json!(status)), ("next", json!(waits))];
        for (name, value) in more {
            shown[name] = value;
        }
        writeln!(stdout, "{shown}")?;
        return Ok(());
    }
    let Message { run, kind, .. } = message;
    let fate = format!("consumed by {kind} `{run}` at `{point}`; {}", next(*status, waits, now()));
    writeln!(stdout, "{}", message.line(receipt, &fate))?;
    Ok(())
}

fn receipt_json(run: &str, name: &str, receipt: &Receipt) -> Value {
    let mut shown = json!(receipt);
    (shown["run"], shown["name"]) = (run.into(), name.into());
    shown
}
