//! The same seed gives the same trace; fixed seeds keep every guarantee, also seeds that violated one before; and
//! deliberate bugs are found.
#![expect(clippy::print_stdout, reason = "failures are printed")]

use wigwag_core::mutation::Mutation;
use wigwag_sim::{Counts, Ingredient, LimitsChoice, Options, shrink, simulate};

fn keeps(options: &Options) -> Counts {
    let outcome = simulate(options);
    assert!(outcome.broken.is_empty(), "{:#?}\nagain: {}", outcome.broken, options.command());
    outcome.counts
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for (seed, limits) in [0, 1, 6_296, 6_297].into_iter().zip([LimitsChoice::Real, LimitsChoice::Drawn].repeat(2)) {
        let options = Options::seed(seed).limits(limits).traced();
        let (once, again) = (simulate(&options), simulate(&options));
        assert!(once.trace == again.trace && once.logs == again.logs, "seed {seed}");
        assert!(once.counts.operations > 100, "seed {seed} does something: {:?}", once.counts);
    }
}

/// Each seed found a bug, which is fixed. The world of a seed changes with the simulator: then the sentence stays, and the
/// deliberate bug with the same effect (below) keeps the test.
#[test]
fn seeds_that_broke_a_promise_keep_it() {
    let seeds = [
        (
            52,
            "the outcome of a signal that a `latest` wait superseded, in a function that then waited for it as a queue",
        ),
        (
            1_188,
            "a worker that was suspended while its entry was written started a step that another worker had completed",
        ),
        (3_215, "a scan of the inboxes took seconds, and the timeout after it was recorded with the time before it"),
        (986, "a wait timed out while steps of the same entry started, and was compensated before they had run"),
        (836, "each late note read the whole log: many of them on a slow store took longer than the lease, every time"),
        (
            2_639,
            "a late note for one of several racing waits let all of them time out before its inbox was scanned again",
        ),
        (6_296, "a sender whose clock is behind the cursor gave two signals the same stamp"),
        (163, "a worker that completed an end removed the run from `live/` after it had been restarted"),
        (135, "a run that was restarted from its start followed the old code's definition, and paused because of that"),
        (232, "retention removed a run that was being restarted"),
        (123, "a slow sender mistook a run that retention had removed for an unchanged one, and acknowledged"),
        (213, "the outcome of a signal that a `latest` wait superseded, once its run was restarted"),
        (285, "a run that had ended was put back into `live/` by a process that had read it before"),
        (1_289, "a run that was compensating could not be read once its steps had left the snapshot"),
        (1_360, "a sender that was slow to read mistook a run that retention had removed for an unchanged one"),
        (5_501, "retention removed a child whose worker had died before it woke the parent"),
        (
            4_447,
            "a worker started steps that another worker had recorded, because the machine's clock was set past its lease",
        ),
        (18_769, "the same in a function, whose steps start in another way"),
        (
            16_173,
            "a worker whose answer was late deleted the wake-ups of workers that had continued the run it had parked",
        ),
        (
            8_201,
            "the clock was set forward between the stamp of a signal and its put, and readers had passed its position",
        ),
        (3_388, "a restarted run skipped a signal that a slow sender had announced as late before it ended"),
        (17_336, "retention removed a run by the index entry of an earlier end, before its last end was reported"),
        (2_443, "after a lost answer an old snapshot was written over a newer one"),
        (1_213, "a child whose parent retention had removed could not complete its end"),
        (1_652, "the failure of a dispatched step that pauses the run was recorded repeatedly"),
        (2_530, "a task that its run never recorded ran a step that the run itself had already run"),
    ];
    for (seed, what) in seeds {
        println!("{seed}: {what}");
        keeps(&Options::seed(seed));
    }
    let with_real_limits = [
        (8_131, "an engine that stopped waited without end for code that no longer ran to consume a signal"),
        (13_390, "a run restarted under new code kept a step that the code no longer had, and no migration fitted it"),
        (
            15_812,
            "a sender whose estimate of the store's time became less certain stamped its signal before signals that it had not listed",
        ),
        (42_456, "a restarted function waited for tasks of a fan-out that were never started"),
        (676, "a worker that died before the snapshot of a parked run left closed waits in lists"),
        (1_200, "the same for the waits of a child"),
    ];
    for (seed, what) in with_real_limits {
        println!("{seed}: {what}");
        keeps(&Options::seed(seed).limits(LimitsChoice::Real));
    }
}

#[test]
fn seeds_that_broke_a_promise_with_small_limits_keep_it() {
    let with_small_limits = [
        (18_820, "retention deleted more objects of a run with one batch than a batch may have operations"),
        (83, "a batch without room for all deletes left out an index object, and its worker died before it followed"),
    ];
    for (seed, what) in with_small_limits {
        println!("{seed}: {what}");
        keeps(&Options::seed(seed).limits(LimitsChoice::Drawn));
    }
}

