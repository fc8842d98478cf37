//! The `wigwag` command: parse, run, exit code.

mod args;
mod choice;
mod commands;
mod error;
mod input;
mod output;
#[cfg(test)]
mod reference;
mod remote;
mod schema;
mod serve;
mod target;

use std::process::ExitCode;

use args::Command;

fn main() -> ExitCode {
    let args = match choice::args() {
        Ok(args) => args,
        Err(error) => return error.report(),
    };
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
