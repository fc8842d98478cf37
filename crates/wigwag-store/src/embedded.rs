//! The store in a directory of this machine, shared by any number of its processes.
//!
//! ```text
//! ./dir/wigwag.db        SQLite, write-ahead log, `synchronous=FULL`
//! ./dir/locks/           writer.lock and next.lock (whose turn it is to write), open.lock (creation)
//! ./dir/processes/       a file per process that has the store open, locked for as long as it lives
//! ```
//!
//! **One writer thread** per process collects all waiting batches into one transaction, checks their conditions
//! inside it, commits once and then answers each caller: many writers share one fdatasync, a single writer does not
//! wait. `get` and `list` use separate connections: inline if that is quick, else on a few threads.
//!
//! What if we die here? Before the commit: nothing of the group is stored, and no caller got a response. Between the
//! commit and the responses: all of it is stored, and callers in other processes read back. A batch is never torn,
//! because a group is one transaction. Creation builds the database under another name and renames it, so that a
//! partial database is never opened.
//!
//! **The disk**: pages that are free are used again; once a quarter of the file is free, the writer thread gives it back to the
//! disk, a megabyte at a time, after commits and while nobody writes.
//!
//! **Read-only**: where the directory cannot be written, a store that allows it ([`EmbeddedSettings::read_only`]) is
//! opened for reading alone. It creates no files, takes no lock files and rejects every write.
//!
//! **Across processes** conditions hold because they are checked inside the transaction; the clock's
//! high-water mark is a row of the database; commits of other processes are detected by `PRAGMA data_version`, which
//! the writer thread polls every few milliseconds while a caller follows changes.

mod checkpoint;
mod descriptors;
mod directory;
mod files;
mod life;
mod pen;
mod reader;
mod schema;
mod shrink;
mod time;
mod turnstile;
mod vacuum;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

pub use self::descriptors::lock_descriptors;
use self::directory::Directory;
use self::life::Life;
use self::reader::Readers;
use self::schema::Access;
use self::time::Time;
pub use self::vacuum::Vacuumed;
use self::writer::Writer;
use crate::changes::Followers;
use crate::{
    Batch, Changes, Clock, Error, ErrorKind, Notifications, Now, Object, Page, Peers, Receipt, Result, Store, System,
    Traits,
};

/// A store in a directory, shared by its clones and by other processes of this machine.
#[derive(Clone, Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    /// Absent if the store is open for reading only.
    writing: Option<Writing>,
    readers: Readers,
    time: Arc<Time>,
    followers: Arc<Followers>,
}

/// Resources that a process needs to write.
#[derive(Debug)]
struct Writing {
    writer: Writer,
    life: Arc<Life>,
    turn_wait: Duration,
}

/// How an embedded store is opened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EmbeddedSettings {
    /// Make the store if there is none. Off: a missing store is an error.
    pub create: bool,
    /// Open the store for reading only if its directory cannot be written. Off: that is an error.
    pub read_only: bool,
    /// Source of calendar time.
    pub clock: Arc<dyn Clock>,
    /// How long a write waits for the lock of another process.
    pub turn_wait: Duration,
}

impl Default for EmbeddedSettings {
    fn default() -> Self {
        Self { create: true, read_only: false, clock: Arc::new(System), turn_wait: Duration::from_secs(10) }
    }
}

impl EmbeddedSettings {
    /// Settings for a store that must be there.
    #[must_use]
    pub fn existing() -> Self {
        Self { create: false, ..Self::default() }
    }
}

