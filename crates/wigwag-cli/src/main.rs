//! The `wigwag` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(wigwag_cli::run(std::env::args_os()))
}
