//! The `wigwag` command: parse, run, exit code.

mod args;
mod commands;
mod error;
mod input;
mod output;
mod schema;
mod serve;

use std::process::ExitCode;

use args::Command;
use clap::{CommandFactory as _, FromArgMatches as _};

fn main() -> ExitCode {
    let matches = args::Args::command().get_matches();
    let mut args = args::Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    args.store.is_given = serve::is_named(&matches);
    let mut runtime = match args.command {
        Command::Dev(_) | Command::Serve(_) | Command::Bench(_) => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = runtime.enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(commands::run(args)),
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}
