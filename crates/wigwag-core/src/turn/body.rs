//! The protocol between a turn and one body, a piece of users' code: a function, a step, or a compensation.
//!
//! The turn numbers its replies to a body. A body reports after every poll: the number of replies that were there when
//! the poll began, and whether it continues on its own (a store request, another event loop). The requests of a poll reach
//! the turn before its report. A body is idle once it has seen every reply and continues nothing on its own: then, and
//! only then, no progress is possible before the turn replies again, and the turn may park the run or choose its next
//! offer for the body.
//!
//! Code that runs outside tokio, in the event loop of another language, keeps the same protocol: it holds the body busy
//! while its own loop has work for it, and reports when that loop is idle.

/// State of the protocol with one body. Both sides share it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Number of replies so far.
    replies: u64,
    /// Number of things that the body continues on its own.
    holds: usize,
    poll: Poll,
}

/// Progress of a body's polls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Poll {
    /// The body was not polled yet.
    #[default]
    Unstarted,
    /// A poll is under way, which sees the replies up to `sees`; the one before it saw those up to `seen`.
    Active { sees: u64, seen: Option<u64> },
    /// The last poll has ended, and saw the replies up to this number.
    Reported { seen: u64 },
}

impl Progress {
    /// Counts a reply; returns its number.
    pub fn reply(&mut self) -> u64 {
        self.replies += 1;
        self.replies
    }

    /// Number of replies so far.
    #[must_use]
    pub fn replies(&self) -> u64 {
        self.replies
    }

    /// Starts a poll: it sees all replies so far.
    pub fn begin_poll(&mut self) {
        self.poll = Poll::Active { sees: self.replies, seen: self.seen() };
    }

    /// Ends a poll with the body's report.
    pub fn report(&mut self) {
        if let Poll::Active { sees, .. } = self.poll {
            self.poll = Poll::Reported { seen: sees };
        }
    }

    /// Whether a poll is under way: what the body requests now belongs to its next report.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        matches!(self.poll, Poll::Active { .. })
    }

    /// Starts an operation that the body continues without the turn.
    pub fn hold(&mut self) {
        self.holds += 1;
    }

    /// Ends something that the body continued on its own.
    pub fn release(&mut self) {
        self.holds = self.holds.saturating_sub(1);
    }

    /// Whether a poll that saw this reply has ended.
    #[must_use]
    pub fn has_seen(&self, reply: u64) -> bool {
        self.seen().is_some_and(|seen| seen >= reply)
    }

    fn seen(&self) -> Option<u64> {
        match self.poll {
            Poll::Unstarted => None,
            Poll::Active { seen, .. } => seen,
            Poll::Reported { seen } => Some(seen),
        }
    }

    /// Whether nothing changes before the turn replies: the body has seen every reply, and continues nothing on its own.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.holds == 0 && self.poll == Poll::Reported { seen: self.replies }
    }
}
