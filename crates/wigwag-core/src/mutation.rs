//! Deliberate bugs for the simulator to find, switched on one at a time for each thread.
//!
//! This module exists only with the feature `deliberate-bugs`. Product code names a bug with
//! [`deliberate_bug!`](crate::deliberate_bug), which is the literal `false` without the feature.

use std::cell::Cell;

macro_rules! mutations {
    ($($(#[doc = $doc:literal])* $name:ident,)*) => {
        /// A deliberate bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutation {
            $($(#[doc = $doc])* $name,)*
        }

        impl Mutation {
            /// Every deliberate bug.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Describes the wrong behaviour.
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
    /// The inboxes are not scanned again after the run was parked.
    SkipSecondLook,
    /// After a lost response the entry is not read back: it counts as landed.
    NoReadBack,
    /// A wait with a passed deadline times out although its signal was sent in time.
    TimeoutBeforeSignal,
    /// A timeout is recorded after a scan that began before the deadline.
    TimeoutWithoutLook,
    /// The wake-ups of the previous owner are deleted before the claim.
    HintDeletedEarly,
    /// A worker continues after its lease expired.
    ZombieMayFinish,
    /// Runs are claimed although another holds the lease.
    LeaseIgnored,
    /// A parked run has no wake-up.
    ParkWithoutHint,
    /// The wake-up at the end of a lease is not written.
    ClaimWithoutHint,
    /// A consumed signal is offered again.
    DedupForgotten,
    /// An inbox scan does not overlap the previous scan.
    LookBackOff,
    /// The cursor passes signals that no wait consumed.
    CursorPassesUnconsumed,
    /// The floor of an inbox decreases.
    FloorGoesBack,
    /// The sender writes no wake-up.
    SignalWithoutHint,
    /// A signal is consumed by the commit that stores it, even if older signals are buffered.
    TakenOutOfTurn,
    /// The sender does not read the run again after its signal is there.
    SenderReadsOnce,
    /// A slow sender adds no late note.
    NoLateNote,
    /// An idempotency key is ignored.
    KeyIgnored,
    /// A signal is acknowledged although it may not be stored.
    AckOnUnknown,
    /// A handler is called with a signal, and the consumption is recorded even if the call did not finish.
    RecordedUnheard,
    /// The losers of a race stay open.
    LosersStayOpen,
    /// Completed steps are compensated in order of completion.
    UndoneInOrder,
    /// Sleeps are over a second early.
    SleepsEndEarly,
    /// A child's end does not wake its parent.
    ParentNotWoken,
    /// A wait that is over stays in the index.
    IndexNotLeft,
    /// A run that ended stays in the index of live runs.
    LiveNotLeft,
    /// Recorded steps run again after a takeover.
    RecordForgotten,
    /// A snapshot is written unconditionally: an old one replaces a newer one.
    LateSnapshot,
    /// Retention removes a run during its restart.
    PruneWithoutFence,
    /// Retention removes entry 1 with the rest, so that the id is free at once.
    PruneWithoutTombstone,
    /// A run is created before its wake-up.
    StartBeforeHint,
    /// The lease's wake-up is deleted before the end is complete.
    EndAfterHint,
    /// The code that completes the end of a run does not check for a restart in between.
    EndOverRestart,
    /// A restarted run follows the old code's definition.
    RestartKeepsDefinition,
    /// A slow sender does not reread the run, and mistakes a removed run for an unchanged one.
    SlowSenderTrusts,
    /// After a lost response all writes of an entry's batch are repeated, although they landed.
    RepeatedAfterLanding,
    /// A log is folded without the settled steps outside the snapshot, although its entries refer to them.
    RolledForgotten,
    /// Retention removes a child before its end was reported to the parent.
    PruneBeforeReport,
    /// Code that changes a run's data is called before the claim is durable, by every worker that races for it.
    CodeBeforeClaim,
}

thread_local! {
    static ACTIVE: Cell<Option<Mutation>> = const { Cell::new(None) };
}

/// Switches one deliberate bug on for this thread, or all off.
pub fn mutate(mutation: Option<Mutation>) {
    ACTIVE.set(mutation);
}

/// Returns whether this deliberate bug is on in this thread.
#[must_use]
pub fn is_mutated(mutation: Mutation) -> bool {
    ACTIVE.get() == Some(mutation)
}
