//! Runs the simulator on the hub.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use wigwag_hub::mutation::Mutation;
use wigwag_sim::{HubOutcome, hub_totals, simulate_hub};

use crate::Args;

pub(crate) fn run(args: &Args) -> ExitCode {
    if args.mutations {
        return table(args);
    }
    let named = |name: &str| Mutation::ALL.into_iter().find(|mutation| format!("{mutation:?}") == name);
    let mutation = match args.mutation.as_deref().map(|name| named(name).ok_or(name)).transpose() {
        Ok(mutation) => mutation,
        Err(name) => {
            println!("no deliberate bug of the hub is called `{name}`; there are: {:?}", Mutation::ALL);
            return ExitCode::from(2);
        }
    };
    if let Some(seed) = args.seed {
        let outcome = simulate_hub(seed, mutation);
        println!("{}", outcome.trace);
        return report(&[(seed, outcome)]);
    }
    let outcomes = all(args, mutation);
    let plain: Vec<HubOutcome> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
    println!("{} seeds of the hub: {:?}", args.seeds, hub_totals(&plain));
    let with_seeds: Vec<(u64, HubOutcome)> = (args.first..).zip(plain).collect();
    report(&with_seeds)
}

/// Simulates all seeds, in order.
fn all(args: &Args, mutation: Option<Mutation>) -> Vec<(u64, HubOutcome)> {
    let (next, found) = (AtomicU64::new(args.first), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= args.first + args.seeds {
                return;
            }
            let mut outcome = simulate_hub(seed, mutation);
            outcome.trace.clear();
            found.lock().unwrap_or_else(PoisonError::into_inner).push((seed, outcome));
        }
    };
    std::thread::scope(|scope| (0..args.threads.max(1)).for_each(|_| _ = scope.spawn(work)));
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(seed, _)| *seed);
    found
}

fn report(outcomes: &[(u64, HubOutcome)]) -> ExitCode {
    let broken: Vec<_> = outcomes.iter().filter(|(_, outcome)| !outcome.broken.is_empty()).collect();
    for (seed, outcome) in &broken {
        println!("seed {seed}:\n  {}", outcome.broken.join("\n  "));
        println!("  again:   cargo run --release -p wigwag-sim -- --hub --seed {seed}");
    }
    println!("{} seeds broke a promise", broken.len());
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn table(args: &Args) -> ExitCode {
    println!("| deliberate bug of the hub | caught in | first seed |\n| --- | --- | --- |");
    let mut missed = 0;
    for mutation in Mutation::ALL {
        let outcomes = all(args, Some(mutation));
        let caught: Vec<u64> =
            outcomes.iter().filter(|(_, outcome)| !outcome.broken.is_empty()).map(|(seed, _)| *seed).collect();
        missed += usize::from(caught.is_empty());
        let first = caught.first().map_or_else(String::new, u64::to_string);
        println!("| `{mutation:?}` | {} of {} | {first} |", caught.len(), args.seeds);
    }
    println!("\n{missed} of {} were not caught", Mutation::ALL.len());
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
