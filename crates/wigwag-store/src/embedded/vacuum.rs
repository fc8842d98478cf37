//! Returning all free pages to the disk, on request.
//!
//! A directory that returns free pages by itself does so here too, only at once: in parts, between which other processes write.
//! A directory from before that was possible is rebuilt once. That needs its size again as free space, and locks out all
//! processes but this one.
//!
//! What if we die here? Each part, and the rebuild, is one transaction: it is done or not. The next process that opens the
//! store folds the log into the database.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;

use super::directory::Directory;
use super::life::Life;
use super::schema::{connect_writer, failure, log_bytes};
use super::shrink::return_pages;
use super::turnstile::Turnstile;
use crate::{Error, ErrorKind, Peers as _, Result};

/// Pages that are returned under one lock: 8 MB.
const PAGES_AT_ONCE: u32 = 1_024;

/// SQLite's number for `auto_vacuum = INCREMENTAL`.
const INCREMENTAL: i64 = 2;

/// Result of [`super::Embedded::vacuum`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vacuumed {
    /// Size of the database and its log before, in bytes.
    pub bytes_before: u64,
    /// Size of the database and its log after, in bytes.
    pub bytes_after: u64,
    /// Whether the database was rebuilt; from now on it returns free pages by itself.
    pub is_rebuilt: bool,
}

pub(super) fn vacuum(directory: &Directory, life: &Life, turn_wait: Duration) -> Result<Vacuumed> {
    let database = directory.database();
    let failed = |error| failure(error, "vacuum", &database);
    let connection = connect_writer(&database)?;
    let turnstile = Turnstile::open(directory, turn_wait)?;
    let bytes_before = bytes(&database);
    let is_rebuilt = number(&connection, "auto_vacuum").map_err(failed)? != INCREMENTAL;
    if is_rebuilt {
        rebuild(directory, life, &turnstile, &connection)?;
    } else {
        loop {
            let _turn = turnstile.enter()?;
            let free = number(&connection, "freelist_count").map_err(failed)?;
            return_pages(&connection, PAGES_AT_ONCE).map_err(failed)?;
            let left = number(&connection, "freelist_count").map_err(failed)?;
            if left == 0 || left >= free {
                break;
            }
        }
    }
    let turn = turnstile.enter()?;
    // Where a reader of another process is in the way, the rest of the log is folded later.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(failed)?;
    drop(turn);
    Ok(Vacuumed { bytes_before, bytes_after: bytes(&database), is_rebuilt })
}

/// Rebuilds the database, so that it can return free pages from now on.
fn rebuild(directory: &Directory, life: &Life, turnstile: &Turnstile, connection: &Connection) -> Result<()> {
    // No process opens the store while this lock is held.
    let opening = directory.lock_file("open.lock")?;
    let others = life.living().into_iter().filter(|peer| peer != life.me()).count();
    if others > 0 || opening.try_lock().is_err() {
        let path = directory.path.display();
        let what = format!("`{path}` has to be rebuilt once, and another process has it open");
        return Err(Error::new(ErrorKind::Unavailable, what).hint("stop all other processes that use the store first"));
    }
    let _turn = turnstile.enter()?;
    let rebuilt =
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").and_then(|()| connection.execute_batch("VACUUM"));
    rebuilt.map_err(|error| failure(error, "vacuum", &directory.database()))
}

fn number(connection: &Connection, pragma: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, pragma, |row| row.get(0))
}

fn bytes(database: &Path) -> u64 {
    std::fs::metadata(database).map_or(0, |facts| facts.len()) + log_bytes(database)
}
