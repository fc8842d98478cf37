//! Reading: `get` and `list`, on the spot if that is quick, else by a thread.
//!
//! Most reads are served from memory within a few microseconds; a handover to a thread and back takes ten times that,
//! because two threads are woken. So the caller reads inline, with a connection that is free at that moment. Three
//! conditions send a read to the threads instead: no connection is free; SQLite has to wait for a lock or fails, and
//! then the thread waits or reports the error; an inline read was slow a moment ago, so that a cold cache or a slow
//! disk blocks a caller's thread (which others need) only occasionally and not for every read. Long lists always go
//! to the threads.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rusqlite::{Connection, OptionalExtension as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::directory::Directory;
use super::schema::{self, Access};
use crate::limits::READS_WAITING_MAX;
use crate::{Action, Clock, Error, ErrorKind, Listed, Object, Page, Result, Stamp, Version};

const THREADS: usize = 2;

/// Maximum number of concurrent inline reads; one for each core is enough, and each has its own cache.
const SPOTS_MAX: usize = 4;

/// A longer list starts inline, and is then left to a thread.
const SPOT_ENTRIES_MAX: usize = 32;

/// An inline read that takes longer went to the disk; for a while after it all reads go to the threads.
const SPOT_TIME_MAX: Duration = Duration::from_millis(2);

/// How long they do, as a multiple of what the slow one took: slow reads hold up callers for a tenth of the time at the
/// most. Not for longer, because on a busy machine a read may also be slow because its thread had to wait for a core.
const SLOW_FOR: u32 = 10;

#[derive(Debug)]
pub(super) struct Readers {
    /// Shared with the threads, which end only when every handle is dropped: so a thread closes the connections, and
    /// not the caller that drops the store. Closing the last connection to a database folds its log.
    spots: Arc<[Mutex<Connection>]>,
    questions: mpsc::Sender<Question>,
    room: Arc<Semaphore>,
    /// Inline reads are disabled until then: microseconds of the monotonic clock.
    slow_until: AtomicU64,
    clock: Arc<dyn Clock>,
    database: PathBuf,
    /// The file at opening, if it is read without locks.
    frozen: Option<Frozen>,
}

/// Size and time of a database that is read as an immutable file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frozen(u64, Option<SystemTime>);

impl Frozen {
    fn look(database: &Path) -> Self {
        let facts = std::fs::metadata(database);
        Self(facts.as_ref().map_or(0, std::fs::Metadata::len), facts.and_then(|facts| facts.modified()).ok())
    }
}

struct Question {
    ask: Box<dyn FnOnce(&Connection) + Send>,
    _room: OwnedSemaphorePermit,
}

impl Readers {
    pub(super) fn start(directory: &Directory, access: Access, clock: Arc<dyn Clock>) -> Result<Self> {
        let spots = std::thread::available_parallelism().map_or(THREADS, usize::from).min(SPOTS_MAX);
        let spot = |_| schema::connect_quick_reader(&directory.database(), access).map(Mutex::new);
        let spots: Arc<[Mutex<Connection>]> = (0..spots).map(spot).collect::<Result<_>>()?;
        // Bounded by `room`: a question holds a permit until its response.
        let (questions, waiting) = mpsc::channel::<Question>();
        let waiting = Arc::new(Mutex::new(waiting));
        for number in 0..THREADS {
            let connection = schema::connect_reader(&directory.database(), access)?;
            let (waiting, kept) = (Arc::clone(&waiting), Arc::clone(&spots));
            let work = move || {
                answer(&connection, &waiting);
                drop(kept);
            };
            std::thread::Builder::new()
                .name(format!("wigwag-read-{number}"))
                .spawn(work)
                .map_err(|error| directory.failed("start a thread for", error))?;
        }
        Ok(Self {
            spots,
            questions,
            room: Arc::new(Semaphore::new(READS_WAITING_MAX)),
            slow_until: AtomicU64::new(0),
            clock,
            frozen: (access == Access::Frozen).then(|| Frozen::look(&directory.database())),
            database: directory.database(),
        })
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<Object>> {
        if let Some(object) = self.on_the_spot(|connection| get(connection, key)).await {
            return Ok(object);
        }
        let wanted = key.to_owned();
        let object = self.ask(move |connection| get(connection, &wanted)).await;
        object.map_err(|error| error.on(Action::Get, key))
    }

    pub(super) async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
        let few = limit.min(SPOT_ENTRIES_MAX);
        match self.on_the_spot(|connection| list(connection, prefix, after, few)).await {
            Some(page) if !page.more || few == limit => return Ok(page),
            _ => {}
        }
        let (from, start) = (after.to_owned(), prefix.to_owned());
        let page = self.ask(move |connection| list(connection, &start, &from, limit)).await;
        page.map_err(|error| error.on(Action::List, prefix))
    }

