//! The link between a turn and one body, a piece of users' code: requests and reports one way, the count of replies the other.
//!
//! Holds: the requests of one poll reach the turn together, and before the report of that poll. The rules are
//! [`wigwag_core::turn::body`]; this is their shared state.

use std::sync::{Arc, Mutex};

use wigwag_core::turn::body::Progress;

use crate::engine_core::lock;
use crate::mailbox::{Mailbox, Request};

/// The link between a turn and one body.
///
/// Locks are taken in this order: slot, link, mailbox.
#[derive(Debug)]
pub(crate) struct BodyLink {
    mailbox: Arc<Mailbox>,
    state: Mutex<LinkState>,
}

#[derive(Debug, Default)]
struct LinkState {
    progress: Progress,
    /// Requests of the poll that is under way.
    outbox: Vec<Request>,
    /// Number of guards that code outside of the engine holds.
    foreign: usize,
}

impl BodyLink {
    pub(crate) fn new(mailbox: &Arc<Mailbox>) -> Arc<Self> {
        Arc::new(Self { mailbox: Arc::clone(mailbox), state: Mutex::default() })
    }

    /// Sends a request: with the report of the poll that is under way, else at once.
    pub(crate) fn send(&self, request: Request) {
        let mut state = lock(&self.state);
        match state.progress.is_polled() {
            true => state.outbox.push(request),
            false => self.mailbox.put(&mut vec![request]),
        }
    }

    pub(crate) fn begin_poll(&self) {
        lock(&self.state).progress.begin_poll();
    }

    /// Ends a poll: its requests, with the last one if the body returned, and then the report reach the turn.
    pub(crate) fn report(&self, last: Option<Request>) {
        let mut state = lock(&self.state);
        let mut requests = std::mem::take(&mut state.outbox);
        requests.extend(last);
        self.mailbox.put(&mut requests);
        state.progress.report();
        drop(state);
        self.mailbox.wake();
    }

    /// Counts a reply to the body; returns its number.
    pub(crate) fn reply(&self) -> u64 {
        lock(&self.state).progress.reply()
    }

    /// Whether the turn has replied to anything yet.
    pub(crate) fn has_replies(&self) -> bool {
        lock(&self.state).progress.replies() > 0
    }

    pub(crate) fn has_seen(&self, reply: u64) -> bool {
        lock(&self.state).progress.has_seen(reply)
    }

    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.state).progress.is_idle()
    }

    /// Keeps the body from counting as idle until the result is dropped.
    pub(crate) fn hold(self: &Arc<Self>) -> Elsewhere {
        lock(&self.state).progress.hold();
        Elsewhere { link: Arc::clone(self), is_foreign: false }
    }

    /// The same for code that continues outside of the engine and is expected to ask for something at once.
    pub(crate) fn hold_foreign(self: &Arc<Self>) -> Elsewhere {
        let mut state = lock(&self.state);
        state.progress.hold();
        state.foreign += 1;
        drop(state);
        Elsewhere { link: Arc::clone(self), is_foreign: true }
    }

    /// Whether code outside of the engine has work for the body.
    pub(crate) fn is_foreign(&self) -> bool {
        lock(&self.state).foreign > 0
    }
}

/// Keeps code from counting as idle while it continues somewhere the engine does not see: a request to the store, or the
/// event loop of another language.
///
/// Drop it when that place has nothing left to do for the code: every reply has reached it, and all that it asked for was
/// asked through the context.
#[derive(Debug)]
#[must_use = "code counts as idle again when this is dropped"]
pub struct Elsewhere {
    link: Arc<BodyLink>,
    is_foreign: bool,
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let mut state = lock(&self.link.state);
        state.progress.release();
        state.foreign -= usize::from(self.is_foreign);
        drop(state);
        self.link.mailbox.wake();
    }
}
