//! Checks whether the names of the database and its log still refer to the open files.
//!
//! A directory can be removed, moved or restored from a backup while a process has it open. Later writes of that
//! process would go to files without a name, where they cannot be found, however well they are synced.

use std::fs;
use std::path::{Path, PathBuf};

use super::directory::Directory;
use crate::{Error, ErrorKind, Result};

#[derive(Debug)]
pub(super) struct Files {
    /// The database and its log, each with its identity at opening.
    named: [(PathBuf, Option<Identity>); 2],
}

/// A file system and the number of a file on it.
type Identity = (u64, u64);

impl Files {
    /// Records the identities. The database is open, so both files exist.
    pub(super) fn look(directory: &Directory) -> Self {
        let database = directory.database();
        let mut log = database.clone().into_os_string();
        log.push("-wal");
        Self { named: [database, log.into()].map(|path| (path.clone(), identity(&path))) }
    }

    pub(super) fn database(&self) -> &Path {
        &self.named[0].0
    }

    /// Checks that the names still refer to the opened files.
    pub(super) fn check(&self) -> Result<()> {
        let Some((path, _)) = self.named.iter().find(|(path, opened)| opened.is_some() && identity(path) != *opened)
        else {
            return Ok(());
        };
        let happened = if path.exists() { "replaced by another file" } else { "removed or moved away" };
        let what = format!("`{}` was {happened} while this process had it open", path.display());
        Err(Error::new(ErrorKind::Unavailable, what)
            .hint("put it back to continue, or restart every process that uses this store"))
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
