//! The writer thread: all waiting batches, one transaction, one fdatasync, then the responses.
//!
//! What if we die here? Until the commit nothing is stored and no caller got a response; after it everything is
//! stored, with or without a response. SQLite writes the group to its log and syncs it (`synchronous=FULL`)
//! before COMMIT returns.
//!
//! What if the files are removed? SQLite continues with the open ones. So the writer checks before a commit, and again
//! before it confirms, whether the names still refer to them.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::{Semaphore, oneshot};

use super::checkpoint::Checkpoint;
use super::directory::Directory;
use super::files::Files;
use super::life::Life;
use super::pen::Pen;
use super::schema::{connect_writer, failure};
use super::shrink::Shrink;
use super::time::Time;
use super::turnstile::Turnstile;
use crate::changes::Followers;
use crate::limits::{CHANGES_WAITING_MAX, GROUP_BATCHES_MAX, GROUP_BYTES_MAX, WRITES_WAITING_MAX};
use crate::{Batch, Error, ErrorKind, Receipt, Result, Stamp, Version};

/// Interval of checks for commits of other processes while a caller follows changes.
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(super) struct Writer {
    jobs: mpsc::Sender<Job>,
    room: Arc<Semaphore>,
}

enum Job {
    Write {
        batch: Batch,
        answer: oneshot::Sender<Answer>,
    },
    /// A caller follows changes now: wake up and check for other processes' commits from time to time.
    LookAround,
}

/// The batch is returned with the response, so that the caller's thread frees it and not the writer's.
type Answer = (Result<Receipt>, Batch);

impl Writer {
    pub(super) fn start(
        directory: &Directory,
        time: Arc<Time>,
        followers: Arc<Followers>,
        life: Arc<Life>,
        turn_wait: Duration,
    ) -> Result<Self> {
        let mut connection = connect_writer(&directory.database())?;
        let checkpoint = Checkpoint::start(directory, &mut connection)?;
        let mark = high_water(&connection).map_err(|error| failure(error, "read", &directory.database()))?;
        time.observe(mark);
        let data_version = data_version(&connection).map_err(|error| failure(error, "read", &directory.database()))?;
        let turnstile = Turnstile::open(directory, turn_wait)?;
        let files = Files::look(directory);
        // Bounded by `room`: a job holds a permit until its response.
        let (jobs, waiting) = mpsc::channel();
        let room = Arc::new(Semaphore::new(WRITES_WAITING_MAX));
        let desk = Desk {
            connection,
            files,
            time,
            followers,
            waiting,
            room: Arc::clone(&room),
            checkpoint,
            shrink: Shrink::default(),
            _life: life,
            expected: 0,
            told: mark,
            data_version,
        };
        std::thread::Builder::new()
            .name("wigwag-write".into())
            .spawn(move || desk.work(&turnstile))
            .map_err(|error| directory.failed("start a thread for", error))?;
        Ok(Self { jobs, room })
    }

    pub(super) async fn write(&self, batch: Batch) -> Result<Receipt> {
        let closed = |kind| Error::new(kind, "the store's writer thread has ended");
        // The writer releases the permits, for a whole group at once.
        self.room.acquire().await.map_err(|_| closed(ErrorKind::Unavailable))?.forget();
        let (answer, answered) = oneshot::channel();
        self.jobs.send(Job::Write { batch, answer }).map_err(|_| closed(ErrorKind::Unavailable))?;
        let (outcome, _batch) = answered.await.map_err(|_| closed(ErrorKind::Unknown))?;
        outcome
    }

    pub(super) fn look_around(&self) {
        let _ = self.jobs.send(Job::LookAround);
    }
}

/// The writer thread's own things.
struct Desk {
    connection: Connection,
    files: Files,
    time: Arc<Time>,
    followers: Arc<Followers>,
    waiting: mpsc::Receiver<Job>,
    room: Arc<Semaphore>,
    checkpoint: Checkpoint,
    shrink: Shrink,
    /// Liveness lock, held for as long as there may be writes to come.
    _life: Arc<Life>,
    /// Number of concurrent callers at the last measurement.
    expected: usize,
    /// The last stamp whose put was notified to followers.
    told: Stamp,
    data_version: i64,
}

