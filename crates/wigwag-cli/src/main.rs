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
mod target;

use std::process::ExitCode;

fn main() -> ExitCode {
    let args = match choice::args() {
        Ok(args) => args,
        Err(error) => return error.report(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(commands::run(args)),
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}
