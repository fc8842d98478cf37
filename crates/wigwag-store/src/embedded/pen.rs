//! The statements that put a batch into an open transaction.
//!
//! One row per statement. Statements with many rows were slower: SQLite then keeps a separate journal for each
//! statement, in case it fails half-way.

use rusqlite::{CachedStatement, Connection, OptionalExtension as _};

use super::writer::at;
use crate::{Batch, Clear, Error, Operation, Put, Result, Stamp, VersionForm, When};

pub(super) struct Pen<'a> {
    put: CachedStatement<'a>,
    create: CachedStatement<'a>,
    update: CachedStatement<'a>,
    delete: CachedStatement<'a>,
    from: CachedStatement<'a>,
    stamp: CachedStatement<'a>,
}

impl<'a> Pen<'a> {
    pub(super) fn new(connection: &'a Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            put: connection.prepare_cached(
                "INSERT INTO objects (stamp, key, body) VALUES (?1, ?2, ?3)
                 ON CONFLICT (key) DO UPDATE SET stamp = excluded.stamp, body = excluded.body",
            )?,
            create: connection.prepare_cached(
                "INSERT INTO objects (stamp, key, body) VALUES (?1, ?2, ?3) ON CONFLICT (key) DO NOTHING",
            )?,
            update: connection
                .prepare_cached("UPDATE objects SET stamp = ?1, body = ?3 WHERE key = ?2 AND stamp = ?4")?,
            delete: connection.prepare_cached("DELETE FROM objects WHERE key = ?1")?,
            from: connection.prepare_cached("SELECT key FROM objects WHERE key >= ?1 ORDER BY key LIMIT ?2")?,
            stamp: connection.prepare_cached("SELECT stamp FROM objects WHERE key = ?1")?,
        })
    }

    /// Writes one batch, its conditional put first: if that is refused nothing else is written, so that a
    /// batch is whole or absent without a savepoint. A batch names a key once, so that the order is free.
    pub(super) fn write(&mut self, batch: &Batch, first: Stamp) -> rusqlite::Result<Result<()>> {
        for clear in &*batch.clear {
            if let Some(key) = self.in_the_way(clear)? {
                // A retrying writer recognises its earlier batch by the conditional put.
                let refusal = batch.conditional().map(|put| self.refusal(put)).transpose()?.flatten();
                return Ok(Err(refusal.unwrap_or_else(|| Error::not_clear(&key))));
            }
        }
        let puts = batch
            .operations
            .iter()
            .enumerate()
            .filter_map(|(position, operation)| Some((position, operation.as_put()?)));
        for (position, put) in puts {
            if let Err(refusal) = self.put_when(put, at(first, position))? {
                return Ok(Err(refusal));
            }
        }
        for (position, operation) in batch.operations.iter().enumerate() {
            match operation {
                Operation::Delete(delete) => drop(self.delete.execute([&delete.key])?),
                Operation::Put(put) if put.when == When::Any => {
                    self.put.execute((at(first, position).micros().cast_signed(), &put.key, &*put.body))?;
                }
                Operation::Put(_) => {}
            }
        }
        Ok(Ok(()))
    }

    /// The first key that violates the precondition.
    fn in_the_way(&mut self, clear: &Clear) -> rusqlite::Result<Option<String>> {
        // One more than the known keys, and the key itself at which the range starts.
        let limit = i64::try_from(clear.known.len() + 2).unwrap_or(i64::MAX);
        let mut rows = self.from.query((clear.begin(), limit))?;
        while let Some(row) = rows.next()? {
            let key: String = row.get(0)?;
            if clear.forbids(&key) {
                return Ok(Some(key));
            }
            if !key.starts_with(&clear.prefix) {
                break;
            }
        }
        Ok(None)
    }

    /// Why a conditional put would be rejected; `None` if it would succeed.
    fn refusal(&mut self, put: &Put) -> rusqlite::Result<Option<Error>> {
        let there = self.stamp.query_row([&put.key], |row| row.get::<_, i64>(0)).optional()?;
        let there = there.map(|stamp| VersionForm::Stamp(Stamp::from_micros(stamp.cast_unsigned())));
        Ok(match (&put.when, there) {
            (When::Absent, Some(_)) => Some(Error::exists(&put.key)),
            (When::Version(version), there) if there.as_ref() != Some(&version.0) => Some(Error::changed(&put.key)),
            _ => None,
        })
    }

    /// Writes a conditional put, or returns the rejection; an unconditional one is left to the caller.
    fn put_when(&mut self, put: &Put, stamp: Stamp) -> rusqlite::Result<Result<()>> {
        let new = stamp.micros().cast_signed();
        match &put.when {
            When::Any => Ok(Ok(())),
            When::Absent => match self.create.execute((new, &put.key, &*put.body))? {
                0 => Ok(Err(Error::exists(&put.key))),
                _ => Ok(Ok(())),
            },
            When::Version(version) => {
                let VersionForm::Stamp(old) = version.0 else {
                    return Ok(Err(Error::changed(&put.key)));
                };
                match self.update.execute((new, &put.key, &*put.body, old.micros().cast_signed()))? {
                    0 => Ok(Err(Error::changed(&put.key))),
                    _ => Ok(Ok(())),
                }
            }
        }
    }
}
