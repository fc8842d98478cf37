//! `wigwag signal`: a message to a run that waits for it, or will.

mod all_waiting;

use std::io::Write as _;

use serde_json::{Value, json};
use wigwag::{Client, Consumed, ErrorKind, Payload, Receipt, RunHandle, SignalCall, SignalState};

use super::inbox::signal_name;
use super::waits::next;
use super::{client, client_of_new, command};
use crate::args::{Signal, StoreArgs};
use crate::error::Failed;
use crate::input;
use crate::output::{Progress, now};

/// How it is called.
const CALLS: &str = "write `signal RUN NAME [PAYLOAD]`, or `signal --all-waiting NAME [PAYLOAD]`";

/// The way by which signals from here come.
const VIA: &str = "cli";

pub(super) async fn run(args: &StoreArgs, wanted: Signal, json: bool) -> Result<(), Failed> {
    match wanted.all_waiting {
        true => all_waiting::run(args, &wanted, json).await,
        false => send(args, &wanted, json).await,
    }
}

async fn send(args: &StoreArgs, wanted: &Signal, json: bool) -> Result<(), Failed> {
    let message = Message::of(wanted)?;
    let client = match wanted.start {
        Some(_) => client_of_new(args).await?,
        None => client(args).await?,
    };
    let call = call(&client, wanted, &message)?;
    match wanted.wait {
        None => {
            let receipt = call.await;
            let receipt = told(args, &client, wanted, &message, receipt).await?;
            show(&message, &receipt, json)
        }
        Some(span) => {
            let progress = Progress::new();
            progress.say(&format!("waiting until `{}` takes `{}`", message.run, message.name));
            let consumed = call.and_wait(span).await;
            drop(progress);
            let consumed = told(args, &client, wanted, &message, consumed).await?;
            show_consumed(&message, &consumed, json)
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

    /// What happened, in words: how it was sent, and what became of it.
    fn line(&self, receipt: &Receipt, fate: &str) -> String {
        let sent = if receipt.repeated { "had been sent before under this key" } else { "is sent" };
        format!("`{}` {sent}: {fate}", self.name)
    }
}

fn call(client: &Client, wanted: &Signal, message: &Message<'_>) -> Result<SignalCall, Failed> {
    let handle = match wanted.task {
        true => client.task(message.run),
        false => client.run(message.run),
    };
    let no_id = |error: wigwag::Error| {
        Failed::from(error).or_hint(|| "RUN is the id of a run; list them with `wigwag list`".into())
    };
    let mut call = call_of(&handle.map_err(no_id)?, wanted, message.name, &message.payload);
    if wanted.only_if_waiting {
        call = call.only_if_waiting();
    }
    if let Some(point) = &wanted.point {
        call = call.point(point);
    }
    if let Some(of) = &wanted.start {
        call = call.start_if_absent(of, &message.input);
    }
    Ok(call)
}

/// What all signals have that are sent from here.
fn call_of(handle: &RunHandle, wanted: &Signal, name: &str, payload: &Payload) -> SignalCall {
    let mut call = handle.signal(name, payload).via(VIA);
    if let Some(key) = &wanted.key {
        call = call.key(key);
    }
    if let Some(by) = &wanted.by {
        call = call.by(by);
    }
    call
}

/// Says what helps where the engine, which knows no flags, cannot.
async fn told<T>(
    args: &StoreArgs,
    client: &Client,
    wanted: &Signal,
    message: &Message<'_>,
    outcome: wigwag::Result<T>,
) -> Result<T, Failed> {
    let Err(error) = outcome else { return outcome.map_err(Failed::from) };
    let run = message.run;
    let status = command(args, &format!("status {run}"));
    let hint = match error.kind() {
        ErrorKind::NotFound if wanted.task => "list those that are there with `wigwag list --tasks`".to_owned(),
        ErrorKind::NotFound if is_task(client, run).await => format!("`{run}` is a task: add `--task`"),
        ErrorKind::NotFound => {
            "list those that are there with `wigwag list`, or add `--start TYPE` to start it first".to_owned()
        }
        ErrorKind::NotRunning => {
            format!("a finished run takes no signals; let it begin again with `wigwag restart {run}`")
        }
        ErrorKind::NotWaiting => {
            format!("without `--only-if-waiting` it is kept until the run does; see how it is with `{status}`")
        }
        ErrorKind::UnknownPoint => {
            format!("leave out `--point` to reach the wait that was opened first; see where it waits with `{status}`")
        }
        ErrorKind::TimedOut => {
            let see = command(args, &format!("signals {run} {}", message.name));
            format!("the signal is kept; see what becomes of it with `{see}`")
        }
        ErrorKind::Invalid => {
            let hint = "`--start` names a workflow, `--point` a wait of the run; `--key` and `--by` are short texts";
            return Err(Failed::from(error).or_hint(|| hint.into()));
        }
        _ => return Err(Failed::from(error).or_hint(|| format!("see how the run is with `{status}`"))),
    };
    Err(Failed::from(error).hint(hint))
}

async fn is_task(client: &Client, id: &str) -> bool {
    match client.task(id) {
        Ok(task) => task.status().await.is_ok(),
        Err(_) => false,
    }
}

fn show(message: &Message<'_>, receipt: &Receipt, json: bool) -> Result<(), Failed> {
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

fn show_consumed(message: &Message<'_>, consumed: &Consumed, json: bool) -> Result<(), Failed> {
    let Consumed { receipt, point, at, status, next: waits, .. } = consumed;
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
