//! The simulated world that steps act on: shelves, card processors, mailboxes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use wigwag::store::{Clock as _, System};

/// Everything outside of wigwag. Clones share the same world.
#[derive(Clone)]
pub struct World {
    takes: Duration,
    watch: Watch,
}

/// Callback that observes all actions.
pub type Watch = Arc<dyn Fn(Moment, &str) + Send + Sync>;

/// The phase of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The action is about to start.
    Begin,
    /// The action is complete.
    Done,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("World").field("takes", &self.takes).finish_non_exhaustive()
    }
}

impl Default for World {
    /// Returns a world in which actions take no time and have no observer.
    fn default() -> Self {
        Self::watched(Duration::ZERO, Arc::new(|_, _| ()))
    }
}

impl World {
    /// Returns a world in which an action takes this long, and `watch` is called at its start and end.
    pub fn watched(takes: Duration, watch: Watch) -> Self {
        Self { takes, watch }
    }

    /// Performs an action under an idempotency key: a real service would perform it once, however
    /// often it is requested.
    pub async fn act(&self, key: &str) {
        (self.watch)(Moment::Begin, key);
        if !self.takes.is_zero() {
            System.sleep(self.takes).await;
        }
        (self.watch)(Moment::Done, key);
    }

    /// Undoes the action of this key.
    pub async fn undo(&self, key: &str) {
        self.act(&format!("{key}:undo")).await;
    }
}
