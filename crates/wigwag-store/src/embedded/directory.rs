//! The directory: created once, recognised later, left unchanged if it is not a wigwag store.
//!
//! What if we die here? `wigwag.db` appears by a rename of a finished database, so it is either absent (the
//! next to open makes it) or whole. `open.lock` keeps two makers apart.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use tracing::warn;

use super::EmbeddedSettings;
use super::schema::{self, Access};
use crate::{Error, ErrorKind, Result};

/// File permissions: only the user that runs wigwag may read payloads.
pub(super) const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;

const DATABASE: &str = "wigwag.db";
/// Our own files beside the database, and files that a new disk contains; a directory without other files
/// may be used.
const OWN: [&str; 7] = [
    "lost+found",
    "locks",
    "processes",
    "wigwag.db.new",
    "wigwag.db.new-wal",
    "wigwag.db.new-shm",
    "wigwag.db.new-journal",
];

#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
}

impl Directory {
    pub(super) fn prepare(path: &Path, settings: &EmbeddedSettings) -> Result<Self> {
        let directory = Self { path: path.to_owned() };
        directory.look_at_what_is_there(settings.create)?;
        let existing = path.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
        refuse_network_disk(existing)?;
        let new: Vec<PathBuf> = path.ancestors().take_while(|folder| *folder != existing).map(Path::to_owned).collect();
        for folder in [directory.locks(), directory.processes()] {
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(FOLDER_MODE).create(folder);
            made.map_err(|error| directory.failed("make", error))?;
        }
        // The name of a new folder is durable once its parent folder is synced.
        for parent in new.iter().filter_map(|folder| folder.parent()) {
            sync_folder(parent).map_err(|error| directory.failed("sync the parent of", error))?;
        }

        let lock = directory.lock_file("open.lock")?;
        lock.lock().map_err(|error| directory.failed("lock", error))?;
        if directory.database().exists() {
            schema::check_header(&directory.database(), Access::Read)?;
            directory.warn_if_others_may_read();
        } else {
            directory.make(settings)?;
        }
        Ok(directory)
    }

    /// A directory in which nothing can be written, and how its database can be read. Nothing is created or locked.
    pub(super) fn read_only(path: &Path) -> Result<(Self, Access)> {
        let directory = Self { path: path.to_owned() };
        let access = schema::read_access(&directory.database())?;
        Ok((directory, access))
    }

    pub(super) fn database(&self) -> PathBuf {
        self.path.join(DATABASE)
    }

    pub(super) fn processes(&self) -> PathBuf {
        self.path.join("processes")
    }

    /// Warns about wider permissions. They are not changed, because they may be intended.
    fn warn_if_others_may_read(&self) {
        let path = self.database();
        let Ok(mode) = fs::metadata(&path).map(|facts| facts.mode() & 0o777) else { return };
        if mode & 0o077 != 0 {
            let fix = format!("chmod 600 {}*", path.display());
            warn!(path = %path.display(), mode = format!("{mode:o}"), fix, "other users of this machine can read the store");
        }
    }

    fn locks(&self) -> PathBuf {
        self.path.join("locks")
    }

    pub(super) fn lock_file(&self, name: &str) -> Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
        options.open(self.locks().join(name)).map_err(|error| self.failed("open a lock file in", error))
    }

    /// Decides before anything is touched.
    fn look_at_what_is_there(&self, create: bool) -> Result<()> {
        let names = match fs::read_dir(&self.path) {
            Ok(entries) => entries.flatten().map(|entry| entry.file_name()).collect::<Vec<_>>(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(self.failed("read", error)),
        };
        if names.iter().any(|name| name == DATABASE) {
            return schema::check_header(&self.database(), Access::Read);
        }
        let shown = self.path.display();
        if let Some(foreign) = names.iter().find(|name| !OWN.iter().any(|own| name == own)) {
            let what = format!("`{shown}` is not a wigwag store: it holds `{}`", foreign.display());
            return Err(Error::invalid(what).hint("name an empty or new directory; this one was left as it is"));
        }
        if !create {
            return Err(Error::new(ErrorKind::Invalid, format!("store not found: `{shown}`"))
                .hint("use `--store` with the directory of an existing store"));
        }
        Ok(())
    }

    fn make(&self, settings: &EmbeddedSettings) -> Result<()> {
        let new = self.path.join("wigwag.db.new");
        for leftover in OWN.iter().filter(|name| name.starts_with(DATABASE)) {
            match fs::remove_file(self.path.join(leftover)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(self.failed("clear", error));
                }
                _ => {}
            }
        }
        // SQLite gives its other files the permissions of this one.
        let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&new);
        file.map_err(|error| self.failed("make the database in", error))?;
        schema::create(&new, settings.clock.wall())?;
        File::open(&new).and_then(|file| file.sync_all()).map_err(|error| self.failed("sync", error))?;
        fs::rename(&new, self.database()).map_err(|error| self.failed("name the database in", error))?;
        sync_folder(&self.path).map_err(|error| self.failed("sync", error))
    }
}

/// Makes the names in a folder durable.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path)?.sync_all()
}

/// SQLite's shared memory and our locks work on one machine only; over a network they would fail silently.
#[cfg(target_os = "linux")]
fn refuse_network_disk(path: &Path) -> Result<()> {
    const NETWORK: [(u64, &str); 6] = [
        (0x6969, "NFS"),
        (0x517B, "SMB"),
        (0xFF53_4D42, "CIFS"),
        (0xFE53_4D42, "SMB2"),
        (0x0102_1997, "9p"),
        (0x00C3_6400, "Ceph"),
    ];
    let Ok(facts) = rustix::fs::statfs(path) else {
        return Ok(());
    };
    let magic = u64::try_from(facts.f_type).unwrap_or_default() & 0xFFFF_FFFF;
    match NETWORK.iter().find(|(known, _)| *known == magic) {
        Some((_, name)) => {
            let what = format!(
                "`{}` is on a network file system ({name}), where locks of one machine do not hold",
                path.display()
            );
            Err(Error::invalid(what).hint("use a local disk, or a bucket (`s3://…`) to share between machines"))
        }
        None => Ok(()),
    }
}

#[cfg(not(target_os = "linux"))]
fn refuse_network_disk(_: &Path) -> Result<()> {
    Ok(())
}
