//! The commands, one file each.

mod bench;
mod cancel;
mod cat;
mod completions;
mod doctor;
mod explain;
mod history;
mod hub;
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
mod vacuum;
mod waits;

use std::io::Write as _;
use std::time::Duration;

use serde_json::json;
use wigwag::{Asked, Engine, Payload};
use wigwag_core::{Run, RunId, RunRef};
use wigwag_server::Code;
use wigwag_store::{EmbeddedSettings, OpenSettings, Opened};

use crate::args::{Args, Command, DEFAULT_STORE, StoreArgs};
use crate::error::Failed;
use crate::output::quoted;
use crate::remote::{Remote, Token};
use crate::target::{Ask, Local, Target};

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
        Command::Explain { id } => explain::run(&store, &id, json).await,
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
        Command::Hub(wanted) => hub::run(&store, wanted, json).await,
        Command::Sweep(wanted) => sweep::run(&store, &wanted, json).await,
        Command::Prune(wanted) => prune::run(&store, &wanted, json).await,
        Command::Vacuum => vacuum::run(&store, json).await,
        Command::Completions { shell } => completions::run(shell),
    };
    outcome.map_err(|failed| failed.with_flags(&flags(&store)))
}

/// Opens an existing store, read-only if it cannot be written; commands that write are then rejected.
fn open(args: &StoreArgs) -> Result<Opened, Failed> {
    no_server(args)?;
    let mut settings = settings(args);
    settings.embedded = EmbeddedSettings::existing();
    settings.embedded.read_only = true;
    Ok(wigwag_store::open(&args.store, &settings)?)
}

/// Rejects `--server` for commands that read the store's objects.
pub(crate) fn no_server(args: &StoreArgs) -> Result<(), Failed> {
    match &args.server {
        None => Ok(()),
        Some(server) => {
            Err(Failed::wrong(format!("this command needs direct access to a store, got server: `{server}`"))
                .hint("use `--store URL`; the store of a server is `http://HOST:PORT/s3`"))
        }
    }
}

pub(crate) fn settings(args: &StoreArgs) -> OpenSettings {
    let mut settings = OpenSettings::default();
    settings.bucket.endpoint.clone_from(&args.endpoint);
    settings.bucket.region.clone_from(&args.region);
    settings.bucket.profile.clone_from(&args.profile);
    settings.bucket.virtual_hosted = args.virtual_hosted;
    settings.bucket.allow_http = args.allow_http;
    settings.fleet.is_wanted = wigwag::concerns_others;
    // A person waits at a terminal, so give up earlier than a server does.
    settings.retry.time_max = Duration::from_secs(10);
    settings
}

/// Returns the server of `--server`, or the store, which must exist.
async fn target(args: &StoreArgs) -> Result<Box<dyn Target>, Failed> {
    match &args.server {
        Some(server) => remote(args, server),
        None => Ok(Box::new(Local(Engine::on(open(args)?).client().await?))),
    }
}

/// Like [`target`], but creates an embedded store that does not exist.
async fn target_of_new(args: &StoreArgs) -> Result<Box<dyn Target>, Failed> {
    if let Some(server) = &args.server {
        return remote(args, server);
    }
    let opened = wigwag_store::open(&args.store, &settings(args))?;
    Ok(Box::new(Local(Engine::on(opened).client().await?)))
}

fn remote(args: &StoreArgs, server: &str) -> Result<Box<dyn Target>, Failed> {
    Ok(Box::new(Remote::new(server, Token::read(args, server)?)?))
}

/// Finds the workflow run with this id, or else the task.
async fn find(target: &dyn Target, id: &str) -> Result<Run, Failed> {
    let id = RunId::new(id).map_err(|refusal| not_found(Failed::of(Code::Invalid, refusal.to_string())))?;
    let missing = match target.get(&RunRef::workflow(id.clone())).await {
        Err(failed) if is_missing(&failed) => failed,
        found => return found.map_err(not_found),
    };
    match target.get(&RunRef::task(id)).await {
        // A token without access to workflow runs gets the error for the task.
        Err(failed) if missing.code() == Some(Code::NotAllowed) => Err(not_found(failed)),
        Err(failed) if is_missing(&failed) => Err(not_found(missing)),
        found => found.map_err(not_found),
    }
}

/// Whether the run does not exist or the token may not read it.
fn is_missing(failed: &Failed) -> bool {
    matches!(failed.code(), Some(Code::NotFound | Code::NotAllowed))
}

/// Finds the task with this id.
async fn find_task(target: &dyn Target, id: &str) -> Result<Run, Failed> {
    let id = RunId::new(id).map_err(|refusal| not_found(Failed::of(Code::Invalid, refusal.to_string())))?;
    target.get(&RunRef::task(id)).await.map_err(not_found)
}

fn not_found(failed: Failed) -> Failed {
    let hint = "list runs with `wigwag list` and tasks with `wigwag list --tasks`";
    match failed.code() {
        Some(Code::NotFound | Code::Gone | Code::Invalid) => failed.hint(hint),
        _ => failed,
    }
}

/// Formats a command that the user can run next on the same store.
pub(crate) fn command(args: &StoreArgs, rest: &str) -> String {
    format!("wigwag {rest}{}", flags(args))
}

/// Returns the flags that select the same store or server, without those that the environment already sets.
fn flags(args: &StoreArgs) -> String {
    let unless_set = |flag: &str, variable: &str, value: &str, default: &str| {
        let known = std::env::var(variable).unwrap_or_else(|_| default.to_owned());
        if known == value { String::new() } else { format!(" --{flag} {}", quoted(value)) }
    };
    // The flag is needed to override the other variable.
    let is_set = |variable: &str| std::env::var_os(variable).is_some();
    if let Some(server) = &args.server {
        let mut flags = match is_set("WIGWAG_STORE") {
            true => format!(" --server {}", quoted(server)),
            false => unless_set("server", "WIGWAG_SERVER", server, ""),
        };
        if let Some(file) = &args.token_file {
            flags += &format!(" --token-file {}", quoted(&file.to_string_lossy()));
        }
        return flags;
    }
    let mut flags = match is_set("WIGWAG_SERVER") {
        true => format!(" --store {}", quoted(&args.store)),
        false => unless_set("store", "WIGWAG_STORE", &args.store, DEFAULT_STORE),
    };
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

/// Sends a control request to a run and prints the outcome.
async fn ask(target: &dyn Target, run: &RunRef, ask: &Ask, json: bool) -> Result<(), Failed> {
    let asked = target.ask(run, ask).await?;
    let mut stdout = std::io::stdout().lock();
    let (id, what, is_new) = (&run.id, ask.name(), asked == Asked::Now);
    if json {
        let mut shown = json!({"id": id.as_str(), "asked": what, "new": is_new});
        if asked == Asked::Compensating {
            shown["compensating"] = true.into();
        }
        writeln!(stdout, "{shown}")?;
        return Ok(());
    }
    match asked {
        Asked::Now => writeln!(stdout, "{what} requested for `{id}`")?,
        Asked::Compensating => {
            writeln!(stdout, "`{id}` failed and is being compensated: {what} has no effect")?;
        }
        _ => writeln!(stdout, "{what} already requested for `{id}`")?,
    }
    Ok(())
}

/// Prints a payload unchanged on one line.
fn show_payload(payload: &Payload) -> Result<(), Failed> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{}", payload.text())?;
    Ok(())
}
