//! The `wigwag` command: parse, run, exit code.
//!
//! A library, so that the Python package has the command too, without a second copy of the engine.

mod args;
mod choice;
mod commands;
mod error;
mod input;
mod output;
#[cfg(test)]
mod pages;
#[cfg(test)]
mod reference;
mod remote;
mod schema;
mod serve;
mod target;

/// The client of a server's HTTP API: what the command uses for `--server`.
pub mod http {
    pub use crate::error::Failed;
    pub use crate::remote::{Events, Remote, Request, Token, new_id, new_key};
}

use std::ffi::OsString;

use wigwag_store::limits::NOTIFY_FLUSH_MAX;
use wigwag_store::{System, flush_notifications};

use args::Command;

/// Runs a call of the command, whose first argument is the name of the program; returns the exit code.
pub fn run(args: impl IntoIterator<Item = OsString>) -> u8 {
    let args = match choice::args(args) {
        Ok(args) => args,
        Err(error) => return error.report(),
    };
    let mut runtime = match args.command {
        Command::Dev(_) | Command::Serve(_) | Command::Bench(_) => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let runtime = runtime.enable_all().build();
    let outcome = match runtime {
        Ok(runtime) => runtime.block_on(async {
            let outcome = commands::run(args).await;
            // Other processes on a bucket poll rarely while they are notified.
            flush_notifications(&System, NOTIFY_FLUSH_MAX).await;
            outcome
        }),
        Err(error) => Err(error.into()),
    };
    match outcome {
        Ok(()) => 0,
        Err(error) => error.report(),
    }
}
