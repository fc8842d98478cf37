//! The ledger: a log of the processes' actions and answers, in one file per process that survives it.
//!
//! Holds: a line is synced by the test, not by wigwag, before the action after it starts. A step logs a line before
//! and after its effect; a client logs a line before each request and after its answer.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wigwag_examples::{Moment, Watch};
use wigwag_store::{Clock as _, System};

/// One log line of a step.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    /// By the machine's wall clock, in microseconds.
    pub(crate) at: u64,
    pub(crate) process: u32,
    pub(crate) done: bool,
    /// `run:step`, with `:undo` for a compensation.
    pub(crate) key: String,
}

pub(crate) fn wall() -> u64 {
    System.wall().micros()
}

/// A file to which lines are appended.
#[derive(Debug)]
pub(crate) struct Book {
    file: Mutex<File>,
}

impl Book {
    /// Opens the file of this process in a folder.
    pub(crate) fn open(folder: &Path) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let path = folder.join(std::process::id().to_string());
        Self { file: Mutex::new(OpenOptions::new().create(true).append(true).open(path).unwrap()) }
    }

    /// Appends a line. A concurrent reader may find it cut at a page boundary, as may a kill leave it: see [`whole`].
    pub(crate) fn add(&self, line: &str) {
        let mut file = self.file.lock().unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
        file.sync_data().unwrap();
    }
}

/// Returns every line of every file in a folder.
pub(crate) fn lines(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        lines.extend(whole(&text).map(str::to_owned));
    }
    lines
}

/// Returns the complete lines. An incomplete line is not written yet, so the action after it has not started.
pub(crate) fn whole(text: &str) -> std::str::Lines<'_> {
    text.rsplit_once('\n').map_or("", |(whole, _)| whole).lines()
}

/// Returns a callback that logs the steps of this process.
pub(crate) fn watch(folder: &Path) -> Watch {
    let process = std::process::id();
    let book = Book::open(&folder.join("steps"));
    Arc::new(move |moment, key: &str| {
        let what = if moment == Moment::Begin { "begin" } else { "done" };
        book.add(&format!("{} {process} {what} {key}", wall()));
    })
}

/// Returns the lines of all steps, sorted by time.
pub(crate) fn read(folder: &Path) -> Vec<Line> {
    let mut read: Vec<Line> = lines(&folder.join("steps"))
        .iter()
        .map(|line| {
            let [at, process, what, key] = line.splitn(4, ' ').collect::<Vec<_>>()[..] else { panic!("cut: {line}") };
            Line { at: at.parse().unwrap(), process: process.parse().unwrap(), done: what == "done", key: key.into() }
        })
        .collect();
    read.sort();
    read
}

/// Measures how long the disk takes to sync a byte: other programs use the disk too, and a delay during a stall
/// is not a failure.
#[derive(Debug)]
pub(crate) struct Gauge {
    longest: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
}

impl Gauge {
    pub(crate) fn start(folder: &Path) -> Self {
        let gauge = Self { longest: Arc::default(), over: Arc::default() };
        let (longest, over) = (Arc::clone(&gauge.longest), Arc::clone(&gauge.over));
        let mut file = File::create(folder.join("gauge")).unwrap();
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let began = wall();
                file.write_all(b"x").and_then(|()| file.sync_data()).unwrap();
                longest.fetch_max(wall().saturating_sub(began), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        gauge
    }

    /// Returns the longest stall so far.
    pub(crate) fn longest(&self) -> Duration {
        Duration::from_micros(self.longest.load(Ordering::Relaxed))
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Waits until a process other than these starts the step.
pub(crate) async fn begun(folder: &Path, key: &str, but: &[u32], within: Duration) -> Line {
    let patience = wall() + u64::try_from(within.as_micros()).unwrap();
    loop {
        let lines = read(folder);
        if let Some(line) = lines.into_iter().find(|line| line.key == key && !line.done && !but.contains(&line.process))
        {
            return line;
        }
        assert!(wall() < patience, "no process but {but:?} starts {key}");
        System.sleep(Duration::from_millis(5)).await;
    }
}
