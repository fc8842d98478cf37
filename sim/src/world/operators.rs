//! Operators: they cancel, pause, resume, restart and migrate, one at a time and concurrently.

use std::future::{Future, IntoFuture as _};

use futures_util::future::join_all;
use wigwag::{Asked, Client, RunHandle, Status};
use wigwag_core::{PauseCause, RunRef};

use super::{Plan, World};
use crate::code::{EVOLVING, REWRITTEN};
use crate::options::Ingredient;

/// Number of control objects in one burst.
const BURST: usize = 20;

/// Maximum number of resumes of a run that failures pause, and of migrations that do not help.
const RESUMES_MAX: usize = 4;

/// An operator's process.
struct Operator {
    name: String,
    client: Client,
}

impl World {
    /// Records the control objects that the operator has written since, if the call was acknowledged.
    async fn control<F>(&self, operator: &Operator, id: &str, call: F) -> bool
    where
        F: Future<Output = wigwag::Result<Asked>>,
    {
        let before = self.network.watch.controls_by(&operator.name).len();
        let answer = call.await;
        self.known().touched.insert(id.to_owned());
        if matches!(answer, Ok(Asked::Now)) {
            let now = self.clock.elapsed();
            let of: RunRef = RunRef::workflow(id.parse().expect("ids of the simulator are legal"));
            let put = self.network.watch.controls_by(&operator.name).split_off(before);
            let mine = put.into_iter().filter(|(run, _)| *run == of);
            // After a lost answer it may have been written twice under different names: only the last one is known to count.
            self.known().controls.extend(mine.last().map(|(run, control)| (run, control, now)));
        }
        answer.is_ok()
    }

    async fn operator(&self, name: String, salt: u64) -> Operator {
        let client = self.client(&name, salt).await;
        Operator { name, client }
    }

    /// An operator that cancels, pauses, resumes and restarts a run.
    pub(super) async fn operate(self, id: String, salt: u64) {
        let mut chance = self.chance(600 + salt);
        let operator = self.operator(format!("o{salt}"), 2_700 + salt).await;
        let Ok(run) = operator.client.run(&id) else { return };
        if self.style.control_burst {
            self.until_burst(&mut chance).await;
            self.burst_of_controls(&id, salt, &mut chance).await;
        }
        self.pass(chance.u64(..if self.style.retention { 150_000 } else { 30_000 })).await;
        let what = chance.u32(..10);
        if matches!(what, 0 | 3 | 6) {
            let reason = self.reason(&mut chance);
            self.control(&operator, &id, run.cancel().reason(reason).into_future()).await;
        }
        if what == 6 {
            self.meddle_with_compensation(&operator, &run, &id, &mut chance).await;
        }
        if matches!(what, 1 | 2) {
            self.control(&operator, &id, run.pause()).await;
            self.pass(chance.u64(..20_000)).await;
            for _ in 0..50 {
                if self.control(&operator, &id, run.resume().into_future()).await {
                    break;
                }
                // The run may not be paused yet.
                self.pass(1_500).await;
            }
        }
        if matches!(what, 3..=6) {
            for _ in 0..chance.usize(1..4) {
                self.restart(&operator, &run, &id, &mut chance).await;
            }
        }
    }

    /// Draws a text up to or beyond the size of an entry.
    fn reason(&self, chance: &mut fastrand::Rng) -> String {
        let max = self.bounds.limits.entry_bytes_max;
        let length = match chance.u32(..4) {
            0 if max < 100_000 => chance.usize(..=max + 1),
            0 if chance.u32(..8) == 0 => chance.usize(..=max + 1),
            1 => chance.usize(..200),
            _ => 12,
        };
        "r".repeat(length)
    }

    /// Sends many control objects concurrently: all operators see the run as it was before the first of them.
    async fn burst_of_controls(&self, id: &str, salt: u64, chance: &mut fastrand::Rng) {
        let mut operators = Vec::new();
        for place in 0..chance.u64(3..=BURST as u64) {
            operators.push(self.operator(format!("o{salt}b{place}"), 60_000 + salt * 100 + place).await);
        }
        let kinds: Vec<(u32, String)> = operators.iter().map(|_| (chance.u32(..12), self.reason(chance))).collect();
        let calls = operators.iter().zip(kinds).map(|(operator, (kind, reason))| async move {
            let Ok(run) = operator.client.run(id) else { return };
            match kind {
                0 => _ = self.control(operator, id, run.cancel().reason(reason).into_future()).await,
                1..4 => _ = self.control(operator, id, run.resume().into_future()).await,
                _ => _ = self.control(operator, id, run.pause()).await,
            }
        });
        join_all(calls).await;
        let Ok(run) = operators[0].client.run(id) else { return };
        for _ in 0..30 {
            self.pass(2_000).await;
            let paused = run.get().await.is_ok_and(|view| view.status() == Status::Paused);
            let resumed = paused && self.control(&operators[0], id, run.resume().into_future()).await;
            if resumed && chance.bool() {
                return;
            }
        }
    }

