//! The hub in the simulator: fixed seeds keep guarantee 15, the same seed gives the same trace, and deliberate bugs are found.

use wigwag_hub::mutation::Mutation;
use wigwag_sim::simulate_hub;

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [0, 1, 990] {
        let (once, again) = (simulate_hub(seed, None), simulate_hub(seed, None));
        assert!(once.trace == again.trace, "seed {seed}");
        assert!(once.operations > 20 && once.cuts > 5, "seed {seed} does something");
    }
}

#[test]
fn fixed_seeds_keep_every_promise() {
    for seed in 0..300 {
        let outcome = simulate_hub(seed, None);
        assert!(outcome.broken.is_empty(), "seed {seed}: {:#?}", outcome.broken);
    }
}

/// Seeds that found bugs, which are fixed. Worlds have changed since; the seeds stay as ordinary ones.
#[test]
fn seeds_that_broke_a_promise_keep_it() {
    let seeds = [
        (990, "undelivered messages of a session were delivered after newer ones when its address was taken over"),
        (938, "the hub died while two messages were being stored, and only the later one was"),
        (24, "a duplicate that arrived while the queue was read was delivered under another id"),
        (1534, "a stale copy of a delivered message expired, and its sender got `message_expired`"),
        (2184, "another server delivered a message between the listing and the reading of its queue"),
        (2546, "a retry of a reply whose put had failed was stored twice"),
        (3844, "a message under the key of a failed put was delivered after its time to live"),
        (4635, "another server expired a queue that it is not responsible for, and duplicates were answered `queued`"),
        (8310, "the same before the server had read the takeover notice"),
    ];
    for (seed, what) in seeds {
        let outcome = simulate_hub(seed, None);
        assert!(outcome.broken.is_empty(), "seed {seed} ({what}): {:#?}", outcome.broken);
    }
}

/// For each deliberate bug, a seed that catches it.
const CAUGHT: [(Mutation, u64); 25] = [
    (Mutation::AnswerBeforeStored, 3),
    (Mutation::RemoveBeforeWritten, 0),
    (Mutation::NotHeld, 2),
    (Mutation::ForgetAnswers, 0),
    (Mutation::DeliverLate, 7),
    (Mutation::LoseUnwritten, 0),
    (Mutation::SilentGap, 3),
    (Mutation::UnboundedQueue, 59),
    (Mutation::AnotherKey, 49),
    (Mutation::LoadDuringPuts, 17),
    (Mutation::ReplyNotKept, 0),
    (Mutation::WaitOutlivesRefusal, 8),
    (Mutation::ExpiredStaysQueued, 12),
    (Mutation::NewIdOnRetry, 1),
    (Mutation::LooseFlags, 0),
    (Mutation::TtlBeforeDedup, 4),
    (Mutation::NoConflict, 4),
    (Mutation::SeenNotStored, 1),
    (Mutation::TakenNotTold, 27),
    (Mutation::QueueForElsewhere, 1),
    (Mutation::NeverSwept, 0),
    (Mutation::ReplayAndCopy, 0),
    (Mutation::LateAckIgnored, 9),
    (Mutation::ProgressIgnored, 9),
    (Mutation::StaleQueueFull, 727),
];

#[test]
fn each_deliberate_bug_is_caught_by_its_seed_and_without_it_the_seed_keeps_every_promise() {
    assert_eq!(CAUGHT.map(|(mutation, _)| mutation), Mutation::ALL);
    for (mutation, seed) in CAUGHT {
        assert!(!simulate_hub(seed, Some(mutation)).broken.is_empty(), "{mutation:?} passes with seed {seed}");
        assert!(simulate_hub(seed, None).broken.is_empty(), "seed {seed}");
    }
}
