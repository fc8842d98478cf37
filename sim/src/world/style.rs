//! The style of a seed's world. Most worlds have a little of everything; some have much of one ingredient.

use std::time::Duration;

use crate::options::{Ingredient, Options};

/// The style of a world.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    /// No faults: code must run exactly as often as the log records.
    pub(super) peaceful: bool,
    /// Programs wait for the same name repeatedly, and many senders, some of them slow, send it.
    pub(super) busy: bool,
    /// Graphs and programs are large.
    pub(super) wide: bool,
    /// Some processes have no retry layer.
    pub(super) bare: bool,
    /// Processes of one machine detect the death of another.
    pub(super) peers: bool,
    pub(super) sweeper: bool,
    pub(super) retention: bool,
    pub(super) clock_steps: bool,
    /// Each signal is sent by a new process with a separate clock, after the previous one was acknowledged.
    pub(super) fresh_senders: bool,
    /// Each put has a latency of up to a tenth of the lease.
    pub(super) slow_puts: bool,
    /// Period without any worker.
    pub(super) absence: Option<(Duration, Duration)>,
    /// A burst of signals, in the period without workers if there is one.
    pub(super) signal_burst: bool,
    /// A burst of control objects, in the same period.
    pub(super) control_burst: bool,
    /// Index objects and wake-ups are deleted at the end, and the sweeper must restore them.
    pub(super) damage: bool,
    /// Time when new code is rolled out, and the interval from one worker to the next.
    pub(super) deploy_at: Option<(Duration, Duration)>,
    /// The clocks of some senders are off by more than the uncertainty that they declare.
    pub(super) wild_clocks: bool,
    /// Operators resume, migrate and restart runs from a step while they are compensated.
    pub(super) meddlers: bool,
}

impl Style {
    pub(super) fn draw(options: &Options, chance: &mut fastrand::Rng, atomic: bool) -> Self {
        let (deploy, stagger) = (chance.u64(5..40), [0, chance.u64(..15)][chance.usize(..2)]);
        let (away, back) = (chance.u64(5..30), chance.u64(8..30));
        let mut has = |ingredient, of: u32| chance.u32(..of) == 0 && options.has(ingredient);
        let deploys = has(Ingredient::Deploys, 3);
        let (sweeper, retention) = (has(Ingredient::Sweeper, 6), has(Ingredient::Retention, 5));
        let clock_steps = has(Ingredient::ClockSteps, 3) && atomic;
        let absence = has(Ingredient::Absence, 3);
        let signal_burst = has(Ingredient::SignalBursts, if absence { 2 } else { 8 });
        let control_burst = has(Ingredient::ControlBursts, if absence { 2 } else { 8 });
        let slow_puts = has(Ingredient::SlowPuts, 10);
        let damage = has(Ingredient::Damage, 12) && !retention;
        // A separate stream, so that all other worlds stay as they are. Its number is one for which none of the worlds that
        // the tests name has these ingredients.
        let mut apart = fastrand::Rng::with_seed(options.seed ^ 0x10BC);
        let mut has = |ingredient, of: u32| apart.u32(..of) == 0 && options.has(ingredient);
        let (wild_clocks, meddlers) = (has(Ingredient::WildClocks, 16) && !atomic, has(Ingredient::Meddlers, 12));
        let peaceful = chance.u32(..6) == 0;
        let seconds = Duration::from_secs;
        Self {
            peaceful,
            busy: chance.u32(..4) == 0,
            wide: chance.u32(..4) == 0,
            bare: chance.u32(..3) == 0,
            peers: atomic && chance.bool(),
            sweeper,
            retention,
            clock_steps: clock_steps && !peaceful,
            fresh_senders: chance.u32(..4) == 0,
            slow_puts,
            absence: absence.then(|| (seconds(away), seconds(away + back))),
            signal_burst,
            control_burst,
            damage,
            deploy_at: deploys.then(|| (seconds(deploy), seconds(stagger))),
            wild_clocks,
            meddlers,
        }
    }

    /// Whether the world has this ingredient.
    pub(super) fn has(&self, options: &Options, ingredient: Ingredient) -> bool {
        options.has(ingredient) && !(self.peaceful && ingredient.is_fault())
    }
}
