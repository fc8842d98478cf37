//! `wigwag-sim`: simulates worlds, and prints violated guarantees with the commands that reproduce them.
#![expect(clippy::print_stdout, reason = "the results are its output")]

mod hub_main;

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use wigwag_core::mutation::Mutation;
use wigwag_sim::{Counts, Ingredient, LimitsChoice, Options, Outcome, shrink, simulate};

/// Tests the real engine on a simulated store, clock and network
#[derive(Debug, Parser)]
struct Args {
    /// Number of seeds
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// First seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Simulate only this seed, and print its trace
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// Enable this deliberate bug in the engine
    #[arg(long)]
    mutation: Option<String>,
    /// With `--seed`: leave out these ingredients of the world, such as `deaths,run-2`
    #[arg(long, value_delimiter = ',', requires = "seed")]
    without: Vec<Ingredient>,
    /// With `--seed`: length of the faulty phase in seconds
    #[arg(long, default_value_t = 60, requires = "seed")]
    trouble: u64,
    /// Size of the engine's limits: drawn from the seed, those of production builds, or a mix of both
    #[arg(long, default_value_t = LimitsChoice::Mixed)]
    limits: LimitsChoice,
    /// Test every deliberate bug on the seeds, and print which ones were caught
    #[arg(long)]
    mutations: bool,
    /// Number of failing worlds to shrink; each takes some seconds
    #[arg(long, default_value_t = 3)]
    shrink: usize,
    /// Number of violations to show for each failing world
    #[arg(long, default_value_t = 5)]
    show: usize,
    /// Number of threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Simulate the hub instead of the engine
    #[arg(long, conflicts_with = "without")]
    hub: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.hub {
        return hub_main::run(&args);
    }
    if args.mutations {
        return table(&args);
    }
    let mutation = match args.mutation.as_deref().map(named).transpose() {
        Ok(mutation) => mutation,
        Err(what) => {
            println!("{what}");
            return ExitCode::from(2);
        }
    };
    if let Some(seed) = args.seed {
        let mut options = Options::seed(seed).mutated(mutation).limits(args.limits).traced();
        options.without = args.without.iter().copied().collect();
        options.trouble = Duration::from_secs(args.trouble);
        let outcome = simulate(&options);
        println!("{}\n{}", outcome.trace, outcome.logs);
        return report(vec![(options, outcome)], &args);
    }
    let (broken, counts) = simulate_all(&args, mutation);
    println!("{} seeds: {counts}", args.seeds);
    report(broken, &args)
}

/// Simulates all seeds in several threads. Returns the seeds that violate a guarantee.
fn simulate_all(args: &Args, mutation: Option<Mutation>) -> (Vec<(Options, Outcome)>, Counts) {
    let next = AtomicU64::new(args.first);
    let end = args.first + args.seeds;
    let found = Mutex::new((Vec::new(), Counts::default()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return;
            }
            let options = Options::seed(seed).mutated(mutation).limits(args.limits);
            let outcome = simulate(&options);
            let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
            found.1 += outcome.counts;
            if !outcome.broken.is_empty() {
                found.0.push((options, outcome));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..args.threads.max(1) {
            scope.spawn(work);
        }
    });
    let (mut broken, counts) = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    broken.sort_by_key(|(options, _)| options.seed);
    (broken, counts)
}

fn named(name: &str) -> Result<Mutation, String> {
    let known = Mutation::ALL.iter().find(|mutation| format!("{mutation:?}") == name);
    known.copied().ok_or_else(|| format!("no deliberate bug is called `{name}`; there are: {:?}", Mutation::ALL))
}

/// Tests every deliberate bug: all must be caught.
fn table(args: &Args) -> ExitCode {
    println!("| deliberate bug | behaviour | caught in | seed | guarantee |\n| --- | --- | --- | --- | --- |");
    let mut missed = 0;
    for mutation in Mutation::ALL.iter().copied() {
        let (caught, _) = simulate_all(args, Some(mutation));
        let first = caught.first().map(|(options, outcome)| (options.seed, outcome.broken[0].promise.number()));
        let (seed, promise) =
            first.map_or_else(Default::default, |(seed, promise)| (seed.to_string(), promise.to_string()));
        missed += usize::from(caught.is_empty());
        let (what, count) = (mutation.what().trim(), caught.len());
        println!("| `{mutation:?}` | {what} | {count} of {} | {seed} | {promise} |", args.seeds);
    }
    println!("\n{missed} of {} were not caught", Mutation::ALL.len());
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(broken: Vec<(Options, Outcome)>, args: &Args) -> ExitCode {
    let mut count = 0;
    for (options, outcome) in broken.into_iter().filter(|(_, outcome)| !outcome.broken.is_empty()) {
        count += 1;
        println!("seed {}:", options.seed);
        for breach in outcome.broken.iter().take(args.show) {
            println!("  {breach}");
        }
        println!("  again:   {}", options.command());
        if count <= args.shrink {
            println!("  smaller: {}", shrink(options, outcome).0.command());
        }
    }
    println!("{count} seeds broke a promise");
    if count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
