//! Folding the write-ahead log into the database, beside the writing.
//!
//! A separate thread copies the bulk while the writer continues. The writer copies the few pages written during
//! that, between two commits, so that the log is completely folded for a moment and restarts. Without that last
//! step a busy log would never restart, and would grow without bound.
//!
//! What if we die here? SQLite syncs the log before it copies and the database before it lets the log start
//! over, so every page is whole in one of the two.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, SyncSender};

use rusqlite::Connection;

use super::directory::Directory;
use super::schema;
use crate::Result;

/// Pages of log at which folding starts: 64 MB. Fewer cost throughput; more make reopening slow.
const BEGIN_PAGES: u32 = 8_000;
/// Pages of log at which the writer stops to fold all of it itself, because the thread cannot keep up.
const STOP_PAGES: u32 = 4 * BEGIN_PAGES;

#[derive(Debug)]
pub(super) struct Checkpoint {
    /// Number of pages in the log, reported by SQLite after each commit.
    pages: Arc<AtomicU32>,
    state: State,
    bulk: SyncSender<()>,
    bulk_done: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// The thread copies the bulk.
    Bulk,
}

impl Checkpoint {
    pub(super) fn start(directory: &Directory, writer: &mut Connection) -> Result<Self> {
        let pages = Arc::new(AtomicU32::new(0));
        let told = Arc::clone(&pages);
        // This hook takes the place of SQLite's own, which would fold the log inside a commit.
        let hook = move |_: &mut rusqlite::hooks::Wal, pages: i32| {
            told.store(pages.unsigned_abs(), Ordering::Relaxed);
            Ok(())
        };
        writer.wal_hook(Some(hook)).map_err(|error| schema::failure(error, "open", &directory.database()))?;

        let connection = schema::connect_writer(&directory.database())?;
        let (bulk, asked) = mpsc::sync_channel(1);
        let bulk_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&bulk_done);
        std::thread::Builder::new()
            .name("wigwag-fold".into())
            .spawn(move || {
                while asked.recv().is_ok() {
                    fold(&connection);
                    done.store(true, Ordering::Release);
                }
            })
            .map_err(|error| directory.failed("start a thread for", error))?;
        Ok(Self { pages, state: State::Idle, bulk, bulk_done })
    }

    /// Called between two commits: starts folding when the log is long, and finishes it when the
    /// bulk is copied.
    pub(super) fn tend(&mut self, writer: &Connection) {
        let pages = self.pages.load(Ordering::Relaxed);
        match self.state {
            State::Idle if pages >= BEGIN_PAGES && self.bulk.try_send(()).is_ok() => self.state = State::Bulk,
            State::Bulk if self.bulk_done.swap(false, Ordering::Acquire) => {
                fold(writer);
                self.state = State::Idle;
            }
            _ if pages >= STOP_PAGES => fold(writer),
            _ => {}
        }
    }
}

/// Copies all pages that need no waiting. A failure costs nothing: the log stays as it is, and the next
/// checkpoint tries again.
fn fold(connection: &Connection) {
    let outcome = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(0));
    if let Err(error) = outcome {
        tracing::warn!(%error, "the write-ahead log could not be folded; it will be tried again");
    }
}
