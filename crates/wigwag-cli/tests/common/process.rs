//! The binary as a server process.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

/// A server process, killed on drop.
pub(crate) struct Serving {
    pub(crate) child: Child,
    lines: BufReader<ChildStderr>,
    pub(crate) said: String,
}

impl Serving {
    pub(crate) fn start(folder: &Path, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wigwag"));
        command.current_dir(folder).args(args).stdin(Stdio::null());
        Self::spawn(command)
    }

    /// Starts a server with this command.
    pub(crate) fn spawn(mut command: Command) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("WIGWAG_")) {
            command.env_remove(name);
        }
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap());
        Self { child, lines, said: String::new() }
    }

    /// Reads its output up to a line that contains this text.
    #[track_caller]
    pub(crate) fn until(&mut self, wanted: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended, and said:\n{}", self.said);
            self.said += &line;
            if line.contains(wanted) {
                return line;
            }
        }
    }

    /// Returns the address that it listens on.
    pub(crate) fn address(&mut self) -> String {
        let line = self.until("Listening on ");
        line.split("//").nth(1).unwrap().split(' ').next().unwrap().to_owned()
    }

    /// Sends a signal and waits for the end; returns the output and the exit code.
    pub(crate) fn stop(mut self, signal: &str) -> (String, Option<i32>) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        self.lines.read_to_string(&mut self.said).unwrap();
        (std::mem::take(&mut self.said), self.child.wait().unwrap().code())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
