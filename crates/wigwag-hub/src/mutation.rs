//! Deliberate bugs: the simulator must find each of them.

/// A deliberate bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mutation {
    /// A sender is told `queued` before its message is stored.
    AnswerBeforeStored,
    /// A stored message is removed when it is handed out, not when it is written.
    RemoveBeforeWritten,
    /// What comes while an address changes hands is not held back.
    NotHeld,
    /// Repeats are not recognised.
    ForgetAnswers,
    /// The time of a message is not looked at when it is written.
    DeliverLate,
    /// What a broken connection took along is forgotten.
    LoseUnwritten,
    /// A subscriber that missed something is not told.
    SilentGap,
    /// As many wait for an actor as come.
    UnboundedQueue,
    /// A put whose outcome nobody knows is made again under another key.
    AnotherKey,
    /// What waits is read while some of it is still being stored.
    LoadDuringPuts,
    /// A reply to an asker that is away is answered `queued` and not stored.
    ReplyNotKept,
    /// A question that was refused still waits for its reply, and its repeats are forgotten when that does not come.
    WaitOutlivesRefusal,
    /// A repeat of a message that expired in the queue is answered `queued`.
    ExpiredStaysQueued,
    /// A message that is tried again gets another id.
    NewIdOnRetry,
    /// Flags in metadata that are neither true nor false are let through.
    LooseFlags,
    /// A repeat is refused because its time is over, although it was answered before.
    TtlBeforeDedup,
    /// One id for two targets counts as one message.
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
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 22] = [
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
    ];
}
