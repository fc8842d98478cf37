//! Liveness: each process holds an OS lock on a separate file for as long as it has the store open.
//!
//! Holds: the file of a living process is locked from the moment it has its final name, because it is locked
//! under a temporary one and then renamed. So an unlocked file means a dead process, never a starting one.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::descriptors::Listed;
use super::directory::{Directory, FILE_MODE};
use crate::{Error, Peers, Result, Stamp};

#[derive(Debug)]
pub(super) struct Life {
    me: String,
    folder: PathBuf,
    /// Locked; the lock is released when this is closed, by us or by the end of the process.
    lock: File,
    /// The process that began it. A forked child has a copy of this, and is another process.
    process: u32,
    _listed: Listed,
}

impl Life {
    pub(super) fn begin(directory: &Directory, now: Stamp) -> Result<Self> {
        let folder = directory.processes();
        bury_the_dead(&folder);
        let me = format!("{}-{:x}-{:08x}", std::process::id(), now.micros(), fastrand::u32(..));
        let (starting, path) = (folder.join(format!("{me}.starting")), folder.join(&me));
        let lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .open(&starting)
            .and_then(|file| file.lock().map(|()| file))
            .and_then(|file| fs::rename(&starting, &path).map(|()| file))
            .map_err(|error| directory.failed("lock a file in", error))?;
        let listed = Listed::new(&lock);
        Ok(Self { me, folder, lock, process: std::process::id(), _listed: listed })
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            let _ = fs::remove_file(self.folder.join(&self.me));
            let _ = self.lock.unlock();
        }
    }
}

impl Peers for Life {
    fn me(&self) -> &str {
        &self.me
    }

    fn is_alive(&self, peer: &str) -> bool {
        // A name from elsewhere must not lead out of the folder.
        let is_name = !peer.is_empty() && peer != ".." && !peer.contains(['/', '\\', '\0']);
        peer == self.me || (is_name && !is_dead(&self.folder.join(peer)))
    }

    fn living(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut living: Vec<String> =
            names.filter(|name| !name.ends_with(".starting") && self.is_alive(name)).collect();
        living.sort_unstable();
        living
    }
}

/// Whether the file is gone, or its lock could really be had. Anything else that goes wrong here, such as too many
/// open files, says nothing of the other process.
fn is_dead(path: &Path) -> bool {
    match File::open(path) {
        Ok(file) => file.try_lock_shared().is_ok(),
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
    }
}

/// Removes the files of processes that are gone. A `.starting` file that is not locked yet may belong to one
/// that is about to lock it, and is left to the next who looks.
fn bury_the_dead(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let starting = path.extension().is_some_and(|extension| extension == "starting");
        if !starting && is_dead(&path) {
            let _ = fs::remove_file(&path);
        }
    }
}

impl Directory {
    pub(super) fn failed(&self, doing: &str, error: std::io::Error) -> Error {
        let kind = super::schema::kind_of_io(&error);
        let failed = Error::new(kind, format!("cannot {doing} `{}`: {error}", self.path.display())).because(error);
        match super::schema::advice(kind) {
            Some(advice) => failed.hint(advice),
            None => failed,
        }
    }
}