/// Simulates a quarter of several hundred worlds; four tests run in parallel. `WIGWAG_SEEDS`, `WIGWAG_SEED` and
/// `WIGWAG_LIMITS` select other worlds.
fn a_quarter(number: u64) {
    let count = |name, default| std::env::var(name).ok().and_then(|count| count.parse().ok()).unwrap_or(default);
    let (first, seeds): (u64, u64) = (count("WIGWAG_SEED", 0), count("WIGWAG_SEEDS", 400) / 4);
    let limits = std::env::var("WIGWAG_LIMITS").ok().map(|limits| limits.parse::<LimitsChoice>());
    let limits = limits.transpose().unwrap_or_else(|error| panic!("WIGWAG_LIMITS: {error}")).unwrap_or_default();
    let mut counts = Counts::default();
    for seed in first + number * seeds..first + (number + 1) * seeds {
        counts += keeps(&Options::seed(seed).limits(limits));
    }
    println!("{counts}");
    let Counts { signals, deaths, restarts, migrations, removed, clock_steps, controls, .. } = counts;
    let happened = [signals, deaths, restarts, migrations, removed, clock_steps, controls];
    assert!(seeds < 100 || happened.iter().all(|count| *count > 0), "all of it happens: {counts}");
}

#[test]
fn worlds_keep_every_promise_first_quarter() {
    a_quarter(0);
}

#[test]
fn worlds_keep_every_promise_second_quarter() {
    a_quarter(1);
}

#[test]
fn worlds_keep_every_promise_third_quarter() {
    a_quarter(2);
}

#[test]
fn worlds_keep_every_promise_last_quarter() {
    a_quarter(3);
}

/// A seed that catches each deliberate bug, as in the table of `docs/internals/simulator.md`. When the simulator changes, the
/// seeds change: `cargo run --release -p wigwag-sim -- --mutations` finds new ones.
const CAUGHT: [(Mutation, u64); 35] = [
    (Mutation::SkipSecondLook, 48),
    (Mutation::NoReadBack, 10),
    (Mutation::TimeoutBeforeSignal, 3),
    (Mutation::TimeoutWithoutLook, 70),
    (Mutation::HintDeletedEarly, 33),
    (Mutation::LeaseIgnored, 0),
    (Mutation::ParkWithoutHint, 0),
    (Mutation::ClaimWithoutHint, 11),
    (Mutation::DedupForgotten, 0),
    (Mutation::LookBackOff, 111),
    (Mutation::CursorPassesUnconsumed, 3),
    (Mutation::FloorGoesBack, 3),
    (Mutation::SignalWithoutHint, 1),
    (Mutation::TakenOutOfTurn, 97),
    (Mutation::SenderReadsOnce, 108),
    (Mutation::NoLateNote, 162),
    (Mutation::KeyIgnored, 0),
    (Mutation::AckOnUnknown, 11),
    (Mutation::RecordedUnheard, 40),
    (Mutation::LosersStayOpen, 0),
    (Mutation::UndoneInOrder, 11),
    (Mutation::SleepsEndEarly, 1),
    (Mutation::ParentNotWoken, 0),
    (Mutation::IndexNotLeft, 1),
    (Mutation::LiveNotLeft, 1),
    (Mutation::RecordForgotten, 0),
    (Mutation::LateSnapshot, 38),
    (Mutation::PruneWithoutFence, 19),
    (Mutation::PruneWithoutTombstone, 28),
    (Mutation::StartBeforeHint, 44),
    (Mutation::EndAfterHint, 44),
    (Mutation::EndOverRestart, 27),
    (Mutation::RestartKeepsDefinition, 570),
    (Mutation::RolledForgotten, 14),
    (Mutation::CodeBeforeClaim, 47),
];

/// Too rare for the simulator: a test of the engine catches the first, and the scenarios in `rare_bugs.rs` catch the others.
const NOT_CAUGHT: [Mutation; 4] = [
    Mutation::PruneBeforeReport,
    Mutation::SlowSenderTrusts,
    Mutation::RepeatedAfterLanding,
    Mutation::ZombieMayFinish,
];

#[test]
fn every_deliberate_bug_is_caught() {
    let is_noted = |one: &Mutation| NOT_CAUGHT.contains(one) || CAUGHT.iter().any(|(known, _)| known == one);
    let missing: Vec<_> = Mutation::ALL.iter().filter(|one| !is_noted(one)).collect();
    assert!(missing.is_empty(), "no seed is noted for {missing:?}");
    let is_missed =
        |(mutation, seed): &(Mutation, u64)| simulate(&Options::seed(*seed).mutated(*mutation)).broken.is_empty();
    let missed: Vec<_> = CAUGHT.into_iter().filter(is_missed).collect();
    for (mutation, _) in &missed {
        let other = (0..400).find(|seed| !is_missed(&(*mutation, *seed)));
        println!("{mutation:?}: the first seed that catches it now is {other:?}");
    }
    assert!(missed.is_empty(), "no longer caught by their seeds: {missed:?}");
}

#[test]
fn a_world_that_breaks_a_promise_is_made_smaller_and_still_breaks_it() {
    let options = Options::seed(0).mutated(Mutation::ParkWithoutHint);
    let outcome = simulate(&options);
    let wanted = outcome.broken[0].promise;
    let (smaller, outcome) = shrink(options, outcome);
    assert!(smaller.without.len() > 10, "most of it is not needed: {}", smaller.command());
    assert!(outcome.broken.iter().any(|breach| breach.promise == wanted), "{}", smaller.command());
    let again = "cargo run --release -p wigwag-sim -- --seed 0 --limits drawn --mutation ParkWithoutHint --trouble ";
    assert!(smaller.command().starts_with(again), "{}", smaller.command());
    let names: Vec<String> = Ingredient::all().map(|ingredient| ingredient.to_string()).collect();
    assert!(names.iter().all(|name| name.parse::<Ingredient>().is_ok_and(|parsed| parsed.to_string() == *name)));
    assert!("gremlins".parse::<Ingredient>().unwrap_err().contains("no world has `gremlins`; leave out any of: run-0"));
}