    pub(super) async fn check_integrity(&self) -> Result<()> {
        let faults: Vec<String> = self
            .ask(|connection| {
                connection
                    .prepare("PRAGMA integrity_check(8)")?
                    .query_map([], |row| row.get(0))?
                    .collect::<rusqlite::Result<_>>()
            })
            .await?;
        if faults == ["ok"] {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Damaged, format!("the database is damaged: {}", faults.join("; "))))
    }

    /// Reads here and now; nothing if a thread should.
    async fn on_the_spot<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Option<T> {
        // A caller that reads from memory only never waits, and would keep other tasks from this thread.
        tokio::task::consume_budget().await;
        let began = self.clock.boot();
        if micros(began) < self.slow_until.load(Ordering::Relaxed) {
            return None;
        }
        let outcome = read(&*self.spots.iter().find_map(|spot| spot.try_lock().ok())?);
        if self.frozen.is_some() && self.check_frozen().is_err() {
            return None;
        }
        let ended = self.clock.boot();
        let took = ended.saturating_sub(began);
        if took > SPOT_TIME_MAX {
            self.slow_until.store(micros(ended + took * SLOW_FOR), Ordering::Relaxed);
        }
        outcome.ok()
    }

    async fn ask<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let closed = || Error::new(ErrorKind::Unavailable, "the store's reader threads have ended");
        let room = Arc::clone(&self.room).acquire_owned().await.map_err(|_| closed())?;
        let (sender, answer) = oneshot::channel();
        let ask = Box::new(move |connection: &Connection| {
            let _ = sender.send(read(connection));
        });
        self.questions.send(Question { ask, _room: room }).map_err(|_| closed())?;
        let answer = answer.await.map_err(|_| closed())?;
        self.check_frozen()?;
        answer.map_err(|error| schema::failure(error, "read", &self.database))
    }

    /// Rejects a lock-free read from a file that another process has begun to write.
    fn check_frozen(&self) -> Result<()> {
        let Some(frozen) = self.frozen else { return Ok(()) };
        if frozen == Frozen::look(&self.database) && schema::log_bytes(&self.database) == 0 {
            return Ok(());
        }
        let what = format!("`{}` was changed by another process while it was read", self.database.display());
        Err(Error::new(ErrorKind::Unavailable, what).hint("run the command again"))
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

fn answer(connection: &Connection, waiting: &Mutex<mpsc::Receiver<Question>>) {
    loop {
        let question = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(question) = question else { return };
        (question.ask)(connection);
    }
}

fn get(connection: &Connection, key: &str) -> rusqlite::Result<Option<Object>> {
    let mut select = connection.prepare_cached("SELECT stamp, body FROM objects WHERE key = ?1")?;
    select
        .query_row([key], |row| {
            let stamp = Stamp::from_micros(row.get::<_, i64>(0)?.cast_unsigned());
            Ok(Object { body: row.get::<_, Vec<u8>>(1)?.into(), version: Version::stamp(stamp), modified: stamp })
        })
        .optional()
}

/// Reads one entry more than requested, to detect a further page.
fn list(connection: &Connection, prefix: &str, after: &str, limit: usize) -> rusqlite::Result<Page> {
    let from_after = after >= prefix;
    let mut select = connection.prepare_cached(if from_after {
        "SELECT key, length(body), stamp FROM objects WHERE key > ?1 ORDER BY key"
    } else {
        "SELECT key, length(body), stamp FROM objects WHERE key >= ?1 ORDER BY key"
    })?;
    let mut rows = select.query([if from_after { after } else { prefix }])?;
    let mut page = Page::default();
    while let Some(row) = rows.next()? {
        let key = row.get_ref(0)?.as_str()?;
        if !key.starts_with(prefix) {
            break;
        }
        if page.entries.len() == limit {
            page.more = limit > 0;
            break;
        }
        let stamp = Stamp::from_micros(row.get::<_, i64>(2)?.cast_unsigned());
        page.entries.push(Listed { key: key.to_owned(), size: row.get::<_, i64>(1)?.cast_unsigned(), modified: stamp });
    }
    Ok(page)
}
