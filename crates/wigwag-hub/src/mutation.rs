//! Deliberate bugs for the simulator to find, switched on one at a time for each thread.
//!
//! This module exists only with the feature `deliberate-bugs`. Product code names a bug with `deliberate_bug!`, which is the
//! literal `false` without the feature.

use std::cell::Cell;

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutation {
    /// A sender gets the answer `queued` before its message is stored.
    AnswerBeforeStored,
    /// A stored message is removed when it is handed to the connection, not when it is written.
    RemoveBeforeWritten,
    /// Messages that arrive while an address changes owner are not held back.
    NotHeld,
    /// Repeats are not recognised.
    ForgetAnswers,
    /// The TTL of a message is not checked when it is written.
    DeliverLate,
    /// Unwritten messages of a broken connection are dropped.
    LoseUnwritten,
    /// A subscriber gets no notice of a gap.
    SilentGap,
    /// The queue of an actor has no limit.
    UnboundedQueue,
    /// A put with an unknown outcome is retried under another key.
    AnotherKey,
    /// A queue is read while messages are still being stored in it.
    LoadDuringPuts,
    /// A reply to an asker that is away gets the answer `queued` but is not stored.
    ReplyNotKept,
    /// A rejected request still waits for a reply, and its repeats are forgotten when that wait times out.
    WaitOutlivesRefusal,
    /// A repeat of a message that expired in the queue gets the answer `queued`.
    ExpiredStaysQueued,
    /// A retried message gets another id.
    NewIdOnRetry,
    /// Metadata flags that are neither true nor false are accepted.
    LooseFlags,
    /// A repeat is rejected because its TTL has passed, although the original was answered.
    TtlBeforeDedup,
    /// One id used for two targets counts as one message.
    NoConflict,
    /// Dedup markers of delivered queue messages are not stored.
    SeenNotStored,
    /// A takeover by another server is ignored.
    TakenNotTold,
    /// Messages are queued for an actor that is connected to another server.
    QueueForElsewhere,
    /// Expired messages and unused addresses stay in the store.
    NeverSwept,
    /// A session that subscribes again during a fan-out gets the message from the history and from the fan-out.
    ReplayAndCopy,
    /// An acknowledgement after its timeout is ignored.
    LateAckIgnored,
    /// A target that reports progress gets no more time.
    ProgressIgnored,
    /// A queue that is full in the cache is not listed again.
    StaleQueueFull,
}

impl Mutation {
    /// Every deliberate bug.
    pub const ALL: [Self; 25] = [
        Self::AnswerBeforeStored,
        Self::RemoveBeforeWritten,
        Self::NotHeld,
        Self::ForgetAnswers,
        Self::DeliverLate,
        Self::LoseUnwritten,
        Self::SilentGap,
        Self::UnboundedQueue,
        Self::AnotherKey,
        Self::LoadDuringPuts,
        Self::ReplyNotKept,
        Self::WaitOutlivesRefusal,
        Self::ExpiredStaysQueued,
        Self::NewIdOnRetry,
        Self::LooseFlags,
        Self::TtlBeforeDedup,
        Self::NoConflict,
        Self::SeenNotStored,
        Self::TakenNotTold,
        Self::QueueForElsewhere,
        Self::NeverSwept,
        Self::ReplayAndCopy,
        Self::LateAckIgnored,
        Self::ProgressIgnored,
        Self::StaleQueueFull,
    ];
}

thread_local! {
    static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
}

/// Activates one deliberate bug for this thread, or deactivates all.
pub fn mutate(mutation: Option<Mutation>) {
    ACTIVE.set(mutation);
}

pub(crate) fn is_mutated(mutation: Mutation) -> bool {
    ACTIVE.get() == Some(mutation)
}
