//! What the command prints on a real terminal: colours and progress, unless `NO_COLOR` is set.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;
use wigwag::{Ctx, Engine, Failure};

use crate::common::command;

/// Runs a command with a terminal as both outputs, and returns what appeared there.
fn on_a_terminal(folder: &Path, args: &[&str], no_color: bool) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap();
    let open = || File::options().read(true).write(true).open(OsStr::from_bytes(name.to_bytes())).unwrap();
    let mut command = command(folder, args);
    command.env("TERM", "xterm-256color").env_remove("NO_COLOR").env_remove("CI").stdout(open()).stderr(open());
    if no_color {
        command.env("NO_COLOR", "1");
    }
    let mut child = command.spawn().unwrap();
    // The command holds our copies of the other side; the terminal ends with the last of them.
    drop(command);
    let (mut shown, mut terminal, mut bytes) = (Vec::new(), File::from(terminal), [0; 4_096]);
    while let Ok(read @ 1..) = terminal.read(&mut bytes) {
        shown.extend_from_slice(&bytes[..read]);
    }
    child.wait().unwrap();
    String::from_utf8_lossy(&shown).into_owned()
}

async fn echo(_: Ctx, input: Value) -> Result<Value, Failure> {
    Ok(input)
}

/// Three runs that have ended.
async fn finished_runs(folder: &Path) {
    let path = folder.join(".wigwag");
    let engine = Engine::open(path.to_str().unwrap()).unwrap().function("echo", 1, echo).start().await.unwrap();
    for id in ["a", "b", "c"] {
        let run = engine.client().start("echo", &id).id(id).await.unwrap();
        assert_eq!(run.result::<String>().await.unwrap(), id);
    }
    engine.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_is_bold_on_a_terminal_only_and_not_with_no_color() {
    let folder = tempfile::tempdir().unwrap();
    finished_runs(folder.path()).await;
    let list = |no_color| on_a_terminal(folder.path(), &["list"], no_color);
    assert!(list(false).starts_with("\u{1b}[1mID  TYPE"), "{:?}", list(false));
    let plain = list(true);
    assert!(plain.starts_with("ID  TYPE") && !plain.contains('\u{1b}'), "{plain:?}");
    let piped = command(folder.path(), &["list"]).output().unwrap();
    assert!(!piped.stdout.contains(&0x1b) && piped.stdout.starts_with(b"c  echo"), "{piped:?}");
}

#[test]
fn an_error_is_coloured_on_a_terminal_only_and_not_with_no_color() {
    let folder = tempfile::tempdir().unwrap();
    let status = |no_color| on_a_terminal(folder.path(), &["status", "//"], no_color);
    assert!(status(false).starts_with("\u{1b}[1m\u{1b}[31merror:\u{1b}[0m "), "{:?}", status(false));
    let plain = status(true);
    assert!(plain.starts_with("error: ") && !plain.contains('\u{1b}'), "{plain:?}");
    let piped = command(folder.path(), &["status", "//"]).output().unwrap();
    assert!(piped.stderr.starts_with(b"error: ") && !piped.stderr.contains(&0x1b), "{piped:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pruning_and_checking_show_a_total_and_the_time_left_on_a_terminal_only() {
    let folder = tempfile::tempdir().unwrap();
    finished_runs(folder.path()).await;
    let checked = on_a_terminal(folder.path(), &["doctor", "--no-store"], false);
    assert!(checked.contains("/3 runs checked, ETA "), "{checked:?}");
    let prune = ["prune", "--older-than", "0s", "--dry-run"];
    let shown = on_a_terminal(folder.path(), &prune, false);
    assert!(shown.contains("/3 runs, ETA ") && shown.contains("would delete 3 runs"), "{shown:?}");
    let piped = command(folder.path(), &prune).output().unwrap();
    assert_eq!((piped.stdout, piped.stderr), (b"would delete 3 runs\n".to_vec(), Vec::new()));
}
