//! Following a run's log as it grows.

use std::sync::Arc;
use std::time::Duration;

use wigwag_core::{Entry, Event, prefix};
use wigwag_store::Changes;

use super::RunHandle;
use super::wait::{StorePatience, poll_interval};
use crate::error::{Error, Result};
use crate::limits::{FOLLOW_PAGE_ENTRIES, FOLLOW_POLL_INTERVAL, FOLLOW_POLL_INTERVAL_MAX, FOLLOW_READS_AT_ONCE_MAX};
use crate::log;

/// The entries of a run's log as they are committed; see [`RunHandle::follow`].
#[derive(Debug)]
pub struct Follow {
    run: RunHandle,
    next: u64,
    /// Whether the run had ended when it was read last; `None` before it was.
    ended: Option<bool>,
    /// The last entry at the first read of the run: entries up to it are known to exist.
    last: u64,
    changes: Option<Changes>,
    patience: StorePatience,
}

impl RunHandle {
    /// Follows the log from an entry on (the first is 1), until the run has ended.
    ///
    /// ```
    /// # use wigwag::testing::Kit;
    /// # use wigwag::{Ctx, Failure};
    /// # async fn order(_: Ctx, _: ()) -> Result<bool, Failure> { Ok(true) }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), wigwag::Error> {
    /// # let kit = Kit::start(|engine| engine.function("order", 1, order)).await?;
    /// let run = kit.client().start("order", &()).await?;
    /// let mut log = run.follow(1);
    /// let mut last = None;
    /// while let Some(entries) = log.next().await? {
    ///     last = entries.last().and_then(|entry| entry.events.last()).map(|event| event.name());
    /// }
    /// assert_eq!(last, Some("run.completed"));
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn follow(&self, from: u64) -> Follow {
        Follow {
            run: self.clone(),
            next: from.max(1),
            ended: None,
            last: 0,
            changes: None,
            patience: StorePatience::default(),
        }
    }
}

impl Follow {
    /// Number of the next entry.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Waits for the next entries, at least one; `None` when the run has ended and all were returned.
    ///
    /// If the run is restarted after that, following can continue from here.
    pub async fn next(&mut self) -> Result<Option<Vec<Entry>>> {
        let mut pause = Duration::from_millis(50);
        while let Err(error) = self.begin().await {
            self.patience.bear(error, &*self.run.inner.clock)?;
            self.wait(pause).await;
            pause = (pause * 3 / 2).min(FOLLOW_POLL_INTERVAL_MAX);
        }
        loop {
            let entries = match self.read().await {
                Ok(entries) => entries,
                Err(error) => {
                    self.patience.bear(error, &*self.run.inner.clock)?;
                    Vec::new()
                }
            };
            if let Some(last) = entries.last() {
                self.next = last.seq + 1;
                self.ended = entries.iter().fold(self.ended, |ended, entry| ends(entry).or(ended));
                return Ok(Some(entries));
            }
            if self.ended == Some(true) {
                return Ok(None);
            }
            self.wait(pause).await;
            pause = (pause * 3 / 2).min(FOLLOW_POLL_INTERVAL_MAX);
        }
    }

    /// Reads the entries that are there. Most of the time there is none or one: one is read, and more only after it.
    async fn read(&mut self) -> Result<Vec<Entry>> {
        let (store, mut entries) = (&*self.run.inner.store, Vec::new());
        let mut width = (self.last + 1).saturating_sub(self.next).clamp(1, FOLLOW_READS_AT_ONCE_MAX);
        while (entries.len() as u64) < FOLLOW_PAGE_ENTRIES {
            let next = self.next.saturating_add(entries.len() as u64);
            let more = log::read_entries(store, &self.run.run, next, next.saturating_add(width)).await?;
            let found = more.len() as u64;
            entries.extend(more);
            if found < width {
                break;
            }
            width = (width * 2).min(FOLLOW_READS_AT_ONCE_MAX);
        }
        self.patience.calm();
        Ok(entries)
    }

    /// Subscribes to changes before it reads the existing entries, so that none is missed in between.
    async fn begin(&mut self) -> Result<()> {
        if self.ended.is_some() {
            return Ok(());
        }
        self.changes.get_or_insert_with(|| self.run.inner.store.changes(&prefix::log(&self.run.run)));
        let run = self.run.read().await?.run;
        if self.next > run.seq + 1 {
            let what = format!("run `{}` has no entry {} yet: its last is {}", self.run.id(), self.next, run.seq);
            return Err(Error::invalid(what).hint("continue after the last received entry"));
        }
        // Entries read later change it; a read from the first entry on determines it completely.
        self.ended = Some(run.status.is_final() && self.next > 1);
        self.last = run.seq;
        Ok(())
    }

    async fn wait(&mut self, pause: Duration) {
        let span = poll_interval(self.run.inner.store.traits().notifications, FOLLOW_POLL_INTERVAL, pause);
        let clock = Arc::clone(&self.run.inner.clock);
        let Some(changes) = &mut self.changes else { return };
        tokio::select! {
            biased;
            _ = changes.next() => {}
            () = clock.sleep(span) => {}
        }
    }
}

/// Whether a run has ended after an entry; `None` if the entry does not determine that.
fn ends(entry: &Entry) -> Option<bool> {
    entry.events.iter().fold(None, |ended, event| match event {
        Event::RunCompleted(_) | Event::RunFailed(_) | Event::RunCancelled(_) => Some(true),
        Event::RunRestarted(restarted) if restarted.refused.is_none() => Some(false),
        _ => ended,
    })
}
