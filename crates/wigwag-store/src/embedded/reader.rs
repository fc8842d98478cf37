//! The reader threads: `get` and `list`, each from a connection of its own.

use std::path::PathBuf;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, OptionalExtension as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::directory::Directory;
use super::schema;
use crate::limits::READS_WAITING_MAX;
use crate::{Action, Error, ErrorKind, Listed, Object, Page, Result, Stamp, Version};

const THREADS: usize = 2;

#[derive(Debug)]
pub(super) struct Readers {
    questions: mpsc::Sender<Question>,
    room: Arc<Semaphore>,
    database: PathBuf,
}

struct Question {
    ask: Box<dyn FnOnce(&Connection) + Send>,
    _room: OwnedSemaphorePermit,
}

impl Readers {
    pub(super) fn start(directory: &Directory) -> Result<Self> {
        // Bounded by `room`: a question holds a permit until it is answered.
        let (questions, waiting) = mpsc::channel::<Question>();
        let waiting = Arc::new(Mutex::new(waiting));
        for number in 0..THREADS {
            let connection = schema::connect_reader(&directory.database())?;
            let waiting = Arc::clone(&waiting);
            std::thread::Builder::new()
                .name(format!("wigwag-read-{number}"))
                .spawn(move || answer(&connection, &waiting))
                .map_err(|error| directory.failed("start a thread for", error))?;
        }
        Ok(Self { questions, room: Arc::new(Semaphore::new(READS_WAITING_MAX)), database: directory.database() })
    }

    pub(super) async fn get(&self, key: &str) -> Result<Option<Object>> {
        let wanted = key.to_owned();
        self.ask(move |connection| get(connection, &wanted)).await.map_err(|error| error.on(Action::Get, key))
    }

    pub(super) async fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page> {
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
        answer.await.map_err(|_| closed())?.map_err(|error| schema::failure(error, "read", &self.database))
    }
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

/// Reads one more than asked for, to know whether there is more.
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