    /// Sends control requests to a run that is compensating.
    async fn meddle_with_compensation(
        &self,
        operator: &Operator,
        run: &RunHandle,
        id: &str,
        chance: &mut fastrand::Rng,
    ) {
        for _ in 0..80 {
            if run.status().await.is_ok_and(|status| status == Status::Compensating) {
                match chance.u32(..3) {
                    0 => _ = self.control(operator, id, run.pause()).await,
                    1 => _ = self.control(operator, id, run.cancel().into_future()).await,
                    _ => _ = self.control(operator, id, run.restart().into_future()).await,
                }
                return;
            }
            self.pass(250).await;
        }
    }

    /// An operator that resumes, migrates or restarts a run from a step while the run is compensated.
    pub(super) async fn meddle(self, plan: Plan, salt: u64) {
        let Plan { id, of, .. } = plan;
        let mut chance = self.chance(960_000 + salt);
        let operator = self.operator(format!("o{salt}m"), 95_000 + salt).await;
        let Ok(run) = operator.client.run(&id) else { return };
        while self.is_troubled() {
            self.pass(500).await;
            if !run.status().await.is_ok_and(|status| status == Status::Compensating) {
                continue;
            }
            let steps: Vec<String> = match run.steps().await {
                Ok(steps) => steps.keys().map(ToString::to_string).collect(),
                Err(_) => continue,
            };
            match chance.u32(..3) {
                0 => _ = self.control(&operator, &id, run.resume().into_future()).await,
                1 => self.migrate(&operator, &run, &id, &of).await,
                _ if steps.is_empty() => {}
                _ => {
                    let restart = run.restart().from(&steps[chance.usize(..steps.len())]);
                    let restarted = self.control(&operator, &id, restart.into_future()).await;
                    self.known().counts.restarts += usize::from(restarted);
                }
            }
            self.pass(chance.u64(..5_000)).await;
        }
    }

    /// Restarts a run once it has ended or is paused, from its start or from any recorded step.
    async fn restart(&self, operator: &Operator, run: &RunHandle, id: &str, chance: &mut fastrand::Rng) {
        for _ in 0..30 {
            let steps: Vec<String> = match run.steps().await {
                Ok(steps) if chance.bool() => steps.keys().map(ToString::to_string).collect(),
                _ => Vec::new(),
            };
            let restart = match steps.is_empty() {
                true => run.restart(),
                // Often one of the last steps, so that much is kept.
                false => run.restart().from(&steps[steps.len() - 1 - chance.usize(..steps.len().div_ceil(2))]),
            };
            if self.control(operator, id, restart.into_future()).await {
                self.known().counts.restarts += 1;
                self.pass(chance.u64(..8_000)).await;
                return;
            }
            self.pass(chance.u64(..3_000)).await;
        }
    }

    /// An operator that handles paused runs until the end: it migrates runs that changed code does not match,
    /// and resumes runs that a failure paused, up to a limit.
    pub(super) async fn release_pauses(self, plan: Plan, salt: u64) {
        let Plan { id, of, .. } = plan;
        let changes = self.style.deploy_at.is_some() && !of.starts_with("script");
        if !changes && !of.starts_with("graph") && !self.options.draws_limits() {
            return;
        }
        let operator = self.operator(format!("o{salt}p"), 2_900 + salt).await;
        let Ok(run) = operator.client.run(&id) else { return };
        let mut resumes = 0;
        loop {
            self.pass(if self.is_troubled() { 2_000 } else { 60_000 }).await;
            let Ok(view) = run.get().await else { continue };
            match view.run().pause.as_ref().map(|pause| pause.why) {
                Some(PauseCause::Version) if of != REWRITTEN || resumes < RESUMES_MAX => {
                    resumes += 1;
                    self.migrate(&operator, &run, &id, &of).await;
                }
                Some(PauseCause::Failure) if resumes < RESUMES_MAX && self.options.has(Ingredient::Operators) => {
                    resumes += usize::from(self.control(&operator, &id, run.resume().into_future()).await);
                }
                // An ended run may still be restarted.
                _ => {}
            }
        }
    }

    async fn migrate(&self, operator: &Operator, run: &RunHandle, id: &str, of: &str) {
        let migrate = match of {
            EVOLVING => run.migrate().rename("e1", "f1"),
            REWRITTEN => {
                let steps = run.steps().await.unwrap_or_default();
                let old = steps.keys().filter(|path| path.as_str().starts_with("old-"));
                old.fold(run.migrate(), |migrate, path| migrate.skip(path.as_str()))
            }
            _ => run.migrate(),
        };
        match self.control(operator, id, migrate.into_future()).await {
            true => self.known().counts.migrations += 1,
            // A worker with old code, which has stopped since, may have paused it.
            false => _ = self.control(operator, id, run.resume().into_future()).await,
        }
    }
}
