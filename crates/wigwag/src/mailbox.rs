//! Between users' code and the turn that drives it: requests one way, replies the other.
//!
//! Users' code runs in separate tasks, so that code that blocks its thread does not keep the turn from renewing its
//! lease. All requests of one poll reach the turn together, and so share an entry: the end of one step and the start
//! of the next.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::Notify;
use wigwag_core::{Name, Path, Payload, Retry, RunId, Taken, Time, TypeName};

use crate::body::BodyLink;
use crate::engine_core::lock;
use crate::failure::Failure;
use crate::waiting::WaitSpec;

/// Identifies a piece of users' code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BodyId {
    /// Body of a function.
    Root,
    /// A step of a graph, at its nth start.
    Step(Path, u64),
    /// Undoing a step, at its nth start.
    Undo(Path, u64),
}

/// Requests of users' code.
#[derive(Debug)]
pub(crate) enum Request {
    /// The code reached a step without a recorded outcome.
    Open { body: BodyId, path: Path, spec: Spec, slot: Arc<Slot> },
    /// A step of a function returned.
    Outcome { path: Path, attempt: u32, outcome: Result<Payload, Failure>, at: Time },
    /// The code dropped a step that it waited for.
    Dropped { path: Path, slot: Arc<Slot> },
    /// The code received the outcome of a wait.
    Heard { path: Path, slot: Arc<Slot> },
    /// A recorded open wait was dropped before the code reached it: it lost a race.
    Abandoned { body: BodyId, path: Path },
    /// A record could not be read: an error of the turn, not of the code.
    Trouble(crate::Error),
    /// The code returned.
    Returned { body: BodyId, outcome: Result<Returned, Failure>, at: Time },
}

impl Request {
    /// Whether the code reports that it no longer waits there.
    pub(crate) fn drops(&self, slot: &Arc<Slot>) -> bool {
        matches!(self, Self::Dropped { slot: dropped, .. } if Arc::ptr_eq(dropped, slot))
    }
}

/// Return value of users' code.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) result: Payload,
    pub(crate) patch: Option<Map<String, Value>>,
}

/// Specification of a step.
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

/// Outcome of a wait.
#[derive(Clone, Debug)]
pub(crate) enum Heard {
    /// The signals of the wait; with a quorum the payload is an array.
    Signals { taken: Vec<Taken>, payload: Payload },
    /// The wait timed out.
    TimedOut,
    /// Another wait won the race.
    Lost,
}

/// Replies of the turn.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Run the step.
    Run { attempt: u32, deadline: Time },
    /// Stop running: the attempt timed out.
    Stop,
    /// The step has this result.
    Closed { result: Payload, at: Time },
    /// The wait has this outcome.
    Heard { heard: Heard, at: Time },
    /// The step failed, and no retry follows.
    Failed { failure: Failure, at: Time },
}

/// Receives the reply for one step.
#[derive(Debug)]
pub(crate) struct Slot {
    state: Mutex<SlotState>,
    /// Counts the replies to the body that owns this slot.
    link: Arc<BodyLink>,
}

#[derive(Debug, Default)]
struct SlotState {
    replies: VecDeque<Reply>,
    waker: Option<Waker>,
    /// The receiver of replies is gone.
    closed: bool,
    /// The running attempt, and whether its end is decided, by its return or by a stop from the turn.
    attempt: (u32, bool),
}

impl Slot {
    pub(crate) fn new(link: &Arc<BodyLink>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), link: Arc::clone(link) })
    }

    /// Stores a reply; returns its number, or `None` if the code no longer waits here.
    pub(crate) fn reply(&self, reply: Reply) -> Option<u64> {
        let mut state = lock(&self.state);
        if state.closed {
            return None;
        }
        if let Reply::Run { attempt, .. } = reply {
            state.attempt = (attempt, false);
        }
        state.replies.push_back(reply);
        let number = self.link.reply();
        if let Some(waker) = state.waker.take() {
            drop(state);
            waker.wake();
        }
        Some(number)
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

    /// Decides between completion and timeout of an attempt; `false` if the other was first, or if a later attempt runs:
    /// code that blocked its thread through several timeouts must not decide for the attempt that replaced its own.
    pub(crate) fn decide(&self, attempt: u32) -> bool {
        let mut state = lock(&self.state);
        if state.attempt != (attempt, false) {
            return false;
        }
        state.attempt.1 = true;
        true
    }

    /// Closes the slot: its content will not be read any more.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        state.replies.clear();
    }

    /// Whether the code polled the slot since the last reply: only then another reply wakes the code.
    pub(crate) fn is_awaited(&self) -> bool {
        lock(&self.state).waker.is_some()
    }

    /// Withdraws a reply that the code has not received; `false` if it has.
    pub(crate) fn retract(&self) -> bool {
        let mut state = lock(&self.state);
        let before = state.replies.len();
        state.replies.retain(|reply| !matches!(reply, Reply::Heard { .. }));
        state.replies.len() < before
    }
}

/// Requests that reached a turn and were not processed yet.
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

    /// Wakes the turn for a check.
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
