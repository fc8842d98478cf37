//! The statements that put a batch into an open transaction.
//!
//! One row each. Statements of many rows were tried and were slower: SQLite then keeps a journal of its own for
//! each statement, in case it fails half-way.

use rusqlite::{CachedStatement, Connection};

use super::writer::at;
use crate::{Batch, Error, Operation, Put, Result, Stamp, VersionForm, When};

pub(super) struct Pen<'a> {
    put: CachedStatement<'a>,
    create: CachedStatement<'a>,
    update: CachedStatement<'a>,
    delete: CachedStatement<'a>,
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
        })
    }

    /// Writes one batch, its conditional put first: if that is refused nothing else is written, so that a
    /// batch is whole or absent without a savepoint. A batch names a key once, so that the order is free.
    pub(super) fn write(&mut self, batch: &Batch, first: Stamp) -> rusqlite::Result<Result<()>> {
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

    /// Writes a conditional put, or says that it is refused; an unconditional one is left alone.
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
