//! Where commands look, and what they ask: a store, or a server that has one. Commands know nothing else.
//!
//! Holds: both give the same types and refuse with the same codes, so that a command is written and shown once.

mod local;

use std::time::Duration;

use async_trait::async_trait;
use wigwag::core::{Definition, Entry, Name, Path, Point, Run, RunRef};
use wigwag::{
    Asked, OpenWait, Payload, PruneOptions, Pruned, Receipt, SignalView, Status, Summary, Swept, Time, WaitingRuns,
};

pub(crate) use local::Local;

use crate::error::Failed;

type Result<T> = std::result::Result<T, Failed>;

/// A run to be started.
#[derive(Clone, Debug)]
pub(crate) struct NewRun {
    pub(crate) of: String,
    pub(crate) input: Payload,
    pub(crate) id: Option<String>,
    pub(crate) at: Option<Time>,
    pub(crate) delay: Option<Duration>,
}

/// A task to be submitted.
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

/// Which runs are listed.
#[derive(Clone, Debug)]
pub(crate) struct Which {
    pub(crate) of: Option<String>,
    pub(crate) status: Option<Status>,
    pub(crate) tasks: bool,
    /// The queue of the tasks of one type.
    pub(crate) queue: String,
    pub(crate) limit: u16,
    pub(crate) after: Option<String>,
}

/// Some runs.
#[derive(Clone, Debug)]
pub(crate) struct Listing {
    pub(crate) runs: Vec<Summary>,
    pub(crate) next: Option<String>,
    /// Runs that would be in this list and cannot be read, in words.
    pub(crate) unreadable: Vec<String>,
}

/// A signal to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) name: String,
    pub(crate) payload: Payload,
    pub(crate) key: Option<String>,
    pub(crate) by: Option<String>,
    pub(crate) only_if_waiting: bool,
    pub(crate) point: Option<String>,
    /// What is started first if there is no run, and with what.
    pub(crate) start: Option<(String, Payload)>,
}

/// A signal that a wait has taken.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) receipt: Receipt,
    pub(crate) point: Path,
    pub(crate) at: Time,
    pub(crate) status: Status,
    /// What the run waits for now.
    pub(crate) next: Vec<OpenWait>,
}

/// What is asked of a run.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Cancel { reason: Option<String> },
    Pause,
    Resume { anyway: bool },
    Restart { from: Option<String> },
    Migrate { rename: Vec<(String, String)>, skip: Vec<String>, to: Option<String> },
}

impl Ask {
    /// The word for it.
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

/// A link to be made.
#[derive(Clone, Debug)]
pub(crate) struct NewLink {
    pub(crate) run: String,
    pub(crate) name: String,
    pub(crate) expires: Duration,
    pub(crate) once: bool,
    pub(crate) sender: Option<String>,
}

/// A link that was made.
#[derive(Clone, Debug)]
pub(crate) struct MadeLink {
    pub(crate) token: String,
    /// Where it can be used, if whoever made it knows.
    pub(crate) url: Option<String>,
    pub(crate) link: Link,
}

/// What a link may do.
#[derive(Clone, Debug, serde::Deserialize)]
pub(crate) struct Link {
    pub(crate) run: String,
    pub(crate) name: String,
    pub(crate) expires: Time,
    pub(crate) once: bool,
}

/// Is told how far it is.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(&Pruned);

/// A store, or a server.
#[async_trait(?Send)]
pub(crate) trait Target {
    /// Starts a run; returns it with the warnings about it.
    async fn start(&self, new: NewRun) -> Result<(RunRef, Vec<String>)>;

    async fn submit(&self, new: NewTask) -> Result<RunRef>;

    /// The run as it is; what is large may stand elsewhere.
    async fn get(&self, run: &RunRef) -> Result<Run>;

    /// Reasons why a run may not proceed that are not part of its state.
    async fn diagnose(&self, run: &Run) -> Result<Vec<String>>;

    /// Puts what is large in its place: the result, and the input if it is wanted.
    async fn whole(&self, run: Run, input: bool) -> Result<Run>;

    /// All points of a run, with whole results if they are wanted.
    async fn steps(&self, run: &RunRef, whole: bool) -> Result<Vec<(Path, Point)>>;

    /// Entries of a run's log, from a number on.
    async fn history(&self, run: &RunRef, from: u64, limit: u64) -> Result<Vec<Entry>>;

    /// The same as they are made, until the run has ended.
    async fn follow(&self, run: &RunRef, from: u64) -> Result<Box<dyn Log>>;

    async fn list(&self, which: &Which) -> Result<Listing>;

    /// The runs that wait for a signal of that name, or for any.
    async fn waiting(&self, name: Option<&Name>, limit: usize, after: Option<&str>) -> Result<WaitingRuns>;

    /// The waits of a run that are open.
    async fn open_waits(&self, run: &RunRef) -> Result<Vec<OpenWait>>;

    /// The signals that were sent to a run.
    async fn signals(&self, run: &RunRef, name: Option<&Name>) -> Result<Vec<SignalView>>;

    async fn signal(&self, run: &RunRef, message: &Message) -> Result<Receipt>;

    /// Sends a signal, and answers when a wait has taken it.
    async fn signal_and_wait(&self, run: &RunRef, message: &Message, span: Duration) -> Result<Taken>;

    /// Sends one signal to many runs; there is one answer for each, in order.
    async fn signal_many(&self, runs: &[RunRef], message: &Message) -> Vec<Result<Receipt>>;

    async fn make_link(&self, new: &NewLink) -> Result<MadeLink>;

    async fn read_link(&self, token: &str) -> Result<Link>;

    /// Revokes a link. Returns `false` if it was revoked before.
    async fn revoke_link(&self, token: &str) -> Result<bool>;

    async fn ask(&self, run: &RunRef, ask: &Ask) -> Result<Asked>;

    /// What workers have known of a type, the newest last.
    async fn definitions(&self, of: &str) -> Result<Vec<Definition>>;

    /// Waits for a run's end, and gives its result.
    async fn result(&self, run: &RunRef, timeout: Option<Duration>) -> Result<Payload>;

    async fn sweep(&self, dry_run: bool) -> Result<Swept>;

    async fn prune(&self, options: &PruneOptions, progress: Progress<'_>) -> Result<Pruned>;
}

/// A run's log as it grows.
#[async_trait(?Send)]
pub(crate) trait Log {
    /// The next entries; `None` when the run has ended and all were given.
    async fn next(&mut self) -> Result<Option<Vec<Entry>>>;
}
