//! Between users' code and the turn that drives it: requests one way, replies the other.
//!
//! Users' code runs in tasks of its own, so that code that blocks its thread does not keep the turn from renewing its
//! lease. What it asks for in one poll reaches the turn together, and so shares an entry: the end of one step and the
//! beginning of the next.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::Notify;
use wigwag_core::{Name, Path, Payload, Retry, RunId, Taken, Time, TypeName};

use crate::failure::Failure;
use crate::inner::lock;
use crate::waiting::WaitSpec;

/// Which of users' code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BodyId {
    /// The function.
    Root,
    /// A step of a graph, at its nth start.
    Step(Path, u64),
    /// Undoing a step, at its nth start.
    Undo(Path, u64),
}

/// What users' code asks for.
#[derive(Debug)]
pub(crate) enum Request {
    /// A point was reached that has no final record.
    Open { body: BodyId, path: Path, spec: Spec, slot: Arc<Slot> },
    /// A step of a function came out.
    Outcome { path: Path, attempt: u32, outcome: Result<Payload, Failure>, at: Time },
    /// A point is no longer waited for.
    Dropped { path: Path, slot: Arc<Slot> },
    /// A wait has heard what it was told.
    Heard { path: Path, slot: Arc<Slot> },
    /// A wait that is recorded as open was dropped before the code came to wait for it: it lost a race.
    Abandoned { body: BodyId, path: Path },
    /// What was recorded could not be read: trouble of the turn, not of the code.
    Trouble(crate::Error),
    /// The code returned.
    Returned { body: BodyId, outcome: Result<Returned, Failure>, at: Time },
}

/// What users' code returned.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) result: Payload,
    pub(crate) patch: Option<Map<String, Value>>,
}

/// What a point is.
#[derive(Clone, Debug)]
pub(crate) enum Spec {
    Step { retry: Retry, timeout: Duration, compensate: bool },
    SleepFor(Duration),
    SleepUntil(Time),
    Child { of: TypeName, input: Payload },
    Tasks { ids: Vec<RunId>, timeout: Option<Duration> },
    FanOut { of: TypeName, inputs: Vec<Payload>, options: crate::client::TaskOptions, timeout: Option<Duration> },
    Wait { name: Name, wait: WaitSpec },
    Mark,
}

/// What came of a wait.
#[derive(Clone, Debug)]
pub(crate) enum Heard {
    /// Its signal, or as many as it wanted: then the payload is an array.
    Signals { taken: Vec<Taken>, payload: Payload },
    /// Nothing came in time.
    TimedOut,
    /// Another won the race.
    Lost,
}

/// What the turn answers.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Run the step.
    Run { attempt: u32, deadline: Time },
    /// Stop running it: it took too long.
    Stop,
    /// The point has this result.
    Closed { result: Payload, at: Time },
    /// The wait is over.
    Heard { heard: Heard, at: Time },
    /// The point failed for good.
    Failed { failure: Failure, at: Time },
}

/// Where the reply to one point arrives.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    state: Mutex<SlotState>,
    /// How many replies the code of this slot was ever given.
    told: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct SlotState {
    replies: VecDeque<Reply>,
    waker: Option<Waker>,
    /// Nobody takes replies any more.
    closed: bool,
    /// The step that runs has come out, or was told to stop: whoever is first decides.
    decided: bool,
}

impl Slot {
    pub(crate) fn new(told: &Arc<AtomicU64>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), told: Arc::clone(told) })
    }

    pub(crate) fn reply(&self, reply: Reply) {
        let mut state = lock(&self.state);
        if state.closed {
            return;
        }
        if matches!(reply, Reply::Run { .. }) {
            state.decided = false;
        }
        state.replies.push_back(reply);
        self.told.fetch_add(1, Ordering::AcqRel);
        if let Some(waker) = state.waker.take() {
            drop(state);
            waker.wake();
        }
    }

    pub(crate) async fn next(&self) -> Reply {
        std::future::poll_fn(|context| {
            let mut state = lock(&self.state);
            match state.replies.pop_front() {
                Some(reply) => Poll::Ready(reply),
                None => {
                    state.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The step came out, or took too long; `false` if the other was first.
    pub(crate) fn decide(&self) -> bool {
        !std::mem::replace(&mut lock(&self.state).decided, true)
    }

    /// Nobody will take what is here any more.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.replies.clear();
    }

    /// Whether the code looked at it since it was last told something: only then telling it again wakes the code.
    pub(crate) fn is_awaited(&self) -> bool {
        lock(&self.state).waker.is_some()
    }

    /// Takes back what a wait was told and has not heard; `false` if it has.
    pub(crate) fn retract(&self) -> bool {
        let mut state = lock(&self.state);
        let before = state.replies.len();
        state.replies.retain(|reply| !matches!(reply, Reply::Heard { .. }));
        state.replies.len() < before
    }
}

/// What reached a turn and was not looked at yet.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    requests: Mutex<Vec<Request>>,
    notify: Notify,
    any: AtomicBool,
}

impl Mailbox {
    pub(crate) fn put(&self, requests: &mut Vec<Request>) {
        lock(&self.requests).append(requests);
        self.wake();
    }

    pub(crate) fn take(&self) -> Vec<Request> {
        self.any.store(false, Ordering::Release);
        std::mem::take(&mut lock(&self.requests))
    }

    pub(crate) fn has_requests(&self) -> bool {
        !lock(&self.requests).is_empty()
    }

    /// Makes the turn look around.
    pub(crate) fn wake(&self) {
        self.any.store(true, Ordering::Release);
        self.notify.notify_one();
    }

    /// Waits until something happened since the last [`Mailbox::take`].
    pub(crate) async fn changed(&self) {
        while !self.any.load(Ordering::Acquire) {
            self.notify.notified().await;
        }
    }
}