impl Embedded {
    /// Opens the store in that directory, and makes it if there is none.
    ///
    /// Blocks while it reads the disk. A directory that holds something else, or a store of another version,
    /// is refused and left as it is.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, &EmbeddedSettings::default())
    }

    /// Opens it by these settings.
    pub fn open_with(path: impl AsRef<Path>, settings: &EmbeddedSettings) -> Result<Self> {
        let path = path.as_ref();
        match Self::open_to_write(path, settings) {
            Err(error) if settings.read_only && is_unwritable(&error) => {
                // If it cannot be read either, the first error is the relevant one.
                Self::open_to_read(path, settings).map_err(|_| error)
            }
            opened => opened,
        }
    }

    fn open_to_write(path: &Path, settings: &EmbeddedSettings) -> Result<Self> {
        let directory = Directory::prepare(path, settings)?;
        let life = Arc::new(Life::begin(&directory, settings.clock.wall())?);
        let time = Arc::new(Time::new(Arc::clone(&settings.clock)));
        let followers = Arc::new(Followers::default());
        let readers = Readers::start(&directory, Access::Write, Arc::clone(&settings.clock))?;
        let writer = Writer::start(
            &directory,
            Arc::clone(&time),
            Arc::clone(&followers),
            Arc::clone(&life),
            settings.turn_wait,
        )?;
        let writing = Some(Writing { writer, life, turn_wait: settings.turn_wait });
        Ok(Self { shared: Arc::new(Shared { path: directory.path, writing, readers, time, followers }) })
    }

    fn open_to_read(path: &Path, settings: &EmbeddedSettings) -> Result<Self> {
        let (directory, access) = Directory::read_only(path)?;
        let time = Arc::new(Time::new(Arc::clone(&settings.clock)));
        time.observe(schema::read_clock(&directory.database(), access)?);
        let readers = Readers::start(&directory, access, Arc::clone(&settings.clock))?;
        let followers = Arc::new(Followers::default());
        Ok(Self { shared: Arc::new(Shared { path: directory.path, writing: None, readers, time, followers }) })
    }

    /// Whether the store is open for reading only because its directory cannot be written.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.shared.writing.is_none()
    }

    /// The directory of the store.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Reads every page and compares the index with the table; the error describes the damage.
    pub async fn check_integrity(&self) -> Result<()> {
        self.shared.readers.check_integrity().await
    }

    /// Returns all free pages to the disk, and folds the log.
    ///
    /// Other processes may use the store at the same time, unless it is a directory of an early version, which is rebuilt
    /// once: then it is an error if another process has it open.
    pub async fn vacuum(&self) -> Result<Vacuumed> {
        let writing = self.shared.writing.as_ref().ok_or_else(|| self.read_only())?;
        let (directory, life) = (Directory { path: self.shared.path.clone() }, Arc::clone(&writing.life));
        let turn_wait = writing.turn_wait;
        let (answer, answered) = oneshot::channel();
        std::thread::Builder::new()
            .name("wigwag-vacuum".into())
            .spawn(move || drop(answer.send(vacuum::vacuum(&directory, &life, turn_wait))))
            .map_err(|error| Error::new(ErrorKind::Unavailable, format!("cannot start a thread: {error}")))?;
        answered.await.map_err(|_| Error::new(ErrorKind::Unknown, "the thread that vacuums has ended"))?
    }

    fn read_only(&self) -> Error {
        let what = format!("cannot write to `{}`: the store is open for reading only", self.shared.path.display());
        Error::new(ErrorKind::Denied, what)
            .hint("the directory, or the disk that it is on, must be writable by this user")
    }
}

#[async_trait]
impl Store for Embedded {
    async fn get(&self, key: &str) -> Result<Option<Object>> {
        crate::check_key(key)?;
        self.shared.readers.get(key).await
    }

    async fn write(&self, batch: Batch) -> Result<Receipt> {
        batch.check()?;
        match &self.shared.writing {
            Some(writing) => writing.writer.write(batch).await,
            None => Err(self.read_only()),
        }
    }

    async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        self.shared.readers.list(prefix, after, limit).await
    }

    async fn now(&self) -> Result<Now> {
        Ok(Now { at: self.shared.time.now(), uncertainty: Duration::ZERO })
    }

    fn changes(&self, prefix: &str) -> Changes {
        let changes = self.shared.followers.follow(prefix);
        if let Some(writing) = &self.shared.writing {
            writing.writer.look_around();
        }
        changes
    }

    fn traits(&self) -> Traits {
        // Changes are announced by the thread that writes, which a store opened for reading does not have.
        let notifications = if self.is_read_only() { Notifications::Silent } else { Notifications::Complete };
        Traits { kind: "embedded", atomic: true, stamps_at_commit: true, update_if: true, notifications }
    }

    fn peers(&self) -> Option<Arc<dyn Peers>> {
        let writing = self.shared.writing.as_ref()?;
        Some(Arc::clone(&writing.life) as Arc<dyn Peers>)
    }
}

/// Whether a store could not be opened because nothing can be written in its directory.
fn is_unwritable(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Denied | ErrorKind::Full)
}
