//! `wigwag-sim`: simulates worlds and says which promises were broken, and how to see it again.
#![expect(clippy::print_stdout, reason = "it tells what it found")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::Parser;
use wigwag_core::mutation::Mutation;
use wigwag_sim::{Options, Outcome, simulate};

/// Breaks the real engine on a simulated store, clock and network
#[derive(Debug, Parser)]
struct Args {
    /// How many seeds to try
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Only this one, with its trace
    #[arg(long, conflicts_with_all = ["seeds", "first"])]
    seed: Option<u64>,
    /// With this deliberate bug in the engine
    #[arg(long)]
    mutation: Option<String>,
    /// Try every deliberate bug on the seeds, and say which were caught
    #[arg(long)]
    mutations: bool,
    /// How many at once
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn main() -> ExitCode {
    let args = Args::parse();
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
        let outcome = simulate(Options { seed, mutation });
        println!("{}\n{}", outcome.trace, outcome.logs);
        return report(&[(seed, outcome)]);
    }
    let next = AtomicU64::new(args.first);
    let end = args.first + args.seeds;
    let broken = Mutex::new(Vec::new());
    let totals = Mutex::new((0, 0, 0, 0));
    std::thread::scope(|scope| {
        for _ in 0..args.threads.max(1) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let outcome = simulate(Options { seed, mutation });
                    let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
                    let counts = outcome.counts;
                    totals.0 += counts.runs;
                    totals.1 += counts.signals;
                    totals.2 += counts.deaths;
                    totals.3 += counts.operations;
                    if !outcome.broken.is_empty() {
                        broken.lock().unwrap_or_else(PoisonError::into_inner).push((seed, outcome));
                    }
                }
            });
        }
    });
    let (runs, signals, deaths, operations) = totals.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{} seeds: {runs} runs, {signals} signals, {deaths} deaths, {operations} operations", args.seeds);
    let mut broken = broken.into_inner().unwrap_or_else(PoisonError::into_inner);
    broken.sort_by_key(|(seed, _)| *seed);
    report(&broken)
}

fn named(name: &str) -> Result<Mutation, String> {
    let known = Mutation::ALL.iter().find(|mutation| format!("{mutation:?}") == name);
    known.copied().ok_or_else(|| format!("no deliberate bug is called `{name}`; there are: {:?}", Mutation::ALL))
}

/// Tries every deliberate bug: all must be caught.
fn table(args: &Args) -> ExitCode {
    println!("| deliberate bug | what is wrong | caught in | the first time by |\n|---|---|---|---|");
    let mut missed = 0;
    for mutation in Mutation::ALL.iter().copied() {
        let seeds = args.first..args.first + args.seeds;
        let outcomes = seeds.map(|seed| simulate(Options { seed, mutation: Some(mutation) }).broken);
        let caught: Vec<Vec<String>> = outcomes.filter(|broken| !broken.is_empty()).collect();
        let first: String = caught.first().map_or_else(String::new, |broken| broken[0].chars().take(90).collect());
        missed += usize::from(caught.is_empty());
        println!("| `{mutation:?}` | {} | {} of {} | {first} |", mutation.what().trim(), caught.len(), args.seeds);
    }
    println!("\n{missed} were not caught");
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn report(outcomes: &[(u64, Outcome)]) -> ExitCode {
    let broken = outcomes.iter().filter(|(_, outcome)| !outcome.broken.is_empty());
    let mut count = 0;
    for (seed, outcome) in broken {
        count += 1;
        println!("seed {seed}:");
        for what in &outcome.broken {
            println!("  {what}");
        }
        println!("  again: cargo run --release -p wigwag-sim -- --seed {seed}");
    }
    println!("{count} seeds broke a promise");
    if count == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
