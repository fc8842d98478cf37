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
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 10] = [
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
    ];
}
