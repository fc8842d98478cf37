//! Which files the names of the database and its log lead to: those that are open, or others, or none.
//!
//! A directory can be removed, moved away or restored from a backup under a process that has it open. What that process
//! wrote from then on would be in files that nobody else can find, however well they are synced.

use std::fs;
use std::path::{Path, PathBuf};

use super::directory::Directory;
use crate::{Error, ErrorKind, Result};

#[derive(Debug)]
pub(super) struct Files {
    /// The database, then its log, each with what it was when it was opened.
    named: [(PathBuf, Option<Identity>); 2],
}

/// A file system and the number of a file on it.
type Identity = (u64, u64);

impl Files {
    /// Remembers what is there. The database is open, and so both are.
    pub(super) fn look(directory: &Directory) -> Self {
        let database = directory.database();
        let mut log = database.clone().into_os_string();
        log.push("-wal");
        Self { named: [database, log.into()].map(|path| (path.clone(), identity(&path))) }
    }

    pub(super) fn database(&self) -> &Path {
        &self.named[0].0
    }

    /// Says whether they are still those that were opened.
    pub(super) fn check(&self) -> Result<()> {
        let Some((path, _)) = self.named.iter().find(|(path, opened)| opened.is_some() && identity(path) != *opened)
        else {
            return Ok(());
        };
        let happened = if path.exists() { "replaced by another file" } else { "removed or moved away" };
        let what = format!("`{}` was {happened} while this process had it open", path.display());
        Err(Error::new(ErrorKind::Unavailable, what)
            .hint("put it back, and all goes on; or stop every process that uses this store, and start them again"))
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata(path).ok().map(|facts| (facts.dev(), facts.ino()))
}

/// Elsewhere files that are open cannot be removed.
#[cfg(not(unix))]
fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|_| (0, 0))
}
