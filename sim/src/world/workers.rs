//! Workers that die, stop and restart with other code; the sweeper, retention, and changes of the clock.

use std::future::Future;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use wigwag::{Engine, PruneOptions, Settings};
use wigwag_core::audit::{Breach, Promise};

use super::{LEASE, REST, Worker, World};
use crate::code::{Code, Equipment, equip};
use crate::options::Ingredient;
use crate::store::Process;

/// A run that workers read this often in the calm phase without appending an entry is stuck.
const VISITS_IN_VAIN_MAX: u32 = 200;

/// An error that a run meets this often in the calm phase is permanent.
const SAME_ERRORS_MAX: usize = 2;

impl World {
    /// Returns the code version of a worker at this time.
    pub(super) fn code(&self, number: usize) -> Code {
        match self.style.deploy_at {
            Some((at, stagger)) if self.clock.elapsed() >= at + stagger * u32::try_from(number).unwrap_or(0) => {
                Code::New
            }
            _ => Code::Old,
        }
    }

    /// Whether this is the period without workers.
    fn is_absent(&self) -> bool {
        let now = self.clock.elapsed();
        self.style.absence.is_some_and(|(from, to)| (from..to).contains(&now)) && self.is_troubled()
    }

    /// A worker's machine: whenever the worker dies, another one is started after a delay.
    pub(super) async fn keep_worker(self, number: usize) {
        let mut chance = self.chance(100 + number as u64);
        for generation in 0_u64.. {
            while self.is_absent() {
                self.pass(chance.u64(300..3_000)).await;
            }
            let name = format!("w{number}g{generation}");
            let is_mortal = self.is_troubled() && !self.style.peaceful;
            let process = if is_mortal { Process::mortal(name) } else { Process::immortal(name) };
            let code = self.code(number);
            let engine = self.start_worker(&process, number, generation, code).await;
            while engine.is_some() && !process.is_dead() && code == self.code(number) && !self.is_absent() {
                self.pass(if self.is_troubled() { 100 } else { 10_000 }).await;
                self.happen_to(&process, &mut chance);
            }
            // New code is deployed with or without a graceful stop.
            let stops = chance.bool() || self.style.peaceful;
            if let Some(engine) = engine.filter(|_| !process.is_dead() && stops) {
                let _ = self.unless_dead(&process, engine.stop()).await;
            }
            process.kill();
            self.known().counts.deaths += 1;
            self.pass(chance.u64(50..3_000)).await;
        }
    }

    pub(super) async fn start_worker(
        &self,
        process: &Arc<Process>,
        number: usize,
        generation: u64,
        code: Code,
    ) -> Option<Engine> {
        let store = self.store(process, 1_000 + number as u64 * 100 + generation, false);
        let mut settings = Settings::default();
        settings.lease = LEASE;
        // The sweeper would repair violations that must be detected.
        settings.sweep_every = None;
        let builder = self.builder(store).settings(settings);
        let (seed, wide) = (self.options.seed, self.style.wide);
        let equipment = Equipment { seed, code, wide, has_all_code: number == 0 };
        let starting = equip(builder, &self.ledger, equipment).start();
        let engine = self.unless_dead(process, starting).await.and_then(Result::ok)?;
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        workers.retain(|(process, _)| !process.is_dead());
        workers.push((Arc::clone(process), engine.client()));
        Some(engine)
    }

    fn happen_to(&self, process: &Process, chance: &mut fastrand::Rng) {
        if !self.is_troubled() {
            return;
        }
        let drawn = chance.u32(..2_000);
        let for_long = Duration::from_secs(chance.u64(1..20));
        match drawn {
            0..6 if self.has(Ingredient::Deaths) => process.kill(),
            // Suspends the machine until after the lease.
            6..14 if self.has(Ingredient::Stalls) => process.stall(self.clock.elapsed() + for_long),
            _ => {}
        }
    }

    pub(super) async fn unless_dead<T>(&self, process: &Process, what: impl Future<Output = T>) -> Option<T> {
        let death = async {
            while !process.is_dead() {
                self.pass(50).await;
            }
        };
        tokio::select! {
            biased;
            done = what => Some(done),
            () = death => None,
        }
    }

    /// Returns a living worker and its client.
    pub(super) fn worker(&self, chance: &mut fastrand::Rng) -> Option<Worker> {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let living: Vec<_> = workers.iter().filter(|(process, _)| !process.is_dead()).collect();
        (!living.is_empty()).then(|| living[chance.usize(..living.len())].clone())
    }

    /// Sets the machine's clock from time to time.
    pub(super) async fn set_the_clock(self) {
        let mut chance = self.chance(7);
        while self.is_troubled() {
            self.pass(chance.u64(2_000..30_000)).await;
            self.clock.set_by(chance.i64(-30_000_000..30_000_000));
            self.known().counts.clock_steps += 1;
        }
    }

    /// Runs the sweeper and retention far more often than in production.
    pub(super) async fn keep_house(self) {
        let mut chance = self.chance(8);
        let age = Duration::from_secs(chance.u64(..40));
        loop {
            self.pass(chance.u64(1_000..20_000) * if self.is_troubled() { 1 } else { 10 }).await;
            let client = self.client("house", 9).await;
            if self.style.sweeper && self.is_troubled() {
                let _ = client.sweep(false).await;
            }
            if self.style.retention && self.clock.elapsed() < self.trouble() + REST / 2 {
                let _ = client.prune(&PruneOptions::older_than(age)).await;
            }
        }
    }

    /// Returns turns that were rejected repeatedly, and runs that were read repeatedly, in the calm phase.
    pub(super) fn efforts_in_vain(&self) -> Vec<Breach> {
        // Effects of the faulty phase have a minute to end.
        let since = self.trouble() + Duration::from_secs(60);
        let excesses = format!("; {:?}", self.network.watch.excesses());
        let refused = self.warnings.repeated(since, SAME_ERRORS_MAX, &self.network.watch.stopped()).into_iter().map(
            |(warning, times)| {
                let (run, error) = (&warning.run, &warning.error);
                // Errors of drawn limits have a generic text.
                let excesses = if error.contains("made by a test") { &excesses[..] } else { "" };
                format!(
                    "`{run}` was refused {times} times for the same reason, first at {:?}: {error}{excesses}",
                    warning.at
                )
            },
        );
        let visited = self.network.watch.visited_in_vain(VISITS_IN_VAIN_MAX).into_iter();
        let visited = visited.map(|(run, times)| format!("`{run}` was visited {times} times, and did not move"));
        refused.chain(visited).map(|what| Breach::new(Promise::WokenUp, what)).collect()
    }
}
