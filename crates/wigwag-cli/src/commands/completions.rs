//! `wigwag completions`: generates shell completions for commands and flags.

use std::io::Write as _;

use clap::CommandFactory as _;

use crate::args::Args;
use crate::error::Failed;

pub(super) fn run(shell: clap_complete::Shell) -> Result<(), Failed> {
    // Written to memory first: the generator does not expect a closed pipe.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "wigwag", &mut script);
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&script)?;
    stdout.flush()?;
    Ok(())
}