/// A batch that waits for the commit, with its outcome.
struct Pending {
    batch: Batch,
    /// The stamp of its first operation. Each operation has a unique stamp, because it is the row's place in the table.
    first: Stamp,
    outcome: Result<Receipt>,
    answer: oneshot::Sender<Answer>,
}

/// How long to wait for more company, at a time, and how often at the most. Measured at 16 writers: a quarter
/// more commits for a quarter less CPU, because all of them share a sync instead of half of them.
const GATHER_PAUSE: Duration = Duration::from_micros(50);
const GATHER_PAUSES_MAX: usize = 4;
/// A lone writer is never kept waiting; two or three gain less than they wait.
const GATHER_WRITERS_MIN: usize = 4;

/// Batches for one transaction.
#[derive(Default)]
struct Group {
    pending: Vec<Pending>,
    bytes: usize,
}

impl Group {
    fn take(&mut self, job: Job) {
        if let Job::Write { batch, answer } = job {
            self.bytes += batch.body_bytes();
            self.pending.push(Pending { batch, first: Stamp::default(), outcome: Ok(Receipt::default()), answer });
        }
    }

    fn is_full(&self) -> bool {
        self.pending.len() >= GROUP_BATCHES_MAX || self.bytes >= GROUP_BYTES_MAX
    }
}

/// Closes the queue, also after a panic, so that waiting callers get an error instead of waiting forever.
impl Drop for Desk {
    fn drop(&mut self) {
        self.room.close();
    }
}

impl Desk {
    fn work(mut self, turnstile: &Turnstile) {
        while let Some(mut group) = self.next_group() {
            if group.is_empty() {
                self.notice_others();
                if self.shrink.is_on() && turnstile.enter().is_ok() {
                    self.shrink.tend(&self.connection);
                }
                continue;
            }
            let turn = turnstile.enter();
            let committed = turn.as_ref().map_err(Error::clone).and_then(|_| self.commit(&mut group));
            if let Err(error) = committed {
                for pending in &mut group {
                    pending.outcome = Err(error.clone());
                }
            }
            // The current waiters arrived while others were served: together they are the number of concurrent writers.
            self.expected = WRITES_WAITING_MAX - self.room.available_permits().min(WRITES_WAITING_MAX);
            self.answer(group);
            if turn.is_ok() {
                // Still under the write lock: a commit of another process in between would keep the
                // log from restarting.
                self.checkpoint.tend(&self.connection);
                self.shrink.tend(&self.connection);
            }
        }
    }

    /// Waits for work; an empty group means that a check for other processes is due, `None` that the store was closed.
    fn next_group(&self) -> Option<Vec<Pending>> {
        let first = if self.followers.any() || self.shrink.is_on() {
            match self.waiting.recv_timeout(LOOK_EVERY) {
                Ok(job) => job,
                Err(RecvTimeoutError::Timeout) => Job::LookAround,
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        } else {
            self.waiting.recv().ok()?
        };
        let mut group = Group::default();
        group.take(first);
        self.drain(&mut group);
        // The callers just served are most likely about to write again; one commit for all beats two for half each.
        for _ in 0..GATHER_PAUSES_MAX {
            let before = group.pending.len();
            if before == 0 || self.expected < GATHER_WRITERS_MIN || before * 8 >= self.expected * 5 {
                break;
            }
            std::thread::sleep(GATHER_PAUSE);
            self.drain(&mut group);
            if group.pending.len() == before {
                break;
            }
        }
        Some(group.pending)
    }

    fn drain(&self, group: &mut Group) {
        while !group.is_full() {
            match self.waiting.try_recv() {
                Ok(job) => group.take(job),
                Err(_) => return,
            }
        }
    }

    fn commit(&mut self, group: &mut [Pending]) -> Result<()> {
        // Writes to a file without a name could never be found.
        self.files.check()?;
        let mark = self.begin().map_err(|error| {
            self.roll_back();
            failure(error, "write to", self.files.database())
        })?;
        if mark > self.told {
            self.tell_of_others(mark);
        }
        let last = place(group, mark.max(self.time.now()));
        if let Err(error) = self.fill(group, last) {
            self.roll_back();
            return Err(failure(error, "write to", self.files.database()));
        }
        if let Err(error) = self.connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([])) {
            return Err(self.commit_failed(error));
        }
        self.told = last.max(self.told);
        self.time.observe(last);
        self.files.check().map_err(|error| error.with_kind(ErrorKind::Unknown))
    }

