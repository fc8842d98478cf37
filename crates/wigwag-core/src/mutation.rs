//! Deliberate bugs, for the simulator to find: one at a time, by a switch of the thread. Without the feature `testing`
//! there are none.

macro_rules! mutations {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// A deliberate bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutation {
            $($(#[doc = $doc])* $name,)*
        }

        impl Mutation {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What is wrong with it.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),*),)*
                }
            }
        }
    };
}

mutations! {
    /// The inboxes are not looked at again after the run was parked.
    SkipSecondLook,
    /// After a lost answer the entry is not read back: it counts as landed.
    NoReadBack,
    /// A wait whose time is over is timed out although its signal came in time.
    TimeoutBeforeSignal,
    /// A timeout is recorded after a look that began before the deadline.
    TimeoutWithoutLook,
    /// The hints of the previous owner are deleted before the claim.
    HintDeletedEarly,
    /// A worker whose lease is over goes on.
    ZombieMayFinish,
    /// Runs are claimed although another holds the lease.
    LeaseIgnored,
    /// A parked run has no hint.
    ParkWithoutHint,
    /// The hint at the end of a lease is not put.
    ClaimWithoutHint,
    /// What was taken is offered again.
    DedupForgotten,
    /// An inbox is not looked at behind the last look.
    LookBackOff,
    /// The cursor passes signals that nobody took.
    CursorPassesUnconsumed,
    /// The floor of an inbox goes back.
    FloorGoesBack,
    /// The sender puts no hint.
    SignalWithoutHint,
    /// A signal is taken by the commit that brings it, whatever else came before.
    TakenOutOfTurn,
    /// The sender does not read the run again after its signal is there.
    SenderReadsOnce,
    /// A slow sender does not say that it was slow.
    NoLateNote,
    /// An idempotency key is ignored.
    KeyIgnored,
    /// A signal is acknowledged although nobody knows whether it arrived.
    AckOnUnknown,
    /// Code is told of a signal, and that is recorded whether or not it has heard it.
    RecordedUnheard,
    /// Those that lost a race stay open.
    LosersStayOpen,
    /// Completed steps are undone in the order in which they were completed.
    UndoneInOrder,
    /// Sleeps are over a second early.
    SleepsEndEarly,
    /// A child's end does not wake its parent.
    ParentNotWoken,
    /// A wait that is over stays in the index.
    IndexNotLeft,
    /// A run that ended stays in the index of those that have not.
    LiveNotLeft,
    /// Steps that were recorded are run again by whoever takes the run over.
    RecordForgotten,
    /// A snapshot is put whatever is there: an old one replaces a newer one.
    LateSnapshot,
    /// Retention removes a run that somebody is restarting.
    PruneWithoutFence,
    /// Retention removes entry 1 with the rest, so that the id is free at once.
    PruneWithoutTombstone,
    /// A run is created before its hint.
    StartBeforeHint,
    /// The lease's hint goes before the end is complete.
    EndAfterHint,
    /// Whoever completes the end of a run does not look whether it was restarted meanwhile.
    EndOverRestart,
    /// A restarted run follows the old code's definition.
    RestartKeepsDefinition,
    /// A slow sender does not read the run anew, and takes one that was removed for one that has not moved.
    SlowSenderTrusts,
    /// After a lost answer all that went with an entry is written again, though it landed with it.
    RepeatedAfterLanding,
    /// A log is folded on without the points that left the snapshot, though it goes back to them.
    RolledForgotten,
    /// Retention takes a child before its parent was told of its end.
    PruneBeforeReport,
    /// Code that changes a run's data is called before the claim is durable, by every worker that races for it.
    CodeBeforeClaim,
}

#[cfg(feature = "testing")]
mod switch {
    use std::cell::Cell;

    use super::Mutation;

    thread_local! {
        static ON: Cell<Option<Mutation>> = const { Cell::new(None) };
    }

    /// Turns one on for this thread, or all off.
    pub fn mutate(mutation: Option<Mutation>) {
        ON.set(mutation);
    }

    /// Whether it is on.
    #[must_use]
    pub fn is_mutated(mutation: Mutation) -> bool {
        ON.get() == Some(mutation)
    }
}

#[cfg(feature = "testing")]
pub use switch::{is_mutated, mutate};

/// Whether it is on: never.
#[cfg(not(feature = "testing"))]
#[must_use]
#[inline]
pub const fn is_mutated(_: Mutation) -> bool {
    false
}
