//! The target of commands: a store, or a server in front of one. Commands use only this interface.
//!
//! Holds: both return the same types and reject with the same codes, so that each command is implemented once.

mod local;

use std::time::Duration;

use async_trait::async_trait;
use wigwag::{
    Asked, Counts, OpenWait, Payload, PruneOptions, Pruned, Receipt, SignalView, Status, Summary, Swept, Time,
    WaitingRuns,
};
use wigwag_core::{Definition, Entry, Explanation, Name, Path, Point, Run, RunRef};

pub(crate) use local::Local;

use crate::error::Failed;

type Result<T> = std::result::Result<T, Failed>;

/// Parameters of a new run.
#[derive(Clone, Debug)]
pub(crate) struct NewRun {
    pub(crate) of: String,
    pub(crate) input: Payload,
    pub(crate) id: Option<String>,
    pub(crate) at: Option<Time>,
    pub(crate) delay: Option<Duration>,
}

/// Parameters of a new task.
#[derive(Clone, Debug)]
pub(crate) struct NewTask {
    pub(crate) of: String,
    pub(crate) input: Payload,
    pub(crate) key: Option<String>,
    pub(crate) queue: String,
    pub(crate) retries: Option<u32>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) at: Option<Time>,
    pub(crate) delay: Option<Duration>,
    pub(crate) expires: Option<Duration>,
}

/// Filter of a list of runs.
#[derive(Clone, Debug)]
pub(crate) struct Which {
    pub(crate) of: Option<String>,
    pub(crate) status: Option<Status>,
    pub(crate) tasks: bool,
    /// The queue, for tasks of one type.
    pub(crate) queue: String,
    pub(crate) limit: u16,
    pub(crate) after: Option<String>,
}

/// A page of a list of runs.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) runs: Vec<Summary>,
    pub(crate) next: Option<String>,
    /// Messages about runs that match but are unreadable.
    pub(crate) unreadable: Vec<String>,
}

/// Parameters of a signal.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) name: String,
    pub(crate) payload: Payload,
    pub(crate) key: Option<String>,
    pub(crate) by: Option<String>,
    pub(crate) only_if_waiting: bool,
    pub(crate) point: Option<String>,
    /// The type and input of the run to start if it does not exist.
    pub(crate) start: Option<(String, Payload)>,
}

/// A signal that was consumed by a wait.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) receipt: Receipt,
    pub(crate) point: Path,
    pub(crate) at: Time,
    pub(crate) status: Status,
    /// Open waits of the run after it consumed the signal.
    pub(crate) next: Vec<OpenWait>,
}

/// A control request to a run.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Cancel { reason: Option<String> },
    Pause,
    Resume { anyway: bool },
    Restart { from: Option<String> },
    Migrate { rename: Vec<(String, String)>, skip: Vec<String>, to: Option<String> },
}

impl Ask {
    /// Returns the name of the request.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Cancel { .. } => "cancel",
            Self::Pause => "pause",
            Self::Resume { .. } => "resume",
            Self::Restart { .. } => "restart",
            Self::Migrate { .. } => "migrate",
        }
    }
}

/// Parameters of a new link.
#[derive(Clone, Debug)]
pub(crate) struct NewLink {
    pub(crate) run: String,
    pub(crate) name: String,
    pub(crate) expires: Duration,
    pub(crate) once: bool,
    pub(crate) sender: Option<String>,
}

/// A new link with its token.
#[derive(Clone, Debug)]
pub(crate) struct MadeLink {
    pub(crate) token: String,
    /// The link's URL, if its creator knows the server's address.
    pub(crate) url: Option<String>,
    pub(crate) link: Link,
}

/// The signal that a link permits, and its limits.
#[derive(Clone, Debug, serde::Deserialize)]
pub(crate) struct Link {
    pub(crate) run: String,
    pub(crate) name: String,
    pub(crate) expires: Time,
    pub(crate) once: bool,
}

/// Callback that reports progress.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(&Pruned);

/// A store or a server.
#[async_trait(?Send)]
pub(crate) trait Target {
    /// Starts a run; returns it with the warnings about it.
    async fn start(&self, new: NewRun) -> Result<(RunRef, Vec<String>)>;

    async fn submit(&self, new: NewTask) -> Result<RunRef>;

    /// Returns a run; large values may be replaced by references.
    async fn get(&self, run: &RunRef) -> Result<Run>;

    /// Reasons why a run may not proceed that are not part of its state.
    async fn diagnose(&self, run: &Run) -> Result<Vec<String>>;

    /// Loads the large values of a run: the result, and the input if requested.
    async fn whole(&self, run: Run, input: bool) -> Result<Run>;

    /// Returns all steps of a run, with complete results if requested.
    async fn steps(&self, run: &RunRef, whole: bool) -> Result<Vec<(Path, Point)>>;

    /// Returns entries of a run's log, starting at a number.
    async fn history(&self, run: &RunRef, from: u64, limit: u64) -> Result<Vec<Entry>>;

    /// Follows a run's log until the run has ended.
    async fn follow(&self, run: &RunRef, from: u64) -> Result<Box<dyn Log>>;

    async fn list(&self, which: &Which) -> Result<Listing>;

    /// Returns the number of runs by type and status.
    async fn counts(&self) -> Result<Counts>;

    /// Lists the runs that wait for a signal of this name, or for any.
    async fn waiting(&self, name: Option<&Name>, limit: usize, after: Option<&str>) -> Result<WaitingRuns>;

    /// Returns the open waits of a run.
    async fn open_waits(&self, run: &RunRef) -> Result<Vec<OpenWait>>;

    /// Explains why a run does not proceed.
    async fn explain(&self, run: &RunRef) -> Result<Explanation>;

    /// Returns the signals sent to a run.
    async fn signals(&self, run: &RunRef, name: Option<&Name>) -> Result<Vec<SignalView>>;

    async fn signal(&self, run: &RunRef, message: &Message) -> Result<Receipt>;

    /// Sends a signal, and returns when a wait has consumed it.
    async fn signal_and_wait(&self, run: &RunRef, message: &Message, span: Duration) -> Result<Taken>;

    /// Sends one signal to many runs; returns one result for each, in order.
    async fn signal_many(&self, runs: &[RunRef], message: &Message) -> Vec<Result<Receipt>>;

    async fn make_link(&self, new: &NewLink) -> Result<MadeLink>;

    async fn read_link(&self, token: &str) -> Result<Link>;

    /// Revokes a link. Returns `false` if it was revoked before.
    async fn revoke_link(&self, token: &str) -> Result<bool>;

    async fn ask(&self, run: &RunRef, ask: &Ask) -> Result<Asked>;

    /// Returns the recorded definitions of a type, the newest last.
    async fn definitions(&self, of: &str) -> Result<Vec<Definition>>;

    /// Waits for the end of a run and returns its result.
    async fn result(&self, run: &RunRef, timeout: Option<Duration>) -> Result<Payload>;

    async fn sweep(&self, dry_run: bool) -> Result<Swept>;

    /// Number of runs that pruning would look at, where that costs little.
    async fn prunable(&self, options: &PruneOptions) -> Result<Option<usize>>;

    async fn prune(&self, options: &PruneOptions, progress: Progress<'_>) -> Result<Pruned>;
}

/// A stream of a run's log entries.
#[async_trait(?Send)]
pub(crate) trait Log {
    /// Returns the next entries; `None` after the run has ended and all were returned.
    async fn next(&mut self) -> Result<Option<Vec<Entry>>>;
}
