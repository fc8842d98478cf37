//! `wigwag completions`: what a shell needs to complete commands and flags.

use std::io::Write as _;

use clap::CommandFactory as _;

use crate::args::Args;
use crate::error::Failed;

pub(super) fn run(shell: clap_complete::Shell) -> Result<(), Failed> {
    // Written to memory first: the generator does not expect a reader that goes away.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "wigwag", &mut script);
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&script)?;
    stdout.flush()?;
    Ok(())
}
