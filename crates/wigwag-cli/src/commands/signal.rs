//! `wigwag signal`: a message to a run that waits for it, or will.

mod all_waiting;

use std::io::Write as _;

use serde_json::{Value, json};
use wigwag::core::{RunId, RunRef};
use wigwag::{Payload, Receipt, SignalState};
use wigwag_server::Code;

use super::inbox::signal_name;
use super::waits::next;
use super::{command, target, target_of_new};
use crate::args::{Signal, StoreArgs};
use crate::error::Failed;
use crate::input;
use crate::output::{Progress, now, warn};
use crate::target::{self, Taken, Target};

/// How it is called.
const CALLS: &str = "write `signal RUN NAME [PAYLOAD]`, or `signal --all-waiting NAME [PAYLOAD]`";

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
            progress.say(&format!("waiting until `{}` takes `{}`", message.run, message.name));
            let taken = target.signal_and_wait(&run, &signal, span).await;
            drop(progress);
            let taken = told(args, &*target, wanted, &message, taken).await?;
            show_taken(&message, &taken, json)
        }
    }
}

/// What is sent to whom.
struct Message<'a> {
    run: &'a str,
    /// What a run of its kind is called.
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
                return Err(Failed::wrong(format!("which signal is sent to `{run}` is not said")).hint(CALLS));
            }
            (None, _) => return Err(Failed::wrong("neither a run nor `--all-waiting` is given").hint(CALLS)),
        };
        signal_name(name)?;
        if wanted.third.as_deref() == Some("-") && wanted.input == "-" {
            return Err(Failed::wrong("standard input cannot be both PAYLOAD and `--input`")
                .hint("give one of them as `@file`"));
        }
        let payload = input::payload(wanted.third.as_deref().unwrap_or("null"))?;
        let kind = if wanted.task { "task" } else { "run" };
        Ok(Self { run, kind, name, payload, input: input::json(&wanted.input)? })
    }

    /// The run that it is for.
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

    /// What happened, in words: how it was sent, and what became of it.
    fn line(&self, receipt: &Receipt, fate: &str) -> String {
        let sent = if receipt.repeated { "had been sent before under this key" } else { "is sent" };
        format!("`{}` {sent}: {fate}", self.name)
    }
}

/// What all signals have that are sent from here.
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

/// Says what helps where the engine, which knows no flags, cannot.
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
        Some(Code::NotFound) if wanted.task => "list those that are there with `wigwag list --tasks`".to_owned(),
        Some(Code::NotFound) if is_task(target, run).await => format!("`{run}` is a task: add `--task`"),
        Some(Code::NotFound) => {
            "list those that are there with `wigwag list`, or add `--start TYPE` to start it first".to_owned()
        }
        Some(Code::NotRunning) => {
            format!("a finished run takes no signals; let it begin again with `wigwag restart {run}`")
        }
        Some(Code::NotWaiting) => {
            format!("the open waits are in `{status}`; without `--only-if-waiting` the signal is buffered")
        }
        Some(Code::UnknownPoint) => {
            format!("leave out `--point` to reach the wait that was opened first; see where it waits with `{status}`")
        }
        Some(Code::TimedOut) => {
            let see = command(args, &format!("signals {run} {}", message.name));
            format!("the signal is kept; see what becomes of it with `{see}`")
        }
        Some(Code::Invalid) => {
            let hint = "`--start` names a workflow, `--point` a wait of the run; `--key` and `--by` are short texts";
            return Err(failed.or_hint(|| hint.into()));
        }
        _ => return Err(failed.or_hint(|| format!("see how the run is with `{status}`"))),
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
        SignalState::Buffered => format!("it is kept until {kind} `{run}` waits for it"),
        SignalState::Superseded => format!("it is superseded, for {kind} `{run}` has taken a newer one"),
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
    let fate = format!("{kind} `{run}` took it at `{point}`; {}", next(*status, waits, now()));
    writeln!(stdout, "{}", message.line(receipt, &fate))?;
    Ok(())
}

fn receipt_json(run: &str, name: &str, receipt: &Receipt) -> Value {
    let mut shown = json!(receipt);
    (shown["run"], shown["name"]) = (run.into(), name.into());
    shown
}
