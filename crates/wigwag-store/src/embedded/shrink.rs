//! Giving free pages back to the disk, a few between two commits, so that no write waits for long.
//!
//! What if we die here? Each part is a transaction of its own: it is done or not, and no object is concerned.
//!
//! A directory that was created without incremental vacuum keeps its size and reuses its free pages, until it is rebuilt
//! once ([`super::Embedded::vacuum`]).

use rusqlite::Connection;

/// Free pages below which nothing is given back: 16 MB are soon used again.
const FREE_PAGES_MIN: i64 = 2_048;
/// Pages that are given back at a time: 1 MB.
const PAGES_AT_ONCE: u32 = 128;
/// Commits between two looks at the number of free pages.
const COMMITS_BETWEEN_LOOKS: u32 = 64;

/// Whether there is something to give back.
#[derive(Debug, Default)]
pub(super) struct Shrink {
    commits: u32,
    is_on: bool,
}

impl Shrink {
    /// Whether free pages are still being returned; continues while the writer is idle.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns some free pages to the disk if many are free; called after a commit and while the writer is idle.
    pub(super) fn tend(&mut self, writer: &Connection) {
        self.commits += 1;
        if !self.is_on && self.commits < COMMITS_BETWEEN_LOOKS {
            return;
        }
        self.commits = 0;
        match give_back(writer, self.is_on) {
            Ok(is_on) => self.is_on = is_on,
            Err(error) => {
                self.is_on = false;
                tracing::warn!(%error, "free pages could not be given back to the disk; it will be tried again");
            }
        }
    }
}

/// Gives some pages back, if many are free or it has begun; returns whether there are more.
fn give_back(writer: &Connection, has_begun: bool) -> rusqlite::Result<bool> {
    let number = |pragma: &str| writer.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let (free, all) = (number("freelist_count")?, number("page_count")?);
    let is_enough = if has_begun { free > i64::from(PAGES_AT_ONCE) } else { free >= FREE_PAGES_MIN && free * 4 >= all };
    if !is_enough {
        return Ok(false);
    }
    return_pages(writer, PAGES_AT_ONCE)?;
    Ok(number("freelist_count")? < free)
}

/// Returns up to this number of free pages to the disk.
pub(super) fn return_pages(writer: &Connection, pages: u32) -> rusqlite::Result<()> {
    let mut vacuum = writer.prepare_cached(&format!("PRAGMA incremental_vacuum({pages})"))?;
    let mut rows = vacuum.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}
