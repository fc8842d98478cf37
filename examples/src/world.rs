//! What the steps act on: shelves, card processors, mailboxes. Here they are pretended.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use wigwag::store::{Clock as _, System};

/// What is outside of wigwag. Clones are the same world.
#[derive(Clone)]
pub struct World {
    takes: Duration,
    watch: Watch,
}

/// Somebody who is told of all that happens.
pub type Watch = Arc<dyn Fn(Moment, &str) + Send + Sync>;

/// When an action is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// It is about to happen.
    Begin,
    /// It has happened.
    Done,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("takes", &self.takes).finish_non_exhaustive()
    }
}

impl Default for World {
    /// A world in which everything happens at once and nobody watches.
    fn default() -> Self {
        Self::watched(Duration::ZERO, Arc::new(|_, _| ()))
    }
}

impl World {
    /// A world in which an action takes so long, and somebody is told when it begins and when it is done.
    pub fn watched(takes: Duration, watch: Watch) -> Self {
        Self { takes, watch }
    }

    /// Does something, under an idempotency key: a real world would do it once however often it is asked.
    pub async fn act(&self, key: &str) {
        (self.watch)(Moment::Begin, key);
        if !self.takes.is_zero() {
            System.sleep(self.takes).await;
        }
        (self.watch)(Moment::Done, key);
    }

    /// Undoes what was done under that key.
    pub async fn undo(&self, key: &str) {
        self.act(&format!("{key}:undo")).await;
    }
}
