//! Following a run's log as it grows.

use std::sync::Arc;
use std::time::Duration;

use wigwag_core::{Entry, Event, prefix};
use wigwag_store::Changes;

use super::RunHandle;
use crate::error::{Error, Result};

/// Entries that are read at a time.
const PAGE: u64 = 64;

/// How long a follower waits for a nudge before it looks by itself.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The entries of a run's log as they are committed; see [`RunHandle::follow`].
#[derive(Debug)]
pub struct Follow {
    run: RunHandle,
    next: u64,
    /// Whether the run had ended when it was read last; `None` before it was.
    ended: Option<bool>,
    changes: Option<Changes>,
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
        Follow { run: self.clone(), next: from.max(1), ended: None, changes: None }
    }
}

impl Follow {
    /// The number of the entry that comes next.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.next
    }

    /// The next entries, at least one; `None` when the run has ended and all of them were given.
    ///
    /// A run that is restarted after that can be followed again from where this stood.
    pub async fn next(&mut self) -> Result<Option<Vec<Entry>>> {
        self.begin().await?;
        let mut pause = Duration::from_millis(50);
        loop {
            let entries = self.run.history(self.next, PAGE).await?;
            if let Some(last) = entries.last() {
                self.next = last.seq + 1;
                self.ended = entries.iter().fold(self.ended, |ended, entry| ends(entry).or(ended));
                return Ok(Some(entries));
            }
            if self.ended == Some(true) {
                return Ok(None);
            }
            self.wait(pause).await;
            pause = (pause * 3 / 2).min(Duration::from_secs(2));
        }
    }

    /// Asks to be told of what comes before it reads what is there, so that nothing is missed between the two.
    async fn begin(&mut self) -> Result<()> {
        if self.ended.is_some() {
            return Ok(());
        }
        self.changes.get_or_insert_with(|| self.run.inner.store.changes(&prefix::log(&self.run.run)));
        let run = self.run.read().await?.run;
        if self.next > run.seq + 1 {
            let what = format!("run `{}` has no entry {} yet: its last is {}", self.run.id(), self.next, run.seq);
            return Err(Error::invalid(what).hint("go on after the last entry that was seen"));
        }
        // Entries that are read later change it; from the first on they say it all.
        self.ended = Some(run.status.is_final() && self.next > 1);
        Ok(())
    }

    async fn wait(&mut self, pause: Duration) {
        let nudged = self.run.inner.store.traits().nudges;
        let clock = Arc::clone(&self.run.inner.clock);
        let Some(changes) = &mut self.changes else { return };
        tokio::select! {
            biased;
            _ = changes.next() => {}
            () = clock.sleep(if nudged { LOOK_EVERY } else { pause }) => {}
        }
    }
}

/// Whether a run has ended after an entry; `None` if that does not say.
fn ends(entry: &Entry) -> Option<bool> {
    entry.events.iter().fold(None, |ended, event| match event {
        Event::RunCompleted(_) | Event::RunFailed(_) | Event::RunCancelled(_) => Some(true),
        Event::RunRestarted(restarted) if restarted.refused.is_none() => Some(false),
        _ => ended,
    })
}