    fn begin(&self) -> rusqlite::Result<Stamp> {
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        high_water(&self.connection)
    }

    /// Leaves no transaction open, which would lock out everyone: SQLite has rolled back by itself, or we do.
    fn roll_back(&self) {
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }

    /// After a failed COMMIT the group may be on disk or not, unless there was simply no room for it.
    fn commit_failed(&self, error: rusqlite::Error) -> Error {
        self.roll_back();
        let failed = failure(error, "write to", self.files.database());
        match failed.kind() {
            ErrorKind::Full => failed,
            _ => failed.with_kind(ErrorKind::Unknown),
        }
    }

    /// Writes every batch whose condition holds, and the clock's new mark, into the open transaction.
    fn fill(&self, group: &mut [Pending], last: Stamp) -> rusqlite::Result<()> {
        let mut pen = Pen::new(&self.connection)?;
        for pending in group.iter_mut().filter(|pending| pending.outcome.is_ok()) {
            if let Err(refusal) = pen.write(&pending.batch, pending.first)? {
                pending.outcome = Err(refusal);
            }
        }
        self.connection.prepare_cached("UPDATE clock SET stamp = ?1")?.execute([last.micros().cast_signed()])?;
        Ok(())
    }

    fn answer(&self, group: Vec<Pending>) {
        self.room.add_permits(group.len());
        for pending in group {
            if pending.outcome.is_ok() {
                self.followers.tell(pending.batch.puts().map(|put| put.key.as_str()));
            }
            // A caller that stopped waiting gets no response; its batch is stored all the same.
            let _ = pending.answer.send((pending.outcome, pending.batch));
        }
    }

    /// Checks whether another process committed, and notifies followers of its puts.
    fn notice_others(&mut self) {
        let Ok(seen) = data_version(&self.connection) else {
            return;
        };
        if seen == self.data_version {
            return;
        }
        self.data_version = seen;
        if let Ok(mark) = high_water(&self.connection) {
            self.time.observe(mark);
            self.tell_of_others(mark);
        }
    }

    fn tell_of_others(&mut self, mark: Stamp) {
        match put_since(&self.connection, self.told) {
            Ok(keys) if keys.len() < CHANGES_WAITING_MAX => self.followers.tell(keys.iter().map(String::as_str)),
            _ => self.followers.tell_missed(),
        }
        self.told = mark.max(self.told);
    }
}

/// Assigns stamps to every batch, above `mark`, and returns the last.
fn place(group: &mut [Pending], mark: Stamp) -> Stamp {
    let mut last = mark;
    for pending in group {
        match pending.batch.stamp_at(last.next()) {
            Err(refusal) => pending.outcome = Err(refusal),
            Ok(first) => {
                let stamp = pending.batch.wants_stamp().then_some(first);
                if let Some(stamp) = stamp {
                    pending.batch.fill(stamp);
                }
                pending.first = first;
                let count = pending.batch.operations.len();
                let puts =
                    pending.batch.operations.iter().enumerate().filter(|(_, operation)| operation.as_put().is_some());
                let versions = puts.map(|(position, _)| Version::stamp(at(first, position))).collect();
                pending.outcome = Ok(Receipt { stamp, versions });
                last = at(first, count);
            }
        }
    }
    last
}

/// The stamp of one operation of a batch.
pub(super) fn at(first: Stamp, position: usize) -> Stamp {
    Stamp::from_micros(first.micros() + position as u64)
}

fn high_water(connection: &Connection) -> rusqlite::Result<Stamp> {
    let mut select = connection.prepare_cached("SELECT stamp FROM clock")?;
    select.query_row([], |row| row.get::<_, i64>(0)).map(|stamp| Stamp::from_micros(stamp.cast_unsigned()))
}

fn data_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.prepare_cached("PRAGMA data_version")?.query_row([], |row| row.get(0))
}

fn put_since(connection: &Connection, since: Stamp) -> rusqlite::Result<Vec<String>> {
    let mut select = connection.prepare_cached("SELECT key FROM objects WHERE stamp > ?1 ORDER BY stamp LIMIT ?2")?;
    let limit = i64::try_from(CHANGES_WAITING_MAX).unwrap_or(i64::MAX);
    select.query_map((since.micros().cast_signed(), limit), |row| row.get(0))?.collect()
}
