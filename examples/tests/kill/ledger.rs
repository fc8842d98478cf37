//! The ledger: what the workers did, line by line, in a file to each process that outlives it.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wigwag_examples::{Moment, Watch};
use wigwag_store::{Clock as _, System};

/// One line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    /// By the calendar of this machine, in microseconds.
    pub(crate) at: u64,
    pub(crate) process: u32,
    pub(crate) done: bool,
    /// `run:point`, and `:undo` if it is undone.
    pub(crate) key: String,
}

pub(crate) fn wall() -> u64 {
    System.wall().micros()
}

/// Writes down what this process does.
pub(crate) fn watch(folder: &Path) -> Watch {
    let process = std::process::id();
    let file = Mutex::new(open(folder, process));
    Arc::new(move |moment, key: &str| {
        let what = if moment == Moment::Begin { "begin" } else { "done" };
        let mut file = file.lock().unwrap();
        // One system call a line, so that a kill cuts none.
        file.write_all(format!("{} {process} {what} {key}\n", wall()).as_bytes()).unwrap();
    })
}

fn open(folder: &Path, process: u32) -> File {
    OpenOptions::new().create(true).append(true).open(folder.join(process.to_string())).unwrap()
}

/// All lines of all processes, in order of time.
pub(crate) fn read(folder: &Path) -> Vec<Line> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        lines.extend(text.lines().map(|line| {
            let [at, process, what, key] = line.splitn(4, ' ').collect::<Vec<_>>()[..] else { panic!("cut: {line}") };
            Line { at: at.parse().unwrap(), process: process.parse().unwrap(), done: what == "done", key: key.into() }
        }));
    }
    lines.sort();
    lines
}

/// Waits until a process that is not among these has begun that.
pub(crate) async fn begun(folder: &Path, key: &str, but: &[u32], within: Duration) -> Line {
    let patience = wall() + u64::try_from(within.as_micros()).unwrap();
    loop {
        let lines = read(folder);
        if let Some(line) = lines.into_iter().find(|line| line.key == key && !line.done && !but.contains(&line.process))
        {
            return line;
        }
        assert!(wall() < patience, "nobody but {but:?} begins {key}");
        System.sleep(Duration::from_millis(5)).await;
    }
}
