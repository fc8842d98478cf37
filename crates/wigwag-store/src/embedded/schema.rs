//! The database: its tables, its settings, its mark of version, and what its errors mean.
//!
//! A row's `stamp` consists of its time, its version and its place in the table, so that puts append to the table and
//! the puts since a stamp are a range of it. Only the index over keys is written in random order.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::layout::Layout;
use crate::{Error, ErrorKind, LAYOUT_KEY, Result, Stamp};

/// How long SQLite waits for locks that are held for a moment: recovery after a crash, a checkpoint's end.
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// Bytes of a database's header.
const HEADER_BYTES: u64 = 100;
/// `WGWG`: marks a SQLite file as ours.
const APPLICATION: u32 = 0x5747_5747;
/// The version of the tables below. A change of them is a new number and a migration.
const FORMAT: u32 = 1;

const TABLES: &str = "
    CREATE TABLE objects (stamp INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, body BLOB NOT NULL) STRICT;
    CREATE TABLE clock (id INTEGER PRIMARY KEY CHECK (id = 1), stamp INTEGER NOT NULL) STRICT;
";

/// Bytes in a page. Measured at 256 writers: 8 KiB takes fewer writes to the log than 4, and copies less than 16.
const PAGE_BYTES: u32 = 8_192;

/// The writer's cache, in KiB. Measured: its clean-up after a commit grows with its size, and a larger one was
/// slower; runs under way lie near each other, so that a small one holds them.
const WRITER_CACHE_KIB: i32 = 8_192;

/// How a database file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Reading and writing.
    Write,
    /// Reading beside processes that may write.
    Read,
    /// Reading a file that has no log and that no process changes: SQLite takes no locks and creates no files.
    Frozen,
}

/// Finds the access that lets a database be read where nothing can be written.
pub(super) fn read_access(path: &Path) -> Result<Access> {
    match check_header(path, Access::Read) {
        Ok(()) => Ok(Access::Read),
        // A store that was closed has no log. SQLite would create one even for reading.
        Err(error) if error.kind() == ErrorKind::Denied && log_bytes(path) == 0 => {
            check_header(path, Access::Frozen).map(|()| Access::Frozen)
        }
        Err(error) => Err(error),
    }
}

/// Size of the write-ahead log; zero if there is none.
pub(super) fn log_bytes(path: &Path) -> u64 {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::metadata(log).map_or(0, |facts| facts.len())
}

/// Makes a finished database with nothing in it but the layout.
pub(super) fn create(path: &Path, now: Stamp) -> Result<()> {
    let make = || -> rusqlite::Result<()> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "page_size", PAGE_BYTES)?;
        // Free pages can be given back to the disk, some at a time. It must be said before there is a table.
        connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
        connection.pragma_update(None, "application_id", APPLICATION)?;
        connection.pragma_update(None, "user_version", FORMAT)?;
        connection.execute_batch(TABLES)?;
        let stamp = now.micros().cast_signed();
        connection.execute("INSERT INTO clock (id, stamp) VALUES (1, ?1)", [stamp])?;
        let layout = Layout::embedded().to_json();
        connection
            .execute("INSERT INTO objects (stamp, key, body) VALUES (?1, ?2, ?3)", (stamp, LAYOUT_KEY, layout))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.close().map_err(|(_, error)| error)
    };
    make().map_err(|error| failure(error, "make", path))
}

/// Checks read-only whether the file is a wigwag database, so that a foreign file stays unchanged.
///
/// Through SQLite and not by other means: were the file opened and closed by hand, the system would drop every lock
/// that this process has on it, those of a store that is open already included, and another process could then take
/// the log away from under it.
pub(super) fn check_header(path: &Path, access: Access) -> Result<()> {
    let shown = path.display();
    let damaged =
        |what: String| Error::new(ErrorKind::Damaged, what).hint("restore it from a backup; it was left as it is");
    let size = std::fs::metadata(path)
        .map_err(|error| Error::new(kind_of_io(&error), format!("cannot read `{shown}`: {error}")).because(error))?
        .len();
    if size < HEADER_BYTES {
        return Err(damaged(format!("`{shown}` is cut short: it has no whole header")));
    }
    let (application, format) = read_header(path, access).map_err(|error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            damaged(format!("`{shown}` is damaged, or not a database at all"))
        }
        _ => failure(error, "open", path),
    })?;
    if application != APPLICATION {
        return Err(Error::invalid(format!("`{shown}` is a database of another program")).hint("it was left as it is"));
    }
    if format != FORMAT {
        let what = format!("`{shown}` has format {format}; this version of wigwag reads format {FORMAT}");
        return Err(
            Error::new(ErrorKind::Damaged, what).hint("use the version of wigwag that wrote it; it was left as it is")
        );
    }
    Ok(())
}

