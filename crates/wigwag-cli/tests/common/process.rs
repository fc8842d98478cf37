//! The binary as a server: a process of its own, until it is dropped.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};

/// A server that runs until it is dropped.
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

    /// Reads what it says until a line that contains this.
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

    /// Where it listens.
    pub(crate) fn address(&mut self) -> String {
        let line = self.until(" serves `");
        line.trim().rsplit("//").next().unwrap().to_owned()
    }

    /// Sends a signal and waits for the end; what it said, with its exit code.
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
