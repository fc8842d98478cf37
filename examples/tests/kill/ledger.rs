//! The ledger: what processes did and were told, line by line, in a file to each process that outlives it.
//!
//! Holds: a line is synced before what follows it happens, by us and not by wigwag. A step's line stands before and
//! after its effect; a client's line stands before it asks, and after it was answered.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use wigwag_examples::{Moment, Watch};
use wigwag_store::{Clock as _, System};

/// One line of a step.
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

/// A file that lines are added to.
#[derive(Debug)]
pub(crate) struct Book {
    file: Mutex<File>,
}

impl Book {
    /// The book of this process in that folder.
    pub(crate) fn open(folder: &Path) -> Self {
        std::fs::create_dir_all(folder).unwrap();
        let path = folder.join(std::process::id().to_string());
        Self { file: Mutex::new(OpenOptions::new().create(true).append(true).open(path).unwrap()) }
    }

    /// Adds a line. Who reads meanwhile may find it cut where a page ends, and so may a kill: see [`whole`].
    pub(crate) fn add(&self, line: &str) {
        let mut file = self.file.lock().unwrap();
        file.write_all(format!("{line}\n").as_bytes()).unwrap();
        file.sync_data().unwrap();
    }
}

/// Every line of every book in a folder.
pub(crate) fn lines(folder: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        lines.extend(whole(&text).map(str::to_owned));
    }
    lines
}

/// The lines that have an end. One without is not written yet, and nothing that follows it has happened.
pub(crate) fn whole(text: &str) -> std::str::Lines<'_> {
    text.rsplit_once('\n').map_or("", |(whole, _)| whole).lines()
}

/// Writes down what the steps of this process do.
pub(crate) fn watch(folder: &Path) -> Watch {
    let process = std::process::id();
    let book = Book::open(&folder.join("steps"));
    Arc::new(move |moment, key: &str| {
        let what = if moment == Moment::Begin { "begin" } else { "done" };
        book.add(&format!("{} {process} {what} {key}", wall()));
    })
}

/// The lines of all steps, in order of time.
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

/// Watches how long the disk takes to sync a byte: others use it too, and what stands still with it is not late.
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

    /// The longest that it has stood still so far.
    pub(crate) fn longest(&self) -> Duration {
        Duration::from_micros(self.longest.load(Ordering::Relaxed))
    }
}

impl Drop for Gauge {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
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
