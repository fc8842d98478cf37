//! Runs the binary as a user would, and checks its output.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Returns the command of the binary, with an environment that selects no other store.
pub(crate) fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wigwag"));
    command.current_dir(folder).args(args).stdin(Stdio::null());
    clean(&mut command);
    command
}

pub(crate) fn clean(command: &mut Command) {
    let names = ["STORE", "SERVER", "TOKEN", "ENDPOINT", "REGION", "LINK_SECRET", "ALLOW_HTTP"];
    for name in names {
        command.env_remove(format!("WIGWAG_{name}"));
    }
}

pub(crate) fn wigwag(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[track_caller]
pub(crate) fn good(output: &Output) -> String {
    assert!(output.status.success(), "{}", text(&output.stderr));
    // Many scenarios start before a worker exists, which causes a warning.
    let is_talk = |line: &&str| !line.starts_with("warning: no worker has registered workflow ");
    let talk: Vec<String> = text(&output.stderr).lines().filter(is_talk).map(str::to_owned).collect();
    assert_eq!(talk, Vec::<String>::new(), "talk only when there is something to say");
    text(&output.stdout)
}

#[track_caller]
pub(crate) fn bad(output: &Output, code: i32, error: &str, hint: &str) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert!(said.lines().any(|line| line.starts_with("error: ") && line.contains(error)), "{said}");
    assert!(said.lines().any(|line| line.starts_with("hint: ") && line.contains(hint)), "{said}");
    assert_eq!(text(&output.stdout), "");
}
