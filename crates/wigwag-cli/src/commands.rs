//! One file a command.

mod bench;
mod cancel;
mod cat;
mod doctor;
mod history;
mod inbox;
mod link;
mod list;
mod ls;
mod migrate;
mod pause;
mod prune;
mod restart;
mod resume;
mod signal;
mod signals;
mod start;
mod status;
mod steps;
mod sweep;
mod task;
pub(crate) mod token;
mod waits;

use std::io::Write as _;

use serde_json::json;
use wigwag::core::Run;
use wigwag::{Asked, Client, Engine, ErrorKind, Payload, RunHandle};
use wigwag_store::{EmbeddedSettings, OpenSettings, Opened};

use crate::args::{Args, Command, DEFAULT_STORE, StoreArgs};
use crate::error::Failed;
use crate::output::quoted;

pub(crate) use link::link_secret;

pub(crate) async fn run(args: Args) -> Result<(), Failed> {
    let Args { store, json, command } = args;
    let outcome = match command {
        Command::Dev(wanted) => crate::serve::dev(&store, &wanted).await,
        Command::Serve(wanted) => crate::serve::serve(&store, wanted).await,
        Command::Bench(wanted) => bench::run(&store, &wanted, json).await,
        Command::Token(wanted) => token::run(&wanted, json),
        Command::Doctor(wanted) => doctor::run(&store, &wanted, json).await,
        Command::Ls { prefix, after, limit, long } => {
            ls::run(&store, &ls::Wanted { prefix, after, limit, long, json }).await
        }
        Command::Cat { key } => cat::run(&store, &key, json).await,
        Command::Start(wanted) => start::run(&store, wanted, json).await,
        Command::Status { id } => status::run(&store, &id, json).await,
        Command::List(wanted) => list::run(&store, &wanted, json).await,
        Command::Steps { id } => steps::run(&store, &id, json).await,
        Command::History(wanted) => history::run(&store, &wanted, json).await,
        Command::Signal(wanted) => signal::run(&store, wanted, json).await,
        Command::Inbox(wanted) => inbox::run(&store, &wanted, json).await,
        Command::Signals { id, name } => signals::run(&store, &id, name.as_deref(), json).await,
        Command::Link(wanted) => link::run(&store, wanted, json).await,
        Command::Cancel { id, reason } => cancel::run(&store, &id, reason, json).await,
        Command::Pause { id } => pause::run(&store, &id, json).await,
        Command::Resume { id, anyway } => resume::run(&store, &id, anyway, json).await,
        Command::Restart { id, from } => restart::run(&store, &id, from, json).await,
        Command::Migrate(wanted) => migrate::run(&store, &wanted, json).await,
        Command::Task(wanted) => task::run(&store, wanted, json).await,
        Command::Sweep(wanted) => sweep::run(&store, &wanted, json).await,
        Command::Prune(wanted) => prune::run(&store, &wanted, json).await,
    };
    outcome.map_err(|failed| failed.with_flags(&flags(&store)))
}

/// Opens a store to look into it: one that does not exist is not made.
fn open(args: &StoreArgs) -> Result<Opened, Failed> {
    let mut settings = settings(args);
    settings.embedded = EmbeddedSettings::existing();
    Ok(wigwag_store::open(&args.store, &settings)?)
}

pub(crate) fn settings(args: &StoreArgs) -> OpenSettings {
    let mut settings = OpenSettings::default();
    settings.bucket.endpoint.clone_from(&args.endpoint);
    settings.bucket.region.clone_from(&args.region);
    settings.bucket.profile.clone_from(&args.profile);
    settings.bucket.virtual_hosted = args.virtual_hosted;
    settings
}

/// Asks things of the runs of a store that is there.
async fn client(args: &StoreArgs) -> Result<Client, Failed> {
    Ok(Engine::builder(open(args)?.store).client().await?)
}

/// The same, making an embedded store that is not there.
async fn client_of_new(args: &StoreArgs) -> Result<Client, Failed> {
    let opened = wigwag_store::open(&args.store, &settings(args))?;
    Ok(Engine::builder(opened.store).client().await?)
}

/// The run of that id: a workflow's, else a task's.
async fn find(client: &Client, id: &str) -> Result<(RunHandle, Run), Failed> {
    let missing = match read(client.run(id)).await {
        Err(error) if error.kind() == ErrorKind::NotFound => error,
        found => return found.map_err(not_found),
    };
    match read(client.task(id)).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Err(not_found(missing)),
        found => found.map_err(not_found),
    }
}

/// The task of that id.
async fn find_task(client: &Client, id: &str) -> Result<(RunHandle, Run), Failed> {
    read(client.task(id)).await.map_err(not_found)
}

async fn read(handle: wigwag::Result<RunHandle>) -> wigwag::Result<(RunHandle, Run)> {
    let handle = handle?;
    let run = handle.get().await?.run().clone();
    Ok((handle, run))
}

fn not_found(error: wigwag::Error) -> Failed {
    let hint = "list those that are there with `wigwag list` or `wigwag list --tasks`";
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::Gone | ErrorKind::Invalid => Failed::from(error).hint(hint),
        _ => error.into(),
    }
}

/// A command that the user can run next, on the same store.
pub(crate) fn command(args: &StoreArgs, rest: &str) -> String {
    format!("wigwag {rest}{}", flags(args))
}

/// The flags that lead to the same store; what the environment says need not be said again.
fn flags(args: &StoreArgs) -> String {
    let unless_set = |flag: &str, variable: &str, value: &str, default: &str| {
        let known = std::env::var(variable).unwrap_or_else(|_| default.to_owned());
        if known == value { String::new() } else { format!(" --{flag} {}", quoted(value)) }
    };
    let mut flags = unless_set("store", "WIGWAG_STORE", &args.store, DEFAULT_STORE);
    if let Some(endpoint) = &args.endpoint {
        flags += &unless_set("endpoint", "WIGWAG_ENDPOINT", endpoint, "");
    }
    if let Some(region) = &args.region {
        flags += &unless_set("region", "WIGWAG_REGION", region, "");
    }
    if let Some(profile) = &args.profile {
        flags += &format!(" --profile {}", quoted(profile));
    }
    if args.virtual_hosted {
        flags += " --virtual-hosted";
    }
    flags
}

/// Says what became of asking something of a run.
fn show_asked(handle: &RunHandle, what: &str, asked: Asked, json: bool) -> Result<(), Failed> {
    let mut stdout = std::io::stdout().lock();
    let (id, is_new) = (handle.id(), asked == Asked::Now);
    if json {
        let shown = json!({"id": id.as_str(), "asked": what, "new": is_new});
        writeln!(stdout, "{shown}")?;
    } else if is_new {
        writeln!(stdout, "`{id}` is asked to {what}")?;
    } else {
        writeln!(stdout, "`{id}` had been asked to {what} before")?;
    }
    Ok(())
}

/// Prints a payload as it is, on a line of its own.
fn show_payload(payload: &Payload) -> Result<(), Failed> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", payload.text())?;
    Ok(())
}
