//! One shared log reader for each followed run.
//!
//! Holds: followers of one run share one reader of its log; a follower that is behind the reader's buffer reads the
//! store until it has caught up. The reader ends with its last follower.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use serde_json::json;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use wigwag::{RunHandle, Status};
use wigwag_core::{Entry, Event, Run, RunRef};

use crate::limits::{RECENT_BYTES_MAX, RECENT_EVENTS_MAX};
use crate::problem::Problem;

/// One event, serialized once for all followers.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) seq: u64,
    pub(crate) place: usize,
    pub(crate) name: &'static str,
    pub(crate) text: String,
    /// The fields that all events of its entry share: `"seq":…,"by":…,"at":…`.
    pub(crate) entry: Arc<str>,
    /// Offset of the event itself in the text; it ends before the last byte.
    event_at: usize,
}

impl Frame {
    /// Returns the event itself.
    pub(crate) fn event(&self) -> &str {
        &self.text[self.event_at..self.text.len() - 1]
    }
}

/// Returns the events of an entry.
pub(crate) fn frames(entry: &Entry) -> Vec<Arc<Frame>> {
    let (seq, at, by, count) = (entry.seq, entry.at, json!(entry.by), entry.events.len());
    let requests = match entry.requests {
        none if none.is_none() => String::new(),
        requests => format!(",\"requests\":{}", json!(requests)),
    };
    let shared: Arc<str> = format!("\"seq\":{seq},\"by\":{by},\"at\":\"{at}\"").into();
    let frame = |(place, event): (usize, &Event)| {
        let event_text = serde_json::to_string(event).unwrap_or_default();
        let head = format!("\"seq\":{seq},\"place\":{place},\"count\":{count},\"by\":{by},\"at\":\"{at}\"{requests}");
        let text = format!("{{{head},\"event\":{event_text}}}");
        let event_at = text.len() - 1 - event_text.len();
        Arc::new(Frame { seq, place, name: event.name(), text, entry: Arc::clone(&shared), event_at })
    };
    entry.events.iter().enumerate().map(frame).collect()
}

/// Why the log of a run has no further events.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// The run has ended with this status.
    Ended(Status),
    /// The log cannot be read.
    Problem(Box<Problem>),
}

/// Progress of a watcher.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    /// Number of the last entry that was read.
    pub(crate) last: u64,
    pub(crate) end: Option<End>,
}

/// The reader of one run's log.
#[derive(Debug)]
pub(crate) struct Watch {
    recent: Mutex<Recent>,
    reach: watch::Sender<Reach>,
    task: OnceLock<AbortHandle>,
}

/// The newest events.
#[derive(Debug)]
struct Recent {
    frames: VecDeque<Arc<Frame>>,
    bytes: usize,
    /// The first entry whose events are all in the buffer.
    first: u64,
    status: Status,
}

/// The watchers of all followed runs.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    all: Mutex<HashMap<RunRef, Weak<Watch>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watchers {
    /// Returns the watcher of a run that was just read.
    pub(crate) fn join(&self, handle: &RunHandle, run: &Run) -> Arc<Watch> {
        let mut all = lock(&self.all);
        all.retain(|_, watch| watch.strong_count() > 0);
        let known = all.get(&run.run).and_then(Weak::upgrade);
        // A finished watcher is replaced, because the run may have been restarted since.
        if let Some(watch) = known.filter(|watch| watch.reach.borrow().end.is_none()) {
            return watch;
        }
        let watch = Watch::start(handle, run);
        all.insert(run.run.clone(), Arc::downgrade(&watch));
        watch
    }
}

impl Watch {
    fn start(handle: &RunHandle, run: &Run) -> Arc<Self> {
        let recent = Recent { frames: VecDeque::new(), bytes: 0, first: run.seq + 1, status: run.status };
        let (reach, _) = watch::channel(Reach { last: run.seq, end: None });
        let watch = Arc::new(Self { recent: Mutex::new(recent), reach, task: OnceLock::new() });
        let task = tokio::spawn(read(Arc::downgrade(&watch), handle.clone(), run.seq + 1));
        let _ = watch.task.set(task.abort_handle());
        watch
    }

    pub(crate) fn reach(&self) -> watch::Receiver<Reach> {
        self.reach.subscribe()
    }

    /// Returns the events from an entry on, if they are still in the buffer.
    pub(crate) fn recent(&self, from: u64) -> Option<Vec<Arc<Frame>>> {
        let recent = lock(&self.recent);
        let kept = recent.frames.iter().filter(|frame| frame.seq >= from).cloned();
        (from >= recent.first).then(|| kept.collect())
    }

    fn add(&self, entries: &[Entry]) {
        let mut recent = lock(&self.recent);
        for frame in entries.iter().flat_map(frames) {
            recent.bytes += frame.text.len();
            recent.status = match frame.name {
                "run.completed" => Status::Completed,
                "run.failed" => Status::Failed,
                "run.cancelled" => Status::Cancelled,
                _ => recent.status,
            };
            recent.frames.push_back(frame);
        }
        while recent.frames.len() > RECENT_EVENTS_MAX || recent.bytes > RECENT_BYTES_MAX {
            let Some(dropped) = recent.frames.pop_front() else { break };
            recent.bytes -= dropped.text.len();
            recent.first = dropped.seq + 1;
        }
        drop(recent);
        if let Some(last) = entries.last() {
            self.reach.send_modify(|reach| reach.last = last.seq);
        }
    }

    fn end(&self, end: End) {
        self.reach.send_modify(|reach| reach.end = Some(end));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

/// Reads the log as long as there are followers.
async fn read(watch: Weak<Watch>, handle: RunHandle, from: u64) {
    let mut log = handle.follow(from);
    loop {
        let next = log.next().await;
        let Some(watch) = watch.upgrade() else { return };
        match next {
            Ok(Some(entries)) => watch.add(&entries),
            Ok(None) => {
                let status = lock(&watch.recent).status;
                return watch.end(End::Ended(status));
            }
            Err(error) => return watch.end(End::Problem(Box::new(error.into()))),
        }
    }
}
