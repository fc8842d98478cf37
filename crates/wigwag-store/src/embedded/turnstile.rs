//! Whose turn it is to write, among processes.
//!
//! SQLite's own lock lets a busy process take it again at once and starve the rest. Two files make a fair
//! queue: whoever wants to write first holds `next`, and only its holder tries for `writer`. A process that
//! has just written must get `next` first, and another that waits holds it already.

use std::fs::{File, TryLockError};
use std::time::Duration;

use super::directory::Directory;
use crate::{Error, ErrorKind, Result};

#[derive(Debug)]
pub(super) struct Turnstile {
    next: File,
    writer: File,
    wait_max: Duration,
}

/// The turn; given back on drop.
#[derive(Debug)]
pub(super) struct Turn<'a>(&'a File);

impl Turnstile {
    pub(super) fn open(directory: &Directory, wait_max: Duration) -> Result<Self> {
        let next = directory.lock_file("next.lock")?;
        let writer = directory.lock_file("writer.lock")?;
        Ok(Self { next, writer, wait_max })
    }

    pub(super) fn enter(&self) -> Result<Turn<'_>> {
        let mut waited = Duration::ZERO;
        self.lock(&self.next, &mut waited)?;
        let locked = self.lock(&self.writer, &mut waited);
        let _ = self.next.unlock();
        locked.map(|()| Turn(&self.writer))
    }

    /// Polls, because a blocking lock could not be given up when its holder is stopped.
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