fn read_header(path: &Path, access: Access) -> rusqlite::Result<(u32, u32)> {
    let connection = connect(path, access)?;
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    Ok((number("application_id")?.cast_unsigned(), number("user_version")?.cast_unsigned()))
}

/// High-water mark of the store's clock.
pub(super) fn read_clock(path: &Path, access: Access) -> Result<Stamp> {
    let read = || connect(path, access)?.query_row("SELECT stamp FROM clock", [], |row| row.get::<_, i64>(0));
    let stamp = read().map_err(|error| failure(error, "read", path))?;
    Ok(Stamp::from_micros(stamp.cast_unsigned()))
}

/// A connection for the one writer, with what durability rests on set and read back.
pub(super) fn connect_writer(path: &Path) -> Result<Connection> {
    let connect = || -> rusqlite::Result<(Connection, String, i64)> {
        let connection = connect(path, Access::Write)?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
        let journal = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
        let synchronous = connection.pragma_query_value(None, "synchronous", |row| row.get(0))?;
        Ok((connection, journal, synchronous))
    };
    let (connection, journal, synchronous) = connect().map_err(|error| failure(error, "open", path))?;
    if journal != "wal" || synchronous != 2 {
        let what = format!(
            "`{}` cannot be written durably: journal_mode `{journal}`, synchronous {synchronous}",
            path.display()
        );
        return Err(Error::new(ErrorKind::Damaged, what));
    }
    Ok(connection)
}

pub(super) fn connect_reader(path: &Path, access: Access) -> Result<Connection> {
    let connect = || -> rusqlite::Result<Connection> {
        let connection = connect(path, access)?;
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "mmap_size", 256 * 1024 * 1024)?;
        Ok(connection)
    };
    connect().map_err(|error| failure(error, "open", path))
}

/// A reader that fails rather than wait for a lock: it is used on threads that others need.
///
/// Maps no memory: after each commit of any process SQLite drops a mapping and creates another, and unmapping memory
/// interrupts all cores that the process runs on. For one small object that costs more than the rest.
pub(super) fn connect_quick_reader(path: &Path, access: Access) -> Result<Connection> {
    let connect = || -> rusqlite::Result<Connection> {
        let connection = connect(path, access)?;
        connection.pragma_update(None, "query_only", true)?;
        connection.busy_timeout(Duration::ZERO)?;
        Ok(connection)
    };
    connect().map_err(|error| failure(error, "open", path))
}

fn connect(path: &Path, access: Access) -> rusqlite::Result<Connection> {
    let mode =
        if access == Access::Write { OpenFlags::SQLITE_OPEN_READ_WRITE } else { OpenFlags::SQLITE_OPEN_READ_ONLY };
    let flags = mode | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match access {
        Access::Write | Access::Read => Connection::open_with_flags(path, flags)?,
        Access::Frozen => Connection::open_with_flags(frozen_uri(path), flags | OpenFlags::SQLITE_OPEN_URI)?,
    };
    connection.busy_timeout(BUSY_WAIT)?;
    Ok(connection)
}

/// SQLite's name for a file that does not change. Only `%`, `?` and `#` have a meaning in it.
fn frozen_uri(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let escaped = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    format!("file:{escaped}?immutable=1")
}

/// Converts an error of SQLite before the commit for the caller.
pub(super) fn failure(error: rusqlite::Error, doing: &str, database: &Path) -> Error {
    let kind = match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => ErrorKind::Full,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => ErrorKind::Damaged,
        Some(
            ErrorCode::PermissionDenied
            | ErrorCode::ReadOnly
            | ErrorCode::CannotOpen
            | ErrorCode::AuthorizationForStatementDenied,
        ) => ErrorKind::Denied,
        _ => ErrorKind::Unavailable,
    };
    let hint = match (kind, error.sqlite_error_code()) {
        (ErrorKind::Damaged, _) => Some("stop, copy the directory, and restore it from a backup"),
        (ErrorKind::Unavailable, Some(ErrorCode::SystemIoFailure)) => Some(
            "look at the disk, and at limits on the size of files (`ulimit -f`); the store goes on once it can write",
        ),
        _ => advice(kind),
    };
    let what = format!("cannot {doing} `{}`: {error}", database.display());
    let failed = Error::new(kind, what).because(error);
    match hint {
        Some(hint) => failed.hint(hint),
        None => failed,
    }
}

/// Hints for errors of the disk.
pub(super) fn advice(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::Full => Some("free disk space; the store then continues"),
        ErrorKind::Denied => Some("the directory and the files in it must be writable by this user"),
        _ => None,
    }
}

pub(super) fn kind_of_io(error: &std::io::Error) -> ErrorKind {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem => ErrorKind::Denied,
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::Full,
        std::io::ErrorKind::NotADirectory | std::io::ErrorKind::InvalidFilename => ErrorKind::Invalid,
        _ => ErrorKind::Unavailable,
    }
}
