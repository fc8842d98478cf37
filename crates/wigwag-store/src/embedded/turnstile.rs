//! A fair lock for writing processes.
//!
//! SQLite's own lock lets a busy process acquire it again at once and starve the rest. Two files make a
//! fair queue: a writer first locks `next`, and only its holder tries for `writer`. A process that has just
//! written must lock `next` first, and a waiting process holds it already.

use std::fs::{File, TryLockError};
use std::time::Duration;

use super::descriptors::Listed;
use super::directory::Directory;
use crate::{Error, ErrorKind, Result};

#[derive(Debug)]
pub(super) struct Turnstile {
    next: File,
    writer: File,
    wait_max: Duration,
    _listed: [Listed; 2],
}

/// The lock of the writing process; released on drop.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a File);

impl Turnstile {
    pub(super) fn open(directory: &Directory, wait_max: Duration) -> Result<Self> {
        let next = directory.lock_file("next.lock")?;
        let writer = directory.lock_file("writer.lock")?;
        let listed = [Listed::new(&next), Listed::new(&writer)];
        Ok(Self { next, writer, wait_max, _listed: listed })
    }

    pub(super) fn enter(&self) -> Result<Turn<'_>> {
        let mut waited = Duration::ZERO;
        self.lock(&self.next, &mut waited)?;
        let locked = self.lock(&self.writer, &mut waited);
        let _ = self.next.unlock();
        locked.map(|()| Turn(&self.writer))
    }

    /// Polls, because a blocking lock could not be abandoned when its holder is stopped.
    fn lock(&self, file: &File, waited: &mut Duration) -> Result<()> {
        let mut pause = Duration::from_micros(20);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) if *waited < self.wait_max => {
                    std::thread::sleep(pause);
                    *waited += pause;
                    pause = (pause * 2).min(Duration::from_millis(1));
                }
                Err(TryLockError::WouldBlock) => {
                    let what = format!("another process has held the store's write lock for {:?}", self.wait_max);
                    return Err(Error::new(ErrorKind::Unavailable, what)
                        .hint("is a process that uses this store stopped or hung?"));
                }
                Err(TryLockError::Error(error)) => {
                    return Err(Error::new(ErrorKind::Unavailable, format!("cannot lock: {error}")).because(error));
                }
            }
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}
